//! Everything about one OpenStackControlPlane.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use stead_model::{
    ModelError, ObjectKey, ObjectRef, Objects, OpenStackControlPlane, PodVolume, Topology, is_openstack, pod_volumes,
};

use crate::references::{ChosenTopology, chosen, titled};
use crate::services::{SpecPart, is_parent, section, sections};
use crate::topology::{
    Examined, Rules, UpstreamFinding, Workloads, of_object, pods_of_workload, readiness, there_are, wanted,
};
use crate::workload_pods::{is_well, zone};

/// A control plane and its services.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneExplanation {
    /// Namespace and name.
    pub name: String,
    /// The verdict, in a sentence.
    pub summary: String,
    /// The sections of its spec that have services.
    pub sections: Vec<SectionState>,
    /// Known defects of the OpenStack operators that apply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upstream: Vec<UpstreamFinding>,
    /// What the answer depends on and was not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A section of a control plane's spec, such as `cinder`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SectionState {
    /// The field of the spec.
    pub section: String,
    /// The objects with pods that were created for it.
    pub services: Vec<ServiceState>,
}

/// An object that has pods, such as a CinderVolume.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceState {
    /// Kind and name.
    pub object: String,
    /// The Topology that its pods are to follow, and where the reference comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<ChosenTopology>,
    /// Pods that are ready.
    pub ready: usize,
    /// Pods that are wanted.
    pub wanted: u64,
    /// Pods that have no node.
    pub without_node: usize,
    /// Its pods that have a node, by zone; `no zone` for nodes that have no label of a zone.
    pub pods: BTreeMap<String, usize>,
    /// The volumes of its pods, by the zone that can use them; `any zone`, or `not bound`.
    pub volumes: BTreeMap<String, usize>,
    /// What is wrong, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

impl ServiceState {
    /// Whether nothing is wrong with it.
    pub fn is_well(&self) -> bool {
        is_well(&self.faults, self.ready, self.wanted)
    }
}

/// Explains a control plane; none where there is no such object. `kinds` are those that were read.
///
/// # Errors
/// Where the control plane cannot be understood.
pub fn explain(
    objects: &Objects,
    key: &ObjectKey,
    kinds: &BTreeSet<String>,
) -> Result<Option<ControlPlaneExplanation>, ModelError> {
    let Some(plane) = objects.get::<OpenStackControlPlane>(key)? else { return Ok(None) };
    let workloads = Workloads::of(objects, &key.namespace);
    let raw = objects.raw(key);
    let enabled = sections().filter(|section| raw.is_some_and(|raw| SpecPart::of(raw).is_enabled(section)));
    let mut by_section: BTreeMap<String, Vec<ServiceState>> = enabled.map(|s| (s.to_owned(), Vec::new())).collect();
    let mut upstream = Vec::new();
    for object in objects.openstack_resources_in(&key.namespace) {
        let made = workloads.of_owner(object.key());
        let Some(section) = section_of(objects, object.key(), key) else { continue };
        if made.is_empty() && is_parent(&object.key().kind) {
            continue;
        }
        let (state, findings) = service(objects, kinds, object, made);
        by_section.entry(section).or_default().push(state);
        upstream.extend(findings);
    }
    let sections: Vec<SectionState> =
        by_section.into_iter().map(|(section, services)| SectionState { section, services }).collect();
    let deleted = plane.metadata.deletion_timestamp.as_ref().map(|since| format!("being deleted since {}", since.0));
    Ok(Some(ControlPlaneExplanation {
        name: format!("{}/{}", key.namespace, key.name),
        summary: deleted.unwrap_or_else(|| summary(&sections)),
        sections,
        upstream,
        notes: notes(objects, kinds),
    }))
}

/// The section that an object was created for; none where the control plane did not create it.
fn section_of(objects: &Objects, object: &ObjectKey, plane: &ObjectKey) -> Option<String> {
    let mut line = vec![object.clone()];
    line.extend(objects.controllers(object));
    let at = line.iter().position(|owner| owner == plane)?;
    let created = &line[at.checked_sub(1)?];
    Some(section(&created.kind).map_or_else(|| created.kind.to_lowercase(), str::to_owned))
}

fn service(
    objects: &Objects,
    kinds: &BTreeSet<String>,
    object: ObjectRef<'_>,
    workloads: &[ObjectKey],
) -> (ServiceState, Vec<UpstreamFinding>) {
    let key = object.key();
    let chosen = chosen(objects, key);
    let name = chosen.as_ref().and_then(|chosen| chosen.topology.as_deref());
    let topology = name.and_then(|name| objects.find::<Topology>(&key.namespace, name));
    let domain = topology.and_then(|topology| {
        Rules::of(topology).spread.into_iter().map(|rule| rule.topology_key).find(|k| k != "kubernetes.io/hostname")
    });
    let mut state = ServiceState {
        object: titled(key),
        topology: chosen.clone(),
        ready: 0,
        wanted: workloads.iter().map(|workload| wanted(objects, workload)).sum(),
        without_node: 0,
        pods: BTreeMap::new(),
        volumes: BTreeMap::new(),
        faults: Vec::new(),
    };
    if let (Some(name), None, true) = (name, topology, kinds.contains("Topology")) {
        state.faults.push(format!("Topology {name} does not exist: {}", there_are(objects, &key.namespace)));
    }
    state.faults.extend(readiness(objects, key));
    if workloads.is_empty() {
        state.faults.push("it has no workload yet".to_owned());
    }
    let mut claims = BTreeSet::new();
    for pod in workloads.iter().flat_map(|workload| pods_of_workload(objects, workload)).filter(|pod| !pod.has_ended())
    {
        state.ready += usize::from(pod.is_ready() && !pod.is_terminating());
        match pod.node() {
            Some(node) => {
                let node = objects.node(node).ok().flatten();
                let zone = node.and_then(|node| zone(node, domain.as_deref()));
                *state.pods.entry(zone.unwrap_or_else(|| "no zone".into())).or_default() += 1;
            }
            None => state.without_node += 1,
        }
        for volume in pod_volumes(objects, pod) {
            if claims.insert(volume.claim.clone()) {
                let place = place_of(objects, &volume, domain.as_deref());
                *state.volumes.entry(place).or_default() += 1;
            }
        }
    }
    let findings = of_object(&Examined { objects, object, topology, workloads });
    (state, findings)
}

/// The zone of the nodes that can use a volume.
fn place_of(objects: &Objects, volume: &PodVolume, domain: Option<&str>) -> String {
    if volume.volume.is_none() {
        return "not bound".into();
    }
    if volume.node_affinity.is_empty() {
        return "any zone".into();
    }
    let nodes = objects.nodes().filter(|node| volume.allows(*node));
    let zones: BTreeSet<String> = nodes.map(|node| zone(node, domain).unwrap_or_else(|| "no zone".into())).collect();
    match zones.len() {
        0 => "no node".into(),
        _ => zones.into_iter().collect::<Vec<_>>().join(" or "),
    }
}

fn notes(objects: &Objects, kinds: &BTreeSet<String>) -> Vec<String> {
    let needs = ["Topology", "StatefulSet", "Deployment", "DaemonSet", "ReplicaSet", "Pod", "PersistentVolumeClaim"];
    let missing: Vec<&str> = needs.into_iter().filter(|kind| !kinds.contains(*kind)).collect();
    let mut out = Vec::new();
    if !missing.is_empty() {
        out.push(format!("no {} were read: services, pods or volumes may be missing", missing.join(", ")));
    }
    let of_services = |kind: &&str| {
        let version = objects.of_kind(kind).next().and_then(|object| object.raw()["apiVersion"].as_str());
        version.is_some_and(is_openstack) && !matches!(*kind, "OpenStackControlPlane" | "Topology")
    };
    if !objects.kinds().any(|kind| of_services(&kind)) {
        out.push(
            "no resources of the services were read, such as Cinder or Galera: only the sections are known".into(),
        );
    }
    out
}

fn summary(sections: &[SectionState]) -> String {
    let services = || sections.iter().flat_map(|section| &section.services);
    let (ready, wanted) = (services().map(|s| s.ready).sum::<usize>(), services().map(|s| s.wanted).sum::<u64>());
    let unwell = services().filter(|service| !service.is_well()).count();
    let missing = sections.iter().filter(|section| section.services.is_empty()).count();
    let without_node: usize = services().map(|service| service.without_node).sum();
    let mut out = match (services().count(), unwell + missing) {
        (0, _) => return "nothing has been created for it yet".into(),
        (all, 0) => format!("healthy: {all} services, {ready} of {wanted} pods are ready"),
        (all, _) => format!("{unwell} of {all} services are not healthy: {ready} of {wanted} pods are ready"),
    };
    match without_node {
        0 => {}
        1 => out.push_str("; 1 pod has no node"),
        n => out.push_str(&format!("; {n} pods have no node")),
    }
    if missing > 0 {
        let names: Vec<&str> = sections.iter().filter(|s| s.services.is_empty()).map(|s| s.section.as_str()).collect();
        out.push_str(&format!("; nothing has been created for {}", names.join(", ")));
    }
    out
}
