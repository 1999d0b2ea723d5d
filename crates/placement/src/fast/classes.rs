//! Classes of pods that are equal by one criterion, with one cached value for each class.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::pod::PodSpec;

/// A criterion by which pods are compared: the fields that some part of placement depends on.
pub(super) trait Criterion {
    fn compare(a: &PodSpec, b: &PodSpec) -> Ordering;
}

/// The fields that affect plugins about the node alone.
#[derive(Debug)]
pub(super) enum NodeRules {}

impl Criterion for NodeRules {
    fn compare(a: &PodSpec, b: &PodSpec) -> Ordering {
        a.tolerations
            .cmp(&b.tolerations)
            .then_with(|| a.required_nodes.cmp(&b.required_nodes))
            .then_with(|| a.preferred_nodes.cmp(&b.preferred_nodes))
            .then_with(|| a.features.cmp(&b.features))
    }
}

/// The fields that affect ImageLocality.
#[derive(Debug)]
pub(super) enum Images {}

impl Criterion for Images {
    fn compare(a: &PodSpec, b: &PodSpec) -> Ordering {
        a.images.cmp(&b.images).then_with(|| a.containers.cmp(&b.containers))
    }
}

/// The fields that affect whether a node has enough room.
#[derive(Debug)]
pub(super) enum Room {}

impl Criterion for Room {
    fn compare(a: &PodSpec, b: &PodSpec) -> Ordering {
        let (x, y) = (&a.resources, &b.resources);
        x.fit_score
            .cmp(&y.fit_score)
            .then_with(|| x.balance_score.cmp(&y.balance_score))
            .then_with(|| x.requests.cmp(&y.requests))
            .then_with(|| a.host_ports.cmp(&b.host_ports))
    }
}

/// The fields that selectors match.
#[derive(Debug)]
pub(super) enum Identity {}

impl Criterion for Identity {
    fn compare(a: &PodSpec, b: &PodSpec) -> Ordering {
        a.labels.cmp(&b.labels).then_with(|| a.namespace.cmp(&b.namespace))
    }
}

/// A pod that represents all pods of its class.
#[derive(Debug)]
pub(super) struct ClassKey<R>(Arc<PodSpec>, PhantomData<R>);

impl<R> ClassKey<R> {
    pub(super) fn of(spec: &Arc<PodSpec>) -> ClassKey<R> {
        ClassKey(Arc::clone(spec), PhantomData)
    }

    pub(super) fn spec(&self) -> &PodSpec {
        &self.0
    }
}

impl<R> Clone for ClassKey<R> {
    fn clone(&self) -> Self {
        ClassKey::of(&self.0)
    }
}

impl<R: Criterion> Ord for ClassKey<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        R::compare(&self.0, &other.0)
    }
}

impl<R: Criterion> PartialOrd for ClassKey<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R: Criterion> PartialEq for ClassKey<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<R: Criterion> Eq for ClassKey<R> {}

/// A cached value for each class of pods.
#[derive(Debug)]
pub(super) struct Classes<R, V> {
    all: Arc<BTreeMap<ClassKey<R>, Arc<V>>>,
}

/// The maximum number of classes, so that pods of which no two are equal do not fill the memory. At the limit all
/// classes are dropped; those still in use are created again.
const LIMIT: usize = 512;

impl<R, V> Clone for Classes<R, V> {
    fn clone(&self) -> Self {
        Classes { all: Arc::clone(&self.all) }
    }
}

impl<R, V> Default for Classes<R, V> {
    fn default() -> Self {
        Classes { all: Arc::default() }
    }
}

impl<R: Criterion, V: Clone + Default> Classes<R, V> {
    /// The value of a pod's class, created if the class is new.
    pub(super) fn of(&mut self, spec: &Arc<PodSpec>) -> &mut V {
        let key = ClassKey::of(spec);
        let all = Arc::make_mut(&mut self.all);
        if all.len() >= LIMIT && !all.contains_key(&key) {
            all.clear();
        }
        Arc::make_mut(all.entry(key).or_default())
    }
}
