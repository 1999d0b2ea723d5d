//! Whether an apply would change anything: the fields that Stead owns of an object, compared with those it wants.

use serde_json::{Map, Value};

use crate::managed_fields::{is_applied_by_stead, managed_fields};

/// Whether applying `wanted` under Stead's name would change `live`: a field that Stead owns has another value or is
/// no longer wanted, or a wanted field is not (or no longer) owned by Stead.
pub fn differs(live: &Value, wanted: &Value) -> bool {
    let entry = managed_fields(live).into_iter().find(is_applied_by_stead);
    let Some(Value::Object(fields)) = entry.and_then(|entry| entry.fields_v1).map(|fields| fields.0) else {
        return true;
    };
    let mut owned = extract(live, &fields);
    let mut wanted = wanted.clone();
    for object in [&mut owned, &mut wanted] {
        strip(object);
    }
    owned != wanted
}

/// The part of `live` that a set of fields names, as client-go's extract functions compute it. In a set of managedFields
/// `f:` names a field, `k:` an item of a list by its keys, and `v:` an item by its value.
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

/// Removes what identifies the object, its status, and metadata that is then empty.
fn strip(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    for field in ["apiVersion", "kind", "status"] {
        fields.remove(field);
    }
    if let Some(Value::Object(mut metadata)) = fields.remove("metadata") {
        for field in ["name", "namespace", "managedFields"] {
            metadata.remove(field);
        }
        if !metadata.is_empty() {
            fields.insert("metadata".into(), metadata.into());
        }
    }
}
