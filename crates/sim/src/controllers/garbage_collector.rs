//! The garbage collector (`pkg/controller/garbagecollector`): deletes objects whose owners are gone, and does what the
//! finalizers `foregroundDeletion` and `orphan` ask for.
//!
//! Kubernetes keeps a graph of all objects; here the store's index of owners is the graph. Not modelled: the event
//! `OwnerRefInvalidNamespace`, and the limit of requests per second of the real one.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use stead_model::Kind;
use stead_model::times::created;

use crate::api::{FOREGROUND, ORPHAN};
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::step::{Context, Controller, DeleteOptions, DeletePropagation, Item, Step, Wakes, Write};
use crate::store::{Change, Store};

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct GarbageCollector {
    /// The UIDs of owners of kinds that the cluster was resumed without: they are taken to exist.
    outside: Arc<BTreeSet<String>>,
}

/// What is known about the owner in a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// It exists.
    Solid,
    /// It exists and waits for the deletion of its dependents.
    Waiting,
    /// It does not exist.
    Dangling,
    /// Its kind is not known, or a cluster-scoped object has a namespaced owner: Kubernetes cannot tell.
    Unknown,
}

impl Controller for GarbageCollector {
    const COMPONENT: &'static str = "garbage-collector-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let before = change.before.as_ref().map(SimObject::metadata);
        let Some(after) = change.after.as_ref().map(SimObject::metadata) else {
            let Some(before) = before else { return };
            removed(cx.store, &change.key, before, wakes);
            return;
        };
        let old = before.and_then(|before| before.owner_references.as_deref()).unwrap_or_default();
        let new = after.owner_references.as_deref().unwrap_or_default();
        if old != new {
            self.owners_changed(cx.store, &change.key, old, new, wakes);
        }
        let starts = |finalizer: &str| {
            let is_deleted_with = |metadata: &ObjectMeta| is_deleted_with(metadata, finalizer);
            is_deleted_with(after) && !before.is_some_and(is_deleted_with)
        };
        if after.deletion_timestamp.is_some() && starts(ORPHAN) {
            wakes.now(change.key.clone());
        } else if after.deletion_timestamp.is_some() && starts(FOREGROUND) {
            let uid = after.uid.as_deref().unwrap_or_default();
            cx.store.owned_by(uid).for_each(|(dependent, _)| wakes.now(dependent.clone()));
            wakes.now(change.key.clone());
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        let Some(object) = cx.store.object(key) else { return Step::none() };
        let writes = self.writes(cx.store, key, object);
        let is_own = |write: &Write| matches!(write, Write::Replace(written) if written.key() == *key);
        // After a change of its owners an object is looked at again.
        let again = (!object.is_terminating() && writes.iter().any(is_own)).then_some(cx.settings.timers.retry);
        Step { writes, again }
    }

    fn resume(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        let store = cx.store;
        let known: BTreeSet<ObjectKind> = store.iter().map(|(key, _)| key.kind).collect();
        let references = store.iter().flat_map(|(_, object)| object.metadata().owner_references.iter().flatten());
        let is_outside = |owner: &&OwnerReference| kind_of(owner).is_none_or(|kind| !known.contains(&kind));
        self.outside = Arc::new(references.filter(is_outside).map(|owner| owner.uid.clone()).collect());
        for (key, object) in store.iter().filter(|(_, object)| !waits_for_late_dependents(store, object)) {
            let change = Change { key: key.clone(), before: None, after: Some(object.clone()) };
            self.affected(cx, &change, wakes);
        }
    }
}

/// Whether an object that is deleted after its dependents has only those left that are being deleted, and others that came
/// after its deletion: the latter are looked at only when one of the former is gone.
fn waits_for_late_dependents(store: &Store, object: &SimObject) -> bool {
    let Some(deleted) = object.metadata().deletion_timestamp.as_ref() else { return false };
    if !is_deleted_with(object.metadata(), FOREGROUND) {
        return false;
    }
    let dependents = || store.owned_by(object.uid()).map(|(_, dependent)| dependent);
    let is_late = |dependent: &SimObject| created(dependent.metadata()).is_some_and(|created| created > deleted.0);
    dependents().any(SimObject::is_terminating) && dependents().all(|other| other.is_terminating() || is_late(other))
}

impl GarbageCollector {
    /// Looks at an object with new owners, and at owners that it does not block any more.
    fn owners_changed(
        &self,
        store: &Store,
        key: &SimKey,
        old: &[OwnerReference],
        new: &[OwnerReference],
        wakes: &mut Wakes,
    ) {
        for owner in old.iter().filter(|owner| owner.block_owner_deletion == Some(true)) {
            let blocks = |other: &OwnerReference| other.uid == owner.uid && other.block_owner_deletion == Some(true);
            if let Some(owner) = owner_key(owner, key).filter(|_| !new.iter().any(blocks)) {
                wakes.now(owner);
            }
        }
        let is_new = |owner: &&OwnerReference| !old.iter().any(|other| other.uid == owner.uid);
        if new.iter().filter(is_new).any(|owner| self.classify(store, key, owner) == Owner::Dangling) {
            wakes.now(key.clone());
        }
    }

    /// What is known about an owner of an object (`isDangling`, `classifyReferences`).
    fn classify(&self, store: &Store, key: &SimKey, owner: &OwnerReference) -> Owner {
        if self.outside.contains(&owner.uid) {
            return Owner::Solid;
        }
        let Some(owner_key) = owner_key(owner, key) else { return Owner::Unknown };
        match store.object(&owner_key).filter(|found| found.uid() == owner.uid) {
            None => Owner::Dangling,
            Some(found) if is_deleted_with(found.metadata(), FOREGROUND) => Owner::Waiting,
            Some(_) => Owner::Solid,
        }
    }

    /// What to do about an object (`attemptToDeleteItem`, `attemptToOrphanWorker`).
    fn writes(&self, store: &Store, key: &SimKey, object: &SimObject) -> Vec<Write> {
        if is_deleted_with(object.metadata(), ORPHAN) {
            return orphan(store, object);
        }
        if is_deleted_with(object.metadata(), FOREGROUND) {
            return self.wait_for_dependents(store, object);
        }
        if object.is_terminating() {
            return Vec::new();
        }
        let owners = object.metadata().owner_references.as_deref().unwrap_or_default();
        let classes: Vec<Owner> = owners.iter().map(|owner| self.classify(store, key, owner)).collect();
        if owners.is_empty() || classes.contains(&Owner::Unknown) {
            return Vec::new();
        }
        if classes.contains(&Owner::Solid) {
            let gone = owners.iter().zip(&classes).filter(|(_, class)| **class != Owner::Solid);
            let gone: Vec<&str> = gone.map(|(owner, _)| owner.uid.as_str()).collect();
            return Vec::from_iter(without_owners(object, &gone));
        }
        let delete = |propagation| {
            let uid = Some(object.uid().to_owned());
            Write::Delete(key.clone(), DeleteOptions { uid, propagation, ..DeleteOptions::default() })
        };
        let dependents = || store.owned_by(object.uid()).map(|(_, dependent)| dependent);
        if classes.contains(&Owner::Waiting) && dependents().next().is_some() {
            // In a circle of owners nobody may wait for the other. The deletion that Kubernetes tries after that is for
            // the version before, so it fails, and the object is looked at again.
            let circle = dependents().any(|dependent| is_deleted_with(dependent.metadata(), FOREGROUND));
            let unblocked = circle.then(|| not_blocking(object)).flatten();
            return vec![unblocked.unwrap_or_else(|| delete(DeletePropagation::Foreground))];
        }
        let has = |finalizer: &str| has_finalizer(object.metadata(), finalizer);
        vec![delete(match () {
            () if has(ORPHAN) => DeletePropagation::Orphan,
            () if has(FOREGROUND) => DeletePropagation::Foreground,
            () => DeletePropagation::Background,
        })]
    }

    /// The object goes when no dependent blocks it. Dependents that came after its deletion are deleted, too.
    fn wait_for_dependents(&self, store: &Store, object: &SimObject) -> Vec<Write> {
        let blocks = |dependent: &&SimObject| {
            let owners = dependent.metadata().owner_references.iter().flatten();
            owners.clone().any(|owner| owner.uid == object.uid() && owner.block_owner_deletion == Some(true))
        };
        let dependents = store.owned_by(object.uid()).map(|(_, dependent)| dependent);
        let mut blocking = dependents.filter(blocks).peekable();
        if blocking.peek().is_none() {
            return Vec::from_iter(without_finalizer(object, FOREGROUND));
        }
        let late = blocking.filter(|dependent| !dependent.is_terminating());
        late.flat_map(|dependent| self.writes(store, &dependent.key(), dependent)).collect()
    }
}

/// Looks at the dependents of an object that is gone, and at owners that waited for it.
fn removed(store: &Store, key: &SimKey, metadata: &ObjectMeta, wakes: &mut Wakes) {
    let uid = metadata.uid.as_deref().unwrap_or_default();
    store.owned_by(uid).for_each(|(dependent, _)| wakes.now(dependent.clone()));
    for owner in metadata.owner_references.iter().flatten() {
        let waiting = owner_key(owner, key).filter(|key| {
            let found = store.object(key).filter(|found| found.uid() == owner.uid);
            found.is_some_and(|found| is_deleted_with(found.metadata(), FOREGROUND))
        });
        if let Some(waiting) = waiting {
            wakes.now(waiting);
        }
    }
}

fn kind_of(owner: &OwnerReference) -> Option<ObjectKind> {
    Kind::find(&owner.api_version, &owner.kind).map(ObjectKind::of)
}

/// The key of an owner: in the namespace of its dependent, or of the cluster.
fn owner_key(owner: &OwnerReference, dependent: &SimKey) -> Option<SimKey> {
    let kind = kind_of(owner)?;
    let namespace = if kind.entry().namespaced { &*dependent.namespace } else { "" };
    (!kind.entry().namespaced || !namespace.is_empty()).then(|| SimKey::new(kind, namespace, &owner.name))
}

fn has_finalizer(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.finalizers.iter().flatten().any(|other| other == finalizer)
}

fn is_deleted_with(metadata: &ObjectMeta, finalizer: &str) -> bool {
    metadata.deletion_timestamp.is_some() && has_finalizer(metadata, finalizer)
}

/// The dependents lose their owner, then the owner goes.
fn orphan(store: &Store, owner: &SimObject) -> Vec<Write> {
    let dependents = store.owned_by(owner.uid()).map(|(_, dependent)| dependent);
    let orphaned = dependents.filter_map(|dependent| without_owners(dependent, &[owner.uid()]));
    orphaned.chain(without_finalizer(owner, ORPHAN)).collect()
}

/// A change of the metadata of an object, as a patch: whatever version it has.
fn patched(object: &SimObject, change: impl FnOnce(&mut ObjectMeta)) -> Write {
    let mut object = object.clone();
    let metadata = object.metadata_mut();
    change(metadata);
    metadata.resource_version = None;
    Write::Replace(object)
}

fn without_owners(object: &SimObject, uids: &[&str]) -> Option<Write> {
    let is_gone = |owner: &OwnerReference| uids.contains(&owner.uid.as_str());
    let change = |metadata: &mut ObjectMeta| {
        metadata.owner_references.iter_mut().for_each(|owners| owners.retain(|owner| !is_gone(owner)));
    };
    object.metadata().owner_references.iter().flatten().any(is_gone).then(|| patched(object, change))
}

fn without_finalizer(object: &SimObject, finalizer: &str) -> Option<Write> {
    let change = |metadata: &mut ObjectMeta| {
        metadata.finalizers.iter_mut().for_each(|finalizers| finalizers.retain(|other| other != finalizer));
    };
    has_finalizer(object.metadata(), finalizer).then(|| patched(object, change))
}

fn not_blocking(object: &SimObject) -> Option<Write> {
    let blocks = |owner: &OwnerReference| owner.block_owner_deletion == Some(true);
    let change = |metadata: &mut ObjectMeta| {
        for owner in metadata.owner_references.iter_mut().flatten().filter(|owner| blocks(owner)) {
            owner.block_owner_deletion = Some(false);
        }
    };
    object.metadata().owner_references.iter().flatten().any(blocks).then(|| patched(object, change))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::bench::Bench;
    use crate::settings::Settings;
    use serde_json::{Value, json};

    fn owner(name: &str, block: bool) -> Value {
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("uid-{name}"),
            "blockOwnerDeletion": block })
    }

    /// A ConfigMap with a UID of its own: it has no controller and no defaults.
    fn map(name: &str, owners: Value, finalizers: Value) -> SimObject {
        SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name,
            "namespace": "n", "uid": format!("uid-{name}"), "ownerReferences": owners, "finalizers": finalizers } }))
        .expect("an object")
    }

    fn cluster(objects: Vec<SimObject>) -> Bench<GarbageCollector> {
        Bench::new(Settings::default(), objects)
    }

    fn key(name: &str) -> SimKey {
        map(name, json!([]), json!([])).key()
    }

    fn delete(bench: &mut Bench<GarbageCollector>, name: &str, propagation: DeletePropagation) {
        let options = DeleteOptions { propagation, ..DeleteOptions::default() };
        bench.request(Write::Delete(key(name), options)).expect("deleted");
    }

    /// What is left after a while, as `name(owners)`.
    fn left(bench: &mut Bench<GarbageCollector>) -> Vec<String> {
        bench.run(10);
        assert!(bench.is_at_rest());
        let objects = bench.store().iter().map(|(key, object)| {
            let owners = object.metadata().owner_references.iter().flatten();
            let owners: Vec<&str> = owners.map(|owner| owner.name.as_str()).collect();
            format!("{}({})", key.name, owners.join(","))
        });
        objects.collect()
    }

    #[test]
    fn dependents_that_came_after_the_deletion_stay_while_others_are_going() {
        let at = |mut object: SimObject, created: i64, deleted: Option<i64>| {
            let time = |second: i64| {
                let at = jiff::Timestamp::from_second(1_799_999_000 + second).expect("a time");
                crate::api::whole_seconds(at)
            };
            let metadata = object.metadata_mut();
            metadata.creation_timestamp = Some(time(created));
            metadata.deletion_timestamp = deleted.map(time);
            object
        };
        let objects = |created: i64| {
            vec![
                at(map("a", json!([]), json!([FOREGROUND])), 0, Some(100)),
                at(map("going", json!([owner("a", true)]), json!(["example.org/hold"])), 1, Some(101)),
                at(map("b", json!([owner("a", true)]), json!([])), created, None),
            ]
        };
        assert_eq!(left(&mut cluster(objects(102))), ["a()", "b(a)", "going(a)"]);
        assert_eq!(left(&mut cluster(objects(99))), ["a()", "going(a)"]);
    }

    #[test]
    fn dependents_follow_their_owner() {
        use DeletePropagation::{Background, Foreground, Orphan};
        let chain = || {
            vec![
                map("a", json!([]), json!([])),
                map("b", json!([owner("a", true)]), json!([])),
                map("c", json!([owner("b", true)]), json!([])),
                map("other", json!([]), json!([])),
            ]
        };
        for (propagation, expected) in [
            (Background, vec!["other()"]),
            (Foreground, vec!["other()"]),
            (Orphan, vec!["b()", "c(b)", "other()"]),
        ] {
            let mut bench = cluster(chain());
            delete(&mut bench, "a", propagation);
            assert_eq!(left(&mut bench), expected, "{propagation:?}");
        }
    }

    #[test]
    fn an_owner_waits_only_for_dependents_that_block_it() {
        for (block, expected) in [(true, vec!["a()", "b(a)"]), (false, vec!["b(a)"])] {
            let mut bench =
                cluster(vec![map("a", json!([]), json!([])), map("b", json!([owner("a", block)]), json!(["x/y"]))]);
            delete(&mut bench, "a", DeletePropagation::Foreground);
            assert_eq!(left(&mut bench), expected, "{block}");
            assert!(bench.store().object(&key("b")).is_some_and(SimObject::is_terminating));
            let mut free = bench.store().object(&key("b")).expect("it is held").clone();
            free.metadata_mut().finalizers = None;
            bench.request(Write::Replace(free)).expect("replaced");
            assert!(left(&mut bench).is_empty());
        }
    }

    #[test]
    fn one_owner_is_enough() {
        use DeletePropagation::{Background, Foreground};
        for propagation in [Background, Foreground] {
            let both = json!([owner("a", true), owner("b", true)]);
            let objects = ["a", "b"].map(|name| map(name, json!([]), json!([])));
            let mut bench = cluster(objects.into_iter().chain([map("c", both, json!([]))]).collect());
            delete(&mut bench, "a", propagation);
            assert_eq!(left(&mut bench), ["b()", "c(b)"], "{propagation:?}");
            delete(&mut bench, "b", propagation);
            assert!(left(&mut bench).is_empty());
        }
    }

    #[test]
    fn a_circle_of_owners_ends() {
        let objects = [("a", "c"), ("b", "a"), ("c", "b")];
        let objects = objects.map(|(name, of)| map(name, json!([owner(of, true)]), json!([])));
        let mut bench = cluster(objects.to_vec());
        delete(&mut bench, "a", DeletePropagation::Foreground);
        assert!(left(&mut bench).is_empty());
    }

    #[test]
    fn an_object_without_an_existing_owner_goes_at_once() {
        let mut gone = owner("gone", true);
        let mut bench = cluster(vec![map("a", json!([]), json!([]))]);
        for (name, owner, stays) in [
            ("missing", gone.clone(), false),
            ("unknown-kind", json!({ "apiVersion": "x.org/v1", "kind": "X", "name": "x", "uid": "u" }), true),
            ("same-name-other-uid", json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u" }), false),
        ] {
            bench.request(Write::Create(map(name, json!([owner]), json!([])))).expect("created");
            let found = left(&mut bench);
            assert_eq!(found.iter().any(|object| object.starts_with(name)), stays, "{name}");
        }
        // The owners of a cluster that is resumed are taken to exist if there is nothing of their kind.
        gone["kind"] = json!("Secret");
        let mut resumed = cluster(vec![map("b", json!([gone]), json!([]))]);
        assert_eq!(left(&mut resumed), ["b(gone)"]);
    }

    #[test]
    fn what_a_node_owns_goes_with_it() {
        let node = SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "a", "uid": "uid-a" } }))
        .expect("a node");
        let of_node = json!([{ "apiVersion": "v1", "kind": "Node", "name": "a", "uid": "uid-a" }]);
        let owned = [("coordination.k8s.io/v1", "Lease", Some("kube-node-lease")), ("storage.k8s.io/v1", "CSINode", None)];
        let owned = owned.map(|(api, kind, namespace)| {
            SimObject::from_json(&json!({ "apiVersion": api, "kind": kind, "spec": { "drivers": [] },
                "metadata": { "name": "a", "namespace": namespace, "ownerReferences": of_node } }))
            .expect("an object")
        });
        let mut bench = cluster(owned.into_iter().chain([node]).collect());
        bench.request(Write::Delete(SimKey::node("a"), DeleteOptions::default())).expect("deleted");
        assert!(left(&mut bench).is_empty());
    }
}
