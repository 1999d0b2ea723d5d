//! Pods that no node can run, or that nobody schedules.

use serde_json::{Value, json};

use super::nodes::extra_node;
use super::nodes::name_of;
use super::{NO_OWNER, broken_deployment, expect_pods};
use crate::cluster::FaultyCluster;
use crate::objects::{DAY, reference};

fn preemption(nodes: usize) -> String {
    format!(
        "no new claims to deallocate, preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    )
}

/// Pods of a Deployment ask for more than a node has.
pub(super) fn too_large(cluster: &mut FaultyCluster, namespace: &str) {
    let mut spec = cluster.pod_spec();
    spec["containers"][0]["resources"] = json!({ "requests": { "cpu": "100" } });
    let nodes = cluster.nodes.len();
    let pods = 1 + cluster.chance.below(3) as i64;
    let (pods, deployment) = broken_deployment(cluster, namespace, pods, &spec, |cluster, pod| {
        cluster.unschedulable(
            pod,
            &format!("0/{nodes} nodes are available: {nodes} Insufficient cpu. {}", preemption(nodes)),
            3600,
        );
    });
    expect_pods(cluster, "Unschedulable", pods, deployment);
}

/// No node has the label that a pod asks for. Sometimes only the reason of the condition is there.
pub(super) fn no_node_matches(cluster: &mut FaultyCluster, namespace: &str) {
    let mut spec = cluster.pod_spec();
    spec["nodeSelector"] = json!({ "disk": "nvme" });
    let mut pod = cluster.pod(namespace, "picky", NO_OWNER, spec, 3600);
    let nodes = cluster.nodes.len();
    let message = format!(
        "0/{nodes} nodes are available: {nodes} node(s) didn't match Pod's node affinity/selector. {}",
        preemption(nodes)
    );
    cluster.unschedulable(&mut pod, &message, 3600);
    if cluster.chance.percent(30) {
        pod["status"]["conditions"][0].as_object_mut().map(|condition| condition.remove("message"));
    }
    cluster.expect("Unschedulable", &reference(&pod), [reference(&pod)]);
    cluster.add(pod);
}

/// A pod has a scheduling gate.
pub(super) fn gated(cluster: &mut FaultyCluster, namespace: &str) {
    let mut spec = cluster.pod_spec();
    spec["schedulingGates"] = json!([{ "name": "example.org/quota" }]);
    let mut pod = cluster.pod(namespace, "gated", NO_OWNER, spec, 3600);
    let mut condition = cluster.condition("PodScheduled", "False", 3600);
    condition["reason"] = "SchedulingGated".into();
    condition["message"] = "Scheduling is blocked due to non-empty scheduling gates".into();
    pod["status"]["conditions"] = json!([condition]);
    cluster.expect("SchedulingGated", &reference(&pod), [reference(&pod)]);
    cluster.add(pod);
}

/// A Topology spreads over a label that no node has.
pub(super) fn topology_unsatisfiable(cluster: &mut FaultyCluster, namespace: &str) {
    let mut topology = cluster.object("topology.openstack.org/v1beta1", "Topology", namespace, "racks", 9 * DAY);
    let rule = json!({ "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "app": "db" } } });
    topology["spec"] = json!({ "topologySpreadConstraints": [rule] });
    let mut spec = cluster.pod_spec();
    spec["topologySpreadConstraints"] = json!([rule]);
    let (set, owner) = cluster.stateful_set(namespace, "db", 1, 0, &spec);
    let mut pod = cluster.ordinal(namespace, &owner, 0, &spec, 3600);
    let nodes = cluster.nodes.len();
    let message = format!(
        "0/{nodes} nodes are available: {nodes} node(s) didn't match pod topology spread constraints (missing required label). {}",
        preemption(nodes)
    );
    cluster.unschedulable(&mut pod, &message, 3600);
    cluster.expect(
        "TopologyUnsatisfiable",
        &reference(&topology),
        [reference(&topology), reference(&set), reference(&pod)],
    );
    for object in [topology, set, pod] {
        cluster.add(object);
    }
}

fn cordoned_node(cluster: &mut FaultyCluster) -> Value {
    let mut node = extra_node(cluster);
    node["spec"]["unschedulable"] = true.into();
    node["spec"]["taints"] =
        json!([{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": cluster.ago(DAY) }]);
    let name = name_of(&node);
    cluster.add_lease(&name, 3);
    node
}

/// The only node that a pod may use is cordoned.
pub(super) fn cordoned(cluster: &mut FaultyCluster, namespace: &str) {
    let node = cordoned_node(cluster);
    let mut spec = cluster.pod_spec();
    spec["nodeSelector"] = json!({ "kubernetes.io/hostname": name_of(&node) });
    cluster.add(node);
    let mut pod = cluster.pod(namespace, "pinned", NO_OWNER, spec, 3600);
    let nodes = cluster.nodes.len();
    let message = format!(
        "0/{} nodes are available: 1 node(s) were unschedulable, {nodes} node(s) didn't match Pod's node affinity/selector. {}",
        nodes + 1,
        preemption(nodes + 1)
    );
    cluster.unschedulable(&mut pod, &message, 3600);
    cluster.expect("Unschedulable", &reference(&pod), [reference(&pod)]);
    cluster.add(pod);
}

/// A pod that its scheduler has not looked at: it has no condition.
pub(super) fn unread_by_scheduler(cluster: &mut FaultyCluster, namespace: &str) {
    let mut spec = cluster.pod_spec();
    if cluster.chance.percent(50) {
        spec["schedulerName"] = "other-scheduler".into();
    }
    let pod = cluster.pod(namespace, "ignored", NO_OWNER, spec, 3600);
    cluster.expect("Unschedulable", &reference(&pod), [reference(&pod)]);
    cluster.add(pod);
}
