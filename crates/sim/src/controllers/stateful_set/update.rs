//! What a StatefulSet does about its pods (`updateStatefulSet`): it creates those that are missing, deletes those that
//! are too many, and replaces those of an old revision.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use stead_model::KubernetesVersion;
use stead_model::stateful_set::{claim_templates, is_ordered, pod_name, replicas, start_ordinal};

use super::events::{self, Verb};
use super::identity::{
    identity_matches, name, new_pod, ordinal, revision_of, set_identity, storage_matches,
};
use super::retention::ClaimOwners;
use super::revisions::{Revision, Revisions};
use super::status::Counters;
use super::{is_on_delete, is_running_and_ready, min_ready_seconds, rolling_update};
use crate::event_log::EventNote;
use crate::int_or_percent::scaled;
use crate::object::SimKey;
use crate::pods::{has_ended, is_available, is_terminating, phase};
use crate::step::{Context, DeleteOptions, Write};

/// How many pods are processed at the same time at most.
const MAX_BATCH: usize = 500;

/// A pod that the set wants.
#[derive(Debug, Clone)]
enum Replica {
    Existing(Arc<Pod>),
    /// Nobody has created it, or this update has.
    Missing(u32),
}

/// How the processing of a pod ended.
enum Progress {
    /// The next one can be processed.
    Next,
    /// Ordered pods wait here.
    Wait,
    /// An error: it is tried again.
    Failed,
}

/// One update of a set.
pub(super) struct Update<'a, 'b> {
    pub(super) cx: &'a Context<'b>,
    pub(super) key: &'a SimKey,
    pub(super) set: &'a Arc<StatefulSet>,
    revisions: &'a Revisions,
    /// By ordinal.
    replicas: Vec<Replica>,
    /// Higher ordinals first.
    condemned: Vec<Arc<Pod>>,
    pub(super) writes: &'a mut Vec<Write>,
}

/// What an update found and did.
pub(super) struct Outcome {
    pub(super) counters: Counters,
    /// The counters if a write of the update is refused.
    pub(super) counters_on_error: Counters,
    /// Whether it has to be tried again.
    pub(super) failed: bool,
}

impl<'a, 'b> Update<'a, 'b> {
    pub(super) fn new(
        cx: &'a Context<'b>,
        key: &'a SimKey,
        set: &'a Arc<StatefulSet>,
        revisions: &'a Revisions,
        pods: &[Arc<Pod>],
        writes: &'a mut Vec<Write>,
    ) -> Update<'a, 'b> {
        let start = start_ordinal(set);
        // More than there can be objects are never created.
        let wanted = (start..start.saturating_add(replicas(set))).take(cx.settings.limits.objects);
        let mut wanted: Vec<Replica> = wanted.map(Replica::Missing).collect();
        let mut condemned = Vec::new();
        for pod in pods {
            let Some(ordinal) = ordinal(pod) else { continue };
            let place = ordinal.checked_sub(start).and_then(|index| wanted.get_mut(index as usize));
            match place {
                Some(place) => *place = Replica::Existing(Arc::clone(pod)),
                None => condemned.push(Arc::clone(pod)),
            }
        }
        condemned.sort_by_key(|pod| std::cmp::Reverse(ordinal(pod)));
        Update { cx, key, set, revisions, replicas: wanted, condemned, writes }
    }

    pub(super) fn run(mut self) -> Outcome {
        let mut failed = false;
        let mut deleted = 0;
        if self.set.metadata.deletion_timestamp.is_none() {
            match self.establish() {
                Progress::Next => deleted = self.roll_out(),
                Progress::Wait => {}
                Progress::Failed => failed = true,
            }
        }
        let counters_on_error = self.counters();
        let counters = Counters { current: counters_on_error.current - deleted, ..counters_on_error };
        Outcome { counters, counters_on_error, failed }
    }

    fn counters(&self) -> Counters {
        let existing = self.replicas.iter().filter_map(|replica| match replica {
            Replica::Existing(pod) => Some(pod),
            Replica::Missing(_) => None,
        });
        Counters::of(existing.chain(&self.condemned), self.set, self.revisions, self.cx.now)
    }

    /// Processes the pods that are wanted, then those that are not.
    fn establish(&mut self) -> Progress {
        let first_unavailable = self.first_unavailable();
        let count = self.replicas.len();
        match self.for_all(count, Self::process_replica) {
            Progress::Next => {}
            end => return end,
        }
        let condemned = self.condemned.clone();
        for pod in &condemned {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            if !self.claim_owners_match(name(pod), uid) {
                self.update_claim_owners(name(pod), uid);
            }
        }
        self.for_all(condemned.len(), |update, index| {
            update.process_condemned(&condemned[index], first_unavailable.as_deref())
        })
    }

    /// Ordered pods one by one, up to the first that waits. Otherwise all of them, in batches of 1, 2, 4 and so on up to
    /// the first with an error (`runForAll`, `slowStartBatch`).
    fn for_all(&mut self, count: usize, process: impl Fn(&mut Self, usize) -> Progress) -> Progress {
        if is_ordered(self.set) {
            for index in 0..count {
                match process(self, index) {
                    Progress::Next => {}
                    end => return end,
                }
            }
            return Progress::Next;
        }
        let (mut first, mut batch) = (0, 1);
        while first < count {
            let end = count.min(first + batch);
            let mut failed = false;
            for index in first..end {
                failed |= matches!(process(self, index), Progress::Failed);
            }
            if failed {
                return Progress::Failed;
            }
            (first, batch) = (end, MAX_BATCH.min(batch * 2));
        }
        Progress::Next
    }

    /// The condemned pod with the lowest ordinal that is not available, if all wanted ones are.
    fn first_unavailable(&self) -> Option<String> {
        let all_wanted = self.replicas.iter().all(|replica| match replica {
            Replica::Existing(pod) => !self.is_unavailable(pod),
            Replica::Missing(_) => false,
        });
        let first = self.condemned.iter().rfind(|pod| self.is_unavailable(pod));
        first.filter(|_| all_wanted).map(|pod| name(pod).to_owned())
    }

    /// Whether a rollout waits for a pod. Before 1.34 it did not wait for minReadySeconds.
    fn is_unavailable(&self, pod: &Pod) -> bool {
        is_terminating(pod)
            || match self.cx.settings.since(34) {
                true => !self.is_available(pod),
                false => !is_running_and_ready(pod),
            }
    }

    fn is_available(&self, pod: &Pod) -> bool {
        is_available(pod, min_ready_seconds(self.set), self.cx.now)
    }

    /// Creates a pod, or brings it in line with the set (`processReplica`).
    fn process_replica(&mut self, index: usize) -> Progress {
        if let Replica::Existing(pod) = &self.replicas[index]
            && has_ended(pod)
        {
            let pod = Arc::clone(pod);
            if self.cx.settings.since(31) {
                if !is_terminating(&pod) {
                    self.delete_pod(name(&pod));
                }
                // The new pod is created when this one is gone.
                return Progress::Wait;
            }
            self.report_recreation(&pod);
            self.delete_pod(name(&pod));
            self.replicas[index] = Replica::Missing(ordinal(&pod).unwrap_or_default());
        }
        match self.replicas[index].clone() {
            Replica::Missing(ordinal) => self.create_pod(ordinal),
            Replica::Existing(pod) => self.maintain_pod(&pod),
        }
    }

    fn create_pod(&mut self, ordinal: u32) -> Progress {
        let pod_name = pod_name(&self.key.name, ordinal);
        let owners = ClaimOwners::of(self.set, &pod_name, "");
        let claims = claim_templates(self.set).iter().filter_map(|template| self.claim(template, &pod_name));
        if claims.into_iter().any(|claim| owners.is_stale(claim)) {
            return Progress::Wait;
        }
        if let Err(error) = self.create_claims(&pod_name) {
            let event = events::pod_failed(self.cx.settings, self.key, Verb::Create, &pod_name, &error.to_string());
            self.writes.push(Write::Event(event));
            return Progress::Failed;
        }
        let pod = new_pod(self.set, self.revision_for(ordinal), &pod_name, ordinal);
        self.writes.push(Write::Create(pod.into()));
        self.update_claim_owners(&pod_name, "");
        self.writes.push(Write::Event(events::pod_done(self.cx.settings, self.key, Verb::Create, &pod_name)));
        if is_ordered(self.set) { Progress::Wait } else { Progress::Next }
    }

    fn maintain_pod(&mut self, pod: &Arc<Pod>) -> Progress {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let is_pending = phase(pod) == "Pending";
        if is_pending {
            if self.create_claims(name(pod)).is_err() {
                return Progress::Failed;
            }
            self.update_claim_owners(name(pod), uid);
        }
        if is_ordered(self.set) && (is_terminating(pod) || !is_running_and_ready(pod) || !self.is_available(pod)) {
            return Progress::Wait;
        }
        // A pod's volumes cannot be changed: Kubernetes tries it in vain.
        if !storage_matches(self.set, pod) {
            return Progress::Wait;
        }
        let owners_match = is_pending || self.claim_owners_match(name(pod), uid);
        if identity_matches(pod) && owners_match {
            return Progress::Next;
        }
        let mut updated = Pod::clone(pod);
        if !identity_matches(pod) {
            set_identity(&mut updated, name(pod), ordinal(pod).unwrap_or_default());
        }
        if !owners_match {
            self.update_claim_owners(name(pod), uid);
        }
        self.writes.push(Write::Replace(updated.into()));
        self.writes.push(Write::Event(events::pod_done(self.cx.settings, self.key, Verb::Update, name(pod))));
        Progress::Next
    }

    /// Deletes a pod that is too many. Ordered ones one by one, when all others are available (`processCondemned`).
    fn process_condemned(&mut self, pod: &Pod, first_unavailable: Option<&str>) -> Progress {
        if is_terminating(pod) {
            return Progress::Wait;
        }
        let healthy = is_running_and_ready(pod) && self.is_available(pod);
        if !healthy && is_ordered(self.set) && first_unavailable != Some(name(pod)) {
            return Progress::Wait;
        }
        self.delete_pod(name(pod));
        Progress::Wait
    }

    /// Deletes pods of another revision, higher ordinals first. Gives how many.
    fn roll_out(&mut self) -> i32 {
        if is_on_delete(self.set) {
            return 0;
        }
        let partition = rolling_update(self.set).and_then(|rolling| rolling.partition).unwrap_or_default();
        let partition = usize::try_from(partition).unwrap_or_default().min(self.replicas.len());
        if self.has_max_unavailable() {
            return self.roll_out_several(partition);
        }
        for replica in self.replicas[partition..].to_vec().iter().rev() {
            if self.is_outdated(replica) {
                self.delete_pod(&self.name_of(replica));
                return 1;
            }
            let waits = match replica {
                Replica::Existing(pod) => self.is_unavailable(pod),
                Replica::Missing(_) => true,
            };
            if waits {
                break;
            }
        }
        0
    }

    /// Whether maxUnavailable counts: its gate was on in the first releases of 1.35.
    fn has_max_unavailable(&self) -> bool {
        self.cx.settings.version == KubernetesVersion::minor(35) && self.cx.settings.patch < 4
    }

    /// `updateStatefulSetAfterInvariantEstablished`.
    fn roll_out_several(&mut self, partition: usize) -> i32 {
        let rolling = rolling_update(self.set);
        let wanted = i32::try_from(self.replicas.len()).unwrap_or(i32::MAX);
        let limit = rolling.and_then(|rolling| rolling.max_unavailable).map_or(1, |most| scaled(&most, wanted, false));
        let unavailable = self.replicas.iter().filter(|replica| match replica {
            Replica::Existing(pod) => self.is_unavailable(pod),
            Replica::Missing(_) => true,
        });
        let unavailable = unavailable.count();
        let allowed = usize::try_from(limit.max(1)).unwrap_or_default().saturating_sub(unavailable);
        let outdated = self.replicas[partition..].iter().rev().filter(|replica| self.is_outdated(replica));
        let names: Vec<String> = outdated.take(allowed).map(|replica| self.name_of(replica)).collect();
        names.iter().for_each(|name| self.delete_pod(name));
        i32::try_from(names.len()).unwrap_or(i32::MAX)
    }

    fn is_outdated(&self, replica: &Replica) -> bool {
        match replica {
            Replica::Existing(pod) => revision_of(pod) != self.revisions.update.name && !is_terminating(pod),
            Replica::Missing(ordinal) => self.revision_for(*ordinal).name != self.revisions.update.name,
        }
    }

    fn name_of(&self, replica: &Replica) -> String {
        match replica {
            Replica::Existing(pod) => name(pod).to_owned(),
            Replica::Missing(ordinal) => pod_name(&self.key.name, *ordinal),
        }
    }

    /// The revision of a pod that is created (`newVersionedStatefulSetPod`).
    fn revision_for(&self, ordinal: u32) -> &'a Revision {
        let index = i64::from(ordinal) - i64::from(start_ordinal(self.set));
        let reported = self.set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default();
        let from = match rolling_update(self.set) {
            Some(rolling) => rolling.partition.unwrap_or_default(),
            None if is_on_delete(self.set) => 0,
            None => reported,
        };
        if index < i64::from(from) { &self.revisions.current } else { &self.revisions.update }
    }

    fn delete_pod(&mut self, pod: &str) {
        self.writes.push(Write::Delete(SimKey::pod(&self.key.namespace, pod), DeleteOptions::default()));
        self.writes.push(Write::Event(events::pod_done(self.cx.settings, self.key, Verb::Delete, pod)));
    }

    /// Before 1.31 the new pod was created together with the deletion of the one that has ended.
    fn report_recreation(&mut self, pod: &Pod) {
        let text = |what: &str| {
            format!("StatefulSet {}/{} is recreating {what} Pod {}", self.key.namespace, self.key.name, name(pod))
        };
        let event = match phase(pod) {
            "Failed" => EventNote::warning(self.key, "RecreatingFailedPod", text("failed")),
            _ => EventNote::normal(self.key, "RecreatingTerminatedPod", text("terminated")),
        };
        self.writes.push(Write::Event(event));
    }
}
