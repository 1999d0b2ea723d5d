//! When a Job makes another pod: each failure makes it wait longer, and too many end it.
//!
//! Mirrors kube-controller-manager's job controller (pkg/controller/job).

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::course::{Course, Life};
use super::fate::Fate;
use super::makers::Maker;
use super::node::time;
use super::pod::PodSeen;
use stead_model::Objects;

/// The finalizer by which the job controller tells the pods that it has not counted yet.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// What is said of a Job that makes no more pods.
pub(super) const TOO_OFTEN: &str = "its Job has failed too often and ends";

impl Course<'_> {
    /// When a Job makes another pod for one, or none where that never counts as failed; an error where it is one failure too
    /// many.
    pub(super) fn retried(&self, job: &Value, pod: PodSeen, fate: Fate) -> Result<Option<Timestamp>, &'static str> {
        let failed = if waits_for_end(job) { fate.ended } else { fate.deleted };
        let Some(failed) = failed else { return Ok(None) };
        // It is finished since it is not ready any more, or since it was deleted (getFinishedTime). The node controller takes
        // readiness from the pods of a node when it finds that silent.
        let unready = pod.condition("Ready").filter(|c| c["status"] == "False");
        let unready = unready.and_then(|c| time(&c["lastTransitionTime"]));
        let silent = pod.node().filter(|n| pod.ready() && self.life(n) == Life::Silent);
        let found = silent.and_then(|n| self.found(n)).filter(|found| *found < failed);
        let retry = retry(job, failures(job, pod), unready.or(found).unwrap_or(failed));
        retry.map(|at| Some(at.max(failed))).ok_or(TOO_OFTEN)
    }
}

/// How many failures a Job counts once it has counted this pod's. What waits in `uncountedTerminatedPods` counts already
/// (syncJob); a pod that is being deleted without its finalizer was counted before (trackJobStatusAndRemoveFinalizers).
pub(super) fn failures(job: &Value, pod: PodSeen) -> i64 {
    let counted = job["status"]["failed"].as_i64().unwrap_or_default();
    let waiting = job["status"]["uncountedTerminatedPods"]["failed"].as_array().map(Vec::as_slice).unwrap_or_default();
    let over = (pod.due().is_some() || pod.ended()) && !is_tracked(pod);
    let known = over || waiting.contains(&pod.0["metadata"]["uid"]);
    let waiting = i64::try_from(waiting.len()).unwrap_or(i64::MAX);
    counted.saturating_add(waiting).saturating_add(i64::from(!known)).max(1)
}

/// When a Job makes another pod after so many failures, the last of which finished at a moment; none where that is one too
/// many (getRemainingTimeForFailuresCount).
pub(super) fn retry(job: &Value, failures: i64, finished: Timestamp) -> Option<Timestamp> {
    if failures > job["spec"]["backoffLimit"].as_i64().unwrap_or(6) {
        return None;
    }
    let doublings = u32::try_from(failures - 1).unwrap_or_default().min(6);
    Some(finished + SignedDuration::from_secs((10 << doublings).min(600)))
}

/// Whether a Job replaces only pods that have failed, and not yet those that are being deleted (onlyReplaceFailedPods).
pub(super) fn waits_for_end(job: &Value) -> bool {
    match job["spec"]["podReplacementPolicy"].as_str() {
        Some(policy) => policy == "Failed",
        None => job["spec"].get("podFailurePolicy").is_some(),
    }
}

/// Whether the object of a pod that is deleted by force stays all the same: such a Job takes its finalizer from no pod that
/// has not failed (canRemoveFinalizer, isPodFailed).
pub(super) fn keeps(objects: &Objects, pod: PodSeen) -> bool {
    let waits = matches!(Maker::of(objects, pod), Maker::Job(job) if waits_for_end(job));
    waits && is_tracked(pod) && !pod.ended()
}

fn is_tracked(pod: PodSeen) -> bool {
    pod.0["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|f| f == TRACKING))
}
