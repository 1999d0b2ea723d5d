//! Who uses a Topology: found in the resources themselves, without a list of kinds.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use serde::Serialize;
use stead_model::{
    ALL_OPENSTACK_KINDS, ObjectKey, ObjectRef, Objects, PodView, Topology, TopologyFinalizer, applied_topology,
    controller_of, is_controlled_by, topology_references,
};
use stead_semantics::{Labels, Selector};

use super::problems::{ProblemEffect, TopologyConsumer, TopologyProblem, problems};
use crate::references::{ChosenTopology, chosen};
use crate::services::{is_parent, spelled};

/// An object whose pods follow a Topology, or are to follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyUser {
    /// The object, such as a CinderVolume.
    pub key: ObjectKey,
    /// Whether its spec refers to the Topology.
    pub wants: bool,
    /// Whether its operator reports that it applied the Topology last.
    pub applied: bool,
    /// The reference that wins for it, whichever Topology that names.
    pub chosen: Option<ChosenTopology>,
    /// The StatefulSets, Deployments and DaemonSets that it created.
    pub workloads: Vec<ObjectKey>,
}

/// The objects whose pods follow a Topology, or are to follow it, ordered by kind and name.
pub fn users(objects: &Objects, topology: &ObjectKey) -> Vec<TopologyUser> {
    let workloads = Workloads::of(objects, &topology.namespace);
    let owners = owners(objects, &topology.namespace);
    let mut out = Vec::new();
    for object in objects.openstack_resources_in(&topology.namespace) {
        let made = workloads.of_owner(object.key());
        // What only hands a reference down has no pods.
        if made.is_empty() && (is_parent(&object.key().kind) || owners.contains(object.key())) {
            continue;
        }
        let references = topology_references(object.raw());
        let wants = references.iter().any(|found| found.reference.topology() == Some(&topology.name));
        let applied = applied_topology(object.raw()) == Some(&topology.name);
        let chosen = chosen(objects, object.key());
        if wants || applied || chosen.as_ref().is_some_and(|chosen| chosen.topology.as_ref() == Some(&topology.name)) {
            out.push(TopologyUser { key: object.key().clone(), wants, applied, chosen, workloads: made.to_vec() });
        }
    }
    out
}

/// The objects that control resources of the OpenStack operators.
fn owners(objects: &Objects, namespace: &str) -> BTreeSet<ObjectKey> {
    let owner = |object: ObjectRef<'_>| {
        let metadata = object.metadata().ok()?;
        controller_of(&metadata).map(|owner| ObjectKey::new(&owner.kind, namespace, &owner.name))
    };
    objects.openstack_resources_in(namespace).filter_map(owner).collect()
}

/// The workloads of a namespace by the resource that created them.
#[derive(Debug, Default)]
pub(crate) struct Workloads {
    by_owner: BTreeMap<ObjectKey, Vec<ObjectKey>>,
}

impl Workloads {
    pub(crate) fn of(objects: &Objects, namespace: &str) -> Workloads {
        let mut out = Workloads::default();
        for kind in ["StatefulSet", "Deployment", "DaemonSet"] {
            for workload in objects.of_kind_in(kind, namespace) {
                if let Some(owner) = objects.openstack_owner(workload.key()) {
                    out.by_owner.entry(owner).or_default().push(workload.key().clone());
                }
            }
        }
        out
    }

    pub(crate) fn of_owner(&self, owner: &ObjectKey) -> &[ObjectKey] {
        self.by_owner.get(owner).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The pods of a StatefulSet, Deployment or DaemonSet. Those of a Deployment are found through its ReplicaSets, or by its
/// selector where no ReplicaSets were read.
pub(crate) fn pods_of_workload<'a>(objects: &'a Objects, workload: &'a ObjectKey) -> Vec<PodView<'a>> {
    let namespace = workload.namespace.as_str();
    let controllers: Vec<ObjectKey> = match workload.kind.as_str() {
        "Deployment" if objects.has_none("ReplicaSet") => {
            let deployment = objects.find::<Deployment>(namespace, &workload.name).and_then(|d| d.spec.as_ref());
            let selector = deployment.and_then(|spec| Selector::from_label_selector(Some(&spec.selector)).ok());
            let of_replica_set = |pod: &PodView<'_>| pod.controller().is_some_and(|owner| owner.kind == "ReplicaSet");
            let none = Labels::default();
            let selected = |pod: &PodView<'_>| {
                let labels = pod.metadata().labels.as_ref().unwrap_or(&none);
                of_replica_set(pod) && selector.as_ref().is_some_and(|selector| selector.matches(labels))
            };
            return objects.pods_in(namespace).filter(|pod| selected(pod)).collect();
        }
        "Deployment" => objects
            .all_in::<ReplicaSet>(namespace)
            .filter(|(_, set)| is_controlled_by(&set.metadata, workload))
            .map(|(key, _)| key.clone())
            .collect(),
        _ => vec![workload.clone()],
    };
    let controlled = |pod: &PodView<'_>| controllers.iter().any(|owner| is_controlled_by(pod.metadata(), owner));
    objects.pods_in(namespace).filter(controlled).collect()
}

/// The labels of a workload's pods, and the node labels that they ask for.
pub(crate) fn consumer(objects: &Objects, user: &ObjectKey, workload: &ObjectKey) -> Option<TopologyConsumer> {
    let template = objects.workload(workload).ok()??.template()?;
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
    let selector = template.spec.as_ref().and_then(|spec| spec.node_selector.clone());
    Some(TopologyConsumer {
        key: user.clone(),
        pod_labels: labels.unwrap_or_default(),
        node_selector: selector.unwrap_or_default(),
    })
}

/// How many pods a workload wants; for a DaemonSet, on how many nodes it is to run.
pub(crate) fn wanted(objects: &Objects, workload: &ObjectKey) -> u64 {
    let (namespace, name) = (workload.namespace.as_str(), workload.name.as_str());
    let wanted = match workload.kind.as_str() {
        "StatefulSet" => objects.find::<StatefulSet>(namespace, name).and_then(|set| set.spec.as_ref()?.replicas),
        "Deployment" => objects.find::<Deployment>(namespace, name).and_then(|d| d.spec.as_ref()?.replicas),
        _ => {
            let set = objects.find::<DaemonSet>(namespace, name);
            set.and_then(|set| set.status.as_ref()).map(|status| status.desired_number_scheduled).or(Some(0))
        }
    };
    u64::try_from(wanted.unwrap_or(1)).unwrap_or_default()
}

/// A finalizer by which something holds a Topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyHolder {
    /// The finalizer.
    pub finalizer: String,
    /// The kind that it names, as it is spelled where that is known.
    pub kind: String,
    /// What it says after the kind, as a rule the name.
    pub name: String,
    /// Whether the object exists.
    pub state: HolderState,
}

/// Whether the object that a finalizer names exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HolderState {
    /// It exists.
    Exists,
    /// It does not exist: nobody will remove the finalizer.
    Gone,
    /// Its kind was not read.
    NotRead,
}

/// The finalizers of a Topology that name one of its users. `kinds` are those that were read.
pub fn holders(objects: &Objects, topology: &Topology, kinds: &BTreeSet<String>) -> Vec<TopologyHolder> {
    let namespace = topology.metadata.namespace.as_deref().unwrap_or("default");
    let finalizers = topology.metadata.finalizers.iter().flatten();
    finalizers
        .filter_map(|finalizer| {
            let parsed = TopologyFinalizer::parse(finalizer)?;
            let of_kind = |kind: &&str| kind.to_lowercase() == parsed.kind;
            let read = kinds.iter().map(String::as_str).chain(objects.kinds()).find(of_kind);
            let mut there = objects.openstack_resources_in(namespace);
            let state = match there.any(|object| parsed.is_of(object)) {
                true => HolderState::Exists,
                false if read.is_some() || kinds.contains(ALL_OPENSTACK_KINDS) => HolderState::Gone,
                false => HolderState::NotRead,
            };
            let kind = read.or_else(|| spelled(parsed.kind)).unwrap_or(parsed.kind).to_owned();
            Some(TopologyHolder { finalizer: finalizer.clone(), kind, name: parsed.suffix.to_owned(), state })
        })
        .collect()
}

/// Who holds a Topology by a finalizer, as kind and name, for a reader that sees only the Topology.
pub fn named_holders(topology: &Topology) -> Vec<(String, String)> {
    let finalizers = topology.metadata.finalizers.iter().flatten();
    let parsed = finalizers.filter_map(|finalizer| TopologyFinalizer::parse(finalizer));
    parsed.map(|f| (spelled(f.kind).unwrap_or(f.kind).to_owned(), f.suffix.to_owned())).collect()
}

/// A Topology that cannot place all pods that follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsatisfiableTopology {
    /// The Topology.
    pub key: ObjectKey,
    /// Why: only problems that keep pods Pending.
    pub problems: Vec<TopologyProblem>,
    /// Who uses it.
    pub users: Vec<ObjectKey>,
    /// Their pods that have no node.
    pub pods: Vec<ObjectKey>,
}

/// The Topologies because of which pods stay Pending, in a namespace or in all of them.
pub fn unsatisfiable(objects: &Objects, namespace: Option<&str>) -> Vec<UnsatisfiableTopology> {
    let nodes: Vec<(&str, Labels)> =
        objects.nodes().map(|node| (node.name(), node.typed().metadata.labels.clone().unwrap_or_default())).collect();
    let mut out = Vec::new();
    for (key, topology) in objects.all::<Topology>().filter(|(key, _)| namespace.is_none_or(|n| n == key.namespace)) {
        let users = users(objects, key);
        let workloads = || users.iter().flat_map(|user| user.workloads.iter().map(move |workload| (user, workload)));
        let consumers: Vec<TopologyConsumer> =
            workloads().filter_map(|(user, workload)| consumer(objects, &user.key, workload)).collect();
        let mut found = problems(topology, &nodes, &consumers);
        found.retain(|problem| problem.effect == ProblemEffect::Blocks);
        if found.is_empty() {
            continue;
        }
        let pods = workloads().flat_map(|(_, workload)| pods_of_workload(objects, workload));
        let pods = pods.filter(|pod| pod.node().is_none() && !pod.has_ended()).map(|pod| pod.key().clone()).collect();
        let users = users.into_iter().map(|user| user.key).collect();
        out.push(UnsatisfiableTopology { key: key.clone(), problems: found, users, pods });
    }
    out
}
