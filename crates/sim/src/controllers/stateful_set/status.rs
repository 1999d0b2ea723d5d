//! The status of a StatefulSet (`computeReplicaStatus`, `completeRollingUpdate`, `inconsistentStatus`).

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::Pod;
use stead_model::stateful_set::replicas;

use super::identity::revision_of;
use super::revisions::Revisions;
use super::{is_on_delete, is_running_and_ready, min_ready_seconds};
use crate::pods::{is_available, is_terminating};
use crate::step::Write;

/// How many pods a set has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Counters {
    pub(super) replicas: i32,
    pub(super) ready: i32,
    pub(super) available: i32,
    pub(super) current: i32,
    pub(super) updated: i32,
}

impl Counters {
    /// Counts pods. Those that are being deleted count, but for no revision.
    pub(super) fn of<'a>(
        pods: impl Iterator<Item = &'a Arc<Pod>>,
        set: &StatefulSet,
        revisions: &Revisions,
        now: Timestamp,
    ) -> Counters {
        let mut counters = Counters::default();
        for pod in pods {
            counters.replicas += 1;
            if is_running_and_ready(pod) {
                counters.ready += 1;
                counters.available += i32::from(is_available(pod, min_ready_seconds(set), now));
            }
            if !is_terminating(pod) {
                counters.current += i32::from(revision_of(pod) == revisions.current.name);
                counters.updated += i32::from(revision_of(pod) == revisions.update.name);
            }
        }
        counters
    }

    /// The status of a set with these pods. An update is complete when all pods are new and ready.
    pub(super) fn status(mut self, set: &StatefulSet, revisions: &Revisions) -> StatefulSetStatus {
        let wanted = i32::try_from(replicas(set)).unwrap_or(i32::MAX);
        let complete = self.updated == wanted && self.ready == wanted && self.replicas == wanted;
        let mut current_revision = &revisions.current.name;
        if !is_on_delete(set) && complete {
            self.current = self.updated;
            current_revision = &revisions.update.name;
        }
        let some = |count: i32| Some(count).filter(|count| *count != 0);
        StatefulSetStatus {
            observed_generation: set.metadata.generation,
            replicas: self.replicas,
            ready_replicas: some(self.ready),
            available_replicas: Some(self.available),
            current_replicas: some(self.current),
            updated_replicas: some(self.updated),
            current_revision: Some(current_revision.clone()),
            update_revision: Some(revisions.update.name.clone()),
            collision_count: Some(revisions.collisions),
            conditions: None,
        }
    }
}

/// Writes a status if a number or a revision in it is a new one.
pub(super) fn write(set: &Arc<StatefulSet>, new: StatefulSetStatus) -> Option<Write> {
    let old = set.status.clone().unwrap_or_default();
    let count = |count: Option<i32>| count.unwrap_or_default();
    let same = new.observed_generation.unwrap_or_default() <= old.observed_generation.unwrap_or_default()
        && new.replicas == old.replicas
        && count(new.current_replicas) == count(old.current_replicas)
        && count(new.ready_replicas) == count(old.ready_replicas)
        && count(new.updated_replicas) == count(old.updated_replicas)
        && count(new.available_replicas) == count(old.available_replicas)
        && new.current_revision == old.current_revision
        && new.update_revision == old.update_revision;
    if same {
        return None;
    }
    let mut set = StatefulSet::clone(set);
    set.status = Some(new);
    Some(Write::Status(set.into()))
}
