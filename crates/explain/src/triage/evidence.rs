//! What the rules look at: objects, warnings by object, attachments by volume, and unhealthy nodes.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::times::{created, deletion};
use stead_model::{EventView, NodeView, ObjectKey, ObjectRef, Objects, PodView, claim_of};

use super::Thresholds;
use super::node_faults::{NodeFault, node_faults};
use crate::outage::Clock;

/// Workload kinds, whose pods are one group.
const WORKLOADS: [&str; 7] =
    ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController"];

pub(super) struct Evidence<'a> {
    pub(super) objects: &'a Objects,
    kinds: &'a BTreeSet<String>,
    pub(super) now: Timestamp,
    pub(super) thresholds: Thresholds,
    warnings: BTreeMap<ObjectKey, Vec<(Option<&'a str>, EventView<'a>)>>,
    /// The attachments of each PersistentVolume.
    attachments: BTreeMap<&'a str, Vec<&'a VolumeAttachment>>,
    /// The pods that use each claim, by namespace and name.
    users: OnceCell<BTreeMap<(&'a str, &'a str), Vec<&'a ObjectKey>>>,
    /// The ReplicaSets that each object controls.
    sets: OnceCell<BTreeMap<ObjectKey, Vec<ObjectRef<'a>>>>,
    /// The names of the nodes that exist.
    nodes: BTreeSet<&'a str>,
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
        let cordoned = cordoned.map(NodeView::name).collect();
        let faults = node_faults(objects, clock, thresholds.not_ready);
        Evidence {
            objects,
            kinds,
            now: clock.now,
            thresholds,
            warnings,
            attachments,
            users: OnceCell::new(),
            sets: OnceCell::new(),
            nodes: objects.keys("Node").map(|key| key.name.as_str()).collect(),
            faults,
            cordoned,
        }
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

    /// The workloads that a pod belongs to: its ReplicaSet and then its Deployment, its Job and then its CronJob.
    pub(super) fn workloads(&self, pod: &ObjectKey) -> Vec<ObjectKey> {
        let mut out: Vec<ObjectKey> = Vec::new();
        while let Some(owner) = self.owner(out.last().unwrap_or(pod)).filter(|owner| !out.contains(owner)) {
            out.push(owner);
        }
        if let Some(set) = out.last().filter(|key| key.kind == "ReplicaSet" && !self.was_read("ReplicaSet")) {
            out.extend(self.deployment_by_hash(pod, set));
        }
        out
    }

    /// The Deployment of a pod whose ReplicaSet was not read: the name of the ReplicaSet ends in the hash that the pod has
    /// as a label (`getNewReplicaSet` in `pkg/controller/deployment`).
    fn deployment_by_hash(&self, pod: &ObjectKey, set: &ObjectKey) -> Option<ObjectKey> {
        let labels = self.objects.object(pod)?.metadata().ok()?.labels?;
        let name = set.name.strip_suffix(labels.get("pod-template-hash")?)?.strip_suffix('-')?;
        let deployment = ObjectKey::new("Deployment", &set.namespace, name);
        self.objects.contains(&deployment).then_some(deployment)
    }

    /// The workload that controls an object, or that is its only owner.
    fn owner(&self, object: &ObjectKey) -> Option<ObjectKey> {
        let found = self.objects.object(object)?;
        let (kind, name) = match object.kind.as_str() {
            "Pod" => found.outline().controller_or_only_owner()?,
            _ => found.workload_outline().controller_or_only_owner()?,
        };
        WORKLOADS.contains(&kind).then(|| ObjectKey::new(kind, &object.namespace, name))
    }

    /// The workload that a pod belongs to: the Deployment for a pod of its ReplicaSet; the pod itself without one.
    pub(super) fn group_of(&self, pod: &ObjectKey) -> ObjectKey {
        self.workloads(pod).pop().unwrap_or_else(|| pod.clone())
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

    /// The pods that use a claim.
    pub(super) fn users(&self, claim: &ObjectKey) -> Vec<PodView<'a>> {
        let users = self.users.get_or_init(|| users_of_claims(self.objects));
        let pods = users.get(&(claim.namespace.as_str(), claim.name.as_str())).into_iter().flatten();
        pods.filter_map(|pod| self.objects.pod(pod).ok().flatten()).collect()
    }

    /// The ReplicaSets that a workload controls.
    pub(super) fn controlled_sets(&self, workload: &ObjectKey) -> &[ObjectRef<'a>] {
        let sets = self.sets.get_or_init(|| sets_by_controller(self.objects));
        sets.get(workload).map(Vec::as_slice).unwrap_or_default()
    }

    /// The attachments of a volume.
    pub(super) fn attachments(&self, volume: &str) -> &[&'a VolumeAttachment] {
        self.attachments.get(volume).map(Vec::as_slice).unwrap_or_default()
    }

    /// The attachments of all volumes.
    pub(super) fn all_attachments(&self) -> impl Iterator<Item = (&'a str, &'a VolumeAttachment)> {
        self.attachments.iter().flat_map(|(volume, list)| list.iter().map(|attachment| (*volume, *attachment)))
    }

    /// Whether several nodes may use a volume at a time.
    pub(super) fn is_shared(&self, volume: &str) -> bool {
        let modes = self.objects.volume(volume).and_then(|v| v.spec.as_ref()?.access_modes.as_ref());
        modes.is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany"))
    }

    /// The fault of a pod's node.
    pub(super) fn fault_of(&self, node: &str) -> Option<NodeFault> {
        match self.faults.get(node) {
            Some(fault) => Some(*fault),
            None if self.was_read("Node") && !self.nodes.contains(node) => Some(NodeFault::Deleted),
            None => None,
        }
    }
}

fn users_of_claims(objects: &Objects) -> BTreeMap<(&str, &str), Vec<&ObjectKey>> {
    let mut users: BTreeMap<(&str, &str), Vec<&ObjectKey>> = BTreeMap::new();
    for pod in objects.of_kind("Pod") {
        for claim in pod.outline().claims() {
            users.entry((&pod.key().namespace, claim)).or_default().push(pod.key());
        }
    }
    users
}

fn sets_by_controller(objects: &Objects) -> BTreeMap<ObjectKey, Vec<ObjectRef<'_>>> {
    let mut sets: BTreeMap<ObjectKey, Vec<ObjectRef<'_>>> = BTreeMap::new();
    for set in objects.of_kind("ReplicaSet") {
        if let Some((kind, name)) = set.workload_outline().controller() {
            sets.entry(ObjectKey::new(kind, &set.key().namespace, name)).or_default().push(set);
        }
    }
    sets
}

/// The name of the volume that a claim is bound to.
pub(super) fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}
