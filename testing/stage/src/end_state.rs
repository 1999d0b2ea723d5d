//! The final state of a namespace, without the values that differ between runs.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::objects::{Objects, kinds};

/// Objects by kind and name, without identities, times and addresses.
pub type EndState = BTreeMap<String, Value>;

/// Reads the objects that Stead creates or writes in a namespace, and its pods and their claims.
pub(crate) async fn read(objects: &Objects) -> Result<EndState> {
    let mut state = EndState::new();
    for kind in kinds() {
        for object in objects.list(kind).await? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            state.extend(comparable(object).map(|object| (format!("{kind}/{name}"), object)));
        }
    }
    Ok(state)
}

/// Returns the differences, one line each: the object, the field, the expected and the found value.
pub fn differences(expected: &EndState, found: &EndState) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, object) in expected {
        match found.get(name) {
            Some(other) => compare(name, object, other, &mut lines),
            None => lines.push(format!("{name}: missing")),
        }
    }
    lines.extend(found.keys().filter(|name| !expected.contains_key(*name)).map(|name| format!("{name}: unexpected")));
    lines
}

fn compare(place: &str, expected: &Value, found: &Value, lines: &mut Vec<String>) {
    match (expected, found) {
        (Value::Object(a), Value::Object(b)) => {
            let null = Value::Null;
            let more = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(more) {
                let (a, b) = (a.get(key).unwrap_or(&null), b.get(key).unwrap_or(&null));
                compare(&format!("{place}.{key}"), a, b, lines);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{place}[{index}]"), a, b, lines);
            }
        }
        _ if expected != found => lines.push(format!("{place}: expected {expected}, found {found}")),
        _ => {}
    }
}

/// Removes from an object the values that differ between runs; none for pods of Jobs.
fn comparable(mut object: Value) -> Option<Value> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "Pod" {
        return pod(&object);
    }
    let keep: Option<&[&str]> = match kind.as_str() {
        "StatefulSet" => Some(&["replicas", "readyReplicas"]),
        "Job" => Some(&["succeeded", "failed"]),
        "PersistentVolumeClaim" => Some(&["phase"]),
        "CronJob" => Some(&[]),
        _ => None,
    };
    if let (Some(keep), Some(status)) = (keep, object.get_mut("status").and_then(Value::as_object_mut)) {
        status.retain(|field, _| keep.contains(&field.as_str()));
    }
    let deleting = object["metadata"].get("deletionTimestamp").is_some();
    strip(&mut object);
    if deleting {
        object["metadata"]["deletionTimestamp"] = true.into();
    }
    if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
        finalizers.sort_by_key(Value::to_string);
    }
    Some(object)
}

/// Reduces a pod to its owner, labels and readiness; none for a pod without StatefulSet. The node is the scheduler's
/// decision and can differ.
fn pod(pod: &Value) -> Option<Value> {
    let owner = &pod["metadata"]["ownerReferences"][0];
    if owner["kind"] != "StatefulSet" {
        return None;
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    Some(json!({"owner": owner["name"], "labels": pod["metadata"]["labels"], "ready": ready}))
}

/// Fields with an identity, a revision, a time or an address.
const VARYING_FIELDS: [&str; 17] = [
    "uid",
    "resourceVersion",
    "generation",
    "observedGeneration",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "lastTransitionTime",
    "startTime",
    "completionTime",
    "clusterIP",
    "clusterIPs",
    "volumeName",
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "volume.kubernetes.io/selected-node",
];

fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let headless = map.get("clusterIP").is_some_and(|address| address == "None");
            map.retain(|field, _| !VARYING_FIELDS.contains(&field.as_str()) && !field.starts_with("pv.kubernetes.io/"));
            if headless {
                map.insert("clusterIP".into(), "None".into());
            }
            map.values_mut().for_each(strip);
            map.retain(|field, value| field != "annotations" || !value.as_object().is_some_and(Map::is_empty));
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_between_runs_are_removed() {
        let service = |uid: &str, address: &str| {
            comparable(json!({"kind": "Service", "metadata": {"name": "a", "uid": uid, "annotations": {"x": "y"}},
                "spec": {"clusterIP": address, "ports": [{"port": 1}]}}))
        };
        assert_eq!(service("1", "10.0.0.1"), service("2", "10.0.0.2"));
        assert_ne!(service("1", "None"), service("2", "10.0.0.2"));
        assert_eq!(comparable(json!({"kind": "Pod", "metadata": {"ownerReferences": [{"kind": "Job"}]}})), None);
    }

    #[test]
    fn differences_name_object_and_field() {
        let state = |v: &str, more: &[&str]| {
            let mut state = EndState::from([("Glance/a".to_owned(), json!({"spec": {"list": [1, v]}}))]);
            state.extend(more.iter().map(|name| ((*name).to_owned(), json!({}))));
            state
        };
        let lines = differences(&state("x", &["Job/old"]), &state("y", &["Job/new"]));
        let expected = [r#"Glance/a.spec.list[1]: expected "x", found "y""#, "Job/old: missing", "Job/new: unexpected"];
        assert_eq!(lines, expected);
        assert!(differences(&state("x", &[]), &state("x", &[])).is_empty());
    }
}
