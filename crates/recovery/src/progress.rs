//! How far a release is: pods that have to be removed, volumes that have to be detached, replacement pods that have to be
//! Ready.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use stead_model::{
    NodeHealth, ObjectKey, Objects, PodView, WorkloadView, attachments_on, controller_of, pod_volumes, stateful_set,
    unique_volume_name,
};

use crate::next_step::Wait;
use crate::record::{NodeRecovery, PlannedPod, RecoveryPlan, ReplacementTarget};

/// The pod of this name, whatever its UID.
pub(crate) fn pod_named<'a>(objects: &'a Objects, namespace: &str, name: &str) -> Option<PodView<'a>> {
    objects.pod(&ObjectKey::pod(namespace, name)).ok().flatten()
}

/// The object of a planned pod, as long as it exists.
pub(crate) fn object<'a>(objects: &'a Objects, planned: &PlannedPod) -> Option<PodView<'a>> {
    pod_named(objects, &planned.namespace, &planned.name).filter(|pod| pod.uid() == Some(&planned.uid))
}

/// Whether anything was released from the node: the object of a planned pod is gone or kept by a finalizer only, or a volume
/// is no longer attached. The same holds for a pod that was to be left alone and was deleted by somebody.
pub(crate) fn any_released(objects: &Objects, node: &str, plan: &RecoveryPlan) -> bool {
    let released = |planned: &PlannedPod| object(objects, planned).is_none_or(PodView::has_ended);
    let here: BTreeSet<&str> = objects.pods_on(node).filter(|pod| !pod.has_ended()).filter_map(PodView::uid).collect();
    let left_alone = plan.left_alone.iter().filter(|left| !left.expendable).filter_map(|left| left.uid.as_deref());
    let attached: BTreeSet<String> = attachments_on(objects, node).into_iter().filter_map(|a| a.volume).collect();
    plan.pods.iter().filter(|planned| !planned.released_earlier).any(released)
        || left_alone.into_iter().any(|uid| !here.contains(uid))
        || plan.volumes.iter().any(|volume| !attached.contains(volume))
}

/// The pods that the node's kubelet runs although they have no object, or are being deleted.
pub(crate) fn running_without_object<'a>(objects: &Objects, node: &str, running: &'a BTreeSet<String>) -> Vec<&'a str> {
    let stays = objects.pods_on(node).filter(|pod| !pod.is_terminating());
    let own: BTreeSet<&str> = stays.flat_map(|pod| [pod.uid(), pod.mirrored_uid()]).flatten().collect();
    running.iter().map(String::as_str).filter(|uid| !own.contains(uid)).collect()
}

/// Volumes that the node's kubelet still has mounted although they were released, or are about to be: they are in the plan
/// and no pod that stays on the node uses them, or they are not attached to the node. `volumesInUse` does not contain
/// volumes that are mounted without being attached.
pub(crate) fn released_but_in_use(
    objects: &Objects,
    node: &NodeHealth<'_>,
    plan: Option<&RecoveryPlan>,
) -> Vec<String> {
    let by_unique_name = |volumes: Vec<&str>| -> BTreeMap<String, String> {
        let unique_name = |volume: &str| objects.volume(volume).and_then(unique_volume_name);
        volumes.into_iter().filter_map(|volume| Some((unique_name(volume)?, volume.to_owned()))).collect()
    };
    let stays = objects.pods_on(node.name()).filter(|pod| !pod.is_terminating() && !pod.has_ended());
    let used: BTreeSet<String> = stays.flat_map(|pod| pod_volumes(objects, pod)).filter_map(|v| v.volume).collect();
    let planned = plan.into_iter().flat_map(RecoveryPlan::released_volumes).filter(|volume| !used.contains(*volume));
    let released = by_unique_name(planned.collect());
    let attachments = attachments_on(objects, node.name());
    let mut attached: BTreeSet<String> =
        by_unique_name(attachments.iter().filter_map(|a| a.volume.as_deref()).collect()).into_keys().collect();
    attached.extend(node.volumes_attached().map(str::to_owned));
    let is_stale = |name: &&String| {
        let detached = name.starts_with("kubernetes.io/csi/") && !attached.contains(*name);
        detached || released.contains_key(*name)
    };
    let stale = node.volumes_in_use().iter().filter(is_stale);
    stale.map(|name| released.get(name).unwrap_or(name).clone()).collect()
}

/// The planned pods that still exist.
pub(crate) fn pods_to_remove(objects: &Objects, plan: &RecoveryPlan) -> Vec<Wait> {
    let left = plan.pods.iter().filter_map(|planned| object(objects, planned));
    left.map(|pod| {
        let finalizers: Vec<&str> = pod.finalizers().collect();
        let how = match (pod.deletion_requested(), finalizers.as_slice()) {
            (None, _) => "not Terminating yet: the taint eviction controller has not evicted it".to_owned(),
            (Some(since), []) => {
                format!("Terminating since {since}: the pod garbage collector has not removed it yet")
            }
            (Some(since), names) => format!(
                "Terminating since {since}: it has the finalizers {}, which whoever added them has to remove",
                names.join(", ")
            ),
        };
        Wait { what: format!("pod {}", pod.full_name()), how }
    })
    .collect()
}

/// The volumes that are still attached to the node.
pub(crate) fn volumes_to_detach(objects: &Objects, node: &str, plan: &RecoveryPlan) -> Vec<Wait> {
    let released: BTreeSet<&str> = plan.released_volumes().collect();
    let attachments = attachments_on(objects, node).into_iter();
    attachments
        .filter_map(|attachment| {
            let volume = attachment.volume.filter(|volume| released.contains(volume.as_str()))?;
            let name = attachment.name;
            let how = match (attachment.detach_error, attachment.detaching_since) {
                (Some(error), _) => format!("VolumeAttachment {name}: its driver reports: {error}"),
                (None, Some(since)) => format!("VolumeAttachment {name}: being detached since {since}"),
                (None, None) => format!("VolumeAttachment {name}: attached to node {node}"),
            };
            Some(Wait { what: format!("volume {volume}"), how })
        })
        .collect()
}

/// The replacement pods that are not Ready.
pub(crate) fn replacements_to_start(objects: &Objects, record: &NodeRecovery) -> Vec<Wait> {
    record.spec.plan.pods.iter().filter_map(|planned| replacement_wait(objects, record, planned)).collect()
}

fn replacement_wait(objects: &Objects, record: &NodeRecovery, planned: &PlannedPod) -> Option<Wait> {
    // If the plan says that there is no replacement, nothing is waited for.
    if !matches!(planned.target, ReplacementTarget::Nodes(_)) {
        return None;
    }
    let (kind, name) = planned.owner.as_deref()?.split_once('/')?;
    let workload = objects.workload(&ObjectKey::namespaced(kind, &planned.namespace, name)).ok().flatten();
    let whom = format!("{kind} {}/{name}", planned.namespace);
    let siblings = |uid: Option<&str>| siblings(objects, planned, |owner| Some(owner.uid.as_str()) == uid);
    match (kind, workload) {
        // It was deleted in the meantime: nobody recreates the pod.
        ("StatefulSet" | "ReplicaSet" | "ReplicationController" | "Job", None) => None,
        (_, Some(WorkloadView::StatefulSet(set))) => {
            let wanted = stateful_set::pod_in_ordinal_range(set, &planned.name);
            let other = |pod: &PodView<'_>| pod.uid() != Some(&planned.uid);
            let replacement = pod_named(objects, &planned.namespace, &planned.name).filter(other);
            wanted.then(|| not_ready(&format!("pod {}", planned.full_name()), replacement)).flatten()
        }
        (_, Some(set @ (WorkloadView::ReplicaSet(_) | WorkloadView::ReplicationController(_)))) => {
            let (wanted, siblings) = match deployment_of_set(objects, &planned.namespace, set) {
                // During an update the replacement belongs to another ReplicaSet of the Deployment.
                Some(deployment) => {
                    let uid = deployment.metadata().uid.as_deref();
                    let sets = replica_sets_of(objects, &planned.namespace, uid);
                    (
                        deployment.replicas(),
                        self::siblings(objects, planned, |owner| sets.contains(&owner.uid.as_str())),
                    )
                }
                None => (set.replicas(), siblings(set.metadata().uid.as_deref())),
            };
            // A pod that has ended, even successfully, is not a replica (IsPodActive in pkg/controller).
            let active = siblings.into_iter().filter(|pod| !pod.has_ended()).collect();
            not_enough_ready(record, &whom, wanted.unwrap_or_default(), active)
        }
        (_, Some(WorkloadView::Job(job))) => {
            // Another pod of the Job may have succeeded long ago: it counts.
            let siblings = siblings(job.metadata.uid.as_deref());
            (!has_finished(job)).then(|| not_enough_ready(record, &whom, 1, siblings)).flatten()
        }
        // It is unknown what other controllers create, and when: the pods that exist have to be Ready.
        _ => {
            let siblings = self::siblings(objects, planned, |owner| owner.kind == kind && owner.name == name);
            let waits = |pod: &PodView<'_>| !pod.is_ready() && !pod.has_ended() && !was_not_ready_before(record, *pod);
            let next = siblings.into_iter().find(waits);
            next.and_then(|next| not_ready(&format!("a pod of {whom}"), Some(next)))
        }
    }
}

/// Whether a Job has finished or is suspended: it creates no further pods.
fn has_finished(job: &Job) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let finished = conditions.iter().any(|c| matches!(c.type_.as_str(), "Complete" | "Failed") && c.status == "True");
    finished || job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true)
}

/// The Deployment that controls a ReplicaSet.
fn deployment_of_set<'a>(objects: &'a Objects, namespace: &str, set: WorkloadView<'a>) -> Option<WorkloadView<'a>> {
    let owner = set.controller().filter(|owner| owner.kind == "Deployment")?;
    objects.workload_of(namespace, owner)
}

/// The UIDs of the ReplicaSets that a Deployment controls.
fn replica_sets_of<'a>(objects: &'a Objects, namespace: &'a str, deployment: Option<&str>) -> Vec<&'a str> {
    let sets = objects.all_in::<ReplicaSet>(namespace).map(|(_, set)| &set.metadata);
    let owned = sets.filter(|set| controller_of(set).is_some_and(|owner| Some(owner.uid.as_str()) == deployment));
    owned.filter_map(|set| set.uid.as_deref()).collect()
}

/// The other pods of a controller, except those that are being deleted or have failed.
fn siblings<'a>(
    objects: &'a Objects,
    planned: &'a PlannedPod,
    is_of: impl Fn(&OwnerReference) -> bool,
) -> Vec<PodView<'a>> {
    let others = objects.pods_in(&planned.namespace).filter(|pod| pod.uid() != Some(&planned.uid));
    let alive = others.filter(|pod| !pod.is_terminating() && pod.phase() != "Failed");
    alive.filter(|pod| pod.controller().is_some_and(&is_of)).collect()
}

/// Whether a pod was not ready before the node became unreachable, so that the outage is not the cause.
fn was_not_ready_before(record: &NodeRecovery, pod: PodView<'_>) -> bool {
    let outage = record.spec.last_contact.unreachable_since;
    let older = pod.created().zip(outage).is_some_and(|(created, outage)| created < outage);
    !pod.is_ready() && pod.node().is_some() && older
}

/// Waits until so many pods are Ready. A pod that was left alone on the node is not a replacement, and is not Ready either.
fn not_enough_ready(record: &NodeRecovery, whom: &str, wanted: i32, pods: Vec<PodView<'_>>) -> Option<Wait> {
    let left_alone = |pod: &PodView<'_>| {
        record.spec.plan.left_alone.iter().any(|left| left.uid.is_some() && left.uid.as_deref() == pod.uid())
    };
    let (lost, pods): (Vec<PodView<'_>>, Vec<PodView<'_>>) =
        pods.into_iter().partition(|pod| left_alone(pod) || was_not_ready_before(record, *pod));
    let ready = pods.iter().filter(|pod| pod.is_ready() || pod.has_ended()).count();
    let next = pods.iter().find(|pod| !pod.is_ready() && !pod.has_ended()).copied();
    let enough = i32::try_from(ready + lost.len()).unwrap_or(i32::MAX) >= wanted;
    if enough { None } else { not_ready(&format!("a pod of {whom}"), next) }
}

fn not_ready(what: &str, pod: Option<PodView<'_>>) -> Option<Wait> {
    let how = match pod {
        None => "not created yet".to_owned(),
        Some(pod) if pod.is_ready() => return None,
        Some(pod) => match pod.node() {
            None => "not scheduled yet".to_owned(),
            Some(node) => format!("on {node}, not Ready yet"),
        },
    };
    Some(Wait { what: what.into(), how })
}
