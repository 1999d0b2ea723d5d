//! One request to an API server, as data.

use serde::Serialize;
use serde_json::{Value, json};

/// What a request does, with Kubernetes' names where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads many objects.
    List,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Applies fields of an object on the server.
    Apply,
    /// Changes fields of an object with a merge patch.
    Patch,
    /// Deletes an object.
    Delete,
}

impl Verb {
    /// Its name, for metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Apply => "apply",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        }
    }

    /// Whether it changes nothing.
    pub fn is_read(self) -> bool {
        matches!(self, Verb::Get | Verb::List)
    }

    pub(crate) fn method(self) -> http::Method {
        match self {
            Verb::Get | Verb::List => http::Method::GET,
            Verb::Create => http::Method::POST,
            Verb::Update => http::Method::PUT,
            Verb::Apply | Verb::Patch => http::Method::PATCH,
            Verb::Delete => http::Method::DELETE,
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Verb::Apply => "application/apply-patch+yaml",
            Verb::Patch => "application/merge-patch+json",
            _ => "application/json",
        }
    }
}

/// The object that a deletion was decided for. The server refuses to delete any other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// Its UID.
    pub uid: Option<String>,
    /// Its resourceVersion.
    pub resource_version: Option<String>,
}

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeletePolicy {
    /// The kind's own default.
    Default,
    /// They are deleted afterwards.
    Background,
    /// They are deleted first.
    Foreground,
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiRequest {
    /// What it does.
    pub verb: Verb,
    /// The path; it may have a query of its own.
    pub path: String,
    /// The parameters of the query, not yet escaped.
    pub query: Vec<(&'static str, String)>,
    /// The body.
    pub body: Option<Value>,
}

impl ApiRequest {
    fn new(verb: Verb, path: impl Into<String>, body: Option<Value>) -> ApiRequest {
        ApiRequest { verb, path: path.into(), query: Vec::new(), body }
    }

    /// Reads an object.
    pub fn get(path: impl Into<String>) -> ApiRequest {
        ApiRequest::new(Verb::Get, path, None)
    }

    /// Reads a list, or its first page.
    pub fn list(path: impl Into<String>) -> ApiRequest {
        ApiRequest::new(Verb::List, path, None)
    }

    /// Creates an object in a collection.
    pub fn create(path: impl Into<String>, object: &impl Serialize) -> ApiRequest {
        ApiRequest::new(Verb::Create, path, Some(to_json(object)))
    }

    /// Replaces an object. With a resourceVersion, only that version of it.
    pub fn update(path: impl Into<String>, object: &impl Serialize) -> ApiRequest {
        ApiRequest::new(Verb::Update, path, Some(to_json(object)))
    }

    /// Applies an object on the server, with these fields taken over from other managers.
    pub fn apply(path: impl Into<String>, object: &impl Serialize) -> ApiRequest {
        ApiRequest::new(Verb::Apply, path, Some(to_json(object))).with("force", "true")
    }

    /// Changes an object with a merge patch.
    pub fn patch(path: impl Into<String>, patch: &impl Serialize) -> ApiRequest {
        ApiRequest::new(Verb::Patch, path, Some(to_json(patch)))
    }

    /// Deletes an object if it still is the one that the deletion was decided for.
    pub fn delete(path: impl Into<String>, object: &Preconditions, policy: DeletePolicy) -> ApiRequest {
        let mut preconditions = json!({});
        for (field, value) in [("uid", &object.uid), ("resourceVersion", &object.resource_version)] {
            if let Some(value) = value {
                preconditions[field] = value.as_str().into();
            }
        }
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        if policy != DeletePolicy::Default {
            options["propagationPolicy"] = format!("{policy:?}").into();
        }
        ApiRequest::new(Verb::Delete, path, Some(options))
    }

    /// The same request with a parameter in its query.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> ApiRequest {
        self.query.retain(|(other, _)| *other != name);
        self.query.push((name, value.into()));
        self
    }

    /// The same request without some parameters.
    #[must_use]
    pub(crate) fn without(mut self, names: &[&str]) -> ApiRequest {
        self.query.retain(|(name, _)| !names.contains(name));
        self
    }

    /// The same write, recorded in `managedFields` under this name.
    #[must_use]
    pub fn managed_by(self, manager: &str) -> ApiRequest {
        self.with("fieldManager", manager)
    }

    /// The same write, checked by the server and not stored.
    #[must_use]
    pub fn dry_run(self) -> ApiRequest {
        self.with("dryRun", "All")
    }

    /// The same list as of this revision; the latest if the server does not have that revision.
    #[must_use]
    pub fn at_revision(self, revision: &str) -> ApiRequest {
        self.with("resourceVersion", revision).with("resourceVersionMatch", "Exact")
    }

    /// Path and query.
    pub(crate) fn uri(&self) -> String {
        let mut uri = self.path.clone();
        for (name, value) in &self.query {
            uri.push(if uri.contains('?') { '&' } else { '?' });
            uri.push_str(&format!("{name}={}", escape(value)));
        }
        uri
    }
}

fn to_json(object: &impl Serialize) -> Value {
    serde_json::to_value(object).expect("the keys of Kubernetes objects are strings")
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
    fn requests_are_as_the_api_server_expects_them() {
        let uid = Preconditions { uid: Some("u".into()), ..Preconditions::default() };
        for (request, method, content_type, uri) in [
            (ApiRequest::get("/a/b"), "GET", "application/json", "/a/b"),
            (
                ApiRequest::list("/a").with("limit", "500").with("continue", "x y="),
                "GET",
                "application/json",
                "/a?limit=500&continue=x%20y%3D",
            ),
            (
                ApiRequest::list("/a?labelSelector=b%3Dc").with("limit", "1").with("limit", "2"),
                "GET",
                "application/json",
                "/a?labelSelector=b%3Dc&limit=2",
            ),
            (ApiRequest::create("/a", &json!({})), "POST", "application/json", "/a"),
            (ApiRequest::update("/a/b", &json!({})).managed_by("m"), "PUT", "application/json", "/a/b?fieldManager=m"),
            (
                ApiRequest::apply("/a/b/status", &json!({})).managed_by("m").dry_run(),
                "PATCH",
                "application/apply-patch+yaml",
                "/a/b/status?force=true&fieldManager=m&dryRun=All",
            ),
            (ApiRequest::patch("/a/b", &json!({})), "PATCH", "application/merge-patch+json", "/a/b"),
            (ApiRequest::delete("/a/b", &uid, DeletePolicy::Default), "DELETE", "application/json", "/a/b"),
        ] {
            let found = (request.verb.method().to_string(), request.verb.content_type(), request.uri());
            assert_eq!(found, (method.to_owned(), content_type, uri.to_owned()));
        }
    }

    #[test]
    fn a_deletion_names_the_object_that_it_was_decided_for() {
        let version = |v: &str| Some(v.to_owned());
        let both = Preconditions { uid: version("u"), resource_version: version("7") };
        let request = ApiRequest::delete("/a/b", &both, DeletePolicy::Foreground);
        let expected = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground",
            "preconditions": {"uid": "u", "resourceVersion": "7"}});
        assert_eq!(request.body, Some(expected));
    }
}
