//! What the rules look at: objects, warnings by object, attachments by volume, and unhealthy nodes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::times::{created, deletion};
use stead_model::{EventView, ObjectKey, Objects, PodView, Readiness, claim_of};

use super::Thresholds;
use crate::outage::Clock;

/// Workload kinds, whose pods are one group.
const WORKLOADS: [&str; 6] = ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController"];

/// Why a node cannot run pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeFault {
    /// No heartbeat.
    Unreachable(Option<Timestamp>),
    /// Its kubelet reports that it is not ready.
    NotReady(Option<Timestamp>),
    /// There is no Node of the name.
    Deleted,
}

pub(super) struct Evidence<'a> {
    pub(super) objects: &'a Objects,
    kinds: &'a BTreeSet<String>,
    pub(super) now: Timestamp,
    pub(super) thresholds: Thresholds,
    warnings: BTreeMap<ObjectKey, Vec<(Option<&'a str>, EventView<'a>)>>,
    /// The attachments of each PersistentVolume.
    attachments: BTreeMap<&'a str, Vec<&'a VolumeAttachment>>,
    pub(super) faults: BTreeMap<String, NodeFault>,
    /// Cordoned nodes.
    pub(super) cordoned: BTreeSet<&'a str>,
}

impl<'a> Evidence<'a> {
    pub(super) fn new(
        objects: &'a Objects,
        kinds: &'a BTreeSet<String>,
        clock: &Clock,
        thresholds: Thresholds,
    ) -> Evidence<'a> {
        let mut warnings: BTreeMap<ObjectKey, Vec<(Option<&str>, EventView<'_>)>> = BTreeMap::new();
        for (key, uid, event) in objects.warning_events() {
            warnings.entry(key).or_default().push((uid, event));
        }
        for list in warnings.values_mut() {
            list.sort_by_key(|(_, event)| (event.at, event.first));
        }
        let mut attachments: BTreeMap<&str, Vec<&VolumeAttachment>> = BTreeMap::new();
        for (_, attachment) in objects.all::<VolumeAttachment>() {
            if let Some(volume) = attachment.spec.source.persistent_volume_name.as_deref() {
                attachments.entry(volume).or_default().push(attachment);
            }
        }
        let cordoned =
            objects.nodes().filter(|node| node.typed().spec.as_ref().is_some_and(|s| s.unschedulable == Some(true)));
        let cordoned = cordoned.map(stead_model::NodeView::name).collect();
        let faults = node_faults(objects, clock);
        Evidence { objects, kinds, now: clock.now, thresholds, warnings, attachments, faults, cordoned }
    }

    /// Whether objects of a kind were read, so that a missing one does not exist.
    pub(super) fn was_read(&self, kind: &str) -> bool {
        self.kinds.contains(kind)
    }

    /// The warnings about an object, the newest first.
    pub(super) fn warnings(&self, key: &ObjectKey, uid: Option<&str>) -> impl Iterator<Item = EventView<'a>> {
        let list = self.warnings.get(key).map(Vec::as_slice).unwrap_or_default();
        let same = move |of: &Option<&str>| uid.zip(*of).is_none_or(|(a, b)| a == b);
        let found: Vec<EventView<'a>> = list.iter().rev().filter(|(of, _)| same(of)).map(|(_, event)| *event).collect();
        found.into_iter()
    }

    /// The warnings about a pod, the newest first.
    pub(super) fn pod_warnings(&self, pod: PodView<'_>) -> impl Iterator<Item = EventView<'a>> {
        self.warnings(pod.key(), pod.uid())
    }

    /// Whether something has lasted for longer than a threshold. What has no beginning is old.
    pub(super) fn lasted(&self, since: Option<Timestamp>, threshold: SignedDuration) -> bool {
        since.is_none_or(|since| self.now.duration_since(since) > threshold)
    }

    /// Whether an object's deletion has lasted too long.
    pub(super) fn deletion_is_stuck(&self, metadata: &ObjectMeta) -> bool {
        deletion(metadata).is_some_and(|deletion| self.lasted(Some(deletion.due), self.thresholds.terminating))
    }

    /// Whether an object is older than a threshold.
    pub(super) fn is_older(&self, metadata: &ObjectMeta, threshold: SignedDuration) -> bool {
        self.lasted(created(metadata), threshold)
    }

    /// The workload that a pod belongs to: the Deployment for a pod of its ReplicaSet.
    pub(super) fn workload(&self, pod: &ObjectKey) -> Option<ObjectKey> {
        let chain = self.objects.controllers(pod).into_iter();
        chain.take_while(|key| WORKLOADS.contains(&key.kind.as_str())).last()
    }

    /// The claims of a pod, with their names; none for a claim that does not exist.
    pub(super) fn claims(&self, pod: PodView<'_>) -> Vec<(ObjectKey, Option<&'a PersistentVolumeClaim>)> {
        let names = pod.volumes().iter().filter_map(|volume| claim_of(volume, pod.name()));
        let of = |(name, _): (String, bool)| {
            let claim = self.objects.find::<PersistentVolumeClaim>(pod.namespace(), &name);
            (ObjectKey::new("PersistentVolumeClaim", pod.namespace(), &name), claim)
        };
        names.map(of).collect()
    }

    /// The attachments of a volume.
    pub(super) fn attachments(&self, volume: &str) -> &[&'a VolumeAttachment] {
        self.attachments.get(volume).map(Vec::as_slice).unwrap_or_default()
    }

    /// The fault of a pod's node.
    pub(super) fn fault_of(&self, node: &str) -> Option<NodeFault> {
        match self.faults.get(node) {
            Some(fault) => Some(*fault),
            None if !self.objects.contains(&ObjectKey::node(node)) => Some(NodeFault::Deleted),
            None => None,
        }
    }
}

/// The name of the volume that a claim is bound to.
pub(super) fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

fn node_faults(objects: &Objects, clock: &Clock) -> BTreeMap<String, NodeFault> {
    let names = objects.nodes().map(stead_model::NodeView::name);
    let fault = |name: &str| {
        let health = objects.node_health(name).ok().flatten()?;
        // A node without the condition has never reported anything: it is starting.
        if health.is_unreachable(clock.leases) {
            return Some(NodeFault::Unreachable(health.last_heard().or(health.since)));
        }
        (health.readiness == Readiness::NotReady).then_some(NodeFault::NotReady(health.since))
    };
    names.filter_map(|name| Some((name.to_owned(), fault(name)?))).collect()
}
