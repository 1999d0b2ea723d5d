//! A cluster whose nodes and pods change, with the aggregates that placement needs kept up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::{apps, core::v1 as core, policy, resource, storage as raw_storage};
use stead_model::KubernetesVersion;
use stead_semantics::labels::{Labels, Selector};

use crate::error::{InField, InputError, ObjectName};
use crate::fast::Index;
use crate::node::{Node, NodeInfo};
use crate::pod::{Pod, PodKey};
use crate::profile::{DEFAULT_SCHEDULER, Profile, Profiles};
use crate::snapshot::Snapshot;
use crate::specs::Specs;
use crate::storage::{Attachment, Capacity, Claim, CsiNode, PersistentVolume, StorageClass, StorageState};
use crate::version_rules::VersionRules;
use crate::workloads::{Budget, Key, Workloads};
use stead_model::fork::{Chunks, Sorted};

/// How many nodes have an image, for ImageLocality.
#[derive(Debug, Clone)]
pub(crate) struct ImageState {
    /// The size on the first node with the image: kube-scheduler never updates it.
    pub(crate) size: i64,
    pub(crate) nodes: usize,
}

/// A pod and the slot of its node; none if the pod has no node or the node does not exist.
#[derive(Debug, Clone)]
struct Counted {
    pod: Arc<Pod>,
    slot: Option<u32>,
}

/// Nodes by slot. A node keeps its slot while it exists; the slot of a removed node is reused.
pub(crate) type Slots = Chunks<Option<Arc<NodeInfo>>>;

/// The state of a cluster. Cloning it forks it: both copies can change independently and share what neither changes.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    version: KubernetesVersion,
    profiles: Arc<Profiles>,
    rules: VersionRules,
    pub(crate) slots: Slots,
    by_name: Sorted<Arc<str>, u32>,
    free: Vec<u32>,
    pods: Sorted<PodKey, Counted>,
    specs: Specs,
    /// Pods whose node does not exist, by the node's name. They are counted on the node when it is added.
    strays: BTreeMap<Box<str>, BTreeSet<PodKey>>,
    /// The number of pods on nodes, by their priority.
    priorities: BTreeMap<i32, usize>,
    /// Pods without a node, by the node that preemption nominated for them.
    nominated: BTreeMap<Box<str>, Vec<Arc<Pod>>>,
    images: Arc<BTreeMap<Arc<str>, ImageState>>,
    namespaces: Arc<BTreeMap<Box<str>, Labels>>,
    storage: Arc<StorageState>,
    workloads: Arc<Workloads>,
    budgets: Arc<BTreeMap<Key, Budget>>,
    device_resources: Arc<BTreeMap<Box<str>, BTreeSet<Box<str>>>>,
    /// The index of the fast path, from its first use on.
    pub(crate) index: Option<Box<Index>>,
}

/// The node is not in the cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {0} not found")]
pub struct UnknownNode(pub String);

fn key(meta: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Key {
    let namespace = meta.namespace.as_deref().filter(|n| !n.is_empty()).unwrap_or("default");
    (namespace.into(), meta.name.as_deref().unwrap_or_default().into())
}

impl Cluster {
    /// An empty cluster of the newest version.
    pub fn new() -> Cluster {
        Cluster::default()
    }

    /// An empty cluster of a Kubernetes version.
    pub fn with_version(version: KubernetesVersion) -> Cluster {
        Cluster { version, rules: VersionRules::of(version), ..Cluster::default() }
    }

    /// Sets the profiles of the cluster's kube-scheduler.
    pub fn set_profiles(&mut self, profiles: Profiles) {
        self.profiles = Arc::new(profiles);
    }

    /// The profile for a pod. The default one also stands for schedulers that are not known: what is asked about their
    /// pods is what kube-scheduler would do.
    pub(crate) fn profile(&self, pod: &Pod) -> Arc<Profile> {
        let name = pod.scheduler.as_deref().unwrap_or(DEFAULT_SCHEDULER);
        self.profiles.get(name).cloned().unwrap_or_default()
    }

    /// The Kubernetes version whose rules and wording apply.
    pub fn version(&self) -> KubernetesVersion {
        self.version
    }

    pub(crate) fn rules(&self) -> &VersionRules {
        &self.rules
    }

    /// The cluster of a snapshot.
    pub fn from_snapshot(s: &Snapshot, version: KubernetesVersion) -> Result<Cluster, InputError> {
        let mut c = Cluster::with_version(version);
        let mut nodes = s.nodes.iter().map(Node::compile).collect::<Result<Vec<_>, _>>()?;
        // An image has the size that its first node reports, so the order matters: API lists are sorted by name.
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        for node in nodes {
            c.set_node(node);
        }
        for o in &s.namespaces {
            c.set_namespace(o);
        }
        for o in &s.pods {
            c.set_pod(Pod::compile(o, version)?);
        }
        for o in &s.persistent_volumes {
            c.set_volume(o)?;
        }
        for o in &s.persistent_volume_claims {
            c.set_claim(o)?;
        }
        for o in &s.storage_classes {
            c.set_class(o)?;
        }
        for o in &s.csi_nodes {
            c.set_csi_node(o);
        }
        for o in &s.csi_drivers {
            c.set_csi_driver(o);
        }
        for o in &s.csi_storage_capacities {
            c.set_capacity(o)?;
        }
        for o in &s.volume_attachments {
            c.set_attachment(o);
        }
        for o in &s.services {
            c.set_service(o);
        }
        for o in &s.replication_controllers {
            c.set_replication_controller(o);
        }
        for o in &s.replica_sets {
            c.set_replica_set(o)?;
        }
        for o in &s.stateful_sets {
            c.set_stateful_set(o)?;
        }
        for o in &s.pod_disruption_budgets {
            c.set_budget(o)?;
        }
        for o in &s.device_classes {
            c.set_device_class(o);
        }
        Ok(c)
    }

    // Nodes

    /// The nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.by_name.iter().map(|(_, i)| self.slot(*i))
    }

    /// The number of nodes.
    pub fn node_count(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The node with this name.
    pub fn node(&self, name: &str) -> Option<&NodeInfo> {
        self.slot_of(name).map(|i| self.slot(i))
    }

    pub(crate) fn slot_of(&self, name: &str) -> Option<u32> {
        self.by_name.find(|n| (**n).cmp(name)).copied()
    }

    /// The slots of the nodes, in the order of their names.
    pub(crate) fn slots_by_name(&self) -> impl Iterator<Item = u32> {
        self.by_name.iter().map(|(_, i)| *i)
    }

    pub(crate) fn slot(&self, i: u32) -> &NodeInfo {
        self.slots[i as usize].as_ref().expect("a named slot holds a node")
    }

    fn slot_mut(&mut self, i: u32) -> &mut NodeInfo {
        Arc::make_mut(self.slots.get_mut(i as usize).as_mut().expect("a named slot holds a node"))
    }

    /// Adds or updates a node. Pods assigned to a node of this name are counted on it.
    pub fn set_node(&mut self, node: Node) {
        let Some(i) = self.slot_of(&node.name) else { return self.add_node(node) };
        let old = Arc::clone(&self.slot(i).node);
        // Most updates of a node are heartbeats, which do not affect placement.
        if *old == node {
            return;
        }
        let node = Arc::new(node);
        if old.images != node.images {
            self.forget_images(&old);
            self.remember_images(&node);
        }
        if let Some(index) = &mut self.index {
            index.node_changed(i, Some(&node));
        }
        self.slot_mut(i).node = node;
    }

    fn add_node(&mut self, node: Node) {
        let node = Arc::new(node);
        self.remember_images(&node);
        let name = Arc::clone(&node.name);
        let i = match self.free.pop() {
            Some(i) => i,
            None => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
        };
        if let Some(index) = &mut self.index {
            index.node_changed(i, Some(&node));
        }
        *self.slots.get_mut(i as usize) = Some(Arc::new(NodeInfo::new(node)));
        for key in self.strays.remove(&*name).into_iter().flatten() {
            let pod = Arc::clone(&self.pods.get(&key).expect("a stray is a pod of the cluster").pod);
            self.put(&pod, i);
        }
        self.by_name.insert(name, i);
    }

    /// Removes a node. Its pods remain, without a node that counts them.
    pub fn remove_node(&mut self, name: &str) -> Result<(), UnknownNode> {
        let i = self.by_name.remove(|n| (**n).cmp(name)).ok_or_else(|| UnknownNode(name.into()))?;
        let info = self.slots.get_mut(i as usize).take().expect("a named slot holds a node");
        self.free.push(i);
        self.forget_images(&info.node);
        for pod in &info.pods {
            self.pods.insert(pod.key.clone(), Counted { pod: Arc::clone(pod), slot: None });
            self.strays.entry(name.into()).or_default().insert(pod.key.clone());
            self.forget_priority(pod);
            if let Some(index) = &mut self.index {
                index.remove_pod(i, pod);
            }
        }
        if let Some(index) = &mut self.index {
            index.node_changed(i, None);
        }
        Ok(())
    }

    fn remember_images(&mut self, node: &Node) {
        if node.images.is_empty() {
            return;
        }
        let images = Arc::make_mut(&mut self.images);
        for (name, size) in &node.images {
            images.entry(Arc::clone(name)).or_insert(ImageState { size: *size, nodes: 0 }).nodes += 1;
        }
    }

    fn forget_images(&mut self, node: &Node) {
        if node.images.is_empty() {
            return;
        }
        let images = Arc::make_mut(&mut self.images);
        for (name, _) in &node.images {
            if let Some(state) = images.get_mut(name) {
                state.nodes -= 1;
                if state.nodes == 0 {
                    images.remove(name);
                }
            }
        }
    }

    pub(crate) fn image(&self, name: &str) -> Option<&ImageState> {
        self.images.get(name)
    }

    // Pods

    /// The pods, by namespace and name, without finished ones.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods.iter().map(|(_, counted)| &counted.pod)
    }

    /// The pod with this namespace and name.
    pub fn pod(&self, key: &PodKey) -> Option<&Arc<Pod>> {
        self.pods.get(key).map(|counted| &counted.pod)
    }

    /// Adds or updates a pod. A finished pod is removed.
    pub fn set_pod(&mut self, mut pod: Pod) {
        pod.spec = self.specs.shared(pod.spec);
        self.specs.tidy(self.pods.len(), self.pods.iter().map(|(_, counted)| &counted.pod.spec));
        let slot = pod.node.as_deref().and_then(|n| self.slot_of(n));
        self.set_pod_at(pod, slot);
    }

    fn set_pod_at(&mut self, pod: Pod, slot: Option<u32>) {
        self.remove_pod(&pod.key);
        if pod.finished {
            return;
        }
        let pod = Arc::new(pod);
        if let Some(i) = slot {
            return self.put(&pod, i);
        }
        if let Some(node) = &pod.node {
            self.strays.entry(node.clone()).or_default().insert(pod.key.clone());
        } else if let Some(node) = &pod.nominated {
            self.nominated.entry(node.clone()).or_default().push(Arc::clone(&pod));
        }
        self.pods.insert(pod.key.clone(), Counted { pod, slot: None });
    }

    /// Counts a pod on a node.
    fn put(&mut self, pod: &Arc<Pod>, i: u32) {
        self.slot_mut(i).add(Arc::clone(pod));
        *self.priorities.entry(pod.spec.priority).or_default() += 1;
        self.pods.insert(pod.key.clone(), Counted { pod: Arc::clone(pod), slot: Some(i) });
        if let Some(index) = &mut self.index {
            index.add_pod(i, pod);
        }
    }

    fn forget_priority(&mut self, pod: &Pod) {
        if let Some(count) = self.priorities.get_mut(&pod.spec.priority) {
            *count -= 1;
            if *count == 0 {
                self.priorities.remove(&pod.spec.priority);
            }
        }
    }

    /// Whether some pod on a node has a lower priority than this one.
    pub(crate) fn has_below(&self, priority: i32) -> bool {
        self.priorities.keys().next().is_some_and(|lowest| *lowest < priority)
    }

    /// Removes a pod.
    pub fn remove_pod(&mut self, key: &PodKey) -> Option<Arc<Pod>> {
        let Counted { pod, slot } = self.pods.remove(|k| k.cmp(key))?;
        if let Some(i) = slot {
            self.slot_mut(i).remove(key);
            self.forget_priority(&pod);
            if let Some(index) = &mut self.index {
                index.remove_pod(i, &pod);
            }
        }
        if let Some(node) = &pod.node
            && let Some(keys) = self.strays.get_mut(node)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.strays.remove(node);
            }
        }
        if let Some(node) = &pod.nominated
            && let Some(list) = self.nominated.get_mut(node)
        {
            list.retain(|p| p.key != *key);
            if list.is_empty() {
                self.nominated.remove(node);
            }
        }
        Some(pod)
    }

    /// Assumes a pod on a node, as the scheduler does before the binding is written.
    pub fn assume(&mut self, pod: &Pod, node: &str) -> Result<(), UnknownNode> {
        let slot = self.slot_of(node).ok_or_else(|| UnknownNode(node.into()))?;
        self.set_pod_at(pod.on(node), Some(slot));
        Ok(())
    }

    pub(crate) fn has_nominated(&self) -> bool {
        !self.nominated.is_empty()
    }

    /// The pods without a node that preemption nominated a node for, in the order of their nomination.
    pub fn nominated_to(&self, node: &str) -> &[Arc<Pod>] {
        self.nominated.get(node).map_or(&[], Vec::as_slice)
    }

    // Everything else

    /// The storage objects.
    pub fn storage(&self) -> &StorageState {
        &self.storage
    }

    pub(crate) fn workloads(&self) -> &Workloads {
        &self.workloads
    }

    pub(crate) fn budgets(&self) -> impl Iterator<Item = &Budget> {
        self.budgets.values()
    }

    /// The namespaces and their labels.
    pub fn namespaces(&self) -> &BTreeMap<Box<str>, Labels> {
        &self.namespaces
    }

    /// Whether a DeviceClass provides an extended resource.
    pub(crate) fn is_device_resource(&self, name: &str) -> bool {
        self.device_resources.values().any(|names| names.contains(name))
    }

    fn storage_mut(&mut self) -> &mut StorageState {
        Arc::make_mut(&mut self.storage)
    }

    fn workloads_mut(&mut self) -> &mut Workloads {
        Arc::make_mut(&mut self.workloads)
    }

    /// Adds or replaces a namespace.
    pub fn set_namespace(&mut self, o: &core::Namespace) {
        let name = o.metadata.name.as_deref().unwrap_or_default();
        Arc::make_mut(&mut self.namespaces).insert(name.into(), o.metadata.labels.clone().unwrap_or_default());
    }

    /// Adds or replaces a volume.
    pub fn set_volume(&mut self, o: &core::PersistentVolume) -> Result<(), InputError> {
        let v = PersistentVolume::compile(o)?;
        self.storage_mut().volumes.insert(v.name.clone(), Arc::new(v));
        Ok(())
    }

    /// Adds or replaces a claim.
    pub fn set_claim(&mut self, o: &core::PersistentVolumeClaim) -> Result<(), InputError> {
        let c = Claim::compile(o)?;
        self.storage_mut().claims.insert((c.namespace.clone(), c.name.clone()), Arc::new(c));
        Ok(())
    }

    /// Removes a claim.
    pub fn remove_claim(&mut self, namespace: &str, name: &str) {
        self.storage_mut().claims.remove(&(namespace.into(), name.into()));
    }

    /// Removes a volume.
    pub fn remove_volume(&mut self, name: &str) {
        self.storage_mut().volumes.remove(name);
    }

    /// Adds or replaces a storage class.
    pub fn set_class(&mut self, o: &raw_storage::v1::StorageClass) -> Result<(), InputError> {
        let c = StorageClass::compile(o)?;
        self.storage_mut().classes.insert(c.name.clone(), Arc::new(c));
        Ok(())
    }

    /// Adds or replaces a CSINode.
    pub fn set_csi_node(&mut self, o: &raw_storage::v1::CSINode) {
        let name = o.metadata.name.as_deref().unwrap_or_default();
        self.storage_mut().csi_nodes.insert(name.into(), CsiNode::compile(o));
    }

    /// Adds or replaces a CSI driver.
    pub fn set_csi_driver(&mut self, o: &raw_storage::v1::CSIDriver) {
        let name = o.metadata.name.as_deref().unwrap_or_default();
        self.storage_mut().tracks_capacity.insert(name.into(), o.spec.storage_capacity == Some(true));
    }

    /// Adds or replaces a CSIStorageCapacity.
    pub fn set_capacity(&mut self, o: &raw_storage::v1::CSIStorageCapacity) -> Result<(), InputError> {
        let c = Capacity::compile(o)?;
        self.storage_mut().capacities.insert(key(&o.metadata), Arc::new(c));
        Ok(())
    }

    /// Adds or replaces a VolumeAttachment.
    pub fn set_attachment(&mut self, o: &raw_storage::v1::VolumeAttachment) {
        let name = o.metadata.name.as_deref().unwrap_or_default();
        let s = &o.spec;
        if let Some(volume) = &s.source.persistent_volume_name {
            let attachment = Attachment {
                node: s.node_name.as_str().into(),
                driver: s.attacher.as_str().into(),
                volume: volume.as_str().into(),
            };
            self.storage_mut().attachments.insert(name.into(), attachment);
        }
    }

    /// Adds or replaces a service.
    pub fn set_service(&mut self, o: &core::Service) {
        let key = key(&o.metadata);
        match o.spec.as_ref().and_then(|s| s.selector.clone()) {
            Some(selector) => self.workloads_mut().services.insert(key, selector),
            None => self.workloads_mut().services.remove(&key),
        };
    }

    /// Adds or replaces a replication controller.
    pub fn set_replication_controller(&mut self, o: &core::ReplicationController) {
        let selector = o.spec.as_ref().and_then(|s| s.selector.clone()).unwrap_or_default();
        self.workloads_mut().replication_controllers.insert(key(&o.metadata), selector);
    }

    /// Adds or replaces a replica set.
    pub fn set_replica_set(&mut self, o: &apps::v1::ReplicaSet) -> Result<(), InputError> {
        let key = key(&o.metadata);
        let selector = Selector::from_label_selector(o.spec.as_ref().map(|s| &s.selector))
            .in_field("spec.selector")
            .map_err(|e| e.of(ObjectName("replicaset", &key.0, &key.1)))?;
        self.workloads_mut().replica_sets.insert(key, selector);
        Ok(())
    }

    /// Adds or replaces a stateful set.
    pub fn set_stateful_set(&mut self, o: &apps::v1::StatefulSet) -> Result<(), InputError> {
        let key = key(&o.metadata);
        let selector = Selector::from_label_selector(o.spec.as_ref().map(|s| &s.selector))
            .in_field("spec.selector")
            .map_err(|e| e.of(ObjectName("statefulset", &key.0, &key.1)))?;
        self.workloads_mut().stateful_sets.insert(key, selector);
        Ok(())
    }

    /// Adds or replaces a disruption budget.
    pub fn set_budget(&mut self, o: &policy::v1::PodDisruptionBudget) -> Result<(), InputError> {
        let b = Budget::compile(o)?;
        Arc::make_mut(&mut self.budgets).insert(key(&o.metadata), b);
        Ok(())
    }

    /// Adds or replaces a device class.
    pub fn set_device_class(&mut self, o: &resource::v1::DeviceClass) {
        let name = o.metadata.name.as_deref().unwrap_or_default();
        let mut names = BTreeSet::from([format!("deviceclass.resource.kubernetes.io/{name}").into()]);
        names.extend(o.spec.extended_resource_name.as_deref().map(Into::into));
        Arc::make_mut(&mut self.device_resources).insert(name.into(), names);
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        Arc::make_mut(&mut self.namespaces).remove(name);
    }

    /// Removes a storage class.
    pub fn remove_class(&mut self, name: &str) {
        self.storage_mut().classes.remove(name);
    }

    /// Removes a CSINode.
    pub fn remove_csi_node(&mut self, name: &str) {
        self.storage_mut().csi_nodes.remove(name);
    }

    /// Removes a CSI driver.
    pub fn remove_csi_driver(&mut self, name: &str) {
        self.storage_mut().tracks_capacity.remove(name);
    }

    /// Removes a CSIStorageCapacity.
    pub fn remove_capacity(&mut self, namespace: &str, name: &str) {
        self.storage_mut().capacities.remove(&(namespace.into(), name.into()));
    }

    /// Removes a VolumeAttachment.
    pub fn remove_attachment(&mut self, name: &str) {
        self.storage_mut().attachments.remove(name);
    }

    /// Removes a service.
    pub fn remove_service(&mut self, namespace: &str, name: &str) {
        self.workloads_mut().services.remove(&(namespace.into(), name.into()));
    }

    /// Removes a replication controller.
    pub fn remove_replication_controller(&mut self, namespace: &str, name: &str) {
        self.workloads_mut().replication_controllers.remove(&(namespace.into(), name.into()));
    }

    /// Removes a replica set.
    pub fn remove_replica_set(&mut self, namespace: &str, name: &str) {
        self.workloads_mut().replica_sets.remove(&(namespace.into(), name.into()));
    }

    /// Removes a stateful set.
    pub fn remove_stateful_set(&mut self, namespace: &str, name: &str) {
        self.workloads_mut().stateful_sets.remove(&(namespace.into(), name.into()));
    }

    /// Removes a disruption budget.
    pub fn remove_budget(&mut self, namespace: &str, name: &str) {
        Arc::make_mut(&mut self.budgets).remove(&(namespace.into(), name.into()));
    }

    /// Removes a device class.
    pub fn remove_device_class(&mut self, name: &str) {
        Arc::make_mut(&mut self.device_resources).remove(name);
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::*;

    fn named<T>(make: impl FnOnce(ObjectMeta) -> T) -> T {
        let name = |name: &str| Some(name.to_owned());
        make(ObjectMeta { name: name("x"), namespace: name("n"), ..ObjectMeta::default() })
    }

    #[test]
    fn what_is_removed_is_as_if_it_had_never_been_there() {
        let mut c = Cluster::new();
        let state = |c: &Cluster| format!("{:?}{:?}{:?}{:?}", c.storage, c.workloads, c.budgets, c.namespaces);
        let empty = state(&c);
        c.set_namespace(&named(|metadata| core::Namespace { metadata, ..Default::default() }));
        let class = named(|metadata| raw_storage::v1::StorageClass { metadata, ..Default::default() });
        c.set_class(&class).expect("a class");
        c.set_csi_node(&named(|metadata| raw_storage::v1::CSINode { metadata, ..Default::default() }));
        c.set_csi_driver(&named(|metadata| raw_storage::v1::CSIDriver { metadata, ..Default::default() }));
        let capacity = named(|metadata| raw_storage::v1::CSIStorageCapacity { metadata, ..Default::default() });
        c.set_capacity(&capacity).expect("a capacity");
        let mut attachment = named(|metadata| raw_storage::v1::VolumeAttachment { metadata, ..Default::default() });
        attachment.spec.source.persistent_volume_name = Some("v".into());
        c.set_attachment(&attachment);
        let mut service = named(|metadata| core::Service { metadata, ..Default::default() });
        service.spec.get_or_insert_default().selector = Some(Labels::new());
        c.set_service(&service);
        c.set_replication_controller(&named(|metadata| core::ReplicationController { metadata, ..Default::default() }));
        let set = named(|metadata| apps::v1::ReplicaSet { metadata, ..Default::default() });
        c.set_replica_set(&set).expect("a replica set");
        let set = named(|metadata| apps::v1::StatefulSet { metadata, ..Default::default() });
        c.set_stateful_set(&set).expect("a stateful set");
        let budget = named(|metadata| policy::v1::PodDisruptionBudget { metadata, ..Default::default() });
        c.set_budget(&budget).expect("a budget");
        assert_ne!(state(&c), empty);
        c.remove_namespace("x");
        c.remove_class("x");
        c.remove_csi_node("x");
        c.remove_csi_driver("x");
        c.remove_capacity("n", "x");
        c.remove_attachment("x");
        c.remove_service("n", "x");
        c.remove_replication_controller("n", "x");
        c.remove_replica_set("n", "x");
        c.remove_stateful_set("n", "x");
        c.remove_budget("n", "x");
        assert_eq!(state(&c), empty);
    }
}
