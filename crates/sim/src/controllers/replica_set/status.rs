//! The status of a ReplicaSet (`replica_set_utils.go`).

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetCondition, ReplicaSetStatus};

use super::tally::Tally;
use crate::pods::reported;
use crate::settings::Settings;
use crate::step::Write;

/// The type of the condition that says why pods cannot be created or deleted.
const REPLICA_FAILURE: &str = "ReplicaFailure";

/// Why pods were not created or deleted.
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The status of a set with this many pods (`calculateStatus`).
pub(super) fn calculate(
    set: &ReplicaSet,
    tally: Tally,
    available: i32,
    failure: Option<Failure>,
    settings: &Settings,
    now: Timestamp,
) -> ReplicaSetStatus {
    let mut conditions = set.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let failed = conditions.iter().any(|condition| condition.type_ == REPLICA_FAILURE);
    match failure {
        Some(failure) if !failed => conditions.push(ReplicaSetCondition {
            type_: REPLICA_FAILURE.into(),
            status: "True".into(),
            reason: Some(failure.reason.into()),
            message: Some(failure.message),
            last_transition_time: reported(now),
        }),
        Some(_) => {}
        None => conditions.retain(|condition| condition.type_ != REPLICA_FAILURE),
    }
    let some = |count: i32| Some(count).filter(|count| *count != 0);
    ReplicaSetStatus {
        replicas: tally.active,
        fully_labeled_replicas: some(tally.labeled),
        ready_replicas: some(tally.ready),
        available_replicas: some(available),
        terminating_replicas: settings.since(35).then_some(tally.terminating),
        observed_generation: set.metadata.generation,
        conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
    }
}

/// Writes a status if it is a new one (`updateReplicaSetStatus`).
pub(super) fn write(set: &Arc<ReplicaSet>, status: ReplicaSetStatus) -> Option<Write> {
    let mut old = set.status.clone().unwrap_or_default();
    for count in [&mut old.fully_labeled_replicas, &mut old.ready_replicas, &mut old.available_replicas] {
        *count = count.filter(|count| *count != 0);
    }
    old.conditions = old.conditions.filter(|conditions| !conditions.is_empty());
    if old == status {
        return None;
    }
    let mut set = ReplicaSet::clone(set);
    set.status = Some(status);
    Some(Write::Status(set.into()))
}
