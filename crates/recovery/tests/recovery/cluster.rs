//! A small cluster as objects, for tests of single decisions.

use jiff::Timestamp;
use serde_json::{Value, json};
use stead_model::Objects;
use stead_recovery::{
    ClusterView, NextStep, NodeRecovery, RecoveryPolicy, RecoveryRequest, RecoveryWrite, Statement, next_step,
    record_of,
};

/// The time of the tests.
pub(crate) const NOW: &str = "2026-01-01T01:00:00Z";

/// A node that is Ready.
pub(crate) fn node(name: &str, zone: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "labels": {
            "topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": name } },
        "spec": { "providerID": format!("openstack:///{name}"), "taints": [] },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            "nodeInfo": { "bootID": "boot-1" },
            "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" },
        },
    })
}

/// A node that has been unreachable for ten minutes.
pub(crate) fn unreachable(name: &str, zone: &str) -> Value {
    let mut node = node(name, zone);
    node["status"]["conditions"] = json!([
        { "type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T00:50:00Z" }
    ]);
    node["spec"]["taints"] = json!([
        { "key": "node.kubernetes.io/unreachable", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:50:00Z" },
        { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:50:00Z" },
    ]);
    node
}

pub(crate) fn lease(name: &str, renewed: &str) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": name, "namespace": "kube-node-lease" },
        "spec": { "renewTime": renewed, "leaseDurationSeconds": 40 },
    })
}

/// A pod of a StatefulSet on a node.
pub(crate) fn pod(name: &str, on: &str) -> Value {
    let set = name.rsplit_once('-').map_or(name, |(set, _)| set);
    let tolerations = ["not-ready", "unreachable"].map(|key| {
        json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 })
    });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "x", "uid": format!("uid-{name}"), "resourceVersion": "3",
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": set, "controller": true }] },
        "spec": { "nodeName": on, "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }],
            "tolerations": tolerations },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    })
}

/// A pod with an attached volume: the pod, its claim, the volume and the VolumeAttachment.
pub(crate) fn with_volume(mut pod: Value, volume: &str) -> Vec<Value> {
    pod["spec"]["volumes"] =
        json!([{ "name": "data", "persistentVolumeClaim": { "claimName": format!("claim-{volume}") } }]);
    let on = pod["spec"]["nodeName"].clone();
    vec![
        pod,
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": { "name": format!("claim-{volume}"), "namespace": "x", "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
            "spec": { "volumeName": volume, "accessModes": ["ReadWriteOnce"] }, "status": { "phase": "Bound" } }),
        json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
            "spec": { "csi": { "driver": "cinder.csi.openstack.org", "volumeHandle": volume }, "accessModes": ["ReadWriteOnce"],
                "claimRef": { "namespace": "x", "name": format!("claim-{volume}") } } }),
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": format!("va-{volume}"), "uid": "va" },
            "spec": { "attacher": "cinder.csi.openstack.org", "nodeName": on, "source": { "persistentVolumeName": volume } }, "status": { "attached": true } }),
    ]
}

pub(crate) fn set(name: &str, replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name, "namespace": "x", "uid": name },
        "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": name } } },
    })
}

/// Three nodes, the first of which is unreachable and has a pod with a volume.
pub(crate) fn outage() -> Vec<Value> {
    let mut items = vec![
        unreachable("a", "z1"),
        node("b", "z1"),
        node("c", "z2"),
        lease("a", "2026-01-01T00:49:10Z"),
        set("db", 1),
    ];
    items.extend(with_volume(pod("db-0", "a"), "v"));
    items
}

/// Returns the item of this kind and name, to change it.
pub(crate) fn find<'a>(items: &'a mut [Value], kind: &str, name: &str) -> &'a mut Value {
    items.iter_mut().find(|i| i["kind"] == kind && i["metadata"]["name"] == name).unwrap()
}

pub(crate) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

pub(crate) fn statement(words: &str) -> Option<Statement> {
    Some(Statement { by: "anna".into(), at: now(), words: words.into() })
}

pub(crate) fn confirmed() -> RecoveryRequest {
    RecoveryRequest { who: "anna".into(), confirm_off: statement("pulled the plug"), ..RecoveryRequest::default() }
}

/// Returns the next step for node `a`.
pub(crate) fn next(items: &[Value], request: &RecoveryRequest, policy: &RecoveryPolicy) -> NextStep {
    next_for("a", items, request, policy)
}

/// Returns the next step for a node.
pub(crate) fn next_for(node: &str, items: &[Value], request: &RecoveryRequest, policy: &RecoveryPolicy) -> NextStep {
    let objects = Objects::from_items(items.to_vec());
    let view = ClusterView::new(node, &objects, None, now());
    next_step(&view, record_of(&objects, node).as_ref(), request, policy)
}

/// Returns why the step is refused.
pub(crate) fn refusal(items: &[Value], request: &RecoveryRequest, policy: &RecoveryPolicy) -> String {
    let step = next(items, request, policy);
    match step {
        NextStep { write: None, end: Some(end), .. } if end.refusal().is_some() => end.refusal().unwrap().to_string(),
        other => panic!("not refused: {other:?}"),
    }
}

/// Returns the record that the step writes.
pub(crate) fn written(step: NextStep) -> NodeRecovery {
    match step.write {
        Some(RecoveryWrite::Record(record)) => *record,
        other => panic!("not a record: {other:?}"),
    }
}

/// Adds the record to the items, or replaces it.
pub(crate) fn store(items: &mut Vec<Value>, record: &NodeRecovery) {
    let mut value = serde_json::to_value(record).unwrap();
    value["metadata"]["resourceVersion"] = "9".into();
    items.retain(|i| i["kind"] != "NodeRecovery" || i["metadata"]["name"] != value["metadata"]["name"]);
    items.push(value);
}
