//! Which volumes a pod uses, and how they are attached.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSIDriver;
use stead_model::{claim_of, csi_driver, unique_volume_name};

use crate::store::Store;

/// A volume of a pod that is bound.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct BoundVolume {
    /// The PersistentVolume.
    pub(crate) volume: Arc<PersistentVolume>,
    /// The name in `volumesInUse` and `volumesAttached` of a node.
    pub(crate) unique_name: Option<String>,
    /// Whether it has to be attached to the node first.
    pub(crate) needs_attach: bool,
    /// Whether the pod mounts it read-only.
    pub(crate) read_only: bool,
}

impl BoundVolume {
    /// The name of the PersistentVolume.
    pub(crate) fn name(&self) -> &str {
        self.volume.metadata.name.as_deref().unwrap_or_default()
    }

    /// Whether it can be attached to one node only (`IsMultiAttachAllowed`).
    pub(crate) fn is_exclusive(&self) -> bool {
        is_exclusive(&self.volume)
    }
}

/// Whether a volume can be used by one node only.
pub(crate) fn is_exclusive(volume: &PersistentVolume) -> bool {
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    !modes.is_empty() && !modes.iter().any(|mode| matches!(mode.as_str(), "ReadWriteMany" | "ReadOnlyMany"))
}

/// Whether a volume has to be attached: CSI volumes whose driver does not say otherwise.
pub(crate) fn needs_attach(store: &Store, volume: &PersistentVolume) -> bool {
    let Some(driver) = csi_driver(volume) else { return false };
    let driver = store.get::<CSIDriver>("", driver);
    driver.is_none_or(|driver| driver.spec.attach_required.unwrap_or(true))
}

/// Why a volume of a pod cannot be used yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnusableClaim {
    /// There is no such claim.
    NotFound(String),
    /// It is not bound.
    Unbound(String),
}

/// The persistent volumes of a pod, in the order of its spec; or the first claim that cannot be used.
pub(crate) fn bound_volumes(store: &Store, pod: &Pod) -> Result<Vec<BoundVolume>, UnusableClaim> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let mut bound = Vec::new();
    for volume in pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default() {
        let Some((claim, read_only)) = claim_of(volume, name) else { continue };
        let found = store.get::<PersistentVolumeClaim>(namespace, &claim);
        let Some(found) = found else { return Err(UnusableClaim::NotFound(claim)) };
        let phase = found.status.as_ref().and_then(|status| status.phase.as_deref());
        let volume_name = found.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
        let persistent = store.get::<PersistentVolume>("", volume_name).filter(|_| phase == Some("Bound"));
        let Some(persistent) = persistent else { return Err(UnusableClaim::Unbound(claim)) };
        bound.push(BoundVolume {
            unique_name: unique_volume_name(persistent),
            needs_attach: needs_attach(store, persistent),
            read_only,
            volume: Arc::clone(persistent),
        });
    }
    Ok(bound)
}
