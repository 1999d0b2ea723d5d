//! The faults of a run: what happens to machines, and what the cloud, users and other programs do.

use jiff::SignedDuration;
use serde_json::{Value, json};
use stead_sim::{DeleteOptions, Disk, MachineState, ObjectPart, Patch, SimKey, Write};

use super::checks::Fence;
use super::cluster::{NODES, node_name};
use super::run::{Actor, OUT_OF_SERVICE, Ready, Run};

/// The finalizer that some pods have.
const KEEP: &str = "example.com/keep";

/// A taint of others that has nothing to do with the state of a node.
const MAINTENANCE: &str = "example.com/maintenance";

/// The taint of a machine that the cloud reports as shut down.
pub(crate) const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

pub(crate) const CLOUD: Actor = Actor::Other("cloud-controller-manager");
const USER: Actor = Actor::Other("kubectl");

/// The states of one machine, in reverse order, and for how many ticks each.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) node: usize,
    next: Vec<(State, u64)>,
    left: u64,
}

/// The state of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Up,
    /// It runs, and its kubelet reports for a moment that it is not ready.
    NotReady,
    /// Suspended: nothing runs, nothing is lost.
    Suspended,
    Off,
    /// It runs without network.
    CutOff,
}

impl Run {
    pub(crate) fn write_scripts(&mut self) -> Vec<Script> {
        let first = self.chance.below(NODES as u64) as usize;
        let both = self.chance.percent(40);
        // With three of five, most nodes are lost.
        let three = both && self.chance.percent(30);
        let nodes = [Some(first), both.then_some((first + 2) % NODES), three.then_some((first + 1) % NODES)];
        nodes.into_iter().flatten().map(|node| self.write_script(node)).collect()
    }

    fn write_script(&mut self, node: usize) -> Script {
        let mut next = Vec::new();
        if self.chance.percent(25) {
            // Off, back for a moment that may go unnoticed, and then running without network.
            let first = if self.chance.percent(50) { State::Suspended } else { State::Off };
            let second = if self.chance.percent(70) { State::Up } else { State::NotReady };
            let third = if self.chance.percent(60) { State::CutOff } else { State::Off };
            let mut ticks = |least: u64, more: u64| least + self.chance.below(more);
            next = vec![(first, ticks(7, 8)), (second, ticks(0, 8)), (third, ticks(10, 20))];
        }
        for _ in 0..2 + self.chance.below(4) {
            use State::{CutOff, NotReady, Off, Suspended, Up};
            let state = self.chance.one_of(&[Up, NotReady, Suspended, Suspended, Off, Off, CutOff]).unwrap();
            let ticks = match self.chance.below(4) {
                0 => self.chance.below(4),
                1 | 2 => 6 + self.chance.below(10),
                _ => 30 + self.chance.below(15),
            };
            next.push((state, ticks));
        }
        next.reverse();
        Script { node, next, left: 0 }
    }

    /// What the scripts say, and the network of all.
    pub(crate) fn change_machines(&mut self) {
        for i in 0..self.scripts.len() {
            let script = &mut self.scripts[i];
            if script.left > 0 {
                script.left -= 1;
            } else if let Some((state, ticks)) = script.next.pop() {
                script.left = ticks;
                let node = script.node;
                self.set_state(node, state);
            }
        }
        // Sometimes all nodes lose the network.
        if self.chance.percent(1) {
            self.trace(|| "no node reaches the API server".into());
            (0..NODES).filter(|n| self.state(*n) == MachineState::Running).collect::<Vec<_>>().into_iter().for_each(
                |n| {
                    self.simulation.fail(&node_name(n), MachineState::Partitioned).unwrap();
                },
            );
        } else if self.chance.percent(8) {
            for n in 0..NODES {
                if self.state(n) == MachineState::Partitioned && !self.scripts.iter().any(|script| script.node == n) {
                    self.simulation.heal(&node_name(n)).unwrap();
                }
            }
        }
    }

    pub(crate) fn set_state(&mut self, n: usize, state: State) {
        self.trace(|| format!("n{n} is {state:?}"));
        let (name, now, before) = (node_name(n), self.simulation.now(), self.state(n));
        let since = self.simulation.world().machine(&name).map_or(now, |machine| machine.since);
        let returns = !before.executes() && !matches!(state, State::Suspended | State::Off);
        if returns {
            let behind = match before {
                MachineState::Suspended => now.duration_since(since),
                // The clock may have no battery.
                _ if self.chance.percent(30) => SignedDuration::from_secs(300),
                _ => SignedDuration::ZERO,
            };
            let facts = &mut self.nodes[n];
            (facts.behind, facts.reported) = (facts.behind + behind, false);
        }
        let simulation = &mut self.simulation;
        match state {
            State::Up | State::NotReady => simulation.heal(&name).unwrap(),
            State::Suspended if before != MachineState::Off => simulation.fail(&name, MachineState::Suspended).unwrap(),
            State::Suspended | State::Off => simulation.fail(&name, MachineState::Off).unwrap(),
            State::CutOff => {
                simulation.heal(&name).unwrap();
                simulation.fail(&name, MachineState::Partitioned).unwrap();
            }
        }
        self.follow(Actor::Other("machine"));
        if state == State::NotReady && self.is_connected(n) {
            self.report_not_ready(n);
        }
    }

    /// The kubelet reports that the node is not ready.
    fn report_not_ready(&mut self, n: usize) {
        self.set_ready(n, "False");
    }

    /// The condition Ready of a node until its kubelet reports again.
    pub(crate) fn set_ready(&mut self, n: usize, status: &str) {
        let Some(mut node) = self.node(n).map(|node| serde_json::to_value(&**node).unwrap()) else { return };
        for condition in node["status"]["conditions"].as_array_mut().into_iter().flatten() {
            if condition["type"] == "Ready" {
                condition["status"] = status.into();
                condition["lastTransitionTime"] = self.simulation.now().to_string().into();
            }
        }
        self.patch_status(n, json!({ "status": { "conditions": node["status"]["conditions"] } }));
    }

    fn patch_status(&mut self, n: usize, patch: Value) {
        let key = SimKey::node(&node_name(n));
        let write = Write::Patch { key, patch: Patch::Merge(patch), part: ObjectPart::Status };
        self.request(Actor::Other("kubelet"), write).unwrap();
    }

    /// The node has room for all pods.
    pub(crate) fn make_room(&mut self, n: usize) {
        if self.node(n).is_some() {
            self.patch_status(n, json!({ "status": { "allocatable": { "pods": "10" } } }));
        }
    }

    /// The cloud controller, and others who add and remove taints, delete pods and Nodes, and fail to detach volumes.
    pub(crate) fn other_actors(&mut self) {
        for n in 0..NODES {
            if self.node(n).is_none() {
                continue;
            }
            if self.is_connected(n) && (self.faults_over || self.chance.percent(15)) {
                self.nodes[n].behind = SignedDuration::ZERO;
            }
            self.report_shutdown(n);
            self.change_foreign_taints(n);
            if !self.faults_over && self.is_off(n) && self.chance.percent(1) {
                self.trace(|| format!("a user deletes the Node n{n}"));
                let delete = Write::Delete(SimKey::node(&node_name(n)), DeleteOptions::default());
                self.request(USER, delete).unwrap();
            }
        }
        self.break_disks();
        self.change_finalizers();
        self.delete_some_pod();
    }

    pub(crate) fn is_off(&self, n: usize) -> bool {
        self.state(n) == MachineState::Off
    }

    fn report_shutdown(&mut self, n: usize) {
        let (ready, reported) = (self.ready(n) == Ready::True, self.has(n, SHUTDOWN));
        if self.is_off(n) && !ready && !reported && self.chance.percent(50) {
            self.nodes[n].shut_down = Some(self.simulation.now());
            self.add_taint(n, CLOUD, SHUTDOWN, "", "NoSchedule");
        } else if reported && ready && (self.faults_over || self.chance.percent(50)) {
            self.nodes[n].shut_down = None;
            self.remove_taint(n, CLOUD, SHUTDOWN);
        }
    }

    fn change_foreign_taints(&mut self, n: usize) {
        let (off, ready) = (self.is_off(n), self.ready(n));
        let theirs = |run: &Run, key: &'static str| run.nodes[n].foreign.contains(key);
        if theirs(self, MAINTENANCE) && (self.faults_over || self.chance.percent(10)) {
            self.nodes[n].foreign.remove(MAINTENANCE);
            self.remove_taint(n, USER, MAINTENANCE);
        } else if !self.faults_over && ready == Ready::Unknown && !theirs(self, MAINTENANCE) && self.chance.percent(4) {
            self.add_taint(n, USER, MAINTENANCE, "x", "NoSchedule");
            self.nodes[n].foreign.insert(MAINTENANCE);
        }
        let out = self.has(n, OUT_OF_SERVICE);
        if theirs(self, OUT_OF_SERVICE) && ready == Ready::True && (self.faults_over || self.chance.percent(30)) {
            self.nodes[n].foreign.remove(OUT_OF_SERVICE);
            self.remove_taint(n, USER, OUT_OF_SERVICE);
        } else if !self.faults_over && off && ready == Ready::Unknown && !out && self.chance.percent(2) {
            // The taint of others may look like ours; only the annotation tells.
            let value = if self.mark(n).is_none() && self.chance.percent(50) { "nodeshutdown" } else { "theirs" };
            self.nodes[n].fence = Some(Fence::default());
            self.add_taint(n, USER, OUT_OF_SERVICE, value, "NoExecute");
            self.nodes[n].foreign.insert(OUT_OF_SERVICE);
        } else if !self.faults_over && out && !theirs(self, OUT_OF_SERVICE) && self.chance.percent(1) {
            self.trace(|| format!("a user removes our taint from n{n}"));
            self.remove_taint(n, USER, OUT_OF_SERVICE);
        }
    }

    pub(crate) fn add_taint(&mut self, n: usize, actor: Actor, key: &str, value: &str, effect: &str) {
        let mut taints = self.taints(n);
        taints.push(json!({ "key": key, "value": value, "effect": effect }));
        self.set_taints(n, actor, taints);
    }

    fn remove_taint(&mut self, n: usize, actor: Actor, key: &str) {
        let mut taints = self.taints(n);
        taints.retain(|taint| taint["key"] != key);
        self.set_taints(n, actor, taints);
    }

    fn taints(&self, n: usize) -> Vec<Value> {
        let spec = self.node(n).and_then(|node| node.spec.as_ref());
        let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        taints.iter().map(|taint| serde_json::to_value(taint).unwrap()).collect()
    }

    fn set_taints(&mut self, n: usize, actor: Actor, taints: Vec<Value>) {
        self.trace(|| format!("{actor:?} changes the taints of n{n}: {taints:?}"));
        self.patch(actor, SimKey::node(&node_name(n)), json!({ "spec": { "taints": taints } })).unwrap();
    }

    /// Detaching a volume fails for a while.
    fn break_disks(&mut self) {
        let volumes = self.simulation.store().of_kind(stead_sim::ObjectKind::PersistentVolume);
        for name in volumes.map(|(key, _)| key.name.to_string()).collect::<Vec<_>>() {
            let Some(disk) = self.simulation.world().disk(&name).cloned() else { continue };
            let broken = disk.detach_error.is_some();
            let change = if broken {
                self.faults_over || self.chance.percent(20)
            } else {
                !self.faults_over && self.chance.percent(3)
            };
            if change {
                let detach_error = (!broken).then(|| "disk is busy".to_owned());
                self.simulation.change_world(|world, now| world.set_disk(&name, Disk { detach_error, ..disk }, now));
            }
        }
    }

    /// Some pods are kept by a finalizer for a while.
    fn change_finalizers(&mut self) {
        let pods = self.all_pods().map(|pod| {
            let metadata = &pod.metadata;
            let kept = metadata.finalizers.iter().flatten().any(|finalizer| finalizer == KEEP);
            (metadata.name.clone().unwrap(), kept, metadata.deletion_timestamp.is_some())
        });
        for (name, kept, terminating) in pods.collect::<Vec<_>>() {
            let change = match (kept, terminating) {
                (true, _) => self.faults_over || self.chance.percent(5),
                (false, false) => !self.faults_over && self.chance.clone().percent(1) && self.chance.percent(50),
                (false, true) => false,
            };
            if change {
                let finalizers = if kept { json!(null) } else { json!([KEEP]) };
                let key = SimKey::pod(super::cluster::NAMESPACE, &name);
                self.patch(USER, key, json!({ "metadata": { "finalizers": finalizers } })).unwrap();
            }
        }
    }

    /// Not on a node that is out of service: the pod would be removed at once.
    fn delete_some_pod(&mut self) {
        if self.faults_over || !self.chance.percent(2) {
            return;
        }
        let served = |node: &str| (0..NODES).any(|n| node == node_name(n) && !self.has(n, OUT_OF_SERVICE));
        let node = |pod: &k8s_openapi::api::core::v1::Pod| pod.spec.as_ref()?.node_name.clone();
        let pods = self.all_pods().filter(|pod| node(pod).is_some_and(|node| served(&node)));
        let names: Vec<String> = pods.map(|pod| pod.metadata.name.clone().unwrap()).collect();
        let Some(i) = self.chance.one_of(&(0..names.len()).collect::<Vec<_>>()) else { return };
        self.trace(|| format!("a user deletes {}", names[i]));
        let key = SimKey::pod(super::cluster::NAMESPACE, &names[i]);
        self.request(USER, Write::Delete(key, DeleteOptions::default())).unwrap();
    }
}
