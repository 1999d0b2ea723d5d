//! Pods that are alike in one respect.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::pod::PodSpec;

/// A respect in which pods can be alike: the fields of a pod that some part of placement depends on.
pub(super) trait Respect {
    fn compare(a: &PodSpec, b: &PodSpec) -> Ordering;
}

/// What plugins about the node itself look at.
#[derive(Debug)]
pub(super) enum NodeRules {}

impl Respect for NodeRules {
    fn compare(a: &PodSpec, b: &PodSpec) -> Ordering {
        a.tolerations
            .cmp(&b.tolerations)
            .then_with(|| a.required_nodes.cmp(&b.required_nodes))
            .then_with(|| a.preferred_nodes.cmp(&b.preferred_nodes))
            .then_with(|| a.features.cmp(&b.features))
    }
}

/// What ImageLocality looks at.
#[derive(Debug)]
pub(super) enum Images {}

impl Respect for Images {
    fn compare(a: &PodSpec, b: &PodSpec) -> Ordering {
        a.images.cmp(&b.images).then_with(|| a.containers.cmp(&b.containers))
    }
}

/// What the room on a node depends on.
#[derive(Debug)]
pub(super) enum Room {}

impl Respect for Room {
    fn compare(a: &PodSpec, b: &PodSpec) -> Ordering {
        let (x, y) = (&a.resources, &b.resources);
        x.fit_score
            .cmp(&y.fit_score)
            .then_with(|| x.balance_score.cmp(&y.balance_score))
            .then_with(|| x.requests.cmp(&y.requests))
            .then_with(|| a.host_ports.cmp(&b.host_ports))
    }
}

/// What selectors look at.
#[derive(Debug)]
pub(super) enum Identity {}

impl Respect for Identity {
    fn compare(a: &PodSpec, b: &PodSpec) -> Ordering {
        a.labels.cmp(&b.labels).then_with(|| a.namespace.cmp(&b.namespace))
    }
}

/// A pod that stands for all that are like it in a respect.
#[derive(Debug)]
pub(super) struct Alike<R>(Arc<PodSpec>, PhantomData<R>);

impl<R> Alike<R> {
    pub(super) fn of(spec: &Arc<PodSpec>) -> Alike<R> {
        Alike(Arc::clone(spec), PhantomData)
    }

    pub(super) fn spec(&self) -> &PodSpec {
        &self.0
    }
}

impl<R> Clone for Alike<R> {
    fn clone(&self) -> Self {
        Alike::of(&self.0)
    }
}

impl<R: Respect> Ord for Alike<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        R::compare(&self.0, &other.0)
    }
}

impl<R: Respect> PartialOrd for Alike<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R: Respect> PartialEq for Alike<R> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<R: Respect> Eq for Alike<R> {}

/// One evaluation for all pods that are alike.
#[derive(Debug)]
pub(super) struct Classes<R, V> {
    all: Arc<BTreeMap<Alike<R>, Arc<V>>>,
}

/// The most classes that are kept. Pods of which no two are alike must not fill the memory: all are dropped then, and
/// those still in use come back.
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

impl<R: Respect, V: Clone + Default> Classes<R, V> {
    /// The evaluation of a pod's class, a blank one for the first of its kind.
    pub(super) fn of(&mut self, spec: &Arc<PodSpec>) -> &mut V {
        let key = Alike::of(spec);
        let all = Arc::make_mut(&mut self.all);
        if all.len() >= LIMIT && !all.contains_key(&key) {
            all.clear();
        }
        Arc::make_mut(all.entry(key).or_default())
    }
}
