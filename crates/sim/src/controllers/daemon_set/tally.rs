//! The counters of a DaemonSet, node by node: a step looks only at the nodes that something happened to.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use stead_model::fork::Sorted;

use super::rolling_update::{UpdateState, update_state};
use super::view::{NodeState, View, oldest_first};
use crate::pods::is_ready;

/// What the counts of nodes were made for: another template or spec needs all of them again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TallyBasis {
    pub(super) generation: Option<i64>,
    pub(super) template_generation: Option<i64>,
    pub(super) hash: String,
}

/// What is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    desired: i32,
    current: i32,
    misscheduled: i32,
    ready: i32,
    updated: i32,
    available: i32,
    old: i32,
    replaceable: i32,
    unavailable: i32,
}

/// The nodes of a DaemonSet.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    basis: TallyBasis,
    nodes: Sorted<Arc<str>, Counts>,
    total: Counts,
    /// The nodes to look at; none if all have to be.
    todo: Option<BTreeSet<Arc<str>>>,
}

impl Tally {
    /// Something happened to a node or to a pod for it.
    pub(super) fn mark(&mut self, node: &str) {
        if let Some(todo) = &mut self.todo {
            todo.insert(node.into());
        }
    }

    /// The nodes to look at; none if all have to be.
    pub(super) fn todo(&mut self, basis: TallyBasis) -> Option<&BTreeSet<Arc<str>>> {
        if self.basis != basis {
            *self = Tally { basis, ..Tally::default() };
        }
        self.todo.as_ref()
    }

    /// Counts the nodes of a view: all that had to be looked at. Those that are still open are looked at again next time.
    pub(super) fn count(&mut self, view: &View<'_>, open: &[&str]) {
        let mut open: BTreeSet<Arc<str>> = open.iter().map(|node| (*node).into()).collect();
        // A node that has neither an object nor pods any more is not part of the view.
        for name in self.todo.take().into_iter().flatten() {
            if let Some(counts) = self.nodes.remove(|other| other.cmp(&name)) {
                self.total = self.total.minus(counts);
            }
        }
        for node in &view.nodes {
            let counts = Counts::of(view, node);
            if let Some(before) = self.nodes.insert(node.name.into(), counts) {
                self.total = self.total.minus(before);
            }
            self.total = self.total.plus(counts);
            if counts.ready != counts.available || has_lagging_pod(view, node) {
                open.insert(node.name.into());
            }
        }
        self.todo = Some(open);
    }

    /// The sum of all nodes.
    pub(super) fn total(&self) -> Counts {
        self.total
    }
}

/// Whether a pod of the node becomes available by itself.
fn has_lagging_pod(view: &View<'_>, node: &NodeState<'_>) -> bool {
    view.min_ready_seconds() > 0 && node.pods.iter().any(|(_, pod)| is_ready(pod) && !view.is_available(pod))
}

impl Counts {
    /// The counts of one node (`updateDaemonSetStatus`).
    fn of(view: &View<'_>, node: &NodeState<'_>) -> Counts {
        let update = update_state(view, node);
        let UpdateState { is_old, is_replaceable, is_unavailable } = update;
        let counts = Counts {
            old: i32::from(is_old),
            replaceable: i32::from(is_replaceable),
            unavailable: i32::from(is_unavailable),
            ..Counts::default()
        };
        let oldest = node.pods.iter().map(|(_, pod)| pod).min_by(|a, b| oldest_first(a, b));
        match oldest {
            _ if !node.exists => counts,
            oldest if !node.verdict.should_run => Counts { misscheduled: i32::from(oldest.is_some()), ..counts },
            None => Counts { desired: 1, ..counts },
            Some(pod) => Counts {
                desired: 1,
                current: 1,
                ready: i32::from(is_ready(pod)),
                available: i32::from(view.is_available(pod)),
                updated: i32::from(view.is_updated(pod)),
                ..counts
            },
        }
    }

    fn plus(self, other: Counts) -> Counts {
        self.combined(other, |a, b| a + b)
    }

    fn minus(self, other: Counts) -> Counts {
        self.combined(other, |a, b| a - b)
    }

    fn combined(self, other: Counts, with: impl Fn(i32, i32) -> i32) -> Counts {
        Counts {
            desired: with(self.desired, other.desired),
            current: with(self.current, other.current),
            misscheduled: with(self.misscheduled, other.misscheduled),
            ready: with(self.ready, other.ready),
            updated: with(self.updated, other.updated),
            available: with(self.available, other.available),
            old: with(self.old, other.old),
            replaceable: with(self.replaceable, other.replaceable),
            unavailable: with(self.unavailable, other.unavailable),
        }
    }

    /// Whether a rolling update has anything to do: the nodes need not be looked at otherwise.
    pub(super) fn may_update(self, view: &View<'_>) -> bool {
        let desired = usize::try_from(self.desired).unwrap_or_default();
        let (Some(surge), Some(allowed)) = (view.max_surge(desired), view.max_unavailable(desired)) else {
            return false;
        };
        let unavailable = usize::try_from(self.unavailable).unwrap_or_default();
        view.rolling_update().is_some() && self.old > 0 && (surge > 0 || self.replaceable > 0 || unavailable < allowed.max(1))
    }

    /// Whether a ready pod is not available yet.
    pub(super) fn is_lagging(self) -> bool {
        self.ready != self.available
    }

    /// The status of a set with these counters.
    pub(super) fn status(self, set: &DaemonSet) -> DaemonSetStatus {
        let counted = |number: i32| Some(number).filter(|number| *number != 0);
        DaemonSetStatus {
            desired_number_scheduled: self.desired,
            current_number_scheduled: self.current,
            number_misscheduled: self.misscheduled,
            number_ready: self.ready,
            updated_number_scheduled: counted(self.updated),
            number_available: counted(self.available),
            number_unavailable: counted(self.desired - self.available),
            ..set.status.clone().unwrap_or_default()
        }
    }
}
