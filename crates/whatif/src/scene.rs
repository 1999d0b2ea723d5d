//! The cluster in which a rehearsal begins, made as often as there are seeds.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use serde_json::Value;
use stead_model::{ClusterVersion, Kind};
use stead_sim::{
    Choices, MachineSpec, NodeDriver, Settings, SimObject, SimType, Simulation, Workload, WorkloadDelays, World, Write,
};

use crate::expectation::reference;
use crate::rehearsal::{Rehearsal, RehearsalError, WorkloadTiming};

/// The virtual time at which a cluster begins that does not say what time it is.
const BEGIN: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// How long a cluster that is made of new machines runs before the first step.
const SETTLE: SignedDuration = SignedDuration::from_secs(5);

/// The objects of a cluster, as they were read.
#[derive(Debug, Clone, Default)]
pub struct ClusterObjects {
    /// The objects.
    pub objects: Vec<Value>,
    /// The time at which they were read; none if they are not from a running cluster.
    pub taken: Option<Timestamp>,
    /// Version and timers of the cluster; none for the defaults of the version that its nodes have.
    pub settings: Option<Settings>,
}

/// The cluster in which a rehearsal begins.
#[derive(Debug, Clone)]
pub struct Scene {
    settings: Settings,
    began: Timestamp,
    /// The objects that are there as they are.
    taken: Vec<SimObject>,
    machines: Vec<MachineSpec>,
    /// The objects that are created at the beginning, with their place in the list.
    created: Vec<(usize, SimObject)>,
    timings: Vec<WorkloadTiming>,
    namespace: String,
    /// Objects that were left out, with the reason.
    pub warnings: Vec<String>,
}

impl Scene {
    /// The scene of a rehearsal. For `cluster.example` and `cluster.objects` nothing has to be read.
    pub fn new(rehearsal: &Rehearsal, read: Option<ClusterObjects>) -> Result<Scene, RehearsalError> {
        let is_read = read.is_some();
        let read = read.unwrap_or_else(|| {
            let cluster = &rehearsal.cluster;
            let example = cluster.example.as_ref().and_then(|name| crate::example::example(name));
            let objects = example.or_else(|| cluster.objects.clone()).unwrap_or_default();
            ClusterObjects { objects, ..ClusterObjects::default() }
        });
        let mut scene = Scene {
            settings: read.settings.clone().unwrap_or_default(),
            began: read.taken.unwrap_or(BEGIN),
            taken: Vec::new(),
            machines: Vec::new(),
            created: Vec::new(),
            timings: rehearsal.workloads.clone(),
            namespace: rehearsal.namespace().to_owned(),
            warnings: Vec::new(),
        };
        for (i, object) in read.objects.iter().enumerate() {
            match scene.add(i, object) {
                Ok(()) => {}
                Err(problem) if is_read => scene.warnings.push(format!("{problem}: the object is ignored")),
                Err(problem) => return Err(RehearsalError::new(format!("cluster.objects[{i}]"), problem)),
            }
        }
        scene.find_drivers();
        scene.set_version(rehearsal, read.settings.is_none())?;
        scene.set_delays();
        Ok(scene)
    }

    /// Adds an object. One with a UID comes from a cluster.
    fn add(&mut self, i: usize, object: &Value) -> Result<(), String> {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        if Kind::find(text("apiVersion"), text("kind")).is_none() && object["metadata"]["uid"].is_string() {
            // The simulation has no controller for it.
            return Ok(());
        }
        let mut object = object.clone();
        if object["metadata"].is_object() && object["metadata"]["namespace"].is_null() {
            object["metadata"]["namespace"] = self.namespace.clone().into();
        }
        let object = SimObject::from_json(&object).map_err(|error| error.to_string())?;
        match Node::of(&object) {
            _ if !object.uid().is_empty() => self.taken.push(object),
            Some(node) => self.machines.push(machine(node)),
            None => self.created.push((i, object)),
        }
        Ok(())
    }

    /// A CSINode belongs to the machine of its node, whose kubelet writes it.
    fn find_drivers(&mut self) {
        let mut drivers: BTreeMap<String, Vec<NodeDriver>> = BTreeMap::new();
        for (_, object) in &self.created {
            let Some(node) = CSINode::of(object) else { continue };
            let name = node.metadata.name.clone().unwrap_or_default();
            drivers.entry(name).or_default().extend(node.spec.drivers.iter().map(|driver| NodeDriver {
                name: driver.name.clone(),
                node_id: Some(driver.node_id.clone()),
                topology_keys: driver.topology_keys.clone().unwrap_or_default(),
                limit: driver.allocatable.as_ref().and_then(|limit| limit.count),
            }));
        }
        self.created.retain(|(_, object)| CSINode::of(object).is_none());
        for machine in &mut self.machines {
            machine.drivers = drivers.remove(&machine.name).unwrap_or_default();
        }
    }

    fn set_version(&mut self, rehearsal: &Rehearsal, is_unknown: bool) -> Result<(), RehearsalError> {
        let told = rehearsal.kubernetes.as_ref().map(|text| text.parse::<ClusterVersion>()).transpose();
        let told = told.map_err(|error| RehearsalError::new("kubernetes", error.to_string()))?;
        let kubelets = self.taken.iter().filter_map(Node::of).filter_map(|node| {
            node.status.as_ref()?.node_info.as_ref()?.kubelet_version.parse::<ClusterVersion>().ok()
        });
        let newest = kubelets.max_by_key(|version| version.reported_minor).filter(|_| is_unknown);
        if let Some(version) = told.or(newest) {
            self.settings = Settings { limits: self.settings.limits, ..Settings::of(version.used) };
        }
        Ok(())
    }

    /// The delays that are not those of one workload.
    fn set_delays(&mut self) {
        let general: Vec<WorkloadTiming> = self.timings.iter().filter(|timing| timing.of.is_none()).cloned().collect();
        for timing in general {
            self.settings.workload = delays(&timing, &self.settings.workload);
        }
        self.timings.retain(|timing| timing.of.is_some());
    }

    /// The cluster, with the chances of a seed.
    pub fn start(&self, seed: u64) -> Result<Simulation, RehearsalError> {
        let mut world = World::default();
        for timing in &self.timings {
            let of = timing.of.as_deref().unwrap_or_default();
            let key = reference(of, &self.namespace).map_err(|message| RehearsalError::new("workloads", message))?;
            let delays = Some(delays(timing, &self.settings.workload));
            world.set_workload(key, Workload { delays, ..Workload::default() });
        }
        world.learn_delays(&self.taken, &self.settings);
        let objects = self.taken.iter().cloned();
        let mut simulation =
            Simulation::resume(self.began, self.settings.clone(), Choices::seeded(seed), objects, world);
        for machine in &self.machines {
            let added = simulation.add_machine(machine.clone());
            added.map_err(|error| RehearsalError::new("cluster.objects", error.to_string()))?;
        }
        for (i, object) in &self.created {
            let created = simulation.request(Write::Create(object.clone()));
            created.map_err(|error| RehearsalError::new(format!("cluster.objects[{i}]"), error.to_string()))?;
        }
        if !self.machines.is_empty() {
            // New nodes become ready.
            let settled = simulation.run_for(SETTLE);
            settled.map_err(|error| RehearsalError::new("cluster", error.to_string()))?;
        }
        Ok(simulation)
    }
}

fn delays(timing: &WorkloadTiming, general: &WorkloadDelays) -> WorkloadDelays {
    WorkloadDelays {
        start: timing.start.map_or(general.start, |duration| duration.0),
        ready: timing.ready.map_or(general.ready, |duration| duration.0),
        stop: timing.stop.map_or(general.stop, |duration| duration.0),
        job: general.job,
    }
}

/// The machine of a Node that is written by hand.
fn machine(node: &Node) -> MachineSpec {
    let (spec, status) = (node.spec.as_ref(), node.status.as_ref());
    let mut machine = MachineSpec::named(node.metadata.name.clone().unwrap_or_default());
    machine.labels = node.metadata.labels.clone().unwrap_or_default();
    machine.taints = spec.and_then(|spec| spec.taints.clone()).unwrap_or_default();
    machine.provider_id = spec.and_then(|spec| spec.provider_id.clone());
    let amounts = status.and_then(|status| status.capacity.as_ref().or(status.allocatable.as_ref()));
    machine.capacity = amounts.into_iter().flatten().map(|(name, amount)| (name.clone(), amount.0.clone())).collect();
    let addresses = status.and_then(|status| status.addresses.as_deref()).unwrap_or_default();
    let internal = addresses.iter().find(|address| address.type_ == "InternalIP");
    machine.address = internal.map(|address| address.address.clone());
    machine
}
