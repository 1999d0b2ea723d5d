//! Why the pods of a workload are not created: what the API server answered its controller.

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::ReplicationController;
use stead_model::ObjectKey;

use super::StuckCause;
use super::evidence::Evidence;
use super::quotas::exhausted;
use super::roots::Root;
use super::workloads::ShortWorkload;

/// The reason why the pods of a workload are not created, as its conditions have it: they tell the present.
pub(super) fn rejection_by_condition(evidence: &Evidence<'_>, short: &ShortWorkload<'_>) -> Option<(Root, String)> {
    let message = by_condition(evidence, short)?;
    if !message.is_empty() {
        return Some(by_message(short.key, &message));
    }
    let quota = by_quota(evidence, short);
    Some(quota.unwrap_or_else(|| (Root::new(StuckCause::CreateRejected, short.key.clone()), String::new())))
}

/// The reason why missing pods of a workload are not created: by events, and by the quotas once nothing changes any more
/// (`settled`).
pub(super) fn rejection(evidence: &Evidence<'_>, short: &ShortWorkload<'_>, settled: bool) -> Option<(Root, String)> {
    let told = by_event(evidence, short).map(|message| by_message(short.key, &message));
    told.or_else(|| settled.then(|| by_quota(evidence, short)).flatten())
}

/// The root and the reason in what the API server answered the controller of a workload.
pub(super) fn by_message(workload: &ObjectKey, message: &str) -> (Root, String) {
    (rejected(workload, message), reason(message).to_owned())
}

fn by_quota(evidence: &Evidence<'_>, short: &ShortWorkload<'_>) -> Option<(Root, String)> {
    exhausted(evidence, short.key).map(|(quota, detail)| (Root::new(StuckCause::QuotaExceeded, quota), detail))
}

/// What the conditions of the workload or of its ReplicaSets say; empty where they have no message.
fn by_condition(evidence: &Evidence<'_>, short: &ShortWorkload<'_>) -> Option<String> {
    let objects = evidence.objects;
    match short.key.kind.as_str() {
        "Deployment" => {
            let status = objects.find::<Deployment>(&short.key.namespace, &short.key.name)?.status.as_ref();
            let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            let failed = conditions.iter().find(|c| {
                (c.type_ == "ReplicaFailure" && c.status == "True")
                    || (c.type_ == "Progressing" && c.reason.as_deref() == Some("ReplicaSetCreateError"))
            });
            let own = failed.map(|condition| condition.message.clone().unwrap_or_default());
            own.or_else(|| replica_sets(evidence, short).into_iter().find_map(|(_, set)| of_replica_set(set)))
        }
        "ReplicaSet" => of_replica_set(objects.find::<ReplicaSet>(&short.key.namespace, &short.key.name)?),
        "ReplicationController" => {
            let found = objects.find::<ReplicationController>(&short.key.namespace, &short.key.name)?;
            let conditions = found.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            let failed = conditions.iter().find(|c| c.type_ == "ReplicaFailure" && c.status == "True");
            failed.map(|condition| condition.message.clone().unwrap_or_default())
        }
        _ => None,
    }
}

fn of_replica_set(set: &ReplicaSet) -> Option<String> {
    let conditions = set.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let failed = conditions.iter().find(|c| c.type_ == "ReplicaFailure" && c.status == "True");
    failed.map(|condition| condition.message.clone().unwrap_or_default())
}

/// The ReplicaSets of a Deployment that should have pods.
fn replica_sets<'a>(evidence: &Evidence<'a>, short: &ShortWorkload<'_>) -> Vec<(&'a ObjectKey, &'a ReplicaSet)> {
    let wanted = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.replicas) != Some(0);
    let sets = evidence.controlled_sets(short.key).iter().filter_map(|set| Some((set.key(), set.typed().ok()?)));
    sets.filter(|(_, set)| wanted(set)).collect()
}

/// What the API server said when the workload's controller last created a pod.
fn by_event(evidence: &Evidence<'_>, short: &ShortWorkload<'_>) -> Option<String> {
    let failed = |key: &ObjectKey, uid: Option<&str>| {
        evidence.warnings(key, uid).find(|event| event.reason == "FailedCreate").map(|event| event.message.to_owned())
    };
    failed(short.key, short.metadata.uid.as_deref()).or_else(|| {
        let sets = replica_sets(evidence, short).into_iter();
        sets.filter_map(|(key, set)| failed(key, set.metadata.uid.as_deref())).next()
    })
}

/// What a Deployment says whose rollout makes no progress (`ProgressDeadlineExceeded`).
pub(super) fn not_progressing(deployment: &Deployment) -> Option<&str> {
    let conditions = deployment.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let stalled = conditions.iter().find(|c| c.type_ == "Progressing" && c.status == "False");
    stalled.map(|condition| condition.message.as_deref().unwrap_or("the rollout does not progress"))
}

/// The message without what every such message begins with.
fn reason(message: &str) -> &str {
    let message = message.strip_prefix("(combined from similar events): ").unwrap_or(message);
    let message = message.strip_prefix("Error creating job: ").unwrap_or(message);
    let begins = ["is forbidden: ", "is invalid: "];
    let message = begins.iter().find_map(|begin| Some(message.split_once(begin)?.1)).unwrap_or(message);
    // The quota is named before.
    message.strip_prefix("exceeded quota: ").and_then(|rest| rest.split_once(", ")).map_or(message, |(_, rest)| rest)
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
    if message.contains("insufficient quota") {
        return Root::new(StuckCause::QuotaExceeded, workload.clone());
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
