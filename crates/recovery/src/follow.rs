//! What is waited for: pods that have to go, volumes that have to be free, successors that have to be ready.

use stead_explain::{ObjectKey, Objects};

use crate::deed::Wait;
use crate::pods::PodSeen;
use crate::record::{CondemnedPod, Plan, Target};

/// The object of a condemned pod, as long as it is there.
pub(crate) fn object<'a>(objects: &'a Objects, pod: &CondemnedPod) -> Option<PodSeen<'a>> {
    PodSeen::named(objects, &pod.namespace, &pod.name).filter(|seen| seen.uid() == pod.uid)
}

/// Whether any condemned pod's object is gone.
pub(crate) fn any_gone(objects: &Objects, plan: &Plan) -> bool {
    plan.pods.iter().any(|pod| object(objects, pod).is_none())
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
    let here = objects.of_kind("VolumeAttachment").filter(|(_, a)| a["spec"]["nodeName"] == node);
    let held = here.filter_map(|(key, attachment)| {
        let volume = attachment["spec"]["source"]["persistentVolumeName"].as_str()?;
        plan.freed().any(|freed| freed == volume).then_some((key, attachment, volume))
    });
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
pub(crate) fn successors(objects: &Objects, plan: &Plan) -> Vec<Wait> {
    plan.pods.iter().filter_map(|pod| successor(objects, plan, pod)).collect()
}

fn successor(objects: &Objects, plan: &Plan, pod: &CondemnedPod) -> Option<Wait> {
    // Where none was promised, none is waited for.
    if !matches!(pod.target, Target::Nodes(_)) {
        return None;
    }
    let (kind, name) = pod.owner.as_deref()?.split_once('/')?;
    let owner = objects.get(&ObjectKey::new(kind, &pod.namespace, name));
    let known = matches!(kind, "StatefulSet" | "ReplicaSet");
    let replicas = owner.map(|o| o["spec"]["replicas"].as_i64().unwrap_or(1));
    match (kind, replicas) {
        // Deleted or scaled down in the meantime: nobody makes it anew.
        (_, None) if known => None,
        ("StatefulSet", Some(replicas)) => {
            let first = owner.and_then(|o| o["spec"]["ordinals"]["start"].as_i64()).unwrap_or(0);
            let ordinal = pod.name.rsplit_once('-').and_then(|(_, n)| n.parse::<i64>().ok());
            if ordinal.is_some_and(|n| n >= first + replicas) {
                return None;
            }
            let seen = PodSeen::named(objects, &pod.namespace, &pod.name);
            waits_for(&format!("pod {}/{}", pod.namespace, pod.name), seen.filter(|s| s.uid() != pod.uid))
        }
        ("ReplicaSet", Some(0)) => None,
        _ => {
            let uid = owner.map(|o| &o["metadata"]["uid"]);
            let of_owner = |p: &PodSeen<'_>| {
                p.controller()
                    .is_some_and(|o| o["kind"] == kind && o["name"] == name && uid.is_none_or(|uid| o["uid"] == *uid))
            };
            let of_namespace =
                || PodSeen::all(objects).filter(|p| p.namespace() == pod.namespace && p.uid() != pod.uid);
            let mine: Vec<PodSeen<'_>> =
                of_namespace().filter(of_owner).filter(|p| p.terminating().is_none()).collect();
            // What was left on the node is nobody's successor, and not ready either.
            let stays = |p: &&PodSeen<'_>| plan.left_alone.iter().any(|left| left.uid.as_deref() == Some(p.uid()));
            let (stay, mine): (Vec<PodSeen<'_>>, Vec<PodSeen<'_>>) = mine.iter().partition(stays);
            let ready = mine.iter().filter(|p| p.is_ready() || p.has_ended()).count();
            let wanted = replicas.and_then(|r| usize::try_from(r).ok()).unwrap_or(1);
            let next = mine.iter().find(|p| !p.is_ready()).copied();
            (ready + stay.len() < wanted)
                .then(|| waits_for(&format!("a pod of {kind} {}/{name}", pod.namespace), next))
                .flatten()
        }
    }
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
