//! Measures what each option leads to for a pod on an unreachable node.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};
use stead_forecast::{Clock, Forecaster, Intervention, Outcome, Run};
use stead_model::{ObjectKey, Objects};
use stead_placement::Cluster;

use super::bounds::Bounds;
use super::dump::{node, pod};

const NODES: usize = 1000;
const PODS: usize = 10_000;

/// Two minutes after the last report of any node.
const NOW: &str = "2026-02-01T00:02:00Z";

/// The longest time after reading, in milliseconds.
const LIMIT: f64 = 100.0;

pub(crate) fn measure(bounds: &mut Bounds, runs: usize) -> Result<()> {
    let objects = Objects::from_items(cluster());
    let clock = Clock::at(NOW.parse::<Timestamp>()?);
    let key = ObjectKey::pod("team-0", "db-0");
    let pod = objects.pod(&key)?.context("pod db-0")?;
    let whole = Cluster::from_objects(&objects, None);
    let node = || "node-0".to_owned();
    let options = [
        Intervention::Nothing,
        Intervention::ReturnNode(node()),
        Intervention::OutOfService(node()),
        Intervention::DeleteNode(node()),
        Intervention::ForceDelete([key.clone()].into()),
    ];
    let mut times = Vec::new();
    for _ in 0..runs.max(1) {
        let start = Instant::now();
        let forecaster = Forecaster::new(&objects, &clock, &whole, &[pod]).context("resuming the cluster")?;
        let runs: Vec<Run> = options.iter().map(|option| forecaster.run(option, &[pod])).collect();
        times.push(start.elapsed().as_secs_f64() * 1e3);
        let mut outlooks = runs.iter().flat_map(|run| &run.outlooks);
        let helps = outlooks.any(|outlook| matches!(outlook.outcome, Outcome::Ready(_)));
        ensure!(helps, "no option helps pod db-0");
    }
    times.sort_by(f64::total_cmp);
    let what = format!("forecasts of {} options: {NODES} nodes, {PODS} pods, after reading", options.len());
    bounds.row_at_most(&what, times[times.len() / 2], LIMIT, "ms");
    Ok(())
}

/// A cluster whose first node is unreachable, and a StatefulSet's pod with a volume on it.
fn cluster() -> Vec<Value> {
    let mut items: Vec<Value> = (0..NODES).map(node).collect();
    items.extend((0..PODS - 1).map(|i| pod(i, Some(i * 7 % NODES))));
    items[0]["spec"]["taints"] = json!([
        { "key": "node.kubernetes.io/unreachable", "effect": "NoSchedule", "timeAdded": "2026-02-01T00:00:50Z" },
        { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-02-01T00:00:50Z" },
    ]);
    items[0]["status"]["conditions"] = json!([{
        "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown",
        "lastHeartbeatTime": "2026-02-01T00:00:00Z", "lastTransitionTime": "2026-02-01T00:00:50Z",
    }]);
    items[0]["status"]["volumesInUse"] = json!(["kubernetes.io/csi/csi.example.com^data"]);
    let mut database = pod(0, Some(0));
    database["metadata"]["name"] = json!("db-0");
    database["metadata"]["uid"] = json!("database");
    database["metadata"]["labels"] = json!({ "app": "db", "apps.kubernetes.io/pod-index": "0" });
    database["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "set", "controller": true }]);
    database["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data-db-0" } }]);
    items.push(database);
    let template = json!({
        "metadata": { "labels": { "app": "db" } },
        "spec": { "containers": [{ "name": "main", "image": "registry.example.com/db:1" }] },
    });
    items.push(json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": { "name": "db", "namespace": "team-0", "uid": "set" },
        "spec": {
            "replicas": 1, "serviceName": "db", "selector": { "matchLabels": { "app": "db" } }, "template": template,
            "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
            } }],
        },
    }));
    items.push(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "data-db-0", "namespace": "team-0", "uid": "claim" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeName": "data", "storageClassName": "fast",
            "resources": { "requests": { "storage": "1Gi" } },
        },
        "status": { "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" } },
    }));
    items.push(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "data", "uid": "volume" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" }, "storageClassName": "fast",
            "claimRef": { "namespace": "team-0", "name": "data-db-0", "uid": "claim" },
            "csi": { "driver": "csi.example.com", "volumeHandle": "data" },
        },
        "status": { "phase": "Bound" },
    }));
    items.push(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": "csi.example.com" },
        "spec": { "attachRequired": true },
    }));
    items.push(json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "attachment" },
        "spec": {
            "attacher": "csi.example.com", "nodeName": "node-0", "source": { "persistentVolumeName": "data" },
        },
        "status": { "attached": true },
    }));
    items
}
