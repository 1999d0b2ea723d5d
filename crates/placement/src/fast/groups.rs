//! Existing pods, grouped by namespace and labels, and counters of the pods that selectors match.
//!
//! A selector matches all pods of a group or none. So a new counter checks each group once, an added or removed pod
//! updates the counters of its group, and no other pod is visited.

use std::collections::BTreeSet;
use std::sync::Arc;

use stead_semantics::labels::{Labels, Selector};

use super::classes::{ClassKey, Identity};
use super::label_index::LabelIndex;
use super::tally::Tally;
use crate::pod::{AffinityTerm, Pod, PodSpec};
use stead_model::fork::{Chunks, Sorted};

/// The namespaces and labels that an affinity term selects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scope {
    /// None for all namespaces.
    namespaces: Option<BTreeSet<Box<str>>>,
    selector: Selector,
}

impl Scope {
    /// The scope of a resolved term (see `interpod::resolve`). Its namespace selector is matched against empty labels,
    /// so it selects all namespaces or none.
    pub(super) fn of(resolved: AffinityTerm) -> Scope {
        let all = resolved.namespace_selector.matches(&Labels::new());
        Scope { namespaces: (!all).then_some(resolved.namespaces), selector: resolved.selector }
    }

    fn matches(&self, namespace: &str, labels: &Labels) -> bool {
        self.namespaces.as_ref().is_none_or(|set| set.contains(namespace)) && self.selector.matches(labels)
    }
}

/// Which pods a counter counts.
#[derive(Debug, Clone)]
enum CountRule {
    /// For a spread constraint: pods of one namespace that are not being deleted.
    Spread(Arc<str>, Selector),
    /// For affinity: pods that all terms select.
    Affinity(Arc<[Scope]>),
}

impl CountRule {
    fn matches(&self, spec: &PodSpec) -> bool {
        match self {
            CountRule::Spread(namespace, selector) => **namespace == *spec.namespace && selector.matches(&spec.labels),
            CountRule::Affinity(scopes) => scopes.iter().all(|s| s.matches(&spec.namespace, &spec.labels)),
        }
    }

    fn counts_terminating(&self) -> bool {
        matches!(self, CountRule::Affinity(_))
    }

    /// A selector that matches every pod that this rule matches.
    fn selector(&self) -> &Selector {
        match self {
            CountRule::Spread(_, selector) => selector,
            CountRule::Affinity(scopes) => &scopes[0].selector,
        }
    }
}

#[derive(Debug, Clone)]
struct Counter {
    rule: CountRule,
    tally: Tally,
}

#[derive(Debug, Clone, Default)]
struct Group {
    alive: Tally,
    terminating: Tally,
    /// The counters that include the group.
    counters: Vec<u32>,
}

/// The maximum number of counters, for the same reason as the limit of classes.
const LIMIT: usize = 4096;

/// All groups and counters.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups {
    ids: Sorted<ClassKey<Identity>, u32>,
    groups: Chunks<Group>,
    free: Vec<u32>,
    counters: Chunks<Counter>,
    spread: Sorted<(Arc<str>, Selector), u32>,
    affinity: Sorted<Arc<[Scope]>, u32>,
    by_label: Arc<LabelIndex>,
}

impl Groups {
    fn find(&self, spec: &Arc<PodSpec>) -> Option<u32> {
        self.ids.get(&ClassKey::of(spec)).copied()
    }

    pub(super) fn add_pod(&mut self, slot: u32, pod: &Pod) {
        let id = self.find(&pod.spec).unwrap_or_else(|| self.new_group(&pod.spec));
        let group = self.groups.get_mut(id as usize);
        let tally = if pod.terminating { &mut group.terminating } else { &mut group.alive };
        tally.add(slot, 1);
        for counter in &group.counters {
            let counter = self.counters.get_mut(*counter as usize);
            if !pod.terminating || counter.rule.counts_terminating() {
                counter.tally.add(slot, 1);
            }
        }
    }

    pub(super) fn remove_pod(&mut self, slot: u32, pod: &Pod) {
        let id = self.find(&pod.spec).expect("a removed pod was counted");
        let group = self.groups.get_mut(id as usize);
        let tally = if pod.terminating { &mut group.terminating } else { &mut group.alive };
        tally.remove_one(slot);
        for counter in &group.counters {
            let counter = self.counters.get_mut(*counter as usize);
            if !pod.terminating || counter.rule.counts_terminating() {
                counter.tally.remove_one(slot);
            }
        }
        if group.alive.is_empty() && group.terminating.is_empty() {
            *group = Group::default();
            self.free.push(id);
            let key = ClassKey::of(&pod.spec);
            self.ids.remove(|k| k.cmp(&key));
        }
    }

    fn new_group(&mut self, spec: &Arc<PodSpec>) -> u32 {
        let matching = |id: &u32| self.counters[*id as usize].rule.matches(spec);
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
        self.ids.insert(ClassKey::of(spec), id);
        id
    }

    /// The counter of a spread constraint. In kube-scheduler an empty selector counts no pods, so it has no counter.
    pub(super) fn spread(&mut self, namespace: &Arc<str>, selector: &Selector) -> Option<u32> {
        if selector.is_empty() || selector.is_nothing() {
            return None;
        }
        let known = self.spread.find(|(n, s)| (**n).cmp(namespace).then_with(|| s.cmp(selector))).copied();
        Some(known.unwrap_or_else(|| {
            let id = self.new_counter(CountRule::Spread(Arc::clone(namespace), selector.clone()));
            self.spread.insert((Arc::clone(namespace), selector.clone()), id);
            id
        }))
    }

    /// The counter of pods that all terms select.
    pub(super) fn affinity(&mut self, scopes: Vec<Scope>) -> u32 {
        let known = self.affinity.find(|k| (**k).cmp(&*scopes)).copied();
        known.unwrap_or_else(|| {
            let scopes: Arc<[Scope]> = scopes.into();
            let id = self.new_counter(CountRule::Affinity(Arc::clone(&scopes)));
            self.affinity.insert(scopes, id);
            id
        })
    }

    fn new_counter(&mut self, rule: CountRule) -> u32 {
        let id = self.counters.len() as u32;
        let mut tally = Tally::default();
        for (_, group) in self.ids.iter().filter(|(key, _)| rule.matches(key.spec())) {
            let group = self.groups.get_mut(*group as usize);
            group.counters.push(id);
            tally.add_all(&group.alive);
            if rule.counts_terminating() {
                tally.add_all(&group.terminating);
            }
        }
        Arc::make_mut(&mut self.by_label).insert(rule.selector(), id);
        self.counters.push(Counter { rule, tally });
        id
    }

    /// Drops all counters if there are too many. Call it between two pods, when no counter's id is in use.
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
