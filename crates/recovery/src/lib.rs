//! What the recovery of a dead node needs next.
//!
//! A machine is off, its pods cannot end and its volumes hang on it. Kubernetes has a safe way out, the out-of-service
//! taint, and leaves it to a person to know that the machine is off, to put the taint there, and to take it away at the
//! right time. Here is what decides about that: from what the cluster says ([`View`]), what was written down
//! ([`NodeRecovery`]) and the time comes one write at most ([`Deed`]), and what is waited for.
//!
//! Whoever carries it out reads the cluster anew before each step. A deed has the identity and the version of what it
//! was decided for, and all that has to be remembered is in the record: it can be killed between any two writes, and two
//! can do it at once.

mod brake;
mod deed;
mod drivers;
mod evidence;
mod follow;
mod guard;
mod limits;
mod mark;
mod owners;
mod plan;
mod pods;
mod policy;
mod record;
mod shield;
mod step;
mod view;

pub use deed::{Deed, End, Step, Wait};
pub use drivers::{DRIVERS, DetachRevokes, StorageDriver, UnrevokedVolume, detach_revokes};
pub use evidence::{BootIdChanged, CloudShutdown, Person, WITNESSES, Witness};
#[cfg(feature = "switchable-guards")]
pub use guard::{Guard, Guards};
pub use mark::{ANNOTATION, Mark, Over};
pub use plan::{PlanError, plan};
pub use policy::Policy;
pub use record::{
    API_VERSION, CondemnedPod, Evidence, EvidenceKind, Heard, KIND, LeftAlone, NodeIdentity, NodeRecovery, Phase, Plan,
    Said, Shield, Spec, Status, Target, Took,
};
pub use step::step;
pub use view::{Request, View, record_of};
