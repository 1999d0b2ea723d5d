//! Whether an apply would change anything: what Stead owns of an object, compared with what it wants to say about it.

use serde_json::{Map, Value};

use crate::step::MANAGER;

/// Whether applying `wanted` under Stead's name would change `live`: a field that Stead owns has another value or is
/// no longer wanted, or a wanted field is not (or no longer) Stead's.
pub fn differs(live: &Value, wanted: &Value) -> bool {
    let Some(fields) = owned_fields(live) else { return true };
    let mut owned = extract(live, fields);
    let mut wanted = wanted.clone();
    for object in [&mut owned, &mut wanted] {
        strip(object);
    }
    owned != wanted
}

/// The fields of an object that Stead applied, as the API server keeps them in managedFields.
fn owned_fields(live: &Value) -> Option<&Map<String, Value>> {
    let entries = live["metadata"]["managedFields"].as_array()?;
    let ours =
        entries.iter().find(|e| e["manager"] == MANAGER && e["operation"] == "Apply" && e["subresource"].is_null())?;
    ours["fieldsV1"].as_object()
}

/// The part of `live` that a set of fields names: Kubernetes' own "extract", for a set as in managedFields, where
/// `f:` names a field, `k:` the item of a list by its keys, `v:` an item by its value.
fn extract(live: &Value, fields: &Map<String, Value>) -> Value {
    let inner = |live: &Value, fields: &Value| match fields.as_object() {
        Some(fields) if fields.keys().any(|k| k != ".") => extract(live, fields),
        _ => live.clone(),
    };
    match live {
        Value::Object(map) => Value::Object(
            fields
                .iter()
                .filter_map(|(key, below)| {
                    let name = key.strip_prefix("f:")?;
                    let value = map.get(name)?;
                    let leaf_map =
                        value.is_object() && below.as_object().is_some_and(|b| b.len() == 1 && b.contains_key("."));
                    let value = if leaf_map { Value::Object(Map::new()) } else { inner(value, below) };
                    Some((name.to_owned(), value))
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(
            items
                .iter()
                .filter_map(|item| {
                    fields.iter().find_map(|(key, below)| {
                        if let Some(keys) = key.strip_prefix("k:") {
                            let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
                            keys.iter().all(|(k, v)| item.get(k) == Some(v)).then(|| inner(item, below))
                        } else {
                            let value: Value = serde_json::from_str(key.strip_prefix("v:")?).ok()?;
                            (*item == value).then(|| item.clone())
                        }
                    })
                })
                .collect(),
        ),
        other => other.clone(),
    }
}

/// Takes away what says which object it is, and what has no value.
fn strip(object: &mut Value) {
    if let Some(map) = object.as_object_mut() {
        for key in ["apiVersion", "kind", "status"] {
            map.remove(key);
        }
        if let Some(meta) = map.get_mut("metadata").and_then(Value::as_object_mut) {
            for key in ["name", "namespace", "managedFields"] {
                meta.remove(key);
            }
        }
        if map.get("metadata").is_some_and(|m| m.as_object().is_some_and(Map::is_empty)) {
            map.remove("metadata");
        }
    }
}
