//! When a Job makes another pod: each failure makes it wait longer, and too many end it.
//!
//! Mirrors kube-controller-manager's job controller (pkg/controller/job).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use stead_model::{Objects, PodController, PodView};

use super::course::{Course, Life};
use super::fate::Fate;

/// What is said of a Job that makes no more pods.
pub(super) const TOO_OFTEN: &str = "its Job has failed too often and ends";

fn spec(job: Option<&Job>) -> Option<&JobSpec> {
    job?.spec.as_ref()
}

impl Course<'_> {
    /// When a Job makes another pod for one, or none where that never counts as failed; an error where it is one failure too
    /// many.
    pub(super) fn retried(
        &self,
        job: Option<&Job>,
        pod: PodView,
        fate: Fate,
    ) -> Result<Option<Timestamp>, &'static str> {
        let failed = if waits_for_end(job) { fate.ended } else { fate.deleted };
        let Some(failed) = failed else { return Ok(None) };
        // It is finished since it is not ready any more, or since it was deleted (getFinishedTime). The node controller takes
        // readiness from the pods of a node when it finds that silent.
        let unready = pod.condition_since("Ready", "False");
        let silent = pod.node().filter(|n| pod.is_ready() && self.life(n) == Life::Silent);
        let found = silent.and_then(|n| self.found(n)).filter(|found| *found < failed);
        let retry = retry(job, failures(job, pod), unready.or(found).unwrap_or(failed));
        retry.map(|at| Some(at.max(failed))).ok_or(TOO_OFTEN)
    }
}

/// How many failures a Job counts once it has counted this pod's. What waits in `uncountedTerminatedPods` counts already
/// (syncJob); a pod that is being deleted without its finalizer was counted before (trackJobStatusAndRemoveFinalizers).
pub(super) fn failures(job: Option<&Job>, pod: PodView) -> i64 {
    let status = job.and_then(|job| job.status.as_ref());
    let counted = i64::from(status.and_then(|status| status.failed).unwrap_or_default());
    let waiting =
        status.and_then(|status| status.uncounted_terminated_pods.as_ref()?.failed.as_deref()).unwrap_or_default();
    let over = (pod.is_terminating() || pod.has_ended()) && !pod.is_tracked_by_job();
    let known = over || waiting.iter().any(|uid| Some(uid.as_str()) == pod.uid());
    let waiting = i64::try_from(waiting.len()).unwrap_or(i64::MAX);
    counted.saturating_add(waiting).saturating_add(i64::from(!known)).max(1)
}

/// When a Job makes another pod after so many failures, the last of which finished at a moment; none where that is one too
/// many (getRemainingTimeForFailuresCount).
pub(super) fn retry(job: Option<&Job>, failures: i64, finished: Timestamp) -> Option<Timestamp> {
    if failures > i64::from(spec(job).and_then(|spec| spec.backoff_limit).unwrap_or(6)) {
        return None;
    }
    let doublings = u32::try_from(failures - 1).unwrap_or_default().min(6);
    Some(finished + SignedDuration::from_secs((10 << doublings).min(600)))
}

/// Whether a Job replaces only pods that have failed, and not yet those that are being deleted (onlyReplaceFailedPods).
pub(super) fn waits_for_end(job: Option<&Job>) -> bool {
    match spec(job).and_then(|spec| spec.pod_replacement_policy.as_deref()) {
        Some(policy) => policy == "Failed",
        None => spec(job).is_some_and(|spec| spec.pod_failure_policy.is_some()),
    }
}

/// Whether the object of a pod that is deleted by force stays all the same: such a Job takes its finalizer from no pod that
/// has not failed (canRemoveFinalizer, isPodFailed).
pub(super) fn keeps(objects: &Objects, pod: PodView) -> bool {
    let waits = matches!(PodController::of(objects, pod), PodController::Job { job } if waits_for_end(job));
    waits && pod.is_tracked_by_job() && !pod.has_ended()
}
