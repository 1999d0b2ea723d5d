//! The state of a run, and its course.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use stead_chance::Chance;
use stead_recovery::{Guards, NodeRecovery, RecoveryPolicy};
use stead_sim::{ApiError, ControllerId, MachineState, ObjectKind, Patch, SimKey, SimObject, Simulation, Write};

use super::checks::{Fence, Observation};
use super::cluster::{NODES, Setting, build, draw_policy, node_name};
use super::faults::Script;
use super::read::Read;
use super::recoverer::Recoverer;

pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// In each tick every actor outside Kubernetes gets a turn.
pub(crate) const TICK: SignedDuration = SignedDuration::from_secs(10);

/// Who changes an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    Kubernetes(ControllerId),
    /// A recoverer.
    Stead,
    /// Somebody else, by the name of the field manager.
    Other(&'static str),
}

/// The status of the condition Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    True,
    False,
    Unknown,
}

/// What is known of a node and its machine beyond their objects.
#[derive(Debug, Clone)]
pub(crate) struct NodeFacts {
    /// The manager that changed the taints last, and when.
    pub(crate) taints_by: (&'static str, Timestamp),
    /// How far its clock is behind.
    pub(crate) behind: SignedDuration,
    /// Whether its kubelet has reported anything since the start or resume.
    pub(crate) reported: bool,
    /// When the cloud controller set its taint.
    pub(crate) shut_down: Option<Timestamp>,
    /// Taints of others that are still there.
    pub(crate) foreign: BTreeSet<&'static str>,
    pub(crate) fence: Option<Fence>,
}

/// What is known of a pod beyond its object.
#[derive(Debug, Clone, Default)]
pub(crate) struct PodFacts {
    /// The turn in which it was bound, or deleted by a user.
    pub(crate) touched: u64,
    pub(crate) deleted_by_recoverer: bool,
    /// The turn in which a recoverer changed it last.
    pub(crate) patched: u64,
}

pub(crate) struct Run {
    pub(crate) chance: Chance,
    pub(crate) guards: Guards,
    pub(crate) policy: RecoveryPolicy,
    pub(crate) setting: Setting,
    pub(crate) simulation: Simulation,
    pub(crate) started: Timestamp,
    /// Counts the turns of all actors.
    pub(crate) turn: u64,
    pub(crate) nodes: Vec<NodeFacts>,
    /// By UID.
    pub(crate) pods: BTreeMap<String, PodFacts>,
    pub(crate) recoverers: Vec<Recoverer>,
    pub(crate) scripts: Vec<Script>,
    pub(crate) faults_over: bool,
    /// The observable state at each read, by turn.
    pub(crate) observations: BTreeMap<u64, Observation>,
    pub(crate) read: Read,
    /// The turn in which the last recovery of a node was closed.
    pub(crate) closed: BTreeMap<String, u64>,
    /// The pods that were removed from a node because others had taken it out of service, without any recovery.
    pub(crate) removed_by_others: BTreeSet<String>,
    /// The nodes without anything to release, as found after the faults.
    pub(crate) nothing_to_release: BTreeSet<usize>,
    /// How many moments with two writers the world has recorded.
    pub(crate) moments_seen: usize,
    pub(crate) violation: Option<String>,
    /// The log, if it is wanted.
    pub(crate) log: Option<Vec<String>>,
}

impl Run {
    pub(crate) fn new(seed: u64, guards: Guards, lies: bool) -> Run {
        let mut chance = Chance::new(seed);
        let setting = Setting::draw(&mut chance, lies);
        let policy = draw_policy(&mut chance);
        let mut run = Run::with(setting, policy, guards, chance, seed);
        run.scripts = run.write_scripts();
        run
    }

    /// A run without scripts.
    pub(crate) fn with(setting: Setting, policy: RecoveryPolicy, guards: Guards, chance: Chance, seed: u64) -> Run {
        let simulation = build(&setting, seed);
        let started = simulation.now();
        let node = NodeFacts {
            taints_by: ("kubelet", started),
            behind: SignedDuration::ZERO,
            reported: true,
            shut_down: None,
            foreign: BTreeSet::new(),
            fence: None,
        };
        Run {
            chance,
            guards,
            policy,
            setting,
            simulation,
            started,
            turn: 1,
            nodes: vec![node; NODES],
            pods: BTreeMap::new(),
            recoverers: vec![Recoverer::new("anna"), Recoverer::new("bert")],
            scripts: Vec::new(),
            faults_over: false,
            observations: BTreeMap::new(),
            read: Read::default(),
            closed: BTreeMap::new(),
            removed_by_others: BTreeSet::new(),
            nothing_to_release: BTreeSet::new(),
            moments_seen: 0,
            violation: None,
            log: None,
        }
    }

    /// Plays a run: no faults, then faults, then none again, and the cluster has to recover.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        self.pass(TICK * 6);
        let ends = 30 + self.chance.below(60);
        for _ in 0..ends {
            if self.violation.is_none() {
                self.one_tick();
            }
        }
        if self.violation.is_none() {
            self.check_recovery();
        }
        self.violation.take().map_or(Ok(()), Err)
    }

    fn one_tick(&mut self) {
        let end = self.simulation.now() + TICK;
        self.change_machines();
        for who in self.chance.shuffled(vec![0, 1, 2]) {
            let pause = [0, 5, 200, 2_500][self.chance.below(4) as usize];
            self.pass(SignedDuration::from_millis(pause));
            match who {
                0 => self.other_actors(),
                _ => self.recover(who - 1),
            }
        }
        self.pass(end.duration_since(self.simulation.now()));
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, duration: SignedDuration) {
        let until = self.simulation.now() + duration;
        while self.violation.is_none() && self.simulation.next_at().is_some_and(|at| at <= until) {
            let component = self.simulation.run_step().unwrap();
            self.turn += 1;
            self.follow(Actor::Kubernetes(component.expect("there is a next step")));
        }
        self.simulation.run_until(until).unwrap();
        self.note_reports();
    }

    /// Makes a request.
    pub(crate) fn request(&mut self, actor: Actor, write: Write) -> Result<Option<SimObject>, ApiError> {
        self.turn += 1;
        let answer = self.simulation.request(write);
        self.follow(actor);
        answer
    }

    /// Patches an object.
    pub(crate) fn patch(&mut self, actor: Actor, key: SimKey, patch: serde_json::Value) -> Result<(), ApiError> {
        let write = Write::Patch { key, patch: Patch::Merge(patch), part: stead_sim::ObjectPart::Spec };
        self.request(actor, write).map(drop)
    }

    /// A kubelet that reaches the API server has reported.
    fn note_reports(&mut self) {
        for n in 0..NODES {
            let connected = self.is_connected(n);
            self.nodes[n].reported |= connected;
        }
    }

    /// Whether the kubelet of a node works and reaches the API server.
    pub(crate) fn is_connected(&self, n: usize) -> bool {
        let machine = self.simulation.world().machine(&node_name(n));
        machine.is_some_and(|machine| machine.state.reports() && self.simulation.now() >= machine.lease_phase)
    }

    /// Whether the machine of a node runs, with or without network.
    pub(crate) fn is_on(&self, n: usize) -> bool {
        self.state(n).executes()
    }

    pub(crate) fn state(&self, n: usize) -> MachineState {
        self.simulation.world().state(&node_name(n))
    }

    pub(crate) fn node(&self, n: usize) -> Option<&Arc<Node>> {
        self.simulation.store().get::<Node>("", &node_name(n))
    }

    pub(crate) fn ready(&self, n: usize) -> Ready {
        let Some(node) = self.node(n) else { return Ready::Unknown };
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        match conditions.iter().find(|condition| condition.type_ == "Ready").map(|ready| ready.status.as_str()) {
            Some("True") => Ready::True,
            Some("False") => Ready::False,
            _ => Ready::Unknown,
        }
    }

    /// Whether a node has a taint of this key.
    pub(crate) fn has(&self, n: usize, key: &str) -> bool {
        let taints = self.node(n).and_then(|node| node.spec.as_ref()?.taints.as_deref()).unwrap_or_default();
        taints.iter().any(|taint| taint.key == key)
    }

    /// The value of the recovery annotation of a node.
    pub(crate) fn mark(&self, n: usize) -> Option<&str> {
        self.node(n)?.metadata.annotations.as_ref()?.get(stead_recovery::ANNOTATION).map(String::as_str)
    }

    pub(crate) fn all_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.simulation.store().all::<Pod>()
    }

    /// The UIDs of the pods with processes on the machine of a node.
    pub(crate) fn processes(&self, n: usize) -> BTreeSet<String> {
        let name = node_name(n);
        let here = self.simulation.world().processes().filter(|(_, process)| *process.node == *name);
        here.map(|(uid, _)| uid.to_string()).collect()
    }

    /// All records.
    pub(crate) fn records(&self) -> impl Iterator<Item = NodeRecovery> {
        let kind = ObjectKind::of(stead_model::Kind::known(stead_recovery::KIND));
        let records = self.simulation.store().of_kind(kind);
        records.map(|(_, record)| serde_json::from_value(record.to_json()).expect("only recoverers write records"))
    }

    pub(crate) fn record(&self, name: &str) -> Option<NodeRecovery> {
        self.records().find(|record| record.name() == name)
    }

    pub(crate) fn trace(&mut self, what: impl FnOnce() -> String) {
        let seconds = self.simulation.now().duration_since(self.started).as_secs_f64();
        if let Some(log) = &mut self.log {
            log.push(format!("{seconds:9.3} {:6} {}", self.turn, what()));
        }
    }

    pub(crate) fn violate(&mut self, what: String) {
        self.trace(|| format!("VIOLATION: {what}"));
        let seconds = self.simulation.now().duration_since(self.started).as_secs();
        self.violation.get_or_insert(format!("after {seconds} s: {what}"));
    }
}
