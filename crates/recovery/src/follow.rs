//! What is waited for: pods that have to go, volumes that have to be free, successors that have to be ready.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use stead_explain::outage::{NodeStanding, volumes_of};
use stead_model::{ObjectKey, Objects, unique_volume_name};

use crate::deed::Wait;
use crate::owners::{has_number, replicas};
use crate::pods::PodSeen;
use crate::record::{CondemnedPod, NodeRecovery, Plan, Target};

/// The object of a condemned pod, as long as it is there.
pub(crate) fn object<'a>(objects: &'a Objects, pod: &CondemnedPod) -> Option<PodSeen<'a>> {
    PodSeen::named(objects, &pod.namespace, &pod.name).filter(|seen| seen.uid() == pod.uid)
}

/// Whether anything was taken from the node: a pod's object is gone, or kept by a finalizer alone; or a volume is not
/// attached any more. So it is with what was to be left alone, and was deleted by somebody.
pub(crate) fn any_gone(objects: &Objects, node: &str, plan: &Plan) -> bool {
    let gone = |pod: &CondemnedPod| object(objects, pod).is_none_or(|pod| pod.has_ended());
    let all: BTreeSet<&str> = PodSeen::all(objects).filter(|p| !p.has_ended()).map(|p| p.uid()).collect();
    let left = plan.left_alone.iter().filter(|left| !left.passing).filter_map(|left| left.uid.as_deref());
    plan.pods.iter().filter(|pod| !pod.taken).any(gone)
        || left.into_iter().any(|uid| !all.contains(uid))
        || plan.volumes.iter().any(|volume| !attachments(objects, node).any(|(_, _, there)| there == volume))
}

/// What is attached to a node: the attachment, and the volume's name.
fn attachments<'a>(objects: &'a Objects, node: &'a str) -> impl Iterator<Item = (&'a ObjectKey, &'a Value, &'a str)> {
    let here = objects.raw_of_kind("VolumeAttachment").filter(move |(_, a)| a["spec"]["nodeName"] == node);
    here.filter_map(|(key, a)| Some((key, a, a["spec"]["source"]["persistentVolumeName"].as_str()?)))
}

/// What of all that a node's kubelet runs is not its own any more: there is no such pod, or it is being deleted.
pub(crate) fn strangers<'a>(objects: &Objects, running: &'a BTreeSet<String>) -> Vec<&'a str> {
    let stays = PodSeen::all(objects).filter(|p| p.terminating().is_none());
    let own: BTreeSet<&str> = stays.flat_map(|p| [Some(p.uid()), p.mirrors()]).flatten().collect();
    running.iter().map(String::as_str).filter(|uid| !own.contains(uid)).collect()
}

/// Volumes that the node's kubelet still has mounted though they were released, or are about to be: they are in the plan
/// and no pod that stays on the node uses them, or the node has no attachment of them. What is mounted without having been attached, `volumesInUse` does not tell.
pub(crate) fn still_in_use(objects: &Objects, node: &NodeStanding, plan: Option<&Plan>) -> Vec<String> {
    let unique = |name: &str| objects.volume(name).and_then(unique_volume_name);
    let names = |volumes: Vec<&str>| -> BTreeMap<String, String> {
        volumes.into_iter().filter_map(|name| Some((unique(name)?, name.to_owned()))).collect()
    };
    let stays = PodSeen::on(objects, &node.name).filter(|pod| pod.terminating().is_none() && !pod.has_ended());
    let used: BTreeSet<String> =
        stays.flat_map(|pod| volumes_of(objects, pod.namespace(), pod.value)).filter_map(|v| v.volume).collect();
    let planned = plan.into_iter().flat_map(Plan::freed).filter(|volume| !used.contains(*volume));
    let released = names(planned.collect());
    let mut attached = names(attachments(objects, &node.name).map(|(_, _, volume)| volume).collect());
    let found = objects.raw(&ObjectKey::new("Node", "", &node.name)).unwrap_or(&Value::Null);
    let listed = found["status"]["volumesAttached"].as_array().into_iter().flatten();
    attached.extend(listed.filter_map(|v| v["name"].as_str()).map(|name| (name.to_owned(), name.to_owned())));
    let is_stale = |name: &&String| {
        let detached = name.starts_with("kubernetes.io/csi/") && !attached.contains_key(*name);
        detached || released.contains_key(*name)
    };
    let stale = node.volumes_in_use.iter().filter(is_stale);
    stale.map(|name| released.get(name).unwrap_or(name).clone()).collect()
}

/// The condemned pods that are still there.
pub(crate) fn pods(objects: &Objects, plan: &Plan) -> Vec<Wait> {
    let left = plan.pods.iter().filter_map(|pod| object(objects, pod));
    left.map(|pod| {
        let finalizers: Vec<&str> = pod.finalizers().collect();
        let how = match (pod.terminating_since(), finalizers.as_slice()) {
            (None, _) => "not Terminating yet: the taint eviction controller has not come to it".to_owned(),
            (Some(since), []) => format!("Terminating since {since}: the pod collector has not come to it"),
            (Some(since), names) => format!(
                "Terminating since {since}: finalizers {} keep it, and whoever put them there has to take them away",
                names.join(", ")
            ),
        };
        Wait { what: format!("pod {}/{}", pod.namespace(), pod.name()), how }
    })
    .collect()
}

/// The volumes that are still attached to the node.
pub(crate) fn volumes(objects: &Objects, node: &str, plan: &Plan) -> Vec<Wait> {
    let held = attachments(objects, node).filter(|(_, _, volume)| plan.freed().any(|freed| freed == *volume));
    held.map(|(key, attachment, volume)| {
        let error = attachment["status"]["detachError"]["message"].as_str();
        let since = attachment["metadata"]["deletionTimestamp"].as_str();
        let how = match (error, since) {
            (Some(error), _) => format!("VolumeAttachment {}: its driver says: {error}", key.name),
            (None, Some(since)) => format!("VolumeAttachment {}: being detached since {since}", key.name),
            (None, None) => format!("VolumeAttachment {}: attached to node {node}", key.name),
        };
        Wait { what: format!("volume {volume}"), how }
    })
    .collect()
}

/// The successors that are not ready.
pub(crate) fn successors(objects: &Objects, record: &NodeRecovery) -> Vec<Wait> {
    record.spec.plan.pods.iter().filter_map(|pod| successor(objects, record, pod)).collect()
}

fn successor(objects: &Objects, record: &NodeRecovery, pod: &CondemnedPod) -> Option<Wait> {
    // Where none was promised, none is waited for.
    if !matches!(pod.target, Target::Nodes(_)) {
        return None;
    }
    let (kind, name) = pod.owner.as_deref()?.split_once('/')?;
    let owner = objects.raw(&ObjectKey::new(kind, &pod.namespace, name));
    let whom = format!("{kind} {}/{name}", pod.namespace);
    let of_owner = |uid: &Value| others(objects, pod, |o| o["uid"] == *uid);
    match (kind, owner) {
        // Deleted in the meantime: nobody makes it anew.
        ("StatefulSet" | "ReplicaSet" | "ReplicationController" | "Job", None) => None,
        ("StatefulSet", Some(set)) if !has_number(set, &pod.name) => None,
        ("StatefulSet", Some(_)) => {
            let seen = PodSeen::named(objects, &pod.namespace, &pod.name);
            waits_for(&format!("pod {}/{}", pod.namespace, pod.name), seen.filter(|s| s.uid() != pod.uid))
        }
        ("ReplicaSet" | "ReplicationController", Some(set)) => match deployment(objects, &pod.namespace, set) {
            // While an update is under way, the successor is another ReplicaSet's.
            Some(deployment) => {
                let of =
                    |(key, set): &(&ObjectKey, &Value)| key.namespace == pod.namespace && is_owned(set, deployment);
                let sets: Vec<&Value> =
                    objects.raw_of_kind("ReplicaSet").filter(of).map(|(_, s)| &s["metadata"]["uid"]).collect();
                let mine = others(objects, pod, |o| sets.contains(&&o["uid"]));
                enough(record, &whom, replicas(deployment), active(mine))
            }
            None => enough(record, &whom, replicas(set), active(of_owner(&set["metadata"]["uid"]))),
        },
        ("Job", Some(job)) => {
            let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
            let over = |c: &Value| (c["type"] == "Complete" || c["type"] == "Failed") && c["status"] == "True";
            let over = conditions.any(over) || job["spec"]["suspend"] == true;
            let mine = of_owner(&job["metadata"]["uid"]);
            // Another one may have ended well long ago.
            (!over).then(|| enough(record, &whom, 1, mine)).flatten()
        }
        // What others make, and when, nobody here knows: what is there has to be ready.
        _ => {
            let mine = others(objects, pod, |o| o["kind"] == kind && o["name"] == name);
            let next = mine.into_iter().find(|p| !p.is_ready() && !p.has_ended() && !was_broken(record, *p));
            next.and_then(|next| waits_for(&format!("a pod of {whom}"), Some(next)))
        }
    }
}

/// The Deployment that a ReplicaSet belongs to.
fn deployment<'a>(objects: &'a Objects, namespace: &str, set: &Value) -> Option<&'a Value> {
    let mut owners = set["metadata"]["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|o| o["controller"] == true && o["kind"] == "Deployment")?;
    objects.raw(&ObjectKey::new("Deployment", namespace, owner["name"].as_str()?))
}

fn is_owned(object: &Value, by: &Value) -> bool {
    let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|o| o["controller"] == true && o["uid"] == by["metadata"]["uid"])
}

/// The pods of a controller but this one, those that are being deleted or have failed left out.
fn others<'a>(objects: &'a Objects, but: &CondemnedPod, is_of: impl Fn(&Value) -> bool) -> Vec<PodSeen<'a>> {
    let there = PodSeen::all(objects).filter(|p| p.namespace() == but.namespace && p.uid() != but.uid);
    let counts = there.filter(|p| p.terminating().is_none() && p.value["status"]["phase"] != "Failed");
    counts.filter(|p| p.controller().is_some_and(&is_of)).collect()
}

/// Those that run, or will: one that has ended, be it well, is none of the replicas (IsPodActive in pkg/controller).
fn active(pods: Vec<PodSeen<'_>>) -> Vec<PodSeen<'_>> {
    pods.into_iter().filter(|p| !p.has_ended()).collect()
}

/// Whether a pod was not ready before the node was lost: that has nothing to do with it.
fn was_broken(record: &NodeRecovery, pod: PodSeen<'_>) -> bool {
    let lost = record.spec.heard.silent;
    !pod.is_ready() && pod.node().is_some() && pod.created().zip(lost).is_some_and(|(made, lost)| made < lost)
}

/// So many pods have to be ready. What was left on the node is nobody's successor, and not ready either.
fn enough(record: &NodeRecovery, whom: &str, wanted: i64, mine: Vec<PodSeen<'_>>) -> Option<Wait> {
    let left_alone = &record.spec.plan.left_alone;
    let stays = |p: &PodSeen<'_>| left_alone.iter().any(|left| left.uid.as_deref() == Some(p.uid()));
    let (lost, mine): (Vec<PodSeen<'_>>, Vec<PodSeen<'_>>) =
        mine.into_iter().partition(|p| stays(p) || was_broken(record, *p));
    let ready = mine.iter().filter(|p| p.is_ready() || p.has_ended()).count();
    let next = mine.iter().find(|p| !p.is_ready() && !p.has_ended()).copied();
    let short = i64::try_from(ready + lost.len()).is_ok_and(|there| there < wanted);
    short.then(|| waits_for(&format!("a pod of {whom}"), next)).flatten()
}

fn waits_for(what: &str, seen: Option<PodSeen<'_>>) -> Option<Wait> {
    let how = match seen {
        None => "not made yet".to_owned(),
        Some(pod) if pod.is_ready() => return None,
        Some(pod) => match pod.node() {
            None => "no node has it yet".to_owned(),
            Some(node) => format!("on {node}, not ready yet"),
        },
    };
    Some(Wait { what: what.into(), how })
}
