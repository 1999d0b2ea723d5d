//! The objects that the loops read, as they were last observed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use stead_model::{ModelError, Object, ObjectKey, ObjectRef, Typed};

/// The objects that the loops read, trimmed, by kind, namespace and name. Each is parsed into its type when it is first
/// asked for. A clone shares the objects.
#[derive(Debug, Clone, Default)]
pub struct Store {
    objects: BTreeMap<ObjectKey, Arc<Object>>,
}

impl Store {
    /// An empty one.
    pub fn new() -> Store {
        Store::default()
    }

    /// Adds or replaces an object, unless a newer version of it is there. Gives the object that was there before, and
    /// whether the new one was taken.
    pub fn put(&mut self, object: Value) -> (Option<Arc<Object>>, bool) {
        let Some(key) = ObjectKey::of(&object) else { return (None, false) };
        let before = self.objects.get(&key).cloned();
        // Resource versions grow across all objects of a kind: a successor of the same name is newer too.
        let newer = |before: &Arc<Object>| revision(ObjectRef::new(&key, before).raw()) >= revision(&object);
        if before.as_ref().is_some_and(newer) {
            return (before, false);
        }
        self.objects.insert(key, Arc::new(Object::new(object)));
        (before, true)
    }

    /// Removes an object.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.objects.remove(key)
    }

    /// The object of this key.
    pub fn object(&self, key: &ObjectKey) -> Option<ObjectRef<'_>> {
        self.objects.get_key_value(key).map(|(key, object)| ObjectRef::new(key, object))
    }

    /// Whether there is such an object.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key)
    }

    /// The JSON of the object of this key.
    pub fn raw(&self, key: &ObjectKey) -> Option<&Value> {
        self.object(key).map(ObjectRef::raw)
    }

    /// The object of this key as its type; an error where it is malformed.
    pub fn get<T: Typed>(&self, key: &ObjectKey) -> Result<Option<&T>, ModelError> {
        self.object(key).map(ObjectRef::typed).transpose()
    }

    /// A namespaced object as its type; none where there is none, or it is malformed.
    pub(crate) fn find<T: Typed>(&self, namespace: &str, name: &str) -> Option<&T> {
        self.get(&ObjectKey::namespaced(T::KIND, namespace, name)).ok().flatten()
    }

    /// The objects of a kind as their type, malformed ones left out.
    pub(crate) fn all<T: Typed>(&self) -> impl Iterator<Item = &T> {
        self.of_kind(T::KIND).filter_map(|object| object.typed().ok())
    }

    /// The objects of a kind in a namespace as their type, malformed ones left out.
    pub(crate) fn all_in<'a, T: Typed>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a T> {
        self.of_kind_in(T::KIND, namespace).filter_map(|object| object.typed().ok())
    }

    /// The objects of a kind, in the order of their namespaces and names.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = ObjectRef<'a>> {
        self.from(ObjectKey::new(kind, "", "")).take_while(move |object| object.key().kind == kind)
    }

    /// The objects of a kind in a namespace, in the order of their names.
    pub fn of_kind_in<'a>(&'a self, kind: &'a str, namespace: &'a str) -> impl Iterator<Item = ObjectRef<'a>> {
        let inside = move |key: &ObjectKey| key.kind == kind && key.namespace == namespace;
        self.from(ObjectKey::new(kind, namespace, "")).take_while(move |object| inside(object.key()))
    }

    /// The keys of a kind.
    pub fn keys<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a ObjectKey> {
        self.of_kind(kind).map(ObjectRef::key)
    }

    fn from(&self, first: ObjectKey) -> impl Iterator<Item = ObjectRef<'_>> {
        self.objects.range(first..).map(|(key, object)| ObjectRef::new(key, object))
    }
}

/// The resource version of an object. Kubernetes 1.35 guarantees that these can be compared as numbers, and every API
/// server before it kept to that.
pub fn revision(object: &Value) -> u128 {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    version.and_then(|version| version.parse().ok()).unwrap_or(0)
}
