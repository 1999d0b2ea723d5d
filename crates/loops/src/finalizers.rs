//! Finalizers: a word on an object that it must not go yet.

use serde_json::{Value, json};
use stead_model::ObjectKey;

use crate::object::{deleting, texts};
use crate::step::Write;

/// Puts a finalizer on an object that does not have it.
pub(crate) fn add(object: &Value, finalizer: &str) -> Option<Write> {
    let mut finalizers: Vec<&str> = texts(object, "/metadata/finalizers").collect();
    if finalizers.contains(&finalizer) {
        return None;
    }
    finalizers.push(finalizer);
    patch(object, &finalizers)
}

/// Takes a finalizer off an object that has it.
pub(crate) fn remove(object: &Value, finalizer: &str) -> Option<Write> {
    let finalizers: Vec<&str> = texts(object, "/metadata/finalizers").collect();
    let kept: Vec<&str> = finalizers.iter().copied().filter(|f| *f != finalizer).collect();
    if kept.len() == finalizers.len() {
        return None;
    }
    patch(object, &kept)
}

/// The patch is made only if nobody has touched the object since: others have finalizers there too.
fn patch(object: &Value, finalizers: &[&str]) -> Option<Write> {
    let finalizers = if finalizers.is_empty() { Value::Null } else { json!(finalizers) };
    let metadata = &object["metadata"];
    let body = json!({"metadata": {
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
        "finalizers": finalizers,
    }});
    Some(Write::Patch { key: ObjectKey::of(object)?, body })
}

/// Why a finalizer cannot be put on an object whose end has been asked for, in the API server's words.
pub(crate) fn refused(object: &Value, resource: &str, finalizer: &str) -> Option<String> {
    let has = texts(object, "/metadata/finalizers").any(|f| f == finalizer);
    (deleting(object) && !has).then(|| {
        format!(
            "{resource} \"{}\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{finalizer:?}}}",
            crate::object::name(object),
        )
    })
}
