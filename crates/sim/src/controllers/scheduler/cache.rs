//! What the scheduler knows about the cluster, and what follows from a change of objects other than pods
//! (`eventhandlers.go`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node as RawNode, PersistentVolume};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSINode, CSIStorageCapacity};
use stead_model::KubernetesVersion;
use stead_placement::{Cluster, Node, Pod, PodKey};
use stead_semantics::quantity::Quantity;

use super::hints::{self, ClusterEvent};
use super::Scheduler;
use crate::object::{ObjectKind, SimKey, SimObject};
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
        Cache { cluster: Cluster::live(version), revision: 0 }
    }

    /// What is known of a cluster.
    pub(super) fn knowing(cluster: Cluster) -> Cache {
        Cache { cluster, revision: 0 }
    }

    pub(super) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The cluster, for what does not change where pods can go.
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
    pub(super) fn set_pending(&mut self, pod: &Arc<Pod>) {
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
