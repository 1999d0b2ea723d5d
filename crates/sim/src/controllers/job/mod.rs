//! The Job controller (`pkg/controller/job`).

mod back_off;
mod indexes;
mod manage;
mod policies;
mod sync;
#[cfg(test)]
mod tests;
mod tracking;
mod view;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use stead_model::controller_of;
use stead_model::fork::Sorted;
use stead_semantics::Selector;

use super::delayed::Delayed;
use super::job_end::is_finished;
use super::ownership::{Unclaimed, controller, is_ownership_change, labels};
use super::pod_control;
use crate::error::ApiError;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods::{is_terminating, phase};
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;
use back_off::{BackOffRecord, finished_at};
use policies::is_failed;
use view::{TRACKING, View, is_tracked, untrack};

/// How long the controller waits for pods that it has created (`ExpectationsTimeout`).
const EXPECTATIONS: SignedDuration = SignedDuration::from_mins(5);

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Jobs {
    delayed: Delayed,
    unclaimed: Unclaimed,
    back_off: Sorted<SimKey, BackOffRecord>,
    /// Until when a Job waits for pods that could not be created because its namespace is being deleted.
    expecting: Sorted<SimKey, Timestamp>,
}

impl Controller for Jobs {
    const COMPONENT: &'static str = "job-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::Job => self.job_changed(cx, change, wakes),
            ObjectKind::Pod => self.pod_changed(cx, change, wakes),
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        match item {
            Item::Object(key) if key.kind == ObjectKind::Pod => Step::writes(release(cx, key)),
            Item::Object(key) => self.look(cx, key),
            Item::Pass => Step::none(),
        }
    }

    fn refused(&mut self, _cx: &mut Context<'_>, item: &Item, write: &Write, error: &ApiError) -> Vec<Write> {
        let Item::Object(key) = item else { return Vec::new() };
        pod_control::refused(key, write, error)
    }

    /// Besides the objects, the failures since the last success: of the pods that are still there, those that the leader
    /// has counted itself.
    fn resume(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        let store = cx.store;
        for (key, object) in store.iter() {
            let change = Change { key: key.clone(), before: None, after: Some(object.clone()) };
            self.affected(cx, &change, wakes);
        }
        let lease = store.get::<Lease>("kube-system", "kube-controller-manager");
        let elected = lease.and_then(|lease| lease.spec.as_ref()?.acquire_time.as_ref()).map(|time| time.0);
        for job in store.all::<Job>().filter(|job| !is_finished(job)) {
            let (Some(spec), Some(uid)) = (&job.spec, &job.metadata.uid) else { continue };
            // Those in the list of pods that are about to be counted are in the record already.
            let uncounted = job.status.as_ref().and_then(|status| status.uncounted_terminated_pods.as_ref());
            let uncounted = uncounted.iter().flat_map(|list| list.failed.iter().chain(&list.succeeded).flatten());
            let uncounted: BTreeSet<&str> = uncounted.map(String::as_str).collect();
            let is_listed = |pod: &Pod| pod.metadata.uid.as_deref().is_some_and(|uid| uncounted.contains(uid));
            let counted = |pod: &&Arc<Pod>| {
                (!is_tracked(pod) || is_listed(pod)) && elected.is_none_or(|time| finished_at(pod) >= time)
            };
            let pods: Vec<&Pod> = store.all_owned_by::<Pod>(uid).filter(counted).map(|pod| &**pod).collect();
            let succeeded: Vec<&Pod> = pods.iter().copied().filter(|pod| phase(pod) == "Succeeded").collect();
            let failed: Vec<&Pod> = pods.into_iter().filter(|pod| is_failed(pod, spec)).collect();
            let record = BackOffRecord::default().after(&succeeded, &failed);
            // Pods that failed may be gone: they were counted, unless somebody else did that before.
            let status = job.status.as_ref();
            let begun = status.and_then(|status| status.start_time.as_ref()).map(|time| time.0);
            let is_mine = elected.is_none_or(|elected| begun.is_some_and(|begun| begun >= elected));
            let counted = status.and_then(|status| status.failed).filter(|_| is_mine && succeeded.is_empty());
            let record = record.at_least(counted.unwrap_or_default());
            self.back_off.insert(SimKey::of(ObjectKind::Job, &job.metadata), record);
        }
    }
}

impl Jobs {
    fn job_changed(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let key = &change.key;
        match change.of::<Job>() {
            (None, Some(job)) => {
                self.unclaimed.add_orphans(cx.store, &job.metadata, &selector(job));
                wakes.now(key.clone());
            }
            (Some(_), Some(job)) if is_finished(job) => wake_tracked(cx, job, wakes),
            (Some(before), Some(job)) if before.metadata.generation != job.metadata.generation => wakes.now(key.clone()),
            (Some(_), Some(_)) => self.wake_batched(cx, key, wakes),
            (Some(job), None) => {
                self.forget(key);
                wake_tracked(cx, job, wakes);
            }
            (None, None) => {}
        }
    }

    fn pod_changed(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<Pod>();
        let Some(pod) = after.or(before) else { return };
        let owner = controller::<Job>(cx.store, &pod.metadata).filter(|job| !is_finished(job));
        let is_removed = after.is_none();
        if let Some(before) = before
            && controller_of(&before.metadata) != controller_of(&pod.metadata)
            && let Some(job) = controller::<Job>(cx.store, &before.metadata)
        {
            self.wake_batched(cx, &SimKey::of(ObjectKind::Job, &job.metadata), wakes);
        }
        if let Some(job) = owner {
            if is_ownership_change(change) {
                self.unclaimed.add(job.metadata.uid.as_deref().unwrap_or_default(), &change.key);
            }
            self.wake_batched(cx, &SimKey::of(ObjectKind::Job, &job.metadata), wakes);
            return;
        }
        let is_orphan = controller_of(&pod.metadata).is_none();
        if !is_removed && is_tracked(pod) && (is_orphan || is_terminating(pod)) {
            wakes.now(change.key.clone());
        }
        if is_orphan && !is_removed && !is_terminating(pod) && is_ownership_change(change) {
            for job in cx.store.all_in::<Job>(&change.key.namespace).filter(|job| !is_finished(job)) {
                if selector(job).matches(labels(&pod.metadata)) {
                    self.unclaimed.add(job.metadata.uid.as_deref().unwrap_or_default(), &change.key);
                    self.wake_batched(cx, &SimKey::of(ObjectKind::Job, &job.metadata), wakes);
                }
            }
        }
    }

    /// Looks at a Job after changes were collected for a while (`enqueueSyncJobBatched`).
    fn wake_batched(&mut self, cx: &Context<'_>, key: &SimKey, wakes: &mut Wakes) {
        let delay = cx.settings.timers.job_sync_batch;
        self.delayed.add(key, cx.now + delay);
        wakes.after(key.clone(), delay);
    }

    fn forget(&mut self, key: &SimKey) {
        self.delayed.forget(key);
        self.back_off.remove(|other| other.cmp(key));
        self.expecting.remove(|other| other.cmp(key));
    }

    fn look(&mut self, cx: &mut Context<'_>, key: &SimKey) -> Step {
        self.delayed.begin(key, cx.now);
        let Some(job) = cx.store.at::<Job>(key) else { return Step::none() };
        let Some(spec) = job.spec.as_ref() else { return Step::none() };
        let is_foreign = spec.managed_by.as_deref().is_some_and(|name| name != "kubernetes.io/job-controller");
        if is_finished(job) || (is_foreign && cx.settings.since(32)) {
            self.forget(key);
            return Step::none();
        }
        if !matches!(spec.completion_mode.as_deref(), None | Some("NonIndexed" | "Indexed")) {
            let message = "Skipped Job sync because completion mode is unknown";
            return Step::writes(vec![Write::Event(EventNote::warning(key, "UnknownCompletionMode", message))]);
        }
        let owner = SimObject::Job(Arc::clone(job));
        let claims = self.unclaimed.claim(cx.store, &owner, &selector(job), Some(TRACKING));
        if !claims.is_empty() {
            return Step::writes(claims).and_again(Some(SignedDuration::ZERO));
        }
        let is_controlled = |pod: &&Arc<Pod>| controller_of(&pod.metadata).is_some_and(|other| other.uid == owner.uid());
        let pods = cx.store.all_owned_by::<Pod>(owner.uid()).filter(is_controlled).collect();
        let known = self.back_off.get(key).copied().unwrap_or_default();
        let satisfied = self.expecting.get(key).is_none_or(|until| *until <= cx.now);
        let mut view = View::new(key, job, spec, pods, known, cx.now);
        let outcome = sync::sync(cx, &mut view, satisfied);
        if outcome.counted {
            self.back_off.insert(key.clone(), view.back_off);
        }
        if outcome.missing {
            self.expecting.insert(key.clone(), cx.now + EXPECTATIONS);
        }
        view.delays.iter().for_each(|delay| self.delayed.add(key, cx.now + *delay));
        Step::writes(view.writes).and_again(self.delayed.left(key, cx.now))
    }
}

/// Removes the finalizer of a pod whose Job is finished or gone (`handleSingleOrphanPod`).
fn release(cx: &Context<'_>, key: &SimKey) -> Vec<Write> {
    let Some(pod) = cx.store.at::<Pod>(key).filter(|pod| is_tracked(pod)) else { return Vec::new() };
    if let Some(reference) = controller_of(&pod.metadata) {
        let job = controller::<Job>(cx.store, &pod.metadata);
        if reference.kind != "Job" || job.is_some_and(|job| !is_finished(job)) {
            return Vec::new();
        }
    }
    vec![untrack(pod)]
}

/// Looks at the pods of a Job that is finished or gone, if they still have the finalizer (`enqueueLabelSelector`).
fn wake_tracked(cx: &Context<'_>, job: &Job, wakes: &mut Wakes) {
    for pod in cx.store.all_owned_by::<Pod>(job.metadata.uid.as_deref().unwrap_or_default()) {
        if is_tracked(pod) {
            wakes.now(SimKey::of(ObjectKind::Pod, &pod.metadata));
        }
    }
}

/// The selector of a Job; one that is not valid matches nothing.
fn selector(job: &Job) -> Selector {
    let selector = job.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    Selector::from_label_selector(selector).unwrap_or_else(|_| Selector::nothing())
}
