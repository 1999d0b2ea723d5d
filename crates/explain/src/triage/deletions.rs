//! Objects other than pods that are being deleted for too long.

use k8s_openapi::api::core::v1::{Namespace, PersistentVolume};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::{ObjectKey, ObjectRef, csi_driver};

use super::evidence::Evidence;
use super::roots::{Root, Roots};
use super::{StuckCause, nodes};

/// Keeps a claim while a pod uses it.
const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// Keeps a volume while it is bound to a claim.
const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// Assigns objects that finalizers keep: claims, then volumes, then others, then the namespaces that wait for their content.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    let kinds = evidence.objects.kinds().filter(|kind| !matches!(*kind, "Pod" | "Event" | "Lease"));
    let mut stuck: Vec<(ObjectRef<'_>, ObjectMeta)> = Vec::new();
    for kind in kinds {
        let deleted = evidence.objects.of_kind(kind).filter(|object| object.is_being_deleted());
        let with_metadata = deleted.filter_map(|object| Some((object, object.metadata().ok()?)));
        stuck.extend(with_metadata.filter(|(_, metadata)| evidence.deletion_is_stuck(metadata)));
    }
    stuck.sort_by_key(|(object, _)| match object.key().kind.as_str() {
        "PersistentVolumeClaim" => 0,
        "PersistentVolume" => 1,
        "Namespace" => 3,
        _ => 2,
    });
    for (object, metadata) in &stuck {
        match object.key().kind.as_str() {
            "VolumeAttachment" => detaching(evidence, roots, *object),
            "Namespace" => namespace(roots, *object),
            _ => finalized(evidence, roots, *object, metadata),
        }
    }
}

/// Assigns an object that its finalizers keep.
fn finalized(evidence: &Evidence<'_>, roots: &mut Roots, object: ObjectRef<'_>, metadata: &ObjectMeta) {
    let finalizers = metadata.finalizers.clone().unwrap_or_default();
    let key = object.key();
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if finalizers.is_empty() {
        return;
    }
    let own = Root::new(StuckCause::FinalizerBlocks, key.clone());
    if has(CLAIM_PROTECTION)
        && let Some(pod) = evidence.users(key).into_iter().find(|pod| pod.node().is_some())
    {
        let root = roots.of(pod.key()).cloned();
        let ended = if pod.has_ended() { format!(" ({})", pod.phase()) } else { String::new() };
        roots.assign(key, root.clone().unwrap_or(own.clone()), &format!("pod {}{ended} still uses it", pod.name()));
        if root.is_none() {
            roots.set_as_configured(&own);
        }
        return;
    }
    if has(VOLUME_PROTECTION)
        && let Some(claim) = claim_of_volume(object)
        && evidence.objects.contains(&claim)
    {
        let root = roots.of(&claim).cloned();
        roots.assign(key, root.clone().unwrap_or(own.clone()), &format!("it is still bound to {claim}"));
        if root.is_none() {
            roots.set_as_configured(&own);
        }
        return;
    }
    if let Some((driver, message)) = failed_delete(evidence, object, metadata) {
        return roots.assign(key, Root::new(StuckCause::DriverFailing, driver), &message);
    }
    // A deletion in the foreground waits for dependents: a stuck one of them is the root.
    let dependent = has("foregroundDeletion").then(|| dependent(evidence, roots, key)).flatten();
    roots.assign(key, dependent.unwrap_or(own), &finalizers.join(", "));
}

fn claim_of_volume(object: ObjectRef<'_>) -> Option<ObjectKey> {
    let volume = object.typed::<PersistentVolume>().ok()?;
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(ObjectKey::new("PersistentVolumeClaim", claim.namespace.as_deref()?, claim.name.as_deref()?))
}

/// What a driver reported that cannot delete its volume.
fn failed_delete(evidence: &Evidence<'_>, object: ObjectRef<'_>, metadata: &ObjectMeta) -> Option<(ObjectKey, String)> {
    if object.key().kind != "PersistentVolume" {
        return None;
    }
    let driver = csi_driver(object.typed::<PersistentVolume>().ok()?)?;
    let mut warnings = evidence.warnings(object.key(), metadata.uid.as_deref());
    let event = warnings.find(|event| event.reason == "VolumeFailedDelete")?;
    Some((ObjectKey::cluster("CSIDriver", driver), event.message.to_owned()))
}

/// The root of a stuck object that an object controls.
fn dependent(evidence: &Evidence<'_>, roots: &Roots, owner: &ObjectKey) -> Option<Root> {
    let mut inside = roots.assigned().filter(|(key, _)| key.namespace == owner.namespace && *key != owner);
    inside.find(|(key, _)| evidence.objects.controllers(key).contains(owner)).map(|(_, root)| root.clone())
}

/// Assigns an attachment that is not detached, and its volume.
fn detaching(evidence: &Evidence<'_>, roots: &mut Roots, object: ObjectRef<'_>) {
    let Ok(attachment) = object.typed::<VolumeAttachment>() else { return };
    let Some(volume) = attachment.spec.source.persistent_volume_name.as_deref() else { return };
    let volume = ObjectKey::cluster("PersistentVolume", volume);
    let node = &attachment.spec.node_name;
    let exists = evidence.objects.contains(&volume);
    if let Some(fault) = evidence.fault_of(node) {
        nodes::blame(evidence, roots, object.key(), node, fault);
        if exists {
            roots.assign(&volume, nodes::root(node, fault), "");
        }
        return;
    }
    let error = attachment.status.as_ref().and_then(|status| status.detach_error.as_ref()?.message.as_deref());
    let known = roots.of(&volume).cloned();
    let root = known.unwrap_or_else(|| match error {
        Some(_) => Root::new(StuckCause::DriverFailing, ObjectKey::cluster("CSIDriver", &attachment.spec.attacher)),
        None => Root::new(StuckCause::VolumeHeld, volume.clone()),
    });
    let detail = error.map_or_else(|| format!("it is not detached from node {node}"), str::to_owned);
    roots.assign(object.key(), root.clone(), &detail);
    if exists {
        roots.assign(&volume, root, "");
    }
}

/// Assigns a namespace to a stuck object in it, or to what its conditions say.
fn namespace(roots: &mut Roots, object: ObjectRef<'_>) {
    let name = &object.key().name;
    let conditions = object.typed::<Namespace>().ok().and_then(|n| n.status.as_ref()?.conditions.clone());
    let conditions = conditions.unwrap_or_default();
    let told = |kind: &str| {
        let found = conditions.iter().find(|c| c.type_ == kind && c.status == "True");
        found.and_then(|condition| condition.message.clone())
    };
    // An API group whose server does not answer keeps every namespace.
    let failure =
        told("NamespaceDeletionDiscoveryFailure").or_else(|| told("NamespaceDeletionGroupVersionParsingFailure"));
    let inside = |key: &ObjectKey| key.namespace == *name;
    let content = roots.assigned().filter(|(key, root)| inside(key) && root.cause == StuckCause::FinalizerBlocks);
    let content = content.map(|(_, root)| root.clone()).next();
    let other = || roots.assigned().find(|(key, _)| inside(key) && key.kind == "Pod").map(|(_, root)| root.clone());
    let root = content.or_else(other).filter(|_| failure.is_none());
    let kinds = ["NamespaceFinalizersRemaining", "NamespaceDeletionContentFailure", "NamespaceContentRemaining"];
    let detail = failure.or_else(|| kinds.iter().find_map(|kind| told(kind)));
    let own = || Root::new(StuckCause::FinalizerBlocks, object.key().clone());
    roots.assign(object.key(), root.unwrap_or_else(own), &detail.unwrap_or_default());
}
