//! Everything that is stuck in a cluster, grouped by root cause.
//!
//! [`triage`] collects what is stuck, assigns each object to exactly one cause, and returns the causes, the most severe
//! first: nodes (`nodes.rs`), then pods (`pods.rs`, with `scheduling.rs` for those without a node and `starting.rs` for the
//! others), then what their state explains: claims, workloads, deletions, Topologies and budgets, one file each. `roots.rs`
//! keeps the assignment.
//!
//! Statuses, conditions, specs and references decide; events, which expire after an hour, add detail, or decide where
//! nothing else is left of a failure.

mod action;
mod attachments;
mod budgets;
mod cause;
mod claims;
mod creating;
mod cron_jobs;
mod deletions;
mod evidence;
mod held;
mod missing;
mod node_faults;
mod nodes;
mod pods;
mod quotas;
mod rejections;
mod render;
mod roots;
mod scheduling;
mod scope;
mod starting;
mod summary;
mod topologies;
mod trial;
mod unread;
mod unready;
mod workloads;

use std::collections::BTreeSet;

use jiff::SignedDuration;
use serde::Serialize;
use stead_model::Objects;

pub use action::TriageAction;
pub use cause::{Severity, StuckCause};
pub use render::{render, render_wide};
pub(crate) use roots::reference;
pub use scope::TriageScope;

use crate::outage::Clock;
use crate::suggested_command::{ClientAtHand, SuggestsCommands};
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
    /// What was not read although the answer depends on it.
    #[serde(skip)]
    pub note: Option<String>,
}

impl SuggestsCommands for Triage {
    fn use_client(&mut self, client: &ClientAtHand) {
        self.causes.iter_mut().for_each(|cause| cause.action.use_client(client));
    }
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
    pub action: TriageAction,
    /// The stuck objects, as `kind/NAMESPACE/NAME` or `kind/NAME`. Each object is under one cause only.
    pub objects: Vec<String>,
    /// The summary without what was reported.
    #[serde(skip)]
    headline: String,
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
    attachments::assign(&evidence, &mut roots);
    topologies::assign(&evidence, &mut roots);
    budgets::assign(&evidence, &mut roots);
    let causes = roots.finish(&evidence, scope);
    Triage { stuck: !causes.is_empty(), causes, note: unread::note(kinds) }
}
