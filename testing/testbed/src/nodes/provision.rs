//! Creates and deletes volumes for claims, like an external provisioner.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::reflector::ObjectRef;
use serde_json::{Value, json};

use super::world::World;

/// The provisioner of a claim's volume; set by the controller manager.
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";

/// The node of the claim's first pod; set by the scheduler.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// The provisioner that created a volume.
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";

/// Creates the volumes that claims wait for, and deletes released ones.
pub(super) async fn run(world: Arc<World>) {
    let mut changed = world.changed();
    let (mut created, mut deleted) = (BTreeSet::new(), BTreeSet::new());
    loop {
        changed.mark_unchanged();
        let failed = !create_volumes(&world, &mut created).await | !delete_volumes(&world, &mut deleted).await;
        // A failure is retried soon, even without a change.
        let timeout = if failed { Duration::from_millis(300) } else { Duration::MAX };
        if let Ok(Err(_)) = tokio::time::timeout(timeout, changed.changed()).await {
            return;
        }
    }
}

/// Creates volumes for claims. Returns whether all writes succeeded.
async fn create_volumes(world: &World, created: &mut BTreeSet<String>) -> bool {
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let mut succeeded = true;
    for claim in world.claims.state() {
        let uid = claim.uid().unwrap_or_default();
        if created.contains(&uid) {
            continue;
        }
        let Some(volume) = volume_for(world, &claim).and_then(|volume| serde_json::from_value(volume).ok()) else {
            continue;
        };
        match volumes.create(&PostParams::default(), &volume).await {
            Ok(_) => drop(created.insert(uid)),
            Err(kube::Error::Api(status)) if status.code == 409 => drop(created.insert(uid)),
            Err(_) => succeeded = false,
        }
    }
    succeeded
}

/// Returns the volume to create for a claim; none if there is nothing to create, or not yet.
fn volume_for(world: &World, claim: &PersistentVolumeClaim) -> Option<Value> {
    let spec = claim.spec.as_ref()?;
    let driver = world.spec.driver(claim.annotations().get(PROVISIONER)?)?;
    if spec.volume_name.as_ref().is_some_and(|name| !name.is_empty()) || claim.metadata.deletion_timestamp.is_some() {
        return None;
    }
    if world.disks.driver_error(&driver.name).is_some() {
        return None;
    }
    let class = world.classes.get(&ObjectRef::new(spec.storage_class_name.as_ref()?))?;
    let node = claim.annotations().get(SELECTED_NODE);
    if class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer") && node.is_none() {
        return None;
    }
    let name = format!("pvc-{}", claim.uid()?);
    let mut volume = json!({
        "metadata": { "name": name, "annotations": { PROVISIONED_BY: driver.name } },
        "spec": {
            "capacity": { "storage": spec.resources.as_ref()?.requests.as_ref()?.get("storage")? },
            "accessModes": spec.access_modes,
            "volumeMode": spec.volume_mode,
            "persistentVolumeReclaimPolicy": class.reclaim_policy.as_deref().unwrap_or("Delete"),
            "storageClassName": class.name_any(),
            "mountOptions": class.mount_options,
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "namespace": claim.namespace(), "name": claim.name_any(), "uid": claim.uid(),
            },
            "csi": { "driver": driver.name, "volumeHandle": name },
        },
    });
    if let (Some(key), Some(node)) = (&driver.topology, node) {
        // The claim waits until the node has the topology label.
        let node = world.node(node)?;
        let term = json!({ "key": key, "operator": "In", "values": [node.labels().get(key)?] });
        volume["spec"]["nodeAffinity"] =
            json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [term] }] } });
    }
    Some(volume)
}

/// Deletes released volumes. Returns whether all writes succeeded.
async fn delete_volumes(world: &World, deleted: &mut BTreeSet<String>) -> bool {
    let volumes: Api<PersistentVolume> = Api::all(world.client.clone());
    let mut succeeded = true;
    for volume in world.volumes.state() {
        let uid = volume.uid().unwrap_or_default();
        if deleted.contains(&uid) || !must_be_deleted(world, &volume) {
            continue;
        }
        match volumes.delete(&volume.name_any(), &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code != 404 => succeeded = false,
            Err(kube::Error::Api(_)) | Ok(_) => {
                world.disks.delete(&volume.name_any());
                deleted.insert(uid);
            }
            Err(_) => succeeded = false,
        }
    }
    succeeded
}

fn must_be_deleted(world: &World, volume: &PersistentVolume) -> bool {
    let ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|name| world.spec.driver(name).is_some());
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    // An attached volume cannot be deleted before it is detached.
    let attached = || {
        let attachments = world.attachments.state();
        attachments.iter().any(|a| a.spec.source.persistent_volume_name.as_ref() == volume.metadata.name.as_ref())
    };
    let deleting = volume.metadata.deletion_timestamp.is_some();
    let works = || {
        let driver = volume.annotations().get(PROVISIONED_BY);
        driver.is_none_or(|driver| world.disks.driver_error(driver).is_none())
    };
    ours && works() && phase == Some("Released") && policy == Some("Delete") && !deleting && !attached()
}
