//! Which controller owns a pod or a revision: lookup, adoption and release (`controller_ref_manager.go` of
//! `pkg/controller`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::controller_of;
use stead_model::fork::Sorted;
use stead_semantics::labels::{Labels, Selector};

use crate::object::{ObjectKind, SimKey, SimObject, SimType};
use crate::pods::controller_reference;
use crate::step::Write;
use crate::store::{Change, Store};

/// No labels.
pub(super) static NO_LABELS: Labels = Labels::new();

/// The labels of an object.
pub(super) fn labels(metadata: &ObjectMeta) -> &Labels {
    metadata.labels.as_ref().unwrap_or(&NO_LABELS)
}

/// The controller of an object if it is of this kind and exists (`resolveControllerRef`).
pub(super) fn controller<'a, T: SimType>(store: &'a Store, metadata: &ObjectMeta) -> Option<&'a Arc<T>> {
    let reference = controller_of(metadata).filter(|owner| owner.kind == T::OBJECT_KIND.name())?;
    let owner = store.get::<T>(metadata.namespace.as_deref().unwrap_or_default(), &reference.name)?;
    (owner.metadata().uid.as_deref() == Some(&reference.uid)).then_some(owner)
}

/// What a controller may own: pods whose labels or owner changed since it last looked at them.
#[derive(Debug, Clone, Default)]
pub(super) struct Unclaimed {
    /// By the UID of the owner.
    pods: Sorted<(Arc<str>, SimKey), ()>,
}

impl Unclaimed {
    /// Remembers a pod for an owner.
    pub(super) fn add(&mut self, uid: &str, pod: &SimKey) {
        self.pods.insert((uid.into(), pod.clone()), ());
    }

    /// Remembers the orphans of a namespace for a new owner.
    pub(super) fn add_orphans(&mut self, store: &Store, owner: &ObjectMeta, selector: &Selector) {
        let (namespace, uid) =
            (owner.namespace.as_deref().unwrap_or_default(), owner.uid.as_deref().unwrap_or_default());
        for pod in store.all_in::<Pod>(namespace) {
            if controller_of(&pod.metadata).is_none() && selector.matches(labels(&pod.metadata)) {
                self.add(uid, &SimKey::of(ObjectKind::Pod, &pod.metadata));
            }
        }
    }

    /// Takes the pods that were remembered for an owner.
    fn take(&mut self, uid: &str) -> Vec<SimKey> {
        if self.pods.is_empty() {
            return Vec::new();
        }
        let found = self.pods.iter_from(|(other, _)| (**other).cmp(uid).then(std::cmp::Ordering::Greater));
        let found: Vec<(Arc<str>, SimKey)> =
            found.map(|(key, ())| key.clone()).take_while(|(other, _)| **other == *uid).collect();
        for key in &found {
            self.pods.remove(|other| other.cmp(key));
        }
        found.into_iter().map(|(_, pod)| pod).collect()
    }

    /// Adopts matching orphans among the remembered pods, and releases owned ones that do not match any more
    /// (`ClaimPods`). The finalizer goes with the ownership.
    pub(super) fn claim(
        &mut self,
        store: &Store,
        owner: &SimObject,
        selector: &Selector,
        finalizer: Option<&str>,
    ) -> Vec<Write> {
        let pods = self.take(owner.uid());
        if owner.is_terminating() {
            return Vec::new();
        }
        let claim = |key: &SimKey| claim(store.at::<Pod>(key)?, owner, selector, finalizer);
        pods.iter().filter_map(claim).map(|pod| Write::Replace(pod.into())).collect()
    }
}

/// The pod as it is after adoption or release; none if nothing changes.
fn claim(pod: &Pod, owner: &SimObject, selector: &Selector, finalizer: Option<&str>) -> Option<Pod> {
    let matches = selector.matches(labels(&pod.metadata));
    let is_owned = match controller_of(&pod.metadata) {
        Some(controller) if controller.uid == owner.uid() => true,
        Some(_) => return None,
        None => false,
    };
    let mut pod = pod.clone();
    let metadata = &mut pod.metadata;
    metadata.resource_version = None;
    match (is_owned, matches) {
        (true, false) => {
            metadata.owner_references.iter_mut().for_each(|owners| owners.retain(|other| other.uid != owner.uid()));
            metadata.finalizers.iter_mut().for_each(|list| list.retain(|other| Some(other.as_str()) != finalizer));
        }
        (false, true) if metadata.deletion_timestamp.is_none() => {
            metadata.owner_references.get_or_insert_default().push(controller_reference(owner));
            let finalizers = metadata.finalizers.get_or_insert_default();
            if let Some(finalizer) = finalizer.filter(|new| !finalizers.iter().any(|other| other == new)) {
                finalizers.push(finalizer.into());
            }
        }
        _ => return None,
    }
    metadata.owner_references.take_if(|owners| owners.is_empty());
    metadata.finalizers.take_if(|list| list.is_empty());
    Some(pod)
}

/// Whether a change of an object concerns its ownership: it is new, or has other labels or another controller.
pub(super) fn is_ownership_change(change: &Change) -> bool {
    let Some(before) = &change.before else { return true };
    let Some(after) = &change.after else { return false };
    let (before, after) = (before.metadata(), after.metadata());
    before.labels != after.labels || controller_of(before) != controller_of(after)
}
