//! Which volumes a pod uses, and how they are attached.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerStatus, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSIDriver;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sha2::{Digest, Sha256};
use stead_model::{claim_of, csi_driver, unique_volume_name};

use crate::object::{ObjectKind, SimKey};
use crate::pods;
use crate::settings::Settings;
use crate::store::Store;
use crate::world::Disk;

/// The annotation of a claim whose volume is to be created for a node.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// The annotation that names the provisioner of a claim.
pub(crate) const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The old form of [`PROVISIONER`].
pub(crate) const BETA_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// The annotation of a volume that names the provisioner that created it.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// The old form of `storageClassName`.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

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

/// The claims of a pod, generic ephemeral volumes included.
pub(crate) fn claim_keys(pod: &Pod) -> impl Iterator<Item = SimKey> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let claims = volumes.iter().filter_map(move |volume| claim_of(volume, name));
    claims.map(move |(claim, _)| SimKey::new(ObjectKind::PersistentVolumeClaim, namespace, &claim))
}

/// Whether a claim was created for a generic ephemeral volume of this pod (`VolumeIsForPod`).
pub(crate) fn is_ephemeral_claim_of(claim: &PersistentVolumeClaim, pod: &Pod) -> bool {
    let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    controller.is_some_and(|owner| Some(owner.uid.as_str()) == pod.metadata.uid.as_deref())
}

/// Whether the volumes of a pod may be detached: it has ended, or it is being deleted and no container runs
/// (`IsPodTerminated`).
pub(crate) fn is_pod_terminated(pod: &Pod) -> bool {
    if pods::has_ended(pod) {
        return true;
    }
    let Some(status) = pod.status.as_ref().filter(|_| pods::is_terminating(pod)) else {
        return pods::is_terminating(pod);
    };
    let runs = |container: &ContainerStatus| {
        container.state.as_ref().is_none_or(|state| state.terminated.is_none() && state.waiting.is_none())
    };
    let all = [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    !all.into_iter().flatten().flatten().any(runs)
}

/// The value of an annotation.
pub(crate) fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// The class that a claim asks for; none if it leaves the choice to the cluster (`PersistentVolumeClaimHasClass`).
pub(crate) fn asked_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    let spec = claim.spec.as_ref();
    annotation(&claim.metadata, BETA_CLASS).or_else(|| spec?.storage_class_name.as_deref())
}

/// The class of a claim; empty if it has none (`GetPersistentVolumeClaimClass`).
pub(crate) fn class_of_claim(claim: &PersistentVolumeClaim) -> &str {
    asked_class(claim).unwrap_or_default()
}

/// The class of a volume; empty if it has none (`GetPersistentVolumeClass`).
pub(crate) fn class_of_volume(volume: &PersistentVolume) -> &str {
    let spec = volume.spec.as_ref();
    let class = annotation(&volume.metadata, BETA_CLASS).or_else(|| spec?.storage_class_name.as_deref());
    class.unwrap_or_default()
}

/// The volume that a claim names; none if it names none.
pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// The disk behind a new volume.
pub(crate) fn new_disk(store: &Store, settings: &Settings, volume: &PersistentVolume) -> Disk {
    Disk {
        needs_attach: needs_attach(store, volume),
        detach_revokes: csi_driver(volume).is_none_or(|driver| settings.storage.driver(driver).detach_revokes),
        exclusive: is_exclusive(volume),
        ..Disk::default()
    }
}

/// The driver and the handle in the unique name of a CSI volume, `kubernetes.io/csi/DRIVER^HANDLE`.
pub(crate) fn csi_parts(unique_name: &str) -> Option<(&str, &str)> {
    unique_name.strip_prefix("kubernetes.io/csi/")?.split_once('^')
}

/// The name of the VolumeAttachment of a volume and a node (`getAttachmentName` of `pkg/volume/csi`).
pub fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let digest = Sha256::new().chain_update(handle).chain_update(driver).chain_update(node).finalize();
    digest.iter().fold(String::from("csi-"), |name, byte| format!("{name}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_terminated_pod_has_ended_or_runs_nothing_after_its_deletion() {
        let (running, waiting) = (json!({ "running": {} }), json!({ "waiting": {} }));
        let (ended, unknown) = (json!({ "terminated": { "exitCode": 0 } }), json!({}));
        // Phase, whether it is being deleted, the states of its containers, whether it is terminated.
        for (phase, deleted, states, terminated) in [
            ("Running", false, vec![&ended], false),
            ("Succeeded", false, vec![&ended], true),
            ("Failed", false, vec![&running], true),
            ("Running", true, vec![&running], false),
            ("Running", true, vec![&ended, &running], false),
            ("Running", true, vec![&ended, &unknown], false),
            ("Running", true, vec![&ended, &waiting], true),
            ("Pending", true, vec![], true),
        ] {
            let statuses: Vec<Value> = states
                .iter()
                .map(|state| {
                    json!({ "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state })
                })
                .collect();
            let deletion = deleted.then_some("2026-01-01T00:00:00Z");
            let pod = json!({ "metadata": { "name": "p", "deletionTimestamp": deletion },
                "status": { "phase": phase, "containerStatuses": statuses } });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            assert_eq!(is_pod_terminated(&pod), terminated, "{phase} {deleted} {states:?}");
        }
    }

    #[test]
    fn a_disk_has_the_rules_of_its_volume_and_driver() {
        use crate::settings::DriverSettings;
        let mut settings = Settings::default();
        let keeps = DriverSettings { detach_revokes: false, ..DriverSettings::default() };
        settings.storage.drivers.insert("d".into(), keeps);
        for (driver, mode, revokes, exclusive) in [
            ("d", "ReadWriteOnce", false, true),
            ("e", "ReadWriteMany", true, false),
            ("e", "ReadWriteOncePod", true, true),
        ] {
            let volume = json!({ "metadata": { "name": "v" },
                "spec": { "accessModes": [mode], "csi": { "driver": driver, "volumeHandle": "h" } } });
            let volume: PersistentVolume = serde_json::from_value(volume).expect("a volume");
            let disk = new_disk(&Store::default(), &settings, &volume);
            assert_eq!((disk.detach_revokes, disk.exclusive, disk.needs_attach), (revokes, exclusive, true), "{mode}");
        }
    }

    #[test]
    fn an_attachment_is_named_after_volume_driver_and_node() {
        // `printf voldrivernode | sha256sum`
        let expected = "csi-4af94228ee9d441e02225497584706bfc975bdb4d2db3571d8c5db2668c1e969";
        assert_eq!(attachment_name("vol", "driver", "node"), expected);
        assert_eq!(csi_parts("kubernetes.io/csi/d^h"), Some(("d", "h")));
    }
}
