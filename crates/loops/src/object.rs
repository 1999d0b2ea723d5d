//! Small readings of objects, and the metadata of what the loops make.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use stead_model::ObjectKey;

/// Labels, annotations and the like.
pub(crate) type Texts = BTreeMap<String, String>;

/// The text at a JSON pointer; empty where there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a JSON pointer.
pub(crate) fn number(object: &Value, pointer: &str) -> Option<i64> {
    object.pointer(pointer).and_then(Value::as_i64)
}

/// Whether the value at a JSON pointer is true.
pub(crate) fn flag(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).and_then(Value::as_bool).unwrap_or(false)
}

/// The items of the list at a JSON pointer.
pub(crate) fn items<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// The texts of the list at a JSON pointer.
pub(crate) fn texts<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    items(object, pointer).filter_map(Value::as_str)
}

/// The fields of the map at a JSON pointer.
pub(crate) fn fields<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

/// The value at a JSON pointer, unless there is none or it is null.
pub(crate) fn present<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer).filter(|v| !v.is_null())
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// Whether somebody has asked for the object's end.
pub(crate) fn deleting(object: &Value) -> bool {
    present(object, "/metadata/deletionTimestamp").is_some()
}

/// Whether the object's status speaks of its present spec.
pub(crate) fn observed(object: &Value) -> bool {
    object["metadata"]["generation"] == object["status"]["observedGeneration"]
}

/// The key of the object that controls this one, if it is of a kind.
pub(crate) fn controller(object: &Value, kind: &str) -> Option<ObjectKey> {
    items(object, "/metadata/ownerReferences")
        .find(|r| flag(r, "/controller") && r["kind"] == kind)
        .map(|r| ObjectKey::new(kind, namespace(object), text(r, "/name")))
}

/// Whether this object controls the other.
pub(crate) fn controls(owner: &Value, object: &Value) -> bool {
    items(object, "/metadata/ownerReferences").any(|r| flag(r, "/controller") && r["uid"] == owner["metadata"]["uid"])
}

/// An object that another one controls: it goes with it.
pub(crate) fn owned(owner: &Value, api_version: &str, kind: &str, name: &str, labels: &Texts) -> Value {
    let mut metadata = json!({
        "name": name,
        "namespace": namespace(owner),
        "ownerReferences": [{
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    });
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
}

/// Texts from pairs.
pub(crate) fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Texts {
    pairs.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

/// A map with one more field; a value that is no map becomes one.
pub(crate) fn set(object: &mut Value, field: &str, value: Value) {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if let Some(map) = object.as_object_mut() {
        map.insert(field.to_owned(), value);
    }
}
