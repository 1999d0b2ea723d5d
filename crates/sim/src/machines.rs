//! Machines and the objects that their kubelets register: Node, Lease and CSINode.
//!
//! The heartbeats of a healthy kubelet are implied: it renews its Lease in whole periods from the machine's
//! `lease_phase`, and no step is spent on it. When a machine falls silent, its Lease is written once, with the last
//! renewal.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint};
use k8s_openapi::api::storage::v1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use stead_model::{LeaseView, NODE_LEASES};

use crate::api::whole_seconds;
use crate::error::ApiError;
use crate::grid::Grid;
use crate::nodes::condition;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::settings::{KubeletForm, Settings};
use crate::simulation::Simulation;
use crate::step::Write;
use crate::store::Store;
use crate::world::{Machine, MachineState, World};

/// A storage driver that runs on a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeDriver {
    /// Its name.
    pub name: String,
    /// Its name for the node; the node's own name by default.
    pub node_id: Option<String>,
    /// The node labels that say where a volume can be used.
    pub topology_keys: Vec<String>,
    /// How many volumes it can attach to the node; none if there is no limit.
    pub limit: Option<i32>,
}

/// A machine, as its kubelet registers it.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineSpec {
    /// The name of the node.
    pub name: String,
    /// Labels in addition to host name, architecture and operating system.
    pub labels: BTreeMap<String, String>,
    /// The capacity; 16 CPUs, 64Gi of memory and 110 pods where nothing else is set.
    pub capacity: BTreeMap<String, String>,
    /// The taints that the kubelet registers the node with.
    pub taints: Vec<Taint>,
    /// The storage drivers.
    pub drivers: Vec<NodeDriver>,
    /// Its address; one is chosen if none is given.
    pub address: Option<String>,
    /// Its name in the cloud.
    pub provider_id: Option<String>,
    /// A moment at which the kubelet renews its Lease; that of the registration if none is given.
    pub lease_phase: Option<Timestamp>,
    /// The boot id of the first boot; one is chosen if none is given.
    pub boot_id: Option<String>,
}

/// There is no machine for a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("node {0} has no machine")]
pub struct NoMachine(pub String);

impl MachineSpec {
    /// A machine with the default capacity and nothing else.
    pub fn named(name: impl Into<String>) -> MachineSpec {
        MachineSpec {
            name: name.into(),
            labels: BTreeMap::new(),
            capacity: BTreeMap::new(),
            taints: Vec::new(),
            drivers: Vec::new(),
            address: None,
            provider_id: None,
            lease_phase: None,
            boot_id: None,
        }
    }

    /// The same with another label.
    pub fn with_label(mut self, key: &str, value: &str) -> MachineSpec {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// The same with a storage driver that has no limit.
    pub fn with_driver(mut self, name: &str, topology_keys: &[&str]) -> MachineSpec {
        let topology_keys = topology_keys.iter().map(|key| (*key).to_owned()).collect();
        self.drivers.push(NodeDriver { name: name.to_owned(), node_id: None, topology_keys, limit: None });
        self
    }

    /// The Node that the kubelet creates. The stand-ins report its status later.
    pub(crate) fn node(&self, settings: &Settings, boots: u32, now: Timestamp) -> Node {
        let mut labels = self.labels.clone();
        let mut known = vec![("hostname", self.name.as_str()), ("os", "linux"), ("arch", "amd64")];
        known.retain(|(name, _)| !labels.contains_key(&format!("kubernetes.io/{name}")));
        for (name, value) in known {
            labels.insert(format!("kubernetes.io/{name}"), value.to_owned());
        }
        if settings.kubelet.form == KubeletForm::Kubernetes {
            labels.insert("beta.kubernetes.io/os".into(), labels["kubernetes.io/os"].clone());
            labels.insert("beta.kubernetes.io/arch".into(), labels["kubernetes.io/arch"].clone());
        }
        let annotation = ("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned());
        Node {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                labels: Some(labels),
                annotations: Some(BTreeMap::from([annotation])),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                provider_id: self.provider_id.clone(),
                taints: Some(self.taints.clone()).filter(|taints| !taints.is_empty()),
                ..NodeSpec::default()
            }),
            status: match settings.kubelet.form {
                KubeletForm::Kubernetes => Some(self.status(settings, boots, now)),
                KubeletForm::StandIn => None,
            },
        }
    }

    /// The status that the kubelet reports when nothing is wrong and no volume is in use.
    pub(crate) fn status(&self, settings: &Settings, boots: u32, now: Timestamp) -> NodeStatus {
        let mut capacity: BTreeMap<String, Quantity> =
            [("cpu", "16"), ("memory", "64Gi"), ("pods", "110")].map(|(k, v)| (k.into(), Quantity(v.into()))).into();
        if settings.kubelet.form == KubeletForm::Kubernetes {
            capacity.insert("ephemeral-storage".into(), Quantity("100Gi".into()));
        }
        capacity.extend(self.capacity.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone()))));
        let address = |type_: &str, address: &str| NodeAddress { type_: type_.into(), address: address.into() };
        let runtime = match settings.kubelet.form {
            KubeletForm::Kubernetes => "containerd://2.1.0",
            KubeletForm::StandIn => "stand-in://1",
        };
        NodeStatus {
            allocatable: Some(capacity.clone()),
            capacity: Some(capacity),
            addresses: Some(vec![
                address("InternalIP", self.address.as_deref().unwrap_or_default()),
                address("Hostname", &self.name),
            ]),
            conditions: Some(conditions(settings.kubelet.form, now)),
            node_info: Some(NodeSystemInfo {
                kubelet_version: format!("v{}.{}", settings.version, settings.patch),
                architecture: "amd64".into(),
                operating_system: "linux".into(),
                container_runtime_version: runtime.into(),
                boot_id: self.boot_id(boots),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }
    }

    /// The id of a boot, a UUID like the kernel's.
    fn boot_id(&self, boots: u32) -> String {
        match self.boot_id.as_deref() {
            Some(first) if boots == 0 => first.to_owned(),
            Some(first) => boot_id_after(first, boots),
            None => boot_id_after("", boots),
        }
    }

    /// The CSINode of a Node.
    pub(crate) fn csi_node(&self, owner: OwnerReference) -> CSINode {
        let driver = |driver: &NodeDriver| CSINodeDriver {
            name: driver.name.clone(),
            node_id: driver.node_id.clone().unwrap_or_else(|| self.name.clone()),
            topology_keys: Some(driver.topology_keys.clone()),
            allocatable: driver.limit.map(|limit| VolumeNodeResources { count: Some(limit) }),
        };
        CSINode {
            metadata: owned(&self.name, None, owner),
            spec: CSINodeSpec { drivers: self.drivers.iter().map(driver).collect() },
        }
    }
}

/// Another boot id, made from the first one: its first group stays.
pub(crate) fn boot_id_after(first: &str, boots: u32) -> String {
    let group = first.get(..8).filter(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit())).unwrap_or("00000000");
    format!("{group}-0000-4000-8000-{boots:012x}")
}

/// The conditions of a healthy node, as its kubelet reports them.
pub(crate) fn conditions(form: KubeletForm, now: Timestamp) -> Vec<NodeCondition> {
    let pressures = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ];
    let ready = ("Ready", "True", "KubeletReady", "kubelet is posting ready status");
    let pressures = pressures.into_iter().filter(|_| form == KubeletForm::Kubernetes);
    pressures
        .chain([ready])
        .map(|(kind, status, reason, message)| NodeCondition {
            type_: kind.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: Some(whole_seconds(now)),
            last_transition_time: Some(whole_seconds(now)),
        })
        .collect()
}

fn owned(name: &str, namespace: Option<&str>, owner: OwnerReference) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    }
}

/// The reference by which an object is deleted with its Node.
pub(crate) fn node_reference(node: &Node) -> OwnerReference {
    OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: node.metadata.name.clone().unwrap_or_default(),
        uid: node.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    }
}

/// The key of a node's Lease.
pub(crate) fn lease_key(node: &str) -> SimKey {
    SimKey::new(ObjectKind::Lease, NODE_LEASES, node)
}

/// The Lease of a node.
pub(crate) fn lease(node: &Node, settings: &Settings, renewed: Timestamp) -> Lease {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    // A kubelet renews its Lease four times in the time that it is valid.
    let duration = i32::try_from((settings.kubelet.lease_period * 4).as_secs()).unwrap_or(i32::MAX);
    Lease {
        metadata: owned(name, Some(NODE_LEASES), node_reference(node)),
        spec: Some(LeaseSpec {
            holder_identity: Some(name.to_owned()),
            lease_duration_seconds: Some(duration),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        }),
    }
}

/// The write by which a Lease shows its last renewal; none if there is no Lease, or it shows that.
pub(crate) fn renewal(store: &Store, node: &str, renewed: Timestamp) -> Option<Write> {
    let mut lease = Lease::clone(store.at::<Lease>(&lease_key(node))?);
    let spec = lease.spec.get_or_insert_default();
    if spec.renew_time == Some(MicroTime(renewed)) {
        return None;
    }
    spec.renew_time = Some(MicroTime(renewed));
    lease.metadata.resource_version = None;
    Some(Write::Replace(lease.into()))
}

impl Machine {
    /// Whether its kubelet works and reaches the API server.
    pub(crate) fn is_connected(&self, now: Timestamp) -> bool {
        self.state.reports() && now >= self.lease_phase
    }
}

impl World {
    /// Whether the kubelet of a node works and reaches the API server.
    pub(crate) fn is_connected(&self, node: &str, now: Timestamp) -> bool {
        self.machine(node).is_some_and(|machine| machine.is_connected(now))
    }

    /// When a node's kubelet renewed its Lease for the last time before a moment; none if it has no Lease.
    pub(crate) fn last_renewal(
        &self,
        store: &Store,
        settings: &Settings,
        node: &str,
        at: Timestamp,
    ) -> Option<Timestamp> {
        match self.machine(node).filter(|machine| machine.is_connected(at)) {
            Some(machine) => {
                let grid = Grid { start: machine.lease_phase, period: settings.kubelet.lease_period };
                Some(grid.at_or_before(at))
            }
            None => LeaseView::of(store.at::<Lease>(&lease_key(node))?).map(|lease| lease.renewed),
        }
    }

    /// Adds the machines of nodes that have none. One whose Lease was not renewed for two periods, or whose condition
    /// Ready is Unknown, is silent for an unknown reason.
    pub(crate) fn discover_machines(&mut self, store: &Store, settings: &Settings, now: Timestamp) {
        for node in store.all::<Node>() {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            if self.machine(name).is_some() {
                continue;
            }
            let lease = store.at::<Lease>(&lease_key(name)).and_then(|lease| LeaseView::of(lease));
            let unknown = condition(node, "Ready").is_some_and(|ready| ready.status == "Unknown");
            let silent = match lease.map(|lease| now.duration_since(lease.renewed)) {
                Some(age) if age <= settings.kubelet.lease_period * 2 => false,
                // The node controller would have noticed: the machine's clock is behind.
                Some(age) if !unknown => {
                    age <= settings.timers.node_monitor_grace + settings.timers.node_monitor_period * 2
                }
                _ => unknown,
            };
            let state = if silent { MachineState::Unknown } else { MachineState::Running };
            let renewed = lease.map(|lease| lease.renewed).filter(|renewed| *renewed <= now).unwrap_or(now);
            let grid = Grid { start: renewed, period: settings.kubelet.lease_period };
            self.set_machine(name, Machine { state, since: now, boots: 0, lease_phase: grid.at_or_before(now) });
        }
    }
}

impl Simulation {
    /// Adds a machine; its kubelet registers the Node, its Lease and its CSINode.
    pub fn add_machine(&mut self, mut spec: MachineSpec) -> Result<(), ApiError> {
        let (now, number) = (self.now(), self.world().machines().count());
        spec.address.get_or_insert_with(|| format!("10.1.{}.{}", (number + 10) / 250, (number + 10) % 250 + 1));
        spec.boot_id.get_or_insert_with(|| boot_id_after(&format!("{:08x}", number + 1), 0));
        let phase = spec.lease_phase.unwrap_or(now);
        // The kubelet has run since before the registration, whatever its phase is.
        let grid = Grid { start: phase, period: self.settings().kubelet.lease_period };
        let machine =
            Machine { state: MachineState::Running, since: now, boots: 0, lease_phase: grid.at_or_before(now) };
        let spec = Arc::new(spec);
        self.change_world(|world, _| {
            world.set_machine_spec(Arc::clone(&spec));
            world.set_machine(&spec.name, machine);
        });
        let node = spec.node(self.settings(), 0, now);
        let created = self.request(Write::Create(node.into()))?;
        let Some(SimObject::Node(node)) = created else { return Ok(()) };
        let lease = lease(&node, self.settings(), now);
        self.request(Write::Create(lease.into()))?;
        self.request(Write::Create(spec.csi_node(node_reference(&node)).into()))?;
        Ok(())
    }

    /// Changes the state of a machine: it falls silent.
    pub fn fail(&mut self, node: &str, state: MachineState) -> Result<(), NoMachine> {
        let now = self.now();
        let machine = self.world().machine(node).cloned().ok_or_else(|| NoMachine(node.to_owned()))?;
        let renewed = self.last_renewal(node, now);
        let machine = Machine { state, since: now, ..machine };
        self.change_world(|world, _| world.set_machine(node, machine));
        if let Some(write) = renewed.and_then(|renewed| renewal(self.store(), node, renewed)) {
            // It replaces the object that was just read.
            let _ = self.request(write);
        }
        Ok(())
    }

    /// Brings a machine back: it is resumed, connected or booted, or its kubelet is started, whatever it needs.
    pub fn heal(&mut self, node: &str) -> Result<(), NoMachine> {
        let now = self.now();
        let machine = self.world().machine(node).cloned().ok_or_else(|| NoMachine(node.to_owned()))?;
        let delays = &self.settings().kubelet;
        let (boots, delay) = match machine.state {
            MachineState::Running => return Ok(()),
            MachineState::Off => (machine.boots + 1, delays.boot),
            _ => (machine.boots, delays.resume),
        };
        let machine = Machine { state: MachineState::Running, since: now, boots, lease_phase: now + delay };
        self.change_world(|world, _| world.set_machine(node, machine));
        Ok(())
    }

    /// Shuts a machine down in order: its pods end first if the kubelet delays the shutdown for them.
    pub fn shut_down(&mut self, node: &str) -> Result<(), NoMachine> {
        if self.settings().kubelet.shutdown_grace.is_none() || !self.world().is_connected(node, self.now()) {
            return self.fail(node, MachineState::Off);
        }
        self.change_world(|world, _| world.request_shutdown(node));
        Ok(())
    }

    /// When a node's kubelet renewed its Lease for the last time before a moment that is not in the future; none if it
    /// has no Lease.
    pub fn last_renewal(&self, node: &str, at: Timestamp) -> Option<Timestamp> {
        self.world().last_renewal(self.store(), self.settings(), node, at)
    }
}

/// The first moment from a time on at which a kubelet compares something with the API server.
pub(crate) fn next_tick(machine: &Machine, period: SignedDuration, offset: SignedDuration, at: Timestamp) -> Timestamp {
    Grid { start: machine.lease_phase + offset, period }.at_or_after(at.max(machine.lease_phase))
}
