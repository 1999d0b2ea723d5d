//! Why a pod waits, and possible fixes that were verified.
//!
//! A fix is a set of changes to objects ([`Change`]), so that it can be shown, typed and checked by others. Each is tried on
//! a fork of the cluster with the scheduler's own rules before it is offered; a fix that would not let the pod in is never
//! shown.
//!
//! Data flows one way: objects → placement's verdict → the cause of each reason → possible fixes → a search over forks →
//! [`Explanation`] → [`render`]. For pods that do not end or do not start ([`outage`]): objects and the time → who uses
//! which volume where → what follows with each option. This crate knows no client, no clock (callers pass the time) and
//! no files.

mod causes;
mod change;
mod commands;
pub mod control_plane;
mod explanation;
pub mod glance;
mod managers;
mod object;
pub mod outage;
mod references;
mod remedies;
mod render;
mod search;
mod services;
mod suggested_command;
mod table;
pub mod topology;
pub mod triage;
mod workload_pods;
mod wrap;

pub use change::{Change, ChangeAction, apply_to_case};
pub use explanation::{Cause, Explanation, NodeAndZone, OfferedFix, PodState, Reason, explain, explain_placement};
pub use object::{CauseOfPods, ObjectExplanation, explain_object, render_object};
pub use references::{ChosenTopology, Reference, ReferenceLevel};
pub use remedies::Harm;
pub use render::render;
pub use search::Fix;
pub use suggested_command::{ClientAtHand, ClientProgram, SuggestedCommand, SuggestsCommands};
pub use table::table;
pub use workload_pods::{WaitingForNode, WorkloadPod};
pub use wrap::hanging;

use stead_model::{ModelError, ObjectKey, Objects};
use stead_placement::evaluate;

/// Possible fixes for a pod that no node can run; none for a pod that fits, or that cannot be judged.
pub fn fixes(objects: &Objects, pod: &ObjectKey) -> Result<Vec<Fix>, ModelError> {
    let trial = change::Trial::new(objects, pod)?;
    Ok(match evaluate(&trial.cluster, &trial.pod) {
        Ok(verdict) if !verdict.fits() && verdict.error.is_none() => search::fixes(&trial, &verdict),
        _ => Vec::new(),
    })
}
