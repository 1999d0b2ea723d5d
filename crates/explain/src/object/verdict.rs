//! The verdict about an object, in a sentence, and the facts below it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use stead_model::times::deletion;
use stead_model::{ModelError, ObjectKey, Objects, PodView};

use super::pods::{pods_of_budget, pods_of_claim, pods_of_workload};
use crate::explanation::some;
use crate::outage::when;

/// The verdict in a sentence, and facts, a line each.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) summary: String,
    pub(super) facts: Vec<String>,
}

impl Verdict {
    fn new(summary: String) -> Verdict {
        Verdict { summary, facts: Vec::new() }
    }
}

/// The verdict about an object; none where it does not exist.
pub(super) fn verdict(objects: &Objects, key: &ObjectKey, now: Timestamp) -> Result<Option<Verdict>, ModelError> {
    let verdict = match key.kind.as_str() {
        "StatefulSet" => objects.get(key)?.map(|set| stateful_set(objects, key, set)),
        "Deployment" => objects.get(key)?.map(|deployment| self::deployment(objects, key, deployment)),
        "DaemonSet" => objects.get(key)?.map(|set| daemon_set(objects, key, set)),
        "Job" => objects.get(key)?.map(|job| self::job(objects, key, job)),
        "PersistentVolumeClaim" => objects.get(key)?.map(|claim| self::claim(objects, key, claim)),
        "PersistentVolume" => objects.get(key)?.map(|volume| self::volume(objects, key, volume)),
        "PodDisruptionBudget" => objects.get(key)?.map(|budget| self::budget(objects, key, budget)),
        "Namespace" => objects.get(key)?.map(|namespace| self::namespace(objects, key, namespace)),
        _ => None,
    };
    Ok(verdict.map(|mut verdict| {
        if let Some(deleted) = objects.object(key).and_then(|o| o.metadata().ok()).as_ref().and_then(deletion) {
            verdict.summary = format!("Terminating since {}; {}", when(deleted.requested, now), verdict.summary);
        }
        verdict
    }))
}

fn stateful_set(objects: &Objects, key: &ObjectKey, set: &StatefulSet) -> Verdict {
    let wanted = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = set.status.clone().unwrap_or_default();
    let mut summary = ready(status.ready_replicas, wanted);
    let partition =
        set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref()?.rolling_update.as_ref()?.partition);
    let updated = status.updated_replicas.unwrap_or_default();
    let to_update = wanted - partition.unwrap_or_default().clamp(0, wanted);
    if status.update_revision.is_some() && status.update_revision != status.current_revision && updated < to_update {
        summary.push_str(&format!("; the rollout is not complete: {updated} of {to_update} pods are updated"));
    }
    with_pods(objects, key, summary)
}

fn deployment(objects: &Objects, key: &ObjectKey, deployment: &Deployment) -> Verdict {
    let spec = deployment.spec.as_ref();
    let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let status = deployment.status.clone().unwrap_or_default();
    let mut summary = ready(status.ready_replicas, wanted);
    let updated = status.updated_replicas.unwrap_or_default();
    if spec.and_then(|spec| spec.paused).unwrap_or_default() {
        summary.push_str("; the rollout is paused");
    } else if updated < wanted {
        summary.push_str(&format!("; the rollout is not complete: {updated} of {wanted} pods are updated"));
    } else if status.replicas.unwrap_or_default() > wanted {
        let old = status.replicas.unwrap_or_default() - updated;
        summary.push_str(&format!("; the rollout is not complete: {old} old pods are left"));
    }
    let mut verdict = with_pods(objects, key, summary);
    for condition in status.conditions.unwrap_or_default() {
        let failing = match condition.type_.as_str() {
            "ReplicaFailure" => condition.status == "True",
            "Progressing" => condition.status == "False",
            _ => false,
        };
        if failing {
            let (reason, message) = (condition.reason.unwrap_or_default(), condition.message.unwrap_or_default());
            verdict.facts.push(format!("condition {}={}: {reason}: {message}", condition.type_, condition.status));
        }
    }
    verdict
}

fn daemon_set(objects: &Objects, key: &ObjectKey, set: &DaemonSet) -> Verdict {
    let status = set.status.clone().unwrap_or_default();
    let wanted = status.desired_number_scheduled;
    let mut summary = ready(Some(status.number_ready), wanted);
    let updated = status.updated_number_scheduled.unwrap_or_default();
    let rolling =
        set.spec.as_ref().and_then(|spec| spec.update_strategy.as_ref()?.type_.as_deref()) != Some("OnDelete");
    if rolling && updated < wanted {
        summary.push_str(&format!("; the rollout is not complete: {updated} of {wanted} pods are updated"));
    }
    let mut verdict = with_pods(objects, key, summary);
    if status.number_misscheduled > 0 {
        let fact = format!("{} pods run on nodes where the DaemonSet should not run", status.number_misscheduled);
        verdict.facts.push(fact);
    }
    verdict
}

fn job(objects: &Objects, key: &ObjectKey, job: &Job) -> Verdict {
    let (spec, status) = (job.spec.clone().unwrap_or_default(), job.status.clone().unwrap_or_default());
    let conditions = status.conditions.unwrap_or_default();
    let ended = |kind: &str| conditions.iter().find(|c| c.type_ == kind && c.status == "True");
    let (succeeded, failed) = (status.succeeded.unwrap_or_default(), status.failed.unwrap_or_default());
    let summary = if ended("Complete").is_some() {
        format!("complete: {succeeded} pods succeeded")
    } else if let Some(condition) = ended("Failed") {
        let reason = condition.reason.as_deref().unwrap_or("no reason given");
        format!("failed: {reason}: {}", condition.message.as_deref().unwrap_or_default())
    } else if spec.suspend.unwrap_or_default() {
        "suspended".to_owned()
    } else {
        let wanted = spec.completions.map(|n| format!(" of {n}")).unwrap_or_default();
        let active = status.active.unwrap_or_default();
        format!("running; pods: {active} active, {succeeded}{wanted} succeeded, {failed} failed")
    };
    with_pods(objects, key, summary)
}

fn claim(objects: &Objects, key: &ObjectKey, claim: &PersistentVolumeClaim) -> Verdict {
    let spec = claim.spec.clone().unwrap_or_default();
    let phase = claim.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_else(|| "Pending".into());
    let volume = spec.volume_name.filter(|name| !name.is_empty());
    let mut verdict = Verdict::new(match (phase.as_str(), &volume) {
        ("Bound", Some(volume)) => format!("Bound to volume {volume}"),
        ("Lost", Some(volume)) => format!("Lost: its volume {volume} does not exist"),
        (phase, _) => phase.to_owned(),
    });
    match spec.storage_class_name.as_deref() {
        Some("") => verdict.facts.push("storage class: none (only existing volumes without a class)".into()),
        Some(class) => verdict.facts.push(format!("storage class: {class}")),
        None => verdict.facts.push("storage class: not set, and there was no default class".into()),
    }
    let pods: Vec<PodView<'_>> = pods_of_claim(objects, key).collect();
    verdict.facts.push(used_by(&pods));
    if let Some(volume) = volume {
        verdict.facts.extend(attachments(objects, &volume));
    }
    verdict
}

fn volume(objects: &Objects, key: &ObjectKey, volume: &PersistentVolume) -> Verdict {
    let status = volume.status.clone().unwrap_or_default();
    let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
    let claim = claim.and_then(|claim| Some((claim.namespace.clone()?, claim.name.clone()?)));
    let phase = status.phase.unwrap_or_else(|| "Pending".into());
    let mut verdict = Verdict::new(match (phase.as_str(), &claim) {
        ("Bound", Some((namespace, name))) => format!("Bound to claim {namespace}/{name}"),
        ("Released", Some((namespace, name))) => {
            format!("Released: claim {namespace}/{name} was deleted, and no other claim can use the volume")
        }
        ("Failed", _) => format!("Failed: {}", status.message.as_deref().unwrap_or("no message")),
        (phase, _) => phase.to_owned(),
    });
    if let Some((namespace, name)) = &claim {
        let key = ObjectKey::namespaced("PersistentVolumeClaim", namespace, name);
        let pods: Vec<PodView<'_>> = pods_of_claim(objects, &key).collect();
        verdict.facts.push(used_by(&pods));
    }
    let found = attachments(objects, &key.name);
    if found.is_empty() {
        verdict.facts.push("attached to no node".into());
    }
    verdict.facts.extend(found);
    verdict
}

fn budget(objects: &Objects, key: &ObjectKey, budget: &PodDisruptionBudget) -> Verdict {
    let (spec, status) = (budget.spec.clone().unwrap_or_default(), budget.status.clone().unwrap_or_default());
    let number = |value: &IntOrString| match value {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    let rule = match (&spec.min_available, &spec.max_unavailable) {
        (Some(least), _) => format!("minAvailable {}", number(least)),
        (_, Some(most)) => format!("maxUnavailable {}", number(most)),
        _ => "no limit".to_owned(),
    };
    let mut verdict = Verdict::new(format!(
        "{} disruptions allowed: {} of {} pods healthy, {} required ({rule})",
        status.disruptions_allowed.unwrap_or_default(),
        status.current_healthy.unwrap_or_default(),
        status.expected_pods.unwrap_or_default(),
        status.desired_healthy.unwrap_or_default()
    ));
    let unhealthy: Vec<String> =
        pods_of_budget(objects, key).filter(|pod| !pod.is_ready()).map(|pod| pod.name().to_owned()).collect();
    if !unhealthy.is_empty() {
        verdict.facts.push(format!("pods that are not Ready: {}", some(&unhealthy)));
    }
    verdict
}

fn namespace(objects: &Objects, key: &ObjectKey, namespace: &Namespace) -> Verdict {
    let status = namespace.status.clone().unwrap_or_default();
    let pods: Vec<PodView<'_>> = objects.pods_in(&key.name).filter(|pod| !pod.has_ended()).collect();
    let running = pods.iter().filter(|pod| pod.is_ready()).count();
    let mut verdict = Verdict::new(format!("{running} of {} pods ready", pods.len()));
    let blocking = status.conditions.unwrap_or_default().into_iter().filter(|condition| condition.status == "True");
    verdict.facts.extend(blocking.map(|c| format!("condition {}: {}", c.type_, c.message.unwrap_or_default())));
    verdict
}

fn ready(ready: Option<i32>, wanted: i32) -> String {
    format!("{} of {wanted} pods ready", ready.unwrap_or_default())
}

/// The verdict about a workload, with where its pods are.
fn with_pods(objects: &Objects, key: &ObjectKey, summary: String) -> Verdict {
    let mut verdict = Verdict::new(summary);
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods_of_workload(objects, key).into_iter().filter(|pod| !pod.has_ended()) {
        let node = pod.node().map(|node| objects.node(node).ok().flatten());
        let place = match node.map(|node| node.map(|node| node.zone())) {
            Some(Some(Some(zone))) => format!("in {zone}"),
            Some(Some(None)) => "on nodes without a zone".to_owned(),
            Some(None) => "on deleted nodes".to_owned(),
            None => "without a node".to_owned(),
        };
        *places.entry(place).or_default() += 1;
    }
    if !places.is_empty() {
        let places: Vec<String> = places.into_iter().map(|(place, pods)| format!("{pods} {place}")).collect();
        verdict.facts.push(format!("pods: {}", places.join(", ")));
    }
    verdict
}

fn used_by(pods: &[PodView<'_>]) -> String {
    let names: Vec<String> = pods
        .iter()
        .map(|pod| match pod.node() {
            Some(node) => format!("{} (on node {node})", pod.name()),
            None => format!("{} (no node)", pod.name()),
        })
        .collect();
    if names.is_empty() { "used by no pod".into() } else { format!("used by pod {}", some(&names)) }
}

/// Where a volume is attached, a line for each attachment.
fn attachments(objects: &Objects, volume: &str) -> Vec<String> {
    let of_volume =
        |attachment: &&VolumeAttachment| attachment.spec.source.persistent_volume_name.as_deref() == Some(volume);
    let line = |attachment: &VolumeAttachment| {
        let node = &attachment.spec.node_name;
        let status = attachment.status.clone().unwrap_or_default();
        let failed = status.detach_error.or(status.attach_error).and_then(|error| error.message);
        match (status.attached, deletion(&attachment.metadata).is_some(), failed) {
            (_, true, Some(error)) => format!("cannot be detached from node {node}: {error}"),
            (_, true, None) => format!("being detached from node {node}"),
            (true, false, _) => format!("attached to node {node}"),
            (false, false, Some(error)) => format!("cannot be attached to node {node}: {error}"),
            (false, false, None) => format!("being attached to node {node}"),
        }
    };
    objects.all::<VolumeAttachment>().map(|(_, attachment)| attachment).filter(of_volume).map(line).collect()
}
