//! The ReplicaSet controller (`pkg/controller/replicaset`).
//!
//! A step claims pods, creates or deletes as many as are missing or too many, and reports the status of what it found.

mod ranking;
mod status;
mod tally;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use k8s_openapi::api::core::v1::Pod;
use stead_model::controller_of;
use stead_model::times::seconds;
use stead_semantics::Labels;

use crate::error::ApiError;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::ownership::{self, Claim, claim, namespace_is_terminating, wake_owners};
use crate::pods::{available_in, from_template, generate_name, is_active};
use crate::step::{Context, Controller, DeleteOptions, Item, Step, Wakes, Write};
use crate::store::Change;
use status::Failure;
use tally::{Counted, Tallies, Tally, pods_of};

/// How many pods are created or deleted in one step at most.
const BURST_REPLICAS: usize = 500;

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplicaSets {
    tallies: Tallies,
    /// The names of the pods that the last step creates.
    chosen_names: Vec<String>,
    /// Names that were chosen for pods that could not be created, by set.
    spare_names: BTreeMap<SimKey, Vec<String>>,
    /// What the last step counted, for the status after an error.
    counted: Tally,
    available: i32,
}

impl Controller for ReplicaSets {
    const COMPONENT: &'static str = "replicaset-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::ReplicaSet => {
                let (before, after) = change.of::<ReplicaSet>();
                if let Some(before) = before.filter(|before| after.is_none_or(|after| labels_differ(before, after))) {
                    self.tallies.forget(before.metadata.uid.as_deref().unwrap_or_default());
                }
                match after {
                    Some(_) => wakes.now(change.key.clone()),
                    None => drop(self.spare_names.remove(&change.key)),
                }
            }
            ObjectKind::Pod => {
                self.tallies.follow(change);
                let first = wakes.wanted.len();
                wake_owners(cx.store, change, ObjectKind::ReplicaSet, wakes);
                let orphaned = change.after.as_ref().is_some_and(|pod| controller_of(pod.metadata()).is_none());
                if orphaned {
                    for (item, _) in &wakes.wanted[first..] {
                        let Item::Object(key) = item else { continue };
                        let uid = cx.store.object(key).map(SimObject::uid).unwrap_or_default();
                        self.tallies.orphan_found(uid);
                    }
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        let store = cx.store;
        let Some(set) = store.at::<ReplicaSet>(key) else { return Step::none() };
        let Some(counted) = self.tallies.get(store, set) else { return Step::none() };
        let mut writes = Vec::new();
        let adopted = self.claim_pods(cx, set, &counted, &mut writes);
        let mut tally = counted.tally;
        tally.unmatched = 0;
        adopted.iter().for_each(|pod| tally.add(counted.rules.count(pod), 1));
        if set.metadata.deletion_timestamp.is_none() {
            self.manage_replicas(cx, key, set, &counted, tally, &adopted, &mut writes);
        }
        let availability = availability(cx, set, &counted, tally, &adopted);
        (self.counted, self.available) = (tally, availability.available);
        let new = status::calculate(set, tally, availability.available, None, cx.settings, cx.now);
        writes.extend(status::write(set, new));
        Step::writes(writes).and_again(availability.next_check)
    }

    fn refused(&mut self, cx: &mut Context<'_>, item: &Item, write: &Write, error: &ApiError) -> Vec<Write> {
        let Item::Object(key) = item else { return Vec::new() };
        let Some(set) = cx.store.at::<ReplicaSet>(key) else { return Vec::new() };
        // What the step meant to do about orphans did not happen.
        self.tallies.orphan_found(set.metadata.uid.as_deref().unwrap_or_default());
        let (reason, text, error) = match write {
            Write::Create(pod) => {
                let name = pod.metadata().name.clone();
                let unused = self.chosen_names.iter().position(|chosen| Some(chosen) == name.as_ref());
                if let Some(unused) = unused.filter(|_| !matches!(error, ApiError::AlreadyExists(_))) {
                    self.spare_names.insert(key.clone(), self.chosen_names.split_off(unused));
                }
                ("FailedCreate", "Error creating", before_naming(pod, error))
            }
            Write::Delete(..) => ("FailedDelete", "Error deleting", error.clone()),
            _ => return Vec::new(),
        };
        let message = match write {
            Write::Delete(..) => format!("unable to delete pods: {error}"),
            _ => error.to_string(),
        };
        let failure = Failure { reason, message };
        let event = EventNote::warning(key, reason, format!("{text}: {error}"));
        let new: ReplicaSetStatus =
            status::calculate(set, self.counted, self.available, Some(failure), cx.settings, cx.now);
        [Some(Write::Event(event)), status::write(set, new)].into_iter().flatten().collect()
    }
}

impl ReplicaSets {
    /// Releases pods that the selector does not match, and adopts those that it does. Gives the latter.
    fn claim_pods(
        &mut self,
        cx: &Context<'_>,
        set: &Arc<ReplicaSet>,
        counted: &Counted,
        writes: &mut Vec<Write>,
    ) -> Vec<Arc<Pod>> {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let owner = SimObject::ReplicaSet(Arc::clone(set));
        if counted.tally.unmatched > 0 {
            for pod in pods_of(cx.store, uid).filter(|pod| is_active(pod)) {
                if claim(&pod.metadata, &set.metadata, || counted.rules.matches(&pod.metadata)) == Claim::Release {
                    writes.push(ownership::release(&SimObject::Pod(Arc::clone(pod)), &owner));
                }
            }
        }
        if !counted.orphans {
            return Vec::new();
        }
        self.tallies.orphans_seen(uid);
        let mut adopted = Vec::new();
        for orphan in cx.store.orphans_in(ObjectKind::Pod, owner_namespace(set)) {
            let SimObject::Pod(pod) = orphan else { continue };
            if !is_active(pod) {
                continue;
            }
            if claim(&pod.metadata, &set.metadata, || counted.rules.matches(&pod.metadata)) == Claim::Adopt {
                writes.push(ownership::adopt(orphan, &owner));
                adopted.push(Arc::clone(pod));
            }
        }
        adopted
    }

    /// Creates pods that are missing, or deletes those that are too many (`manageReplicas`).
    #[expect(clippy::too_many_arguments, reason = "what the step has found so far")]
    fn manage_replicas(
        &mut self,
        cx: &mut Context<'_>,
        key: &SimKey,
        set: &Arc<ReplicaSet>,
        counted: &Counted,
        tally: Tally,
        adopted: &[Arc<Pod>],
        writes: &mut Vec<Write>,
    ) {
        let surplus = i64::from(tally.active) - i64::from(replicas(set));
        let count = usize::try_from(surplus.unsigned_abs()).unwrap_or(usize::MAX).min(BURST_REPLICAS);
        if surplus < 0 {
            self.create_pods(cx, key, set, count, writes);
        } else if surplus > 0 {
            let uid = set.metadata.uid.as_deref().unwrap_or_default();
            let own = pods_of(cx.store, uid).filter(|pod| is_active(pod) && counted.rules.matches(&pod.metadata));
            let pods: Vec<&Arc<Pod>> = own.chain(adopted).collect();
            let siblings = siblings(cx, set);
            for pod in ranking::victims(key, pods, &siblings, count, cx.now, cx.choices) {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                writes.push(Write::Delete(SimKey::pod(&key.namespace, name), DeleteOptions::default()));
                writes.push(Write::Event(EventNote::normal(key, "SuccessfulDelete", format!("Deleted pod: {name}"))));
            }
        }
    }

    fn create_pods(
        &mut self,
        cx: &mut Context<'_>,
        key: &SimKey,
        set: &Arc<ReplicaSet>,
        count: usize,
        writes: &mut Vec<Write>,
    ) {
        let Some(template) = set.spec.as_ref().and_then(|spec| spec.template.as_ref()) else { return };
        if namespace_is_terminating(cx.store, &key.namespace) {
            return;
        }
        let mut spare = self.spare_names.remove(key).unwrap_or_default().into_iter();
        let pod = from_template(template, &SimObject::ReplicaSet(Arc::clone(set)));
        self.chosen_names.clear();
        for _ in 0..count {
            let mut pod = pod.clone();
            match spare.next() {
                Some(name) => pod.metadata.name = Some(name),
                None => generate_name(&mut pod, cx.store, cx.choices),
            }
            let name = pod.metadata.name.clone().unwrap_or_default();
            let event = EventNote::normal(key, "SuccessfulCreate", format!("Created pod: {name}"));
            writes.push(Write::Create(pod.into()));
            writes.push(Write::Event(event));
            self.chosen_names.push(name);
        }
        let left: Vec<String> = spare.collect();
        if !left.is_empty() {
            self.spare_names.insert(key.clone(), left);
        }
    }
}

/// The error as admission words it, which comes before the name is generated.
fn before_naming(pod: &SimObject, error: &ApiError) -> ApiError {
    match (error, &pod.metadata().generate_name) {
        (ApiError::Forbidden { key, message }, Some(prefix)) => {
            ApiError::Forbidden { key: SimKey::pod(&key.namespace, prefix), message: message.clone() }
        }
        _ => error.clone(),
    }
}

/// The pods of all sets with the same controller (`getIndirectlyRelatedPods`); none if the set has no controller.
fn siblings<'a>(cx: &Context<'a>, set: &'a ReplicaSet) -> Vec<&'a Arc<Pod>> {
    let store = cx.store;
    let Some(owner) = controller_of(&set.metadata) else { return Vec::new() };
    let sets = store.all_owned_by::<ReplicaSet>(&owner.uid);
    let same = |other: &&Arc<ReplicaSet>| controller_of(&other.metadata).is_some_and(|other| other.uid == owner.uid);
    sets.filter(same).flat_map(|set| pods_of(store, set.metadata.uid.as_deref().unwrap_or_default())).collect()
}

/// How many pods are available, and when the next one will be.
struct Availability {
    available: i32,
    next_check: Option<SignedDuration>,
}

fn availability(
    cx: &Context<'_>,
    set: &Arc<ReplicaSet>,
    counted: &Counted,
    tally: Tally,
    adopted: &[Arc<Pod>],
) -> Availability {
    let min_ready_seconds = set.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or_default();
    if min_ready_seconds <= 0 {
        return Availability { available: tally.ready, next_check: None };
    }
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let own = pods_of(cx.store, uid).filter(|pod| is_active(pod) && counted.rules.matches(&pod.metadata));
    let waits: Vec<SignedDuration> =
        own.chain(adopted).filter_map(|pod| available_in(pod, min_ready_seconds, cx.now)).collect();
    let available = waits.iter().filter(|wait| wait.is_zero()).count();
    let available = i32::try_from(available).unwrap_or(i32::MAX);
    let next = waits.into_iter().filter(|wait| !wait.is_zero()).min();
    let next_check = (tally.ready != available).then(|| next.unwrap_or(seconds(i64::from(min_ready_seconds))));
    Availability { available, next_check }
}

/// Whether the labels that pods are compared with differ.
fn labels_differ(a: &ReplicaSet, b: &ReplicaSet) -> bool {
    let selector = |set: &ReplicaSet| set.spec.as_ref().map(|spec| spec.selector.clone());
    fn template(set: &ReplicaSet) -> Option<&Labels> {
        set.spec.as_ref()?.template.as_ref()?.metadata.as_ref()?.labels.as_ref()
    }
    template(a) != template(b) || selector(a) != selector(b)
}

/// How many pods a set wants.
fn replicas(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn owner_namespace(set: &ReplicaSet) -> &str {
    set.metadata.namespace.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests;
