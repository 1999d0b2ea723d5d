//! The relevant controllers of Kubernetes. Their caches of nodes may be outdated.

use serde_json::{Value, json};

use super::world::{
    CachedNode, NO_EXECUTE, NODES, NOT_READY, OUT_OF_SERVICE, Pod, Ready, Tolerates, UNREACHABLE, World,
};

/// The node monitor grace period: 50 s.
const LEASE_GRACE_TICKS: u32 = 5;

/// The quarantine of pods on deleted nodes: 40 s.
const QUARANTINE_TICKS: u32 = 4;

impl World {
    /// Adds the current state to the caches and drops the oldest.
    pub(crate) fn update_caches(&mut self) {
        for node in &mut self.nodes {
            node.history.rotate_right(1);
            node.history[0] = node.cache_entry();
        }
    }

    /// Returns a node as a controller's cache has it.
    pub(crate) fn cached(&mut self, n: usize) -> CachedNode {
        match self.chance.below(self.setting.lag + 1) {
            0 => self.nodes[n].cache_entry(),
            behind => self.nodes[n].history[behind as usize - 1],
        }
    }

    /// The node lifecycle controller of kube-controller-manager.
    pub(crate) fn node_controller(&mut self) {
        for n in (0..NODES).filter(|n| self.nodes[*n].gone.is_none()).collect::<Vec<_>>() {
            let version = self.version();
            let (tick, node) = (self.tick, &mut self.nodes[n]);
            if node.lease != node.lease_seen.1 {
                node.lease_seen = (tick, node.lease);
            }
            let before = (node.ready, node.taints.clone());
            if tick - node.lease_seen.0 > LEASE_GRACE_TICKS && node.ready != Ready::Unknown {
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
        let cached: Vec<CachedNode> = (0..NODES).map(|n| self.cached(n)).collect();
        let tick = self.tick;
        let mut deleted = Vec::new();
        for pod in self.pods.iter_mut().filter(|p| p.deleted.is_none()) {
            let Some(n) = pod.node else { continue };
            let taints = (0..NO_EXECUTE.len()).filter(|i| cached[n].no_execute & (1 << i) != 0);
            let tolerates = taints.filter_map(|i| pod.tolerates[i]).min();
            pod.evict = tolerates.map(|ticks| pod.evict.unwrap_or(u32::MAX).min(tick + ticks));
            if pod.evict.is_some_and(|at| at <= tick) {
                pod.deleted = Some(tick);
                deleted.push((pod.uid.clone(), n));
            }
        }
        for (uid, n) in deleted {
            let version = self.version();
            self.pods.iter_mut().filter(|p| p.uid == uid).for_each(|p| p.version = version);
            self.trace(|| format!("taint eviction deletes {uid} on n{n}"));
        }
    }

    /// Every 20 s: deletes Terminating pods on nodes that are not ready and out of service, and pods on deleted nodes.
    pub(crate) fn pod_garbage_collector(&mut self) {
        if !self.chance.percent(50) {
            return;
        }
        self.collect_orphans();
        let cached: Vec<CachedNode> = (0..NODES).map(|n| self.cached(n)).collect();
        let to_go = |n: usize| !cached[n].ready && cached[n].no_execute & 1 != 0;
        let recovering = self.nodes_in_recovery();
        let mut collected = Vec::new();
        for pod in self.pods.iter_mut().filter(|p| p.deleted.is_some()) {
            let Some(n) = pod.node.filter(|n| to_go(*n)) else { continue };
            // A pod kept by a finalizer is only an object: it has failed, and needs no volume.
            if !std::mem::replace(&mut pod.failed, true) {
                let foreign = self.nodes[n].fence.as_ref().is_some_and(|fence| !fence.ours);
                if foreign && !pod.deleted_by_recoverer && !recovering.contains(&self.nodes[n].name) {
                    self.removed_by_others.insert(pod.uid.clone());
                }
                collected.push((pod.uid.clone(), n, pod.bound.max(pod.deleted_by_user.unwrap_or_default())));
            }
        }
        self.pods.retain(|p| p.finalizer || !p.failed || !collected.iter().any(|(uid, _, _)| *uid == p.uid));
        for (uid, n, changed) in collected {
            self.trace(|| format!("the pod garbage collector removes {uid} on n{n}"));
            self.check_pod_collection(&uid, n, changed);
        }
    }

    fn collect_orphans(&mut self) {
        let (tick, nodes) = (self.tick, &self.nodes);
        let lost = |p: &Pod| p.node.is_some_and(|n| nodes[n].gone.is_some_and(|since| tick - since > QUARANTINE_TICKS));
        self.pods.iter_mut().filter(|p| lost(p)).for_each(|p| {
            p.failed = true;
            p.deleted.get_or_insert(tick);
        });
        self.pods.retain(|p| !lost(p) || p.finalizer);
    }

    /// Recreates pods: of a StatefulSet when the name is free, of a ReplicaSet when the old pod no longer counts.
    pub(crate) fn workloads(&mut self) {
        for s in 0..self.sets.len() {
            for i in 0..self.sets[s].volumes.len() {
                let (set, volume) = (&self.sets[s], self.sets[s].volumes[i]);
                let name = format!("{}-{i}", set.name);
                let mine = |p: &&Pod| p.set == s && p.name.starts_with(&name);
                let there = self.pods.iter().filter(mine).any(|p| set.stateful || p.is_active());
                if !there {
                    self.create_pod(s, name, volume);
                }
            }
        }
    }

    fn create_pod(&mut self, s: usize, name: String, volume: Option<usize>) {
        self.uids += 1;
        let uid = format!("u{}", self.uids);
        let mut tolerations = Vec::new();
        let tolerates = self.sets[s].tolerates;
        if matches!(tolerates, Tolerates::All | Tolerates::OutOfService) {
            tolerations.push(json!({ "key": OUT_OF_SERVICE, "operator": "Exists", "effect": "NoExecute" }));
        }
        for key in [NOT_READY, UNREACHABLE] {
            tolerations.push(match tolerates {
                Tolerates::Nothing | Tolerates::OutOfService => {
                    json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 })
                }
                Tolerates::NotReady | Tolerates::All => json!({ "key": key, "operator": "Exists" }),
            });
        }
        let name = if self.sets[s].stateful { name } else { format!("{name}-{uid}") };
        self.trace(|| format!("{name} is created as {uid}"));
        let mut pod = Pod {
            uid,
            name,
            set: s,
            volume,
            version: self.versions,
            node: None,
            bound: 0,
            deleted: None,
            deleted_by_user: None,
            deleted_by_recoverer: false,
            failed: false,
            running: false,
            ready: false,
            finalizer: self.chance.percent(8) && !self.faults_over,
            tolerations: Vec::new(),
            tolerates: [None; 3],
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
                self.trace(|| format!("{uid} is scheduled to n{n}"));
            }
        }
    }

    fn fits(&mut self, i: usize, n: usize) -> bool {
        // The scheduler's cache may be outdated too: then it places a pod on a node that has just become unreachable.
        let cached = self.cached(n);
        let (pod, node) = (&self.pods[i], &self.nodes[n]);
        let for_ever: u8 =
            pod.tolerates.iter().enumerate().map(|(i, tolerates)| u8::from(tolerates.is_none()) << i).sum();
        let untolerated = (!cached.ready && pod.tolerates[1].is_some()) || cached.no_execute & !for_ever != 0;
        let unschedulable =
            node.taints.iter().any(|t| t["effect"] == "NoSchedule" && t["key"] != UNREACHABLE && t["key"] != NOT_READY);
        let slots = if self.faults_over { 10 } else { self.setting.slots };
        node.gone.is_none()
            && !untolerated
            && !unschedulable
            && self.pods.iter().filter(|p| p.node == Some(n)).count() < slots
    }
}

impl Pod {
    /// Sets the tolerations.
    pub(crate) fn tolerate(&mut self, tolerations: Vec<Value>) {
        let tolerates = |key: &str| {
            let first = tolerations.iter().find(|t| t["key"] == key || t["key"].is_null());
            first.map_or(Some(0), |t| t["tolerationSeconds"].as_u64().map(|s| (s / 10) as u32))
        };
        self.tolerates = NO_EXECUTE.map(tolerates);
        self.tolerations = tolerations;
    }
}
