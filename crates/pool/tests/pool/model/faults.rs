//! The faults of a run, determined by its seed.

use super::cluster::{Cluster, MAX_PODS, WrongKey};
use super::glusterd::{Definition, Disk};

/// How long faults occur, in ticks.
const FAULT_TICKS: u64 = 120;

/// How long the agents have to repair the pool before a person intervenes, in ticks.
const TICKS_ALONE: u64 = 300;

/// How long they have after each intervention, in ticks.
const TICKS_AFTER_HELP: u64 = 100;

/// The maximum number of interventions.
const MAX_INTERVENTIONS: u64 = 4;

/// How long the pool has to stay healthy, in ticks.
const STABLE_TICKS: u64 = 20;

/// The outcome of a run that violated no invariant but did not recover.
pub(crate) const NOT_RECOVERED: &str = "the pool did not recover";

impl Cluster {
    /// Plays a run: faults for a while, then none, and the pool has to recover.
    pub(crate) fn play(&mut self) -> Result<(), String> {
        self.truth.fault_percent = self.chance.below(20);
        let fault_rate = 2 + self.chance.below(25);
        for _ in 0..FAULT_TICKS {
            self.turn();
            while self.chance.percent(fault_rate) {
                self.fault();
            }
        }
        self.end_faults();
        let mut whole = self.recovers(TICKS_ALONE);
        for _ in 0..MAX_INTERVENTIONS {
            if whole {
                break;
            }
            self.intervene_where_asked();
            whole = self.recovers(TICKS_AFTER_HELP);
        }
        self.describe();
        if let Some(first) = self.truth.violations.first() {
            return Err(first.clone());
        }
        if whole { Ok(()) } else { Err(NOT_RECOVERED.to_owned()) }
    }

    /// Whether the pool recovers within this many ticks, and stays so.
    fn recovers(&mut self, within: u64) -> bool {
        let mut whole = 0;
        for _ in 0..within {
            self.turn();
            whole = if self.is_whole() { whole + 1 } else { 0 };
            if whole > STABLE_TICKS {
                return true;
            }
        }
        false
    }

    /// Ends all faults.
    fn end_faults(&mut self) {
        self.truth.fault_percent = 0;
        self.offline.clear();
        self.wrong_keys.clear();
        self.glusterds.far.clear();
        self.glusterds.all.values_mut().for_each(|g| g.frozen = false);
        self.trace("no more faults".to_owned());
    }

    fn some_pod(&mut self) -> Option<u32> {
        let pods: Vec<u32> = self.pods.keys().copied().collect();
        self.chance.one_of(&pods)
    }

    fn fault(&mut self) {
        match self.chance.below(16) {
            0 => self.scale(),
            1 => self.kill(false),
            2 => self.kill(true),
            3 => self.restart_agent(),
            4 => self.freeze(),
            5 => self.cut(),
            6 => self.move_lease(),
            7 => self.lose_state_without_agent(),
            8 | 9 => self.create_volume(),
            10 => self.change_volume(),
            11 | 12 => self.damage_definition(),
            13 => self.go_offline(),
            14 => self.delete_volume(),
            _ => self.change_key(),
        }
    }

    fn scale(&mut self) {
        let replicas = 1 + self.chance.below(MAX_PODS as u64) as u32;
        let strands =
            self.record.joined().any(|(o, m)| o >= replicas && self.wanted.includes(o) && !m.bricks.is_empty());
        if self.policy && strands {
            return self.trace(format!("not scaled to {replicas}: bricks would be left without their peers"));
        }
        self.wanted.replicas = replicas;
        self.trace(format!("scaled to {replicas}"));
    }

    /// Deletes a pod, which is recreated; its state is kept or lost.
    fn kill(&mut self, lose: bool) {
        let Some(n) = self.some_pod() else { return };
        self.delete_pod(n);
        // The last pod with state keeps it: otherwise no pool would be left.
        let another = (0..MAX_PODS).any(|m| m != n && !self.glusterds.all[&m].disk.friends.is_empty());
        let last_copy = self.glusterds.all[&n]
            .disk
            .volumes
            .keys()
            .any(|v| !(0..MAX_PODS).any(|m| m != n && self.glusterds.all[&m].disk.volumes.contains_key(v)));
        if lose && another && !last_copy {
            *self.glusterds.disk(n) = Disk::default();
            self.trace(format!("the state of {n} is lost"));
        }
    }

    fn restart_agent(&mut self) {
        let Some(n) = self.some_pod() else { return };
        if self.glusterds.all[&n].frozen {
            return;
        }
        self.glusterds.stop(n);
        self.pods.get_mut(&n).expect("it exists").agent = Default::default();
        self.trace(format!("agent {n} is restarted"));
    }

    fn freeze(&mut self) {
        let Some(n) = self.some_pod() else { return };
        let glusterd = self.glusterds.all.get_mut(&n).expect("all pods have a glusterd");
        glusterd.frozen = !glusterd.frozen;
        let frozen = glusterd.frozen;
        self.trace(format!("{n} {}", if frozen { "is suspended" } else { "is resumed" }));
    }

    fn cut(&mut self) {
        if self.glusterds.far.is_empty() {
            let bits = self.chance.next_number();
            self.glusterds.far = (0..MAX_PODS).filter(|n| bits >> n & 1 == 1).collect();
        } else {
            self.glusterds.far.clear();
        }
        self.trace(format!("cut off: {:?}", self.glusterds.far));
    }

    fn move_lease(&mut self) {
        self.leader = self.some_pod();
        self.trace(format!("{:?} leads now", self.leader));
    }

    /// Loses the state of a pod and starts its glusterd with a new identity, as without an agent.
    fn lose_state_without_agent(&mut self) {
        let Some(n) = self.some_pod() else { return };
        let kept = |c: &Cluster| (0..MAX_PODS).filter(|m| *m != n && c.glusterds.all[m].disk.friends.len() > 1).count();
        if self.glusterds.all[&n].frozen || kept(self) * 2 <= self.record.joined().count() || !self.glusterds.running(n)
        {
            return;
        }
        let volumes = self.glusterds.all[&n].disk.volumes.keys();
        if volumes
            .clone()
            .any(|v| !(0..MAX_PODS).any(|m| m != n && self.glusterds.all[&m].disk.volumes.contains_key(v)))
        {
            return;
        }
        self.glusterds.stop(n);
        *self.glusterds.disk(n) = Disk::default();
        self.glusterds.start(n);
        self.trace(format!("{n} has a new identity"));
    }

    fn create_volume(&mut self) {
        let Some(by) = self.some_pod().filter(|n| self.glusterds.running(*n) && !self.glusterds.all[n].frozen) else {
            return;
        };
        if !self.careless && self.record.joined_as(by).is_none_or(|m| m.uuid.to_string() != self.glusterds.uuid(by)) {
            return;
        }
        let mut able = self.glusterds.connected_friends(by);
        able.push(by);
        let count = 1 + self.chance.below(3.min(able.len() as u64)) as usize;
        let bricks: Vec<u32> = self.chance.shuffled(able).into_iter().take(count).collect();
        let name = format!("v{}", self.truth.checksums.len());
        let checksum = self.chance.next_number();
        self.truth.checksums.insert((name.clone(), 1), checksum);
        self.truth.volumes.insert(name.clone(), bricks.iter().copied().collect());
        self.trace(format!("{by} creates {name} on {bricks:?}"));
        self.glusterds.define(by, &name, Definition { version: 1, checksum, bricks });
    }

    /// Changes a volume on a pod that reaches most of the pool; disconnected pods get the change later.
    fn change_volume(&mut self) {
        let Some(by) = self.some_pod().filter(|n| self.glusterds.running(*n) && !self.glusterds.all[n].frozen) else {
            return;
        };
        let names: Vec<String> = self.glusterds.all[&by].disk.volumes.keys().cloned().collect();
        let Some(i) = self.chance.one_of(&(0..names.len()).collect::<Vec<_>>()) else { return };
        let mut definition = self.glusterds.all[&by].disk.volumes[&names[i]].clone();
        let most = (self.glusterds.connected_friends(by).len() + 1) * 2 > self.record.joined().count();
        let right = self.truth.checksums.get(&(names[i].clone(), definition.version)) == Some(&definition.checksum);
        if !most || !right || self.truth.checksums.contains_key(&(names[i].clone(), definition.version + 1)) {
            return;
        }
        definition.version += 1;
        definition.checksum = self.chance.next_number();
        self.truth.checksums.insert((names[i].clone(), definition.version), definition.checksum);
        self.trace(format!("{by} changes {}", names[i]));
        self.glusterds.define(by, &names[i], definition);
    }

    /// Deletes a volume on a pod that reaches all others.
    fn delete_volume(&mut self) {
        let Some(by) = self.some_pod().filter(|n| self.glusterds.running(*n)) else { return };
        let reaches_all = (0..MAX_PODS).all(|m| {
            m == by
                || self.glusterds.all[&m].disk.volumes.is_empty()
                || self.glusterds.connected_friends(by).contains(&m)
        });
        let Some(name) = self.glusterds.all[&by].disk.volumes.keys().next().cloned().filter(|_| reaches_all) else {
            return;
        };
        for m in 0..MAX_PODS {
            self.glusterds.disk(m).volumes.remove(&name);
        }
        self.truth.volumes.remove(&name);
        self.trace(format!("{by} deletes {name}"));
    }

    /// Damages a definition on a pod, one at a time, and restarts the pod.
    fn damage_definition(&mut self) {
        let Some(n) = self.some_pod() else { return };
        let wrong = (0..MAX_PODS).any(|m| self.has_wrong_definition(m));
        let shared = |c: &Cluster, v: &String| {
            (0..MAX_PODS)
                .filter(|m| c.glusterds.all[m].disk.volumes.get(v) == c.glusterds.all[&n].disk.volumes.get(v))
                .count()
        };
        let joined = self.record.joined().count();
        let Some(name) = self.glusterds.all[&n].disk.volumes.keys().find(|v| shared(self, v) * 2 > joined + 1).cloned()
        else {
            return;
        };
        if wrong || joined < 3 || self.glusterds.all[&n].frozen {
            return;
        }
        let version = self.glusterds.all[&n].disk.volumes[&name].version;
        if self.truth.checksums.contains_key(&(name.clone(), version + 1)) {
            return;
        }
        self.glusterds.disk(n).volumes.get_mut(&name).expect("it exists").checksum += 1;
        self.glusterds.stop(n);
        self.pods.get_mut(&n).expect("it exists").agent = Default::default();
        self.trace(format!("{name} is damaged at {n}"));
    }

    pub(crate) fn has_wrong_definition(&self, n: u32) -> bool {
        let mut volumes = self.glusterds.all[&n].disk.volumes.iter();
        volumes.any(|(v, d)| self.truth.checksums.get(&(v.clone(), d.version)).is_some_and(|c| *c != d.checksum))
    }

    fn go_offline(&mut self) {
        let Some(n) = self.some_pod() else { return };
        if !self.offline.remove(&n) {
            self.offline.insert(n);
        }
        self.trace(format!("without the API server: {:?}", self.offline));
    }

    /// An agent loses the pool's key, keeps an old one, or gets the current one.
    fn change_key(&mut self) {
        let Some(n) = self.some_pod() else { return };
        if self.wrong_keys.remove(&n).is_none() {
            let wrong = if self.chance.percent(50) { WrongKey::Missing } else { WrongKey::Old };
            self.wrong_keys.insert(n, wrong);
        }
        self.trace(format!("agents without the current key: {:?}", self.wrong_keys));
    }
}
