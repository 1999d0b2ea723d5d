//! Objects other than pods that are being deleted for too long.

use stead_model::{ObjectKey, ObjectRef};

use super::evidence::Evidence;
use super::roots::{Root, Roots};
use super::{StuckCause, nodes};

/// Assigns objects that finalizers keep, and then the namespaces that wait for their content.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    let deleted = |object: &ObjectRef<'_>| object.raw()["metadata"]["deletionTimestamp"].is_string();
    let stuck: Vec<ObjectRef<'_>> = evidence.objects.iter().filter(deleted).collect();
    let stuck = stuck.into_iter().filter(|object| !matches!(object.key().kind.as_str(), "Pod" | "Event"));
    let (namespaces, others): (Vec<_>, Vec<_>) = stuck.partition(|object| object.key().kind == "Namespace");
    for object in others {
        let Ok(metadata) = object.metadata() else { continue };
        if !evidence.deletion_is_stuck(&metadata) {
            continue;
        }
        if object.key().kind == "VolumeAttachment" {
            detaching(evidence, roots, object);
            continue;
        }
        let finalizers = metadata.finalizers.unwrap_or_default();
        let foreground = finalizers.iter().any(|finalizer| finalizer == "foregroundDeletion");
        // A deletion in the foreground waits for dependents: a stuck one of them is the root.
        let dependent = foreground.then(|| dependent(evidence, roots, object.key())).flatten();
        let root = dependent.unwrap_or_else(|| Root::new(StuckCause::FinalizerBlocks, object.key().clone()));
        if !finalizers.is_empty() {
            roots.assign(object.key(), root, &finalizers.join(", "));
        }
    }
    for object in namespaces {
        let Ok(metadata) = object.metadata() else { continue };
        if evidence.deletion_is_stuck(&metadata) {
            namespace(roots, object);
        }
    }
}

/// The root of a stuck object that an object controls.
fn dependent(evidence: &Evidence<'_>, roots: &Roots, owner: &ObjectKey) -> Option<Root> {
    let mut inside = roots.assigned().filter(|(key, _)| key.namespace == owner.namespace && *key != owner);
    inside.find(|(key, _)| evidence.objects.controllers(key).contains(owner)).map(|(_, root)| root.clone())
}

/// Assigns the volume of an attachment that is not detached.
fn detaching(evidence: &Evidence<'_>, roots: &mut Roots, object: ObjectRef<'_>) {
    let raw = object.raw();
    let Some(volume) = raw["spec"]["source"]["persistentVolumeName"].as_str() else { return };
    let volume = ObjectKey::cluster("PersistentVolume", volume);
    let node = raw["spec"]["nodeName"].as_str().unwrap_or_default();
    if let Some(fault) = evidence.fault_of(node) {
        return nodes::blame(evidence, roots, &volume, node, fault);
    }
    let driver = raw["spec"]["attacher"].as_str().unwrap_or_default();
    let error = raw["status"]["detachError"]["message"].as_str();
    let root = match error {
        Some(_) => Root::new(StuckCause::DriverFailing, ObjectKey::cluster("CSIDriver", driver)),
        None => Root::new(StuckCause::VolumeHeld, volume.clone()),
    };
    roots.assign(&volume, root, error.unwrap_or("it is not detached"));
}

/// Assigns a namespace to a stuck object in it, or to what its conditions say.
fn namespace(roots: &mut Roots, object: ObjectRef<'_>) {
    let name = &object.key().name;
    let inside = |key: &ObjectKey| key.namespace == *name;
    let content = roots.assigned().filter(|(key, root)| inside(key) && root.cause == StuckCause::FinalizerBlocks);
    let content = content.map(|(_, root)| root.clone()).next();
    let other = || roots.assigned().find(|(key, _)| inside(key) && key.kind == "Pod").map(|(_, root)| root.clone());
    let root = content.or_else(other);
    let conditions = object.raw()["status"]["conditions"].as_array().into_iter().flatten();
    let mut said = conditions.filter(|condition| condition["status"] == "True" && condition["message"].is_string());
    let detail = said.find_map(|condition| {
        let told =
            ["NamespaceFinalizersRemaining", "NamespaceDeletionDiscoveryFailure", "NamespaceDeletionContentFailure"];
        told.iter().any(|kind| condition["type"] == **kind).then(|| condition["message"].as_str()).flatten()
    });
    let own = || Root::new(StuckCause::FinalizerBlocks, object.key().clone());
    roots.assign(object.key(), root.unwrap_or_else(own), detail.unwrap_or_default());
}
