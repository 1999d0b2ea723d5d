//! Workloads with fewer pods than they should have.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ReplicationController;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::{ObjectKey, controller_of};

use super::StuckCause;
use super::evidence::Evidence;
use super::roots::{Root, Roots};

/// A workload that does not have what it should have.
struct Short<'a> {
    key: &'a ObjectKey,
    metadata: &'a ObjectMeta,
    /// How many pods it should have; none where that is not fixed.
    wanted: Option<i32>,
}

/// Assigns the workloads below their count: to the root of a stuck pod, or to the reason why pods are not created.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    let by_pod = roots_of_pods(evidence, roots);
    let short = short_workloads(evidence);
    let existing =
        if short.iter().all(|short| by_pod.contains_key(short.key)) { BTreeMap::new() } else { existing(evidence) };
    for short in short {
        if short.metadata.deletion_timestamp.is_some() {
            continue;
        }
        if let Some(root) = by_pod.get(short.key) {
            roots.assign(short.key, root.clone(), "");
        } else if let Some((root, detail)) =
            not_created(evidence, &short, existing.get(short.key).copied().unwrap_or_default())
        {
            roots.assign(short.key, root, &detail);
        }
    }
}

/// For each workload, the most severe root of its pods.
fn roots_of_pods(evidence: &Evidence<'_>, roots: &Roots) -> BTreeMap<ObjectKey, Root> {
    let mut out: BTreeMap<ObjectKey, Root> = BTreeMap::new();
    for (key, root) in roots.assigned().filter(|(key, _)| key.kind == "Pod") {
        let Some(workload) = evidence.workload(key) else { continue };
        let rank = |root: &Root| (root.cause.severity(), root.cause);
        match out.get(&workload) {
            Some(other) if rank(other) <= rank(root) => {}
            _ => {
                out.insert(workload, root.clone());
            }
        }
    }
    out
}

/// The workloads that are below their count. Missing counts in a status are zero, as in the API.
fn short_workloads<'a>(evidence: &Evidence<'a>) -> Vec<Short<'a>> {
    let mut out = Vec::new();
    let mut add = |key, metadata, wanted: i32, has: i32| {
        if wanted > has {
            out.push(Short { key, metadata, wanted: Some(wanted) });
        }
    };
    for (key, it) in evidence.objects.all::<Deployment>() {
        let wanted = it.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let paused = it.spec.as_ref().is_some_and(|spec| spec.paused == Some(true));
        let status = it.status.as_ref();
        let available = status.and_then(|status| status.available_replicas).unwrap_or_default();
        let updated = status.and_then(|status| status.updated_replicas).unwrap_or_default();
        add(key, &it.metadata, wanted, if paused { available } else { available.min(updated) });
    }
    for (key, it) in evidence.objects.all::<StatefulSet>() {
        let wanted = it.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        add(key, &it.metadata, wanted, it.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or_default());
    }
    for (key, it) in evidence.objects.all::<DaemonSet>() {
        let status = it.status.as_ref();
        let wanted = status.map(|status| status.desired_number_scheduled).unwrap_or_default();
        add(key, &it.metadata, wanted, status.map(|status| status.number_ready).unwrap_or_default());
    }
    for (key, it) in evidence.objects.all::<ReplicaSet>().filter(|(_, it)| controller_of(&it.metadata).is_none()) {
        let wanted = it.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        add(key, &it.metadata, wanted, it.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or_default());
    }
    for (key, it) in evidence.objects.all::<ReplicationController>() {
        let wanted = it.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        add(key, &it.metadata, wanted, it.status.as_ref().and_then(|s| s.ready_replicas).unwrap_or_default());
    }
    for (key, it) in evidence.objects.all::<Job>() {
        let suspended = it.spec.as_ref().is_some_and(|spec| spec.suspend == Some(true));
        let status = it.status.as_ref();
        let ended = |kind: &str| matches!(kind, "Complete" | "Failed" | "SuccessCriteriaMet" | "FailureTarget");
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        if !suspended && !conditions.iter().any(|c| ended(&c.type_) && c.status == "True") {
            out.push(Short { key, metadata: &it.metadata, wanted: None });
        }
    }
    out
}

/// The pods of a workload that have not ended.
#[derive(Default, Clone, Copy)]
struct Existing {
    pods: i64,
    /// Whether one of them was created a short while ago.
    young: bool,
}

/// The pods of each workload. The JSON is read directly: this looks at every pod of a cluster.
fn existing(evidence: &Evidence<'_>) -> BTreeMap<ObjectKey, Existing> {
    let mut out: BTreeMap<ObjectKey, Existing> = BTreeMap::new();
    let mut top: BTreeMap<ObjectKey, ObjectKey> = BTreeMap::new();
    for pod in evidence.objects.of_kind("Pod") {
        let raw = pod.raw();
        let mut owners = raw["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let Some(owner) = owners.find(|owner| owner["controller"] == true) else { continue };
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        let owner = ObjectKey::new(text("kind"), &pod.key().namespace, text("name"));
        if matches!(raw["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
            continue;
        }
        let workload = top.entry(owner.clone()).or_insert_with(|| evidence.workload(pod.key()).unwrap_or(owner));
        let created = raw["metadata"]["creationTimestamp"].as_str().and_then(|at| at.parse().ok());
        let known = out.entry(workload.clone()).or_default();
        known.pods += 1;
        known.young |= !evidence.lasted(created, evidence.thresholds.not_ready);
    }
    out
}

/// Why the pods of a workload are not created.
fn not_created(evidence: &Evidence<'_>, short: &Short<'_>, existing: Existing) -> Option<(Root, String)> {
    let missing = short.wanted.map_or(existing.pods == 0, |wanted| existing.pods < i64::from(wanted));
    if !missing {
        return None;
    }
    if let Some(message) = rejection(evidence, short) {
        return Some((rejected(short.key, &message), message));
    }
    // A Job without pods may wait for its back-off; a workload that was just created or changed gets its pods soon.
    let known = short.wanted.is_some() && evidence.was_read("Pod") && existing.pods == 0;
    let old = evidence.is_older(short.metadata, evidence.thresholds.not_ready);
    let root = Root::new(StuckCause::ReplicasMissing, short.key.clone());
    (known && old && !existing.young).then(|| (root, String::new()))
}

/// What the API server said when the workload's controller last created a pod.
fn rejection(evidence: &Evidence<'_>, short: &Short<'_>) -> Option<String> {
    let failed = |key: &ObjectKey, uid: Option<&str>| {
        evidence.warnings(key, uid).find(|event| event.reason == "FailedCreate").map(|event| event.message.to_owned())
    };
    if let Some(message) = failed(short.key, short.metadata.uid.as_deref()) {
        return Some(message);
    }
    if short.key.kind == "Deployment"
        && let Some(deployment) = evidence.objects.find::<Deployment>(&short.key.namespace, &short.key.name)
    {
        let conditions = deployment.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let failure = conditions.iter().find(|c| c.type_ == "ReplicaFailure" && c.status == "True");
        if let Some(message) = failure.and_then(|condition| condition.message.clone()) {
            return Some(message);
        }
    }
    let sets = evidence.objects.all_in::<ReplicaSet>(&short.key.namespace);
    let own = sets.filter(|(_, set)| {
        controller_of(&set.metadata).is_some_and(|owner| owner.kind == short.key.kind && owner.name == short.key.name)
    });
    let wanted = own.filter(|(_, set)| set.spec.as_ref().and_then(|spec| spec.replicas) != Some(0));
    wanted.filter_map(|(key, set)| failed(key, set.metadata.uid.as_deref())).next()
}

/// The root of a rejected pod, by the message of the admission plugin.
fn rejected(workload: &ObjectKey, message: &str) -> Root {
    let between = |begin: &str, end: &str| {
        let (_, rest) = message.split_once(begin)?;
        rest.split(end).next().map(str::trim).filter(|name| !name.is_empty())
    };
    let namespace = &workload.namespace;
    if let Some(quota) = between("exceeded quota: ", ",").or_else(|| between("failed quota: ", ":")) {
        return Root::new(StuckCause::QuotaExceeded, ObjectKey::new("ResourceQuota", namespace, quota));
    }
    let account = between("serviceaccount \"", "\"").or_else(|| between("error looking up service account ", ":"));
    if let Some(account) = account.filter(|_| message.contains("not found")) {
        let name = account.rsplit('/').next().unwrap_or(account);
        return Root::new(StuckCause::MissingReference, ObjectKey::new("ServiceAccount", namespace, name));
    }
    if let Some(class) = between("no PriorityClass with name ", " was found") {
        return Root::new(StuckCause::MissingReference, ObjectKey::cluster("PriorityClass", class));
    }
    if let Some(class) = between("RuntimeClass \"", "\" not found").filter(|_| message.contains("not found")) {
        return Root::new(StuckCause::MissingReference, ObjectKey::cluster("RuntimeClass", class));
    }
    Root::new(StuckCause::CreateRejected, workload.clone())
}
