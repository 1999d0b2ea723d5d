//! What the scheduler would have in memory, from the objects of a running cluster.
//!
//! The queue is not in the objects. A pod with a PodScheduled condition was rejected: it is in the pool since its last
//! attempt, by the plugins that the condition names. A pod whose claims were sent to a node waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod as RawPod};
use stead_model::{Event, Typed};
use stead_placement::{Pod, VolumePlan};

use super::binding::{BindingStage, SELECTED_NODE, is_bound};
use super::plugin_set::PluginSet;
use super::queue::QueuedPod;
use super::{Scheduler, is_own, seen};
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods::{condition, node_of};
use crate::step::{Context, Controller};
use crate::store::{Change, Store};

/// The last failed attempt of a pod, by its events.
#[derive(Debug, Clone, Copy)]
struct LastAttempt {
    at: Timestamp,
    attempts: u32,
}

impl Scheduler {
    pub(super) fn rebuild(&mut self, cx: &Context<'_>) {
        for (key, object) in cx.store.iter() {
            let change = Change { key: key.clone(), before: None, after: Some(object.clone()) };
            match object {
                SimObject::Pod(pod) if node_of(pod).is_none() => {}
                SimObject::Pod(_) => self.pod_changed(cx, &change),
                SimObject::Node(_) => self.node_changed(cx, &change),
                _ => self.other_changed(cx, &change),
            }
        }
        let attempts = last_attempts(cx.store);
        let mut pending: Vec<(&SimKey, &Arc<RawPod>)> = cx
            .store
            .of_kind(ObjectKind::Pod)
            .filter_map(|(key, object)| match object {
                SimObject::Pod(pod) => Some((key, pod)),
                _ => None,
            })
            .filter(|(_, pod)| seen(Some(pod)).is_some() && node_of(pod).is_none() && is_own(pod))
            .collect();
        // Those that were not tried yet are tried in the order of their creation.
        pending.sort_by_key(|(key, pod)| (pod.metadata.creation_timestamp.clone().map(|at| at.0), *key));
        for (key, raw) in pending {
            if let Ok(pod) = Pod::compile(raw, cx.settings.version) {
                self.rebuild_pending(cx, key, raw, &Arc::new(pod), attempts.get(key).copied());
            }
        }
    }

    fn rebuild_pending(
        &mut self,
        cx: &Context<'_>,
        key: &SimKey,
        raw: &RawPod,
        pod: &Arc<Pod>,
        last: Option<LastAttempt>,
    ) {
        if let Some((node, plan, since)) = binding_in_flight(cx, raw, pod, last)
            && self.cache.change().assume(pod, &node).is_ok()
        {
            let until = since.unwrap_or(cx.now) + cx.settings.timers.volume_bind_timeout;
            let first = (cx.now + SignedDuration::from_secs(1)).min(until.max(cx.now));
            let queued = QueuedPod::new(key.clone(), Arc::clone(pod), cx.now);
            return self.bindings.add(queued, &node, BindingStage::Volumes(plan, until), first);
        }
        if pod.nominated.is_some() {
            self.cache.change().set_pod(Pod::clone(pod));
        }
        let failed = condition(raw, "PodScheduled").filter(|condition| condition.status == "False");
        let failed = failed.filter(|condition| condition.reason.as_deref() != Some("SchedulingGated"));
        let Some(failed) = failed else { return self.queue.add(key, Arc::clone(pod), cx.now) };
        let first = failed.last_transition_time.as_ref().map_or(cx.now, |at| at.0);
        let last = last.unwrap_or_else(|| estimated(first, cx.now, cx.settings.timers.unschedulable_timeout));
        let plugins = match failed.reason.as_deref() {
            Some("Unschedulable") => PluginSet::of_message(failed.message.as_deref().unwrap_or_default()),
            _ => PluginSet::default(),
        };
        let queued = QueuedPod::new(key.clone(), Arc::clone(pod), last.at).after_rejections(last.attempts - 1);
        let rules = self.rules(cx);
        self.queue.give_back(queued, plugins, last.at.min(cx.now), &rules);
    }
}

/// The last attempt of a pod of which only the first failure is known: it was tried again whenever the time was over.
fn estimated(first: Timestamp, now: Timestamp, timeout: SignedDuration) -> LastAttempt {
    let passed = now.duration_since(first).max(SignedDuration::ZERO);
    let rounds = passed.as_nanos() / timeout.as_nanos().max(1);
    let rounds = i32::try_from(rounds).unwrap_or_default();
    LastAttempt { at: first + timeout * rounds, attempts: u32::try_from(rounds).unwrap_or_default() + 1 }
}

/// The last failed attempts, by the events about them. More than one event is kept while the text changes.
fn last_attempts(store: &Store) -> BTreeMap<SimKey, LastAttempt> {
    let mut last: BTreeMap<SimKey, LastAttempt> = BTreeMap::new();
    let untyped = store.iter().filter(|(key, _)| matches!(key.kind, ObjectKind::Untyped(_)) && key.kind.name() == "Event");
    for (key, object) in untyped {
        let Ok(event) = Event::from_raw(&key.to_model(), &object.to_json()) else { continue };
        let about = event.involved_object.as_ref().filter(|about| about.kind.as_deref() == Some("Pod"));
        let reporter = event.reporting_component.as_deref().unwrap_or_default();
        let Some(about) = about.filter(|_| event.reason.as_deref() == Some("FailedScheduling")) else { continue };
        if !reporter.is_empty() && reporter != Scheduler::COMPONENT {
            continue;
        }
        let name = |name: &Option<String>| name.clone().unwrap_or_default();
        let pod = SimKey::pod(&name(&about.namespace), &name(&about.name));
        let uid = store.object(&pod).map(SimObject::uid);
        let series = event.series.as_ref().and_then(|series| series.last_observed_time.as_ref()).map(|at| at.0);
        let single = event.event_time.as_ref().map(|at| at.0);
        let Some(at) = series.or(single).or(event.last_timestamp.as_ref().map(|at| at.0)) else { continue };
        if about.uid.as_deref().zip(uid).is_some_and(|(about, uid)| about != uid) {
            continue;
        }
        let known = last.entry(pod).or_insert(LastAttempt { at, attempts: 0 });
        known.at = known.at.max(at);
        known.attempts += if series.is_some() { 2 } else { 1 };
    }
    last
}

/// The node, the claims and the start of a binding that waits for its claims.
fn binding_in_flight(
    cx: &Context<'_>,
    raw: &RawPod,
    pod: &Pod,
    last: Option<LastAttempt>,
) -> Option<(Arc<str>, VolumePlan, Option<Timestamp>)> {
    let namespace = &*pod.key.namespace;
    let mut plan = VolumePlan::default();
    let mut node: Option<String> = None;
    let mut since = None;
    for (name, _) in pod.spec.volumes.iter().filter_map(|volume| volume.claim()) {
        let claim = cx.store.get::<PersistentVolumeClaim>(namespace, name)?;
        if is_bound(claim) {
            continue;
        }
        if let Some(selected) = claim.metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE)) {
            if node.get_or_insert_with(|| selected.clone()) != selected {
                return None;
            }
            since = since.max(selected_at(claim));
            plan.provisions.push(name.into());
        } else {
            let uid = claim.metadata.uid.as_ref();
            let is_for = |volume: &&Arc<PersistentVolume>| {
                let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                uid.is_some() && reference.and_then(|reference| reference.uid.as_ref()) == uid
            };
            let volume = cx.store.all::<PersistentVolume>().find(is_for)?;
            plan.bindings.push((name.into(), volume.metadata.name.as_deref().unwrap_or_default().into()));
        }
    }
    if plan.is_empty() {
        return None;
    }
    let nominated = raw.status.as_ref().and_then(|status| status.nominated_node_name.clone());
    if cx.settings.since(35) {
        // From this version on the node is nominated before anything else is written.
        let nominated = nominated.filter(|name| !name.is_empty())?;
        return (node.is_none() || node.as_ref() == Some(&nominated)).then(|| (nominated.as_str().into(), plan, since));
    }
    let failed = condition(raw, "PodScheduled").filter(|condition| condition.status == "False");
    let failed = failed.and_then(|condition| condition.last_transition_time.as_ref()).map(|at| at.0);
    let failed = last.map(|last| last.at).max(failed);
    // A claim that was sent to a node before the pod was rejected does not show a binding.
    if failed.is_some_and(|failed| since.is_none_or(|since| since <= failed)) {
        return None;
    }
    Some((node?.as_str().into(), plan, since))
}

/// When the annotation with the selected node was written.
fn selected_at(claim: &PersistentVolumeClaim) -> Option<Timestamp> {
    let entries = claim.metadata.managed_fields.as_deref().unwrap_or_default();
    let wrote = entries.iter().filter(|entry| {
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        let annotations = fields.and_then(|fields| fields.get("f:metadata")?.get("f:annotations"));
        annotations.is_some_and(|annotations| annotations.get(format!("f:{SELECTED_NODE}")).is_some())
    });
    wrote.filter_map(|entry| entry.time.as_ref()).map(|at| at.0).max()
}
