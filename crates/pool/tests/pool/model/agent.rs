//! The agent of a pod, and what it does as the leader.

use std::collections::BTreeMap;

use stead_pool::{
    Boot, Brick, Daemon, DecisionInput, GlusterVolume, Identity, Peer, PeerCommand, PeerFile, PeerState, Repair,
    RepairOrder, Report, Rule, StateDir, boot, decide_under, identity, loses_nothing, still_needed,
};

use crate::names::name;

use super::cluster::{Cluster, MAX_PODS, WrongKey};
use super::glusterd::{Disk, Friend};

/// The agent of a pod; its state is lost when it is restarted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Agent {
    /// Whether it has started its glusterd.
    started: bool,
    /// The order that it carries out, while glusterd is stopped.
    pub(crate) repairing: Option<RepairOrder>,
    /// Its last report, which others get.
    report: Option<Report>,
    /// What it waits for before it starts its glusterd.
    waits_for: Option<String>,
    /// The command that it decided on as the leader and has not run yet.
    pending_command: Option<PeerCommand>,
}

impl Cluster {
    pub(crate) fn agent_turn(&mut self, n: u32) {
        let agent = &self.pods[&n].agent;
        if !agent.started {
            self.boot(n);
        } else if let Some(order) = agent.repairing.clone() {
            if self.chance.percent(50) {
                self.carry_out(n, &order);
            }
        } else if !self.offline.contains(&n) {
            self.start_order(n);
        }
        if self.chance.percent(70) {
            self.observe(n);
        }
    }

    fn observe(&mut self, n: u32) {
        let report = self.report(n);
        self.pods.get_mut(&n).expect("the pod exists").agent.report = Some(report);
    }

    fn boot(&mut self, n: u32) {
        let state = state_dir(&self.glusterds.all[&n].disk, n);
        let complete = state.uuid.is_some() && !state.peers.is_empty();
        if self.offline.contains(&n) {
            // Without the record, only a pod with complete state may start.
            if complete {
                self.start(n);
            }
            return;
        }
        match boot(&self.wanted, n, &state, &self.record, &self.reports_for(n)) {
            Boot::Start => self.start(n),
            Boot::Restore(identity) => {
                self.trace(format!("identity of pod {n} is restored"));
                self.write_identity(n, identity);
                self.start(n);
            }
            Boot::Forget => {
                self.trace(format!("pod {n} forgets its pool"));
                self.check_removal(n, true, &self.volumes(n));
                let disk = self.glusterds.disk(n);
                disk.friends.clear();
                disk.volumes.clear();
                self.start(n);
            }
            Boot::Wait(why) => self.pods.get_mut(&n).expect("the pod exists").agent.waits_for = Some(why),
        }
    }

    pub(crate) fn start(&mut self, n: u32) {
        self.glusterds.start(n);
        self.pods.get_mut(&n).expect("the pod exists").agent.started = true;
        self.trace(format!("glusterd {n} starts"));
    }

    fn write_identity(&mut self, n: u32, identity: Identity) {
        let friend = |p: &PeerFile| Friend { state: p.state, hosts: to_strings(&p.hosts), connected: false };
        let disk = self.glusterds.disk(n);
        disk.uuid = Some(identity.uuid.to_string());
        disk.friends = identity.peers.iter().map(|p| (p.uuid.to_string(), friend(p))).collect();
    }

    /// Starts a repair order for this pod.
    fn start_order(&mut self, n: u32) {
        let pod = &self.pods[&n];
        let Some(order) = self.record.order.clone() else { return };
        if order.ordinal != n || order.pod != pod.uid || self.glusterds.all[&n].disk.done == Some(order.id) {
            return;
        }
        let own = self.report(n);
        if order.withdrawn {
            self.glusterds.disk(n).done = Some(order.id);
            return;
        }
        let healthy = self.rules.hold(Rule::Healthy) && !still_needed(&order, &self.record, &own);
        if healthy || self.rules.hold(Rule::OnlyCopy) && !loses_nothing(&order, &own, &self.reports_for(n)) {
            self.glusterds.disk(n).done = Some(order.id);
            return;
        }
        self.trace(format!("pod {n} begins {:?}", order.repair));
        self.check_repair(n);
        self.glusterds.stop(n);
        self.pods.get_mut(&n).expect("the pod exists").agent.repairing = Some(order);
    }

    fn carry_out(&mut self, n: u32, order: &RepairOrder) {
        match order.repair {
            Repair::RestoreIdentity | Repair::CorrectNames => {
                let Some(identity) = identity(&self.wanted, n, &self.record, &self.reports_for(n)) else { return };
                self.check_removal(n, true, &[]);
                self.write_identity(n, identity);
            }
            Repair::ResyncVolumes => {
                let volumes = to_strings(&order.volumes);
                self.check_removal(n, false, &volumes);
                self.glusterds.disk(n).volumes.retain(|v, _| !volumes.contains(v));
            }
            Repair::Forget => {
                self.check_removal(n, true, &self.volumes(n));
                let disk = self.glusterds.disk(n);
                disk.friends.clear();
                disk.volumes.clear();
            }
        }
        let agent = &mut self.pods.get_mut(&n).expect("the pod exists").agent;
        agent.repairing = None;
        self.glusterds.disk(n).done = Some(order.id);
        self.trace(format!("pod {n} has carried out {:?}", order.repair));
        self.start(n);
    }

    /// The reports that a pod can get, some of them slightly old.
    fn reports_for(&self, n: u32) -> BTreeMap<u32, Report> {
        let accepted = |m: u32| self.glusterds.linked(n, m) && self.accept_each_other(n, m);
        let others = self.pods.iter().filter(|(m, _)| **m != n && accepted(**m));
        others.filter_map(|(m, p)| Some((*m, p.agent.report.clone()?))).collect()
    }

    /// Whether two agents accept each other's signatures. An agent checks the signatures of requests and of answers, so
    /// either both agents accept the other or neither does.
    fn accept_each_other(&self, a: u32, b: u32) -> bool {
        let (a, b) = (self.wrong_keys.get(&a), self.wrong_keys.get(&b));
        a == b && a != Some(&WrongKey::Missing)
    }

    fn report(&self, n: u32) -> Report {
        let (pod, glusterd) = (&self.pods[&n], &self.glusterds.all[&n]);
        let daemon = if glusterd.running { Daemon::Running } else { Daemon::Stopped };
        let peers = glusterd.disk.friends.iter().map(|(uuid, f)| Peer {
            uuid: Some(name(uuid)),
            hosts: f.hosts.iter().map(name).collect(),
            state: PeerState::of(f.state),
            connected: f.connected,
        });
        let volumes = glusterd.disk.volumes.iter().map(|(volume, d)| GlusterVolume {
            name: name(volume),
            version: Some(d.version),
            checksum: Some(d.checksum.to_string()),
            started: true,
            bricks: d
                .bricks
                .iter()
                .map(|b| Brick { host: self.wanted.host(*b), uuid: None, path: name("/brick") })
                .collect(),
        });
        Report {
            ordinal: n,
            pod: pod.uid.clone(),
            address: name(&glusterd.address),
            daemon,
            uuid: glusterd.disk.uuid.as_ref().map(name),
            operating_version: Some(100_000),
            peers: if glusterd.running { peers.collect() } else { Vec::new() },
            volumes: if glusterd.running { volumes.collect() } else { Vec::new() },
            heals: Some(0),
            stuck_bricks: Vec::new(),
            done: glusterd.disk.done,
            doing: pod.agent.waits_for.clone().filter(|_| !glusterd.running),
        }
    }

    /// One turn of the leader. It may be killed between deciding, writing and acting.
    pub(crate) fn lead(&mut self, n: u32) {
        if !self.pods.get(&n).is_some_and(|p| p.agent.started && p.agent.repairing.is_none()) {
            return;
        }
        if let Some(act) = self.pods.get_mut(&n).and_then(|p| p.agent.pending_command.take()) {
            return self.act(n, act);
        }
        // The leader's report is fresh, and later queries get no older one.
        self.observe(n);
        let mut reports = self.reports_for(n);
        reports.insert(n, self.report(n));
        let pods = self.pods.iter().map(|(m, p)| (*m, p.uid.clone())).collect();
        let view = DecisionInput {
            wanted: &self.wanted,
            record: &self.record,
            reports: &reports,
            pods: &pods,
            decider: n,
            now: self.now(),
        };
        let decision = decide_under(&view, self.rules);
        self.truth.notes = decision.notes.clone();
        self.check_majority(n, &decision);
        if let Some(PeerCommand::Detach { ordinal, uuid, .. }) = &decision.act {
            self.check_detach(n, *ordinal, &uuid.to_string());
        }
        if decision.step_down {
            self.trace(format!("{n} steps down: {:?}", decision.notes));
            return self.step_down(n);
        }
        if let Some(record) = decision.record {
            if self.chance.percent(self.truth.fault_percent / 2) {
                return self.trace("the record is not written".to_owned());
            }
            if let Some(order) = record.order.as_ref().filter(|o| Some(*o) != self.record.order.as_ref()) {
                self.truth.order_was_justified = self.needs_repair(order.ordinal);
            }
            if record.order != self.record.order {
                self.trace(format!("order {:?}", record.order));
            }
            let bricks = record.joined().flat_map(|(o, m)| m.bricks.iter().map(move |b| (o, b.volume.to_string())));
            self.truth.recorded.extend(bricks);
            self.record = record;
            self.revision += 1;
        }
        match decision.act {
            Some(_) if self.chance.percent(self.truth.fault_percent / 2) => {
                self.trace("the leader loses its command".to_owned())
            }
            Some(act) if self.chance.percent(self.truth.fault_percent) => {
                self.pods.get_mut(&n).expect("it leads").agent.pending_command = Some(act);
            }
            Some(act) => self.act(n, act),
            None => {}
        }
    }

    /// A former leader may still run a command that it decided on before another agent took over.
    pub(crate) fn act_of_former_leader(&mut self) {
        let able = |c: &Cluster, n: u32| Some(n) != c.leader && !c.glusterds.all[&n].frozen && c.glusterds.running(n);
        for n in (0..MAX_PODS).filter(|n| able(self, *n)).collect::<Vec<_>>() {
            if let Some(act) = self.pods.get_mut(&n).and_then(|p| p.agent.pending_command.take()) {
                self.trace(format!("{n} acts although it no longer leads"));
                self.act(n, act);
            }
        }
    }

    fn act(&mut self, n: u32, act: PeerCommand) {
        match act {
            PeerCommand::Probe { ordinal, uuid, .. } | PeerCommand::Detach { ordinal, uuid, .. }
                if self.glusterds.linked(n, ordinal)
                    && self.glusterds.running(ordinal)
                    && self.glusterds.uuid(ordinal) != uuid.to_string() =>
            {
                self.trace(format!("{n} leaves {ordinal} alone: it has another identity now"));
            }
            PeerCommand::Probe { ordinal, .. } => {
                let answer = self.glusterds.probe(n, ordinal);
                self.trace(format!("{n} probes {ordinal}: {answer:?}"));
            }
            PeerCommand::Detach { ordinal, host, .. } => {
                let answer = self.glusterds.detach(n, ordinal, &host);
                self.trace(format!("{n} detaches {ordinal}: {answer:?}"));
            }
        }
    }
}

fn to_strings<T: ToString>(names: &[T]) -> Vec<String> {
    names.iter().map(T::to_string).collect()
}

fn state_dir(disk: &Disk, n: u32) -> StateDir {
    StateDir {
        uuid: disk.uuid.as_ref().map(name),
        operating_version: disk.uuid.as_ref().map(|_| 100_000),
        peers: disk
            .friends
            .iter()
            .map(|(u, f)| PeerFile { uuid: name(u), state: f.state, hosts: f.hosts.iter().map(name).collect() })
            .collect(),
        volumes: disk
            .volumes
            .iter()
            .map(|(volume, d)| (name(volume), d.bricks.iter().filter(|b| **b == n).map(|_| name("/brick")).collect()))
            .collect(),
    }
}
