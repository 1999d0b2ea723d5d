//! Workloads with fewer pods than they should have.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::{ObjectKey, Typed, WorkloadOutline, controller_of};

use super::evidence::Evidence;
use super::rejections::{not_progressing, rejection, rejection_by_condition};
use super::roots::{Root, Roots};
use super::{StuckCause, cron_jobs};

/// A workload that does not have what it should have.
pub(super) struct ShortWorkload<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) metadata: &'a ObjectMeta,
    /// How many pods it should have; none where that is not fixed.
    wanted: Option<i32>,
    /// Whether it has fewer than that by its own status.
    below: bool,
}

/// Assigns the workloads below their count: to the reason why pods are not created, or to the root of a stuck pod.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    let by_pod = roots_of_pods(evidence, roots);
    let short = short_workloads(evidence);
    let existing =
        if short.iter().all(|short| by_pod.contains_key(short.key)) { BTreeMap::new() } else { existing(evidence) };
    for short in short {
        if short.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if let Some((root, detail)) = rejection_by_condition(evidence, &short) {
            roots.assign(short.key, root, &detail);
        } else if let Some(root) = by_pod.get(short.key) {
            roots.assign(short.key, root.clone(), "");
        } else if let Some((root, detail)) =
            without_stuck_pods(evidence, &short, existing.get(short.key).copied().unwrap_or_default())
        {
            roots.assign(short.key, root, &detail);
        }
    }
    cron_jobs::assign(evidence, roots);
}

/// For each workload, the most severe root of its pods.
fn roots_of_pods(evidence: &Evidence<'_>, roots: &Roots) -> BTreeMap<ObjectKey, Root> {
    let mut out: BTreeMap<ObjectKey, Root> = BTreeMap::new();
    let rank = |root: &Root| (root.cause.severity(), root.cause);
    for (key, root) in roots.assigned().filter(|(key, _)| key.kind == "Pod") {
        for workload in evidence.workloads(key) {
            match out.get(&workload) {
                Some(other) if rank(other) <= rank(root) => {}
                _ => {
                    out.insert(workload, root.clone());
                }
            }
        }
    }
    out
}

/// The workloads that are below their count, or that say themselves that something failed. Missing counts in a status
/// are zero, as in the API.
fn short_workloads<'a>(evidence: &Evidence<'a>) -> Vec<ShortWorkload<'a>> {
    let mut out = Vec::new();
    let mut add = |key, metadata, wanted: i32, has: i32, failed: bool| {
        if wanted > has || (failed && wanted > 0) {
            out.push(ShortWorkload { key, metadata, wanted: Some(wanted), below: wanted > has });
        }
    };
    for (key, it) in incomplete::<Deployment>(evidence, WorkloadOutline::is_rolled_out) {
        let wanted = it.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let available = it.status.as_ref().and_then(|status| status.available_replicas).unwrap_or_default();
        let updated = it.status.as_ref().and_then(|status| status.updated_replicas).unwrap_or_default();
        let paused = it.spec.as_ref().is_some_and(|spec| spec.paused == Some(true));
        let rolls_out = !paused && updated < wanted;
        add(key, &it.metadata, wanted, available, rolls_out || not_progressing(it).is_some());
    }
    for (key, it) in incomplete::<StatefulSet>(evidence, WorkloadOutline::is_ready) {
        let wanted = it.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        add(key, &it.metadata, wanted, it.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or_default(), false);
    }
    for (key, it) in incomplete::<DaemonSet>(evidence, WorkloadOutline::is_ready) {
        let status = it.status.as_ref();
        let wanted = status.map(|status| status.desired_number_scheduled).unwrap_or_default();
        add(key, &it.metadata, wanted, status.map(|status| status.number_ready).unwrap_or_default(), false);
    }
    // A ReplicaSet is part of its Deployment, where that was read.
    let owned = |set: &ReplicaSet, namespace: &str| {
        let owner = controller_of(&set.metadata);
        owner.is_some_and(|owner| evidence.objects.contains(&ObjectKey::new(&owner.kind, namespace, &owner.name)))
    };
    let sets = incomplete::<ReplicaSet>(evidence, WorkloadOutline::is_ready);
    for (key, it) in sets.filter(|(key, it)| !owned(it, &key.namespace)) {
        let wanted = it.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        add(key, &it.metadata, wanted, it.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or_default(), false);
    }
    for (key, it) in incomplete::<ReplicationController>(evidence, WorkloadOutline::is_ready) {
        let wanted = it.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        add(key, &it.metadata, wanted, it.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or_default(), false);
    }
    let jobs = evidence.objects.all::<Job>().filter(|(_, job)| !has_ended(job));
    out.extend(jobs.map(|(key, job)| ShortWorkload { key, metadata: &job.metadata, wanted: None, below: true }));
    out
}

/// The workloads of a kind that may lack pods. Most of a cluster's lack none, and are recognized without being parsed.
fn incomplete<'a, T: Typed>(
    evidence: &Evidence<'a>,
    is_complete: fn(&WorkloadOutline) -> bool,
) -> impl Iterator<Item = (&'a ObjectKey, &'a T)> {
    let workloads = evidence.objects.of_kind(T::KIND).filter(move |object| !is_complete(object.workload_outline()));
    workloads.filter_map(|object| Some((object.key(), object.typed().ok()?)))
}

/// Whether a Job is complete, failed or suspended. A Job whose last pods are still Terminating has not ended.
fn has_ended(job: &Job) -> bool {
    let ended = |kind: &str| matches!(kind, "Complete" | "Failed");
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let suspended = job.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true));
    suspended || conditions.iter().any(|c| ended(&c.type_) && c.status == "True")
}

/// The pods of a workload that have not ended.
#[derive(Default, Clone, Copy)]
struct Existing {
    pods: i64,
    /// Whether one of them was created a short while ago, is not ready yet or is being deleted.
    changing: bool,
}

/// The pods of each workload. This looks at every pod of a cluster, so none is parsed.
fn existing(evidence: &Evidence<'_>) -> BTreeMap<ObjectKey, Existing> {
    let mut by_owner: BTreeMap<(&str, &str, &str), (&ObjectKey, Existing)> = BTreeMap::new();
    for pod in evidence.objects.of_kind("Pod") {
        let outline = pod.outline();
        if matches!(outline.phase(), Some("Succeeded" | "Failed")) {
            continue;
        }
        let Some((kind, name)) = outline.first_owner() else { continue };
        let created = outline.created();
        let young = created.is_some() && !evidence.lasted(created, evidence.thresholds.not_ready);
        let owner = (pod.key().namespace.as_str(), kind, name);
        let (_, known) = by_owner.entry(owner).or_insert((pod.key(), Existing::default()));
        known.pods += 1;
        known.changing |= young || outline.is_unready() || outline.is_terminating();
    }
    let mut out: BTreeMap<ObjectKey, Existing> = BTreeMap::new();
    for (pod, pods) in by_owner.into_values() {
        for workload in evidence.workloads(pod) {
            let known = out.entry(workload).or_default();
            known.pods += pods.pods;
            known.changing |= pods.changing;
        }
    }
    out
}

/// Why a workload without a stuck pod is below its count.
fn without_stuck_pods(
    evidence: &Evidence<'_>,
    short: &ShortWorkload<'_>,
    existing: Existing,
) -> Option<(Root, String)> {
    let missing = short.wanted.map_or(existing.pods == 0, |wanted| existing.pods < i64::from(wanted));
    let old = evidence.is_older(short.metadata, evidence.thresholds.not_ready);
    let settled = old && !existing.changing && short.below && evidence.was_read("Pod");
    if let Some(found) = missing.then(|| rejection(evidence, short, settled)).flatten() {
        return Some(found);
    }
    let root = Root::new(StuckCause::ReplicasMissing, short.key.clone());
    // A Job without pods may wait for its back-off.
    if missing && settled && short.wanted.is_some() {
        let wanted = short.wanted.unwrap_or_default();
        return Some((root, format!("{} of {wanted} pods exist", existing.pods)));
    }
    let key = Some(short.key).filter(|key| key.kind == "Deployment");
    let deployment = key.and_then(|key| evidence.objects.find::<Deployment>(&key.namespace, &key.name));
    let stalled = deployment.and_then(not_progressing).filter(|_| !existing.changing);
    stalled.map(|message| (root, message.to_owned()))
}
