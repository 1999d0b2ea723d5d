//! Everything that is stuck in a cluster, grouped by root cause.
//!
//! [`triage`] collects what is stuck, assigns each object to exactly one cause, and returns the causes, the most severe
//! first: nodes (`nodes.rs`), then pods (`pods.rs`, with `scheduling.rs`, `starting.rs`), then what their state explains:
//! claims, workloads, volumes, deletions, Topologies and budgets, one file each. `roots.rs` keeps the assignment.

mod budgets;
mod cause;
mod claims;
mod deletions;
mod evidence;
mod nodes;
mod pods;
mod render;
mod roots;
mod scheduling;
mod scope;
mod starting;
mod summary;
mod topologies;
mod workloads;

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde::Serialize;
use stead_model::Objects;

pub use cause::{Severity, StuckCause};
pub use render::{render, render_wide};
pub use scope::TriageScope;

use crate::outage::Clock;
use evidence::Evidence;
use roots::Roots;

/// How long a state may last before an object counts as stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Terminating for this long after the end of the grace period.
    pub terminating: SignedDuration,
    /// ContainerCreating.
    pub creating: SignedDuration,
    /// Not ready.
    pub not_ready: SignedDuration,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            terminating: SignedDuration::from_secs(60),
            creating: SignedDuration::from_mins(2),
            not_ready: SignedDuration::from_mins(5),
        }
    }
}

/// What is stuck.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Triage {
    /// Whether anything is.
    pub stuck: bool,
    /// The root causes, the most severe first.
    pub causes: Vec<RootCause>,
}

/// A root cause and the objects that are stuck because of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RootCause {
    /// The cause.
    pub cause: StuckCause,
    /// The object that it is about, such as `node/worker-0`.
    pub about: String,
    /// How severe it is.
    pub severity: Severity,
    /// What is wrong, in a sentence.
    pub summary: String,
    /// What to do: a command, as a rule.
    pub action: String,
    /// The stuck objects, as `kind/NAMESPACE/NAME` or `kind/NAME`. Each object is under one cause only.
    pub objects: Vec<String>,
}

/// Finds everything that is stuck. `kinds` are the kinds that were read, even those without objects.
pub fn triage(
    objects: &Objects,
    kinds: &BTreeSet<String>,
    clock: &Clock,
    thresholds: &Thresholds,
    scope: &TriageScope,
) -> Triage {
    let evidence = Evidence::new(objects, kinds, clock, *thresholds);
    let mut roots = Roots::default();
    nodes::assign(&evidence, &mut roots);
    pods::assign(&evidence, &mut roots);
    claims::assign(&evidence, &mut roots);
    workloads::assign(&evidence, &mut roots);
    deletions::assign(&evidence, &mut roots);
    topologies::assign(&evidence, &mut roots);
    budgets::assign(&evidence, &mut roots);
    let causes = roots.finish(&evidence, scope);
    Triage { stuck: !causes.is_empty(), causes }
}
