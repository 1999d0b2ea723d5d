//! The agent of a pod, and what it does when it leads.

use std::collections::BTreeMap;

use stead_pool::{
    Boot, Brick, Daemon, DecisionInput, Identity, Peer, PeerCommand, PeerFile, PeerState, Repair, RepairOrder, Report,
    Rule, StateDir, Volume, boot, decide_under, identity, loses_nothing, still_needed,
};

use crate::names::name;

use super::cluster::{Cluster, MOST, WrongKey};
use super::glusterd::{Disk, Friend};

/// One pod's agent; all of it is lost when it is restarted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Agent {
    /// Whether it has started its glusterd.
    started: bool,
    /// The order that it carries out: glusterd is stopped.
    pub(crate) repairing: Option<RepairOrder>,
    /// What it last found out; others are told this.
    report: Option<Report>,
    /// What it waits for before it starts its glusterd.
    waits: Option<String>,
    /// What it was about to do when it led.
    about_to: Option<PeerCommand>,
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
            self.obey(n);
        }
        if self.chance.percent(70) {
            self.look(n);
        }
    }

    fn look(&mut self, n: u32) {
        let report = self.report(n);
        self.pods.get_mut(&n).expect("its turn").agent.report = Some(report);
    }

    fn boot(&mut self, n: u32) {
        let state = state_dir(&self.glusterds.all[&n].disk, n);
        let complete = state.uuid.is_some() && !state.peers.is_empty();
        if self.offline.contains(&n) {
            // Without the record only one that knows who it is may start.
            if complete {
                self.start(n);
            }
            return;
        }
        match boot(&self.wanted, n, &state, &self.record, &self.reports_for(n)) {
            Boot::Start => self.start(n),
            Boot::Restore(identity) => {
                self.say(format!("pod {n} gets its identity back"));
                self.write_identity(n, identity);
                self.start(n);
            }
            Boot::Forget => {
                self.say(format!("pod {n} forgets"));
                self.check_taken_away(n, true, &self.volumes(n));
                let disk = self.glusterds.disk(n);
                disk.friends.clear();
                disk.volumes.clear();
                self.start(n);
            }
            Boot::Wait(why) => self.pods.get_mut(&n).expect("its turn").agent.waits = Some(why),
        }
    }

    pub(crate) fn start(&mut self, n: u32) {
        self.glusterds.start(n);
        self.pods.get_mut(&n).expect("its turn").agent.started = true;
        self.say(format!("glusterd {n} starts"));
    }

    fn write_identity(&mut self, n: u32, identity: Identity) {
        let friend = |p: &PeerFile| Friend { state: p.state, hosts: texts(&p.hosts), connected: false };
        let disk = self.glusterds.disk(n);
        disk.uuid = Some(identity.uuid.to_string());
        disk.friends = identity.peers.iter().map(|p| (p.uuid.to_string(), friend(p))).collect();
    }

    /// An order of the record that is this pod's is begun.
    fn obey(&mut self, n: u32) {
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
        self.say(format!("pod {n} begins {:?}", order.repair));
        self.check_repair(n);
        self.glusterds.stop(n);
        self.pods.get_mut(&n).expect("its turn").agent.repairing = Some(order);
    }

    fn carry_out(&mut self, n: u32, order: &RepairOrder) {
        match order.repair {
            Repair::RestoreIdentity | Repair::CorrectNames => {
                let Some(identity) = identity(&self.wanted, n, &self.record, &self.reports_for(n)) else { return };
                self.check_taken_away(n, true, &[]);
                self.write_identity(n, identity);
            }
            Repair::ResyncVolumes => {
                let volumes = texts(&order.volumes);
                self.check_taken_away(n, false, &volumes);
                self.glusterds.disk(n).volumes.retain(|v, _| !volumes.contains(v));
            }
            Repair::Forget => {
                self.check_taken_away(n, true, &self.volumes(n));
                let disk = self.glusterds.disk(n);
                disk.friends.clear();
                disk.volumes.clear();
            }
        }
        let agent = &mut self.pods.get_mut(&n).expect("its turn").agent;
        agent.repairing = None;
        self.glusterds.disk(n).done = Some(order.id);
        self.say(format!("pod {n} has carried out {:?}", order.repair));
        self.start(n);
    }

    /// The reports that one can get, some of them a little old.
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
        let volumes = glusterd.disk.volumes.iter().map(|(volume, d)| Volume {
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
            doing: pod.agent.waits.clone().filter(|_| !glusterd.running),
        }
    }

    /// What the one who leads does in its turn. It may be ended between deciding, writing and acting.
    pub(crate) fn lead(&mut self, n: u32) {
        if !self.pods.get(&n).is_some_and(|p| p.agent.started && p.agent.repairing.is_none()) {
            return;
        }
        if let Some(act) = self.pods.get_mut(&n).and_then(|p| p.agent.about_to.take()) {
            return self.act(n, act);
        }
        // The leader's own report is a new one, and others that ask later get no older one.
        self.look(n);
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
            self.say(format!("{n} steps down: {:?}", decision.notes));
            return self.step_down(n);
        }
        if let Some(record) = decision.record {
            if self.chance.percent(self.truth.trouble / 2) {
                return self.say("the record is not written".to_owned());
            }
            if let Some(order) = record.order.as_ref().filter(|o| Some(*o) != self.record.order.as_ref()) {
                self.truth.rightly_ordered = self.is_at_fault(order.ordinal);
            }
            if record.order != self.record.order {
                self.say(format!("order {:?}", record.order));
            }
            let bricks = record.joined().flat_map(|(o, m)| m.bricks.iter().map(move |b| (o, b.volume.to_string())));
            self.truth.recorded.extend(bricks);
            self.record = record;
            self.revision += 1;
        }
        match decision.act {
            Some(_) if self.chance.percent(self.truth.trouble / 2) => {
                self.say("the leader forgets what to do".to_owned())
            }
            Some(act) if self.chance.percent(self.truth.trouble) => {
                self.pods.get_mut(&n).expect("it leads").agent.about_to = Some(act);
            }
            Some(act) => self.act(n, act),
            None => {}
        }
    }

    /// One that led, and was about to act when another took over, may still do so.
    pub(crate) fn deposed_act(&mut self) {
        let able = |c: &Cluster, n: u32| Some(n) != c.leader && !c.glusterds.all[&n].frozen && c.glusterds.running(n);
        for n in (0..MOST).filter(|n| able(self, *n)).collect::<Vec<_>>() {
            if let Some(act) = self.pods.get_mut(&n).and_then(|p| p.agent.about_to.take()) {
                self.say(format!("{n} does not know that it was deposed"));
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
                self.say(format!("{n} leaves {ordinal} alone: it is somebody else now"));
            }
            PeerCommand::Probe { ordinal, .. } => {
                let answer = self.glusterds.probe(n, ordinal);
                self.say(format!("{n} probes {ordinal}: {answer:?}"));
            }
            PeerCommand::Detach { ordinal, host, .. } => {
                let answer = self.glusterds.detach(n, ordinal, &host);
                self.say(format!("{n} detaches {ordinal}: {answer:?}"));
            }
        }
    }
}

fn texts<T: ToString>(names: &[T]) -> Vec<String> {
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
