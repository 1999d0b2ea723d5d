//! Which controller an object belongs to, and its adoption and release (`ControllerRefManager` of `pkg/controller`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};
use stead_model::controller_of;
use stead_semantics::{Labels, Selector};

use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods::controller_reference;
use crate::step::{Wakes, Write};
use crate::store::{Change, Store};

/// What a controller does about an object that it could own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Counts it among its own.
    Own,
    /// Becomes its controller, and counts it among its own.
    Adopt,
    /// Is its controller no longer.
    Release,
    /// Nothing.
    Ignore,
}

/// What a controller does about an object (`BaseControllerRefManager.ClaimObject`).
pub(crate) fn claim(object: &ObjectMeta, owner: &ObjectMeta, matches: impl Fn() -> bool) -> Claim {
    let deleted = owner.deletion_timestamp.is_some();
    match controller_of(object) {
        Some(controller) if Some(&controller.uid) != owner.uid.as_ref() => Claim::Ignore,
        Some(_) if matches() => Claim::Own,
        Some(_) if deleted => Claim::Ignore,
        Some(_) => Claim::Release,
        None if deleted || object.deletion_timestamp.is_some() || !matches() => Claim::Ignore,
        None => Claim::Adopt,
    }
}

/// Makes an owner the controller of an object.
pub(crate) fn adopt(object: &SimObject, owner: &SimObject) -> Write {
    let mut object = object.clone();
    let metadata = object.metadata_mut();
    metadata.resource_version = None;
    let references = metadata.owner_references.get_or_insert_default();
    references.retain(|reference| reference.uid != owner.uid());
    references.push(controller_reference(owner));
    Write::Replace(object)
}

/// Removes an owner from an object.
pub(crate) fn release(object: &SimObject, owner: &SimObject) -> Write {
    let mut object = object.clone();
    let metadata = object.metadata_mut();
    metadata.resource_version = None;
    if let Some(references) = &mut metadata.owner_references {
        references.retain(|reference| reference.uid != owner.uid());
    }
    metadata.owner_references = metadata.owner_references.take().filter(|references| !references.is_empty());
    Write::Replace(object)
}

/// The controller that a reference names, if it exists and is of this kind (`resolveControllerRef`).
pub(crate) fn resolve(store: &Store, kind: ObjectKind, namespace: &str, owner: &OwnerReference) -> Option<SimKey> {
    if owner.kind != kind.name() {
        return None;
    }
    let key = SimKey::new(kind, namespace, &owner.name);
    (store.object(&key)?.uid() == owner.uid).then_some(key)
}

/// The selector of a workload.
fn selector_of(workload: &SimObject) -> Option<&LabelSelector> {
    match workload {
        SimObject::Deployment(object) => object.spec.as_ref().map(|spec| &spec.selector),
        SimObject::ReplicaSet(object) => object.spec.as_ref().map(|spec| &spec.selector),
        SimObject::StatefulSet(object) => object.spec.as_ref().map(|spec| &spec.selector),
        SimObject::DaemonSet(object) => object.spec.as_ref().map(|spec| &spec.selector),
        SimObject::Job(object) => object.spec.as_ref()?.selector.as_ref(),
        _ => None,
    }
}

/// Wakes the controllers of one kind that the change of a dependent concerns: the one that controlled it, the one that
/// controls it, or those that could adopt it (`addPod`, `updatePod` and `deletePod` of the workload controllers).
pub(crate) fn wake_owners(store: &Store, change: &Change, kind: ObjectKind, wakes: &mut Wakes) {
    let (before, after) = (change.before.as_ref(), change.after.as_ref());
    let old = before.and_then(|object| controller_of(object.metadata()));
    let new = after.and_then(|object| controller_of(object.metadata()));
    let mut wake = |owner: &OwnerReference| {
        if let Some(key) = resolve(store, kind, &change.key.namespace, owner) {
            wakes.now(key);
        }
    };
    if let Some(old) = old.filter(|_| old != new) {
        wake(old);
    }
    if let Some(new) = new {
        return wake(new);
    }
    let Some(orphan) = after.filter(|object| !object.is_terminating()) else { return };
    let labels = &orphan.metadata().labels;
    if before.is_some_and(|before| old.is_none() && before.metadata().labels == *labels) {
        return;
    }
    let none = Labels::new();
    let labels = labels.as_ref().unwrap_or(&none);
    for (key, owner) in store.of_kind_in(kind, &change.key.namespace) {
        let selector = Selector::from_label_selector(selector_of(owner)).unwrap_or_else(|_| Selector::nothing());
        if !selector.is_empty() && selector.matches(labels) {
            wakes.now(key.clone());
        }
    }
}

/// Whether the namespace of an object is being deleted: nothing can be created in it.
pub(crate) fn namespace_is_terminating(store: &Store, namespace: &str) -> bool {
    store.object(&SimKey::new(ObjectKind::Namespace, "", namespace)).is_some_and(SimObject::is_terminating)
}
