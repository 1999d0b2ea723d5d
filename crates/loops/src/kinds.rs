//! The kinds that the loops read, and what is kept of their objects.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stead_model::Kind;

use crate::step::MANAGER;

/// A kind that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// The kind.
    pub kind: &'static Kind,
    /// The label selector that limits what is watched; empty for all objects.
    pub selector: &'static str,
    /// Whether the cluster may not have the kind.
    pub optional: bool,
}

impl Watched {
    /// A kind of which all objects are watched. In a constant, a kind that is not in the table does not compile.
    pub const fn all(kind: &str) -> Watched {
        Watched { kind: Kind::known(kind), selector: "", optional: false }
    }

    /// A kind of which only Glance's objects are watched.
    const fn of_glance(kind: &str) -> Watched {
        Watched { kind: Kind::known(kind), selector: "service=glance", optional: false }
    }
}

/// The kinds of which the loops read single objects by name ([`crate::references`]). They are never listed or watched:
/// the operator needs no right to see Secrets that no spec refers to.
pub const READ_BY_NAME: &[Watched] = &[Watched::all("Secret")];

/// The kinds that the loops watch.
pub const WATCHED: &[Watched] = &[
    Watched::all("Topology"),
    Watched::all("Glance"),
    Watched::all("GlanceAPI"),
    Watched::all("OpenStackControlPlane"),
    Watched::of_glance("StatefulSet"),
    Watched::of_glance("Job"),
    Watched::all("CronJob"),
    Watched::of_glance("Pod"),
    Watched::of_glance("PersistentVolumeClaim"),
    Watched::all("Service"),
    Watched::of_glance("ServiceAccount"),
    Watched::of_glance("Role"),
    Watched::of_glance("RoleBinding"),
    Watched { optional: true, ..Watched::all("NetworkAttachmentDefinition") },
    Watched::all("Node"),
];

/// What is kept of an object: what the loops need, and no values of Secrets.
pub fn trim(mut object: Value) -> Value {
    if let Some(Value::Array(entries)) = object.pointer_mut("/metadata/managedFields") {
        // What others set matters only where Stead applied something too.
        let is_ours = |entry: &Value| entry["manager"] == MANAGER && entry["operation"] == "Apply";
        let applied = entries.iter().any(is_ours);
        entries.retain(|entry| applied && entry["subresource"].as_str().unwrap_or_default().is_empty());
    }
    match object["kind"].as_str() {
        Some("Secret") => digest(&mut object),
        Some("Node") => without_heartbeat(&mut object),
        _ => {}
    }
    object
}

/// Replaces the values of a Secret by their digests: the loops only need to know whether they changed.
fn digest(secret: &mut Value) {
    // kubectl apply keeps a copy of the values in an annotation.
    if let Some(Value::Object(metadata)) = secret.pointer_mut("/metadata") {
        metadata.remove("annotations");
    }
    for field in ["data", "stringData"] {
        let Some(data) = secret.get_mut(field).and_then(Value::as_object_mut) else { continue };
        for value in data.values_mut() {
            *value = Value::String(hex(value.as_str().unwrap_or_default()));
        }
    }
}

/// Removes what changes with each heartbeat of a node.
fn without_heartbeat(node: &mut Value) {
    let status = node["status"].take();
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let conditions: Vec<Value> = conditions.map(|c| json!({"type": c["type"], "status": c["status"]})).collect();
    node["status"] = json!({"allocatable": status["allocatable"], "conditions": conditions});
}

/// The SHA-256 of a text, in hexadecimal.
pub(crate) fn hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
