//! What the scheduler knows about the cluster, and what follows from a change of it (`eventhandlers.go`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node as RawNode, PersistentVolume, Pod as RawPod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, CSIStorageCapacity};
use stead_model::KubernetesVersion;
use stead_placement::{Cluster, Node, Pod, PodKey, PodSpec};
use stead_semantics::quantity::Quantity;

use super::hints::{self, ClusterEvent};
use super::{Scheduler, is_own, seen};
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::pods::{is_terminating, node_of};
use crate::step::Context;
use crate::store::Change;

/// The labels that put a volume into a zone or region.
const TOPOLOGY_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// The annotation of a CSINode with the in-tree drivers that were migrated.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// The cluster as placement knows it: pods that have a node, really or by assumption, and nominated pods.
#[derive(Debug, Clone, Default)]
pub(super) struct Cache {
    cluster: Cluster,
    /// Grows with each change.
    revision: u64,
}

impl Cache {
    /// An empty one.
    pub(super) fn of(version: KubernetesVersion) -> Cache {
        Cache { cluster: Cluster::with_version(version), revision: 0 }
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The cluster, to look for a place: that does not change it.
    pub(super) fn placer(&mut self) -> &mut Cluster {
        &mut self.cluster
    }

    /// The cluster, to change it.
    pub(super) fn change(&mut self) -> &mut Cluster {
        self.revision += 1;
        &mut self.cluster
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn admits(&self, node: &str, pod: &Pod) -> bool {
        self.cluster.node(node).is_some_and(|info| hints::admits(info, pod))
    }

    /// Knows a pod without a node only if one is nominated for it.
    fn set_pending(&mut self, pod: &Arc<Pod>) {
        if pod.nominated.is_some() {
            self.change().set_pod(Pod::clone(pod));
        } else if self.cluster.pod(&pod.key).is_some() {
            self.change().remove_pod(&pod.key);
        }
    }
}

/// The key of a pod in placement.
pub(super) fn pod_key(key: &SimKey) -> PodKey {
    PodKey { namespace: Arc::clone(&key.namespace), name: Arc::clone(&key.name) }
}

impl Scheduler {
    pub(super) fn pod_changed(&mut self, cx: &Context<'_>, change: &Change) {
        let key = &change.key;
        let (before, after) = change.of::<RawPod>();
        match (seen(before), seen(after)) {
            (None, None) => {}
            (None, Some(new)) if node_of(new).is_some() => self.add_assigned(cx, key, new),
            (None, Some(new)) => self.enqueue(cx, key, new),
            (Some(old), Some(new)) if node_of(old).is_some() => self.update_assigned(cx, key, old, new),
            (Some(_), Some(new)) if node_of(new).is_some() => {
                self.queue.remove(key);
                self.add_assigned(cx, key, new);
            }
            (Some(old), Some(new)) => self.update_pending(cx, key, old, new),
            (Some(old), None) if node_of(old).is_some() => self.remove_assigned(cx, key),
            (Some(old), None) => self.remove_pending(cx, key, old),
        }
    }

    /// A pod that has a node: it was bound, perhaps by this scheduler, or was created so.
    fn add_assigned(&mut self, cx: &Context<'_>, key: &SimKey, raw: &RawPod) {
        let assumed = self.bindings.take(key).filter(|binding| !binding.forgotten);
        let known = assumed
            .filter(|binding| Some(&*binding.queued.pod.uid) == raw.metadata.uid.as_deref())
            .filter(|binding| Some(&*binding.node) == node_of(raw))
            .and_then(|_| self.cache.cluster().pod(&pod_key(key)).cloned());
        let labels = raw.metadata.labels.as_ref();
        let pod = match known {
            Some(known) if labels.map_or(known.labels().is_empty(), |labels| labels == known.labels()) => known,
            // A Binding can add labels, and nothing else.
            Some(known) => {
                let spec = PodSpec { labels: labels.cloned().unwrap_or_default(), ..PodSpec::clone(&known.spec) };
                let pod = Pod { spec: Arc::new(spec), ..Pod::clone(&known) };
                self.set_assigned(key, pod)
            }
            None => match Pod::compile(raw, cx.settings.version) {
                Ok(pod) => self.set_assigned(key, pod),
                Err(_) => return,
            },
        };
        self.wake(cx, &ClusterEvent::PodAdded(&pod), None);
    }

    fn set_assigned(&mut self, key: &SimKey, pod: Pod) -> Arc<Pod> {
        let shared = Arc::new(pod.clone());
        self.cache.change().set_pod(pod);
        self.cache.cluster().pod(&pod_key(key)).cloned().unwrap_or(shared)
    }

    fn update_assigned(&mut self, cx: &Context<'_>, key: &SimKey, old: &RawPod, new: &RawPod) {
        let Some(known) = self.cache.cluster().pod(&pod_key(key)).cloned() else {
            // It was malformed, or its deletion was seen too early.
            return self.add_assigned(cx, key, new);
        };
        if is_same(old, new) {
            if let Some(pod) = with_status(&known, new) {
                self.cache.change().set_pod(pod);
            }
            return;
        }
        let Ok(pod) = Pod::compile(new, cx.settings.version) else { return };
        let pod = self.set_assigned(key, pod);
        if pod.labels() != known.labels() {
            self.wake(cx, &ClusterEvent::PodLabels(&known, &pod), None);
        }
        if cx.settings.since(33) && hints::shrank(&known, &pod) {
            self.wake(cx, &ClusterEvent::PodShrunk(&known, &pod), None);
        }
    }

    fn remove_assigned(&mut self, cx: &Context<'_>, key: &SimKey) {
        if let Some(pod) = self.cache.change().remove_pod(&pod_key(key)) {
            self.wake(cx, &ClusterEvent::PodRemoved(&pod), None);
        }
    }

    /// Adds a pod without a node to the queue.
    fn enqueue(&mut self, cx: &Context<'_>, key: &SimKey, raw: &RawPod) {
        if !is_own(raw) {
            return;
        }
        let Ok(pod) = Pod::compile(raw, cx.settings.version) else { return };
        let pod = Arc::new(pod);
        self.cache.set_pending(&pod);
        self.queue.add(key, pod, cx.now);
        self.disturbed = true;
    }

    fn update_pending(&mut self, cx: &Context<'_>, key: &SimKey, old: &RawPod, new: &RawPod) {
        if !is_own(old) {
            return;
        }
        if self.bindings.is_assumed(key, new.metadata.uid.as_deref()) {
            if is_terminating(new) && !is_terminating(old) {
                self.forget_assumed(cx, key);
            }
            return;
        }
        let Some(queued) = self.queue.get(key) else { return self.enqueue(cx, key, new) };
        let known = Arc::clone(&queued.pod);
        let pod = if is_same(old, new) {
            with_status(&known, new).map_or_else(|| Arc::clone(&known), Arc::new)
        } else {
            match Pod::compile(new, cx.settings.version) {
                Ok(pod) => Arc::new(pod),
                Err(_) => return,
            }
        };
        if !Arc::ptr_eq(&pod, &known) {
            self.queue.update(key, Arc::clone(&pod));
        }
        if pod.nominated != known.nominated {
            self.cache.set_pending(&pod);
        }
        self.wake_updated(cx, key, &known, &pod, (old, new));
        if known.nominated.is_some() && known.nominated != pod.nominated {
            self.wake(cx, &ClusterEvent::PodRemoved(&known), Some(pod.spec.priority));
        }
    }

    /// Moves a rejected or gated pod that was changed in a way that may help it.
    fn wake_updated(&mut self, cx: &Context<'_>, key: &SimKey, old: &Pod, new: &Pod, raw: (&RawPod, &RawPod)) {
        let Some(rejected_by) = self.queue.get(key).map(|queued| queued.rejected_by) else { return };
        let helps = |event: ClusterEvent<'_>| {
            rejected_by.both(event.interested(true)).iter().any(|plugin| event.may_help(plugin, new))
        };
        let opened = !old.gates.is_empty() && new.gates.is_empty();
        let worth = if cx.settings.since(32) {
            opened
                || old.labels() != new.labels() && helps(ClusterEvent::PodLabels(old, new))
                || hints::shrank(old, new) && helps(ClusterEvent::PodShrunk(old, new))
                || old.spec.tolerations.0.len() != new.spec.tolerations.0.len()
                    && helps(ClusterEvent::PodTolerations(new))
        } else {
            let (old, new) = (&raw.0.metadata, &raw.1.metadata);
            old.annotations != new.annotations
                || old.deletion_timestamp != new.deletion_timestamp
                || !is_same(raw.0, raw.1)
        };
        if worth {
            let rules = self.rules(cx);
            self.queue.requeue(key, cx.now, &rules);
            self.disturbed = true;
        }
    }

    fn remove_pending(&mut self, cx: &Context<'_>, key: &SimKey, raw: &RawPod) {
        if !is_own(raw) {
            return;
        }
        let queued = self.queue.remove(key);
        if self.bindings.is_assumed(key, raw.metadata.uid.as_deref()) {
            return self.forget_assumed(cx, key);
        }
        let Some(pod) = queued.map(|queued| queued.pod).filter(|pod| pod.nominated.is_some()) else { return };
        self.cache.change().remove_pod(&pod.key);
        self.wake(cx, &ClusterEvent::PodRemoved(&pod), Some(pod.spec.priority));
    }

    pub(super) fn node_changed(&mut self, cx: &Context<'_>, change: &Change) {
        let (before, after) = change.of::<RawNode>();
        let name = &*change.key.name;
        let known = self.cache.cluster().node(name).map(|info| Arc::clone(&info.node));
        let Some(raw) = after else {
            if let Some(node) = known {
                self.wake(cx, &ClusterEvent::NodeRemoved(&node), None);
                // It is there: it was just found.
                let _ = self.cache.change().remove_node(name);
            }
            return;
        };
        if known.is_some() && before.is_some_and(|before| is_same_node(before, raw)) {
            return;
        }
        let Ok(node) = Node::compile(raw) else { return };
        self.cache.change().set_node(node);
        let Some(new) = self.cache.cluster().node(name).map(|info| Arc::clone(&info.node)) else { return };
        let Some(old) = known else { return self.wake(cx, &ClusterEvent::NodeAdded(&new), None) };
        let events = [
            (old.unschedulable && !new.unschedulable, ClusterEvent::NodeTaints(&old, &new)),
            (
                old.allocatable != new.allocatable || old.max_pods != new.max_pods,
                ClusterEvent::NodeAllocatable(&old, &new),
            ),
            (old.labels != new.labels, ClusterEvent::NodeLabels(&old, &new)),
            (old.taints != new.taints, ClusterEvent::NodeTaints(&old, &new)),
            (old.features != new.features, ClusterEvent::NodeFeatures),
        ];
        for (_, event) in events.iter().filter(|(happened, _)| *happened) {
            self.wake(cx, event, None);
        }
    }

    /// Objects that are neither pods nor nodes. Those that placement does not look at are ignored.
    pub(super) fn other_changed(&mut self, cx: &Context<'_>, change: &Change) {
        let (namespace, name) = (&*change.key.namespace, &*change.key.name);
        let Some(after) = &change.after else { return self.forget_object(cx, &change.key) };
        let added = change.before.is_none();
        let event = match (after, &change.before) {
            (SimObject::PersistentVolume(new), before) => {
                if self.cache.change().set_volume(new).is_err() {
                    return;
                }
                match before {
                    Some(SimObject::PersistentVolume(old)) => {
                        ClusterEvent::VolumeChanged { moved: topology(old) != topology(new) }
                    }
                    _ => ClusterEvent::VolumeAdded,
                }
            }
            (SimObject::PersistentVolumeClaim(new), _) => {
                if self.cache.change().set_claim(new).is_err() {
                    return;
                }
                if added { ClusterEvent::ClaimAdded(namespace, name) } else { ClusterEvent::ClaimChanged(namespace, name) }
            }
            (SimObject::StorageClass(new), before) => {
                if self.cache.change().set_class(new).is_err() {
                    return;
                }
                match before {
                    Some(SimObject::StorageClass(old)) => {
                        ClusterEvent::ClassChanged { topologies: old.allowed_topologies != new.allowed_topologies }
                    }
                    _ => {
                        let mode = new.volume_binding_mode.as_deref();
                        ClusterEvent::ClassAdded { waits: mode == Some("WaitForFirstConsumer") }
                    }
                }
            }
            (SimObject::CSINode(new), before) => {
                self.cache.change().set_csi_node(new);
                match before {
                    Some(SimObject::CSINode(old)) => {
                        ClusterEvent::CsiNodeChanged { raised: is_raised(old, new), migrated: migrated(old) != migrated(new) }
                    }
                    _ => ClusterEvent::CsiNodeAdded,
                }
            }
            (SimObject::CSIStorageCapacity(new), before) => {
                if self.cache.change().set_capacity(new).is_err() {
                    return;
                }
                match before {
                    Some(SimObject::CSIStorageCapacity(old)) => {
                        ClusterEvent::CapacityChanged { grown: has_grown(old, new) }
                    }
                    _ => ClusterEvent::CapacityAdded,
                }
            }
            (other, before) => return self.know_object(other, before.as_ref()),
        };
        self.wake(cx, &event, None);
    }

    /// Objects whose changes wake no pod.
    fn know_object(&mut self, object: &SimObject, before: Option<&SimObject>) {
        // A malformed object is left out.
        match (object, before) {
            (SimObject::Namespace(new), _) => self.cache.change().set_namespace(new),
            (SimObject::CSIDriver(new), _) => self.cache.change().set_csi_driver(new),
            (SimObject::VolumeAttachment(new), None) => self.cache.change().set_attachment(new),
            (SimObject::Service(new), _) => self.cache.change().set_service(new),
            (SimObject::ReplicationController(new), _) => self.cache.change().set_replication_controller(new),
            // Selectors never change, but statuses often do.
            (SimObject::ReplicaSet(new), None) => drop(self.cache.change().set_replica_set(new)),
            (SimObject::StatefulSet(new), None) => drop(self.cache.change().set_stateful_set(new)),
            (SimObject::PodDisruptionBudget(new), before) => {
                let same = matches!(before, Some(SimObject::PodDisruptionBudget(old)) if is_same_budget(old, new));
                if !same {
                    drop(self.cache.change().set_budget(new));
                }
            }
            _ => {}
        }
    }

    fn forget_object(&mut self, cx: &Context<'_>, key: &SimKey) {
        let (namespace, name) = (&*key.namespace, &*key.name);
        match key.kind {
            ObjectKind::Namespace => self.cache.change().remove_namespace(name),
            ObjectKind::PersistentVolume => self.cache.change().remove_volume(name),
            ObjectKind::PersistentVolumeClaim => self.cache.change().remove_claim(namespace, name),
            ObjectKind::StorageClass => self.cache.change().remove_class(name),
            ObjectKind::CSINode => self.cache.change().remove_csi_node(name),
            ObjectKind::CSIDriver => self.cache.change().remove_csi_driver(name),
            ObjectKind::CSIStorageCapacity => self.cache.change().remove_capacity(namespace, name),
            ObjectKind::Service => self.cache.change().remove_service(namespace, name),
            ObjectKind::ReplicationController => self.cache.change().remove_replication_controller(namespace, name),
            ObjectKind::ReplicaSet => self.cache.change().remove_replica_set(namespace, name),
            ObjectKind::StatefulSet => self.cache.change().remove_stateful_set(namespace, name),
            ObjectKind::PodDisruptionBudget => self.cache.change().remove_budget(namespace, name),
            ObjectKind::VolumeAttachment => {
                self.cache.change().remove_attachment(name);
                self.wake(cx, &ClusterEvent::AttachmentRemoved, None);
            }
            _ => {}
        }
    }
}

/// Whether two versions of a pod differ in nothing but their status and in metadata that placement does not look at.
fn is_same(old: &RawPod, new: &RawPod) -> bool {
    let resized = |pod: &RawPod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        statuses.iter().any(|status| status.resources.is_some() || status.allocated_resources.is_some())
    };
    old.metadata.labels == new.metadata.labels
        && old.metadata.owner_references == new.metadata.owner_references
        && (old.metadata.generation.is_some() && old.metadata.generation == new.metadata.generation
            || old.spec == new.spec)
        && !resized(old)
        && !resized(new)
}

/// A known pod with its present status; none if placement sees no difference.
fn with_status(known: &Arc<Pod>, raw: &RawPod) -> Option<Pod> {
    let status = raw.status.as_ref();
    let nominated = status.and_then(|status| status.nominated_node_name.as_deref()).filter(|name| !name.is_empty());
    let terminating = is_terminating(raw);
    let target = || status?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "DisruptionTarget");
    let preempted = terminating
        && target().is_some_and(|target| {
            target.status == "True" && target.reason.as_deref() == Some("PreemptionByScheduler")
        });
    let started = status.and_then(|status| status.start_time.as_ref()).map(|time| time.0.as_nanosecond());
    let nominated = nominated.filter(|_| known.node.is_none());
    let same = known.nominated.as_deref() == nominated
        && known.terminating == terminating
        && known.preempted == preempted
        && known.started == started;
    (!same).then(|| {
        Pod { nominated: nominated.map(Into::into), terminating, preempted, started, ..Pod::clone(known) }
    })
}

/// Whether two versions of a node are the same to placement. Most changes of a node are heartbeats.
fn is_same_node(old: &RawNode, new: &RawNode) -> bool {
    let (old_spec, new_spec) = (old.spec.as_ref(), new.spec.as_ref());
    let (old_status, new_status) = (old.status.as_ref(), new.status.as_ref());
    old.metadata.labels == new.metadata.labels
        && old_spec.and_then(|spec| spec.taints.as_ref()) == new_spec.and_then(|spec| spec.taints.as_ref())
        && old_spec.and_then(|spec| spec.unschedulable) == new_spec.and_then(|spec| spec.unschedulable)
        && old_status.map(|status| (&status.allocatable, &status.images, &status.declared_features))
            == new_status.map(|status| (&status.allocatable, &status.images, &status.declared_features))
}

fn is_same_budget(old: &PodDisruptionBudget, new: &PodDisruptionBudget) -> bool {
    let status = |budget: &PodDisruptionBudget| {
        let status = budget.status.as_ref();
        status.map(|status| (status.disruptions_allowed, status.disrupted_pods.clone()))
    };
    old.spec == new.spec && status(old) == status(new)
}

fn topology(volume: &PersistentVolume) -> [Option<&String>; 4] {
    TOPOLOGY_LABELS.map(|label| volume.metadata.labels.as_ref().and_then(|labels| labels.get(label)))
}

fn migrated(node: &CSINode) -> Option<&String> {
    node.metadata.annotations.as_ref().and_then(|annotations| annotations.get(MIGRATED))
}

/// Whether a driver can attach more volumes than before.
fn is_raised(old: &CSINode, new: &CSINode) -> bool {
    let limit = |node: &CSINode, name: &str| {
        let driver = node.spec.drivers.iter().find(|driver| driver.name == name);
        driver.and_then(|driver| driver.allocatable.as_ref()?.count).unwrap_or(0)
    };
    new.spec.drivers.iter().any(|driver| limit(new, &driver.name) > limit(old, &driver.name))
}

fn has_grown(old: &CSIStorageCapacity, new: &CSIStorageCapacity) -> bool {
    let limit = |capacity: &CSIStorageCapacity| {
        let limit = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
        limit.and_then(|limit| Quantity::parse(&limit.0).ok()).map(|limit| limit.value())
    };
    limit(new).is_some_and(|new| limit(old).is_none_or(|old| new > old))
}
