//! The part of Kubernetes: a StatefulSet and its pods, the record, the Lease.

use std::collections::{BTreeMap, BTreeSet};

use stead_chance::Chance;
use stead_pool::{PoolSpec, Record, Rules};

use super::agent::Agent;
use super::checks::GroundTruth;
use super::glusterd::Glusterds;

/// How long a Terminating pod waits to be detached, in ticks.
const GRACE_TICKS: u64 = 15;

/// The duration of a tick in seconds.
pub(crate) const TICK: u64 = 2;

/// The maximum number of pods in a run.
pub(crate) const MAX_PODS: u32 = 6;

/// A pod.
#[derive(Debug, Clone)]
pub(crate) struct Pod {
    pub(crate) uid: String,
    /// Since when it is Terminating.
    pub(crate) terminating: Option<u64>,
    pub(crate) agent: Agent,
}

/// Why an agent and the others reject each other's signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WrongKey {
    /// The agent could not read the Secret. It does not become the leader.
    Missing,
    /// The agent has not read the current key yet. It accepts reports signed with the same old key.
    Old,
}

/// The state of a run.
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
    /// When another agent may take the Lease.
    pub(crate) lease_until: u64,
    /// The pod that stepped down last, and until when it is not a candidate.
    pub(crate) stepped_down: Option<(u32, u64)>,
    /// Pods whose nodes do not reach the API server.
    pub(crate) offline: BTreeSet<u32>,
    /// Agents that do not have the current key of the pool.
    pub(crate) wrong_keys: BTreeMap<u32, WrongKey>,
    /// Whether the policy is installed that denies scaling away peers with bricks.
    pub(crate) policy: bool,
    /// Whether users create volumes on peers that have not joined.
    pub(crate) careless: bool,
    pub(crate) truth: GroundTruth,
    /// The log of the run, to compare two runs.
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
        for n in 0..MAX_PODS {
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
            stepped_down: None,
            offline: BTreeSet::new(),
            wrong_keys: BTreeMap::new(),
            policy,
            careless,
            truth: GroundTruth::default(),
            log: Vec::new(),
            uids: 0,
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.tick * TICK
    }

    pub(crate) fn trace(&mut self, text: String) {
        self.log.push(format!("{:>4} {text}", self.tick));
    }

    /// One tick: everything has its turn.
    pub(crate) fn turn(&mut self) {
        self.tick += 1;
        self.stateful_set();
        for n in self.shuffled_pods() {
            if !self.glusterds.all[&n].frozen {
                self.agent_turn(n);
            }
        }
        self.handshakes();
        self.election();
        self.act_of_former_leader();
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

    /// Some glusterds connect, in random order; handshakes take a while.
    fn handshakes(&mut self) {
        self.glusterds.close_broken_connections();
        let pairs: Vec<(u32, u32)> = (0..MAX_PODS).flat_map(|a| (0..MAX_PODS).map(move |b| (a, b))).collect();
        for (a, b) in self.chance.shuffled(pairs) {
            if self.chance.percent(60) {
                self.glusterds.connect(a, b);
            }
        }
    }

    fn stateful_set(&mut self) {
        for n in 0..MAX_PODS {
            match self.pods.get(&n).map(|p| p.terminating) {
                None if self.wanted.includes(n) => self.create(n),
                Some(None) if !self.wanted.includes(n) => {
                    self.pods.get_mut(&n).expect("the pod exists").terminating = Some(self.tick);
                    self.trace(format!("pod {n} is Terminating"));
                }
                Some(Some(since)) => {
                    let alone = self.glusterds.all[&n].disk.friends.is_empty();
                    let frozen = self.glusterds.all[&n].frozen;
                    if !frozen && (alone || self.tick - since > GRACE_TICKS || self.wanted.includes(n)) {
                        self.delete_pod(n);
                    }
                }
                _ => {}
            }
        }
    }

    fn create(&mut self, n: u32) {
        self.uids += 1;
        let uid = format!("uid-{}", self.uids);
        let glusterd = self.glusterds.all.get_mut(&n).expect("all pods have a glusterd");
        glusterd.address = format!("address-{n}-{}", self.uids);
        self.pods.insert(n, Pod { uid, terminating: None, agent: Agent::default() });
        self.trace(format!("pod {n} is created"));
    }

    /// The pod that has or had an address: addresses are not reused.
    pub(crate) fn pod_of_address(address: &str) -> Option<u32> {
        address.strip_prefix("address-")?.split('-').next()?.parse().ok()
    }

    /// Deletes a pod with its processes. Its claim stays.
    pub(crate) fn delete_pod(&mut self, n: u32) {
        self.glusterds.all.get_mut(&n).expect("all pods have a glusterd").frozen = false;
        self.glusterds.stop(n);
        self.pods.remove(&n);
        self.trace(format!("pod {n} is deleted"));
    }

    fn election(&mut self) {
        // A pod whose glusterd does not answer is not a candidate.
        let is_candidate = |c: &Cluster, n: u32| {
            let awake = !c.glusterds.all[&n].frozen && !c.offline.contains(&n);
            let has_key = c.wrong_keys.get(&n) != Some(&WrongKey::Missing);
            c.pods.contains_key(&n) && c.glusterds.running(n) && awake && has_key
        };
        if let Some(leader) = self.leader
            && is_candidate(self, leader)
        {
            self.lease_until = self.tick + 5;
        } else if self.tick >= self.lease_until {
            let stepped_down = self.stepped_down.filter(|(_, until)| self.tick < *until).map(|(n, _)| n);
            let candidates: Vec<u32> =
                self.pods.keys().copied().filter(|n| is_candidate(self, *n) && Some(*n) != stepped_down).collect();
            self.leader = self.chance.one_of(&candidates);
            self.trace(format!("{:?} leads", self.leader));
        }
    }

    pub(crate) fn step_down(&mut self, n: u32) {
        self.leader = None;
        self.lease_until = self.tick + 1;
        self.stepped_down = Some((n, self.tick + 3));
    }
}
