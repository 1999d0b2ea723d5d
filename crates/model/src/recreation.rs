//! Who recreates a pod, and under which name.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::key::ObjectKey;
use crate::objects::Objects;
use crate::outline::PodOutline;
use crate::owner::controller_of;
use crate::pod::PodView;
use crate::stateful_set;
use crate::workload::WorkloadView;

/// Who recreates a pod.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PodController<'a> {
    /// A ReplicaSet or ReplicationController: a pod that is being deleted no longer counts, so that another is created
    /// at once, under a new name.
    ReplicaSet {
        /// The object, where it was read.
        set: Option<WorkloadView<'a>>,
    },
    /// A StatefulSet: the pod is created again under the same name, when the old object is gone.
    StatefulSet {
        /// The object, where it was read.
        set: Option<&'a StatefulSet>,
    },
    /// A Job: another is created under a new name, after a delay that grows with each failure, up to a limit.
    Job {
        /// The object, where it was read.
        job: Option<&'a Job>,
    },
    /// A DaemonSet: one pod on each node, and the replacement on the same node.
    DaemonSet,
    /// The kubelet of its node, from a file.
    Kubelet,
    /// A controller that is not known here: as a rule it creates another when the old object is gone.
    Other {
        /// Its kind.
        kind: &'a str,
    },
    /// Nobody.
    None,
}

impl<'a> PodController<'a> {
    /// Who recreates this pod.
    pub fn of(objects: &'a Objects, pod: PodView<'a>) -> PodController<'a> {
        let Some(owner) = pod.controller() else {
            return if pod.is_mirror() { PodController::Kubelet } else { PodController::None };
        };
        let workload = || objects.workload_of(pod.namespace(), owner);
        match owner.kind.as_str() {
            "ReplicaSet" | "ReplicationController" => PodController::ReplicaSet { set: workload() },
            "StatefulSet" => PodController::StatefulSet { set: objects.find(pod.namespace(), &owner.name) },
            "Job" => PodController::Job { job: objects.find(pod.namespace(), &owner.name) },
            "DaemonSet" => PodController::DaemonSet,
            "Node" => PodController::Kubelet,
            kind => PodController::Other { kind },
        }
    }

    /// Whether the pod belongs to its node: it is never recreated on another one.
    pub fn stays_on_node(self) -> bool {
        matches!(self, PodController::DaemonSet | PodController::Kubelet)
    }

    /// Whether the replacement has the name of the pod, so that there is none while the old object exists.
    pub fn keeps_name(self) -> bool {
        matches!(self, PodController::StatefulSet { .. } | PodController::Kubelet)
    }

    /// Whether a StatefulSet creates the pod only when all pods before it are ready.
    pub fn is_ordered(self) -> bool {
        matches!(self, PodController::StatefulSet { set } if set.is_none_or(stateful_set::is_ordered))
    }
}

/// Why a pod is not recreated although it has a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRecreated {
    /// Its controller, or that controller's own, does not exist any more.
    ControllerGone(ObjectKey),
    /// Its controller, or that controller's own, is being deleted.
    ControllerDeleted(ObjectKey),
    /// Its StatefulSet wants fewer pods.
    ScaledDown(ObjectKey),
}

impl std::fmt::Display for NotRecreated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NotRecreated::ControllerGone(key) => write!(f, "its {} {} no longer exists", key.kind, key.name),
            NotRecreated::ControllerDeleted(key) => write!(f, "its {} {} is being deleted", key.kind, key.name),
            NotRecreated::ScaledDown(key) => write!(f, "its {} {} is scaled down", key.kind, key.name),
        }
    }
}

/// Why the controller of a pod does not recreate it; none where it does, as far as is known.
pub fn not_recreated(objects: &Objects, pod: PodView<'_>) -> Option<NotRecreated> {
    let mut metadata: &ObjectMeta = pod.metadata();
    while let Some(owner) = controller_of(metadata).filter(|owner| is_workload(owner)) {
        let key = ObjectKey::new(&owner.kind, pod.namespace(), &owner.name);
        let Some(workload) = objects.workload_of(pod.namespace(), owner) else {
            // Where there is none of a kind, they were not read.
            let gone = !objects.contains(&key) && !objects.has_none(&owner.kind);
            return gone.then_some(NotRecreated::ControllerGone(key));
        };
        metadata = workload.metadata();
        if metadata.deletion_timestamp.is_some() {
            return Some(NotRecreated::ControllerDeleted(key));
        }
    }
    match PodController::of(objects, pod) {
        PodController::StatefulSet { set: Some(set) } if !stateful_set::pod_in_ordinal_range(set, pod.name()) => {
            let name = set.metadata.name.as_deref().unwrap_or_default();
            Some(NotRecreated::ScaledDown(ObjectKey::namespaced("StatefulSet", pod.namespace(), name)))
        }
        _ => None,
    }
}

/// Whether an owner is a workload of Kubernetes: other API groups may have kinds of the same names.
fn is_workload(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split('/').next().unwrap_or_default();
    matches!(group, "apps" | "batch" | "v1") && owner.kind != "Node"
}

/// The Deployment that controls a pod's ReplicaSet: its name, and the object where it was read.
pub fn deployment_of<'a>(objects: &'a Objects, pod: PodView<'a>) -> Option<(&'a str, Option<&'a Deployment>)> {
    let owner = pod.controller().filter(|owner| owner.kind == "ReplicaSet")?;
    let set = objects.workload_of(pod.namespace(), owner)?;
    let name = &set.controller().filter(|owner| owner.kind == "Deployment")?.name;
    Some((name, objects.find(pod.namespace(), name)))
}

/// Whether two pods belong to the same workload: to the same controller, or to the same Deployment.
pub fn same_workload(objects: &Objects, a: PodView<'_>, b: PodView<'_>) -> bool {
    let deployment = |pod| deployment_of(objects, pod).map(|(name, _)| name);
    a.is_sibling(b) || (a.namespace() == b.namespace() && deployment(a).is_some() && deployment(a) == deployment(b))
}

impl Objects {
    /// The pods of the same workload as a pod, itself included if it has a controller. In a large namespace only these are
    /// parsed.
    pub fn pods_of_same_workload<'a>(&'a self, pod: PodView<'a>) -> impl Iterator<Item = PodView<'a>> {
        let owner = pod.controller().map(|owner| (owner.kind.as_str(), owner.name.as_str()));
        let sets: BTreeSet<&str> = match deployment_of(self, pod) {
            None => BTreeSet::new(),
            Some((deployment, _)) => {
                let of_deployment = |set: &ReplicaSet| {
                    controller_of(&set.metadata).is_some_and(|o| o.kind == "Deployment" && o.name == deployment)
                };
                let sets = self.all_in::<ReplicaSet>(pod.namespace()).filter(|(_, set)| of_deployment(set));
                sets.map(|(key, _)| key.name.as_str()).collect()
            }
        };
        let ours = move |outline: &PodOutline| match outline.controller() {
            Some(("ReplicaSet", name)) if sets.contains(name) => true,
            controller => controller.is_some() && controller == owner,
        };
        let pods = self.of_kind_in("Pod", pod.namespace()).filter(move |object| ours(object.outline()));
        pods.filter_map(|object| PodView::of(object).ok())
    }
}

/// The pod that was created in place of one that is being deleted, under another name. Where several pods of a workload
/// are being deleted, each has its own.
pub fn replacement_of<'a>(objects: &'a Objects, pod: PodView<'a>) -> Option<PodView<'a>> {
    let requested = pod.deletion()?.requested;
    if !matches!(PodController::of(objects, pod), PodController::ReplicaSet { .. } | PodController::Job { .. }) {
        return None;
    }
    let all = || objects.pods_of_same_workload(pod);
    let leaving: Vec<PodView<'a>> = all().filter(|other| other.is_terminating()).collect();
    let later = |other: &PodView<'a>| {
        other.created().is_some_and(|created| created + SignedDuration::from_secs(2) >= requested)
    };
    let mut young: Vec<PodView<'a>> =
        all().filter(|other| !other.is_terminating() && !other.has_ended() && later(other)).collect();
    // The one that still waits is the one that is asked about.
    young.sort_by_key(|other| (other.is_ready(), other.name()));
    let at = leaving.iter().position(|other| other.name() == pod.name())?;
    young.get(at).or(young.last()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn owner(api_version: &str, kind: &str, name: &str) -> Value {
        json!([{ "apiVersion": api_version, "kind": kind, "name": name, "uid": "u", "controller": true }])
    }

    fn object(api_version: &str, kind: &str, name: &str, owners: Value, rest: Value) -> Value {
        let mut out = rest;
        out["apiVersion"] = api_version.into();
        out["kind"] = kind.into();
        out["metadata"]["name"] = name.into();
        out["metadata"]["namespace"] = "n".into();
        out["metadata"]["ownerReferences"] = owners;
        out
    }

    fn pod(name: &str, owners: Value, rest: Value) -> Value {
        object("v1", "Pod", name, owners, rest)
    }

    fn find<'a>(objects: &'a Objects, name: &str) -> PodView<'a> {
        objects.pod(&ObjectKey::pod("n", name)).expect("it is well formed").expect("it is there")
    }

    #[test]
    fn who_recreates_a_pod_and_under_which_name() {
        let objects = Objects::from_items([
            pod("a", owner("apps/v1", "ReplicaSet", "r"), json!({})),
            pod("b", owner("apps/v1", "StatefulSet", "s"), json!({})),
            pod("c", owner("apps/v1", "DaemonSet", "d"), json!({})),
            pod("d", owner("v1", "Node", "x"), json!({})),
            pod("e", owner("example.org/v1", "Widget", "w"), json!({})),
            pod("f", json!(null), json!({})),
            pod("g", owner("batch/v1", "Job", "j"), json!({})),
        ]);
        for (name, controller, keeps_name, stays) in [
            ("a", PodController::ReplicaSet { set: None }, false, false),
            ("b", PodController::StatefulSet { set: None }, true, false),
            ("c", PodController::DaemonSet, false, true),
            ("d", PodController::Kubelet, true, true),
            ("e", PodController::Other { kind: "Widget" }, false, false),
            ("f", PodController::None, false, false),
            ("g", PodController::Job { job: None }, false, false),
        ] {
            let found = PodController::of(&objects, find(&objects, name));
            assert_eq!(found, controller, "{name}");
            assert_eq!((found.keeps_name(), found.stays_on_node()), (keeps_name, stays), "{name}");
        }
    }

    #[test]
    fn a_pod_is_not_recreated_without_its_controllers() {
        let set = owner("apps/v1", "ReplicaSet", "r");
        let deployment = owner("apps/v1", "Deployment", "d");
        let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        let other = || object("apps/v1", "Deployment", "other", json!(null), json!({}));
        for (objects, expected) in [
            // Nothing was read.
            (vec![], None),
            (vec![object("apps/v1", "ReplicaSet", "r", json!(null), json!({}))], None),
            (
                vec![object("apps/v1", "ReplicaSet", "other", json!(null), json!({}))],
                Some("its ReplicaSet r no longer exists"),
            ),
            (
                vec![object("apps/v1", "ReplicaSet", "r", json!(null), deleted.clone())],
                Some("its ReplicaSet r is being deleted"),
            ),
            (
                vec![object("apps/v1", "ReplicaSet", "r", deployment.clone(), json!({})), other()],
                Some("its Deployment d no longer exists"),
            ),
        ] {
            let objects = Objects::from_items(objects.into_iter().chain([pod("p", set.clone(), json!({}))]));
            let found = not_recreated(&objects, find(&objects, "p")).map(|why| why.to_string());
            assert_eq!(found.as_deref(), expected);
        }
        let objects = Objects::from_items([
            object("apps/v1", "StatefulSet", "web", json!(null), json!({ "spec": { "replicas": 1 } })),
            pod("web-0", owner("apps/v1", "StatefulSet", "web"), json!({})),
            pod("web-1", owner("apps/v1", "StatefulSet", "web"), json!({})),
        ]);
        let found = |name: &str| not_recreated(&objects, find(&objects, name)).map(|why| why.to_string());
        assert_eq!((found("web-0"), found("web-1").as_deref()), (None, Some("its StatefulSet web is scaled down")));
    }

    #[test]
    fn a_replacement_belongs_to_the_same_deployment_and_is_younger() {
        let of = |set: &str| owner("apps/v1", "ReplicaSet", set);
        let at = |created: &str| json!({ "metadata": { "creationTimestamp": created } });
        let set = |name: &str| object("apps/v1", "ReplicaSet", name, owner("apps/v1", "Deployment", "d"), json!({}));
        let leaving = json!({ "metadata": {
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-01T01:00:30Z",
            "deletionGracePeriodSeconds": 30 } });
        let objects = Objects::from_items([
            set("old"),
            set("new"),
            pod("gone", of("old"), leaving),
            pod("older", of("old"), at("2026-01-01T00:00:00Z")),
            pod("younger", of("new"), at("2026-01-01T01:00:00Z")),
        ]);
        assert_eq!(replacement_of(&objects, find(&objects, "gone")).map(PodView::name), Some("younger"));
        assert!(replacement_of(&objects, find(&objects, "older")).is_none(), "it is not being deleted");
    }
}
