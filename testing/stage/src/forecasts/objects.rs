//! The objects of a situation.

use serde_json::{Value, json};

use super::situation::{Patience, Situation, Storage, Workload, Zone};

/// The node label that says for which situation's pods a node is.
pub(super) const FOR: &str = "stead.test/for";

/// The value of that label on nodes that are for all.
pub(super) const ALL: &str = "all";

/// The node label of a zone.
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// The name of the pods' container.
pub(super) const CONTAINER: &str = "waits";

/// The program of the pods: it waits, and ends when it is asked to.
const WAITS: &str = "trap 'exit 0' TERM; sleep infinity & wait";

/// Where the pods should be, if they may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rather {
    /// On the node that something happens to.
    There,
    /// On any other.
    Elsewhere,
}

/// All of a situation's objects but its namespace. `third` is how long a pod tolerates that does so for a third of the
/// usual time.
pub(super) fn objects(situation: &Situation, rather: Rather, third: u64) -> Value {
    let mut items = Vec::new();
    let by_template = matches!(situation.workload, Workload::Ordered(_) | Workload::Parallel(_));
    items.extend(claim(situation).filter(|_| !by_template));
    items.push(workload(situation, template(situation, rather, third)));
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

/// The class of a kind of storage, and its driver's name.
pub(super) fn class(storage: Storage) -> Option<&'static str> {
    match storage {
        Storage::None => None,
        Storage::Shared => Some("shared"),
        Storage::Disk => Some("disk"),
        Storage::ZoneDisk => Some("zone-disk"),
        Storage::Local => Some("local"),
    }
}

fn template(situation: &Situation, rather: Rather, third: u64) -> Value {
    let name = situation.name();
    let among = |values: &[&str]| json!([{ "key": FOR, "operator": "In", "values": values }]);
    let host = if rather == Rather::There { "In" } else { "NotIn" };
    let host = json!([{ "key": "kubernetes.io/hostname", "operator": host, "values": [name] }]);
    let mut spec = json!({
        "terminationGracePeriodSeconds": 5,
        "affinity": { "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution":
                { "nodeSelectorTerms": [{ "matchExpressions": among(&[&name, ALL]) }] },
            "preferredDuringSchedulingIgnoredDuringExecution":
                [{ "weight": 100, "preference": { "matchExpressions": host } }],
        } },
        "containers": [{ "name": CONTAINER, "image": "waits", "command": ["sh", "-c", WAITS] }],
    });
    if situation.storage != Storage::None {
        spec["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
        if !matches!(situation.workload, Workload::Ordered(_) | Workload::Parallel(_)) {
            spec["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
        }
    }
    let seconds = match situation.patience {
        Patience::Default => None,
        Patience::Third => Some(json!(third)),
        Patience::Endless => Some(Value::Null),
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

/// The nodes of a situation: name, zone and whose pods they are for.
pub(super) fn nodes(situation: &Situation) -> Vec<(String, String, String)> {
    let (name, mates) = (situation.name(), situation.mates());
    let all = std::iter::once(name.clone()).chain(mates);
    all.map(|node| (node, format!("zone-{name}"), name.clone())).collect()
}

/// The nodes of a situation's zone that are silent before anything else happens.
pub(super) fn silent_before(situation: &Situation) -> Vec<String> {
    let count = if situation.zone == Zone::Disturbed { 2 } else { 0 };
    situation.mates().into_iter().take(count).collect()
}
