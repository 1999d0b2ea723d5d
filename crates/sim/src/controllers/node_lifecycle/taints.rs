//! The taints and labels that the node lifecycle controller writes.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use stead_model::{NOT_READY, UNREACHABLE};

use crate::api::whole_seconds;
use crate::nodes::taints;
use crate::step::Write;

/// The taint of a node that nobody may be scheduled to.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// The taint of a condition and its status.
const CONDITION_TAINTS: [(&str, &str, &str); 6] = [
    ("Ready", "False", NOT_READY),
    ("Ready", "Unknown", UNREACHABLE),
    ("MemoryPressure", "True", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "True", "node.kubernetes.io/disk-pressure"),
    ("NetworkUnavailable", "True", "node.kubernetes.io/network-unavailable"),
    ("PIDPressure", "True", "node.kubernetes.io/pid-pressure"),
];

/// A node that several writes change one after the other.
pub(super) struct NodeWriter {
    node: Node,
    pub(super) writes: Vec<Write>,
}

impl NodeWriter {
    pub(super) fn new(node: &Node) -> NodeWriter {
        // The writes follow each other without anybody else's in between, so the version is not needed.
        let mut node = node.clone();
        node.metadata.resource_version = None;
        NodeWriter { node, writes: Vec::new() }
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    pub(super) fn set_status(&mut self, change: impl FnOnce(&mut Node)) {
        change(&mut self.node);
        self.writes.push(Write::Status(self.node.clone().into()));
    }

    fn replace(&mut self) {
        self.writes.push(Write::Replace(self.node.clone().into()));
    }

    /// `SwapNodeControllerTaint`: adds taints, then removes others.
    pub(super) fn swap_taints(&mut self, add: &[Taint], remove: &[Taint], now: Timestamp) {
        let mut kept = taints(&self.node).to_vec();
        for taint in add {
            let taint = Taint { time_added: Some(whole_seconds(now)), ..taint.clone() };
            match kept.iter_mut().find(|other| matches(other, &taint)) {
                Some(other) => *other = taint,
                None => kept.push(taint),
            }
        }
        if kept != taints(&self.node) {
            self.set_taints(kept);
        }
        self.remove_taints(remove);
    }

    /// `RemoveTaintOffNode`.
    pub(super) fn remove_taints(&mut self, remove: &[Taint]) {
        let mut kept = taints(&self.node).to_vec();
        kept.retain(|taint| !remove.iter().any(|other| matches(other, taint)));
        if kept.len() < taints(&self.node).len() {
            self.set_taints(kept);
        }
    }

    fn set_taints(&mut self, taints: Vec<Taint>) {
        self.node.spec.get_or_insert_default().taints = Some(taints).filter(|taints| !taints.is_empty());
        self.replace();
    }

    /// `markNodeAsReachable`: removes the NoExecute taints for a node that is not Ready, one after the other.
    pub(super) fn mark_reachable(&mut self) {
        self.remove_taints(&[no_execute(UNREACHABLE)]);
        self.remove_taints(&[no_execute(NOT_READY)]);
    }

    /// `doNoScheduleTaintingPass`: the NoSchedule taints follow the conditions.
    pub(super) fn taint_no_schedule(&mut self, now: Timestamp) {
        let status = self.node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let by_condition = conditions.iter().filter_map(|condition| {
            let of = |(kind, status, _): &&(&str, &str, &str)| condition.type_ == *kind && condition.status == *status;
            CONDITION_TAINTS.iter().find(of).map(|(_, _, key)| *key)
        });
        let unschedulable = self.node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        let wanted: Vec<Taint> =
            by_condition.chain(unschedulable.then_some(UNSCHEDULABLE)).map(|key| taint(key, "NoSchedule")).collect();
        let is_ours = |key: &str| key == UNSCHEDULABLE || CONDITION_TAINTS.iter().any(|(_, _, taint)| *taint == key);
        let present: Vec<Taint> = taints(&self.node)
            .iter()
            .filter(|taint| taint.effect == "NoSchedule" && is_ours(&taint.key))
            .cloned()
            .collect();
        let missing_in = |all: &[Taint], taint: &Taint| !all.iter().any(|other| matches(other, taint));
        let add: Vec<Taint> = wanted.iter().filter(|taint| missing_in(&present, taint)).cloned().collect();
        let remove: Vec<Taint> = present.iter().filter(|taint| missing_in(&wanted, taint)).cloned().collect();
        self.swap_taints(&add, &remove, now);
    }

    /// `reconcileNodeLabels`: the beta labels follow the stable ones.
    pub(super) fn reconcile_labels(&mut self) {
        let Some(labels) = self.node.metadata.labels.as_mut() else { return };
        let before = labels.clone();
        for name in ["os", "arch"] {
            if let Some(value) = labels.get(&format!("kubernetes.io/{name}")).cloned() {
                labels.insert(format!("beta.kubernetes.io/{name}"), value);
            }
        }
        if *labels != before {
            self.replace();
        }
    }
}

fn matches(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.effect == b.effect
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.into(), effect: effect.into(), ..Taint::default() }
}

/// A NoExecute taint.
pub(super) fn no_execute(key: &str) -> Taint {
    taint(key, "NoExecute")
}

/// Whether a change of a node concerns its NoSchedule taints or labels.
pub(super) fn concerns_taints(before: Option<&Arc<Node>>, after: &Arc<Node>) -> bool {
    let Some(before) = before else { return true };
    fn conditions(node: &Node) -> impl Iterator<Item = (&str, &str)> {
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().map(|condition| (condition.type_.as_str(), condition.status.as_str()))
    }
    before.spec != after.spec
        || before.metadata.labels != after.metadata.labels
        || !conditions(before).eq(conditions(after))
}
