//! The status of a Deployment: counters, conditions and progress (`sync.go`, `progress.go`).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{DeploymentCondition, DeploymentStatus, ReplicaSet, ReplicaSetCondition};
use stead_model::times::seconds;

use super::limits::{desired, max_unavailable};
use super::replica_sets::{Set, available, name, size, total};
use super::{Sets, Sync};
use crate::pods::reported;

pub(super) const PROGRESSING: &str = "Progressing";
const AVAILABLE: &str = "Available";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const TIMED_OUT: &str = "ProgressDeadlineExceeded";
const PAUSED: &str = "DeploymentPaused";

/// How long a Deployment may make no progress, unless it says otherwise.
const DEFAULT_DEADLINE: i32 = 600;

/// A condition that changes now.
pub(super) fn condition(
    type_: &str,
    status: &str,
    reason: &str,
    message: impl Into<String>,
    now: Timestamp,
) -> DeploymentCondition {
    DeploymentCondition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_update_time: reported(now),
        last_transition_time: reported(now),
    }
}

/// A condition of this type.
pub(super) fn find<'a>(status: &'a DeploymentStatus, type_: &str) -> Option<&'a DeploymentCondition> {
    status.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
}

/// Sets a condition, unless status and reason stay the same (`SetDeploymentCondition`).
pub(super) fn set(status: &mut DeploymentStatus, mut condition: DeploymentCondition) {
    if let Some(before) = find(status, &condition.type_).filter(|before| before.status == condition.status) {
        if before.reason == condition.reason {
            return;
        }
        condition.last_transition_time = before.last_transition_time.clone();
    }
    remove(status, &condition.type_);
    status.conditions.get_or_insert_default().push(condition);
}

fn remove(status: &mut DeploymentStatus, type_: &str) {
    let conditions = status.conditions.take().unwrap_or_default();
    let kept: Vec<_> = conditions.into_iter().filter(|condition| condition.type_ != type_).collect();
    status.conditions = Some(kept).filter(|kept| !kept.is_empty());
}

fn reason_of(condition: Option<&DeploymentCondition>) -> Option<&str> {
    condition?.reason.as_deref()
}

/// As the API server returns it: no zeros and no empty lists.
fn normalized(mut status: DeploymentStatus) -> DeploymentStatus {
    for count in [
        &mut status.replicas,
        &mut status.updated_replicas,
        &mut status.ready_replicas,
        &mut status.available_replicas,
        &mut status.unavailable_replicas,
    ] {
        *count = count.filter(|count| *count != 0);
    }
    status.conditions = status.conditions.filter(|conditions| !conditions.is_empty());
    status
}

fn replicas(set: &ReplicaSet) -> i32 {
    set.status.as_ref().map(|status| status.replicas).unwrap_or_default()
}

fn ready(set: &ReplicaSet) -> i32 {
    set.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default()
}

/// The sum of terminating pods; none if a set that was looked at does not report them.
fn terminating<'a>(sets: impl Iterator<Item = &'a Set>) -> Option<i32> {
    let mut sum = 0;
    for set in sets {
        let status = set.status.as_ref();
        let observed = status.and_then(|status| status.observed_generation).unwrap_or_default();
        match status.and_then(|status| status.terminating_replicas) {
            Some(count) => sum += count,
            None if observed == 0 => {}
            None => return None,
        }
    }
    Some(sum)
}

impl Sync<'_> {
    /// The time that a rollout may make no progress; none if it may take for ever (`HasProgressDeadline`).
    fn progress_deadline(&self) -> Option<SignedDuration> {
        let deadline = self.deployment.spec.as_ref().and_then(|spec| spec.progress_deadline_seconds);
        let deadline = deadline.unwrap_or(DEFAULT_DEADLINE);
        (deadline != i32::MAX).then(|| seconds(i64::from(deadline)))
    }

    pub(super) fn has_progress_deadline(&self) -> bool {
        self.progress_deadline().is_some()
    }

    /// Notes that the Deployment is paused or goes on: the deadline does not run while it is paused.
    pub(super) fn check_paused_conditions(&mut self) {
        let status = self.status();
        let reason = reason_of(find(&status, PROGRESSING));
        if !self.has_progress_deadline() || reason == Some(TIMED_OUT) {
            return;
        }
        let (reason, message) = match (self.is_paused(), reason == Some(PAUSED)) {
            (true, false) => (PAUSED, "Deployment is paused"),
            (false, true) => ("DeploymentResumed", "Deployment is resumed"),
            _ => return,
        };
        let condition = condition(PROGRESSING, "Unknown", reason, message, self.now);
        set(self.status_mut(), condition);
        self.write_status();
    }

    /// The status by the counters of the ReplicaSets (`calculateStatus`).
    fn calculate_status(&self, sets: &Sets) -> DeploymentStatus {
        let old = self.status();
        let available = total(sets.all(), available);
        let desired = desired(&self.deployment);
        let mut new = DeploymentStatus {
            observed_generation: self.deployment.metadata.generation,
            replicas: Some(total(sets.all(), replicas)),
            updated_replicas: Some(total(&sets.new, replicas)),
            ready_replicas: Some(total(sets.all(), ready)),
            available_replicas: Some(available),
            unavailable_replicas: Some(total(sets.all(), size).saturating_sub(available).max(0)),
            terminating_replicas: terminating(sets.all()).filter(|_| self.settings.since(35)),
            collision_count: old.collision_count,
            conditions: old.conditions,
        };
        let minimum = if available >= desired - max_unavailable(&self.deployment) {
            let message = "Deployment has minimum availability.";
            condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, self.now)
        } else {
            let message = "Deployment does not have minimum availability.";
            condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, self.now)
        };
        set(&mut new, minimum);
        new
    }

    /// Writes the status, without a judgement about progress (`syncDeploymentStatus`).
    pub(super) fn sync_status(&mut self, sets: &Sets) {
        let new = self.calculate_status(sets);
        self.write_if_new(new);
    }

    /// Writes the status if it is a new one. Gives whether it is.
    fn write_if_new(&mut self, new: DeploymentStatus) -> bool {
        let new = normalized(new);
        if new == normalized(self.status()) {
            return false;
        }
        *self.status_mut() = new;
        self.write_status();
        true
    }

    /// Writes the status with the progress of the rollout (`syncRolloutStatus`).
    pub(super) fn sync_rollout_status(&mut self, sets: &Sets) {
        let old = self.status();
        let mut new = self.calculate_status(sets);
        if !self.has_progress_deadline() {
            remove(&mut new, PROGRESSING);
        }
        let current = find(&old, PROGRESSING);
        let done = new.replicas == new.updated_replicas && reason_of(current) == Some(NEW_SET_AVAILABLE);
        if self.has_progress_deadline() && !done {
            self.judge_progress(sets, &old, &mut new);
        }
        let failures = |set: &Set| replica_failure(set);
        match sets.new.iter().chain(&sets.old).find_map(failures) {
            Some(failure) => set(&mut new, failure),
            None => remove(&mut new, REPLICA_FAILURE),
        }
        if !self.write_if_new(new.clone()) {
            self.again = self.next_progress_check(&new);
        }
    }

    fn judge_progress(&self, sets: &Sets, old: &DeploymentStatus, new: &mut DeploymentStatus) {
        let subject = match &sets.new {
            Some(set) => format!("ReplicaSet \"{}\"", name(set)),
            None => format!("Deployment \"{}\"", self.key.name),
        };
        if self.is_complete(new) {
            let message = format!("{subject} has successfully progressed.");
            set(new, condition(PROGRESSING, "True", NEW_SET_AVAILABLE, message, self.now));
        } else if made_progress(old, new) {
            let message = format!("{subject} is progressing.");
            let mut progress = condition(PROGRESSING, "True", "ReplicaSetUpdated", message, self.now);
            // Even with the same reason the time of the last progress is a new one.
            if let Some(current) = find(old, PROGRESSING) {
                if current.status == "True" {
                    progress.last_transition_time = current.last_transition_time.clone();
                }
                remove(new, PROGRESSING);
            }
            set(new, progress);
        } else if self.has_timed_out(new) {
            let message = format!("{subject} has timed out progressing.");
            set(new, condition(PROGRESSING, "False", TIMED_OUT, message, self.now));
        }
    }

    /// Whether all pods are new and available, and there are no others (`DeploymentComplete`).
    pub(super) fn is_complete(&self, status: &DeploymentStatus) -> bool {
        let desired = desired(&self.deployment);
        let all = |count: Option<i32>| count.unwrap_or_default() == desired;
        all(status.updated_replicas)
            && all(status.replicas)
            && all(status.available_replicas)
            && status.observed_generation.unwrap_or_default() >= self.deployment.metadata.generation.unwrap_or_default()
    }

    /// `DeploymentTimedOut`.
    fn has_timed_out(&self, status: &DeploymentStatus) -> bool {
        let Some((deadline, current)) = self.progress_deadline().zip(find(status, PROGRESSING)) else { return false };
        match reason_of(Some(current)) {
            Some(NEW_SET_AVAILABLE) => false,
            Some(TIMED_OUT) => true,
            _ => current.last_update_time.as_ref().is_some_and(|updated| updated.0 + deadline < self.now),
        }
    }

    /// When the deadline has to be checked again (`requeueStuckDeployment`).
    fn next_progress_check(&self, status: &DeploymentStatus) -> Option<SignedDuration> {
        let current = self.deployment.status.as_ref().and_then(|status| find(status, PROGRESSING))?;
        // A rollout that was complete cannot time out: Kubernetes checks it all the same, ten times a second.
        if self.is_complete(status) || matches!(reason_of(Some(current)), Some(TIMED_OUT | NEW_SET_AVAILABLE)) {
            return None;
        }
        let due = current.last_update_time.as_ref()?.0 + self.progress_deadline()?;
        let after = due.duration_since(self.now);
        let second = SignedDuration::from_secs(1);
        // In the last second Kubernetes tries again and again, until the deadline is over.
        let retry = self.settings.timers.retry;
        Some(if after < second { after.max(SignedDuration::ZERO) + retry } else { after + second })
    }
}

/// Whether there are more new pods, fewer old ones, or more that are ready or available (`DeploymentProgressing`).
fn made_progress(old: &DeploymentStatus, new: &DeploymentStatus) -> bool {
    let count = |count: Option<i32>| count.unwrap_or_default();
    let old_pods = |status: &DeploymentStatus| count(status.replicas) - count(status.updated_replicas);
    count(new.updated_replicas) > count(old.updated_replicas)
        || old_pods(new) < old_pods(old)
        || count(new.ready_replicas) > count(old.ready_replicas)
        || count(new.available_replicas) > count(old.available_replicas)
}

/// The ReplicaFailure condition of a ReplicaSet, as one of the Deployment.
fn replica_failure(set: &Set) -> Option<DeploymentCondition> {
    let conditions = set.status.as_ref()?.conditions.as_ref()?;
    let failure: &ReplicaSetCondition = conditions.iter().find(|condition| condition.type_ == REPLICA_FAILURE)?;
    Some(DeploymentCondition {
        type_: failure.type_.clone(),
        status: failure.status.clone(),
        reason: failure.reason.clone(),
        message: failure.message.clone(),
        last_update_time: failure.last_transition_time.clone(),
        last_transition_time: failure.last_transition_time.clone(),
    })
}
