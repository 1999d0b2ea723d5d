//! The two strategies: RollingUpdate (`rolling.go`) and Recreate (`recreate.go`).

use super::limits::{desired, max_unavailable};
use super::replica_sets::{Set, active, available, size, total};
use super::{Ended, Sets, Sync, pods_of};
use crate::pods::has_ended;

impl Sync<'_> {
    /// One step of a rolling update: the new ReplicaSet grows; if it cannot, the old ones shrink.
    pub(super) fn roll_out(&mut self) -> Result<(), Ended> {
        let sets = self.find_sets(true)?;
        let Some(new) = sets.new.clone() else { return Err(Ended) };
        if !self.scale_new(&sets, &new) && !self.scale_down_old(&sets, &new) && self.is_complete(&self.status()) {
            self.clean_up(&sets.old);
        }
        self.sync_rollout_status(&sets);
        Ok(())
    }

    /// Gives whether the new ReplicaSet was scaled (`reconcileNewReplicaSet`).
    fn scale_new(&mut self, sets: &Sets, new: &Set) -> bool {
        let desired = desired(&self.deployment);
        let wanted = if size(new) >= desired { desired } else { self.new_size(&sets.old, new) };
        self.resize(new, wanted, false).0
    }

    /// Gives whether an old ReplicaSet was scaled down (`reconcileOldReplicaSets`).
    pub(super) fn scale_down_old(&mut self, sets: &Sets, new: &Set) -> bool {
        let old = active(&sets.old);
        if old.is_empty() {
            return false;
        }
        let min_available = desired(&self.deployment) - max_unavailable(&self.deployment);
        let new_unavailable = size(new) - available(new);
        let most = total(sets.all(), size) - min_available - new_unavailable;
        if most <= 0 {
            return false;
        }
        let Some((old, removed)) = self.remove_unavailable(&old, most) else { return false };
        let surplus = total(old.iter().chain([new]), available) - min_available;
        let mut left = surplus.max(0);
        for set in old.iter().filter(|set| size(set) > 0) {
            if left > 0 {
                let count = left.min(size(set));
                self.resize(set, size(set) - count, false);
                left -= count;
            }
        }
        removed > 0 || left < surplus
    }

    /// All old pods end before the first new one is created.
    pub(super) fn recreate(&mut self) -> Result<(), Ended> {
        let mut sets = self.find_sets(false)?;
        let mut scaled_down = false;
        for old in active(&sets.old) {
            scaled_down |= self.resize(&old, 0, false).0;
        }
        if scaled_down || self.old_pods_run(&sets) {
            self.sync_rollout_status(&sets);
            return Ok(());
        }
        if sets.new.is_none() {
            sets = self.find_sets(true)?;
        }
        if let Some(new) = &sets.new {
            self.resize(new, desired(&self.deployment), false);
        }
        if self.is_complete(&self.status()) {
            self.clean_up(&sets.old);
        }
        self.sync_rollout_status(&sets);
        Ok(())
    }

    /// Whether an old ReplicaSet reports pods, or has one that has not ended: being deleted is not enough
    /// (`oldPodsRunning`).
    fn old_pods_run(&self, sets: &Sets) -> bool {
        let reported = |set: &Set| set.status.as_ref().is_some_and(|status| status.replicas > 0);
        let runs = |set: &Set| pods_of(self.store, set).any(|pod| !has_ended(pod));
        sets.old.iter().any(|set| reported(set) || runs(set))
    }
}
