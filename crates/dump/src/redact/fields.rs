//! Which fields of an object have names.

use serde_json::{Map, Value};

use crate::sanitize::sanitize;

/// How a text is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextUse {
    /// It is a name, or put together from names.
    Name,
    /// It is a sentence that may have names in it.
    Message,
}

/// Fields whose texts are not names: they have a fixed set of values, or say how something is.
const FIXED: [&str; 19] = [
    "apiVersion",
    "architecture",
    "containerRuntimeVersion",
    "effect",
    "fieldsType",
    "gitVersion",
    "kernelVersion",
    "kind",
    "kubeProxyVersion",
    "kubeletVersion",
    "operatingSystem",
    "operation",
    "operator",
    "osImage",
    "phase",
    "protocol",
    "reason",
    "resourceVersion",
    "subresource",
];

/// Fields with sentences.
const MESSAGES: [&str; 2] = ["message", "note"];

/// Fields that are maps whose keys a user chooses.
const MAPS: [&str; 17] = [
    "allocatable",
    "annotations",
    "capacity",
    "cellTemplates",
    "cinderVolumes",
    "glanceAPIs",
    "hard",
    "labels",
    "limits",
    "manilaShares",
    "matchLabels",
    "nodeSelector",
    "parameters",
    "requests",
    "templates",
    "used",
    "volumeAttributes",
];

/// Fields whose texts are names even if they look like one of a fixed set of values.
const CHOSEN: [&str; 7] = ["annotations", "labels", "matchLabels", "nodeSelector", "parameters", "value", "values"];

/// Annotations that answers depend on. The others may have anything in them, and are removed.
const KEPT_ANNOTATIONS: [&str; 13] = [
    "deployment.kubernetes.io/revision",
    "kubernetes.io/config.mirror",
    "kubernetes.io/config.source",
    "node.alpha.kubernetes.io/ttl",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "pv.kubernetes.io/migrated-to",
    "pv.kubernetes.io/provisioned-by",
    "storageclass.kubernetes.io/is-default-class",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volumes.kubernetes.io/controller-managed-attach-detach",
];

/// Removes what is not replaced but left out.
pub(super) fn prepare(object: &mut Value) {
    sanitize(object);
    remove_annotations(object);
}

fn remove_annotations(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(remove_annotations),
        Value::Object(fields) => {
            if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
                let kept = |name: &String| KEPT_ANNOTATIONS.contains(&name.as_str()) || name.contains("stead.dev/");
                annotations.retain(|name, _| kept(name));
            }
            fields.values_mut().for_each(remove_annotations);
        }
        _ => {}
    }
}

/// Calls `text` with each text of an object that is a name or a message. Keys count where users choose them.
pub(super) fn visit(object: &mut Value, text: &mut dyn FnMut(&mut String, TextUse)) {
    visit_value("", object, false, text);
}

/// Visits the value of a field; `chosen` tells that a user chooses its texts freely.
fn visit_value(field: &str, value: &mut Value, chosen: bool, text: &mut dyn FnMut(&mut String, TextUse)) {
    match value {
        Value::String(content) if MESSAGES.contains(&field) => text(content, TextUse::Message),
        Value::String(content) if chosen || !(FIXED.contains(&field) || is_fixed(content)) => {
            text(content, TextUse::Name);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| visit_value(field, item, chosen, text)),
        Value::Object(_) if field == "fieldsV1" => visit_managed(value, false, text),
        Value::Object(fields) => {
            let chosen = chosen || CHOSEN.contains(&field);
            if MAPS.contains(&field) {
                rename_keys(fields, |key| text(key, TextUse::Name));
            }
            for (name, value) in fields.iter_mut() {
                visit_value(name, value, chosen || CHOSEN.contains(&name.as_str()), text);
            }
        }
        _ => {}
    }
}

/// Whether a text is one word of a fixed set, such as `NoExecute`, a time, or nothing.
fn is_fixed(content: &str) -> bool {
    let is_camel_case = content.starts_with(|c: char| c.is_ascii_uppercase())
        && content.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let bytes = content.as_bytes();
    let is_time =
        bytes.len() >= 20 && bytes[4] == b'-' && bytes[10] == b'T' && bytes[..4].iter().all(u8::is_ascii_digit);
    content.is_empty() || is_camel_case || is_time
}

fn rename_keys(fields: &mut Map<String, Value>, mut rename: impl FnMut(&mut String)) {
    *fields = std::mem::take(fields)
        .into_iter()
        .map(|(mut key, value)| {
            rename(&mut key);
            (key, value)
        })
        .collect();
}

/// Visits the managed fields of an object, whose keys are `f:FIELD`, `k:{"KEY":"VALUE"}` and `v:"VALUE"`. The keys below a
/// map are those of users.
fn visit_managed(value: &mut Value, in_map: bool, text: &mut dyn FnMut(&mut String, TextUse)) {
    let Value::Object(fields) = value else { return };
    rename_keys(fields, |key| {
        if let Some(field) = key.strip_prefix("f:").filter(|_| in_map) {
            let mut field = field.to_owned();
            text(&mut field, TextUse::Name);
            *key = format!("f:{field}");
        } else if let Some((prefix, json)) =
            key.split_at_checked(2).filter(|(prefix, _)| matches!(*prefix, "k:" | "v:"))
            && let Ok(mut item) = serde_json::from_str::<Value>(json)
        {
            visit_value("", &mut item, false, text);
            *key = format!("{prefix}{item}");
        }
    });
    for (key, value) in fields.iter_mut() {
        let in_map = key.strip_prefix("f:").is_some_and(|field| MAPS.contains(&field));
        visit_managed(value, in_map, text);
    }
}
