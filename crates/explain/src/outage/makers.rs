//! Who makes a pod anew.

use jiff::SignedDuration;
use serde_json::Value;

use super::pod::PodSeen;
use stead_model::{ObjectKey, Objects};

/// Who makes a pod anew.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Maker<'a> {
    /// A ReplicaSet or ReplicationController: a pod that is being deleted does not count for it any more.
    Replicas {
        /// The object, where it was read.
        set: Option<&'a Value>,
    },
    /// A StatefulSet: never two pods of one identity.
    Identities {
        /// The object, where it was read.
        set: Option<&'a Value>,
        /// Whether one waits for all before it to be ready.
        ordered: bool,
    },
    /// A Job: as a ReplicaSet, but each failure makes it wait longer, and too many end it.
    Job(&'a Value),
    /// A DaemonSet: one on each node, and on no other.
    EachNode,
    /// The kubelet itself, from a file.
    Kubelet,
    /// Something that is not known: when the old object is gone, as a rule.
    Other(&'a str),
    /// Nobody.
    Nobody,
}

impl<'a> Maker<'a> {
    /// Who makes this pod anew.
    pub(crate) fn of(objects: &'a Objects, pod: PodSeen<'a>) -> Maker<'a> {
        let Some((kind, name)) = pod.owner() else { return Maker::Nobody };
        let owner = objects.raw(&ObjectKey::new(kind, pod.namespace(), name));
        match kind {
            "ReplicaSet" | "ReplicationController" => Maker::Replicas { set: owner },
            "StatefulSet" => Maker::Identities {
                set: owner,
                ordered: owner.is_none_or(|o| o["spec"]["podManagementPolicy"] != "Parallel"),
            },
            "Job" => Maker::Job(owner.unwrap_or(&Value::Null)),
            "DaemonSet" => Maker::EachNode,
            "Node" => Maker::Kubelet,
            kind => Maker::Other(kind),
        }
    }
}

/// Why whoever made a pod makes none any more: it, or who made it in turn, is gone or being deleted.
pub(crate) fn retired(objects: &Objects, pod: PodSeen) -> Option<String> {
    let mut made = pod.0;
    loop {
        let mut owners = made["metadata"]["ownerReferences"].as_array()?.iter();
        let owner = owners.find(|o| o["controller"] == true)?;
        let (kind, name) = (owner["kind"].as_str()?, owner["name"].as_str()?);
        // Others may have kinds of the same names.
        let group = owner["apiVersion"].as_str()?.split('/').next();
        if !matches!(group, Some("apps" | "batch" | "v1")) || kind == "Node" {
            return None;
        }
        let Some(maker) = objects.raw(&ObjectKey::new(kind, pod.namespace(), name)) else {
            // Where none of a kind is there, they were not read.
            return objects.raw_of_kind(kind).next().map(|_| format!("its {kind} {name} is not there any more"));
        };
        if maker["metadata"]["deletionTimestamp"].is_string() {
            return Some(format!("its {kind} {name} is being deleted"));
        }
        made = maker;
    }
}

/// Whether a StatefulSet still has a pod of this one's number (podInOrdinalRange in pkg/controller/statefulset).
pub(crate) fn in_range(set: &Value, pod: PodSeen) -> bool {
    let first = set["spec"]["ordinals"]["start"].as_u64().unwrap_or_default();
    let replicas = set["spec"]["replicas"].as_u64().unwrap_or(1);
    pod.ordinal().is_none_or(|ordinal| ordinal >= first && ordinal - first < replicas)
}

/// The Deployment above a pod's ReplicaSet: its name, and the object where it was read.
pub(crate) fn deployment<'a>(objects: &'a Objects, pod: PodSeen<'a>) -> Option<(&'a str, Option<&'a Value>)> {
    let (_, name) = pod.owner().filter(|(kind, _)| *kind == "ReplicaSet")?;
    let set = objects.raw(&ObjectKey::new("ReplicaSet", pod.namespace(), name))?;
    let mut owners = set["metadata"]["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|o| o["controller"] == true && o["kind"] == "Deployment")?["name"].as_str()?;
    Some((owner, objects.raw(&ObjectKey::new("Deployment", pod.namespace(), owner))))
}

/// Whether two pods are made for the same purpose: by the same controller, or the same Deployment above it.
pub(crate) fn same_workload(objects: &Objects, a: PodSeen, b: PodSeen) -> bool {
    let above = |pod| deployment(objects, pod).map(|(name, _)| name);
    a.is_sibling(b) || (a.namespace() == b.namespace() && above(a).is_some() && above(a) == above(b))
}

/// The pod that was made in the place of one that is being deleted. Where several are, each has its own.
pub(crate) fn successor<'a>(objects: &'a Objects, pod: PodSeen<'a>) -> Option<PodSeen<'a>> {
    let deleted = pod.deleted()?;
    if !matches!(Maker::of(objects, pod), Maker::Replicas { .. } | Maker::Job(_)) {
        return None;
    }
    let all = || objects.raw_of_kind("Pod").map(|(_, p)| PodSeen(p)).filter(|p| same_workload(objects, pod, *p));
    let leaving: Vec<PodSeen> = all().filter(|p| p.due().is_some()).collect();
    let later = |p: &PodSeen| p.created().is_some_and(|at| at + SignedDuration::from_secs(2) >= deleted);
    let mut young: Vec<PodSeen> = all().filter(|p| p.due().is_none() && !p.ended() && later(p)).collect();
    // The one that still waits is the one that is asked about.
    young.sort_by_key(|p| (p.ready(), p.name()));
    let at = leaving.iter().position(|p| p.name() == pod.name())?;
    young.get(at).or(young.last()).copied()
}
