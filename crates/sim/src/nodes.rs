//! Rules about nodes that several components share.

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};

/// A condition of the node.
pub(crate) fn condition<'a>(node: &'a Node, kind: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// Whether the node is Ready (`IsNodeReady`).
pub(crate) fn is_ready(node: &Node) -> bool {
    condition(node, "Ready").is_some_and(|condition| condition.status == "True")
}

/// Its taints.
pub(crate) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

/// Whether it has a taint with this key and effect.
pub(crate) fn has_taint(node: &Node, key: &str, effect: &str) -> bool {
    taints(node).iter().any(|taint| taint.key == key && taint.effect == effect)
}
