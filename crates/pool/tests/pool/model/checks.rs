//! What must never happen, and what must happen in the end; told from the truth, not from reports.

use std::collections::{BTreeMap, BTreeSet};

use stead_pool::{Decision, Note, Record};

use super::cluster::{Cluster, MOST};
use super::glusterd::{Definition, FRIEND, Friend, REJECTED};
use super::help::Help;

/// What a run knows that no agent does.
#[derive(Debug, Clone, Default)]
pub(crate) struct Truth {
    /// How often things go wrong, in a hundred.
    pub(crate) trouble: u64,
    /// The right checksum of each volume's version.
    pub(crate) checksums: BTreeMap<(String, u64), u64>,
    /// The volumes that there are, with the pods that hold their bricks.
    pub(crate) volumes: BTreeMap<String, BTreeSet<u32>>,
    /// Who was ever recorded to hold bricks of which volume.
    pub(crate) recorded: BTreeSet<(u32, String)>,
    /// Whether the last order was for one that was at fault when it was given.
    pub(crate) rightly_ordered: bool,
    /// What a person did, when all was calm.
    pub(crate) helped: BTreeSet<Help>,
    /// What the one who decided last had to say.
    pub(crate) notes: Vec<Note>,
    /// What happened that must not.
    pub(crate) broken: Vec<String>,
}

impl Cluster {
    fn broken(&mut self, what: String) {
        self.say(format!("BROKEN {what}"));
        self.truth.broken.push(format!("tick {}: {what}", self.tick));
    }

    /// Nobody is told to do anything, and nobody's standing is changed, by one who reaches no more than half of the pool.
    pub(crate) fn check_majority(&mut self, by: u32, decision: &Decision) {
        let standings = |r: &Record| r.members.iter().map(|(o, m)| (*o, m.membership, m.uuid)).collect::<Vec<_>>();
        let changes = |r: &Record| {
            standings(r) != standings(&self.record) || r.order.as_ref().is_some_and(|o| o.id > self.record.orders)
        };
        if decision.act.is_none() && !decision.record.as_ref().is_some_and(changes) {
            return;
        }
        let joined: Vec<u32> = self.record.joined().map(|(o, _)| o).collect();
        let reached = |o: &&u32| (self.pods.contains_key(o) && self.glusterds.linked(by, **o)) || self.is_out(**o);
        let reached = joined.iter().filter(reached).count();
        if !joined.is_empty() && reached * 2 <= joined.len() {
            self.broken(format!("{by} decides and reaches {reached} of {}", joined.len()));
        }
    }

    /// Whether one was detached, by all of the pool, and only the record does not say so.
    fn is_out(&self, n: u32) -> bool {
        let uuid = self.glusterds.uuid(n);
        let known = self.record.joined().any(|(m, _)| self.glusterds.all[&m].disk.friends.contains_key(&uuid));
        !known && !self.pods.contains_key(&n) && !self.wanted.includes(n)
    }

    /// No peer that is wanted or holds bricks is detached.
    pub(crate) fn check_detach(&mut self, by: u32, n: u32, uuid: &str) {
        if self.wanted.includes(n) && self.glusterds.uuid(n) == uuid {
            self.broken(format!("{by} detaches {n}, which is wanted"));
        }
        // A volume that it made while it was alone nobody can know of; what was recorded once must not be forgotten.
        let known = |v: &String| {
            self.truth.recorded.contains(&(n, v.clone()))
                || (0..MOST).any(|m| m != n && self.glusterds.all[&m].disk.volumes.contains_key(v))
        };
        let held: Vec<&String> =
            self.truth.volumes.iter().filter(|(v, b)| b.contains(&n) && known(v)).map(|(v, _)| v).collect();
        if !held.is_empty() {
            self.broken(format!("{by} detaches {n}, which holds bricks of {held:?}"));
        }
    }

    /// No glusterd is stopped that is not at fault, and no two at once.
    pub(crate) fn check_repair(&mut self, n: u32) {
        if !self.is_at_fault(n) && !self.truth.rightly_ordered {
            self.broken(format!("the glusterd of {n} is stopped, and it is healthy"));
        }
        let another = self.pods.iter().find(|(m, p)| **m != n && p.agent.repairing.is_some()).map(|(m, _)| *m);
        if let Some(other) = another {
            self.broken(format!("{n} is repaired while {other} is"));
        }
    }

    /// Whether one has another definition than most, no friends, or is not a friend of half of the others that it should be of.
    pub(crate) fn is_at_fault(&self, n: u32) -> bool {
        let disk = &self.glusterds.all[&n].disk;
        let joined = self.record.joined().count();
        let right = |(name, d): (&String, &Definition)| {
            let differs = |o: u32| {
                let other = self.glusterds.all[&o].disk.volumes.get(name);
                other.is_some_and(|e| e.version == d.version && e.checksum != d.checksum)
            };
            self.record.joined().filter(|(o, _)| differs(*o)).count() * 2 <= joined
        };
        let others: Vec<u32> = self.record.joined().map(|(o, _)| o).filter(|o| *o != n).collect();
        let uuid = self.glusterds.uuid(n);
        let befriended = |m: &&u32| self.glusterds.all[*m].disk.friends.get(&uuid).is_some_and(|f| f.state == FRIEND);
        let friends = others.iter().filter(befriended).count();
        let own = disk.friends.values().filter(|f| f.state == FRIEND).count();
        disk.friends.is_empty()
            || own * 2 < others.len()
            || !disk.volumes.iter().all(right)
            || friends * 2 < others.len()
            || self.is_rejected(n, &others)
            || others.is_empty()
            || self.looks_astray(n)
    }

    /// Whether more than half of the others that a glusterd reaches reject it. What a suspended one has on its disk helps
    /// nobody.
    fn is_rejected(&self, n: u32, others: &[u32]) -> bool {
        let reached: Vec<u32> = others.iter().copied().filter(|m| self.glusterds.reach(n, *m)).collect();
        let rejects = |a: u32, b: u32| {
            let friend = self.glusterds.all[&a].disk.friends.get(&self.glusterds.uuid(b));
            friend.is_some_and(|f| f.state == REJECTED)
        };
        reached.iter().filter(|m| rejects(**m, n) || rejects(n, **m)).count() * 2 > reached.len()
    }

    /// Whether one looks for a member at an address that is not that one's: it does not find it until it is started again.
    fn looks_astray(&self, n: u32) -> bool {
        let at = |f: &Friend| f.hosts.first().filter(|_| !f.connected).is_some_and(|h| self.is_old_address(h));
        self.glusterds.all[&n].disk.friends.values().any(at)
    }

    /// Whether this was somebody's address, and is no more.
    fn is_old_address(&self, host: &str) -> bool {
        Cluster::of_address(host).is_some_and(|o| self.glusterds.all[&o].address != host)
    }

    /// What is taken away is had by somebody else.
    pub(crate) fn check_taken_away(&mut self, n: u32, friends: bool, volumes: &[String]) {
        let disk = self.glusterds.all[&n].disk.clone();
        let others: Vec<u32> = (0..MOST).filter(|m| *m != n).collect();
        for name in volumes {
            let known = others.iter().any(|m| self.glusterds.all[m].disk.volumes.contains_key(name));
            if !known && self.truth.volumes.contains_key(name) {
                self.broken(format!("volume {name} is taken from {n}, which alone has it"));
            }
        }
        for uuid in disk.friends.keys().filter(|_| friends) {
            let ours = disk.friends[uuid]
                .hosts
                .iter()
                .filter_map(|h| self.wanted.ordinal(h).or_else(|| Cluster::of_address(h)))
                .any(|o| self.record.joined_as(o).is_some());
            let known = |m: &u32| {
                ours || self.glusterds.uuid(*m) == *uuid || self.glusterds.all[m].disk.friends.contains_key(uuid)
            };
            if !others.iter().any(known) && !self.record.members.values().any(|m| m.uuid.to_string() == *uuid) {
                self.broken(format!("friend {uuid} is taken from {n}, which alone has it"));
            }
        }
    }

    /// What has to hold at all times.
    pub(crate) fn check(&mut self) {
        let repairs = self.pods.values().filter(|p| p.agent.repairing.is_some()).count();
        if repairs > 1 {
            self.broken(format!("{repairs} glusterds are stopped for repairs at once"));
        }
    }

    /// How everything stands, for who reads a run that failed.
    pub(crate) fn describe(&mut self) {
        for n in 0..MOST {
            let g = &self.glusterds.all[&n];
            let friends: Vec<String> = g
                .disk
                .friends
                .iter()
                .map(|(u, f)| {
                    format!(
                        "{}:{}{}",
                        u.trim_start_matches("00000000-0000-4000-8000-"),
                        f.state,
                        if f.connected { "" } else { "-" }
                    )
                })
                .collect();
            let volumes: Vec<String> = g
                .disk
                .volumes
                .iter()
                .map(|(v, d)| format!("{v}.{}.{}{:?}", d.version, d.checksum % 1000, d.bricks))
                .collect();
            let state = if g.running { "runs" } else { "stopped" };
            let text = format!(
                "{n} {state} {} friends {} volumes {}",
                self.glusterds.uuid(n),
                friends.join(" "),
                volumes.join(" ")
            );
            self.say(text);
        }
        let members: Vec<String> = self
            .record
            .members
            .iter()
            .map(|(o, m)| format!("{o} {:?} {} {} {:?}", m.membership, m.uuid, m.seen, m.bricks.len()))
            .collect();
        members.into_iter().for_each(|m| self.say(m));
        let notes: Vec<String> = self.truth.notes.iter().map(|n| format!("{}: {}", n.reason, n.text)).collect();
        self.say(format!("{:?}", self.record.order));
        self.say(format!("{} wanted; {:?} leads and says {notes:#?}", self.wanted.replicas, self.leader));
    }

    /// Whether every wanted peer has every other as its friend, connected, and is recorded so.
    pub(crate) fn is_whole(&self) -> bool {
        let wanted: Vec<u32> = (0..MOST).filter(|n| self.wanted.includes(*n)).collect();
        wanted.iter().all(|a| {
            let recorded = self.record.joined_as(*a).is_some_and(|m| m.uuid.to_string() == self.glusterds.uuid(*a));
            let sees = |b: &u32| {
                a == b
                    || self.glusterds.all[a]
                        .disk
                        .friends
                        .get(&self.glusterds.uuid(*b))
                        .is_some_and(|f| f.state == FRIEND && f.connected)
            };
            self.glusterds.running(*a) && recorded && wanted.iter().all(sees)
        }) && self.record.order.is_none()
    }
}
