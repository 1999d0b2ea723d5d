//! Safety and liveness checks, based on the simulated state, not on reports.

use std::collections::{BTreeMap, BTreeSet};

use stead_pool::{Decision, Note, Record};

use super::cluster::{Cluster, MAX_PODS};
use super::glusterd::{Definition, FRIEND, Friend, REJECTED};
use super::interventions::Intervention;

/// What the simulation knows and no agent does.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroundTruth {
    /// The probability of agent faults, in percent.
    pub(crate) fault_percent: u64,
    /// The correct checksum of each version of a volume.
    pub(crate) checksums: BTreeMap<(String, u64), u64>,
    /// The existing volumes, with the pods that hold their bricks.
    pub(crate) volumes: BTreeMap<String, BTreeSet<u32>>,
    /// The pods and volumes of all bricks that were ever recorded.
    pub(crate) recorded: BTreeSet<(u32, String)>,
    /// Whether the last order was for a pod that needed a repair when the order was given.
    pub(crate) order_was_justified: bool,
    /// The interventions of a person after the faults.
    pub(crate) helped: BTreeSet<Intervention>,
    /// The notes of the last leader.
    pub(crate) notes: Vec<Note>,
    /// The violated invariants.
    pub(crate) violations: Vec<String>,
}

impl Cluster {
    fn violation(&mut self, what: String) {
        self.trace(format!("VIOLATION {what}"));
        self.truth.violations.push(format!("tick {}: {what}", self.tick));
    }

    /// A leader that reaches no more than half of the pool must not run commands or change memberships.
    pub(crate) fn check_majority(&mut self, by: u32, decision: &Decision) {
        let memberships = |r: &Record| r.members.iter().map(|(o, m)| (*o, m.membership, m.uuid)).collect::<Vec<_>>();
        let changes = |r: &Record| {
            memberships(r) != memberships(&self.record) || r.order.as_ref().is_some_and(|o| o.id > self.record.orders)
        };
        if decision.act.is_none() && !decision.record.as_ref().is_some_and(changes) {
            return;
        }
        let joined: Vec<u32> = self.record.joined().map(|(o, _)| o).collect();
        let reached = |o: &&u32| (self.pods.contains_key(o) && self.glusterds.linked(by, **o)) || self.is_out(**o);
        let reached = joined.iter().filter(reached).count();
        if !joined.is_empty() && reached * 2 <= joined.len() {
            self.violation(format!("{by} decides and reaches {reached} of {}", joined.len()));
        }
    }

    /// Whether a pod was detached by all members, and only the record does not say so.
    fn is_out(&self, n: u32) -> bool {
        let uuid = self.glusterds.uuid(n);
        let known = self.record.joined().any(|(m, _)| self.glusterds.all[&m].disk.friends.contains_key(&uuid));
        !known && !self.pods.contains_key(&n) && !self.wanted.includes(n)
    }

    /// A wanted peer, or one that holds bricks, must not be detached.
    pub(crate) fn check_detach(&mut self, by: u32, n: u32, uuid: &str) {
        if self.wanted.includes(n) && self.glusterds.uuid(n) == uuid {
            self.violation(format!("{by} detaches {n}, which is wanted"));
        }
        // A volume that the pod created while it was alone is unknown to others; but what was recorded once must not be
        // forgotten.
        let known = |v: &String| {
            self.truth.recorded.contains(&(n, v.clone()))
                || (0..MAX_PODS).any(|m| m != n && self.glusterds.all[&m].disk.volumes.contains_key(v))
        };
        let held: Vec<&String> =
            self.truth.volumes.iter().filter(|(v, b)| b.contains(&n) && known(v)).map(|(v, _)| v).collect();
        if !held.is_empty() {
            self.violation(format!("{by} detaches {n}, which holds bricks of {held:?}"));
        }
    }

    /// A glusterd must not be stopped without need, nor two at the same time.
    pub(crate) fn check_repair(&mut self, n: u32) {
        if !self.needs_repair(n) && !self.truth.order_was_justified {
            self.violation(format!("the glusterd of {n} is stopped, and it is healthy"));
        }
        let another = self.pods.iter().find(|(m, p)| **m != n && p.agent.repairing.is_some()).map(|(m, _)| *m);
        if let Some(other) = another {
            self.violation(format!("{n} is repaired while {other} is"));
        }
    }

    /// Whether a pod has another definition than most, lists no peers, or is not befriended with half of the members.
    pub(crate) fn needs_repair(&self, n: u32) -> bool {
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
            || self.looks_at_old_address(n)
    }

    /// Whether more than half of the others that a glusterd reaches reject it. The state of suspended ones does not
    /// count.
    fn is_rejected(&self, n: u32, others: &[u32]) -> bool {
        let reached: Vec<u32> = others.iter().copied().filter(|m| self.glusterds.reach(n, *m)).collect();
        let rejects = |a: u32, b: u32| {
            let friend = self.glusterds.all[&a].disk.friends.get(&self.glusterds.uuid(b));
            friend.is_some_and(|f| f.state == REJECTED)
        };
        reached.iter().filter(|m| rejects(**m, n) || rejects(n, **m)).count() * 2 > reached.len()
    }

    /// Whether a pod looks for a member at an old address: it does not find it until it is restarted.
    fn looks_at_old_address(&self, n: u32) -> bool {
        let at = |f: &Friend| f.hosts.first().filter(|_| !f.connected).is_some_and(|h| self.is_old_address(h));
        self.glusterds.all[&n].disk.friends.values().any(at)
    }

    /// Whether this is a former address of a pod.
    fn is_old_address(&self, host: &str) -> bool {
        Cluster::pod_of_address(host).is_some_and(|o| self.glusterds.all[&o].address != host)
    }

    /// Only what others have may be removed.
    pub(crate) fn check_removal(&mut self, n: u32, friends: bool, volumes: &[String]) {
        let disk = self.glusterds.all[&n].disk.clone();
        let others: Vec<u32> = (0..MAX_PODS).filter(|m| *m != n).collect();
        for name in volumes {
            let known = others.iter().any(|m| self.glusterds.all[m].disk.volumes.contains_key(name));
            if !known && self.truth.volumes.contains_key(name) {
                self.violation(format!("volume {name} is removed from {n}, which has the only copy"));
            }
        }
        for uuid in disk.friends.keys().filter(|_| friends) {
            let ours = disk.friends[uuid]
                .hosts
                .iter()
                .filter_map(|h| self.wanted.ordinal(h).or_else(|| Cluster::pod_of_address(h)))
                .any(|o| self.record.joined_as(o).is_some());
            let known = |m: &u32| {
                ours || self.glusterds.uuid(*m) == *uuid || self.glusterds.all[m].disk.friends.contains_key(uuid)
            };
            if !others.iter().any(known) && !self.record.members.values().any(|m| m.uuid.to_string() == *uuid) {
                self.violation(format!("friend {uuid} is removed from {n}, which has the only copy"));
            }
        }
    }

    /// Checks the invariants that hold at all times.
    pub(crate) fn check(&mut self) {
        let repairs = self.pods.values().filter(|p| p.agent.repairing.is_some()).count();
        if repairs > 1 {
            self.violation(format!("{repairs} glusterds are stopped for repairs at once"));
        }
    }

    /// Logs the final state, for readers of a failed run.
    pub(crate) fn describe(&mut self) {
        for n in 0..MAX_PODS {
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
            self.trace(text);
        }
        let members: Vec<String> = self
            .record
            .members
            .iter()
            .map(|(o, m)| format!("{o} {:?} {} {} {:?}", m.membership, m.uuid, m.seen, m.bricks.len()))
            .collect();
        members.into_iter().for_each(|m| self.trace(m));
        let notes: Vec<String> = self.truth.notes.iter().map(|n| format!("{}: {}", n.reason, n.text)).collect();
        self.trace(format!("{:?}", self.record.order));
        self.trace(format!("{} wanted; {:?} leads with notes {notes:#?}", self.wanted.replicas, self.leader));
    }

    /// Whether every wanted peer has every other befriended and connected, and is recorded so.
    pub(crate) fn is_whole(&self) -> bool {
        let wanted: Vec<u32> = (0..MAX_PODS).filter(|n| self.wanted.includes(*n)).collect();
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
