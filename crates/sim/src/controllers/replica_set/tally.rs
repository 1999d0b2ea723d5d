//! How many pods a ReplicaSet has, counted as they change.
//!
//! A set with thousands of pods is looked at whenever one of them changes, so its pods are counted once and the count
//! follows the changes. A count that is not there is taken from the objects.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::controller_of;
use stead_model::fork::Sorted;
use stead_semantics::{Labels, Selector};

use crate::pods::{has_ended, is_active, is_ready, is_terminating};
use crate::store::{Change, Store};

/// Numbers of pods that a set controls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Tally {
    /// Those that count as replicas: active, and matched by the selector.
    pub(super) active: i32,
    /// Active ones that have all labels of the template.
    pub(super) labeled: i32,
    /// Active ones that are Ready.
    pub(super) ready: i32,
    /// Those that are being deleted and have not ended.
    pub(super) terminating: i32,
    /// Active ones that the selector does not match: they are released.
    pub(super) unmatched: i32,
}

impl Tally {
    /// Adds or subtracts another one.
    pub(super) fn add(&mut self, other: Tally, sign: i32) {
        self.active += sign * other.active;
        self.labeled += sign * other.labeled;
        self.ready += sign * other.ready;
        self.terminating += sign * other.terminating;
        self.unmatched += sign * other.unmatched;
    }
}

/// What the labels of pods are compared with.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) selector: Selector,
    template: Labels,
}

impl Rules {
    /// The rules of a set; none if its selector is invalid.
    fn of(set: &ReplicaSet) -> Option<Rules> {
        let spec = set.spec.as_ref()?;
        let template = spec.template.as_ref().and_then(|template| template.metadata.as_ref()?.labels.clone());
        let selector = Selector::from_label_selector(Some(&spec.selector)).ok()?;
        Some(Rules { selector, template: template.unwrap_or_default() })
    }

    /// Whether the selector matches an object.
    pub(super) fn matches(&self, metadata: &ObjectMeta) -> bool {
        match &metadata.labels {
            Some(labels) => self.selector.matches(labels),
            None => self.selector.matches(&Labels::new()),
        }
    }

    /// What one pod adds.
    pub(super) fn count(&self, pod: &Pod) -> Tally {
        let matches = self.matches(&pod.metadata);
        if !is_active(pod) {
            let terminating = matches && is_terminating(pod) && !has_ended(pod);
            return Tally { terminating: i32::from(terminating), ..Tally::default() };
        }
        if !matches {
            return Tally { unmatched: 1, ..Tally::default() };
        }
        let labels = pod.metadata.labels.as_ref();
        let labeled = self.template.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value));
        Tally { active: 1, labeled: i32::from(labeled), ready: i32::from(is_ready(pod)), ..Tally::default() }
    }
}

/// The counts of one set.
#[derive(Debug, Clone)]
pub(super) struct Counted {
    pub(super) rules: Arc<Rules>,
    pub(super) tally: Tally,
    /// Whether there could be pods to adopt.
    pub(super) orphans: bool,
}

/// The counts of sets, by their UID.
#[derive(Debug, Clone, Default)]
pub(super) struct Tallies {
    sets: Sorted<Arc<str>, Counted>,
}

impl Tallies {
    /// The counts of a set; none if its selector is invalid.
    pub(super) fn get(&mut self, store: &Store, set: &ReplicaSet) -> Option<Counted> {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        if let Some(counted) = self.sets.find(|other| (**other).cmp(uid)) {
            return Some(counted.clone());
        }
        let rules = Rules::of(set)?;
        let mut tally = Tally::default();
        pods_of(store, uid).for_each(|pod| tally.add(rules.count(pod), 1));
        let counted = Counted { rules: Arc::new(rules), tally, orphans: true };
        self.sets.insert(uid.into(), counted.clone());
        Some(counted)
    }

    /// Forgets the counts of a set.
    pub(super) fn forget(&mut self, uid: &str) {
        self.sets.remove(|other| (**other).cmp(uid));
    }

    /// Notes that all orphans were looked at.
    pub(super) fn orphans_seen(&mut self, uid: &str) {
        self.update(uid, |counted| counted.orphans = false);
    }

    /// Notes that there is an orphan that a set could adopt.
    pub(super) fn orphan_found(&mut self, uid: &str) {
        self.update(uid, |counted| counted.orphans = true);
    }

    /// Follows the change of a pod.
    pub(super) fn follow(&mut self, change: &Change) {
        let (before, after) = change.of::<Pod>();
        for (pod, sign) in [(before, -1), (after, 1)] {
            let Some(pod) = pod else { continue };
            let Some(owner) = controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet") else { continue };
            self.update(&owner.uid, |counted| counted.tally.add(counted.rules.count(pod), sign));
        }
    }

    fn update(&mut self, uid: &str, change: impl FnOnce(&mut Counted)) {
        let Some(counted) = self.sets.find(|other| (**other).cmp(uid)) else { return };
        let mut counted = counted.clone();
        change(&mut counted);
        let Some(key) = self.sets.key(|other| (**other).cmp(uid)).cloned() else { return };
        self.sets.insert(key, counted);
    }
}

/// The pods that a set controls, by name.
pub(super) fn pods_of<'a>(store: &'a Store, uid: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
    let controls = move |pod: &&Arc<Pod>| controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid);
    store.all_owned_by::<Pod>(uid).filter(controls)
}
