//! The DaemonSet controller (`pkg/controller/daemon`).

mod manage;
mod placement;
mod rolling_update;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use stead_model::controller_of;
use stead_model::fork::Sorted;
use stead_model::times::seconds;
use stead_semantics::Selector;

use super::delayed::Delayed;
use super::ownership::{Unclaimed, controller, is_ownership_change, labels};
use super::revisions::{HASH_LABEL, HashCollision, History, Revisions, Versioned, hash_of};
use super::pod_control;
use crate::api::daemon_set_strategy::template_generation;
use crate::error::ApiError;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods::{has_ended, is_ready, is_terminating};
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;
use manage::{FailedPods, Plan};
use placement::{Placement, PodTemplate, target_node};
use view::{Placed, View, oldest_first};

/// The most pods that are created, and the most that are deleted, in one step (`BurstReplicas`).
const BURST: usize = 250;

/// How long the controller waits for pods that it has created (`ExpectationsTimeout`).
const EXPECTATIONS: SignedDuration = SignedDuration::from_mins(5);

/// The UID of a daemon pod's set, its node, and its name.
type PodPlace = (Arc<str>, Arc<str>, Arc<str>);

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct DaemonSets {
    pods: Sorted<PodPlace, Arc<Pod>>,
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
            ObjectKind::Node => node_changed(cx, change, wakes),
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

/// Pods have to be adopted or released before anything else.
struct Adopting(Vec<Write>);

impl DaemonSets {
    fn set_changed(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        wakes.now(change.key.clone());
        match change.of::<DaemonSet>() {
            (None, Some(set)) => {
                let selector = selector(set);
                self.unclaimed.add_orphans(cx.store, &set.metadata, &selector);
            }
            (Some(set), None) => {
                self.failed.forget(set.metadata.uid.as_deref().unwrap_or_default());
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
        let (old, new) = (before.and_then(place), after.and_then(place));
        if let Some(old) = old.filter(|old| Some(old) != new.as_ref()) {
            self.pods.remove(|other| other.cmp(&old));
        }
        if let (Some(new), Some(pod)) = (new, after) {
            self.pods.insert(new, Arc::clone(pod));
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

    /// The pods of a set by node, without those that have ended and are being deleted.
    fn placed<'a>(&'a self, uid: &str) -> impl Iterator<Item = Placed<'a>> {
        let first = |key: &PodPlace| (*key.0).cmp(uid).then(std::cmp::Ordering::Greater);
        let pods = self.pods.iter_from(first).take_while(move |((owner, ..), _)| **owner == *uid);
        pods.map(|((_, node, _), pod)| (&**node, pod))
    }

    /// `syncDaemonSet`.
    fn sync(&mut self, cx: &mut Context<'_>, key: &SimKey, set: &Arc<DaemonSet>) -> Result<Vec<Write>, Adopting> {
        let Some(spec) = set.spec.as_ref() else { return Ok(Vec::new()) };
        let selector = selector(set);
        if selector.is_empty() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            return Ok(vec![Write::Event(EventNote::warning(key, "SelectingAll", message))]);
        }
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Vec::new());
        }
        let owner = SimObject::DaemonSet(Arc::clone(set));
        let claims = self.unclaimed.claim(cx.store, &owner, &selector, None);
        if !claims.is_empty() {
            return Err(Adopting(claims));
        }
        let collisions = set.status.as_ref().and_then(|status| status.collision_count).unwrap_or_default();
        let versioned = Versioned { owner: &owner, selector: &selector, template: &spec.template, collisions };
        let history = match self.revisions.history(cx, &versioned) {
            Ok(history) => history,
            Err(HashCollision) => {
                let status = DaemonSetStatus { collision_count: Some(collisions + 1), ..set.status.clone().unwrap_or_default() };
                return Ok(vec![write_status(set, status)]);
            }
        };
        let uid = owner.uid().to_owned();
        let mut failed = std::mem::take(&mut self.failed);
        let expecting = self.expecting.get(key).is_some_and(|until| cx.now < *until);
        let pods: Vec<Placed<'_>> = self.placed(&uid).filter(|(_, pod)| !has_ended(pod) || !is_terminating(pod)).collect();
        let view = View {
            key,
            set,
            now: cx.now,
            nodes: view::join(cx.store, &Placement::of(set), &pods),
            hash: &history.hash,
            generation: template_generation(set).map(|generation| generation.to_string()),
        };
        let mut writes = history.writes.clone();
        if history.relabel {
            writes.extend(relabel(self.placed(&uid), &history.hash));
        }
        let (counted, lagging) = counters(&view);
        let mut delays: Vec<SignedDuration> = Vec::new();
        let mut missing = false;
        if !expecting {
            let mut plan = manage::plan(&view, &mut failed);
            delays.extend(plan.retry);
            if plan.create.is_empty() && plan.delete.is_empty() && view.rolling_update().is_some() {
                plan = Plan { events: plan.events, ..rolling_update::plan(&view, cx.choices) };
            }
            missing = !plan.create.is_empty() && pod_control::is_namespace_terminating(cx.store, &key.namespace);
            execute(cx, &view, plan, &owner, missing, &mut writes);
            writes.extend(self.clean_up(&uid, &history, spec.revision_history_limit.unwrap_or(10)));
        }
        writes.extend(changed_status(set, counted, !expecting).map(|status| write_status(set, status)));
        if lagging {
            delays.push(seconds(i64::from(view.min_ready_seconds())));
        }
        self.failed = failed;
        if missing {
            self.expecting.insert(key.clone(), cx.now + EXPECTATIONS);
        }
        delays.into_iter().for_each(|delay| self.delayed.add(key, cx.now + delay));
        Ok(writes)
    }

    /// Old revisions that no pod has, over the limit (`cleanupHistory`).
    fn clean_up(&self, uid: &str, history: &History, limit: i32) -> Vec<Write> {
        if history.old.len() <= usize::try_from(limit).unwrap_or_default() {
            return Vec::new();
        }
        let live: BTreeSet<&str> = self.placed(uid).map(|(_, pod)| hash_of(&pod.metadata)).collect();
        history.truncate(limit, |hash| live.contains(hash))
    }
}

/// Wakes the sets that a node concerns (`syncNodeUpdate`; before 1.34 `addNode` and `updateNode`).
fn node_changed(cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
    let (before, Some(after)) = change.of::<Node>() else { return };
    let taints = |node: &Node| node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    if before.is_some_and(|before| labels(&before.metadata) == labels(&after.metadata) && taints(before) == taints(after)) {
        return;
    }
    let of_pod = |key: &SimKey| {
        let owner = controller_of(&cx.store.at::<Pod>(key)?.metadata).filter(|owner| owner.kind == "DaemonSet")?;
        Some((Arc::clone(&key.namespace), owner.name.clone()))
    };
    let present: BTreeSet<(Arc<str>, String)> = cx.store.pods_on(&change.key.name).filter_map(of_pod).collect();
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

/// Creates and deletes pods (`syncNodes`). In a namespace that is being deleted none can be created.
fn execute(
    cx: &mut Context<'_>,
    view: &View<'_>,
    plan: Plan<'_>,
    owner: &SimObject,
    missing: bool,
    writes: &mut Vec<Write>,
) {
    writes.extend(plan.events);
    if !plan.create.is_empty() && !missing {
        let template = PodTemplate::of(view.set, owner, view.hash);
        for node in plan.create.into_iter().take(BURST) {
            writes.extend(pod_control::create(cx, template.for_node(node), &format!(" on {node}"), view.key));
        }
    }
    writes.extend(plan.delete.into_iter().take(BURST).flat_map(|pod| pod_control::delete(pod, view.key)));
}

/// Gives the pods of duplicate revisions the hash of the one that stays.
fn relabel<'a>(pods: impl Iterator<Item = Placed<'a>>, hash: &str) -> Vec<Write> {
    let others = pods.filter(|(_, pod)| hash_of(&pod.metadata) != hash);
    let relabelled = others.map(|(_, pod)| {
        let mut pod = Pod::clone(pod);
        pod.metadata.labels.get_or_insert_default().insert(HASH_LABEL.into(), hash.into());
        pod.metadata.resource_version = None;
        Write::Replace(pod.into())
    });
    relabelled.collect()
}

/// The counters of the status, and whether a ready pod is not available yet (`updateDaemonSetStatus`).
fn counters(view: &View<'_>) -> (DaemonSetStatus, bool) {
    let (mut desired, mut current, mut misplaced, mut ready, mut updated, mut available) = (0, 0, 0, 0, 0, 0);
    for node in view.nodes.iter().filter(|node| node.exists) {
        let oldest = node.pods.iter().map(|(_, pod)| pod).min_by(|a, b| oldest_first(a, b));
        if !node.verdict.should_run {
            misplaced += i32::from(oldest.is_some());
            continue;
        }
        desired += 1;
        let Some(pod) = oldest else { continue };
        current += 1;
        ready += i32::from(is_ready(pod));
        available += i32::from(view.is_available(pod));
        updated += i32::from(view.is_updated(pod));
    }
    let counted = |number: i32| Some(number).filter(|number| *number != 0);
    let status = DaemonSetStatus {
        desired_number_scheduled: desired,
        current_number_scheduled: current,
        number_misscheduled: misplaced,
        number_ready: ready,
        updated_number_scheduled: counted(updated),
        number_available: counted(available),
        number_unavailable: counted(desired - available),
        ..view.set.status.clone().unwrap_or_default()
    };
    (status, view.min_ready_seconds() > 0 && ready != available)
}

/// The status to write; none if it is as it was (`storeDaemonSetStatus`).
fn changed_status(set: &DaemonSet, mut status: DaemonSetStatus, observed: bool) -> Option<DaemonSetStatus> {
    let before = set.status.clone().unwrap_or_default();
    let is_observed = before.observed_generation.unwrap_or_default() >= set.metadata.generation.unwrap_or_default();
    if status == before && is_observed {
        return None;
    }
    if observed {
        status.observed_generation = set.metadata.generation;
    }
    Some(status)
}

fn write_status(set: &DaemonSet, status: DaemonSetStatus) -> Write {
    let mut set = set.clone();
    set.metadata.resource_version = None;
    set.status = Some(status);
    Write::Status(set.into())
}
