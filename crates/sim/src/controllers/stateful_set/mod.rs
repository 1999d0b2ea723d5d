//! The StatefulSet controller (`pkg/controller/statefulset`).
//!
//! A step claims revisions and pods, finds the revision of the template, processes the pods ([`update::Update`]), and
//! reports the status of what it found.

mod claims;
mod events;
mod identity;
mod retention;
mod revisions;
mod status;
mod update;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use stead_model::controller_of;
use stead_model::stateful_set::claim_templates;
use stead_model::times::seconds;
use stead_semantics::{Labels, Selector};

use crate::error::ApiError;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::ownership::{self, Claim, claim, namespace_is_terminating, wake_owners};
use crate::pods::{available_in, is_ready, phase};
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::{Change, Store};
use events::Verb;
use revisions::Templates;
use update::Update;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct StatefulSets {
    templates: Templates,
    /// How often in a row a set could not be updated.
    failures: BTreeMap<SimKey, u32>,
    /// The status that is reported if a write of the last step is refused.
    status_on_error: Option<StatefulSetStatus>,
}

impl Controller for StatefulSets {
    const COMPONENT: &'static str = "statefulset-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::StatefulSet => match change.after {
                Some(_) => wakes.now(change.key.clone()),
                None => drop(self.failures.remove(&change.key)),
            },
            ObjectKind::Pod => wake_owners(cx.store, change, ObjectKind::StatefulSet, wakes),
            ObjectKind::ControllerRevision if change.after.is_none() => self.templates.forget(change.latest().uid()),
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        self.sync(cx, key).unwrap_or_default()
    }

    fn refused(&mut self, cx: &mut Context<'_>, item: &Item, write: &Write, error: &ApiError) -> Vec<Write> {
        let Item::Object(key) = item else { return Vec::new() };
        let Some(set) = cx.store.at::<StatefulSet>(key) else { return Vec::new() };
        let mut writes = Vec::new();
        // No event can be created in a namespace that is being deleted.
        if !namespace_is_terminating(cx.store, &key.namespace) {
            writes = failure_events(cx, key, set, write, error).into_iter().map(Write::Event).collect();
        }
        writes.extend(self.status_on_error.take().and_then(|new| status::write(set, new)));
        writes
    }
}

impl StatefulSets {
    fn sync(&mut self, cx: &mut Context<'_>, key: &SimKey) -> Option<Step> {
        self.status_on_error = None;
        let set = cx.store.at::<StatefulSet>(key)?;
        let selector = Selector::from_label_selector(Some(&set.spec.as_ref()?.selector)).ok()?;
        let mut writes = Vec::new();
        let listed = revisions::list(cx.store, set, &selector);
        if set.metadata.deletion_timestamp.is_none() {
            revisions::adopt_orphans(&listed, set, &mut writes);
        }
        let pods = claim_pods(cx.store, set, &selector, &mut writes);
        let revisions = revisions::determine(cx, set, listed, &mut self.templates, &mut writes)?;
        let outcome = Update::new(cx, key, set, &revisions, &pods, &mut writes).run();
        self.status_on_error = Some(outcome.counters_on_error.status(set, &revisions));
        // The API server refuses a negative number.
        if outcome.counters.current >= 0 {
            writes.extend(status::write(set, outcome.counters.status(set, &revisions)));
        }
        revisions.truncate(set, &pods, &mut writes);
        let again = if outcome.failed {
            Some(self.back_off(cx, key))
        } else {
            self.failures.remove(key);
            next_availability_check(set, &pods, cx.now)
        };
        Some(Step::writes(writes).and_again(again))
    }

    /// The delay after an error that is not a refused write.
    fn back_off(&mut self, cx: &Context<'_>, key: &SimKey) -> SignedDuration {
        let failures = self.failures.entry(key.clone()).or_default();
        let timers = &cx.settings.timers;
        let factor = 1_i32.checked_shl(*failures).unwrap_or(i32::MAX);
        *failures = (*failures + 1).min(30);
        timers.retry.checked_mul(factor).unwrap_or(timers.retry_max).min(timers.retry_max)
    }
}

/// The pods of a set: others are released, and orphans with the name of a pod of the set are adopted.
fn claim_pods(store: &Store, set: &Arc<StatefulSet>, selector: &Selector, writes: &mut Vec<Write>) -> Vec<Arc<Pod>> {
    let owner = SimObject::StatefulSet(Arc::clone(set));
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let controls = |pod: &&Arc<Pod>| controller_of(&pod.metadata).is_some_and(|other| other.uid == owner.uid());
    let own = store.all_owned_by::<Pod>(owner.uid()).filter(controls);
    let orphans = store.orphans_in(ObjectKind::Pod, namespace).filter_map(|object| match object {
        SimObject::Pod(pod) => Some(pod),
        _ => None,
    });
    let mut pods = Vec::new();
    for pod in own.chain(orphans) {
        let matches = || {
            identity::is_member(set, pod) && selector.matches(pod.metadata.labels.as_ref().unwrap_or(&Labels::new()))
        };
        match claim(&pod.metadata, &set.metadata, matches) {
            Claim::Own => pods.push(Arc::clone(pod)),
            Claim::Adopt => {
                writes.push(ownership::adopt(&SimObject::Pod(Arc::clone(pod)), &owner));
                pods.push(Arc::clone(pod));
            }
            Claim::Release => writes.push(ownership::release(&SimObject::Pod(Arc::clone(pod)), &owner)),
            Claim::Ignore => {}
        }
    }
    pods
}

/// What is reported about a refused write.
fn failure_events(
    cx: &Context<'_>,
    key: &SimKey,
    set: &StatefulSet,
    write: &Write,
    error: &ApiError,
) -> Vec<crate::EventNote> {
    let exists = matches!(error, ApiError::AlreadyExists(_));
    let failed = |verb, pod: &str, error: &str| events::pod_failed(cx.settings, key, verb, pod, error);
    match write {
        Write::Create(SimObject::Pod(_)) if exists => Vec::new(),
        Write::Create(SimObject::Pod(pod)) => vec![failed(Verb::Create, identity::name(pod), &error.to_string())],
        Write::Create(SimObject::PersistentVolumeClaim(claim)) => {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let template = |prefix: &str| name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
            let templates = claim_templates(set).iter().filter_map(|template| template.metadata.name.as_deref());
            let Some(pod) = templates.into_iter().find_map(template) else { return Vec::new() };
            let mut events = Vec::new();
            if !exists {
                events.push(events::claim_failed(cx.settings, key, name, pod, &error.to_string()));
            }
            if cx.store.get::<Pod>(&key.namespace, pod).is_none() {
                events.push(failed(Verb::Create, pod, &format!("failed to create PVC {name}: {error}")));
            }
            events
        }
        Write::Delete(pod, _) if pod.kind == ObjectKind::Pod => {
            vec![failed(Verb::Delete, &pod.name, &error.to_string())]
        }
        _ => Vec::new(),
    }
}

/// When the next pod will be available.
fn next_availability_check(set: &StatefulSet, pods: &[Arc<Pod>], now: Timestamp) -> Option<SignedDuration> {
    let min_ready_seconds = min_ready_seconds(set);
    if min_ready_seconds <= 0 {
        return None;
    }
    let ready = pods.iter().filter(|pod| is_running_and_ready(pod));
    let waits = ready.filter_map(|pod| available_in(pod, min_ready_seconds, now).filter(|wait| !wait.is_zero()));
    waits.min().map(|wait| wait.min(seconds(i64::from(min_ready_seconds))))
}

/// Whether a pod runs and is Ready (`isRunningAndReady`).
fn is_running_and_ready(pod: &Pod) -> bool {
    phase(pod) == "Running" && is_ready(pod)
}

fn min_ready_seconds(set: &StatefulSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default()
}

/// Whether pods of an old revision are replaced only when somebody deletes them.
fn is_on_delete(set: &StatefulSet) -> bool {
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete")
}

/// The parameters of a rolling update. With a strategy that names only its type there are none.
fn rolling_update(set: &StatefulSet) -> Option<RollingUpdateStatefulSetStrategy> {
    let strategy = set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref());
    match strategy {
        Some(strategy) if strategy.type_.is_some() => strategy.rolling_update.clone(),
        Some(strategy) => Some(strategy.rolling_update.clone().unwrap_or_default()),
        None => Some(RollingUpdateStatefulSetStrategy::default()),
    }
}

#[cfg(test)]
mod tests;
