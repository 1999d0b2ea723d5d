//! What has to hold.

use stead_recovery::{EvidenceKind, NodeRecovery, RecoveryAnnotation, RecoveryEnd, RecoveryPhase, RecoveryWrite};

use super::faults::State;
use super::machine::Power;
use super::world::{Bears, Fence, NODES, OUT_OF_SERVICE, Ready, World};

/// How many ticks there are for all to be well again.
const PATIENCE: u32 = 80;

impl World {
    /// At all times.
    pub(crate) fn check(&mut self) {
        for v in 0..self.volumes.len() {
            let writers = self.writers(v);
            if writers.iter().any(|(n, _)| *n != writers[0].0) {
                let words = format!("volume v{v} has two writers: {writers:?}");
                self.breaks(words);
            }
        }
        for n in 0..NODES {
            let node = &self.nodes[n];
            if let Some(lost) = node.foreign.iter().find(|key| !node.has(key)).cloned() {
                self.breaks(format!("the taint {lost} of somebody else is lost from n{n}"));
            }
        }
    }

    /// A volume is taken from a machine: no process of it may be able to write, but one whose machine was taken out of
    /// service for good reason and has come back since.
    pub(crate) fn check_taken(&mut self, v: usize, n: usize) {
        let fence = self.nodes[n].fence.as_ref();
        let fenced = |uid: &String| fence.is_some_and(|f| !f.ours || f.condemned.contains(uid));
        let process = self.machines[n].processes.iter().find(|p| p.volume == Some(v)).map(|p| p.uid.clone());
        if let Some(uid) = process.filter(|uid| self.machines[n].power == Power::On && !fenced(uid)) {
            self.breaks(format!("volume v{v} is taken from under {uid} on n{n}, which can write"));
        }
    }

    /// A pod's object is gone because its node is out of service. What was put there, or deleted by somebody, after we had
    /// looked is not our doing.
    pub(crate) fn check_collected(&mut self, uid: &str, n: usize, changed: u64) {
        let turn = self.turn;
        let Some(fence) = self.nodes[n].fence.as_mut().filter(|f| f.ours) else { return };
        let planned = fence.condemned.contains(uid);
        let shielded = fence.shielded.contains(uid);
        let later = changed > fence.read;
        if planned {
            fence.collected.insert(uid.into(), turn);
        } else if shielded && !later {
            self.breaks(format!("{uid} on n{n} was to be left alone, and was collected"));
        } else if !later {
            self.breaks(format!("{uid} on n{n} was in nobody's plan, and was collected"));
        }
    }

    /// We put our taint on a node, or take it away.
    pub(crate) fn check_patch(&mut self, n: usize, mark: Option<&str>, read: u64) {
        let Some(mark) = mark.and_then(|m| serde_json::from_str::<RecoveryAnnotation>(m).ok()) else {
            self.check_return(n, read);
            return;
        };
        if mark.ended.is_some() {
            self.check_return(n, read);
            return;
        }
        let record =
            self.records.get(&mark.record).and_then(|r| serde_json::from_value::<NodeRecovery>(r.clone()).ok());
        let Some(record) = record.filter(|r| r.spec.evidence.last().is_some_and(|e| e.statement.by != "nobody")) else {
            self.breaks(format!("n{n} is put out of service without evidence on record"));
            return;
        };
        if record.status.phase.is_over() {
            self.breaks(format!("n{n} is put out of service by a recovery that is over"));
        }
        let plan = &record.spec.plan;
        let evidence = record.spec.evidence.last().unwrap();
        let evidence_kind = evidence.kind;
        let machine = &self.machines[n];
        let look = self.looks[&read];
        let runs = plan.pods.iter().find(|p| machine.runs(&p.uid)).map(|p| p.uid.clone());
        // What was taken from it before stays taken.
        let before = self.nodes[n].fence.take().filter(|f| f.ours).unwrap_or_default();
        let fence = Fence {
            ours: true,
            record: mark.record,
            read: look.rest,
            boot: self.nodes[n].boot,
            condemned: plan.pods.iter().map(|p| p.uid.clone()).chain(before.condemned).collect(),
            shielded: plan
                .left_alone
                .iter()
                .filter(|l| l.added_tolerations.is_some())
                .filter_map(|l| l.uid.clone())
                .collect(),
            collected: before.collected,
        };
        self.nodes[n].fence = Some(fence);
        if let Some(other) = look.other_alive.filter(|_| look.most_lost && !self.setting.lies) {
            self.breaks(format!("n{n} is put out of service while most nodes are not ready, and n{other} runs"));
        }
        if evidence_kind == EvidenceKind::CloudShutdown && look.shut_down.is_none_or(|ticks| ticks > 60) {
            self.breaks(format!("n{n} is put out of service by old words of its cloud: {:?}", look.shut_down));
        }
        if !look.silent {
            self.breaks(format!("n{n} is put out of service before it was found silent"));
        }
        if look.fresh {
            self.breaks(format!("n{n} is put out of service while its lease is good"));
        }
        if look.alive && !self.setting.lies && (evidence.pods.is_none() || runs.is_some()) {
            self.breaks(format!("n{n} is put out of service though it is alive, and had said so; {runs:?} runs"));
        }
    }

    /// Our taint goes: nothing that was taken from the node may still run there.
    fn check_return(&mut self, n: usize, read: u64) {
        let Some(fence) = self.nodes[n].fence.as_ref().filter(|f| f.ours) else { return };
        let there = self.nodes[n].has(OUT_OF_SERVICE) && !self.nodes[n].foreign.contains(OUT_OF_SERVICE);
        let machine = &self.machines[n];
        let rest = self.looks[&read].rest;
        let collected = fence.collected.iter().filter(|(_, turn)| **turn < rest);
        let left = collected.map(|(uid, _)| uid).find(|uid| machine.runs_since(uid, fence.boot)).cloned();
        let released = |uid: &str, v: usize| {
            let collected = fence.collected.get(uid).is_some_and(|turn| *turn < rest);
            collected && fence.boot == machine.boot && self.volumes[v].at != Some(n)
        };
        let mounted = machine.mounted.iter().find(|m| released(&m.uid, m.volume)).map(|m| m.volume);
        if let Some(v) = mounted.filter(|_| there) {
            self.breaks(format!("the taint is taken from n{n}, where v{v}, which was released, is still mounted"));
            return;
        }
        if let Some(uid) = left.filter(|_| there) {
            self.breaks(format!("the taint is taken from n{n}, where {uid}, which was collected, still runs"));
        }
    }

    /// How many are out of service and on their way.
    pub(crate) fn check_brake(&mut self) {
        let (mut all, mut zones) = (0, [0, 0]);
        for node in &self.nodes {
            let Some(mark) = node.mark.as_ref().and_then(|m| serde_json::from_str::<RecoveryAnnotation>(m).ok()) else {
                continue;
            };
            let phase = self.records.get(&mark.record).map_or("", |r| r["status"]["phase"].as_str().unwrap_or(""));
            if mark.ended.is_none() && node.has(OUT_OF_SERVICE) && matches!(phase, "Planned" | "Fenced") {
                all += 1;
                zones[usize::from(node.zone == "b")] += 1;
            }
        }
        if all > self.policy.at_once || zones.iter().any(|z| *z > self.policy.at_once_per_zone) {
            self.breaks(format!("{all} nodes at once, {zones:?} by zone"));
        }
    }

    /// We delete a pod.
    pub(crate) fn check_deleted(&mut self, uid: &str) {
        let of_plan = |r: &serde_json::Value| {
            r["spec"]["plan"]["pods"].as_array().is_some_and(|p| p.iter().any(|p| p["uid"] == uid))
        };
        if !self.records.values().any(of_plan) {
            self.breaks(format!("{uid} is deleted, which no record condemns"));
        }
    }

    /// A record is written.
    pub(crate) fn check_record(&mut self, record: &NodeRecovery, read: u64) {
        if record.status.phase.is_over() {
            self.closed.insert(record.spec.node.name.clone(), self.looks[&read].rest);
        }
        if record.status.phase != RecoveryPhase::Undone {
            return;
        }
        let n = self.nodes.iter().position(|n| n.name == record.spec.node.name).unwrap();
        let node = &self.nodes[n];
        let ours = |m: &String| {
            m.contains(record.name()) && node.has(OUT_OF_SERVICE) && !node.foreign.contains(OUT_OF_SERVICE)
        };
        let marked = node.mark.as_ref().is_some_and(ours);
        // What an earlier attempt at the same life has collected is not in the plan of this one.
        let planned =
            |(uid, turn): (&String, &u64)| record.spec.plan.pod(uid).filter(|p| !p.released_earlier).map(|_| *turn);
        let collected = node
            .fence
            .as_ref()
            .filter(|f| f.record == record.name())
            .and_then(|f| f.collected.iter().filter_map(planned).min());
        let shields =
            record.spec.plan.left_alone.iter().filter(|l| l.added_tolerations.is_some()).filter_map(|l| l.uid.as_ref());
        let up = shields
            .filter_map(|uid| self.pods.iter().find(|p| p.uid == *uid))
            .find(|p| p.is_active() && self.is_shielded(p) && p.patched < self.looks[&read].rest);
        if let Some(pod) = up.map(|p| p.uid.clone()) {
            self.breaks(format!("{pod} is still shielded after all was undone"));
        } else if marked {
            self.breaks(format!("n{n} is still marked after all was undone"));
        } else if collected.is_some_and(|turn| turn < self.looks[&read].rest) {
            self.breaks(format!("n{n}: pods were collected, and it is said to be undone"));
        }
    }

    /// Somebody has looked at a node. The taint of a former life must not outlast that.
    pub(crate) fn note_look(&mut self, n: usize, record: Option<&NodeRecovery>, write: Option<&RecoveryWrite>) {
        let machine = &self.machines[n];
        let there = self.nodes.iter().filter(|n| n.gone.is_none());
        let (all, lost) = there.fold((0, 0), |(all, lost), n| (all + 1, lost + usize::from(n.ready != Ready::True)));
        let node = &self.nodes[n];
        let look = super::world::Look {
            alive: machine.power == Power::On && machine.spoke,
            most_lost: lost * 2 > all,
            silent: node.ready == Ready::Unknown,
            fresh: self.tick - node.lease_written <= 4,
            other_alive: (0..NODES).filter(|m| *m != n && self.nodes[*m].gone.is_none()).find(|m| {
                if self.nodes[*m].ready == Ready::True {
                    return false;
                }
                let machine = &self.machines[*m];
                machine.power == Power::On && machine.spoke
            }),
            shut_down: node.shut_down.map(|since| self.tick - since),
            rest: self.read.at,
        };
        self.looks.insert(self.turn, look);
        let Some(record) = record.filter(|r| !r.status.phase.is_over()) else { return };
        let ours = node
            .mark
            .as_ref()
            .and_then(|m| serde_json::from_str::<RecoveryAnnotation>(m).ok())
            .filter(|m| m.record == record.name() && m.ended.is_none());
        let former = ours.is_some_and(|m| m.boot_id != format!("boot-{}", node.boot));
        let goes = matches!(write, Some(RecoveryWrite::Node { .. }));
        if former && !goes {
            self.breaks(format!("n{n} keeps the taint of a former life"));
        }
    }

    /// Everything stops failing. A node that is off is recovered; then it comes back, and nothing is left of it all.
    pub(crate) fn end_well(&mut self) {
        self.calm = true;
        self.say(|| "all is calm".into());
        self.setting.lag = 0;
        let scripted: Vec<usize> = self.scripts.iter().map(|script| script.node).collect();
        let off = |w: &World, n: &usize| scripted.contains(n) && w.machines[*n].power == Power::Off;
        let (stay_off, others): (Vec<usize>, Vec<usize>) = (0..NODES).partition(|n| off(self, n));
        for n in others {
            self.put(n, State::Up);
        }
        for n in &stay_off {
            let recovered = |w: &World| {
                w.records
                    .values()
                    .any(|r| r["spec"]["node"]["name"] == *w.nodes[*n].name && r["status"]["phase"] == "Recovered")
            };
            let name = self.nodes[*n].name.clone();
            self.until(&format!("{name} recovered"), |w| {
                recovered(w) || w.nodes[*n].gone.is_some() || w.nothing_there.contains(n)
            });
        }
        for n in stay_off {
            self.put(n, State::Up);
        }
        self.until("all is well", |w| {
            let clean = |n: &super::world::Node| n.mark.is_none() && !n.has(OUT_OF_SERVICE) && n.ready == Ready::True;
            let over =
                |r: &serde_json::Value| matches!(r["status"]["phase"].as_str(), Some("Returned" | "Undone" | "Void"));
            w.nodes.iter().all(clean) && w.records.values().all(over) && w.pods.iter().all(|p| p.ready)
        });
        self.check_shields();
    }

    /// Whether a pod bears for ever what its workload does not.
    fn is_shielded(&self, pod: &super::world::Pod) -> bool {
        match self.sets[pod.set].bears {
            Bears::Nothing | Bears::Silence => pod.bears[0].is_none(),
            Bears::OutOfService => pod.bears[1].is_none(),
            Bears::All => false,
        }
    }

    /// No pod is kept from a taint any more, but by somebody who came too late to see that all was over.
    fn check_shields(&mut self) {
        let closed = |p: &&super::world::Pod| {
            let node = p.node.map(|n| &self.nodes[n].name);
            node.and_then(|name| self.closed.get(name)).is_some_and(|closed| p.patched < *closed)
        };
        if let Some(uid) = self.pods.iter().filter(|p| self.is_shielded(p)).find(closed).map(|p| p.uid.clone()) {
            self.breaks(format!("{uid} is still shielded when all is over"));
        }
    }

    fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        let end = self.tick + PATIENCE;
        while !holds(self) {
            if self.tick >= end || self.broken.is_some() {
                let records: Vec<String> = self
                    .records
                    .values()
                    .map(|r| format!("{}: {} {}", r["metadata"]["name"], r["status"]["phase"], r["status"]["message"]))
                    .collect();
                self.breaks(format!("not in time: {what}; {records:?}"));
                return;
            }
            self.one_tick(false);
            self.one_tick(false);
            for n in 0..NODES {
                if self.broken.is_none() && self.concerns(n) {
                    let end = self.recover_calmly(n);
                    let nothing = |end: &RecoveryEnd| {
                        use stead_recovery::Refusal::{NothingToRelease, RecordedAsEvidence};
                        matches!(end, RecoveryEnd::Refused(NothingToRelease(_) | RecordedAsEvidence(_)))
                    };
                    self.nothing_there.extend(end.as_ref().filter(|end| nothing(end)).map(|_| n));
                    self.say(|| format!("carla at n{n}: {end:?}"));
                }
            }
        }
    }
}
