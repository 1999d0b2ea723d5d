//! The cluster as a whole, and how a run of it goes.

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

/// The driver whose volumes are taken from a machine when they are detached, and the one whose are not.
pub(crate) const REVOKING: &str = "revoking.test";
pub(crate) const NOT_REVOKING: &str = "not-revoking.test";

/// How many nodes there are.
pub(crate) const NODES: usize = 5;

/// What a run is like.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    /// How many ticks the controllers' caches are behind at most.
    pub(crate) lag: u64,
    /// Whether the storage goes on serving a machine that a volume was detached from.
    pub(crate) loose: bool,
    /// How many pods a node takes.
    pub(crate) slots: usize,
    /// Of a hundred requests, how many fail, or say so though they were done.
    pub(crate) flaky: u64,
    /// Of a hundred times, how often a kubelet does not come to a pod.
    pub(crate) sluggish: u64,
    /// Of a hundred looks, how many get all but the nodes from an answer of long ago.
    pub(crate) stale: u64,
    /// Whether people lie.
    pub(crate) lies: bool,
}

/// What the controllers' caches have of a node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    pub(crate) ready: bool,
    pub(crate) no_execute: u8,
}

/// What the condition Ready says.
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
    /// How often it was registered: each time it is another object.
    pub(crate) registered: u32,
    /// Since when its object is gone, with its Lease.
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
    /// Who changed the taints last, and when.
    pub(crate) taints_by: (&'static str, u32),
    /// When the cloud's controller set its taint.
    pub(crate) shut_down: Option<u32>,
    /// Volumes that the kubelet says it has.
    pub(crate) in_use: BTreeSet<usize>,
    /// When the node controller last saw the lease change, and what it was.
    pub(crate) lease_seen: (u32, i64),
    /// What caches have of it, the newest first.
    pub(crate) history: [Seen; 4],
    /// What others have put there, and have not taken away.
    pub(crate) foreign: BTreeSet<String>,
    pub(crate) fence: Option<Fence>,
}

/// What is known of the taint that is, or was last, on a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fence {
    pub(crate) ours: bool,
    /// The record's name.
    pub(crate) record: String,
    /// When what it was decided from was read.
    pub(crate) read: u64,
    /// For which life of the machine.
    pub(crate) boot: u32,
    pub(crate) condemned: BTreeSet<String>,
    pub(crate) shielded: BTreeSet<String>,
    /// The condemned pods that were collected, and when.
    pub(crate) collected: BTreeMap<String, u64>,
}

/// How it stood when somebody looked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// Whether the machine ran, and had said so to the API server.
    pub(crate) alive: bool,
    /// Whether most nodes were not ready.
    pub(crate) most_lost: bool,
    /// Whether the node controller had found the node silent.
    pub(crate) silent: bool,
    /// Whether its lease was still good.
    pub(crate) fresh: bool,
    /// Another node that was not ready, although its machine ran and had said so.
    pub(crate) other_alive: Option<usize>,
    /// For how many ticks the cloud had said that the machine is shut down.
    pub(crate) shut_down: Option<u32>,
    /// When all but the nodes was read.
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
    /// The turn in which somebody deleted it, who is none of us and no controller.
    pub(crate) unwanted: Option<u64>,
    pub(crate) failed: bool,
    /// What the kubelet last said of its containers.
    pub(crate) running: bool,
    pub(crate) ready: bool,
    pub(crate) finalizer: bool,
    pub(crate) tolerations: Vec<Value>,
    /// How long it bears each of [`NO_EXECUTE`]; none for ever.
    pub(crate) bears: [Option<u32>; 3],
    /// The turn in which one of us changed it last.
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
    /// Whether its pods have names of their own, and one at a time.
    pub(crate) stateful: bool,
    pub(crate) volumes: Vec<Option<usize>>,
    pub(crate) bears: Bears,
}

/// Which taints a workload's pods bear for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bears {
    Nothing,
    /// Those of a node that is silent, or not ready.
    Silence,
    /// That of a node that is out of service.
    OutOfService,
    All,
}

pub(crate) struct World {
    pub(crate) chance: Chance,
    pub(crate) guards: Guards,
    pub(crate) policy: RecoveryPolicy,
    pub(crate) setting: Setting,
    pub(crate) tick: u32,
    /// Counts every turn of everybody.
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
    pub(crate) calm: bool,
    /// What each look could have seen, by its turn.
    pub(crate) looks: BTreeMap<u64, Look>,
    pub(crate) read: Read,
    /// The turn in which the last recovery of a node was closed.
    pub(crate) closed: BTreeMap<String, u64>,
    /// The nodes that nothing hangs on, as was said when all was calm.
    pub(crate) nothing_there: BTreeSet<usize>,
    pub(crate) broken: Option<String>,
    /// What happened, where somebody wants to read it.
    pub(crate) log: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(seed: u64, guards: Guards, lies: bool) -> World {
        let mut chance = Chance::new(seed);
        let loose = chance.percent(30);
        let setting = Setting {
            lag: chance.below(4),
            loose,
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
        let set =
            |name, stateful, volumes: &[Option<usize>], bears| Set { name, stateful, volumes: volumes.to_vec(), bears };
        let mut sets =
            vec![set("db", true, &[Some(0), Some(1)], Bears::Nothing), set("web", false, &[Some(2)], Bears::Nothing)];
        let bears = if chance.percent(50) { Bears::All } else { Bears::OutOfService };
        sets.extend(chance.percent(60).then(|| set("any", true, &[None, None], bears)));
        sets.extend(chance.percent(40).then(|| set("plain", false, &[None, None], Bears::Nothing)));
        sets.extend(chance.percent(40).then(|| set("clings", true, &[Some(3), None], Bears::Silence)));
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
            calm: false,
            looks: BTreeMap::new(),
            read: Read::default(),
            closed: BTreeMap::new(),
            nothing_there: BTreeSet::new(),
            broken: None,
            log: None,
            chance,
        };
        world.scripts = world.write_scripts();
        world
    }

    /// Plays a run: all is well, then everything goes wrong, then all is calm, and has to be well again.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        for _ in 0..6 {
            self.one_tick(false);
        }
        let ends = 30 + self.chance.below(60) as u32;
        while self.tick < ends && self.broken.is_none() {
            self.one_tick(true);
        }
        if self.broken.is_none() {
            self.end_well();
        }
        self.broken.take().map_or(Ok(()), Err)
    }

    pub(crate) fn one_tick(&mut self, recover: bool) {
        self.tick += 1;
        self.remember();
        self.faults();
        let who: Vec<u8> = self.chance.shuffled(vec![0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        for who in who {
            self.turn += 1;
            match who {
                0 => (0..NODES).for_each(|n| self.kubelet(n)),
                1 => self.node_controller(),
                2 => self.taint_eviction(),
                3 => self.pod_collector(),
                4 => self.attach_detach(),
                5 => self.workloads(),
                6 => self.scheduler(),
                7 => self.others(),
                _ if recover => self.recover(usize::from(who) - 8),
                _ => {}
            }
        }
        self.turn += 1;
        self.check();
    }

    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        let (tick, turn) = (self.tick, self.turn);
        if let Some(log) = &mut self.log {
            log.push(format!("{tick:4} {turn:5} {}", what()));
        }
    }

    pub(crate) fn breaks(&mut self, what: String) {
        self.say(|| format!("BROKEN: {what}"));
        self.broken.get_or_insert(format!("tick {}: {what}", self.tick));
    }

    pub(crate) fn version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    pub(crate) fn now(&self) -> Timestamp {
        at(i64::from(self.tick) * 10)
    }
}

/// So many seconds after the beginning.
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
            history: [Seen { ready: true, no_execute: 0 }; 4],
            foreign: BTreeSet::new(),
            fence: None,
        }
    }

    /// Its object is deleted, with all that was on it.
    pub(crate) fn delete(&mut self, tick: u32) {
        let new = Node::new(self.name.clone(), self.zone);
        *self = Node { registered: self.registered, gone: Some(tick), ready: Ready::Unknown, ..new };
        self.history = [Seen::default(); 4];
    }

    /// A kubelet that is started makes it anew.
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

    /// The node controller writes down when it adds a taint.
    pub(crate) fn add_at(&mut self, key: &str, effect: &str, tick: u32) {
        if !self.taints.iter().any(|t| t["key"] == key && t["effect"] == effect) {
            let time = at(i64::from(tick) * 10).to_string();
            self.taints.push(json!({ "key": key, "effect": effect, "timeAdded": time }));
        }
    }

    pub(crate) fn drop(&mut self, key: &str) {
        self.taints.retain(|t| t["key"] != key);
    }

    pub(crate) fn seen(&self) -> Seen {
        let bit = |(i, key): (usize, &&str)| {
            u8::from(self.taints.iter().any(|t| t["key"] == **key && t["effect"] == "NoExecute")) << i
        };
        let no_execute = NO_EXECUTE.iter().enumerate().map(bit).sum();
        Seen { ready: self.ready == Ready::True, no_execute }
    }
}
