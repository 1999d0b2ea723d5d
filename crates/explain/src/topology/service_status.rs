//! The services that use a Topology, for a monitor: where their pods are, which are stuck, whether the nodes can satisfy it.
//!
//! It needs no resource of the OpenStack operators but the Topologies: a finalizer of a Topology names the service, and the
//! owner references of a pod lead to it. That is all that an operator sees that may not read the resources of others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use stead_model::{Object, ObjectKey, ObjectRef, Objects, PodView, Topology, TopologyFinalizer};
use stead_semantics::Labels;

use super::problems::{ProblemEffect, problems};
use crate::outage::Clock;
use crate::services::spelled;
use crate::triage::{StuckCause, Thresholds, TriageScope, triage};

/// A service that uses a Topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceStatus {
    /// The service by the finalizer: its kind, namespace and name.
    pub service: ObjectKey,
    /// The name of the Topology.
    pub topology: String,
    /// Whether the nodes can satisfy the Topology.
    pub satisfiable: bool,
    /// Pods that have a node, by the zone of the node; `none` where it has no zone.
    pub pods_by_zone: BTreeMap<String, u64>,
    /// Stuck pods by the cause that they are stuck for.
    pub stuck_pods: BTreeMap<StuckCause, u64>,
}

/// The services that use a Topology, by namespace, kind and name. `kinds` are the kinds that were read.
pub fn service_status(objects: &Objects, kinds: &BTreeSet<String>, clock: &Clock) -> Vec<ServiceStatus> {
    let nodes: Vec<(&str, Labels)> =
        objects.nodes().map(|node| (node.name(), node.typed().metadata.labels.clone().unwrap_or_default())).collect();
    let zones: BTreeMap<&str, &str> =
        objects.nodes().map(|node| (node.name(), node.zone().unwrap_or("none"))).collect();
    let stuck = stuck_pods(objects, kinds, clock);
    let mut out = Vec::new();
    for (key, topology) in objects.all::<Topology>() {
        let blocked = problems(topology, &nodes, &[]).iter().any(|problem| problem.effect == ProblemEffect::Blocks);
        for holder in topology.metadata.finalizers.iter().flatten().filter_map(|f| TopologyFinalizer::parse(f)) {
            let kind = spelled(holder.kind).unwrap_or(holder.kind);
            let mut status = ServiceStatus {
                service: ObjectKey::new(kind, &key.namespace, holder.suffix),
                topology: key.name.clone(),
                satisfiable: !blocked,
                pods_by_zone: BTreeMap::new(),
                stuck_pods: BTreeMap::new(),
            };
            for pod in objects.pods_in(&key.namespace).filter(|pod| is_pod_of(objects, *pod, &holder)) {
                if let Some(zone) = pod.node().filter(|_| !pod.has_ended()) {
                    let zone = zones.get(zone).copied().unwrap_or("none");
                    *status.pods_by_zone.entry(zone.to_owned()).or_default() += 1;
                }
                if let Some(cause) = stuck.get(pod.key()) {
                    *status.stuck_pods.entry(*cause).or_default() += 1;
                }
            }
            out.push(status);
        }
    }
    out.sort_by(|a, b| (&a.service.namespace, &a.service).cmp(&(&b.service.namespace, &b.service)));
    out
}

/// The pods that are stuck, and why.
fn stuck_pods(objects: &Objects, kinds: &BTreeSet<String>, clock: &Clock) -> BTreeMap<ObjectKey, StuckCause> {
    let found = triage(objects, kinds, clock, &Thresholds::default(), &TriageScope::default());
    let pods = found.causes.into_iter().flat_map(|cause| {
        let pods = cause.objects.into_iter().filter_map(|object| {
            let (namespace, name) = object.strip_prefix("pod/")?.split_once('/')?;
            Some(ObjectKey::pod(namespace, name))
        });
        pods.map(move |pod| (pod, cause.cause)).collect::<Vec<_>>()
    });
    pods.collect()
}

/// Whether a pod belongs to the service that a finalizer names: by its owner references, as far as the owners were read.
fn is_pod_of(objects: &Objects, pod: PodView<'_>, holder: &TopologyFinalizer<'_>) -> bool {
    let unread = Object::new(Value::Null);
    objects.controllers(pod.key()).iter().any(|owner| {
        // Deployments are not read. The operators name them like the resource that they belong to.
        let is_deployment = owner.kind == "Deployment" && !objects.contains(owner) && owner.name == holder.suffix;
        let owner = objects.object(owner).unwrap_or_else(|| ObjectRef::new(owner, &unread));
        is_deployment || holder.is_of(owner)
    })
}
