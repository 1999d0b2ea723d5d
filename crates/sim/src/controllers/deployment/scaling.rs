//! Scaling of ReplicaSets, and the deletion of those that are too old (`sync.go`).

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ReplicaSet;

use super::limits::{desired, is_rolling_update, max_surge};
use super::new_replica_set::written;
use super::replica_sets::{
    Set, active, available, by_age, desired_replicas, max_replicas, name, note_replicas, replicas_are_noted, revision,
    size, total,
};
use super::{Sets, Sync};
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::step::{DeleteOptions, Write};

impl Sync<'_> {
    /// Scales the ReplicaSets of a Deployment that was scaled or is paused: in the middle of a rollout all of them, in
    /// proportion.
    pub(super) fn scale(&mut self, sets: &Sets) {
        let desired = desired(&self.deployment);
        let mut with_pods = active(sets.all());
        if with_pods.len() < 2 {
            // The only one with pods, or the latest one.
            let latest = || sets.new.clone().or_else(|| sets.old.iter().max_by(|a, b| by_age(a, b)).cloned());
            if let Some(only) = with_pods.pop().or_else(latest) {
                self.resize(&only, desired, false);
            }
            return;
        }
        if sets.new.as_ref().is_some_and(|new| is_saturated(new, desired)) {
            for old in active(&sets.old) {
                self.resize(&old, 0, false);
            }
            return;
        }
        if is_rolling_update(&self.deployment) {
            self.scale_in_proportion(with_pods);
        }
    }

    fn scale_in_proportion(&mut self, mut sets: Vec<Set>) {
        let desired = desired(&self.deployment);
        let allowed = if desired > 0 { desired.saturating_add(max_surge(&self.deployment)) } else { 0 };
        let to_add = allowed.saturating_sub(total(&sets, size));
        match to_add.signum() {
            1 => sets.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| by_age(b, a))),
            -1 => sets.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| by_age(a, b))),
            _ => {}
        }
        let mut added = 0;
        let mut sizes: Vec<i32> = Vec::with_capacity(sets.len());
        for set in &sets {
            let share = self.proportion(set, to_add, added);
            sizes.push(size(set) + share);
            added += share;
        }
        // The largest one gets what is left over.
        if let Some(first) = sizes.first_mut().filter(|_| to_add != 0) {
            *first = (*first + to_add - added).max(0);
        }
        for (set, size) in sets.iter().zip(sizes) {
            self.resize(set, size, true);
        }
    }

    /// The share of a ReplicaSet in the pods to add or to remove (`GetReplicaSetProportion`).
    fn proportion(&self, set: &ReplicaSet, to_add: i32, added: i32) -> i32 {
        if size(set) == 0 || to_add == 0 || to_add == added {
            return 0;
        }
        let (fraction, left) = (self.fraction(set), to_add - added);
        if to_add > 0 { fraction.min(left) } else { fraction.max(left) }
    }

    /// By how much a ReplicaSet changes if it keeps its share of all pods (`getReplicaSetFraction`).
    fn fraction(&self, set: &ReplicaSet) -> i32 {
        let desired = desired(&self.deployment);
        if desired == 0 {
            return -size(set);
        }
        let reported = self.deployment.status.as_ref().and_then(|status| status.replicas).unwrap_or_default();
        let before = max_replicas(set).filter(|count| *count != 0).unwrap_or(reported);
        if before == 0 {
            return 0;
        }
        let most = desired.saturating_add(max_surge(&self.deployment));
        let share = f64::from(size(set).wrapping_mul(most)) / f64::from(before);
        // A float is cut at the limits of the integer.
        (share.round() as i32).saturating_sub(size(set))
    }

    /// Gives a ReplicaSet another size; if forced also other annotations. Gives whether the size is another one, and
    /// the ReplicaSet after that (`scaleReplicaSet`).
    pub(super) fn resize(&mut self, set: &Set, new: i32, force: bool) -> (bool, Set) {
        let old = size(set);
        if old == new && (!force || replicas_are_noted(set, &self.deployment)) {
            return (false, Arc::clone(set));
        }
        let mut resized = Arc::clone(set);
        let changed = Arc::make_mut(&mut resized);
        changed.spec.get_or_insert_default().replicas = Some(new);
        note_replicas(changed, &self.deployment);
        self.writes.push(Write::Replace(SimObject::ReplicaSet(Arc::clone(&resized))));
        if old != new {
            let (name, direction) = (name(set), if old < new { "up" } else { "down" });
            let message = match self.settings.since(32) {
                true => format!("Scaled {direction} replica set {name} from {old} to {new}"),
                false => format!("Scaled {direction} replica set {name} to {new} from {old}"),
            };
            self.report("ScalingReplicaSet", message);
        }
        (old != new, written(resized))
    }

    /// Deletes the ReplicaSets of the oldest revisions beyond the history limit (`cleanupDeployment`).
    pub(super) fn clean_up(&mut self, old: &[Set]) {
        let limit = self.deployment.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        let mut kept: Vec<&Set> = old.iter().filter(|set| set.metadata.deletion_timestamp.is_none()).collect();
        let limit = usize::try_from(limit).unwrap_or_default();
        if kept.len() <= limit {
            return;
        }
        kept.sort_by(|a, b| match (revision(a), revision(b)) {
            (Some(x), Some(y)) if x != y => x.cmp(&y),
            _ => by_age(a, b),
        });
        for set in &kept[..kept.len() - limit] {
            let status = set.status.clone().unwrap_or_default();
            let observed = status.observed_generation.unwrap_or_default() >= set.metadata.generation.unwrap_or_default();
            if status.replicas == 0 && size(set) == 0 && observed {
                let key = SimKey::new(ObjectKind::ReplicaSet, &self.key.namespace, name(set));
                self.writes.push(Write::Delete(key, DeleteOptions::default()));
            }
        }
    }

    /// Scales down pods of old ReplicaSets that are not available, the oldest ones first. Gives the ReplicaSets after
    /// that, and by how many pods (`cleanupUnhealthyReplicas`). None if a ReplicaSet has yet to report that it was
    /// scaled down.
    pub(super) fn remove_unavailable(&mut self, old: &[Set], most: i32) -> Option<(Vec<Set>, i32)> {
        let mut removed = 0;
        let mut resized = Vec::with_capacity(old.len());
        for set in old {
            let unavailable = size(set) - available(set);
            if removed >= most || size(set) == 0 || unavailable == 0 {
                resized.push(Arc::clone(set));
                continue;
            }
            if unavailable < 0 {
                return None;
            }
            let count = unavailable.min(most - removed);
            resized.push(self.resize(set, size(set) - count, false).1);
            removed += count;
        }
        Some((resized, removed))
    }
}

/// Whether the new ReplicaSet has all pods of the Deployment, and all are available (`IsSaturated`).
fn is_saturated(new: &ReplicaSet, desired: i32) -> bool {
    size(new) == desired && desired_replicas(new) == Some(desired) && available(new) == desired
}
