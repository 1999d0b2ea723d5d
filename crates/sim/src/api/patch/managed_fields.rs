//! Who set which fields (`structured-merge-diff`): sets of fields as `metadata.managedFields` has them. In such a set
//! `f:` is a field, `k:` an item of a list by its keys, `v:` an item by its value, and `.` the value itself.

use serde_json::{Map, Value, json};

use super::schema::{ListType, Place, key_of};

/// The fields that a value sets.
pub(super) fn fields_of(value: &Value, place: Place<'_>) -> Map<String, Value> {
    let mut set = Map::new();
    match value {
        Value::Object(fields) if !place.is_atomic() => {
            for (name, value) in fields {
                set.insert(format!("f:{name}"), Value::Object(fields_of(value, place.field(name))));
            }
        }
        Value::Array(items) => match place.list_type() {
            ListType::Atomic => {}
            ListType::Set => set.extend(items.iter().map(|item| (format!("v:{item}"), json!({})))),
            ListType::Map(keys) => {
                for item in items {
                    let mut below = fields_of(item, place);
                    below.insert(".".into(), json!({}));
                    set.insert(item_key(item, keys), Value::Object(below));
                }
            }
        },
        _ => {}
    }
    set
}

fn item_key(item: &Value, keys: &[&str]) -> String {
    let keys: Map<String, Value> = keys.iter().map(|key| ((*key).to_owned(), key_of(item, key))).collect();
    format!("k:{}", Value::Object(keys))
}

/// Sets the fields of an object that are applied, and leaves all others.
pub(super) fn merge(live: &mut Value, applied: &Value, place: Place<'_>) {
    match (&mut *live, applied) {
        (Value::Object(live), Value::Object(applied)) if !place.is_atomic() => {
            for (name, value) in applied {
                match live.get_mut(name) {
                    _ if value.is_null() => {
                        live.remove(name);
                    }
                    Some(found) => merge(found, value, place.field(name)),
                    None => {
                        live.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(items), Value::Array(applied)) => match place.list_type() {
            ListType::Atomic => items.clone_from(applied),
            ListType::Set => {
                let added: Vec<Value> = applied.iter().filter(|value| !items.contains(value)).cloned().collect();
                items.extend(added);
            }
            ListType::Map(keys) => {
                for item in applied {
                    let same = |other: &&mut Value| keys.iter().all(|key| key_of(other, key) == key_of(item, key));
                    match items.iter_mut().find(same) {
                        Some(found) => merge(found, item, place),
                        None => items.push(item.clone()),
                    }
                }
            }
        },
        (live, applied) => *live = applied.clone(),
    }
}

/// Removes what a set names and the other sets do not.
pub(super) fn prune(value: &mut Value, set: &Map<String, Value>, kept: &[&Map<String, Value>]) {
    for (key, below) in set.iter().filter(|(key, _)| *key != ".") {
        let below = below.as_object();
        let kept_below: Vec<&Map<String, Value>> =
            kept.iter().filter_map(|kept| kept.get(key).and_then(Value::as_object)).collect();
        let is_leaf = below.is_none_or(|below| below.is_empty() || below.contains_key("."));
        let drop = is_leaf && kept_below.is_empty();
        if let (Some(name), Value::Object(fields)) = (key.strip_prefix("f:"), &mut *value) {
            let Some(found) = fields.get_mut(name) else { continue };
            if let (Some(below), false) = (below, drop) {
                prune(found, below, &kept_below);
            }
            // A struct or list that has lost all of its content is not wanted any more.
            let emptied = kept_below.is_empty() && is_empty(found);
            if drop || emptied {
                fields.remove(name);
            }
        } else if let Value::Array(items) = &mut *value {
            if drop {
                items.retain(|item| !is_item(item, key));
            } else if let (Some(below), Some(found)) = (below, items.iter_mut().find(|item| is_item(item, key))) {
                prune(found, below, &kept_below);
            }
        }
    }
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn is_item(item: &Value, key: &str) -> bool {
    if let Some(value) = key.strip_prefix("v:") {
        return serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item);
    }
    let keys = key.strip_prefix("k:").and_then(|keys| serde_json::from_str::<Map<String, Value>>(keys).ok());
    keys.is_some_and(|keys| keys.iter().all(|(key, value)| key_of(item, key) == *value))
}

/// The set without the fields whose values differ: who changes a field takes it over.
pub(super) fn unchanged(set: &Map<String, Value>, before: &Value, after: &Value) -> Map<String, Value> {
    let mut kept = Map::new();
    for (key, below) in set {
        if key == "." {
            kept.insert(key.clone(), below.clone());
            continue;
        }
        let (Some(old), Some(new)) = (at(before, key), at(after, key)) else { continue };
        let is_leaf = below.as_object().is_none_or(Map::is_empty);
        if old == new {
            kept.insert(key.clone(), below.clone());
        } else if let (Some(below), false) = (below.as_object(), is_leaf) {
            let below = unchanged(below, old, new);
            if !below.is_empty() {
                kept.insert(key.clone(), Value::Object(below));
            }
        }
    }
    kept
}

fn at<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match key.strip_prefix("f:") {
        Some(name) => value.get(name),
        None => value.as_array()?.iter().find(|item| is_item(item, key)),
    }
}
