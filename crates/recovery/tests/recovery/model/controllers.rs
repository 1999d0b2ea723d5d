//! Kubernetes' controllers, as far as they matter here. What they know of nodes comes from caches that may be behind.

use serde_json::{Value, json};

use super::world::{Bears, NO_EXECUTE, NODES, NOT_READY, OUT_OF_SERVICE, Pod, Ready, Seen, UNREACHABLE, World};

/// Fifty seconds.
const GRACE: u32 = 5;

/// Forty.
const QUARANTINE: u32 = 4;

impl World {
    /// Caches get what there is, the oldest is forgotten.
    pub(crate) fn remember(&mut self) {
        for node in &mut self.nodes {
            node.history.rotate_right(1);
            node.history[0] = node.seen();
        }
    }

    /// What a controller's cache has of a node.
    pub(crate) fn cached(&mut self, n: usize) -> Seen {
        match self.chance.below(self.setting.lag + 1) {
            0 => self.nodes[n].seen(),
            behind => self.nodes[n].history[behind as usize - 1],
        }
    }

    /// kube-controller-manager's node lifecycle.
    pub(crate) fn node_controller(&mut self) {
        for n in (0..NODES).filter(|n| self.nodes[*n].gone.is_none()).collect::<Vec<_>>() {
            let version = self.version();
            let (tick, node) = (self.tick, &mut self.nodes[n]);
            if node.lease != node.lease_seen.1 {
                node.lease_seen = (tick, node.lease);
            }
            let before = (node.ready, node.taints.clone());
            if tick - node.lease_seen.0 > GRACE && node.ready != Ready::Unknown {
                (node.ready, node.since) = (Ready::Unknown, tick);
            }
            let [says, not] = match node.ready {
                Ready::True => ["", ""],
                Ready::False => [NOT_READY, UNREACHABLE],
                Ready::Unknown => [UNREACHABLE, NOT_READY],
            };
            if says.is_empty() {
                [NOT_READY, UNREACHABLE].iter().for_each(|key| node.drop(key));
            } else if !node.has(says) {
                node.drop(not);
                ["NoSchedule", "NoExecute"].iter().for_each(|effect| node.add_at(says, effect, tick));
            }
            if node.taints != before.1 {
                node.taints_by = ("kube-controller-manager", tick);
            }
            if node.ready != before.0 || node.taints != before.1 {
                node.version = version;
            }
        }
    }

    pub(crate) fn taint_eviction(&mut self) {
        let seen: Vec<Seen> = (0..NODES).map(|n| self.cached(n)).collect();
        let tick = self.tick;
        let mut deleted = Vec::new();
        for pod in self.pods.iter_mut().filter(|p| p.deleted.is_none()) {
            let Some(n) = pod.node else { continue };
            let taints = (0..NO_EXECUTE.len()).filter(|i| seen[n].no_execute & (1 << i) != 0);
            let bears = taints.filter_map(|i| pod.bears[i]).min();
            pod.evict = bears.map(|ticks| pod.evict.unwrap_or(u32::MAX).min(tick + ticks));
            if pod.evict.is_some_and(|at| at <= tick) {
                pod.deleted = Some(tick);
                deleted.push((pod.uid.clone(), n));
            }
        }
        for (uid, n) in deleted {
            let version = self.version();
            self.pods.iter_mut().filter(|p| p.uid == uid).for_each(|p| p.version = version);
            self.say(|| format!("taint eviction deletes {uid} on n{n}"));
        }
    }

    /// Every twenty seconds, what is Terminating on nodes that are not ready and out of service, and what is on nodes that
    /// are not there any more.
    pub(crate) fn pod_collector(&mut self) {
        if !self.chance.percent(50) {
            return;
        }
        self.orphans();
        let seen: Vec<Seen> = (0..NODES).map(|n| self.cached(n)).collect();
        let to_go = |n: usize| !seen[n].ready && seen[n].no_execute & 1 != 0;
        let mut collected = Vec::new();
        for pod in self.pods.iter_mut().filter(|p| p.deleted.is_some()) {
            let Some(n) = pod.node.filter(|n| to_go(*n)) else { continue };
            // What a finalizer keeps is an object only: it has failed, and needs no volume.
            if !std::mem::replace(&mut pod.failed, true) {
                collected.push((pod.uid.clone(), n, pod.bound.max(pod.unwanted.unwrap_or_default())));
            }
        }
        self.pods.retain(|p| p.finalizer || !p.failed || !collected.iter().any(|(uid, _, _)| *uid == p.uid));
        for (uid, n, changed) in collected {
            self.say(|| format!("the pod collector ends {uid} on n{n}"));
            self.check_collected(&uid, n, changed);
        }
    }

    fn orphans(&mut self) {
        let (tick, nodes) = (self.tick, &self.nodes);
        let lost = |p: &Pod| p.node.is_some_and(|n| nodes[n].gone.is_some_and(|since| tick - since > QUARANTINE));
        self.pods.iter_mut().filter(|p| lost(p)).for_each(|p| {
            p.failed = true;
            p.deleted.get_or_insert(tick);
        });
        self.pods.retain(|p| !lost(p) || p.finalizer);
    }

    /// A StatefulSet's pod is made anew when its name is free, a ReplicaSet's when it does not count any more.
    pub(crate) fn workloads(&mut self) {
        for s in 0..self.sets.len() {
            for i in 0..self.sets[s].volumes.len() {
                let (set, volume) = (&self.sets[s], self.sets[s].volumes[i]);
                let name = format!("{}-{i}", set.name);
                let mine = |p: &&Pod| p.set == s && p.name.starts_with(&name);
                let there = self.pods.iter().filter(mine).any(|p| set.stateful || p.is_active());
                if !there {
                    self.make(s, name, volume);
                }
            }
        }
    }

    fn make(&mut self, s: usize, name: String, volume: Option<usize>) {
        self.uids += 1;
        let uid = format!("u{}", self.uids);
        let mut tolerations = Vec::new();
        let bears = self.sets[s].bears;
        if matches!(bears, Bears::All | Bears::OutOfService) {
            tolerations.push(json!({ "key": OUT_OF_SERVICE, "operator": "Exists", "effect": "NoExecute" }));
        }
        for key in [NOT_READY, UNREACHABLE] {
            tolerations.push(match bears {
                Bears::Nothing | Bears::OutOfService => {
                    json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 })
                }
                Bears::Silence | Bears::All => json!({ "key": key, "operator": "Exists" }),
            });
        }
        let name = if self.sets[s].stateful { name } else { format!("{name}-{uid}") };
        self.say(|| format!("{name} is made as {uid}"));
        let mut pod = Pod {
            uid,
            name,
            set: s,
            volume,
            version: self.versions,
            node: None,
            bound: 0,
            deleted: None,
            unwanted: None,
            failed: false,
            running: false,
            ready: false,
            finalizer: self.chance.percent(8) && !self.calm,
            tolerations: Vec::new(),
            bears: [None; 3],
            patched: 0,
            evict: None,
        };
        pod.tolerate(tolerations);
        self.pods.push(pod);
    }

    pub(crate) fn scheduler(&mut self) {
        for i in 0..self.pods.len() {
            if self.pods[i].node.is_some() || self.pods[i].deleted.is_some() {
                continue;
            }
            let fits: Vec<usize> = (0..NODES).filter(|n| self.fits(i, *n)).collect();
            if let Some(n) = self.chance.one_of(&fits) {
                (self.pods[i].node, self.pods[i].bound) = (Some(n), self.turn);
                let uid = self.pods[i].uid.clone();
                self.say(|| format!("{uid} goes to n{n}"));
            }
        }
    }

    fn fits(&mut self, i: usize, n: usize) -> bool {
        // Its cache may be behind too, and then it puts a pod on a node that has just gone silent.
        let cached = self.cached(n);
        let (pod, node) = (&self.pods[i], &self.nodes[n]);
        let for_ever: u8 = pod.bears.iter().enumerate().map(|(i, bears)| u8::from(bears.is_none()) << i).sum();
        let silent = (!cached.ready && pod.bears[1].is_some()) || cached.no_execute & !for_ever != 0;
        let unschedulable =
            node.taints.iter().any(|t| t["effect"] == "NoSchedule" && t["key"] != UNREACHABLE && t["key"] != NOT_READY);
        let slots = if self.calm { 10 } else { self.setting.slots };
        node.gone.is_none()
            && !silent
            && !unschedulable
            && self.pods.iter().filter(|p| p.node == Some(n)).count() < slots
    }
}

impl Pod {
    /// Has these tolerations from now on.
    pub(crate) fn tolerate(&mut self, tolerations: Vec<Value>) {
        let bears = |key: &str| {
            let first = tolerations.iter().find(|t| t["key"] == key || t["key"].is_null());
            first.map_or(Some(0), |t| t["tolerationSeconds"].as_u64().map(|s| (s / 10) as u32))
        };
        self.bears = NO_EXECUTE.map(bears);
        self.tolerations = tolerations;
    }
}
