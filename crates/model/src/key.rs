//! The identity of an object by kind, namespace and name.

use serde_json::Value;

use crate::kinds::Kind;

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The kind, such as `Node`.
    pub kind: String,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object whose kind is only known at run time; `namespace` is empty for a cluster-scoped object.
    pub fn new(kind: &str, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { kind: kind.into(), namespace: namespace.into(), name: name.into() }
    }

    /// The key of a namespaced object.
    pub fn namespaced(kind: &str, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new(kind, namespace, name)
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(kind: &str, name: &str) -> ObjectKey {
        ObjectKey::new(kind, "", name)
    }

    /// The key of a pod.
    pub fn pod(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new("Pod", namespace, name)
    }

    /// The key of a node.
    pub fn node(name: &str) -> ObjectKey {
        ObjectKey::cluster("Node", name)
    }

    /// The key of an object by its own `kind` and `metadata`; none where kind or name is missing.
    pub fn of(object: &Value) -> Option<ObjectKey> {
        ObjectKey::of_kind(object["kind"].as_str()?, object)
    }

    /// The key of an object whose kind is known from its place, such as a list of a recorded case. A namespaced object
    /// without a namespace is in `default`; the namespace of a cluster-scoped object is ignored.
    pub fn of_kind(kind: &str, object: &Value) -> Option<ObjectKey> {
        let metadata = &object["metadata"];
        let name = metadata["name"].as_str().filter(|name| !name.is_empty())?;
        let namespace = match (Kind::named(kind).map(|kind| kind.namespaced), metadata["namespace"].as_str()) {
            (Some(false), _) => "",
            (Some(true), None | Some("")) => "default",
            (_, namespace) => namespace.unwrap_or_default(),
        };
        Some(ObjectKey::new(kind, namespace, name))
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.kind.to_lowercase();
        if self.namespace.is_empty() {
            write!(f, "{kind} {}", self.name)
        } else {
            write!(f, "{kind} {}/{}", self.namespace, self.name)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_namespace_follows_from_the_scope_of_the_kind() {
        for (kind, namespace, key) in [
            ("Pod", json!("a"), Some("pod a/x")),
            ("Pod", json!(null), Some("pod default/x")),
            ("Deployment", json!(""), Some("deployment default/x")),
            ("Node", json!("a"), Some("node x")),
            ("Widget", json!(null), Some("widget x")),
            ("Widget", json!("a"), Some("widget a/x")),
        ] {
            let object = json!({ "kind": kind, "metadata": { "name": "x", "namespace": namespace } });
            assert_eq!(ObjectKey::of(&object).map(|key| key.to_string()).as_deref(), key, "{object}");
        }
        assert_eq!(ObjectKey::of(&json!({ "kind": "Pod", "metadata": { "name": "" } })), None);
        assert_eq!(ObjectKey::of(&json!({ "metadata": { "name": "x" } })), None);
    }
}
