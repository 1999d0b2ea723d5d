//! What the API server adds to volumes, claims, storage classes and attachments when they are created.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimStatus, PersistentVolumeStatus,
};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachmentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object::SimObject;
use crate::store::Store;
use crate::volumes::{annotation, asked_class};

/// The finalizer of a claim that pods may use.
pub(crate) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// The finalizer of a volume that a claim may use.
pub(crate) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

/// Adds the defaults of a new object (`pkg/apis/core/v1` and `pkg/apis/storage/v1`), resets its status
/// (`PrepareForCreate`), and does what the admission plugins DefaultStorageClass and StorageObjectInUseProtection do.
pub(super) fn apply(object: &mut SimObject, store: &Store) {
    match object {
        SimObject::PersistentVolumeClaim(claim) => claim_defaults(Arc::make_mut(claim), store),
        SimObject::PersistentVolume(volume) => volume_defaults(Arc::make_mut(volume)),
        SimObject::StorageClass(class) => {
            let class = Arc::make_mut(class);
            class.reclaim_policy.get_or_insert_with(|| "Delete".into());
            class.volume_binding_mode.get_or_insert_with(|| "Immediate".into());
        }
        SimObject::CSIDriver(driver) => {
            Arc::make_mut(driver).spec.attach_required.get_or_insert(true);
        }
        SimObject::VolumeAttachment(attachment) => {
            Arc::make_mut(attachment).status = Some(VolumeAttachmentStatus::default());
        }
        _ => {}
    }
}

fn claim_defaults(claim: &mut PersistentVolumeClaim, store: &Store) {
    let class = if asked_class(claim).is_none() { default_class(store) } else { None };
    let spec = claim.spec.get_or_insert_default();
    spec.volume_mode.get_or_insert_with(|| "Filesystem".into());
    if let Some(class) = class {
        spec.storage_class_name = class.metadata.name.clone();
    }
    claim.status = Some(PersistentVolumeClaimStatus { phase: Some("Pending".into()), ..Default::default() });
    add_finalizer(&mut claim.metadata, CLAIM_PROTECTION);
}

fn volume_defaults(volume: &mut PersistentVolume) {
    let spec = volume.spec.get_or_insert_default();
    spec.volume_mode.get_or_insert_with(|| "Filesystem".into());
    spec.persistent_volume_reclaim_policy.get_or_insert_with(|| "Retain".into());
    volume.status = Some(PersistentVolumeStatus {
        phase: Some("Pending".into()),
        last_phase_transition_time: volume.metadata.creation_timestamp.clone(),
        ..PersistentVolumeStatus::default()
    });
    add_finalizer(&mut volume.metadata, VOLUME_PROTECTION);
}

fn add_finalizer(metadata: &mut ObjectMeta, finalizer: &str) {
    let finalizers = metadata.finalizers.get_or_insert_default();
    if !finalizers.iter().any(|other| other == finalizer) {
        finalizers.push(finalizer.to_owned());
    }
}

/// The class of claims that ask for none: the newest that is marked as default, and by name (`GetDefaultClass`).
pub(crate) fn default_class(store: &Store) -> Option<&Arc<StorageClass>> {
    let is_default = |class: &&Arc<StorageClass>| {
        let marks = ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
        marks.into_iter().any(|mark| annotation(&class.metadata, mark) == Some("true"))
    };
    let created = |class: &StorageClass| class.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let defaults = store.all::<StorageClass>().filter(is_default);
    defaults.min_by(|a, b| created(b).cmp(&created(a)).then_with(|| a.metadata.name.cmp(&b.metadata.name)))
}
