//! One look at a Job (`syncJob`): whether it ends, which pods it needs, what its status says.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{JobCondition, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use stead_model::times::seconds;

use super::super::pod_control;
use super::manage::{Managed, manage};
use super::policies::{FailureMeaning, failure_meaning, is_failed, success_message};
use super::tracking::track;
use super::view::{View, find_condition, new_condition};
use crate::api::whole_seconds;
use crate::event_log::EventNote;
use crate::pods::{is_ready, phase};
use crate::settings::Settings;
use crate::step::{Context, Write};

/// What a look at a Job leads to, besides the writes and delays of the view.
pub(super) struct Outcome {
    /// The failures that the controller remembers are those of the view.
    pub(super) counted: bool,
    /// Pods could not be created because the namespace is being deleted.
    pub(super) missing: bool,
}

/// Looks at a Job. `satisfied` says that it does not wait for pods that it has created.
pub(super) fn sync(cx: &mut Context<'_>, view: &mut View<'_>, satisfied: bool) -> Outcome {
    let started = set_start(view);
    view.finished = known_end(view).or_else(|| failure(view, cx.settings, started));
    if view.is_indexed() {
        view.count_indexes();
        view.finished = view.finished.take().or_else(|| end_by_indexes(view, cx.settings));
    }
    let mut managed = Managed { active: i32::try_from(view.active.len()).unwrap_or(i32::MAX), missing: false };
    let mut changed = false;
    if view.finished.is_some() {
        delete_active(view, &mut managed);
        view.finished.take_if(|_| !satisfied);
    } else {
        let may_manage = satisfied && view.job.metadata.deletion_timestamp.is_none();
        if may_manage {
            managed = manage(cx, view);
        }
        if is_complete(view, managed.active) {
            view.finished = Some(success(view, cx.settings));
        } else if may_manage {
            changed = set_suspended(view, cx.settings);
        }
    }
    changed |= set_counters(view, managed.active);
    let counted = track(view, changed, cx.settings.since(31));
    Outcome { counted, missing: managed.missing }
}

/// Sets the start of a Job that is not suspended. Gives when it started, which the status has in whole seconds.
fn set_start(view: &mut View<'_>) -> Option<Timestamp> {
    if view.status.start_time.is_none() && !view.is_suspended() {
        view.status.start_time = Some(whole_seconds(view.now));
        return Some(view.now);
    }
    view.status.start_time.as_ref().map(|time| time.0)
}

/// The end that an earlier look has announced.
fn known_end(view: &View<'_>) -> Option<JobCondition> {
    let announced = |kind: &str| find_condition(Some(&view.status), kind);
    announced("SuccessCriteriaMet").cloned().or_else(|| {
        let target = announced("FailureTarget")?;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Some(new_condition("Failed", &text(&target.reason), &text(&target.message), view.now))
    })
}

/// The end of a Job that fails by its policy, its back-off limit or its deadline.
fn failure(view: &mut View<'_>, settings: &Settings, started: Option<Timestamp>) -> Option<JobCondition> {
    let pods = view.pods.iter().filter(|pod| is_failed(pod, view.spec));
    for pod in pods {
        if let FailureMeaning::FailsJob(message) = failure_meaning(view.spec, pod) {
            return Some(new_condition("FailureTarget", "PodFailurePolicy", &message, view.now));
        }
    }
    let limit = view.spec.backoff_limit.unwrap_or(6);
    if view.failed > limit || has_too_many_restarts(view, limit) {
        let message = "Job has reached the specified backoff limit";
        return Some(failed(view, settings, "BackoffLimitExceeded", message));
    }
    let deadline = view.spec.active_deadline_seconds.filter(|_| !view.is_suspended())?;
    let left = seconds(deadline) - view.now.duration_since(started?);
    if left <= SignedDuration::ZERO {
        return Some(failed(view, settings, "DeadlineExceeded", "Job was active longer than specified deadline"));
    }
    view.delays.push(left);
    None
}

/// The condition of a Job that fails. Since 1.31 that is announced first.
fn failed(view: &View<'_>, settings: &Settings, reason: &str, message: &str) -> JobCondition {
    let kind = if settings.since(31) { "FailureTarget" } else { "Failed" };
    new_condition(kind, reason, message, view.now)
}

/// The condition of a Job whose completions are reached.
fn success(view: &View<'_>, settings: &Settings) -> JobCondition {
    if settings.since(31) {
        let message = "Reached expected number of succeeded pods";
        new_condition("SuccessCriteriaMet", "CompletionsReached", message, view.now)
    } else {
        new_condition("Complete", "", "", view.now)
    }
}

/// Whether containers were restarted too often (`pastBackoffLimitOnFailure`).
fn has_too_many_restarts(view: &View<'_>, limit: i32) -> bool {
    let template = view.spec.template.spec.as_ref();
    if template.and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let restarts = |pod: &Pod| -> i32 {
        let status = pod.status.iter();
        let statuses = status.flat_map(|status| {
            status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten())
        });
        statuses.map(|status| status.restart_count).sum()
    };
    let running = view.pods.iter().filter(|pod| matches!(phase(pod), "Running" | "Pending"));
    let restarts: i32 = running.map(|pod| restarts(pod)).sum();
    restarts >= limit.max(1)
}

/// The end of an Indexed Job by its failed indexes or its success policy.
fn end_by_indexes(view: &View<'_>, settings: &Settings) -> Option<JobCondition> {
    let failures = view.failed_indexes.as_ref().map_or(0, |failed| failed.total());
    if view.spec.max_failed_indexes.is_some_and(|most| view.has_index_limit() && failures > most) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(failed(view, settings, "MaxFailedIndexesExceeded", message));
    }
    if failures > 0 && failures.saturating_add(view.succeeded) >= view.completions() {
        return Some(failed(view, settings, "FailedIndexes", "Job has failed indexes"));
    }
    let policy = view.spec.success_policy.as_ref().filter(|_| settings.since(31));
    let message = success_message(policy, view.completions(), &view.succeeded_indexes)?;
    Some(new_condition("SuccessCriteriaMet", "SuccessPolicy", &message, view.now))
}

/// Deletes the active pods of a Job that ends. They keep their finalizer until they are counted.
fn delete_active(view: &mut View<'_>, managed: &mut Managed) {
    for pod in view.active.clone() {
        view.ready -= i32::from(is_ready(pod));
        view.terminating += 1;
        managed.active -= 1;
        view.writes.extend(pod_control::delete(pod, view.key));
    }
}

/// Whether enough pods have succeeded, and none is active.
fn is_complete(view: &View<'_>, active: i32) -> bool {
    let wanted = view.spec.completions.unwrap_or(1);
    view.succeeded >= wanted && active == 0
}

/// Sets the condition Suspended, and the start of a Job that is resumed. Gives whether anything changed.
fn set_suspended(view: &mut View<'_>, settings: &Settings) -> bool {
    let is_suspended = view.is_suspended();
    let (status, reason, message) = if is_suspended {
        ("True", "JobSuspended", "Job suspended")
    } else {
        ("False", "JobResumed", "Job resumed")
    };
    let new = JobCondition { status: status.into(), ..new_condition("Suspended", reason, message, view.now) };
    let found = view.status.conditions.iter_mut().flatten().find(|condition| condition.type_ == "Suspended");
    match found {
        Some(found) if found.status == new.status && found.reason == new.reason && found.message == new.message => {
            return false;
        }
        Some(found) => *found = new,
        // A Job that was never suspended does not say so.
        None if !is_suspended => return false,
        None => view.status.conditions.get_or_insert_default().push(new),
    }
    if !is_suspended {
        view.status.start_time = Some(whole_seconds(view.now));
    } else if settings.since(36) {
        view.status.start_time = None;
    }
    let reason = if is_suspended { "Suspended" } else { "Resumed" };
    view.writes.push(Write::Event(EventNote::normal(view.key, reason, message)));
    true
}

/// Sets the counters of pods that have not ended. Gives whether they changed.
fn set_counters(view: &mut View<'_>, active: i32) -> bool {
    let counted = |status: &JobStatus| (status.active.unwrap_or_default(), status.ready, status.terminating);
    let before = counted(&view.status);
    view.status.active = Some(active).filter(|active| *active != 0);
    view.status.ready = Some(view.ready);
    view.status.terminating = Some(view.terminating);
    before != counted(&view.status)
}
