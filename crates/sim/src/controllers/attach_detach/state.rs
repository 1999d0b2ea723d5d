//! What the controller believes of volumes and nodes (`cache/actual_state_of_world.go` and `desired_state_of_world.go`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use stead_model::fork::Sorted;

use super::operations::{OperationKey, Operations};
use crate::object::{ObjectKind, SimKey};
use crate::volumes::is_exclusive;

/// What is known of the PersistentVolume behind a unique name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VolumeSpec {
    /// The name of the PersistentVolume.
    pub(super) name: Arc<str>,
    /// Whether only one node can have it.
    pub(super) exclusive: bool,
}

impl VolumeSpec {
    pub(super) fn of(volume: &PersistentVolume) -> VolumeSpec {
        let name = volume.metadata.name.as_deref().unwrap_or_default().into();
        VolumeSpec { name, exclusive: is_exclusive(volume) }
    }
}

/// A node that a volume is, or may be, attached to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Attachment {
    /// Whether the driver has confirmed it. An attachment after a failed operation is uncertain.
    pub(super) confirmed: bool,
    /// Since when the controller wants to detach it.
    pub(super) detach_requested: Option<Timestamp>,
}

/// A node whose pods need a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Desired {
    pub(super) spec: VolumeSpec,
    /// Whether the pods were told that another node has the volume.
    pub(super) reported: bool,
    /// The pods, by UID.
    pub(super) pods: BTreeMap<Arc<str>, SimKey>,
}

/// A volume.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeState {
    /// None if only the status of a node names it.
    pub(super) spec: Option<VolumeSpec>,
    pub(super) attached: BTreeMap<Arc<str>, Attachment>,
    pub(super) desired: BTreeMap<Arc<str>, Desired>,
    pub(super) operations: Operations,
    /// When the loop looks at it next.
    pub(super) reconcile_at: Option<Timestamp>,
    /// When it is checked whether it is still attached.
    pub(super) check_at: Option<Timestamp>,
    /// The name of its item.
    item: Option<Arc<str>>,
    /// Pods that are gone, but whose volumes could not be found any more: node, UID, and when the populator removes them.
    pub(super) stale: Vec<(Arc<str>, Arc<str>, Timestamp)>,
}

impl VolumeState {
    pub(super) fn is_empty(&self) -> bool {
        self.attached.is_empty() && self.desired.is_empty() && self.operations.is_empty()
    }

    /// What an operation on a node excludes: everything else, unless several nodes can have the volume. It is assumed that
    /// they can if nothing is known.
    pub(super) fn operation_key(spec: Option<&VolumeSpec>, node: &Arc<str>) -> OperationKey {
        spec.is_none_or(|spec| !spec.exclusive).then(|| Arc::clone(node))
    }

    /// What is known of it, from wherever.
    pub(super) fn any_spec(&self) -> Option<&VolumeSpec> {
        self.spec.as_ref().or_else(|| self.desired.values().next().map(|desired| &desired.spec))
    }

    /// Looks at it at this time, or earlier.
    pub(super) fn reconcile(&mut self, at: Timestamp) {
        self.reconcile_at = Some(self.reconcile_at.map_or(at, |before| before.min(at)));
    }

    /// When anything has to be done about it.
    pub(super) fn next(&self) -> Option<Timestamp> {
        let stale = self.stale.iter().map(|(.., at)| *at).min();
        [self.reconcile_at, self.check_at, self.operations.next_due(), stale].into_iter().flatten().min()
    }
}

/// A node.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeState {
    /// Whether the controller attaches volumes for it.
    pub(super) managed: bool,
    /// The volumes that its kubelet reports as in use.
    pub(super) in_use: BTreeSet<Arc<str>>,
    /// The volumes that count as in use since then, because the kubelet has not reported after they were attached.
    pub(super) assumed: BTreeMap<Arc<str>, Timestamp>,
    /// The volumes that its status lists as attached; none if it never had any.
    pub(super) report: Option<BTreeSet<Arc<str>>>,
    /// Whether its status has to be written.
    pub(super) unreported: bool,
    /// The volumes that are, or may be, attached to it.
    pub(super) attached: BTreeSet<Arc<str>>,
    /// The volumes that its pods need.
    pub(super) desired: BTreeSet<Arc<str>>,
}

impl NodeState {
    /// Lists a volume as attached.
    pub(super) fn add_to_report(&mut self, volume: &Arc<str>) {
        if self.report.get_or_insert_default().insert(Arc::clone(volume)) {
            self.unreported = true;
        }
    }

    /// Lists a volume no longer as attached.
    pub(super) fn remove_from_report(&mut self, volume: &str) {
        if self.report.as_mut().is_some_and(|report| report.remove(volume)) {
            self.unreported = true;
        }
    }
}

/// The names that a node reports as in use.
pub(super) fn volumes_in_use(node: &Node) -> &[String] {
    node.status.as_ref().and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default()
}

/// All volumes and nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    volumes: Sorted<Arc<str>, Arc<VolumeState>>,
    nodes: Sorted<Arc<str>, Arc<NodeState>>,
    /// The unique names behind the names of items.
    items: Sorted<Arc<str>, Arc<str>>,
    /// Nodes whose status has to be written.
    unreported: BTreeSet<Arc<str>>,
}

impl State {
    pub(super) fn volume(&self, unique: &str) -> Option<&VolumeState> {
        self.volumes.find(|name| (**name).cmp(unique)).map(|volume| &**volume)
    }

    pub(super) fn node(&self, name: &str) -> Option<&NodeState> {
        self.nodes.find(|other| (**other).cmp(name)).map(|node| &**node)
    }

    pub(super) fn volumes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.volumes.iter().map(|(name, _)| name)
    }

    /// Changes a volume. One of which nothing is left is forgotten.
    pub(super) fn with_volume<T>(&mut self, unique: &Arc<str>, change: impl FnOnce(&mut VolumeState) -> T) -> T {
        let mut volume = self.take_volume(unique).unwrap_or_default();
        let result = change(Arc::make_mut(&mut volume));
        self.put_volume(unique, volume);
        result
    }

    /// Takes a volume out to work on it.
    pub(super) fn take_volume(&mut self, unique: &Arc<str>) -> Option<Arc<VolumeState>> {
        self.volumes.remove(|name| name.cmp(unique))
    }

    /// Puts a volume back. One of which nothing is left is forgotten.
    pub(super) fn put_volume(&mut self, unique: &Arc<str>, volume: Arc<VolumeState>) {
        if !volume.is_empty() {
            self.volumes.insert(Arc::clone(unique), volume);
        } else if let Some(item) = &volume.item {
            self.items.remove(|name| name.cmp(item));
        }
    }

    /// Changes a node.
    pub(super) fn with_node<T>(&mut self, name: &Arc<str>, change: impl FnOnce(&mut NodeState) -> T) -> T {
        let mut node = self.nodes.remove(|other| other.cmp(name)).unwrap_or_default();
        let result = change(Arc::make_mut(&mut node));
        if node.unreported {
            self.unreported.insert(Arc::clone(name));
        }
        self.nodes.insert(Arc::clone(name), node);
        result
    }

    /// The nodes whose status has to be written.
    pub(super) fn unreported(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.unreported)
    }

    /// The item of a volume: its PersistentVolume, or its unique name where that is not known or in use.
    pub(super) fn item(&mut self, unique: &Arc<str>) -> SimKey {
        let volume = self.volume(unique);
        let known = volume.and_then(|volume| volume.item.clone());
        let spec = volume.and_then(VolumeState::any_spec).map(|spec| Arc::clone(&spec.name));
        let free = spec.filter(|name| self.unique_name(name).is_none());
        let name = known.clone().or(free).unwrap_or_else(|| Arc::clone(unique));
        if known.is_none() {
            self.items.insert(Arc::clone(&name), Arc::clone(unique));
            self.with_volume(unique, |volume| volume.item = Some(Arc::clone(&name)));
        }
        SimKey { kind: ObjectKind::PersistentVolume, namespace: "".into(), name }
    }

    /// The volume of an item.
    pub(super) fn unique_name(&self, item: &str) -> Option<&Arc<str>> {
        self.items.find(|name| (**name).cmp(item))
    }
}
