//! Objects whose deletion does not finish, and references to objects that do not exist.

use serde_json::{Value, json};

use super::NO_OWNER;
use super::nodes::{add_dead_node, extra_node, lost, name_of};
use crate::background::{CLASS, DRIVER};
use crate::cluster::FaultyCluster;
use crate::objects::{DAY, reference, with_claim};

/// A finalizer keeps a pod. Its containers have ended, or nobody has updated their status.
pub(super) fn pod_finalizer(cluster: &mut FaultyCluster, namespace: &str) {
    let spec = cluster.pod_spec();
    let mut pod = cluster.pod(namespace, "kept", NO_OWNER, spec, DAY);
    let node = cluster.node();
    if cluster.chance.percent(50) {
        cluster.running(&mut pod, &node, DAY);
    } else {
        cluster.ended(&mut pod, &node, "Failed");
    }
    pod["metadata"]["finalizers"] = json!(["example.org/hold"]);
    cluster.deleted(&mut pod, 30, 1000);
    cluster.expect("FinalizerBlocks", &reference(&pod), [reference(&pod)]);
    cluster.add(pod);
}

fn terminating_namespace(cluster: &mut FaultyCluster, namespace: &str, remaining: &str, finalizer: &str) -> Value {
    let mut object = cluster.object("v1", "Namespace", "", namespace, 30 * DAY);
    cluster.deleted(&mut object, 0, 3000);
    object["spec"] = json!({ "finalizers": ["kubernetes"] });
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({ "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": cluster.ago(2990) });
    object["status"] = json!({ "phase": "Terminating", "conditions": [
        condition("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
        condition("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
        condition("NamespaceDeletionContentFailure", "False", "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
        condition("NamespaceContentRemaining", "True", "SomeResourcesRemain", &format!("Some resources are remaining: {remaining} has 1 resource instances")),
        condition("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", &format!("Some content in the namespace has finalizers remaining: {finalizer} in 1 resource instances")),
    ] });
    object
}

/// A resource that the dump does not have keeps a namespace.
pub(super) fn namespace_finalizer(cluster: &mut FaultyCluster, namespace: &str) {
    let object = terminating_namespace(cluster, namespace, "widgets.example.org", "example.org/hold");
    cluster.expect("FinalizerBlocks", &reference(&object), [reference(&object)]);
    cluster.add(object);
}

/// A pod on a dead node keeps a namespace.
pub(super) fn namespace_content(cluster: &mut FaultyCluster, namespace: &str) {
    let node = add_dead_node(cluster, 3600);
    let mut object = terminating_namespace(cluster, namespace, "pods.", "none");
    if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
        conditions.pop();
    }
    let spec = cluster.pod_spec();
    let mut pod = cluster.pod(namespace, "left", NO_OWNER, spec, DAY);
    cluster.running(&mut pod, &node, DAY);
    lost(cluster, &mut pod, 3600);
    cluster.deleted(&mut pod, 30, 2970);
    cluster.expect("NodeUnreachable", &format!("node/{node}"), [reference(&object), reference(&pod)]);
    cluster.add(object);
    cluster.add(pod);
}

fn deleted_claim(cluster: &mut FaultyCluster, namespace: &str) -> (Value, Value) {
    let mut claim = cluster.claim(namespace, "data", Some(CLASS), 9 * DAY);
    claim["spec"]["volumeName"] = "pvc-unread".into();
    claim["status"] = json!({ "phase": "Bound" });
    cluster.deleted(&mut claim, 0, 3000);
    let spec = with_claim(cluster.pod_spec(), "data");
    let pod = cluster.pod(namespace, "user", NO_OWNER, spec, DAY);
    (claim, pod)
}

/// Somebody has deleted a claim that a healthy pod uses.
pub(super) fn claim_in_use(cluster: &mut FaultyCluster, namespace: &str) {
    let (claim, mut pod) = deleted_claim(cluster, namespace);
    let node = cluster.node();
    cluster.running(&mut pod, &node, DAY);
    cluster.expect("FinalizerBlocks", &reference(&claim), [reference(&claim)]);
    cluster.add(claim);
    cluster.add(pod);
}

/// Somebody has deleted a claim that a pod on a dead node uses.
pub(super) fn claim_of_a_stuck_pod(cluster: &mut FaultyCluster, namespace: &str) {
    let node = add_dead_node(cluster, 3600);
    let (claim, mut pod) = deleted_claim(cluster, namespace);
    cluster.running(&mut pod, &node, DAY);
    lost(cluster, &mut pod, 3600);
    cluster.expect("NodeUnreachable", &format!("node/{node}"), [reference(&claim), reference(&pod)]);
    cluster.add(claim);
    cluster.add(pod);
}

/// A kubelet does not finish the termination of a pod, and another pod waits for the volume.
pub(super) fn termination_stuck(cluster: &mut FaultyCluster, namespace: &str) {
    let volume = cluster.add_bound_claim(namespace, "data", CLASS, DRIVER, &["ReadWriteOnce"]);
    let spec = with_claim(cluster.pod_spec(), "data");
    let (deployment, owner) = cluster.deployment(namespace, "app", 1, 0, &spec);
    let mut old = cluster.replica(namespace, &owner, &spec, DAY);
    let mut new = cluster.replica(namespace, &owner, &spec, 1000);
    let node = cluster.node();
    let other = cluster.node_but(&node);
    cluster.running(&mut old, &node, DAY);
    cluster.deleted(&mut old, 30, 970);
    cluster.creating(&mut new, &other, 990);
    let attachment = cluster.attachment(&volume, &node, DRIVER);
    cluster.add(attachment);
    cluster.warning(
        &old,
        "FailedKillPod",
        "error killing pod: failed to \"KillContainer\" for \"app\" with KillContainerError",
        "kubelet",
    );
    let about = reference(&deployment);
    cluster.expect(
        "TerminationStuck",
        &about,
        [reference(&old), reference(&new), about.clone(), format!("persistentvolume/{volume}")],
    );
    for object in [deployment, old, new] {
        cluster.add(object);
    }
}

/// A drain waits for a pod whose budget allows no eviction.
pub(super) fn drain_blocked(cluster: &mut FaultyCluster, namespace: &str) {
    let mut node = extra_node(cluster);
    let name = name_of(&node);
    node["spec"]["unschedulable"] = true.into();
    node["spec"]["taints"] =
        json!([{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": cluster.ago(900) }]);
    cluster.add_lease(&name, 4);
    cluster.add(node);
    let spec = cluster.pod_spec();
    let (deployment, owner) = cluster.deployment(namespace, "app", 1, 1, &spec);
    cluster.add(deployment);
    let mut pod = cluster.replica(namespace, &owner, &spec, DAY);
    cluster.running(&mut pod, &name, DAY);
    cluster.add(pod);
    let mut budget = cluster.object("policy/v1", "PodDisruptionBudget", namespace, "app", 10 * DAY);
    budget["spec"] = json!({ "minAvailable": 1, "selector": { "matchLabels": { "app": "app" } } });
    budget["status"] = json!({ "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1, "observedGeneration": 1,
        "conditions": [{ "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "", "lastTransitionTime": cluster.ago(DAY) }] });
    cluster.expect("BudgetBlocks", &reference(&budget), [reference(&budget)]);
    cluster.add(budget);
}

/// A finalizer of an operator keeps a Topology or a Service.
pub(super) fn custom_finalizer(cluster: &mut FaultyCluster, namespace: &str) {
    let mut service = cluster.object("v1", "Service", namespace, "front", 9 * DAY);
    service["spec"] = json!({ "type": "LoadBalancer", "ports": [{ "port": 80 }] });
    service["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    cluster.deleted(&mut service, 0, 3000);
    cluster.expect("FinalizerBlocks", &reference(&service), [reference(&service)]);
    cluster.add(service);
}

/// A pod refers to a claim that does not exist.
pub(super) fn missing_claim(cluster: &mut FaultyCluster, namespace: &str) {
    let spec = with_claim(cluster.pod_spec(), "typo");
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 3600);
    let nodes = cluster.nodes.len();
    cluster.unschedulable(
        &mut pod,
        &format!("0/{nodes} nodes are available: persistentvolumeclaim \"typo\" not found. not found"),
        3600,
    );
    cluster.expect("MissingReference", &format!("persistentvolumeclaim/{namespace}/typo"), [reference(&pod)]);
    cluster.add(pod);
}

/// A claim refers to a class that does not exist.
pub(super) fn missing_class(cluster: &mut FaultyCluster, namespace: &str) {
    let class = format!("fast-{}", cluster.serial());
    let claim = cluster.claim(namespace, "data", Some(&class), 3600);
    cluster.warning(
        &claim,
        "ProvisioningFailed",
        &format!("storageclass.storage.k8s.io \"{class}\" not found"),
        "persistentvolume-controller",
    );
    let spec = with_claim(cluster.pod_spec(), "data");
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 3600);
    let nodes = cluster.nodes.len();
    cluster.unschedulable(
        &mut pod,
        &format!("0/{nodes} nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"),
        3600,
    );
    cluster.expect("MissingReference", &format!("storageclass/{class}"), [reference(&claim), reference(&pod)]);
    cluster.add(claim);
    cluster.add(pod);
}
