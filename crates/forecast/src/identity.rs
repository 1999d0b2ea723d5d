//! What controllers find objects by: UIDs, and the names of attachments. A dump may lack UIDs, and one that was redacted has
//! other names.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use stead_model::unique_volume_name;
use stead_sim::{SimObject, SimType, attachment_name};

/// Kind, namespace and name.
type Name = (String, String, String);

/// Gives each object what controllers find it by.
pub(crate) fn complete(objects: &mut [SimObject]) {
    let mut uids = referenced(objects);
    for object in objects.iter_mut() {
        let name = name_of(object);
        let metadata = object.metadata();
        match metadata.uid.as_ref().filter(|uid| !uid.is_empty()) {
            Some(uid) => drop(uids.insert(name, uid.clone())),
            None => {
                let unknown = || format!("uid of {}/{}/{}", name.0, name.1, name.2);
                let uid = uids.entry(name.clone()).or_insert_with(unknown).clone();
                object.metadata_mut().uid = Some(uid);
            }
        }
    }
    for object in objects.iter_mut() {
        let namespace = object.metadata().namespace.clone().unwrap_or_default();
        let is_incomplete =
            object.metadata().owner_references.iter().flatten().any(|reference| reference.uid.is_empty());
        if !is_incomplete {
            continue;
        }
        let references = object.metadata_mut().owner_references.iter_mut().flatten();
        for reference in references.filter(|reference| reference.uid.is_empty()) {
            let name = (reference.kind.clone(), namespace.clone(), reference.name.clone());
            reference.uid = uids.get(&name).cloned().unwrap_or_else(|| format!("uid of {}", reference.name));
        }
    }
    name_attachments(objects);
}

fn name_of(object: &SimObject) -> Name {
    let metadata = object.metadata();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (object.kind().name().to_owned(), text(&metadata.namespace), text(&metadata.name))
}

/// The UIDs by which owners and claims are referred to.
fn referenced(objects: &[SimObject]) -> BTreeMap<Name, String> {
    let mut uids = BTreeMap::new();
    for object in objects {
        let namespace = object.metadata().namespace.clone().unwrap_or_default();
        for reference in object.metadata().owner_references.iter().flatten().filter(|found| !found.uid.is_empty()) {
            uids.insert((reference.kind.clone(), namespace.clone(), reference.name.clone()), reference.uid.clone());
        }
        let claim = PersistentVolume::of(object).and_then(|volume| volume.spec.as_ref()?.claim_ref.as_ref());
        if let Some((claim, uid)) = claim.and_then(|claim| Some((claim, claim.uid.clone()?))) {
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            uids.insert(("PersistentVolumeClaim".to_owned(), text(&claim.namespace), text(&claim.name)), uid);
        }
    }
    uids
}

/// The attach-detach controller finds attachments by a name that it computes, and the driver's attacher those that have its
/// finalizer.
fn name_attachments(objects: &mut [SimObject]) {
    let volumes = objects.iter().filter_map(PersistentVolume::of);
    let volumes = volumes.filter_map(|volume| Some((volume.metadata.name.clone()?, unique_volume_name(volume)?)));
    let volumes: BTreeMap<String, String> = volumes.collect();
    for object in objects {
        let Some(attachment) = VolumeAttachment::of(object) else { continue };
        let unique = attachment.spec.source.persistent_volume_name.as_ref().and_then(|name| volumes.get(name));
        let unique = unique.and_then(|unique| unique.strip_prefix("kubernetes.io/csi/")?.split_once('^'));
        let Some((driver, handle)) = unique else { continue };
        let name = attachment_name(handle, driver, &attachment.spec.node_name);
        let finalizer = format!("external-attacher/{}", driver.replace('.', "-"));
        let metadata = object.metadata_mut();
        metadata.name = Some(name);
        if metadata.finalizers.as_ref().is_none_or(Vec::is_empty) {
            metadata.finalizers = Some(vec![finalizer]);
        }
    }
}
