//! The faults of a run.

use super::machine::Power;
use super::world::{NODES, OUT_OF_SERVICE, Ready, World};

/// The states of one machine, in order, and for how many ticks each.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) node: usize,
    pub(crate) next: Vec<(State, u32)>,
    left: u32,
}

/// The state of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Up,
    NotReady,
    /// Suspended: nothing runs, nothing is lost.
    Suspended,
    Off,
    /// It runs without network.
    CutOff,
}

impl World {
    pub(crate) fn write_scripts(&mut self) -> Vec<Script> {
        let mut scripts = Vec::new();
        let first = self.chance.below(NODES as u64) as usize;
        let both = self.chance.percent(40);
        // With three of five, most nodes are lost.
        let three = both && self.chance.percent(30);
        let nodes = [Some(first), both.then_some((first + 2) % NODES), three.then_some((first + 1) % NODES)];
        for node in nodes.into_iter().flatten() {
            let mut next = Vec::new();
            if self.chance.percent(25) {
                // Off, back for a moment that may go unnoticed, and then running without network.
                let first = if self.chance.percent(50) { State::Suspended } else { State::Off };
                let second = if self.chance.percent(70) { State::Up } else { State::NotReady };
                let third = if self.chance.percent(60) { State::CutOff } else { State::Off };
                let mut ticks = |least: u64, more: u64| (least + self.chance.below(more)) as u32;
                next = vec![(first, ticks(7, 8)), (second, ticks(0, 4)), (third, ticks(10, 20))];
            }
            for _ in 0..2 + self.chance.below(4) {
                let states = [
                    State::Up,
                    State::NotReady,
                    State::Suspended,
                    State::Suspended,
                    State::Off,
                    State::Off,
                    State::CutOff,
                ];
                let state = self.chance.one_of(&states).unwrap();
                let ticks = match self.chance.below(4) {
                    0 => self.chance.below(4),
                    1 | 2 => 6 + self.chance.below(10),
                    _ => 30 + self.chance.below(15),
                };
                next.push((state, ticks as u32));
            }
            next.reverse();
            scripts.push(Script { node, next, left: 0 });
        }
        scripts
    }

    pub(crate) fn faults(&mut self) {
        if self.faults_over || self.tick < 6 {
            return;
        }
        for i in 0..self.scripts.len() {
            if self.scripts[i].left > 0 {
                self.scripts[i].left -= 1;
            } else if let Some((state, ticks)) = self.scripts[i].next.pop() {
                self.scripts[i].left = ticks;
                self.set_state(self.scripts[i].node, state);
            }
        }
        // Sometimes all nodes lose the network.
        if self.chance.percent(1) {
            self.trace(|| "no node reaches the API server".into());
            self.machines.iter_mut().for_each(|m| m.net = false);
        } else if self.chance.percent(8) {
            for n in 0..NODES {
                if !self.scripts.iter().any(|s| s.node == n) {
                    self.machines[n].net = true;
                }
            }
        }
    }

    pub(crate) fn set_state(&mut self, n: usize, state: State) {
        self.trace(|| format!("n{n} is {state:?}"));
        let behind = if self.chance.percent(30) { 300 } else { 0 };
        let machine = &mut self.machines[n];
        if machine.power == Power::Off && state != State::Off {
            // The clock may be behind after a start: it has no battery.
            machine.behind = behind;
        }
        machine.set_power(match state {
            State::Suspended if machine.power == Power::Off => Power::Off,
            State::Suspended => Power::Suspended,
            State::Off => Power::Off,
            State::Up | State::NotReady | State::CutOff => Power::On,
        });
        machine.net = state != State::CutOff;
        machine.not_ready = state == State::NotReady;
    }

    /// The cloud controller, and others who add and remove taints.
    pub(crate) fn other_actors(&mut self) {
        for n in 0..NODES {
            let off = self.machines[n].power == Power::Off;
            let node = &self.nodes[n];
            let shutdown = "node.cloudprovider.kubernetes.io/shutdown";
            let (ready, told) = (node.ready == Ready::True, node.has(shutdown));
            if node.gone.is_some() {
                continue;
            }
            if off && !ready && !told && self.chance.percent(50) {
                let tick = self.tick;
                self.taint(n, |node| {
                    node.add(shutdown, "", "NoSchedule");
                    node.shut_down = Some(tick);
                });
                self.nodes[n].taints_by.0 = "cloud-controller-manager";
            } else if told && ready && (self.faults_over || self.chance.percent(50)) {
                self.taint(n, |node| {
                    node.drop(shutdown);
                    node.shut_down = None;
                });
                self.nodes[n].taints_by.0 = "cloud-controller-manager";
            }
            self.change_foreign_taints(n);
            if off && !self.faults_over && self.chance.percent(1) {
                self.trace(|| format!("a user deletes the Node n{n}"));
                self.nodes[n].delete(self.tick);
            }
        }
        for i in 0..self.pods.len() {
            if self.pods[i].finalizer && (self.faults_over || self.chance.percent(5)) {
                self.pods[i].finalizer = false;
            }
        }
        self.pods.retain(|p| !p.failed || p.finalizer);
        // Not on a node that is out of service: the pod would be removed at once.
        let served = |p: &super::world::Pod| p.node.is_some_and(|n| !self.nodes[n].has(OUT_OF_SERVICE));
        let somewhere: Vec<usize> = (0..self.pods.len()).filter(|i| served(&self.pods[*i])).collect();
        if let Some(i) = self.chance.one_of(&somewhere).filter(|_| !self.faults_over && self.chance.clone().percent(2))
        {
            let (version, tick, turn) = (self.version(), self.tick, self.turn);
            self.pods[i].deleted.get_or_insert(tick);
            self.pods[i].deleted_by_user.get_or_insert(turn);
            self.pods[i].version = version;
            let uid = self.pods[i].uid.clone();
            self.trace(|| format!("a user deletes {uid}"));
        }
    }

    fn change_foreign_taints(&mut self, n: usize) {
        let (power, ready) = (self.machines[n].power, self.nodes[n].ready);
        let node = &self.nodes[n];
        let key = "example.com/maintenance";
        if node.foreign.contains(key) && (self.faults_over || self.chance.percent(10)) {
            self.taint(n, |node| {
                node.foreign.remove(key);
                node.drop(key);
            });
        } else if !self.faults_over && ready == Ready::Unknown && !node.has(key) && self.chance.percent(4) {
            self.taint(n, |node| {
                node.foreign.insert(key.into());
                node.add(key, "x", "NoSchedule");
            });
        }
        let node = &self.nodes[n];
        let (theirs, out) = (node.foreign.contains(OUT_OF_SERVICE), node.has(OUT_OF_SERVICE));
        if theirs && ready == Ready::True && (self.faults_over || self.chance.percent(30)) {
            self.taint(n, |node| {
                node.foreign.remove(OUT_OF_SERVICE);
                node.drop(OUT_OF_SERVICE);
            });
        } else if !self.faults_over && power == Power::Off && ready == Ready::Unknown && !out && self.chance.percent(2)
        {
            // The taint of others may look like ours; only the annotation tells.
            let value = if self.nodes[n].mark.is_none() && self.chance.percent(50) { "nodeshutdown" } else { "theirs" };
            self.taint(n, |node| {
                node.foreign.insert(OUT_OF_SERVICE.into());
                node.add(OUT_OF_SERVICE, value, "NoExecute");
                node.fence = Some(super::world::Fence::default());
            });
        } else if !self.faults_over && out && !theirs && self.chance.percent(1) {
            self.trace(|| format!("a user removes our taint from n{n}"));
            self.taint(n, |node| node.drop(OUT_OF_SERVICE));
        }
    }

    fn taint(&mut self, n: usize, change: impl FnOnce(&mut super::world::Node)) {
        let version = self.version();
        change(&mut self.nodes[n]);
        self.nodes[n].version = version;
        self.nodes[n].taints_by = ("kubectl-taint", self.tick);
        self.trace(|| format!("others change the taints of n{n}"));
    }
}
