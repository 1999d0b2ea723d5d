//! The defaults of volumes, claims, classes and drivers.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};

use super::{canonical, set};

pub(super) fn volume(volume: &mut PersistentVolume) {
    let spec = volume.spec.get_or_insert_default();
    set(&mut spec.persistent_volume_reclaim_policy, "Retain");
    spec.volume_mode.get_or_insert_with(|| "Filesystem".into());
    canonical(&mut spec.capacity);
}

pub(super) fn claim(claim: &mut PersistentVolumeClaim) {
    claim_spec(claim.spec.get_or_insert_default());
}

/// The same for the claim of a generic ephemeral volume and of a StatefulSet.
pub(super) fn claim_spec(spec: &mut PersistentVolumeClaimSpec) {
    spec.volume_mode.get_or_insert_with(|| "Filesystem".into());
    let resources = spec.resources.get_or_insert_default();
    canonical(&mut resources.requests);
    canonical(&mut resources.limits);
}

pub(super) fn class(class: &mut StorageClass) {
    class.reclaim_policy.get_or_insert_with(|| "Delete".into());
    class.volume_binding_mode.get_or_insert_with(|| "Immediate".into());
}

pub(super) fn driver(driver: &mut CSIDriver) {
    let spec = &mut driver.spec;
    spec.attach_required.get_or_insert(true);
    spec.pod_info_on_mount.get_or_insert(false);
    spec.storage_capacity.get_or_insert(false);
    spec.fs_group_policy.get_or_insert_with(|| "ReadWriteOnceWithFSType".into());
    if spec.volume_lifecycle_modes.as_ref().is_none_or(Vec::is_empty) {
        spec.volume_lifecycle_modes = Some(vec!["Persistent".into()]);
    }
    spec.requires_republish.get_or_insert(false);
    spec.se_linux_mount.get_or_insert(false);
}
