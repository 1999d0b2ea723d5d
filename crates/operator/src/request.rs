//! What goes over the wire: each write as one HTTP request, as data.

use serde_json::{Value, json};
use stead_loops::{MANAGER, ObjectKey, Propagation, Watched};

/// What a request does, in Kubernetes' words for rights and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    /// Reads one object.
    Get,
    /// Reads many.
    List,
    /// Makes a new one.
    Create,
    /// Says what Stead wants of one, on the server.
    Apply,
    /// Changes fields of one.
    Patch,
    /// Ends one.
    Delete,
}

impl Verb {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Create => "create",
            Verb::Apply => "apply",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        }
    }

    /// Whether it changes nothing.
    pub(crate) fn reads(self) -> bool {
        matches!(self, Verb::Get | Verb::List)
    }

    /// The HTTP method.
    pub(crate) fn method(self) -> &'static str {
        match self {
            Verb::Get | Verb::List => "GET",
            Verb::Create => "POST",
            Verb::Apply | Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
        }
    }

    /// The media type of the body.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Verb::Apply => "application/apply-patch+yaml",
            Verb::Patch => "application/merge-patch+json",
            _ => "application/json",
        }
    }
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Request {
    /// What it does.
    pub(crate) verb: Verb,
    /// Path and query.
    pub(crate) path: String,
    /// The body, if it has one.
    pub(crate) body: Option<Value>,
}

/// Where the objects of a kind are found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resource<'a> {
    /// API group and version.
    pub(crate) api_version: &'a str,
    /// The kind's name in a path.
    pub(crate) plural: &'a str,
    /// Whether its objects live in a namespace.
    pub(crate) namespaced: bool,
}

impl From<&Watched> for Resource<'static> {
    fn from(watched: &Watched) -> Resource<'static> {
        Resource { api_version: watched.api_version, plural: watched.plural, namespaced: watched.namespaced }
    }
}

impl Resource<'_> {
    /// The path of all objects of the kind, or of those in one namespace.
    pub(crate) fn all(&self, namespace: &str) -> String {
        let root = if self.api_version.contains('/') { "apis" } else { "api" };
        let namespace = match (self.namespaced, namespace) {
            (true, n) if !n.is_empty() => format!("/namespaces/{n}"),
            _ => String::new(),
        };
        format!("/{root}/{}{namespace}/{}", self.api_version, self.plural)
    }

    /// The path of one object.
    pub(crate) fn one(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.all(&key.namespace), key.name)
    }

    /// Reads one object.
    pub(crate) fn get(&self, key: &ObjectKey) -> Request {
        Request { verb: Verb::Get, path: self.one(key), body: None }
    }

    /// Reads a page of all objects.
    pub(crate) fn list(&self, continued: &str) -> Request {
        let rest = if continued.is_empty() { String::new() } else { format!("&continue={}", escape(continued)) };
        Request { verb: Verb::List, path: format!("{}?limit=500{rest}", self.all("")), body: None }
    }

    /// Applies an object, or its status.
    pub(crate) fn apply(&self, key: &ObjectKey, object: &Value, status: bool) -> Request {
        let part = if status { "/status" } else { "" };
        Request {
            verb: Verb::Apply,
            path: format!("{}{part}?fieldManager={MANAGER}&force=true", self.one(key)),
            body: Some(object.clone()),
        }
    }

    /// Changes fields of an object.
    pub(crate) fn patch(&self, key: &ObjectKey, body: &Value) -> Request {
        let path = format!("{}?fieldManager={MANAGER}", self.one(key));
        Request { verb: Verb::Patch, path, body: Some(body.clone()) }
    }

    /// Ends an object, if it is still that one.
    pub(crate) fn delete(&self, key: &ObjectKey, uid: &str, propagation: Propagation) -> Request {
        let policy = match propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        };
        let body = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": uid},
            "propagationPolicy": policy,
        });
        Request { verb: Verb::Delete, path: self.one(key), body: Some(body) }
    }

    /// Makes a new object in a namespace.
    pub(crate) fn create(&self, namespace: &str, object: Value) -> Request {
        Request {
            verb: Verb::Create,
            path: format!("{}?fieldManager={MANAGER}", self.all(namespace)),
            body: Some(object),
        }
    }
}

/// A value as it may stand in a query.
fn escape(value: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    value.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_kubernetes_own() {
        let glance = Resource { api_version: "glance.openstack.org/v1beta1", plural: "glances", namespaced: true };
        let node = Resource { api_version: "v1", plural: "nodes", namespaced: false };
        let key = ObjectKey::new("Glance", "openstack", "glance");
        let node_key = ObjectKey::new("Node", "", "worker-0");
        for (request, method, path) in [
            (glance.get(&key), "GET", "/apis/glance.openstack.org/v1beta1/namespaces/openstack/glances/glance"),
            (node.get(&node_key), "GET", "/api/v1/nodes/worker-0"),
            (node.list("a b="), "GET", "/api/v1/nodes?limit=500&continue=a%20b%3D"),
            (glance.list(""), "GET", "/apis/glance.openstack.org/v1beta1/glances?limit=500"),
            (
                glance.apply(&key, &json!({}), true),
                "PATCH",
                "/apis/glance.openstack.org/v1beta1/namespaces/openstack/glances/glance/status?fieldManager=stead&force=true",
            ),
            (
                glance.create("openstack", json!({})),
                "POST",
                "/apis/glance.openstack.org/v1beta1/namespaces/openstack/glances?fieldManager=stead",
            ),
        ] {
            assert_eq!((request.verb.method(), request.path.as_str()), (method, path));
        }
    }
}
