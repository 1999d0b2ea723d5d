//! What exists outside the API server: machines, disks and processes.
//!
//! Controllers do not see it; kubelets and storage drivers work on it. It says at every instant which process can write
//! to which volume, whatever the objects say.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use stead_model::fork::Sorted;

use crate::machines::MachineSpec;
use crate::object::SimKey;
use crate::workload::Workload;

/// The state of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MachineState {
    /// It runs and its kubelet reports.
    #[default]
    Running,
    /// It is paused: nothing runs on it, and everything goes on when it is resumed.
    Suspended,
    /// It was shut down or crashed: its processes have ended.
    Off,
    /// It runs, but it does not reach the API server.
    Partitioned,
    /// It runs, but its kubelet does not.
    KubeletStopped,
    /// Nothing is heard of it, and nobody knows more: its processes may run.
    Unknown,
}

impl MachineState {
    /// Whether the API server hears of it.
    pub fn reports(self) -> bool {
        self == MachineState::Running
    }

    /// Whether processes on it execute.
    pub fn executes(self) -> bool {
        !matches!(self, MachineState::Suspended | MachineState::Off)
    }
}

/// A machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its state.
    pub state: MachineState,
    /// Since when it has this state.
    pub since: Timestamp,
    /// How often it was booted.
    pub boots: u32,
    /// A moment at which its kubelet renewed the Lease: the others are whole periods from it.
    pub lease_phase: Timestamp,
}

/// A process of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The pod.
    pub pod: SimKey,
    /// The machine.
    pub node: Arc<str>,
    /// The volumes that it has mounted for writing, by the name of the PersistentVolume.
    pub volumes: Vec<Arc<str>>,
}

/// A disk behind a PersistentVolume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    /// The machines that the storage has attached it to.
    pub attached_to: BTreeSet<Arc<str>>,
    /// Whether it has to be attached before it can be used.
    pub needs_attach: bool,
    /// Whether a machine that it is detached from loses access to it.
    pub detach_revokes: bool,
    /// Whether only one machine at a time may write to it.
    pub exclusive: bool,
    /// Why detaching it fails, while it does.
    pub detach_error: Option<String>,
    /// Why attaching it fails, while it does.
    pub attach_error: Option<String>,
}

/// Two machines can write to the same volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("two writers: volume {volume} is written by {}", writers.join(" and "))]
pub struct TwoWriters {
    /// Since when.
    pub at: Timestamp,
    /// The volume.
    pub volume: Arc<str>,
    /// The pods and their nodes.
    pub writers: Vec<String>,
}

/// Machines, disks and processes. A copy is a fork.
#[derive(Debug, Clone, Default)]
pub struct World {
    machines: Sorted<Arc<str>, Machine>,
    /// What a kubelet registers when it starts.
    specs: Sorted<Arc<str>, Arc<MachineSpec>>,
    workloads: Sorted<SimKey, Workload>,
    /// The nodes whose machines changed since the last call of [`World::take_changed_machines`].
    changed_machines: BTreeSet<Arc<str>>,
    /// The changes of machines since the last call of [`World::take_machine_changes`], in order.
    machine_changes: Vec<(Arc<str>, Machine)>,
    /// The nodes whose machines are asked to shut down in order.
    shutdowns: BTreeSet<Arc<str>>,
    disks: Sorted<Arc<str>, Disk>,
    /// By the UID of the pod.
    processes: Sorted<Arc<str>, Process>,
    /// The UIDs of the pods that have processes, by node.
    processes_on: Sorted<Arc<str>, Arc<BTreeSet<Arc<str>>>>,
    /// The UIDs of pods whose processes have a volume mounted, by volume.
    users: Sorted<Arc<str>, Arc<BTreeSet<Arc<str>>>>,
    violations: Vec<TwoWriters>,
}

impl World {
    /// The machine of a node.
    pub fn machine(&self, node: &str) -> Option<&Machine> {
        self.machines.find(|name| (**name).cmp(node))
    }

    /// The state of a node's machine; off if there is none.
    pub fn state(&self, node: &str) -> MachineState {
        self.machine(node).map_or(MachineState::Off, |machine| machine.state)
    }

    /// All machines, by the name of their node.
    pub fn machines(&self) -> impl Iterator<Item = (&Arc<str>, &Machine)> {
        self.machines.iter().map(|(name, machine)| (name, machine))
    }

    /// Adds or changes a machine. The processes of one that is off end.
    pub fn set_machine(&mut self, node: &str, machine: Machine) {
        let (ends, at) = (machine.state == MachineState::Off, machine.since);
        let name: Arc<str> = node.into();
        self.machines.insert(Arc::clone(&name), machine.clone());
        self.machine_changes.push((Arc::clone(&name), machine));
        self.changed_machines.insert(name);
        let here = self.processes_on.find(|name| (**name).cmp(node)).cloned().unwrap_or_default();
        for uid in here.iter() {
            if ends {
                self.end_process(uid);
            } else {
                let volumes = self.process(uid).map(|process| process.volumes.clone()).unwrap_or_default();
                volumes.iter().for_each(|volume| self.check(volume, at));
            }
        }
    }

    /// The nodes whose machines changed since the last call: their heartbeats are implied, so nothing else tells.
    pub(crate) fn take_changed_machines(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.changed_machines)
    }

    /// What happened to machines since the last call, for their kubelets.
    pub(crate) fn take_machine_changes(&mut self) -> Vec<(Arc<str>, Machine)> {
        std::mem::take(&mut self.machine_changes)
    }

    /// What the kubelet of a node registers when it starts; none if the machine was found, not added.
    pub fn machine_spec(&self, node: &str) -> Option<&Arc<MachineSpec>> {
        self.specs.find(|name| (**name).cmp(node))
    }

    /// Sets what the kubelet of a node registers when it starts.
    pub(crate) fn set_machine_spec(&mut self, spec: Arc<MachineSpec>) {
        self.specs.insert(spec.name.as_str().into(), spec);
    }

    /// Asks a machine to shut down in order; its kubelet answers.
    pub(crate) fn request_shutdown(&mut self, node: &str) {
        self.shutdowns.insert(node.into());
    }

    /// Takes the requests to shut down in order.
    pub(crate) fn take_shutdowns(&mut self) -> BTreeSet<Arc<str>> {
        std::mem::take(&mut self.shutdowns)
    }

    /// What is set for a workload: a pod, its controller, or the controller of that.
    pub fn workload(&self, key: &SimKey) -> Option<&Workload> {
        self.workloads.get(key)
    }

    /// All workloads that something is set for.
    pub fn workloads(&self) -> impl Iterator<Item = (&SimKey, &Workload)> {
        self.workloads.iter().map(|(key, workload)| (key, workload))
    }

    /// Sets how the pods of a workload behave, from the next start of their containers on.
    pub fn set_workload(&mut self, key: SimKey, workload: Workload) {
        self.workloads.insert(key, workload);
    }

    /// The disk of a PersistentVolume.
    pub fn disk(&self, volume: &str) -> Option<&Disk> {
        self.disks.find(|name| (**name).cmp(volume))
    }

    /// Adds or changes a disk.
    pub fn set_disk(&mut self, volume: &str, disk: Disk, now: Timestamp) {
        self.disks.insert(volume.into(), disk);
        self.check(volume, now);
    }

    /// Removes a disk and its content.
    pub fn remove_disk(&mut self, volume: &str) {
        self.disks.remove(|name| (**name).cmp(volume));
    }

    /// The process of the pod with this UID.
    pub fn process(&self, uid: &str) -> Option<&Process> {
        self.processes.find(|other| (**other).cmp(uid))
    }

    /// Starts the process of a pod.
    pub fn start_process(&mut self, uid: &str, process: Process, now: Timestamp) {
        self.end_process(uid);
        let uid: Arc<str> = uid.into();
        add_user(&mut self.processes_on, &process.node, &uid);
        process.volumes.iter().for_each(|volume| add_user(&mut self.users, volume, &uid));
        let volumes = process.volumes.clone();
        self.processes.insert(uid, process);
        volumes.iter().for_each(|volume| self.check(volume, now));
    }

    /// Ends the process of a pod.
    pub fn end_process(&mut self, uid: &str) {
        let Some(process) = self.processes.remove(|other| (**other).cmp(uid)) else { return };
        remove_user(&mut self.processes_on, &process.node, uid);
        process.volumes.iter().for_each(|volume| remove_user(&mut self.users, volume, uid));
    }

    /// The processes that can write to a volume now, by node.
    pub fn writers(&self, volume: &str) -> BTreeMap<Arc<str>, Vec<SimKey>> {
        let disk = self.disk(volume);
        let has_access = |node: &str| {
            disk.is_none_or(|disk| !disk.needs_attach || !disk.detach_revokes || disk.attached_to.contains(node))
        };
        let users = self.users.find(|name| (**name).cmp(volume));
        let mut writers: BTreeMap<Arc<str>, Vec<SimKey>> = BTreeMap::new();
        for process in users.into_iter().flat_map(|users| users.iter()).filter_map(|uid| self.process(uid)) {
            if self.state(&process.node).executes() && has_access(&process.node) {
                writers.entry(Arc::clone(&process.node)).or_default().push(process.pod.clone());
            }
        }
        writers
    }

    /// Records a violation if two machines can write to an exclusive volume.
    fn check(&mut self, volume: &str, at: Timestamp) {
        if !self.disk(volume).is_some_and(|disk| disk.exclusive) {
            return;
        }
        let writers = self.writers(volume);
        if writers.len() > 1 {
            let writers =
                writers.iter().flat_map(|(node, pods)| pods.iter().map(move |pod| format!("{pod} on {node}")));
            self.violations.push(TwoWriters { at, volume: volume.into(), writers: writers.collect() });
        }
    }

    /// All moments at which two machines could write to the same exclusive volume.
    pub fn violations(&self) -> &[TwoWriters] {
        &self.violations
    }
}

fn add_user(index: &mut Sorted<Arc<str>, Arc<BTreeSet<Arc<str>>>>, name: &Arc<str>, uid: &Arc<str>) {
    let mut users = index.remove(|other| other.cmp(name)).unwrap_or_default();
    Arc::make_mut(&mut users).insert(Arc::clone(uid));
    index.insert(Arc::clone(name), users);
}

fn remove_user(index: &mut Sorted<Arc<str>, Arc<BTreeSet<Arc<str>>>>, name: &Arc<str>, uid: &str) {
    let Some(mut users) = index.remove(|other| other.cmp(name)) else { return };
    Arc::make_mut(&mut users).remove(uid);
    if !users.is_empty() {
        index.insert(Arc::clone(name), users);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(state: MachineState) -> Machine {
        Machine { state, since: Timestamp::UNIX_EPOCH, boots: 0, lease_phase: Timestamp::UNIX_EPOCH }
    }

    fn process(name: &str, node: &str) -> Process {
        Process { pod: SimKey::pod("n", name), node: node.into(), volumes: vec!["v".into()] }
    }

    /// One pod on a machine in some state, and its replacement on another machine.
    fn world(state: MachineState, detach_revokes: bool) -> World {
        let mut world = World::default();
        let now = Timestamp::UNIX_EPOCH;
        world.set_machine("a", machine(MachineState::Running));
        world.set_machine("b", machine(MachineState::Running));
        let disk = |node: &str| Disk {
            attached_to: BTreeSet::from([node.into()]),
            needs_attach: true,
            detach_revokes,
            exclusive: true,
            ..Disk::default()
        };
        world.set_disk("v", disk("a"), now);
        world.start_process("1", process("old", "a"), now);
        world.set_machine("a", machine(state));
        world.set_disk("v", disk("b"), now);
        world.start_process("2", process("new", "b"), now);
        world
    }

    #[test]
    fn two_machines_that_can_write_are_a_violation() {
        for (state, detach_revokes, violated) in [
            (MachineState::Off, false, false),
            (MachineState::Suspended, false, false),
            (MachineState::Partitioned, true, false),
            (MachineState::Partitioned, false, true),
            (MachineState::KubeletStopped, false, true),
        ] {
            let world = world(state, detach_revokes);
            assert_eq!(!world.violations().is_empty(), violated, "{state:?} {detach_revokes}");
        }
    }

    #[test]
    fn a_resumed_machine_writes_again() {
        let mut world = world(MachineState::Suspended, false);
        world.set_machine("a", machine(MachineState::Running));
        let found: Vec<String> = world.violations().iter().map(ToString::to_string).collect();
        assert_eq!(found, ["two writers: volume v is written by pod n/old on a and pod n/new on b"]);
    }
}
