//! The state of the simulated cluster, and the course of a run.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stead_chance::Chance;
use stead_recovery::{EvidenceKind, Guards, RecoveryPolicy};

use super::api::Read;
use super::faults::Script;
use super::machine::Machine;
use super::recoverer::Recoverer;
use super::storage::Volume;

pub(crate) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
pub(crate) const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The taints of effect NoExecute, as bits.
pub(crate) const NO_EXECUTE: [&str; 3] = [OUT_OF_SERVICE, UNREACHABLE, NOT_READY];

/// The driver whose volumes a machine can no longer write after a detach, and the one without this.
pub(crate) const REVOKING: &str = "revoking.test";
pub(crate) const NOT_REVOKING: &str = "not-revoking.test";

/// The number of nodes.
pub(crate) const NODES: usize = 5;

/// The parameters of a run.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// The maximum age of the controllers' caches, in ticks.
    pub(crate) lag: u64,
    /// Whether a machine can still write to a volume after it was detached.
    pub(crate) not_revoking: bool,
    /// The number of pods per node.
    pub(crate) slots: usize,
    /// The percentage of requests that fail, or report a failure although they succeeded.
    pub(crate) flaky: u64,
    /// The percentage of syncs in which a kubelet skips a pod.
    pub(crate) sluggish: u64,
    /// The percentage of reads that get everything except nodes from an older read.
    pub(crate) stale: u64,
    /// Whether users give false confirmations.
    pub(crate) lies: bool,
}

/// A node in the caches of controllers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CachedNode {
    pub(crate) ready: bool,
    pub(crate) no_execute: u8,
}

/// The status of the condition Ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ready {
    True,
    False,
    Unknown,
}

/// A Node object, with its Lease.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) zone: &'static str,
    /// How often it was registered: each time with a new uid.
    pub(crate) registered: u32,
    /// Since when its object is deleted, with its Lease.
    pub(crate) gone: Option<u32>,
    pub(crate) version: u64,
    pub(crate) ready: Ready,
    pub(crate) since: u32,
    pub(crate) heartbeat: i64,
    pub(crate) lease: i64,
    pub(crate) lease_written: u32,
    pub(crate) boot: u32,
    pub(crate) taints: Vec<Value>,
    pub(crate) mark: Option<String>,
    /// The manager that changed the taints last, and when.
    pub(crate) taints_by: (&'static str, u32),
    /// When the cloud controller set its taint.
    pub(crate) shut_down: Option<u32>,
    /// Volumes that the kubelet reports as in use.
    pub(crate) in_use: BTreeSet<usize>,
    /// When the node controller last saw the Lease change, and its value.
    pub(crate) lease_seen: (u32, i64),
    /// Its entries in caches, the newest first.
    pub(crate) history: [CachedNode; 4],
    /// Taints of others that are still there.
    pub(crate) foreign: BTreeSet<String>,
    pub(crate) fence: Option<Fence>,
}

/// What the checks know of the current or last out-of-service taint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fence {
    pub(crate) ours: bool,
    /// The name of the record.
    pub(crate) record: String,
    /// The turn of the read that the decision is based on.
    pub(crate) read: u64,
    /// The boot of the machine that it is for.
    pub(crate) boot: u32,
    pub(crate) planned: BTreeSet<String>,
    pub(crate) left_alone: BTreeSet<String>,
    /// The planned pods that were collected, and when.
    pub(crate) collected: BTreeMap<String, u64>,
}

/// The state at the time of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observation {
    /// Whether the machine ran and had reported to the API server.
    pub(crate) alive: bool,
    /// Whether most nodes were not ready.
    pub(crate) most_lost: bool,
    /// Whether the node controller had marked the node unreachable.
    pub(crate) unreachable: bool,
    /// Whether its Lease was still valid.
    pub(crate) fresh: bool,
    /// Another node that was not ready although its machine ran and had reported.
    pub(crate) other_alive: Option<usize>,
    /// For how many ticks the cloud had reported the machine as shut down.
    pub(crate) shut_down: Option<u32>,
    /// The turn in which everything except nodes was read.
    pub(crate) rest: u64,
}

/// A Pod object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) set: usize,
    pub(crate) volume: Option<usize>,
    pub(crate) version: u64,
    pub(crate) node: Option<usize>,
    pub(crate) bound: u64,
    pub(crate) deleted: Option<u32>,
    /// The turn in which a user deleted it.
    pub(crate) deleted_by_user: Option<u64>,
    /// Whether a recoverer deleted it.
    pub(crate) deleted_by_recoverer: bool,
    pub(crate) failed: bool,
    /// Whether its containers run, as last reported by the kubelet.
    pub(crate) running: bool,
    pub(crate) ready: bool,
    pub(crate) finalizer: bool,
    pub(crate) tolerations: Vec<Value>,
    /// How long it tolerates each of [`NO_EXECUTE`], in ticks; none for ever.
    pub(crate) tolerates: [Option<u32>; 3],
    /// The turn in which a recoverer changed it last.
    pub(crate) patched: u64,
    /// When the taint eviction controller deletes it.
    pub(crate) evict: Option<u32>,
}

impl Pod {
    pub(crate) fn is_active(&self) -> bool {
        self.deleted.is_none() && !self.failed
    }
}

/// A workload.
#[derive(Debug, Clone)]
pub(crate) struct Set {
    pub(crate) name: &'static str,
    /// Whether it is a StatefulSet: its pods have fixed names, and a pod is replaced after it is deleted.
    pub(crate) stateful: bool,
    pub(crate) volumes: Vec<Option<usize>>,
    pub(crate) tolerates: Tolerates,
}

/// Which taints the pods of a workload tolerate forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tolerates {
    Nothing,
    /// The taints of an unreachable or not ready node.
    NotReady,
    /// The out-of-service taint.
    OutOfService,
    All,
}

pub(crate) struct World {
    pub(crate) chance: Chance,
    pub(crate) guards: Guards,
    pub(crate) policy: RecoveryPolicy,
    pub(crate) setting: Setting,
    pub(crate) tick: u32,
    /// Counts the turns of all actors.
    pub(crate) turn: u64,
    pub(crate) versions: u64,
    pub(crate) uids: u32,
    pub(crate) nodes: Vec<Node>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) pods: Vec<Pod>,
    pub(crate) volumes: Vec<Volume>,
    pub(crate) sets: Vec<Set>,
    pub(crate) records: BTreeMap<String, Value>,
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
    pub(crate) violation: Option<String>,
    /// The log, if it is wanted.
    pub(crate) log: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u64, guards: Guards, lies: bool) -> World {
        let mut chance = Chance::new(seed);
        let not_revoking = chance.percent(30);
        let setting = Setting {
            lag: chance.below(4),
            not_revoking,
            slots: if chance.percent(30) { 2 } else { 4 },
            flaky: chance.below(3) * 12,
            sluggish: if chance.percent(30) { 70 } else { 20 },
            stale: chance.below(3) * 15,
            lies,
        };
        let mut accept = BTreeSet::from([EvidenceKind::Person]);
        accept.extend(chance.percent(40).then_some(EvidenceKind::CloudShutdown));
        accept.extend(chance.percent(40).then_some(EvidenceKind::BootIdChanged));
        let policy = RecoveryPolicy {
            accept,
            at_once: 1 + chance.below(2) as usize,
            at_once_per_zone: 1,
            allow_pending: chance.percent(50),
            include_tolerating: chance.percent(50),
            detach_revokes: BTreeSet::from([REVOKING.to_owned()]),
        };
        let nodes = (0..NODES).map(|n| Node::new(format!("n{n}"), if n % 2 == 0 { "a" } else { "b" })).collect();
        let set = |name, stateful, volumes: &[Option<usize>], tolerates| Set {
            name,
            stateful,
            volumes: volumes.to_vec(),
            tolerates,
        };
        let mut sets = vec![
            set("db", true, &[Some(0), Some(1)], Tolerates::Nothing),
            set("web", false, &[Some(2)], Tolerates::Nothing),
        ];
        let tolerates = if chance.percent(50) { Tolerates::All } else { Tolerates::OutOfService };
        sets.extend(chance.percent(60).then(|| set("any", true, &[None, None], tolerates)));
        sets.extend(chance.percent(40).then(|| set("plain", false, &[None, None], Tolerates::Nothing)));
        sets.extend(chance.percent(40).then(|| set("clings", true, &[Some(3), None], Tolerates::NotReady)));
        let mut world = World {
            guards,
            policy,
            setting,
            tick: 0,
            turn: 0,
            versions: 1,
            uids: 0,
            nodes,
            machines: (0..NODES).map(|_| Machine::default()).collect(),
            pods: Vec::new(),
            volumes: (0..4).map(|_| Volume::default()).collect(),
            sets,
            records: BTreeMap::new(),
            recoverers: vec![Recoverer::new("anna"), Recoverer::new("bert")],
            scripts: Vec::new(),
            faults_over: false,
            observations: BTreeMap::new(),
            read: Read::default(),
            closed: BTreeMap::new(),
            removed_by_others: BTreeSet::new(),
            nothing_to_release: BTreeSet::new(),
            violation: None,
            log: None,
            chance,
        };
        world.scripts = world.write_scripts();
        world
    }

    /// Plays a run: no faults, then faults, then none again, and the cluster has to recover.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        for _ in 0..6 {
            self.one_tick(false);
        }
        let ends = 30 + self.chance.below(60) as u32;
        while self.tick < ends && self.violation.is_none() {
            self.one_tick(true);
        }
        if self.violation.is_none() {
            self.check_recovery();
        }
        self.violation.take().map_or(Ok(()), Err)
    }

    pub(crate) fn one_tick(&mut self, recover: bool) {
        self.tick += 1;
        self.update_caches();
        self.faults();
        let who: Vec<u8> = self.chance.shuffled(vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        for who in who {
            self.turn += 1;
            match who {
                0 => (0..NODES).for_each(|n| self.kubelet(n)),
                1 => self.node_controller(),
                2 => self.taint_eviction(),
                3 => self.pod_garbage_collector(),
                4 => self.attach_detach(),
                5 => self.workloads(),
                6 => self.scheduler(),
                7 => self.other_actors(),
                _ if recover => self.recover(usize::from(who) - 8),
                _ => {}
            }
        }
        self.turn += 1;
        self.check();
    }

    pub(crate) fn trace(&mut self, what: impl FnOnce() -> String) {
        let (tick, turn) = (self.tick, self.turn);
        if let Some(log) = &mut self.log {
            log.push(format!("{tick:4} {turn:5} {}", what()));
        }
    }

    pub(crate) fn violate(&mut self, what: String) {
        self.trace(|| format!("VIOLATION: {what}"));
        self.violation.get_or_insert(format!("tick {}: {what}", self.tick));
    }

    pub(crate) fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    pub(crate) fn now(&self) -> Timestamp {
        at(i64::from(self.tick) * 10)
    }
}

/// The time this many seconds after the start.
pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600).unwrap() + SignedDuration::from_secs(seconds)
}

impl Node {
    fn new(name: String, zone: &'static str) -> Node {
        Node {
            name,
            zone,
            registered: 1,
            gone: None,
            version: 1,
            ready: Ready::True,
            since: 0,
            heartbeat: 0,
            lease: 0,
            lease_written: 0,
            boot: 1,
            taints: Vec::new(),
            mark: None,
            taints_by: ("kubelet", 0),
            shut_down: None,
            in_use: BTreeSet::new(),
            lease_seen: (0, 0),
            history: [CachedNode { ready: true, no_execute: 0 }; 4],
            foreign: BTreeSet::new(),
            fence: None,
        }
    }

    /// Deletes the Node object.
    pub(crate) fn delete(&mut self, tick: u32) {
        let new = Node::new(self.name.clone(), self.zone);
        *self = Node { registered: self.registered, gone: Some(tick), ready: Ready::Unknown, ..new };
        self.history = [CachedNode::default(); 4];
    }

    /// A kubelet that starts registers its node again.
    pub(crate) fn register(&mut self, tick: u32, version: u64) {
        if self.gone.take().is_some() {
            self.registered += 1;
            self.version = version;
            (self.since, self.lease_seen) = (tick, (tick, self.lease));
        }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.taints.iter().any(|t| t["key"] == key)
    }

    pub(crate) fn add(&mut self, key: &str, value: &str, effect: &str) {
        if !self.taints.iter().any(|t| t["key"] == key && t["effect"] == effect) {
            self.taints.push(json!({ "key": key, "value": value, "effect": effect }));
        }
    }

    /// Adds a taint with the time, as the node controller does.
    pub(crate) fn add_at(&mut self, key: &str, effect: &str, tick: u32) {
        if !self.taints.iter().any(|t| t["key"] == key && t["effect"] == effect) {
            let time = at(i64::from(tick) * 10).to_string();
            self.taints.push(json!({ "key": key, "effect": effect, "timeAdded": time }));
        }
    }

    pub(crate) fn drop(&mut self, key: &str) {
        self.taints.retain(|t| t["key"] != key);
    }

    pub(crate) fn cache_entry(&self) -> CachedNode {
        let bit = |(i, key): (usize, &&str)| {
            u8::from(self.taints.iter().any(|t| t["key"] == **key && t["effect"] == "NoExecute")) << i
        };
        let no_execute = NO_EXECUTE.iter().enumerate().map(bit).sum();
        CachedNode { ready: self.ready == Ready::True, no_execute }
    }
}
