//! The next step of the recovery of a dead node.
//!
//! A machine is off; its pods stay Terminating and its volumes stay attached. Kubernetes has a safe solution, the
//! out-of-service taint, but leaves it to people to verify that the machine is off, to apply the taint, and to remove it at
//! the right time. This crate decides about that: from what was read ([`ClusterView`]), what was recorded
//! ([`NodeRecovery`]) and the time follows at most one write ([`RecoveryWrite`]), and what the recovery waits for.
//!
//! [`next_step`] classifies the node's situation (`situation.rs`) and matches on it and the phase; each arm is a function in
//! a file named for the phase or situation. [`Refusal`] has all reasons why a recovery does not start or continue.
//!
//! The caller reads the cluster again before each step. A write carries the UID and the version of the object that it was
//! decided for, and everything that has to be remembered is in the record: the caller can be killed between any two writes,
//! and two callers can work at the same time.

mod annotation;
mod before_taint;
mod begin;
mod close;
mod concurrency;
mod drivers;
mod evidence;
mod fenced;
mod guard;
mod new_evidence;
mod next_step;
mod orphan;
mod plan;
mod plan_changes;
mod policy;
mod progress;
mod record;
mod record_size;
mod records;
mod recovery;
mod refusal;
mod released;
mod replacement;
mod returned;
mod sign_of_life;
mod situation;
mod step;
mod tolerations;
mod view;

pub use annotation::{ANNOTATION, EndedRecovery, RecoveryAnnotation};
pub use concurrency::{LimitReached, MostUnreachable};
pub use drivers::{DRIVERS, DetachRevokes, StorageDriver, UnrevokedVolume, detach_revokes};
pub use evidence::NoEvidence;
#[cfg(feature = "switchable-guards")]
pub use guard::{Guard, Guards};
pub use next_step::{NextStep, RecoveryEnd, RecoveryWrite, Wait};
pub use plan::{PlanError, plan};
pub use policy::RecoveryPolicy;
pub use record::{
    API_VERSION, AddedTolerations, Evidence, EvidenceKind, KIND, LastContact, LeftAlone, NodeIdentity, NodeRecovery,
    NodeRecoverySpec, NodeRecoveryStatus, PlannedPod, RecordedStep, RecoveryPhase, RecoveryPlan, ReplacementTarget,
    Statement,
};
pub use records::{is_record_of, record_of};
pub use refusal::Refusal;
pub use sign_of_life::SignOfLife;
pub use step::next_step;
pub use view::{ClusterView, RecoveryRequest};
