//! Objects as they were last seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use stead_model::ObjectKey;

/// The objects that the loops look at, trimmed, by kind, namespace and name. Cloning shares the objects.
#[derive(Debug, Clone, Default)]
pub struct Store {
    objects: BTreeMap<ObjectKey, Arc<Value>>,
}

impl Store {
    /// An empty one.
    pub fn new() -> Store {
        Store::default()
    }

    /// Takes an object over, unless a newer version of it is there. Gives what was there before, and whether the
    /// object was taken.
    pub fn put(&mut self, object: Value) -> (Option<Arc<Value>>, bool) {
        let Some(key) = ObjectKey::of(&object) else { return (None, false) };
        let before = self.objects.get(&key).cloned();
        // Revisions grow across all objects of a kind: a successor of the same name is newer too.
        if before.as_deref().is_some_and(|b| revision(b) >= revision(&object)) {
            return (before, false);
        }
        self.objects.insert(key, Arc::new(object));
        (before, true)
    }

    /// Forgets an object.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Value>> {
        self.objects.remove(key)
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&Value> {
        self.objects.get(key).map(Arc::as_ref)
    }

    /// The object of this kind, namespace and name.
    pub fn find(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.get(&ObjectKey::new(kind, namespace, name))
    }

    /// The objects of a kind, in the order of their namespaces and names.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        let from = ObjectKey::new(kind, "", "");
        self.objects.range(from..).take_while(move |(k, _)| k.kind == kind).map(|(_, v)| v.as_ref())
    }

    /// The objects of a kind in a namespace, in the order of their names.
    pub fn list<'a>(&'a self, kind: &'a str, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
        let from = ObjectKey::new(kind, namespace, "");
        let inside = move |k: &ObjectKey| k.kind == kind && k.namespace == namespace;
        self.objects.range(from..).take_while(move |(k, _)| inside(k)).map(|(_, v)| v.as_ref())
    }

    /// The keys of a kind.
    pub fn keys<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        let from = ObjectKey::new(kind, "", "");
        self.objects.range(from..).take_while(move |(k, _)| k.kind == kind).map(|(k, _)| k)
    }
}

/// The revision that the API server gave an object. Kubernetes 1.35 promises that these can be compared as numbers,
/// and every server before it kept to that.
fn revision(object: &Value) -> u128 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0)
}
