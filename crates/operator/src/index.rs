//! What is known of the cluster, kept up to date by watches and by the answers to our own writes. Each change says
//! whose loops it concerns.

use std::collections::{BTreeSet, VecDeque};

use serde_json::Value;
use stead_loops::{ObjectKey, Store, Watched};

use crate::logic::Logic;

/// The objects as they were last seen, and which kinds have been listed.
#[derive(Debug)]
pub(crate) struct Index {
    logic: Logic,
    store: Store,
    /// The namespaces that are watched; none for all of them.
    namespaces: Vec<String>,
    /// What has been listed: a kind, in a namespace or in the whole cluster.
    listed: BTreeSet<(String, Option<String>)>,
    /// The identities of what went lately, and at which revision. An answer to a write may come after the news of the
    /// object's end: what has gone does not come back. What only left a watch's selector does, with a later revision.
    gone: VecDeque<(String, u128)>,
}

/// So many identities are remembered: far more than there can be answers under way.
const REMEMBERED: usize = 4096;

impl Index {
    /// One that knows nothing yet.
    pub(crate) fn new(logic: Logic, namespaces: Vec<String>) -> Index {
        Index { logic, store: Store::new(), namespaces, listed: BTreeSet::new(), gone: VecDeque::new() }
    }

    /// Where a kind is watched: in each of some namespaces, or in the whole cluster.
    pub(crate) fn scopes(&self, watched: &Watched) -> Vec<Option<String>> {
        if self.namespaces.is_empty() || !watched.namespaced {
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
        let scopes = self.logic.watched.iter().flat_map(|w| self.scopes(w).into_iter().map(|s| (w.kind.to_owned(), s)));
        let missing = scopes.filter(|scope| !self.listed.contains(scope));
        missing.map(|(kind, scope)| scope.map_or(kind.clone(), |namespace| format!("{kind} in {namespace}"))).collect()
    }

    /// An object was seen. It comes trimmed, as all that is kept.
    pub(crate) fn put(&mut self, object: Value) -> Vec<ObjectKey> {
        let Some(key) = ObjectKey::of(&object) else { return Vec::new() };
        let uid = object["metadata"]["uid"].as_str();
        if self.gone.iter().any(|(gone, at)| uid == Some(gone.as_str()) && revision(&object) <= *at) {
            return Vec::new();
        }
        let (before, taken) = self.store.put(object);
        let after = self.store.get(&key);
        if !taken || before.as_deref().zip(after).is_some_and(|(b, a)| same(b, a)) {
            return Vec::new();
        }
        (self.logic.concerned)(&self.store, before.as_deref(), after)
    }

    /// A watch says that an object is gone: from the cluster, or from what its selector matches.
    pub(crate) fn left(&mut self, object: &Value) -> Vec<ObjectKey> {
        let Some(key) = ObjectKey::of(object) else { return Vec::new() };
        self.remove(&key, &object["metadata"]["uid"], revision(object))
    }

    /// An object is gone for good.
    pub(crate) fn delete(&mut self, key: &ObjectKey, uid: &Value) -> Vec<ObjectKey> {
        self.remove(key, uid, u128::MAX)
    }

    /// If one of the same name has taken its place since, that one stays.
    fn remove(&mut self, key: &ObjectKey, uid: &Value, at: u128) -> Vec<ObjectKey> {
        if let Some(uid) = uid.as_str() {
            self.gone.push_back((uid.to_owned(), at));
            if self.gone.len() > REMEMBERED {
                self.gone.pop_front();
            }
        }
        if self.store.get(key).is_none_or(|known| known["metadata"]["uid"] != *uid) {
            return Vec::new();
        }
        let before = self.store.remove(key);
        (self.logic.concerned)(&self.store, before.as_deref(), None)
    }

    /// Forgets objects of a kind that is read by name, but for these: nobody refers to them any more.
    pub(crate) fn forget(&mut self, kind: &str, kept: &BTreeSet<ObjectKey>) {
        let gone: Vec<ObjectKey> = self.store.keys(kind).filter(|key| !kept.contains(key)).cloned().collect();
        for key in gone {
            self.store.remove(&key);
        }
    }

    /// A kind was listed, in a namespace or in the whole cluster: what is not in the list is gone, and what is in it
    /// holds, even where its revision is lower than what was known, as it is after a cluster was restored from a backup.
    pub(crate) fn reset(&mut self, kind: &str, scope: Option<&str>, objects: Vec<Value>) -> Vec<ObjectKey> {
        let listed: BTreeSet<ObjectKey> = objects.iter().filter_map(ObjectKey::of).collect();
        let in_scope = |key: &&ObjectKey| scope.is_none_or(|namespace| key.namespace == namespace);
        let known = self.store.keys(kind).filter(in_scope);
        let mut gone: Vec<ObjectKey> = known.filter(|key| !listed.contains(key)).cloned().collect();
        let mut concerned = BTreeSet::new();
        for object in objects {
            let key = ObjectKey::of(&object);
            let before = key.as_ref().and_then(|key| self.store.remove(key));
            let (_, taken) = self.store.put(object);
            let after = key.as_ref().and_then(|key| self.store.get(key));
            if taken && !before.as_deref().zip(after).is_some_and(|(b, a)| same(b, a)) {
                concerned.extend((self.logic.concerned)(&self.store, before.as_deref(), after));
            }
        }
        for key in gone.drain(..) {
            let before = self.store.remove(&key);
            concerned.extend((self.logic.concerned)(&self.store, before.as_deref(), None));
        }
        self.listed.insert((kind.to_owned(), scope.map(str::to_owned)));
        concerned.into_iter().collect()
    }
}

/// The revision of an object, which grows with each change of anything of its kind.
fn revision(object: &Value) -> u128 {
    object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0)
}

/// Whether two versions of an object say the same: a node's heartbeat changes nothing but its revision.
fn same(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return false };
    let rest = |o: &serde_json::Map<String, Value>, p: &serde_json::Map<String, Value>| {
        o.len() == p.len() && o.iter().all(|(k, v)| k == "metadata" || p.get(k) == Some(v))
    };
    let meta = |a: &Value, b: &Value| match (a.as_object(), b.as_object()) {
        (Some(a), Some(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| k == "resourceVersion" || b.get(k) == Some(v))
        }
        _ => false,
    };
    rest(a, b) && meta(&a["metadata"], &b["metadata"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stead_loops::Step;

    use super::*;

    /// A change of anything concerns the Topology of the same name, which is gone or there.
    const LOGIC: Logic = Logic {
        watched: stead_loops::WATCHED,
        read_by_name: &[],
        references: |_| Vec::new(),
        reconciled: &["Topology"],
        step: |_, _| Step::default(),
        concerned: |_, before, after| {
            let Some(object) = after.or(before) else { return Vec::new() };
            ObjectKey::of(object).map(|k| ObjectKey { kind: "Topology".into(), ..k }).into_iter().collect()
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
        index.store().find("Service", "n", name).and_then(|o| o["spec"]["value"].as_str())
    }

    #[test]
    fn changes_concern_somebody_and_repetitions_nobody() {
        let mut index = Index::new(LOGIC, Vec::new());
        assert_eq!(names(&index.put(object("a", "1", 5, "x"))), ["a"]);
        assert_eq!(names(&index.put(object("a", "1", 6, "x"))), [""; 0], "only its revision changed");
        assert_eq!(names(&index.put(object("a", "1", 4, "old"))), [""; 0], "older than what is known");
        assert_eq!(value(&index, "a"), Some("x"));
        assert_eq!(names(&index.put(object("a", "1", 7, "y"))), ["a"]);
    }

    #[test]
    fn the_end_of_a_predecessor_is_not_the_end() {
        let mut index = Index::new(LOGIC, Vec::new());
        index.put(object("a", "2", 9, "new"));
        let key = ObjectKey::new("Service", "n", "a");
        assert_eq!(names(&index.delete(&key, &json!("1"))), [""; 0]);
        assert_eq!(value(&index, "a"), Some("new"));
        assert_eq!(names(&index.delete(&key, &json!("2"))), ["a"]);
        assert_eq!(value(&index, "a"), None);
    }

    #[test]
    fn what_has_gone_does_not_come_back() {
        let mut index = Index::new(LOGIC, Vec::new());
        index.put(object("a", "1", 5, "x"));
        let key = ObjectKey::new("Service", "n", "a");
        assert_eq!(names(&index.delete(&key, &json!("1"))), ["a"]);
        assert_eq!(names(&index.put(object("a", "1", 6, "the answer to a write that was under way"))), [""; 0]);
        assert_eq!(value(&index, "a"), None);
        assert_eq!(names(&index.put(object("a", "2", 7, "new"))), ["a"]);
    }

    #[test]
    fn what_left_a_selector_comes_back_when_it_matches_again() {
        let mut index = Index::new(LOGIC, Vec::new());
        index.put(object("a", "1", 5, "x"));
        assert_eq!(names(&index.left(&object("a", "1", 6, "without its label"))), ["a"]);
        assert_eq!(names(&index.put(object("a", "1", 6, "late"))), [""; 0]);
        assert_eq!(names(&index.put(object("a", "1", 7, "with its label"))), ["a"]);
        assert_eq!(value(&index, "a"), Some("with its label"));
    }

    #[test]
    fn a_list_is_the_truth() {
        let mut index = Index::new(LOGIC, Vec::new());
        index.put(object("a", "1", 5, "x"));
        index.put(object("b", "2", 5, "x"));
        index.put(object("c", "3", 5, "x"));
        let concerned = index.reset("Service", None, vec![object("a", "1", 5, "x"), object("c", "3", 2, "restored")]);
        assert_eq!(names(&concerned), ["b", "c"]);
        assert_eq!((value(&index, "b"), value(&index, "c")), (None, Some("restored")));
        assert!(!index.missing().contains(&"Service".to_owned()) && index.missing().contains(&"Pod".to_owned()));
    }

    #[test]
    fn a_list_of_one_namespace_says_nothing_about_another() {
        let mut index = Index::new(LOGIC, vec!["n".into(), "other".into()]);
        index.put(object("a", "1", 5, "x"));
        assert_eq!(names(&index.reset("Service", Some("other"), Vec::new())), [""; 0]);
        assert_eq!(value(&index, "a"), Some("x"));
        let missing = index.missing();
        assert!(missing.contains(&"Service in n".to_owned()) && !missing.contains(&"Service in other".to_owned()));
        assert!(missing.contains(&"Node".to_owned()), "nodes are in no namespace: {missing:?}");
        assert_eq!(names(&index.reset("Service", Some("n"), Vec::new())), ["a"]);
    }
}
