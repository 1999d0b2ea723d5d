//! The observed state of the cluster, updated by watches and by the answers to our own writes. Each change says which loops
//! have to run.

use std::collections::{BTreeSet, VecDeque};

use serde_json::{Map, Value};
use stead_loops::{ObjectKey, Store, Watched, revision};
use stead_model::{Object, ObjectRef};

use crate::loop_set::LoopSet;

/// The objects as they were last observed, and which kinds have been listed.
#[derive(Debug)]
pub(crate) struct Index {
    loops: LoopSet,
    store: Store,
    /// The namespaces that are watched; none for all of them.
    namespaces: Vec<String>,
    /// The kinds that have been listed, in a namespace or in the whole cluster.
    listed: BTreeSet<(String, Option<String>)>,
    /// The UIDs of recently deleted objects, and their last resource version. The answer to a write may arrive after the
    /// deletion was observed: it must not bring the object back. An object that only stopped matching the selector of a
    /// watch comes back, with a later resource version.
    deleted: VecDeque<(String, u128)>,
}

/// How many deleted UIDs are remembered: far more than there can be pending answers.
const REMEMBERED: usize = 4096;

impl Index {
    /// An empty one.
    pub(crate) fn new(loops: LoopSet, namespaces: Vec<String>) -> Index {
        Index { loops, store: Store::new(), namespaces, listed: BTreeSet::new(), deleted: VecDeque::new() }
    }

    /// Where a kind is watched: in each of some namespaces, or in the whole cluster.
    pub(crate) fn scopes(&self, watched: &Watched) -> Vec<Option<String>> {
        if self.namespaces.is_empty() || !watched.kind.namespaced {
            return vec![None];
        }
        self.namespaces.iter().cloned().map(Some).collect()
    }

    /// The objects.
    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    /// The watched kinds that have not been listed yet, with the namespace if not all are watched.
    pub(crate) fn missing(&self) -> Vec<String> {
        let scopes =
            self.loops.watched.iter().flat_map(|w| self.scopes(w).into_iter().map(|s| (w.kind.kind.to_owned(), s)));
        let missing = scopes.filter(|scope| !self.listed.contains(scope));
        missing.map(|(kind, scope)| scope.map_or(kind.clone(), |namespace| format!("{kind} in {namespace}"))).collect()
    }

    /// An object was observed. It has to be trimmed already.
    pub(crate) fn put(&mut self, object: Value) -> Vec<ObjectKey> {
        let Some(key) = ObjectKey::of(&object) else { return Vec::new() };
        let (uid, at) = (uid(&object), revision(&object));
        if self.deleted.iter().any(|(deleted, last)| uid == Some(deleted.as_str()) && at <= *last) {
            return Vec::new();
        }
        let (before, taken) = self.store.put(object);
        if taken { self.affected(&key, before.as_deref()) } else { Vec::new() }
    }

    /// A watch reports that an object was deleted, or does not match its selector any more.
    pub(crate) fn left(&mut self, object: &Value) -> Vec<ObjectKey> {
        let (Some(key), Some(uid)) = (ObjectKey::of(object), uid(object)) else { return Vec::new() };
        self.remove(&key, uid, revision(object))
    }

    /// An object was deleted.
    pub(crate) fn delete(&mut self, key: &ObjectKey, uid: &str) -> Vec<ObjectKey> {
        self.remove(key, uid, u128::MAX)
    }

    /// Removes an object, unless another one of the same name has been created since.
    fn remove(&mut self, key: &ObjectKey, uid: &str, at: u128) -> Vec<ObjectKey> {
        self.deleted.push_back((uid.to_owned(), at));
        if self.deleted.len() > REMEMBERED {
            self.deleted.pop_front();
        }
        if self.uid(key) != Some(uid) {
            return Vec::new();
        }
        let before = self.store.remove(key);
        self.affected(key, before.as_deref())
    }

    /// The UID of an object.
    pub(crate) fn uid(&self, key: &ObjectKey) -> Option<&str> {
        self.store.raw(key).and_then(uid)
    }

    /// The objects whose loops have to run after a change: `before` is what was there before it.
    fn affected(&self, key: &ObjectKey, before: Option<&Object>) -> Vec<ObjectKey> {
        let before = before.map(|object| ObjectRef::new(key, object));
        let after = self.store.object(key);
        if before.zip(after).is_some_and(|(before, after)| is_same(before.raw(), after.raw())) {
            return Vec::new();
        }
        (self.loops.affected)(&self.store, before, after)
    }

    /// Removes objects of a kind that is read by name, except these: no spec refers to the others any more.
    pub(crate) fn forget(&mut self, kind: &str, kept: &BTreeSet<ObjectKey>) {
        let unused: Vec<ObjectKey> = self.store.keys(kind).filter(|key| !kept.contains(key)).cloned().collect();
        for key in unused {
            self.store.remove(&key);
        }
    }

    /// A kind was listed, in a namespace or in the whole cluster: objects that are not in the list were deleted. The
    /// listed ones replace the known ones even with a lower resource version, as after a restore from a backup.
    pub(crate) fn reset(&mut self, kind: &str, scope: Option<&str>, objects: Vec<Value>) -> Vec<ObjectKey> {
        let listed: BTreeSet<ObjectKey> = objects.iter().filter_map(ObjectKey::of).collect();
        let in_scope = |key: &&ObjectKey| scope.is_none_or(|namespace| key.namespace == namespace);
        let known = self.store.keys(kind).filter(in_scope);
        let deleted: Vec<ObjectKey> = known.filter(|key| !listed.contains(key)).cloned().collect();
        let mut affected = BTreeSet::new();
        for object in objects {
            let Some(key) = ObjectKey::of(&object) else { continue };
            let before = self.store.remove(&key);
            self.store.put(object);
            affected.extend(self.affected(&key, before.as_deref()));
        }
        for key in deleted {
            let before = self.store.remove(&key);
            affected.extend(self.affected(&key, before.as_deref()));
        }
        self.listed.insert((kind.to_owned(), scope.map(str::to_owned)));
        affected.into_iter().collect()
    }
}

/// The UID of an object.
fn uid(object: &Value) -> Option<&str> {
    object.pointer("/metadata/uid").and_then(Value::as_str)
}

/// Whether two versions of an object differ only in their resource version, as after a node's heartbeat.
fn is_same(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    let metadata = (a.get("metadata").and_then(Value::as_object), b.get("metadata").and_then(Value::as_object));
    let (Some(a_metadata), Some(b_metadata)) = metadata else { return false };
    equal_without(a, b, "metadata") && equal_without(a_metadata, b_metadata, "resourceVersion")
}

/// Whether two maps are equal apart from one field.
fn equal_without(a: &Map<String, Value>, b: &Map<String, Value>, field: &str) -> bool {
    a.len() == b.len() && a.iter().all(|(name, value)| name == field || b.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stead_loops::LoopStep;

    use super::*;

    /// A change of any object affects the Topology of the same name.
    const LOOPS: LoopSet = LoopSet {
        watched: stead_loops::WATCHED,
        read_by_name: &[],
        references: |_| Vec::new(),
        reconciled: &["Topology"],
        step: |_, _| LoopStep::default(),
        affected: |_, before, after| {
            let object = after.or(before).into_iter();
            object.map(|object| ObjectKey { kind: "Topology".into(), ..object.key().clone() }).collect()
        },
    };

    fn object(name: &str, uid: &str, revision: u64, value: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "spec": {"value": value},
               "metadata": {"name": name, "namespace": "n", "uid": uid, "resourceVersion": revision.to_string()}})
    }

    fn names(keys: &[ObjectKey]) -> Vec<&str> {
        keys.iter().map(|k| k.name.as_str()).collect()
    }

    fn value<'a>(index: &'a Index, name: &str) -> Option<&'a str> {
        index.store().raw(&ObjectKey::namespaced("Service", "n", name)).and_then(|o| o["spec"]["value"].as_str())
    }

    #[test]
    fn a_change_affects_loops_and_a_repetition_does_not() {
        let mut index = Index::new(LOOPS, Vec::new());
        assert_eq!(names(&index.put(object("a", "1", 5, "x"))), ["a"]);
        assert_eq!(names(&index.put(object("a", "1", 6, "x"))), [""; 0], "only its revision changed");
        assert_eq!(names(&index.put(object("a", "1", 4, "old"))), [""; 0], "older than what is known");
        assert_eq!(value(&index, "a"), Some("x"));
        assert_eq!(names(&index.put(object("a", "1", 7, "y"))), ["a"]);
    }

    #[test]
    fn deleting_a_predecessor_keeps_its_successor() {
        let mut index = Index::new(LOOPS, Vec::new());
        index.put(object("a", "2", 9, "new"));
        let key = ObjectKey::new("Service", "n", "a");
        assert_eq!(names(&index.delete(&key, "1")), [""; 0]);
        assert_eq!(value(&index, "a"), Some("new"));
        assert_eq!(names(&index.delete(&key, "2")), ["a"]);
        assert_eq!(value(&index, "a"), None);
    }

    #[test]
    fn a_deleted_object_does_not_come_back() {
        let mut index = Index::new(LOOPS, Vec::new());
        index.put(object("a", "1", 5, "x"));
        let key = ObjectKey::new("Service", "n", "a");
        assert_eq!(names(&index.delete(&key, "1")), ["a"]);
        assert_eq!(names(&index.put(object("a", "1", 6, "a late answer to a write"))), [""; 0]);
        assert_eq!(value(&index, "a"), None);
        assert_eq!(names(&index.put(object("a", "2", 7, "new"))), ["a"]);
    }

    #[test]
    fn an_object_that_matches_a_selector_again_comes_back() {
        let mut index = Index::new(LOOPS, Vec::new());
        index.put(object("a", "1", 5, "x"));
        assert_eq!(names(&index.left(&object("a", "1", 6, "without its label"))), ["a"]);
        assert_eq!(names(&index.put(object("a", "1", 6, "late"))), [""; 0]);
        assert_eq!(names(&index.put(object("a", "1", 7, "with its label"))), ["a"]);
        assert_eq!(value(&index, "a"), Some("with its label"));
    }

    #[test]
    fn a_list_replaces_what_was_known() {
        let mut index = Index::new(LOOPS, Vec::new());
        index.put(object("a", "1", 5, "x"));
        index.put(object("b", "2", 5, "x"));
        index.put(object("c", "3", 5, "x"));
        let affected = index.reset("Service", None, vec![object("a", "1", 5, "x"), object("c", "3", 2, "restored")]);
        assert_eq!(names(&affected), ["b", "c"]);
        assert_eq!((value(&index, "b"), value(&index, "c")), (None, Some("restored")));
        assert!(!index.missing().contains(&"Service".to_owned()) && index.missing().contains(&"Pod".to_owned()));
    }

    #[test]
    fn a_list_of_one_namespace_does_not_change_another() {
        let mut index = Index::new(LOOPS, vec!["n".into(), "other".into()]);
        index.put(object("a", "1", 5, "x"));
        assert_eq!(names(&index.reset("Service", Some("other"), Vec::new())), [""; 0]);
        assert_eq!(value(&index, "a"), Some("x"));
        let missing = index.missing();
        assert!(missing.contains(&"Service in n".to_owned()) && !missing.contains(&"Service in other".to_owned()));
        assert!(missing.contains(&"Node".to_owned()), "nodes are in no namespace: {missing:?}");
        assert_eq!(names(&index.reset("Service", Some("n"), Vec::new())), ["a"]);
    }
}
