//! Batches like those of kube-scheduler's benchmarks: equal nodes in three zones, twenty applications.

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use stead_placement::Batch;

/// The constraints of the pods of a batch, in addition to cpu and memory.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// Spread over zones, and over nodes where possible.
    Spread,
    /// Not on a node with another pod of the same application.
    Anti,
    /// None.
    Basic,
    /// Each of the three in turn.
    Mixed,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Spread => "spread",
            Kind::Anti => "anti",
            Kind::Basic => "basic",
            Kind::Mixed => "mixed",
        }
    }
}

pub(crate) fn batch(nodes: usize, queue: usize, kind: Kind, present: usize) -> Batch {
    Batch {
        nodes: (0..nodes).map(node).collect(),
        pods: (0..present).map(|i| pod(&format!("init-{i}"), i, kind, Some(i * 7 % nodes))).collect(),
        queue: (0..queue).map(|i| pod(&format!("p-{i}"), i, kind, None)).collect(),
    }
}

pub(crate) fn node(i: usize) -> Node {
    let name = format!("node-{i}");
    let size = json!({"cpu": "32", "memory": "128Gi", "pods": "110"});
    object(json!({
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", i % 3)},
        },
        "status": {"allocatable": size, "capacity": size},
    }))
}

fn pod(name: &str, i: usize, kind: Kind, node: Option<usize>) -> Pod {
    let app = format!("app-{}", i % 20);
    let selector = json!({"matchLabels": {"app": app}});
    let mut spec = json!({
        "schedulerName": "default-scheduler",
        "containers": [
            {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}},
        ],
    });
    let kind = match kind {
        Kind::Mixed => [Kind::Spread, Kind::Basic, Kind::Anti][i % 3],
        kind => kind,
    };
    match kind {
        Kind::Spread => spec["topologySpreadConstraints"] = spread(&selector),
        Kind::Anti => {
            let term = json!({"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"});
            let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term]});
            spec["affinity"] = json!({"podAntiAffinity": required});
        }
        Kind::Basic | Kind::Mixed => {}
    }
    if let Some(node) = node {
        spec["nodeName"] = json!(format!("node-{node}"));
    }
    object(json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": app}}, "spec": spec}))
}

pub(crate) fn spread(selector: &Value) -> Value {
    json!([
        {
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        },
        {
            "maxSkew": 5, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector,
        },
    ])
}

pub(crate) fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a valid API object")
}
