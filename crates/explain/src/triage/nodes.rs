//! Nodes that cannot run pods, and the volumes that they hold.

use stead_model::ObjectKey;

use super::StuckCause;
use super::evidence::Evidence;
use super::node_faults::NodeFault;
use super::roots::{Root, Roots};

/// Assigns the unreachable nodes, and those that are not ready for too long. A node that is not ready for a short time
/// counts only if a pod on it is stuck.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    for (name, fault) in &evidence.faults {
        let counts = match fault {
            NodeFault::Unreachable(_) => true,
            NodeFault::NotReady(since) => evidence.lasted(*since, evidence.thresholds.not_ready),
            NodeFault::Deleted => false,
        };
        if counts {
            roots.assign(&ObjectKey::node(name), root(name, *fault), &reported(evidence, name, *fault));
        }
    }
    held_volumes(evidence, roots);
}

/// What the kubelet of a node that is not ready says.
fn reported(evidence: &Evidence<'_>, name: &str, fault: NodeFault) -> String {
    let node = evidence.objects.node(name).ok().flatten().filter(|_| matches!(fault, NodeFault::NotReady(_)));
    node.and_then(|node| node.condition("Ready")?.message.clone()).unwrap_or_default()
}

/// Assigns the volumes that are attached to an unreachable node: no other node can use them.
fn held_volumes(evidence: &Evidence<'_>, roots: &mut Roots) {
    for (volume, attachment) in evidence.all_attachments() {
        let node = &attachment.spec.node_name;
        let attached = attachment.status.as_ref().is_some_and(|status| status.attached);
        if let Some(fault @ NodeFault::Unreachable(_)) = evidence.faults.get(node)
            && attached
            && !evidence.is_shared(volume)
        {
            roots.assign(&ObjectKey::cluster("PersistentVolume", volume), root(node, *fault), "");
        }
    }
}

/// The root of what is stuck because of a node.
pub(super) fn root(name: &str, fault: NodeFault) -> Root {
    let cause = match fault {
        NodeFault::Unreachable(_) | NodeFault::Deleted => StuckCause::NodeUnreachable,
        NodeFault::NotReady(_) => StuckCause::NodeNotReady,
    };
    Root::new(cause, ObjectKey::node(name))
}

/// Assigns an object to the fault of a node, and the node with it.
pub(super) fn blame(evidence: &Evidence<'_>, roots: &mut Roots, object: &ObjectKey, name: &str, fault: NodeFault) {
    let node = ObjectKey::node(name);
    if evidence.objects.contains(&node) {
        roots.assign(&node, root(name, fault), &reported(evidence, name, fault));
    }
    roots.assign(object, root(name, fault), "");
}
