//! Why a pod waits, and the ways out that were tried.
//!
//! Objects come in as they were found ([`stead_model::Objects`]): a way out is a set of changes to them ([`Change`]), so that what
//! is offered can be shown, typed and checked by others. Each is tried on a fork of the cluster with the scheduler's
//! own rules before it is offered; what the scheduler would not let in is never shown.
//!
//! Data flows one way: objects → placement's verdict → what is behind each reason → remedies for it → a search over
//! forks → [`Explanation`] → [`render`]. Of pods that end or start not ([`outage`]): objects and the time → what hangs
//! where, and who holds it → the moments that follow on each way out. This crate knows no client, no clock (it is told the
//! time) and no files.

mod because;
mod change;
mod commands;
mod explanation;
pub mod glance;
pub mod outage;
mod references;
mod remedies;
mod render;
mod search;
mod table;
pub mod topology;
mod workload_pods;

pub use change::{Action, Change, apply_to_case};
pub use explanation::{Because, Explanation, NodeNote, Offer, Reason, State, explain, explain_placement};
pub use references::{Chosen, Level, Reference};
pub use remedies::Harm;
pub use render::render;
pub use search::Fix;
pub use table::table;
pub use workload_pods::{PodStanding, Waiting};

use stead_model::{ModelError, ObjectKey, Objects};
use stead_placement::evaluate;

/// The ways out for a pod that no node takes; none for a pod that fits, or that cannot be judged.
pub fn fixes(objects: &Objects, pod: &ObjectKey) -> Result<Vec<Fix>, ModelError> {
    let trial = change::Trial::new(objects, pod)?;
    Ok(match evaluate(&trial.cluster, &trial.pod) {
        Ok(verdict) if !verdict.fits() && verdict.error.is_none() => search::fixes(&trial, &verdict),
        _ => Vec::new(),
    })
}
