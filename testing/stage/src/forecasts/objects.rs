//! The objects of a situation.

use serde_json::{Value, json};

use super::situation::{Situation, Storage, TolerationTime, Workload, Zone};

/// The node label with the situation whose pods can use the node.
pub(super) const SITUATION_LABEL: &str = "stead.test/for";

/// The value of that label on nodes that all situations can use.
pub(super) const ALL_SITUATIONS: &str = "all";

/// The node label of a zone.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// The container name of the pods.
pub(super) const CONTAINER: &str = "waits";

/// The program of the pods: waits for SIGTERM.
const POD_PROGRAM: &str = "trap 'exit 0' TERM; sleep infinity & wait";

/// The node that the pods prefer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PreferredNode {
    /// The node of the situation.
    Own,
    /// Any other node.
    Other,
}

/// Returns the objects of a situation, without its namespace. `third` is a third of the default toleration in seconds.
pub(super) fn objects(situation: &Situation, preferred: PreferredNode, third: u64) -> Value {
    let mut items = Vec::new();
    let by_template = matches!(situation.workload, Workload::Ordered(_) | Workload::Parallel(_));
    items.extend(claim(situation).filter(|_| !by_template));
    items.push(workload(situation, template(situation, preferred, third)));
    json!({ "apiVersion": "v1", "kind": "List", "items": items })
}

fn claim(situation: &Situation) -> Option<Value> {
    let mode = if situation.storage == Storage::Shared { "ReadWriteMany" } else { "ReadWriteOnce" };
    let class = class(situation.storage)?;
    Some(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data", "namespace": situation.name() },
        "spec": { "storageClassName": class, "accessModes": [mode], "resources": { "requests": { "storage": "1Gi" } } },
    }))
}

/// Returns the storage class of a kind of storage, which is also the name of its driver.
pub(super) fn class(storage: Storage) -> Option<&'static str> {
    match storage {
        Storage::None => None,
        Storage::Shared => Some("shared"),
        Storage::Disk => Some("disk"),
        Storage::ZoneDisk => Some("zone-disk"),
        Storage::Local => Some("local"),
    }
}

fn template(situation: &Situation, preferred: PreferredNode, third: u64) -> Value {
    let name = situation.name();
    let among = |values: &[&str]| json!([{ "key": SITUATION_LABEL, "operator": "In", "values": values }]);
    let host = if preferred == PreferredNode::Own { "In" } else { "NotIn" };
    let host = json!([{ "key": "kubernetes.io/hostname", "operator": host, "values": [name] }]);
    let mut spec = json!({
        "terminationGracePeriodSeconds": 5,
        "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution":
                { "nodeSelectorTerms": [{ "matchExpressions": among(&[&name, ALL_SITUATIONS]) }] },
            "preferredDuringSchedulingIgnoredDuringExecution":
                [{ "weight": 100, "preference": { "matchExpressions": host } }],
        } },
        "containers": [{ "name": CONTAINER, "image": "waits", "command": ["sh", "-c", POD_PROGRAM] }],
    });
    if situation.storage != Storage::None {
        spec["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
        if !matches!(situation.workload, Workload::Ordered(_) | Workload::Parallel(_)) {
            spec["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
        }
    }
    let seconds = match situation.toleration {
        TolerationTime::Default => None,
        TolerationTime::Third => Some(json!(third)),
        TolerationTime::Forever => Some(Value::Null),
    };
    if let Some(seconds) = seconds {
        let toleration = |key: &str| {
            json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": seconds })
        };
        spec["tolerations"] = json!([toleration("unreachable"), toleration("not-ready")]);
    }
    json!({ "metadata": { "labels": { "app": name } }, "spec": spec })
}

fn workload(situation: &Situation, template: Value) -> Value {
    let name = situation.name();
    let (kind, strategy) = match situation.workload {
        Workload::Bare => {
            let mut pod = template;
            pod["apiVersion"] = json!("v1");
            pod["kind"] = json!("Pod");
            pod["metadata"]["name"] = json!(name);
            pod["metadata"]["namespace"] = json!(name);
            return pod;
        }
        Workload::Recreate(_) => ("Deployment", json!({ "strategy": { "type": "Recreate" } })),
        Workload::Rolling(_) => ("Deployment", json!({})),
        Workload::Ordered(_) => ("StatefulSet", json!({ "serviceName": name })),
        Workload::Parallel(_) => ("StatefulSet", json!({ "serviceName": name, "podManagementPolicy": "Parallel" })),
    };
    let mut spec = strategy;
    spec["replicas"] = json!(situation.workload.replicas());
    spec["selector"] = json!({ "matchLabels": { "app": name } });
    spec["template"] = template;
    if kind == "StatefulSet" {
        spec["volumeClaimTemplates"] = claim(situation).into_iter().collect();
    }
    json!({ "apiVersion": "apps/v1", "kind": kind, "metadata": { "name": name, "namespace": name }, "spec": spec })
}

/// Returns the nodes of a situation: name, zone and the situation whose pods can use them.
pub(super) fn nodes(situation: &Situation) -> Vec<(String, String, String)> {
    let (name, others) = (situation.name(), situation.other_nodes());
    let all = std::iter::once(name.clone()).chain(others);
    all.map(|node| (node, format!("zone-{name}"), name.clone())).collect()
}

/// Returns the nodes in a situation's zone that are unreachable from the start.
pub(super) fn unreachable_before(situation: &Situation) -> Vec<String> {
    let count = if situation.zone == Zone::MostlyUnreachable { 2 } else { 0 };
    situation.other_nodes().into_iter().take(count).collect()
}
