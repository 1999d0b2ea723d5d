//! kube-scheduler's decision as a pure function: which nodes are feasible for a pod, why the others are not, the scores
//! of the feasible ones, and the message of the event if there are none.
//!
//! Objects are passed as a [`Snapshot`] or one by one, are compiled once (quantities, selectors and affinities), and
//! are stored in a [`Cluster`] that can be changed and forked. [`evaluate`] answers for one pod, with every reason and
//! score. [`Cluster::place`] returns only the feasible and the best nodes, at a fraction of the cost, and [`place_all`]
//! does so for a queue. The result is that of kube-scheduler of the cluster's version (1.29 to 1.36) with the default
//! profile and all nodes scored.
//!
//! This crate knows no client, no clock and no files, and uses no random numbers: ties are returned as sets.

mod answer;
mod batch;
mod cluster;
mod csi_migration;
mod cycle;
mod error;
mod fast;
mod go_sort;
mod node;
mod objects;
mod plugins;
mod pod;
mod preemption;
mod profile;
mod resources;
mod snapshot;
mod specs;
mod status;
mod storage;
mod verdict;
mod version_rules;
mod wording;
mod workloads;

pub use answer::PlacementAnswer;
pub use batch::{Batch, BatchError, place_all};
pub use cluster::{Cluster, UnknownNode};
pub use cycle::{Attempt, SpreadCounts, evaluate, refusal};
pub use error::InputError;
pub use fast::Placement;
pub use node::{Node, NodeInfo};
pub use plugins::volume_binding::VolumePlan;
pub use pod::{AffinityTerm, HostPort, NamedNodes, Owner, Pod, PodKey, PodSpec, SpreadConstraint, Tolerations, Volume};
pub use profile::{DEFAULT_SCHEDULER, Profile, Profiles};
pub use resources::{PodResources, ResourceName, Resources};
pub use snapshot::Snapshot;
pub use status::{
    AttemptFault, ClaimNotOwned, Code, CsiTranslationError, ExtensionPoint, Plugin, Rejection, RejectionReason,
    SchedulingError,
};
pub use storage::{Capacity, Claim, PersistentVolume, StorageClass, StorageState, TopologyTerm, VolumeSource};
pub use verdict::{NodeScores, Nominee, Refusal, Unmodelled, Verdict};
pub use version_rules::ReasonWording;
pub use workloads::{Budget, Workloads};
