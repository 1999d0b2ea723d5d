//! The objects of the simulated cluster, with the indexes that controllers need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stead_model::controller_of;
use stead_model::fork::Sorted;

use crate::object::{ObjectKind, SimKey, SimObject, SimType};
use crate::volumes::claim_keys;

/// Keys that share something. Most sets are small.
type KeySet = Arc<BTreeSet<SimKey>>;

/// Objects that share something. Controllers read all dependents of an object in each step: they are not looked up again.
type ObjectSet = Arc<BTreeMap<SimKey, SimObject>>;

/// All objects. A copy is a fork: both can change independently and share what neither changes.
#[derive(Debug, Clone, Default)]
pub struct Store {
    objects: Sorted<SimKey, SimObject>,
    /// Pods by the name of their node, without those that have none.
    pods_on: Sorted<Arc<str>, KeySet>,
    /// Objects by the UID of each of their owners.
    owned_by: Sorted<Arc<str>, ObjectSet>,
    /// Objects that a controller could adopt, because none controls them.
    orphans: Sorted<SimKey, ()>,
    /// Pods by each claim that they use.
    pods_using: Sorted<SimKey, KeySet>,
    /// VolumeAttachments by the name of their PersistentVolume.
    attachments_of: Sorted<Arc<str>, KeySet>,
}

/// The kinds that controllers adopt.
const ADOPTED_KINDS: [ObjectKind; 3] = [ObjectKind::Pod, ObjectKind::ReplicaSet, ObjectKind::ControllerRevision];

/// One change of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Which object.
    pub key: SimKey,
    /// The object before; none if it was created.
    pub before: Option<SimObject>,
    /// The object after; none if it was removed.
    pub after: Option<SimObject>,
}

impl Change {
    /// The object after the change, or before its removal.
    pub fn latest(&self) -> &SimObject {
        self.after.as_ref().or(self.before.as_ref()).expect("a change has an object")
    }

    /// The object before and after, as its type.
    pub fn of<T: SimType>(&self) -> (Option<&Arc<T>>, Option<&Arc<T>>) {
        (self.before.as_ref().and_then(T::of), self.after.as_ref().and_then(T::of))
    }
}

impl Store {
    /// The number of objects.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The object of a key.
    pub fn object(&self, key: &SimKey) -> Option<&SimObject> {
        self.objects.get(key)
    }

    /// The object of a key as its type.
    pub fn at<T: SimType>(&self, key: &SimKey) -> Option<&Arc<T>> {
        self.object(key).and_then(T::of)
    }

    /// The object of a type with this namespace and name; the namespace of a cluster-scoped object is empty.
    pub fn get<T: SimType>(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        let compare = |key: &SimKey| {
            key.kind
                .cmp(&T::OBJECT_KIND)
                .then_with(|| (*key.namespace).cmp(namespace))
                .then_with(|| (*key.name).cmp(name))
        };
        self.objects.find(compare).and_then(T::of)
    }

    /// All objects, by kind, namespace and name.
    pub fn iter(&self) -> impl Iterator<Item = (&SimKey, &SimObject)> {
        self.objects.iter().map(|(key, object)| (key, object))
    }

    /// The objects of a kind, by namespace and name.
    pub fn of_kind(&self, kind: ObjectKind) -> impl Iterator<Item = (&SimKey, &SimObject)> {
        // The least key of the kind: no object has an empty name.
        let first = move |key: &SimKey| key.kind.cmp(&kind).then(std::cmp::Ordering::Greater);
        let objects = self.objects.iter_from(first).take_while(move |(key, _)| key.kind == kind);
        objects.map(|(key, object)| (key, object))
    }

    /// The objects of a type, by namespace and name.
    pub fn all<T: SimType>(&self) -> impl Iterator<Item = &Arc<T>> {
        self.of_kind(T::OBJECT_KIND).filter_map(|(_, object)| T::of(object))
    }

    /// The objects of a kind in a namespace, by name.
    pub fn of_kind_in<'a>(
        &'a self,
        kind: ObjectKind,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a SimKey, &'a SimObject)> {
        let first = move |key: &SimKey| {
            key.kind.cmp(&kind).then_with(|| (*key.namespace).cmp(namespace)).then(std::cmp::Ordering::Greater)
        };
        let inside = move |key: &SimKey| key.kind == kind && &*key.namespace == namespace;
        self.objects.iter_from(first).take_while(move |(key, _)| inside(key)).map(|(key, object)| (key, object))
    }

    /// The objects of a type in a namespace, by name.
    pub fn all_in<'a, T: SimType>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<T>> {
        self.of_kind_in(T::OBJECT_KIND, namespace).filter_map(|(_, object)| T::of(object))
    }

    /// The keys of the pods that have this node.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &SimKey> {
        self.pods_on.find(|name| (**name).cmp(node)).into_iter().flat_map(|keys| keys.iter())
    }

    /// The objects that have an owner with this UID.
    pub fn owned_by(&self, uid: &str) -> impl Iterator<Item = (&SimKey, &SimObject)> {
        self.owned_by.find(|owner| (**owner).cmp(uid)).into_iter().flat_map(|objects| objects.iter())
    }

    /// The objects of a type that have an owner with this UID.
    pub fn all_owned_by<'a, T: SimType>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a Arc<T>> {
        self.owned_by(uid).filter(|(key, _)| key.kind == T::OBJECT_KIND).filter_map(|(_, object)| T::of(object))
    }

    /// The objects of a kind in a namespace that have no controller, by name. Only of pods, ReplicaSets and
    /// ControllerRevisions.
    pub fn orphans_in<'a>(&'a self, kind: ObjectKind, namespace: &'a str) -> impl Iterator<Item = &'a SimObject> {
        let first = move |key: &SimKey| {
            key.kind.cmp(&kind).then_with(|| (*key.namespace).cmp(namespace)).then(std::cmp::Ordering::Greater)
        };
        let inside = move |key: &SimKey| key.kind == kind && &*key.namespace == namespace;
        let keys = self.orphans.iter_from(first).map(|(key, ())| key).take_while(move |key| inside(key));
        keys.filter_map(|key| self.object(key))
    }

    /// The keys of the pods that use a claim, scheduled or not (`PodPVCIndex`).
    pub fn pods_using(&self, namespace: &str, claim: &str) -> impl Iterator<Item = &SimKey> {
        let compare = |key: &SimKey| (*key.namespace).cmp(namespace).then_with(|| (*key.name).cmp(claim));
        self.pods_using.find(compare).into_iter().flat_map(|keys| keys.iter())
    }

    /// The keys of the VolumeAttachments of a PersistentVolume.
    pub fn attachments_of(&self, volume: &str) -> impl Iterator<Item = &SimKey> {
        self.attachments_of.find(|name| (**name).cmp(volume)).into_iter().flat_map(|keys| keys.iter())
    }

    /// Adds or replaces an object.
    pub(crate) fn put(&mut self, object: SimObject) -> Change {
        let key = self.shared_key(&object);
        let before = self.objects.insert(key.clone(), object.clone());
        let change = Change { key, before, after: Some(object) };
        self.index(&change);
        change
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, key: &SimKey) -> Option<Change> {
        let before = self.objects.remove(|other| other.cmp(key))?;
        let change = Change { key: key.clone(), before: Some(before), after: None };
        self.index(&change);
        Some(change)
    }

    /// The key of an object: the one that the store has, so that all places share its texts; a new one shares its namespace
    /// with a neighbour.
    fn shared_key(&self, object: &SimObject) -> SimKey {
        let mut key = object.key();
        match self.objects.nearest(|other| other.cmp(&key)) {
            Some(known) if *known == key => known.clone(),
            Some(known) if known.namespace == key.namespace => {
                key.namespace = Arc::clone(&known.namespace);
                key
            }
            _ => key,
        }
    }

    fn index(&mut self, change: &Change) {
        let node = |object: &Option<SimObject>| match object {
            Some(SimObject::Pod(pod)) => pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            _ => None,
        };
        let (before, after) = (node(&change.before), node(&change.after));
        if before != after {
            remove_from(&mut self.pods_on, before.as_deref(), &change.key);
            add_to(&mut self.pods_on, after.as_deref(), &change.key);
        }
        self.index_volumes(change);
        self.index_owners(change);
        if ADOPTED_KINDS.contains(&change.key.kind) {
            let orphan = |object: &Option<SimObject>| {
                object.as_ref().is_some_and(|object| controller_of(object.metadata()).is_none())
            };
            match (orphan(&change.before), orphan(&change.after)) {
                (false, true) => drop(self.orphans.insert(change.key.clone(), ())),
                (true, false) => drop(self.orphans.remove(|key| key.cmp(&change.key))),
                _ => {}
            }
        }
    }
}

impl Store {
    fn index_owners(&mut self, change: &Change) {
        for owner in owners(change.before.as_ref()) {
            if change.after.is_none() || !owners(change.after.as_ref()).any(|other| other == owner) {
                let Some(mut objects) = self.owned_by.remove(|other| (**other).cmp(owner)) else { continue };
                Arc::make_mut(&mut objects).remove(&change.key);
                if !objects.is_empty() {
                    self.owned_by.insert(owner.into(), objects);
                }
            }
        }
        let Some(object) = &change.after else { return };
        for owner in owners(change.after.as_ref()) {
            match self.owned_by.find_mut(|other| (**other).cmp(owner)) {
                Some(objects) => drop(Arc::make_mut(objects).insert(change.key.clone(), object.clone())),
                None => {
                    let objects = Arc::new(BTreeMap::from([(change.key.clone(), object.clone())]));
                    self.owned_by.insert(owner.into(), objects);
                }
            }
        }
    }

    /// The volumes of a pod and the source of a VolumeAttachment never change, so only new and removed objects count.
    fn index_volumes(&mut self, change: &Change) {
        if let (Some(before), Some(after)) = (&change.before, &change.after)
            && before.uid() == after.uid()
        {
            return;
        }
        for (object, is_new) in [(&change.before, false), (&change.after, true)] {
            match object {
                Some(SimObject::Pod(pod)) => {
                    for claim in claim_keys(pod) {
                        if is_new {
                            insert_into(&mut self.pods_using, claim, &change.key);
                        } else {
                            take_from(&mut self.pods_using, &claim, &change.key);
                        }
                    }
                }
                Some(SimObject::VolumeAttachment(attachment)) => {
                    let volume = attachment.spec.source.persistent_volume_name.as_deref();
                    if is_new {
                        add_to(&mut self.attachments_of, volume, &change.key);
                    } else {
                        remove_from(&mut self.attachments_of, volume, &change.key);
                    }
                }
                _ => {}
            }
        }
    }
}

/// The UIDs of the owners of an object.
fn owners(object: Option<&SimObject>) -> impl Iterator<Item = &str> {
    let references = object.and_then(|object| object.metadata().owner_references.as_ref());
    references.into_iter().flatten().map(|owner| owner.uid.as_str())
}

fn insert_into(index: &mut Sorted<SimKey, KeySet>, name: SimKey, key: &SimKey) {
    let mut keys = index.remove(|other| other.cmp(&name)).unwrap_or_default();
    Arc::make_mut(&mut keys).insert(key.clone());
    index.insert(name, keys);
}

fn take_from(index: &mut Sorted<SimKey, KeySet>, name: &SimKey, key: &SimKey) {
    let Some(mut keys) = index.remove(|other| other.cmp(name)) else { return };
    Arc::make_mut(&mut keys).remove(key);
    if !keys.is_empty() {
        index.insert(name.clone(), keys);
    }
}

fn add_to(index: &mut Sorted<Arc<str>, KeySet>, name: Option<&str>, key: &SimKey) {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return };
    let mut keys = index.remove(|other| (**other).cmp(name)).unwrap_or_default();
    Arc::make_mut(&mut keys).insert(key.clone());
    index.insert(name.into(), keys);
}

fn remove_from(index: &mut Sorted<Arc<str>, KeySet>, name: Option<&str>, key: &SimKey) {
    let Some(name) = name else { return };
    let Some(mut keys) = index.remove(|other| (**other).cmp(name)) else { return };
    Arc::make_mut(&mut keys).remove(key);
    if !keys.is_empty() {
        index.insert(name.into(), keys);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::json;

    fn pod(name: &str, node: &str, owner: &str) -> SimObject {
        let owners = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": owner }]);
        SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "n", "ownerReferences": owners },
            "spec": { "nodeName": node, "containers": [] } }))
        .expect("a pod")
    }

    #[test]
    fn indexes_follow_the_objects() {
        let mut store = Store::default();
        store.put(pod("web-0", "a", "u1"));
        store.put(pod("web-1", "", "u1"));
        assert_eq!(store.orphans_in(ObjectKind::Pod, "n").count(), 2, "an owner is not a controller");
        let fork = store.clone();
        store.put(pod("web-1", "a", "u2"));
        let names = |store: &Store, node: &str| store.pods_on(node).map(|key| key.name.to_string()).collect::<Vec<_>>();
        assert_eq!(
            (names(&store, "a"), names(&fork, "a")),
            (vec!["web-0".into(), "web-1".into()], vec!["web-0".into()])
        );
        assert_eq!(store.all_owned_by::<Pod>("u1").count(), 1);
        assert_eq!(fork.all_owned_by::<Pod>("u1").count(), 2);
        store.remove(&SimKey::pod("n", "web-0"));
        assert_eq!(names(&store, "a"), ["web-1"]);
        assert_eq!(store.orphans_in(ObjectKind::Pod, "n").count(), 1);
        assert_eq!(store.orphans_in(ObjectKind::Pod, "m").count(), 0);
        assert_eq!(store.all_in::<Pod>("n").count(), 1);
        assert_eq!(store.all_in::<Pod>("m").count(), 0);
        assert_eq!(store.all::<Node>().count(), 0);
        assert!(store.get::<Pod>("n", "web-1").is_some() && store.get::<Pod>("n", "web-0").is_none());
    }

    #[test]
    fn pods_are_found_by_claim_and_attachments_by_volume() {
        let pod = |uid: &str, volumes: serde_json::Value| {
            SimObject::from_json(&json!({ "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "p", "namespace": "n", "uid": uid },
                "spec": { "volumes": volumes, "containers": [] } }))
            .expect("a pod")
        };
        let claims = json!([{ "name": "a", "persistentVolumeClaim": { "claimName": "data" } },
            { "name": "tmp", "ephemeral": {} }, { "name": "b", "emptyDir": {} }]);
        let mut store = Store::default();
        store.put(pod("1", claims));
        let users = |store: &Store, claim: &str| store.pods_using("n", claim).count();
        assert_eq!((users(&store, "data"), users(&store, "p-tmp"), users(&store, "b")), (1, 1, 0));
        // Another pod of the same name.
        store.put(pod("2", json!([])));
        assert_eq!((users(&store, "data"), users(&store, "p-tmp")), (0, 0));
        let attachment = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": "csi-1", "uid": "3" },
            "spec": { "attacher": "d", "nodeName": "a", "source": { "persistentVolumeName": "v" } } });
        let attachment = SimObject::from_json(&attachment).expect("an attachment");
        store.put(attachment.clone());
        assert_eq!(store.attachments_of("v").count(), 1);
        store.remove(&attachment.key());
        assert_eq!(store.attachments_of("v").count(), 0);
    }
}
