//! Removes fields that others set where Stead owns everything.
//!
//! The API server records who set each field. A field that exists, is not wanted, and was set by somebody else is removed.
//! One that nobody set is a default of the server, or was set by an admission plugin, and stays.

use serde_json::{Map, Value, json};

use crate::managed_fields::managed_fields;
use crate::step::MANAGER;

/// The merge patch that removes what others set under `paths` (JSON pointers) and `wanted` does not have; none if there is
/// no such field. It is only valid for this version of the object.
pub fn removal(live: &Value, wanted: &Value, paths: &[&str]) -> Option<Value> {
    let mut clean = live.clone();
    for fields in foreign(live) {
        for path in paths {
            let Some(below) = path.split('/').skip(1).try_fold(&fields, |f, part| f.get(format!("f:{part}"))) else {
                continue;
            };
            let Some(part) = clean.pointer_mut(path) else { continue };
            remove(part, wanted.pointer(path).unwrap_or(&Value::Null), below);
        }
    }
    let mut patch = difference(live, &clean)?;
    let identity = |field: &str| live.pointer(&format!("/metadata/{field}"));
    let metadata = json!({"uid": identity("uid"), "resourceVersion": identity("resourceVersion")});
    if let Value::Object(patch) = &mut patch {
        patch.insert("metadata".into(), metadata);
    }
    Some(patch)
}

/// The fields that others than Stead set, outside of subresources.
fn foreign(live: &Value) -> impl Iterator<Item = Value> {
    let entries = managed_fields(live).into_iter().filter(|entry| entry.manager.as_deref() != Some(MANAGER));
    entries.filter_map(|entry| Some(entry.fields_v1?.0))
}

/// Removes what `fields` names and `wanted` does not have from `live`.
fn remove(live: &mut Value, wanted: &Value, fields: &Value) {
    let Some(fields) = fields.as_object() else { return };
    match live {
        Value::Object(map) => {
            for (field, below) in fields {
                let Some(name) = field.strip_prefix("f:") else { continue };
                let Some(value) = map.get_mut(name) else { continue };
                match wanted.get(name) {
                    None if is_whole(below) => {
                        map.remove(name);
                    }
                    inner => {
                        remove(value, inner.unwrap_or(&Value::Null), below);
                        if inner.is_none() && is_empty(value) {
                            map.remove(name);
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            let wanted = wanted.as_array().map(Vec::as_slice).unwrap_or_default();
            for (field, below) in fields {
                let Some(item) = Item::of(field) else { continue };
                let Some(place) = items.iter().position(|i| item.is(i)) else { continue };
                match wanted.iter().find(|w| item.may_be(w)) {
                    None if is_whole(below) => {
                        items.remove(place);
                    }
                    inner => remove(&mut items[place], inner.unwrap_or(&Value::Null), below),
                }
            }
        }
        _ => {}
    }
}

/// Whether a set of fields names the value itself, and not only something inside it.
fn is_whole(below: &Value) -> bool {
    below.as_object().is_none_or(|b| b.is_empty() || b.contains_key("."))
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// An item of a list, as a set of fields names it: by its keys, or by its value.
enum Item {
    Keyed(Map<String, Value>),
    Value(Value),
}

impl Item {
    fn of(field: &str) -> Option<Item> {
        if let Some(keys) = field.strip_prefix("k:") {
            return serde_json::from_str(keys).ok().map(Item::Keyed);
        }
        serde_json::from_str(field.strip_prefix("v:")?).ok().map(Item::Value)
    }

    fn is(&self, item: &Value) -> bool {
        match self {
            Item::Keyed(keys) => keys.iter().all(|(k, v)| item.get(k) == Some(v)),
            Item::Value(value) => item == value,
        }
    }

    /// Like `is`, for an item that may lack keys that the server sets, such as a port's protocol.
    fn may_be(&self, wanted: &Value) -> bool {
        match self {
            Item::Keyed(keys) => {
                keys.iter().any(|(k, _)| wanted.get(k).is_some())
                    && keys.iter().all(|(k, v)| wanted.get(k).is_none_or(|w| w == v))
            }
            Item::Value(value) => wanted == value,
        }
    }
}

/// The merge patch from one value to another; none where they are the same.
fn difference(from: &Value, to: &Value) -> Option<Value> {
    if from == to {
        return None;
    }
    let (Some(from), Some(to_map)) = (from.as_object(), to.as_object()) else { return Some(to.clone()) };
    let mut patch = Map::new();
    for (name, before) in from {
        match to_map.get(name) {
            None => {
                patch.insert(name.clone(), Value::Null);
            }
            Some(after) => patch.extend(difference(before, after).map(|d| (name.clone(), d))),
        }
    }
    Some(json!(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(spec: Value, managed: Value) -> Value {
        json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7", "managedFields": managed}, "spec": spec})
    }

    #[test]
    fn fields_that_others_set_are_removed_and_defaults_stay() {
        let ours = json!({"manager": "stead", "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}});
        let theirs = |fields: Value| json!([ours.clone(), {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": fields}}]);
        let guard = json!({"uid": "u", "resourceVersion": "7"});
        let containers = |names: &[&str]| -> Value {
            json!(
                names.iter().map(|n| json!({"name": n, "image": "i", "imagePullPolicy": "Always"})).collect::<Vec<_>>()
            )
        };
        for (what, spec, fields, wanted, patch) in [
            (
                "a field of theirs is removed, a default stays",
                json!({"replicas": 3, "paused": true, "policy": "Default"}),
                json!({"f:paused": {}}),
                json!({"replicas": 3}),
                Some(json!({"metadata": guard, "spec": {"paused": null}})),
            ),
            (
                "a field that is wanted stays, whoever set it",
                json!({"replicas": 3, "paused": true}),
                json!({"f:replicas": {}}),
                json!({"replicas": 3}),
                None,
            ),
            (
                "a map of theirs is removed with its content",
                json!({"template": {"nodeSelector": {"zone": "a"}, "dns": "x"}}),
                json!({"f:template": {"f:nodeSelector": {".": {}, "f:zone": {}}}}),
                json!({"template": {}}),
                Some(json!({"metadata": guard, "spec": {"template": {"nodeSelector": null}}})),
            ),
            (
                "one entry of a map that is wanted",
                json!({"labels": {"ours": "1", "theirs": "2"}}),
                json!({"f:labels": {"f:theirs": {}}}),
                json!({"labels": {"ours": "1"}}),
                Some(json!({"metadata": guard, "spec": {"labels": {"theirs": null}}})),
            ),
            (
                "an item of a list is removed, the others stay",
                json!({"containers": containers(&["a", "sidecar"])}),
                json!({"f:containers": {"k:{\"name\":\"sidecar\"}": {".": {}, "f:name": {}, "f:image": {}}}}),
                json!({"containers": [{"name": "a", "image": "i"}]}),
                Some(json!({"metadata": guard, "spec": {"containers": containers(&["a"])}})),
            ),
            (
                "a port whose protocol is left out is the same port",
                json!({"ports": [{"port": 80, "protocol": "TCP"}]}),
                json!({"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}}),
                json!({"ports": [{"port": 80}]}),
                None,
            ),
        ] {
            let live = live(spec, theirs(fields));
            assert_eq!(removal(&live, &json!({"spec": wanted}), &["/spec"]), patch, "{what}");
            assert_eq!(removal(&live, &json!({"spec": wanted}), &[]), None, "{what}: no path");
        }
    }

    #[test]
    fn fields_outside_of_the_paths_stay() {
        let managed = json!([{"manager": "x", "operation": "Update",
            "fieldsV1": {"f:spec": {"f:template": {"f:a": {}}, "f:b": {}}}}]);
        let live = live(json!({"template": {"a": 1}, "b": 2}), managed);
        assert_eq!(
            removal(&live, &json!({"spec": {"template": {}}}), &["/spec/template"]),
            Some(json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"template": {"a": null}}}))
        );
    }

    #[test]
    fn fields_of_subresources_and_of_stead_stay() {
        let managed = json!([
            {"manager": "stead", "operation": "Update", "fieldsV1": {"f:spec": {"f:a": {}}}},
            {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status",
             "fieldsV1": {"f:spec": {"f:b": {}}}},
        ]);
        assert_eq!(removal(&live(json!({"a": 1, "b": 2}), managed), &json!({"spec": {}}), &["/spec"]), None);
    }
}
