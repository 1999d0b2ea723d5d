//! The DaemonSet controller (`pkg/controller/daemon`).

mod manage;
mod placement;
mod rolling_update;
mod sync;
mod tally;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use stead_model::controller_of;
use stead_model::fork::Sorted;
use stead_model::times::seconds;
use stead_semantics::Selector;

use super::delayed::Delayed;
use super::ownership::{Unclaimed, controller, is_ownership_change, labels};
use super::revisions::Revisions;
use super::pod_control;
use crate::error::ApiError;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods::{is_ready, is_terminating};
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;
use manage::FailedPods;
use placement::{Placement, target_node};
use sync::Adopting;
use tally::Tally;

/// How long the controller waits for pods that it has created (`ExpectationsTimeout`).
const EXPECTATIONS: SignedDuration = SignedDuration::from_mins(5);

/// The UID of a daemon pod's set, its node, and its name.
type PodPlace = (Arc<str>, Arc<str>, Arc<str>);

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct DaemonSets {
    pods: Sorted<PodPlace, Arc<Pod>>,
    /// By the UID of the set.
    tallies: Sorted<Arc<str>, Arc<Tally>>,
    delayed: Delayed,
    unclaimed: Unclaimed,
    revisions: Revisions,
    failed: FailedPods,
    /// Until when a set waits for pods that could not be created because its namespace is being deleted.
    expecting: Sorted<SimKey, Timestamp>,
}

impl Controller for DaemonSets {
    const COMPONENT: &'static str = "daemonset-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::DaemonSet => self.set_changed(cx, change, wakes),
            ObjectKind::Pod => self.pod_changed(cx, change, wakes),
            ObjectKind::Node => self.node_changed(cx, change, wakes),
            ObjectKind::ControllerRevision => self.revision_changed(cx, change, wakes),
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        self.delayed.begin(key, cx.now);
        let writes = match cx.store.at::<DaemonSet>(key) {
            Some(set) => match self.sync(cx, key, set) {
                Ok(writes) => writes,
                Err(Adopting(writes)) => return Step::writes(writes).and_again(Some(SignedDuration::ZERO)),
            },
            None => Vec::new(),
        };
        Step::writes(writes).and_again(self.delayed.left(key, cx.now))
    }

    fn refused(&mut self, _cx: &mut Context<'_>, item: &Item, write: &Write, error: &ApiError) -> Vec<Write> {
        let Item::Object(key) = item else { return Vec::new() };
        pod_control::refused(key, write, error)
    }
}

impl DaemonSets {
    fn set_changed(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        wakes.now(change.key.clone());
        match change.of::<DaemonSet>() {
            (None, Some(set)) => {
                let selector = selector(set);
                self.unclaimed.add_orphans(cx.store, &set.metadata, &selector);
            }
            (Some(set), None) => {
                let uid = set.metadata.uid.as_deref().unwrap_or_default();
                self.failed.forget(uid);
                self.tallies.remove(|other| (**other).cmp(uid));
                self.delayed.forget(&change.key);
                self.expecting.remove(|other| other.cmp(&change.key));
            }
            _ => {}
        }
    }

    fn pod_changed(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<Pod>();
        self.index(before, after);
        let Some(latest) = after.or(before) else { return };
        let mut owners: BTreeSet<SimKey> = BTreeSet::new();
        for pod in [before, after].into_iter().flatten() {
            let Some(owner) = controller::<DaemonSet>(cx.store, &pod.metadata) else { continue };
            if owners.insert(SimKey::of(ObjectKind::DaemonSet, &owner.metadata)) && is_ownership_change(change) {
                self.unclaimed.add(owner.metadata.uid.as_deref().unwrap_or_default(), &change.key);
            }
        }
        let is_orphan = after.is_some() && controller_of(&latest.metadata).is_none();
        if is_orphan && !is_terminating(latest) && is_ownership_change(change) {
            for set in cx.store.all_in::<DaemonSet>(&change.key.namespace) {
                if selector(set).matches(labels(&latest.metadata)) {
                    self.unclaimed.add(set.metadata.uid.as_deref().unwrap_or_default(), &change.key);
                    owners.insert(SimKey::of(ObjectKind::DaemonSet, &set.metadata));
                }
            }
        }
        if let (Some(before), Some(after)) = (before, after)
            && is_ready(after)
            && !is_ready(before)
            && let Some(owner) = controller::<DaemonSet>(cx.store, &after.metadata)
            && let Some(minimum) = owner.spec.as_ref().and_then(|spec| spec.min_ready_seconds).filter(|it| *it > 0)
        {
            let key = SimKey::of(ObjectKind::DaemonSet, &owner.metadata);
            self.delayed.add(&key, cx.now + seconds(i64::from(minimum)) + SignedDuration::from_secs(1));
        }
        owners.into_iter().for_each(|key| wakes.now(key));
    }

    /// Keeps the pods by set and node.
    fn index(&mut self, before: Option<&Arc<Pod>>, after: Option<&Arc<Pod>>) {
        let place = |pod: &Arc<Pod>| {
            let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "DaemonSet")?;
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            Some((owner.uid.as_str().into(), target_node(pod)?.into(), name.into()))
        };
        let (old, new): (Option<PodPlace>, Option<PodPlace>) = (before.and_then(place), after.and_then(place));
        for (uid, node, _) in [&old, &new].into_iter().flatten() {
            self.mark(uid, node);
        }
        if let Some(old) = old.filter(|old| Some(old) != new.as_ref()) {
            self.pods.remove(|other| other.cmp(&old));
        }
        if let (Some(new), Some(pod)) = (new, after) {
            self.pods.insert(new, Arc::clone(pod));
        }
    }

    /// The next look at a set includes a node.
    fn mark(&mut self, uid: &str, node: &str) {
        if let Some(mut tally) = self.tallies.remove(|other| (**other).cmp(uid)) {
            Arc::make_mut(&mut tally).mark(node);
            self.tallies.insert(uid.into(), tally);
        }
    }

    fn revision_changed(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let metadata = change.latest().metadata();
        if change.after.is_none() {
            self.revisions.forget(metadata.uid.as_deref().unwrap_or_default());
        }
        let owner = controller::<DaemonSet>(cx.store, metadata);
        if let Some(owner) = owner.filter(|_| change.before.is_some()) {
            wakes.now(SimKey::of(ObjectKind::DaemonSet, &owner.metadata));
        }
        if controller_of(metadata).is_none() && change.after.is_some() && is_ownership_change(change) {
            for set in cx.store.all_in::<DaemonSet>(&change.key.namespace) {
                if selector(set).matches(labels(metadata)) {
                    wakes.now(SimKey::of(ObjectKind::DaemonSet, &set.metadata));
                }
            }
        }
    }

    fn node_changed(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        let (before, after) = change.of::<Node>();
        if let (Some(before), Some(after)) = (before, after)
            && labels(&before.metadata) == labels(&after.metadata)
            && taints(before) == taints(after)
        {
            return;
        }
        let sets: Vec<Arc<str>> = self.tallies.iter().map(|(uid, _)| Arc::clone(uid)).collect();
        sets.iter().for_each(|uid| self.mark(uid, &change.key.name));
        if let Some(after) = after {
            wake_sets(cx, before.map(|node| &**node), after, wakes);
        }
    }
}

/// Wakes the sets that a node concerns (`syncNodeUpdate`; before 1.34 `addNode` and `updateNode`).
fn wake_sets(cx: &mut Context<'_>, before: Option<&Node>, after: &Node, wakes: &mut Wakes) {
    let of_pod = |key: &SimKey| {
        let owner = controller_of(&cx.store.at::<Pod>(key)?.metadata).filter(|owner| owner.kind == "DaemonSet")?;
        Some((Arc::clone(&key.namespace), owner.name.clone()))
    };
    let present: BTreeSet<(Arc<str>, String)> = cx.store.pods_on(after.metadata.name.as_deref().unwrap_or_default()).filter_map(of_pod).collect();
    for (key, set) in cx.store.of_kind(ObjectKind::DaemonSet) {
        let SimObject::DaemonSet(set) = set else { continue };
        let placement = Placement::of(set);
        let verdict = placement.verdict(after);
        let wanted = if cx.settings.since(34) {
            let has_pod = present.contains(&(Arc::clone(&key.namespace), key.name.to_string()));
            let misplaced = set.status.as_ref().is_some_and(|status| status.number_misscheduled > 0);
            if has_pod { !verdict.should_continue || misplaced } else { verdict.should_run }
        } else {
            before.map_or(verdict.should_run, |before| placement.verdict(before) != verdict)
        };
        if wanted {
            wakes.now(key.clone());
        }
    }
}

/// The selector of a set; one that is not valid matches nothing.
fn selector(set: &DaemonSet) -> Selector {
    let selector = set.spec.as_ref().map(|spec| &spec.selector);
    Selector::from_label_selector(selector).unwrap_or_else(|_| Selector::nothing())
}
