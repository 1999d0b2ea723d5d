//! Claims and volumes: unbound, held, and drivers that fail.

use serde_json::{Value, json};

use super::nodes::{add_dead_node, lost, name_of};
use super::{NO_OWNER, broken_deployment};
use crate::background::{CLASS, DRIVER, IMMEDIATE};
use crate::cluster::FaultyCluster;
use crate::objects::{DAY, reference, with_claim};

/// Adds a driver with a name of its own, its class, and where it is registered: on all nodes of the background.
fn own_driver(cluster: &mut FaultyCluster, mode: &str) -> (String, String) {
    let serial = cluster.serial();
    let (driver, class) = (format!("csi-{serial}.example.org"), format!("class-{serial}"));
    let mut object = cluster.object("storage.k8s.io/v1", "CSIDriver", "", &driver, 90 * DAY);
    object["spec"] = json!({ "attachRequired": true });
    cluster.add(object);
    let mut object = cluster.object("storage.k8s.io/v1", "StorageClass", "", &class, 90 * DAY);
    object["provisioner"] = driver.as_str().into();
    object["volumeBindingMode"] = mode.into();
    cluster.add(object);
    (driver, class)
}

/// A node where this driver and that of the background are registered.
fn node_with(cluster: &mut FaultyCluster, driver: &str) -> String {
    let name = format!("storage-{}", cluster.serial());
    let node = cluster.add_node(&name, "zone-b");
    cluster.add(node);
    cluster.add_lease(&name, 6);
    cluster.add_csi_node(&name, &[DRIVER, driver]);
    name
}

/// A Deployment was scaled to two pods, and both use a ReadWriteOnce volume on different nodes.
pub(super) fn volume_held(cluster: &mut FaultyCluster, namespace: &str) {
    let volume = cluster.add_bound_claim(namespace, "shared", CLASS, DRIVER, &["ReadWriteOnce"]);
    let spec = with_claim(cluster.pod_spec(), "shared");
    let (deployment, owner) = cluster.deployment(namespace, "app", 2, 1, &spec);
    let of_deployment = reference(&deployment);
    cluster.add(deployment);
    let (first, mut second) =
        (cluster.replica(namespace, &owner, &spec, DAY), cluster.replica(namespace, &owner, &spec, 900));
    let mut first = first;
    let node = cluster.node();
    let other = cluster.node_but(&node);
    cluster.running(&mut first, &node, DAY);
    cluster.creating(&mut second, &other, 890);
    let attachment = cluster.attachment(&volume, &node, DRIVER);
    cluster.add(attachment);
    let message =
        format!("Multi-Attach error for volume \"{volume}\" Volume is already used by pod(s) {}", name_of(&first));
    cluster.warning(&second, "FailedAttachVolume", &message, "attachdetach-controller");
    let about = format!("persistentvolume/{volume}");
    cluster.expect("VolumeHeld", &about, [about.clone(), reference(&second), of_deployment]);
    cluster.add(first);
    cluster.add(second);
}

/// A driver cannot attach a volume.
pub(super) fn attach_fails(cluster: &mut FaultyCluster, namespace: &str) {
    let (driver, class) = own_driver(cluster, "WaitForFirstConsumer");
    let volume = cluster.add_bound_claim(namespace, "data", &class, &driver, &["ReadWriteOnce"]);
    let node = node_with(cluster, &driver);
    let mut attachment = cluster.attachment(&volume, &node, &driver);
    attachment["status"] = json!({ "attached": false, "attachError": { "time": cluster.ago(30),
        "message": "rpc error: code = Internal desc = failed to attach disk: quota of attachments reached" } });
    cluster.add(attachment);
    let spec = with_claim(cluster.pod_spec(), "data");
    let (pods, deployment) = broken_deployment(cluster, namespace, 1, &spec, |cluster, pod| {
        cluster.creating(pod, &node, 3000);
        let message = format!(
            "AttachVolume.Attach failed for volume \"{volume}\" : rpc error: code = Internal desc = failed to attach disk"
        );
        cluster.warning(pod, "FailedAttachVolume", &message, "attachdetach-controller");
    });
    cluster.expect("DriverFailing", &format!("csidriver/{driver}"), pods.into_iter().chain([deployment]));
}

/// A driver cannot detach a volume from a healthy node, and a pod elsewhere waits for it.
pub(super) fn detach_fails(cluster: &mut FaultyCluster, namespace: &str) {
    let (driver, class) = own_driver(cluster, "WaitForFirstConsumer");
    let volume = cluster.add_bound_claim(namespace, "data", &class, &driver, &["ReadWriteOnce"]);
    let (old, new) = (node_with(cluster, &driver), node_with(cluster, &driver));
    let mut attachment = cluster.attachment(&volume, &old, &driver);
    cluster.deleted(&mut attachment, 0, 3000);
    attachment["status"]["detachError"] = json!({ "time": cluster.ago(30), "message": "rpc error: code = DeadlineExceeded desc = context deadline exceeded" });
    let mut objects = vec![reference(&attachment), format!("persistentvolume/{volume}")];
    cluster.add(attachment);
    let spec = with_claim(cluster.pod_spec(), "data");
    let (pods, deployment) =
        broken_deployment(cluster, namespace, 1, &spec, |cluster, pod| cluster.creating(pod, &new, 3000));
    objects.extend(pods);
    objects.push(deployment);
    cluster.expect("DriverFailing", &format!("csidriver/{driver}"), objects);
}

fn waits_for_claim(cluster: &mut FaultyCluster, namespace: &str, name: &str, claim: &str) -> String {
    let spec = with_claim(cluster.pod_spec(), claim);
    let mut pod = cluster.pod(namespace, name, NO_OWNER, spec, 3600);
    let nodes = cluster.nodes.len();
    let message = format!("0/{nodes} nodes are available: pod has unbound immediate PersistentVolumeClaims. not found");
    cluster.unschedulable(&mut pod, &message, 3600);
    let out = reference(&pod);
    cluster.add(pod);
    out
}

/// A driver cannot provision volumes for two claims. Without its events only the claims are known.
pub(super) fn provisioning_fails(cluster: &mut FaultyCluster, namespace: &str) {
    let (driver, class) = own_driver(cluster, "Immediate");
    for name in ["one", "two"] {
        let mut claim = cluster.claim(namespace, name, Some(&class), 3600);
        claim["metadata"]["annotations"] = json!({ "volume.kubernetes.io/storage-provisioner": driver, "volume.beta.kubernetes.io/storage-provisioner": driver });
        let message = format!(
            "failed to provision volume with StorageClass \"{class}\": rpc error: code = Unavailable desc = connection refused"
        );
        cluster.warning(&claim, "ProvisioningFailed", &message, &driver);
        let pod = waits_for_claim(cluster, namespace, &format!("user-{name}"), name);
        let about = if cluster.has_events { format!("csidriver/{driver}") } else { reference(&claim) };
        let cause = if cluster.has_events { "DriverFailing" } else { "ClaimUnbound" };
        cluster.expect(cause, &about, [reference(&claim), pod]);
        cluster.add(claim);
    }
}

/// The driver of a volume is not registered on the pod's node.
pub(super) fn driver_not_registered(cluster: &mut FaultyCluster, namespace: &str) {
    let (driver, class) = own_driver(cluster, "WaitForFirstConsumer");
    let volume = cluster.add_bound_claim(namespace, "data", &class, &driver, &["ReadWriteOnce"]);
    let node = cluster.node();
    let attachment = cluster.attachment(&volume, &node, &driver);
    cluster.add(attachment);
    let spec = with_claim(cluster.pod_spec(), "data");
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 3600);
    cluster.creating(&mut pod, &node, 3500);
    let message = format!(
        "MountVolume.MountDevice failed for volume \"{volume}\" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name {driver} not found in the list of registered CSI drivers"
    );
    cluster.warning(&pod, "FailedMount", &message, "kubelet");
    cluster.expect("DriverFailing", &format!("csidriver/{driver}"), [reference(&pod)]);
    cluster.add(pod);
}

fn unbound(cluster: &mut FaultyCluster, namespace: &str, claim: Value) {
    let name = name_of(&claim);
    let pod = waits_for_claim(cluster, namespace, &format!("user-of-{name}"), &name);
    cluster.expect("ClaimUnbound", &reference(&claim), [reference(&claim), pod]);
    cluster.add(claim);
}

/// Nobody provisions the volume of a claim.
pub(super) fn claim_without_provisioner(cluster: &mut FaultyCluster, namespace: &str) {
    let mut claim = cluster.claim(namespace, "data", Some(IMMEDIATE), 3600);
    claim["metadata"]["annotations"] = json!({ "volume.kubernetes.io/storage-provisioner": DRIVER });
    unbound(cluster, namespace, claim);
}

/// A claim has no class, and there is no default one.
pub(super) fn claim_without_class(cluster: &mut FaultyCluster, namespace: &str) {
    let claim = cluster.claim(namespace, "data", None, 3600);
    unbound(cluster, namespace, claim);
}

/// A class of local volumes has no free one.
pub(super) fn claim_without_local_volume(cluster: &mut FaultyCluster, namespace: &str) {
    let class = format!("local-{}", cluster.serial());
    let mut object = cluster.object("storage.k8s.io/v1", "StorageClass", "", &class, 90 * DAY);
    object["provisioner"] = "kubernetes.io/no-provisioner".into();
    object["volumeBindingMode"] = "WaitForFirstConsumer".into();
    cluster.add(object);
    let claim = cluster.claim(namespace, "data", Some(&class), 3600);
    let spec = with_claim(cluster.pod_spec(), "data");
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 3600);
    let nodes = cluster.nodes.len();
    let message = format!(
        "0/{nodes} nodes are available: {nodes} node(s) didn't find available persistent volumes to bind. no new claims to deallocate, preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    );
    cluster.unschedulable(&mut pod, &message, 3600);
    cluster.expect("ClaimUnbound", &reference(&claim), [reference(&claim), reference(&pod)]);
    cluster.add(claim);
    cluster.add(pod);
}

/// The volume of a claim was deleted.
pub(super) fn lost_claim(cluster: &mut FaultyCluster, namespace: &str) {
    let mut claim = cluster.claim(namespace, "data", Some(CLASS), 9 * DAY);
    claim["spec"]["volumeName"] = "pvc-gone".into();
    claim["status"]["phase"] = "Lost".into();
    cluster.warning(
        &claim,
        "ClaimLost",
        "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        "persistentvolume-controller",
    );
    cluster.expect("ClaimUnbound", &reference(&claim), [reference(&claim)]);
    cluster.add(claim);
}

/// kube-scheduler has chosen a node for a new volume, and the node died before the volume was provisioned.
pub(super) fn selected_node_is_dead(cluster: &mut FaultyCluster, namespace: &str) {
    let node = add_dead_node(cluster, 1800);
    let mut claim = cluster.claim(namespace, "data", Some(CLASS), 2000);
    claim["metadata"]["annotations"] =
        json!({ "volume.kubernetes.io/selected-node": node, "volume.kubernetes.io/storage-provisioner": DRIVER });
    let spec = with_claim(cluster.pod_spec(), "data");
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 2000);
    let nodes = cluster.nodes.len();
    let message = format!(
        "0/{} nodes are available: 1 node(s) had untolerated taint(s), {nodes} node(s) didn't find available persistent volumes to bind. no new claims to deallocate, preemption: 0/{} nodes are available: {} Preemption is not helpful for scheduling.",
        nodes + 1,
        nodes + 1,
        nodes + 1
    );
    cluster.unschedulable(&mut pod, &message, 1900);
    cluster.expect("NodeUnreachable", &format!("node/{node}"), [reference(&claim), reference(&pod)]);
    cluster.add(claim);
    cluster.add(pod);
}

/// A pod's volume exists on a dead node only.
pub(super) fn volume_on_dead_node(cluster: &mut FaultyCluster, namespace: &str) {
    let node = add_dead_node(cluster, 1800);
    let (driver, class) = own_driver(cluster, "WaitForFirstConsumer");
    let volume = format!("local-{}", cluster.serial());
    let mut claim = cluster.claim(namespace, "data", Some(&class), 9 * DAY);
    claim["spec"]["volumeName"] = volume.as_str().into();
    claim["status"] = json!({ "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" } });
    let mut object = cluster.object("v1", "PersistentVolume", "", &volume, 9 * DAY);
    object["spec"] = json!({ "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": class,
        "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": driver, "volumeHandle": volume },
        "claimRef": { "kind": "PersistentVolumeClaim", "namespace": namespace, "name": "data", "uid": claim["metadata"]["uid"] },
        "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] }] } } });
    object["status"] = json!({ "phase": "Bound" });
    cluster.add(object);
    cluster.add(claim);
    let spec = with_claim(cluster.pod_spec(), "data");
    let (set, owner) = cluster.stateful_set(namespace, "db", 1, 0, &spec);
    let mut pod = cluster.ordinal(namespace, &owner, 0, &spec, 600);
    let nodes = cluster.nodes.len();
    let message = format!(
        "0/{} nodes are available: 1 node(s) had untolerated taint(s), {nodes} node(s) didn't match PersistentVolume's node affinity. no new claims to deallocate, preemption: not eligible",
        nodes + 1
    );
    cluster.unschedulable(&mut pod, &message, 590);
    cluster.expect("NodeUnreachable", &format!("node/{node}"), [reference(&set), reference(&pod)]);
    cluster.add(set);
    cluster.add(pod);
}

/// A pod on a dead node uses a ReadWriteOncePod claim that another pod waits for.
pub(super) fn exclusive_claim_on_dead_node(cluster: &mut FaultyCluster, namespace: &str) {
    let node = add_dead_node(cluster, 1800);
    let volume = cluster.add_bound_claim(namespace, "data", CLASS, DRIVER, &["ReadWriteOncePod"]);
    let attachment = cluster.attachment(&volume, &node, DRIVER);
    cluster.add(attachment);
    let spec = with_claim(cluster.pod_spec(), "data");
    let mut old = cluster.pod(namespace, "old", NO_OWNER, spec.clone(), DAY);
    cluster.running(&mut old, &node, DAY);
    lost(cluster, &mut old, 1800);
    let mut new = cluster.pod(namespace, "new", NO_OWNER, spec, 900);
    let nodes = cluster.nodes.len() + 1;
    let message = format!(
        "0/{nodes} nodes are available: {nodes} node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode. not found"
    );
    cluster.unschedulable(&mut new, &message, 890);
    cluster.expect(
        "NodeUnreachable",
        &format!("node/{node}"),
        [reference(&old), reference(&new), format!("persistentvolume/{volume}")],
    );
    cluster.add(old);
    cluster.add(new);
}
