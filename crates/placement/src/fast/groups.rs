//! The pods on nodes, grouped by what selectors can tell apart, and what counts them.
//!
//! Pods of one namespace with equal labels make a group, and a selector takes all of a group or none of it. So a new
//! counter looks at every group once, a pod that comes or leaves touches the counters of its group, and no pod is
//! ever looked at for another.

use std::collections::BTreeSet;
use std::sync::Arc;

use stead_semantics::labels::{Labels, Selector};

use super::alike::{Alike, Identity};
use super::label_index::LabelIndex;
use super::tally::Tally;
use crate::fork::{Chunks, Sorted};
use crate::pod::{Pod, PodSpec, Term};

/// Where pods have to be, and what labels they must have, to be selected by a term of affinity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    /// None for all of them.
    namespaces: Option<BTreeSet<Box<str>>>,
    selector: Selector,
}

impl Scope {
    /// The scope of a term of the pod to place, whose selected namespaces have been added to those it names. The
    /// selector of namespaces is then shown no labels, so it takes all namespaces or none.
    pub(super) fn of(resolved: Term) -> Scope {
        let all = resolved.namespace_selector.matches(&Labels::new());
        Scope { namespaces: (!all).then_some(resolved.namespaces), selector: resolved.selector }
    }

    fn matches(&self, namespace: &str, labels: &Labels) -> bool {
        self.namespaces.as_ref().is_none_or(|set| set.contains(namespace)) && self.selector.matches(labels)
    }
}

/// What a counter counts.
#[derive(Debug, Clone)]
enum Watch {
    /// What a spread constraint counts: pods of one namespace, unless their deletion has begun.
    Spread(Arc<str>, Selector),
    /// What terms of affinity select all together.
    Affinity(Arc<[Scope]>),
}

impl Watch {
    fn matches(&self, spec: &PodSpec) -> bool {
        match self {
            Watch::Spread(namespace, selector) => **namespace == *spec.namespace && selector.matches(&spec.labels),
            Watch::Affinity(scopes) => scopes.iter().all(|s| s.matches(&spec.namespace, &spec.labels)),
        }
    }

    fn counts_terminating(&self) -> bool {
        matches!(self, Watch::Affinity(_))
    }

    /// A selector that matches wherever this does.
    fn selector(&self) -> &Selector {
        match self {
            Watch::Spread(_, selector) => selector,
            Watch::Affinity(scopes) => &scopes[0].selector,
        }
    }
}

#[derive(Debug, Clone)]
struct Counter {
    watch: Watch,
    tally: Tally,
}

#[derive(Debug, Clone, Default)]
struct Group {
    alive: Tally,
    terminating: Tally,
    /// The counters that count it.
    counters: Vec<u32>,
}

/// The most counters that are kept, for the same reason as the limit of classes.
const LIMIT: usize = 4096;

/// All groups and counters.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    ids: Sorted<Alike<Identity>, u32>,
    groups: Chunks<Group>,
    free: Vec<u32>,
    counters: Chunks<Counter>,
    spread: Sorted<(Arc<str>, Selector), u32>,
    affinity: Sorted<Arc<[Scope]>, u32>,
    by_label: Arc<LabelIndex>,
}

impl Groups {
    fn find(&self, spec: &Arc<PodSpec>) -> Option<u32> {
        self.ids.get(&Alike::of(spec)).copied()
    }

    pub(super) fn pod_came(&mut self, slot: u32, pod: &Pod) {
        let id = self.find(&pod.spec).unwrap_or_else(|| self.new_group(&pod.spec));
        let group = self.groups.get_mut(id as usize);
        let tally = if pod.terminating { &mut group.terminating } else { &mut group.alive };
        tally.add(slot, 1);
        for counter in &group.counters {
            let counter = self.counters.get_mut(*counter as usize);
            if !pod.terminating || counter.watch.counts_terminating() {
                counter.tally.add(slot, 1);
            }
        }
    }

    pub(super) fn pod_left(&mut self, slot: u32, pod: &Pod) {
        let id = self.find(&pod.spec).expect("what leaves was counted");
        let group = self.groups.get_mut(id as usize);
        let tally = if pod.terminating { &mut group.terminating } else { &mut group.alive };
        tally.remove_one(slot);
        for counter in &group.counters {
            let counter = self.counters.get_mut(*counter as usize);
            if !pod.terminating || counter.watch.counts_terminating() {
                counter.tally.remove_one(slot);
            }
        }
        if group.alive.is_empty() && group.terminating.is_empty() {
            *group = Group::default();
            self.free.push(id);
            let key = Alike::of(&pod.spec);
            self.ids.remove(|k| k.cmp(&key));
        }
    }

    fn new_group(&mut self, spec: &Arc<PodSpec>) -> u32 {
        let matching = |id: &u32| self.counters[*id as usize].watch.matches(spec);
        let counters = self.by_label.candidates(&spec.labels).filter(matching).collect();
        let group = Group { counters, ..Group::default() };
        let id = match self.free.pop() {
            Some(id) => {
                *self.groups.get_mut(id as usize) = group;
                id
            }
            None => {
                self.groups.push(group);
                (self.groups.len() - 1) as u32
            }
        };
        self.ids.insert(Alike::of(spec), id);
        id
    }

    /// What a spread constraint counts on each node. One that selects everything counts nothing, by kube-scheduler's
    /// rule, so there is no counter for it.
    pub(super) fn spread(&mut self, namespace: &Arc<str>, selector: &Selector) -> Option<u32> {
        if selector.is_empty() || selector.is_nothing() {
            return None;
        }
        let known = self.spread.find(|(n, s)| (**n).cmp(namespace).then_with(|| s.cmp(selector))).copied();
        Some(known.unwrap_or_else(|| {
            let id = self.new_counter(Watch::Spread(Arc::clone(namespace), selector.clone()));
            self.spread.insert((Arc::clone(namespace), selector.clone()), id);
            id
        }))
    }

    /// What terms of affinity select on each node, all of them together.
    pub(super) fn affinity(&mut self, scopes: Vec<Scope>) -> u32 {
        let known = self.affinity.find(|k| (**k).cmp(&*scopes)).copied();
        known.unwrap_or_else(|| {
            let scopes: Arc<[Scope]> = scopes.into();
            let id = self.new_counter(Watch::Affinity(Arc::clone(&scopes)));
            self.affinity.insert(scopes, id);
            id
        })
    }

    fn new_counter(&mut self, watch: Watch) -> u32 {
        let id = self.counters.len() as u32;
        let mut tally = Tally::default();
        for (_, group) in self.ids.iter().filter(|(key, _)| watch.matches(key.spec())) {
            let group = self.groups.get_mut(*group as usize);
            group.counters.push(id);
            tally.add_all(&group.alive);
            if watch.counts_terminating() {
                tally.add_all(&group.terminating);
            }
        }
        Arc::make_mut(&mut self.by_label).insert(watch.selector(), id);
        self.counters.push(Counter { watch, tally });
        id
    }

    /// Forgets all counters once there are too many. To be called between two pods, when nobody holds a counter's id.
    pub(super) fn limit_counters(&mut self) {
        if self.counters.len() < LIMIT {
            return;
        }
        (self.counters, self.spread, self.affinity, self.by_label) = Default::default();
        for id in 0..self.groups.len() {
            self.groups.get_mut(id).counters.clear();
        }
    }

    pub(super) fn tally(&self, counter: u32) -> &Tally {
        &self.counters[counter as usize].tally
    }
}
