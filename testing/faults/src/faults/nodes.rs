//! Nodes that are dead, deleted or not ready, and what they hold.

use serde_json::{Value, json};

use crate::background::{CLASS, DRIVER};
use crate::cluster::FaultyCluster;
use crate::objects::{DAY, Owner, reference, with_claim};

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// A node that is not part of the background, healthy so far. It has a name of its own.
pub(super) fn extra_node(cluster: &mut FaultyCluster) -> Value {
    let name = format!("extra-{}", cluster.serial());
    cluster.add_csi_node(&name, &[DRIVER]);
    cluster.add_node(&name, "zone-a")
}

pub(super) fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// The node controller no longer hears from a node.
pub(super) fn unreachable(cluster: &FaultyCluster, node: &mut Value, since: i64) {
    for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
        condition["status"] = "Unknown".into();
        condition["reason"] = "NodeStatusUnknown".into();
        condition["message"] = "Kubelet stopped posting node status.".into();
        condition["lastHeartbeatTime"] = cluster.ago(since + 52).into();
        condition["lastTransitionTime"] = cluster.ago(since).into();
    }
    node["spec"]["taints"] = json!([
        { "key": UNREACHABLE, "effect": "NoSchedule", "timeAdded": cluster.ago(since) },
        { "key": UNREACHABLE, "effect": "NoExecute", "timeAdded": cluster.ago(since) }]);
}

/// Adds an unreachable node; sometimes with its conditions only.
pub(super) fn add_dead_node(cluster: &mut FaultyCluster, since: i64) -> String {
    let mut node = extra_node(cluster);
    unreachable(cluster, &mut node, since);
    let name = name_of(&node);
    if cluster.chance.percent(30) {
        node["spec"].as_object_mut().map(|spec| spec.remove("taints"));
    } else {
        cluster.add_lease(&name, since + 52);
    }
    let (about, object) = (reference(&node), reference(&node));
    cluster.expect("NodeUnreachable", &about, [object]);
    cluster.add(node);
    name
}

/// The node controller has marked a pod of a dead node.
pub(super) fn lost(cluster: &FaultyCluster, pod: &mut Value, since: i64) {
    for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if condition["type"] == "Ready" {
            condition["status"] = "False".into();
            condition["lastTransitionTime"] = cluster.ago(since).into();
        }
    }
}

/// The taint manager has deleted a pod of a dead node.
fn evicted(cluster: &FaultyCluster, pod: &mut Value, overdue: i64) {
    cluster.deleted(pod, 30, overdue);
    let mut condition = cluster.condition("DisruptionTarget", "True", overdue + 30);
    condition["reason"] = "DeletionByTaintManager".into();
    condition["message"] = "Taint manager: deleting due to NoExecute taint".into();
    if let Some(conditions) = pod["status"]["conditions"].as_array_mut() {
        conditions.push(condition);
    }
}

/// A node is dead, with a StatefulSet pod and its volume, a DaemonSet pod, a static pod, and a Deployment whose replacement pod
/// waits for the volume.
pub(super) fn dead_node(cluster: &mut FaultyCluster, namespace: &str) {
    let is_evicted = cluster.chance.percent(60);
    let since = if is_evicted { 1800 } else { 120 };
    let node = add_dead_node(cluster, since);
    let mut objects = Vec::new();
    let spec = cluster.pod_spec();
    // A StatefulSet of two pods, one of them here.
    let (set, owner) = cluster.stateful_set(namespace, "db", 2, 1, &spec);
    objects.push(reference(&set));
    cluster.add(set);
    for ordinal in 0..2 {
        let claim = format!("data-db-{ordinal}");
        let volume = cluster.add_bound_claim(namespace, &claim, CLASS, DRIVER, &["ReadWriteOnce"]);
        let on = if ordinal == 1 { node.clone() } else { cluster.node() };
        let mut pod = cluster.ordinal(namespace, &owner, ordinal, &with_claim(spec.clone(), &claim), 9 * DAY);
        cluster.running(&mut pod, &on, 9 * DAY);
        if ordinal == 1 {
            lost(cluster, &mut pod, since);
            if is_evicted {
                evicted(cluster, &mut pod, since - 330);
            }
            objects.extend([reference(&pod), format!("persistentvolume/{volume}")]);
        }
        cluster.add(pod);
        let attachment = cluster.attachment(&volume, &on, DRIVER);
        cluster.add(attachment);
    }
    objects.extend(daemon_and_static_pod(cluster, namespace, &node, since));
    objects.extend(replaced_deployment(cluster, namespace, &node, since, is_evicted));
    cluster.expect("NodeUnreachable", &format!("node/{node}"), objects);
}

/// A DaemonSet pod stays on a dead node, and the DaemonSet no longer counts the node, which it does not tolerate.
fn daemon_and_static_pod(cluster: &mut FaultyCluster, namespace: &str, node: &str, since: i64) -> Vec<String> {
    let spec = cluster.pod_spec();
    let mut set = cluster.object("apps/v1", "DaemonSet", namespace, "logs", 60 * DAY);
    set["spec"] =
        json!({ "selector": { "matchLabels": { "app": "logs" } }, "template": { "metadata": {}, "spec": spec } });
    set["status"] = json!({ "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 1, "numberReady": 0, "observedGeneration": 1 });
    let owner = Owner::of("DaemonSet", &set);
    cluster.add(set);
    let mut daemon =
        cluster.pod(namespace, &format!("logs-{}", cluster.now.as_second()), Some(&owner), spec.clone(), 9 * DAY);
    let mut fixed = cluster.pod(namespace, &format!("proxy-{node}"), None, spec, 9 * DAY);
    fixed["metadata"]["annotations"] =
        json!({ "kubernetes.io/config.mirror": "0", "kubernetes.io/config.source": "file" });
    let mut out = Vec::new();
    for pod in [&mut daemon, &mut fixed] {
        cluster.running(pod, node, 9 * DAY);
        lost(cluster, pod, since);
        out.push(reference(pod));
    }
    cluster.add(daemon);
    cluster.add(fixed);
    out
}

/// A Deployment with a volume: once its pod is evicted, another one waits elsewhere for the volume.
fn replaced_deployment(
    cluster: &mut FaultyCluster,
    namespace: &str,
    node: &str,
    since: i64,
    is_evicted: bool,
) -> Vec<String> {
    let volume = cluster.add_bound_claim(namespace, "files", CLASS, DRIVER, &["ReadWriteOnce"]);
    let attachment = cluster.attachment(&volume, node, DRIVER);
    cluster.add(attachment);
    let spec = with_claim(cluster.pod_spec(), "files");
    let (deployment, owner) = cluster.deployment(namespace, "files", 1, 0, &spec);
    let mut out = vec![reference(&deployment), format!("persistentvolume/{volume}")];
    cluster.add(deployment);
    let mut old = cluster.replica(namespace, &owner, &spec, 9 * DAY);
    cluster.running(&mut old, node, 9 * DAY);
    lost(cluster, &mut old, since);
    if is_evicted {
        evicted(cluster, &mut old, since - 330);
        let mut new = cluster.replica(namespace, &owner, &spec, since - 300);
        let elsewhere = cluster.node();
        cluster.creating(&mut new, &elsewhere, since - 300);
        let begin = if cluster.chance.percent(50) { "Waiting for detach" } else { "Multi-Attach error" };
        let message = format!("{begin} for volume \"{volume}\" Volume is already used by pod(s) {}", name_of(&old));
        cluster.warning(&new, "FailedAttachVolume", &message, "attachdetach-controller");
        out.push(reference(&new));
        cluster.add(new);
    }
    out.push(reference(&old));
    cluster.add(old);
    out
}

/// The Node object was deleted, and a pod and an attachment still refer to it.
pub(super) fn deleted_node(cluster: &mut FaultyCluster, namespace: &str) {
    let node = format!("gone-{}", cluster.serial());
    let spec = cluster.pod_spec();
    let mut pod = cluster.pod(namespace, "left", None, spec, 9 * DAY);
    cluster.running(&mut pod, &node, 9 * DAY);
    lost(cluster, &mut pod, 900);
    evicted(cluster, &mut pod, 500);
    pod["metadata"]["finalizers"] = json!(["example.org/cleanup"]);
    cluster.expect("NodeUnreachable", &format!("node/{node}"), [reference(&pod)]);
    cluster.add(pod);
}

/// A kubelet reports that its network is not ready; its pods do not start.
pub(super) fn not_ready_node(cluster: &mut FaultyCluster, namespace: &str) {
    let mut node = extra_node(cluster);
    let name = name_of(&node);
    let ready = &mut node["status"]["conditions"][3];
    ready["status"] = "False".into();
    ready["reason"] = "KubeletNotReady".into();
    ready["message"] = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized".into();
    ready["lastTransitionTime"] = cluster.ago(1200).into();
    node["spec"]["taints"] =
        json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": cluster.ago(1200) }]);
    cluster.add_lease(&name, 4);
    let about = reference(&node);
    cluster.add(node);
    let spec = cluster.pod_spec();
    let mut started = cluster.pod(namespace, "still-runs", None, spec.clone(), 9 * DAY);
    cluster.running(&mut started, &name, 9 * DAY);
    cluster.add(started);
    let mut pod = cluster.pod(namespace, "waits", None, spec, 1100);
    cluster.creating(&mut pod, &name, 1090);
    cluster.warning(
        &pod,
        "NetworkNotReady",
        "network is not ready: container runtime network not ready: NetworkReady=false",
        "kubelet",
    );
    cluster.expect("NodeNotReady", &about, [about.clone(), reference(&pod)]);
    cluster.add(pod);
}

/// The controller manager is down: a node is shown as Ready, and its lease has expired.
pub(super) fn dead_node_by_lease(cluster: &mut FaultyCluster, namespace: &str) {
    if cluster.omitted.contains("Lease") {
        return;
    }
    let node = extra_node(cluster);
    let name = name_of(&node);
    cluster.add_lease(&name, 1500);
    let spec = cluster.pod_spec();
    let mut pod = cluster.pod(namespace, "on-it", None, spec, DAY);
    cluster.running(&mut pod, &name, DAY);
    cluster.expect("NodeUnreachable", &reference(&node), [reference(&node), reference(&pod)]);
    cluster.add(node);
    cluster.add(pod);
}

/// Only a dead node has the label that a Job's pod asks for: it could run if the node were back.
pub(super) fn capacity_of_a_dead_node(cluster: &mut FaultyCluster, namespace: &str) {
    let since = 1800;
    let node = add_dead_node(cluster, since);
    let mut spec = cluster.pod_spec();
    spec["nodeSelector"] = json!({ "kubernetes.io/hostname": node });
    let mut pod = cluster.pod(namespace, "pinned", None, spec, 1000);
    let others = cluster.nodes.len();
    let message = format!(
        "0/{} nodes are available: 1 node(s) had untolerated taint(s), {others} node(s) didn't match Pod's node affinity/selector. \
        no new claims to deallocate, preemption: 0/{} nodes are available: {} Preemption is not helpful for scheduling.",
        others + 1,
        others + 1,
        others + 1
    );
    cluster.unschedulable(&mut pod, &message, 1000);
    cluster.expect("NodeUnreachable", &format!("node/{node}"), [reference(&pod)]);
    cluster.add(pod);
}
