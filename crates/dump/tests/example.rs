//! The example cluster of the repository matches its README.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use stead_dump::{DEFAULT_MAX_SIZE, Dump, read};

fn example() -> Dump {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/glance-zones");
    read(&[path], &|_, _| true, DEFAULT_MAX_SIZE).unwrap()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn of_kind<'a>(items: &'a [Value], kind: &str) -> Vec<&'a Value> {
    items.iter().filter(|value| value["kind"] == kind).collect()
}

#[test]
fn glance_zones() {
    let dump = example();
    let items: Vec<Value> = dump.items.iter().map(|item| item.value()).collect();
    assert_eq!(dump.warnings, [""; 0]);
    for kind in ["PodDisruptionBudget", "ReplicationController", "VolumeAttachment"] {
        assert!(dump.kinds.contains(kind) && of_kind(&items, kind).is_empty(), "{kind}");
    }
    let zones: BTreeMap<&str, &str> = of_kind(&items, "Node")
        .into_iter()
        .map(|node| (text(node, "/metadata/name"), text(node, "/metadata/labels/zone")))
        .collect();
    assert_eq!(zones.len(), 7);
    assert_eq!(zones["worker-3"], "");

    let mut running: BTreeMap<&str, usize> = BTreeMap::new();
    let mut pending = Vec::new();
    for pod in of_kind(&items, "Pod") {
        if pod["metadata"]["labels"]["service"] == "glance" {
            match text(pod, "/spec/nodeName") {
                "" => pending.push(text(pod, "/metadata/name")),
                node => *running.entry(zones[node]).or_default() += 1,
            }
        }
    }
    assert_eq!(running, BTreeMap::from([("zoneA", 5), ("zoneB", 4), ("zoneC", 4)]));
    assert_eq!(pending, ["glance-default-external-api-2", "glance-default-internal-api-1"]);
}

/// Every claim of a pod exists and is bound to a volume on the pod's node.
#[test]
fn glance_zones_volumes() {
    let dump = example();
    let items: Vec<Value> = dump.items.iter().map(|item| item.value()).collect();
    let by_name = |kind| -> BTreeMap<&str, &Value> {
        of_kind(&items, kind).into_iter().map(|v| (text(v, "/metadata/name"), v)).collect()
    };
    let (claims, volumes) = (by_name("PersistentVolumeClaim"), by_name("PersistentVolume"));
    let mut seen = 0;
    for pod in of_kind(&items, "Pod") {
        for volume in pod["spec"]["volumes"].as_array().into_iter().flatten() {
            let Some(claim) = volume.pointer("/persistentVolumeClaim/claimName") else {
                continue;
            };
            let claim = claims[claim.as_str().unwrap()];
            let volume = volumes[text(claim, "/spec/volumeName")];
            assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
            let at = text(volume, "/spec/nodeAffinity/required/nodeSelectorTerms/0/matchExpressions/0/values/0");
            let node = pod["spec"]["nodeName"].as_str().unwrap_or("worker-3");
            assert_eq!(at, node, "{}", pod["metadata"]["name"]);
            seen += 1;
        }
    }
    assert_eq!(seen, claims.len());
    assert_eq!(seen, volumes.len());
}
