//! Counting of pods that have ended, in a way that survives every interruption (`trackJobStatusAndRemoveFinalizers`): a
//! pod's UID goes to the status, then the pod loses its finalizer, then the counter grows.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;

use super::indexes::index_of;
use super::policies::{FailureMeaning, failure_meaning, is_failed};
use super::view::{View, find_condition, is_tracked, new_condition, untrack};
use crate::event_log::EventNote;
use crate::pods::phase;
use crate::step::Write;

/// The most pods that are counted in one step (`MaxUncountedPods`).
const MOST_UNCOUNTED: usize = 500;

/// Counts pods, removes their finalizers, and ends the Job if nothing is left to wait for. Gives whether the status was
/// written before the finalizers are removed.
pub(super) fn track(view: &mut View<'_>, mut changed: bool, waits_for_terminating: bool) -> bool {
    let mut tracked: BTreeSet<String> =
        view.pods.iter().filter(|pod| is_tracked(pod)).filter_map(|pod| pod.metadata.uid.clone()).collect();
    changed |= count_untracked(&mut view.status, &tracked);
    let counted = collect(view, &mut changed);
    if view.is_indexed() {
        changed |= set_indexes(view, &counted.indexes);
    }
    changed |= set_target(view);
    if changed {
        view.write_status();
    }
    for pod in &counted.pods {
        view.writes.push(untrack(pod));
        tracked.remove(pod.metadata.uid.as_deref().unwrap_or_default());
    }
    let mut changed_again = count_untracked(&mut view.status, &tracked);
    let ended = (!counted.is_full).then(|| end(view, waits_for_terminating)).flatten();
    changed_again |= ended.is_some();
    if changed_again {
        view.write_status();
    }
    if let Some(condition) = ended {
        report_end(view, &condition);
    }
    changed
}

/// The pods that are counted in this step.
struct Counted<'a> {
    pods: Vec<&'a Pod>,
    /// The indexes of those that have succeeded.
    indexes: BTreeSet<i32>,
    /// There may be more.
    is_full: bool,
}

/// The pods that need their finalizer no more. Their UIDs go to the status.
fn collect<'a>(view: &mut View<'a>, changed: &mut bool) -> Counted<'a> {
    let (known_good, known_bad) = (view.uncounted(true), view.uncounted(false));
    let ends_in_failure = view.finished.as_ref().is_some_and(|condition| condition.type_ != "SuccessCriteriaMet");
    let mut counted = Counted { pods: Vec::new(), indexes: BTreeSet::new(), is_full: false };
    let mut uncounted = view.status.uncounted_terminated_pods.take().unwrap_or_default();
    let mut pods: Vec<&'a Pod> = view.pods.iter().map(|pod| &***pod).filter(|pod| is_tracked(pod)).collect();
    if view.is_indexed() {
        pods.sort_by_key(|pod| index_of(pod));
    }
    for pod in pods.into_iter().filter(|pod| is_done_with(view, pod)) {
        counted.pods.push(pod);
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        if phase(pod) == "Succeeded" && !known_bad.contains(&uid) {
            if view.is_indexed() {
                let new = view.valid_index(pod).filter(|index| !view.known_indexes.contains(*index));
                *changed |= new.is_some();
                counted.indexes.extend(new);
            } else if !known_good.contains(&uid) {
                *changed = true;
                uncounted.succeeded.get_or_insert_default().push(uid);
            }
        } else if (is_failed(pod, view.spec) || ends_in_failure)
            && !known_bad.contains(&uid)
            && (!view.is_indexed() || view.valid_index(pod).is_some())
            && failure_meaning(view.spec, pod) != FailureMeaning::Ignored
        {
            *changed = true;
            uncounted.failed.get_or_insert_default().push(uid);
        }
        let lists = [&uncounted.succeeded, &uncounted.failed];
        let listed: usize = lists.into_iter().map(|list| list.iter().flatten().count()).sum();
        if counted.indexes.len() + listed >= MOST_UNCOUNTED {
            counted.is_full = true;
            break;
        }
    }
    view.status.uncounted_terminated_pods = Some(uncounted);
    counted
}

/// Whether a pod needs its finalizer no more (`canRemoveFinalizer`).
fn is_done_with(view: &View<'_>, pod: &Pod) -> bool {
    if view.job.metadata.deletion_timestamp.is_some() || view.finished.is_some() || phase(pod) == "Succeeded" {
        return true;
    }
    // The last failed pod of an index waits for the one that replaces it.
    let is_replaced = || index_of(pod).and_then(|index| view.replaced.get(&index));
    is_failed(pod, view.spec)
        && !(view.has_index_limit() && is_replaced().is_some_and(|last| last.metadata.uid == pod.metadata.uid))
}

/// Counts the pods whose UID is in the status and that have no finalizer any more. Gives whether there were any.
fn count_untracked(status: &mut JobStatus, tracked: &BTreeSet<String>) -> bool {
    let uncounted: &mut UncountedTerminatedPods = status.uncounted_terminated_pods.get_or_insert_default();
    let mut changed = false;
    for (list, counter) in
        [(&mut uncounted.succeeded, &mut status.succeeded), (&mut uncounted.failed, &mut status.failed)]
    {
        let Some(uids) = list else { continue };
        let before = uids.len();
        uids.retain(|uid| tracked.contains(uid));
        let counted = i32::try_from(before - uids.len()).unwrap_or(i32::MAX);
        if counted > 0 {
            *counter = Some(counter.unwrap_or_default().saturating_add(counted));
            changed = true;
        }
        list.take_if(|uids| uids.is_empty());
    }
    changed
}

fn set_indexes(view: &mut View<'_>, new: &BTreeSet<i32>) -> bool {
    view.succeeded_indexes = view.succeeded_indexes.with(new);
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let completed = text(view.succeeded_indexes.to_string());
    let failed = view.failed_indexes.as_ref().map(ToString::to_string);
    let changed = view.status.completed_indexes != completed || view.status.failed_indexes != failed;
    view.status.succeeded = Some(view.succeeded_indexes.total()).filter(|total| *total > 0);
    view.status.completed_indexes = completed;
    view.status.failed_indexes = failed;
    changed
}

/// The Job's end is announced before its pods lose their finalizers. Gives whether that is new.
fn set_target(view: &mut View<'_>) -> bool {
    let Some(target) = view.finished.take() else { return false };
    let (kind, is_new) = match target.type_.as_str() {
        "FailureTarget" => ("Failed", true),
        "SuccessCriteriaMet" => ("Complete", find_condition(Some(&view.status), "SuccessCriteriaMet").is_none()),
        _ => {
            view.finished = Some(target);
            return false;
        }
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    view.finished = Some(new_condition(kind, &text(&target.reason), &text(&target.message), view.now));
    if is_new {
        view.status.conditions.get_or_insert_default().push(target);
    }
    is_new
}

/// Ends the Job unless it has to wait for pods (`enactJobFinished`).
fn end(view: &mut View<'_>, waits_for_terminating: bool) -> Option<JobCondition> {
    let condition = view.finished.clone()?;
    let is_uncounted = !view.uncounted(true).is_empty() || !view.uncounted(false).is_empty();
    if is_uncounted || (waits_for_terminating && view.terminating > 0) {
        return None;
    }
    let conditions = view.status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|other| other.type_ == condition.type_) {
        Some(other) => *other = condition.clone(),
        None => conditions.push(condition.clone()),
    }
    if condition.type_ == "Complete" {
        view.status.completion_time.clone_from(&condition.last_transition_time);
    }
    Some(condition)
}

/// `recordJobFinished`.
fn report_end(view: &mut View<'_>, condition: &JobCondition) {
    if condition.type_ == "Complete" {
        let succeeded = view.status.succeeded.unwrap_or_default();
        if view.spec.completions.is_some_and(|completions| succeeded > completions) {
            let message = "Too many succeeded pods running after completion count reached";
            view.writes.push(Write::Event(EventNote::warning(view.key, "TooManySucceededPods", message)));
        }
        view.writes.push(Write::Event(EventNote::normal(view.key, "Completed", "Job completed")));
        return;
    }
    let reason = REASONS.into_iter().find(|reason| condition.reason.as_deref() == Some(reason)).unwrap_or("Failed");
    let message = condition.message.clone().unwrap_or_default();
    view.writes.push(Write::Event(EventNote::warning(view.key, reason, message)));
}

/// The reasons for which a Job fails.
const REASONS: [&str; 5] =
    ["BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "MaxFailedIndexesExceeded", "FailedIndexes"];
