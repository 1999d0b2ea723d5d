//! Kubernetes' part: a StatefulSet and its pods, the record, the lease.

use std::collections::{BTreeMap, BTreeSet};

use stead_chance::Chance;
use stead_pool::{PoolSpec, Record, Rules};

use super::agent::Agent;
use super::checks::Truth;
use super::glusterd::Glusterds;

/// How long a pod that is to end waits to be detached, in ticks.
const GRACE: u64 = 15;

/// Seconds in a tick.
pub(crate) const TICK: u64 = 2;

/// The most pods that a run has.
pub(crate) const MOST: u32 = 6;

/// A pod.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    /// Since when it is to end.
    pub(crate) ending: Option<u64>,
    pub(crate) agent: Agent,
}

/// Why an agent and the others reject each other's signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongKey {
    /// It could not read the Secret. It does not become the leader.
    Missing,
    /// It has not read the current key yet. It accepts the reports of those that have the same old key.
    Old,
}

/// A whole run's world.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    pub(crate) chance: Chance,
    pub(crate) rules: Rules,
    pub(crate) tick: u64,
    pub(crate) wanted: PoolSpec,
    pub(crate) glusterds: Glusterds,
    pub(crate) pods: BTreeMap<u32, Pod>,
    pub(crate) record: Record,
    /// The record's resourceVersion.
    pub(crate) revision: u64,
    pub(crate) leader: Option<u32>,
    /// When the lease may be taken by another.
    pub(crate) lease_until: u64,
    /// Who stepped down lately, and until when it does not ask again.
    pub(crate) resting: Option<(u32, u64)>,
    /// Those whose nodes do not reach the API server.
    pub(crate) offline: BTreeSet<u32>,
    /// Agents that do not have the current key of the pool.
    pub(crate) wrong_keys: BTreeMap<u32, WrongKey>,
    /// Whether the policy is installed that refuses to scale peers with bricks away.
    pub(crate) policy: bool,
    /// Whether people make volumes at peers that have not joined.
    pub(crate) careless: bool,
    pub(crate) truth: Truth,
    /// Everything that happened, to be compared.
    pub(crate) log: Vec<String>,
    uids: u64,
}

impl Cluster {
    pub(crate) fn new(seed: u64, rules: Rules) -> Cluster {
        let mut chance = Chance::new(seed);
        let replicas = 1 + chance.below(5) as u32;
        let wanted = PoolSpec::new("pool", "pool.default.svc", replicas, 0).expect("host names");
        let mut glusterds = Glusterds::default();
        glusterds.reverse = chance.percent(70);
        let (policy, careless) = (chance.percent(80), chance.percent(10));
        for n in 0..MOST {
            glusterds.add(n, &wanted.host(n), &format!("address-{n}-0"));
        }
        Cluster {
            chance,
            rules,
            tick: 0,
            wanted,
            glusterds,
            pods: BTreeMap::new(),
            record: Record::default(),
            revision: 0,
            leader: None,
            lease_until: 0,
            resting: None,
            offline: BTreeSet::new(),
            wrong_keys: BTreeMap::new(),
            policy,
            careless,
            truth: Truth::default(),
            log: Vec::new(),
            uids: 0,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.tick * TICK
    }

    pub(crate) fn say(&mut self, text: String) {
        self.log.push(format!("{:>4} {text}", self.tick));
    }

    /// One turn of everybody.
    pub(crate) fn turn(&mut self) {
        self.tick += 1;
        self.stateful_set();
        for n in self.shuffled_pods() {
            if !self.glusterds.all[&n].frozen {
                self.agent_turn(n);
            }
        }
        self.greetings();
        self.election();
        self.deposed_act();
        if let Some(leader) = self.leader
            && self.chance.percent(80)
        {
            self.lead(leader);
        }
        self.check();
    }

    fn shuffled_pods(&mut self) -> Vec<u32> {
        let pods = self.pods.keys().copied().collect();
        self.chance.shuffled(pods)
    }

    /// Some call each other, in any order; handshakes take a while.
    fn greetings(&mut self) {
        self.glusterds.hang_up();
        let pairs: Vec<(u32, u32)> = (0..MOST).flat_map(|a| (0..MOST).map(move |b| (a, b))).collect();
        for (a, b) in self.chance.shuffled(pairs) {
            if self.chance.percent(60) {
                self.glusterds.meet(a, b);
            }
        }
    }

    fn stateful_set(&mut self) {
        for n in 0..MOST {
            match self.pods.get(&n).map(|p| p.ending) {
                None if self.wanted.includes(n) => self.create(n),
                Some(None) if !self.wanted.includes(n) => {
                    self.pods.get_mut(&n).expect("just seen").ending = Some(self.tick);
                    self.say(format!("pod {n} is to end"));
                }
                Some(Some(since)) => {
                    let alone = self.glusterds.all[&n].disk.friends.is_empty();
                    let frozen = self.glusterds.all[&n].frozen;
                    if !frozen && (alone || self.tick - since > GRACE || self.wanted.includes(n)) {
                        self.end(n);
                    }
                }
                _ => {}
            }
        }
    }

    fn create(&mut self, n: u32) {
        self.uids += 1;
        let uid = format!("uid-{}", self.uids);
        let glusterd = self.glusterds.all.get_mut(&n).expect("all are there");
        glusterd.address = format!("address-{n}-{}", self.uids);
        self.pods.insert(n, Pod { uid, ending: None, agent: Agent::default() });
        self.say(format!("pod {n} is made"));
    }

    /// Whose an address is or was: none is given twice.
    pub(crate) fn of_address(address: &str) -> Option<u32> {
        address.strip_prefix("address-")?.split('-').next()?.parse().ok()
    }

    /// A pod ends: its processes too. Its claim stays.
    pub(crate) fn end(&mut self, n: u32) {
        self.glusterds.all.get_mut(&n).expect("all are there").frozen = false;
        self.glusterds.stop(n);
        self.pods.remove(&n);
        self.say(format!("pod {n} ends"));
    }

    fn election(&mut self) {
        // One whose glusterd does not answer does not stand.
        let lives = |c: &Cluster, n: u32| {
            let awake = !c.glusterds.all[&n].frozen && !c.offline.contains(&n);
            let has_key = c.wrong_keys.get(&n) != Some(&WrongKey::Missing);
            c.pods.contains_key(&n) && c.glusterds.running(n) && awake && has_key
        };
        if let Some(leader) = self.leader
            && lives(self, leader)
        {
            self.lease_until = self.tick + 5;
        } else if self.tick >= self.lease_until {
            let resting = self.resting.filter(|(_, until)| self.tick < *until).map(|(n, _)| n);
            let candidates: Vec<u32> =
                self.pods.keys().copied().filter(|n| lives(self, *n) && Some(*n) != resting).collect();
            self.leader = self.chance.one_of(&candidates);
            self.say(format!("{:?} leads", self.leader));
        }
    }

    pub(crate) fn step_down(&mut self, n: u32) {
        self.leader = None;
        self.lease_until = self.tick + 1;
        self.resting = Some((n, self.tick + 3));
    }
}
