//! Pods whose volume another node holds.

use stead_model::{EventView, ObjectKey, PodView};

use super::evidence::{Evidence, volume_of};
use super::roots::{Root, Roots};
use super::{StuckCause, nodes};

/// How the attach-detach controller begins its message about a volume that another node has: until 1.36.3, and since.
const WAITS_FOR_DETACH: [&str; 2] = ["Multi-Attach error", "Waiting for detach"];

/// Assigns a pod whose volume another node holds: to that node if it has a fault, to the pod there if it is stuck, to the
/// driver if it cannot detach.
pub(super) fn held(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>, reported: &[EventView<'_>]) -> bool {
    let waits = reported.iter().find(|event| WAITS_FOR_DETACH.iter().any(|text| event.message.contains(text)));
    for (claim_key, claim) in evidence.claims(pod) {
        let Some(name) = claim.and_then(volume_of) else { continue };
        let named = waits.is_some_and(|event| event.message.contains(&format!("\"{name}\"")));
        let here = |node: &str| Some(node) == pod.node();
        let attachments = || evidence.attachments(name).iter();
        let attached = |a: &&&k8s_openapi::api::storage::v1::VolumeAttachment| {
            a.status.as_ref().is_some_and(|status| status.attached)
        };
        if attachments().filter(attached).any(|a| here(&a.spec.node_name)) && !named {
            continue;
        }
        let elsewhere = attachments().find(|a| !here(&a.spec.node_name));
        let other = user(evidence, pod, &claim_key);
        let holder = elsewhere.map(|a| a.spec.node_name.as_str()).or(other.filter(|_| named).and_then(PodView::node));
        if !named && (evidence.is_shared(name) || holder.is_none()) {
            continue;
        }
        let volume = ObjectKey::cluster("PersistentVolume", name);
        if let Some((node, fault)) = holder.and_then(|node| Some((node, evidence.fault_of(node)?))) {
            nodes::blame(evidence, roots, pod.key(), node, fault);
            assign_volume(evidence, roots, &volume, nodes::root(node, fault));
            return true;
        }
        let error = elsewhere.and_then(|a| a.status.as_ref()?.detach_error.as_ref()?.message.clone());
        let root = match (elsewhere.filter(|_| error.is_some()), other.and_then(|other| roots.of(other.key()))) {
            (Some(a), _) => Root::new(StuckCause::DriverFailing, ObjectKey::cluster("CSIDriver", &a.spec.attacher)),
            (None, Some(root)) => root.clone(),
            (None, None) => Root::new(StuckCause::VolumeHeld, volume.clone()),
        };
        let place = match (holder, other) {
            (Some(node), Some(other)) => format!("pod {} uses it on node {node}", other.name()),
            (Some(node), None) => format!("it is attached to node {node}"),
            (None, _) => waits.map(|event| event.message.to_owned()).unwrap_or_default(),
        };
        roots.assign(pod.key(), root.clone(), &error.unwrap_or(place));
        assign_volume(evidence, roots, &volume, root);
        return true;
    }
    false
}

fn assign_volume(evidence: &Evidence<'_>, roots: &mut Roots, volume: &ObjectKey, root: Root) {
    if evidence.objects.contains(volume) {
        roots.assign(volume, root, "");
    }
}

/// Another pod that uses a claim on another node.
fn user<'a>(evidence: &Evidence<'a>, pod: PodView<'_>, claim: &ObjectKey) -> Option<PodView<'a>> {
    let users = evidence.users(claim).into_iter();
    users.into_iter().find(|other| !other.has_ended() && other.node().is_some() && other.node() != pod.node())
}
