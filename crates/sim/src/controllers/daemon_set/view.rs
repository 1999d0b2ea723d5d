//! A DaemonSet, nodes, and its pods on them, at one moment.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, RollingUpdateDaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::placement::{NodeVerdict, Placement, is_updated};
use crate::object::SimKey;
use crate::pods::{is_available, node_of};

/// A pod, with the node that it is for.
pub(super) type Placed<'a> = (&'a str, &'a Arc<Pod>);

/// A node and the daemon pods for it. The node itself may be gone.
pub(super) struct NodeState<'a> {
    pub(super) name: &'a str,
    pub(super) exists: bool,
    pub(super) verdict: NodeVerdict,
    pub(super) pods: &'a [Placed<'a>],
}

/// A DaemonSet, and all or some nodes with its pods.
pub(super) struct View<'a> {
    pub(super) key: &'a SimKey,
    pub(super) set: &'a DaemonSet,
    pub(super) now: Timestamp,
    /// By the name of the node.
    pub(super) nodes: Vec<NodeState<'a>>,
    /// The hash of the present template.
    pub(super) hash: &'a str,
    /// The generation of the present template.
    pub(super) generation: Option<String>,
}

/// Nodes together with the pods for them. Both are in the order of the nodes' names.
pub(super) fn join<'a>(
    nodes: impl Iterator<Item = &'a Arc<Node>>,
    placement: &Placement,
    pods: &'a [Placed<'a>],
) -> Vec<NodeState<'a>> {
    const GONE: NodeVerdict = NodeVerdict { should_run: false, should_continue: false };
    let mut states = Vec::new();
    let mut groups = pods.chunk_by(|a, b| a.0 == b.0).peekable();
    let mut add_gone = |states: &mut Vec<NodeState<'a>>, before: Option<&str>| {
        while let Some(pods) = groups.next_if(|pods| before.is_none_or(|name| pods[0].0 < name)) {
            states.push(NodeState { name: pods[0].0, exists: false, verdict: GONE, pods });
        }
        groups.next_if(|pods| before.is_some_and(|name| pods[0].0 == name)).unwrap_or_default()
    };
    for node in nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let pods = add_gone(&mut states, Some(name));
        states.push(NodeState { name, exists: true, verdict: placement.verdict(node), pods });
    }
    add_gone(&mut states, None);
    states
}

impl View<'_> {
    /// `minReadySeconds`.
    pub(super) fn min_ready_seconds(&self) -> i32 {
        self.set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
    }

    /// The rolling update, if that is the strategy.
    pub(super) fn rolling_update(&self) -> Option<&RollingUpdateDaemonSet> {
        let strategy = self.set.spec.as_ref()?.update_strategy.as_ref()?;
        strategy.rolling_update.as_ref().filter(|_| strategy.type_.as_deref() == Some("RollingUpdate"))
    }

    /// How many extra pods an update may create, of a number of pods.
    pub(super) fn max_surge(&self, pods: usize) -> Option<usize> {
        match self.rolling_update().and_then(|rolling| rolling.max_surge.as_ref()) {
            Some(surge) => scaled_up(surge, pods),
            None => Some(0),
        }
    }

    /// How many pods an update may make unavailable, of a number of pods.
    pub(super) fn max_unavailable(&self, pods: usize) -> Option<usize> {
        match self.rolling_update() {
            Some(rolling) => scaled_up(rolling.max_unavailable.as_ref()?, pods),
            None => Some(0),
        }
    }

    /// Whether a pod is available.
    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, self.min_ready_seconds(), self.now)
    }

    /// Whether a pod has the present template.
    pub(super) fn is_updated(&self, pod: &Pod) -> bool {
        is_updated(pod, self.hash, self.generation.as_deref())
    }
}

/// A number, or a percentage of a total rounded up (`GetScaledValueFromIntOrPercent`); none if it is neither.
fn scaled_up(value: &IntOrString, total: usize) -> Option<usize> {
    match value {
        IntOrString::Int(value) => Some(usize::try_from(*value).unwrap_or_default()),
        IntOrString::String(text) => {
            let percent: usize = text.strip_suffix('%')?.parse().ok()?;
            Some((percent * total).div_ceil(100))
        }
    }
}

/// The order in which pods of one node are kept: assigned ones first, then the oldest (`podByCreationTimestampAndPhase`).
pub(super) fn oldest_first(a: &Pod, b: &Pod) -> Ordering {
    let created = |pod: &Pod| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    (node_of(a).is_none(), created(a), &a.metadata.name).cmp(&(node_of(b).is_none(), created(b), &b.metadata.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_rounded_up() {
        let text = |text: &str| IntOrString::String(text.into());
        for (value, total, expected) in [
            (IntOrString::Int(3), 100, Some(3)),
            (text("50%"), 5, Some(3)),
            (text("0%"), 5, Some(0)),
            (text("1%"), 5, Some(1)),
            (text("100%"), 5, Some(5)),
            (text("half"), 5, None),
        ] {
            assert_eq!(scaled_up(&value, total), expected, "{value:?}");
        }
    }
}
