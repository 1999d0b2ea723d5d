//! References to a Topology.

use serde_json::{Value, json};

use crate::object::{present, set, text};

/// The Topology that a spec refers to. A reference without a name is none: it opts out of what it would inherit.
pub(crate) fn of(spec: &Value) -> Option<&str> {
    Some(text(spec, "/topologyRef/name")).filter(|name| !name.is_empty())
}

/// Gives a spec the reference of the one above it, unless it has one of its own, be it without a name.
pub(crate) fn inherit(spec: &mut Value, from: &Value) {
    if present(spec, "/topologyRef").is_none()
        && let Some(reference) = present(from, "/topologyRef")
    {
        set(spec, "topologyRef", reference.clone());
    }
}

/// A reference with its namespace said.
pub(crate) fn in_namespace(name: &str, namespace: &str) -> Value {
    json!({"name": name, "namespace": namespace})
}
