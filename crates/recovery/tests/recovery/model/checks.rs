//! The invariants of the model.

use std::collections::BTreeSet;

use serde_json::Value;
use stead_recovery::{EvidenceKind, NodeRecovery, RecoveryAnnotation, RecoveryEnd, RecoveryPhase, RecoveryWrite};

use super::faults::State;
use super::machine::Power;
use super::world::{Fence, NODES, OUT_OF_SERVICE, Ready, Tolerates, World};

/// The number of ticks for the recovery after the faults.
const RECOVERY_TICKS: u32 = 80;

impl World {
    /// Checks the invariants that hold at all times.
    pub(crate) fn check(&mut self) {
        for v in 0..self.volumes.len() {
            let mut writers = self.writers(v);
            // A false statement of others is not the fault of a recovery.
            writers.retain(|(_, uid)| !self.removed_by_others.contains(*uid));
            if writers.iter().any(|(n, _)| *n != writers[0].0) {
                let words = format!("volume v{v} has two writers: {writers:?}");
                self.violate(words);
            }
        }
        for n in 0..NODES {
            let node = &self.nodes[n];
            if let Some(lost) = node.foreign.iter().find(|key| !node.has(key)).cloned() {
                self.violate(format!("the taint {lost} of another owner was removed from n{n}"));
            }
        }
    }

    /// The nodes that a recovery has taken out of service.
    pub(crate) fn nodes_in_recovery(&self) -> BTreeSet<String> {
        let after_taint =
            |record: &&Value| matches!(record["status"]["phase"].as_str(), Some("Fenced" | "Released" | "Recovered"));
        let names = self.records.values().filter(after_taint).map(|record| &record["spec"]["node"]["name"]);
        names.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// A volume is detached from a machine: no process of the machine may be able to write, except on a machine that
    /// was rightly taken out of service and has come back since.
    pub(crate) fn check_detach(&mut self, v: usize, n: usize) {
        let fence = self.nodes[n].fence.as_ref();
        let fenced = |uid: &String| fence.is_some_and(|f| !f.ours || f.planned.contains(uid));
        let process = self.machines[n].processes.iter().find(|p| p.volume == Some(v)).map(|p| p.uid.clone());
        if let Some(uid) = process.filter(|uid| self.machines[n].power == Power::On && !fenced(uid)) {
            self.violate(format!("volume v{v} is detached from n{n} while {uid} can write"));
        }
    }

    /// A pod's object was removed because its node is out of service. Pods that were scheduled or deleted by others
    /// after our read do not count.
    pub(crate) fn check_pod_collection(&mut self, uid: &str, n: usize, changed: u64) {
        let turn = self.turn;
        let Some(fence) = self.nodes[n].fence.as_mut().filter(|f| f.ours) else { return };
        let planned = fence.planned.contains(uid);
        let left_alone = fence.left_alone.contains(uid);
        let later = changed > fence.read;
        if planned {
            fence.collected.insert(uid.into(), turn);
        } else if left_alone && !later {
            self.violate(format!("{uid} on n{n} was planned to be left alone, and was collected"));
        } else if !later {
            self.violate(format!("{uid} on n{n} was in no plan, and was collected"));
        }
    }

    /// We apply our taint to a node, or remove it.
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
            self.violate(format!("n{n} is tainted without recorded evidence"));
            return;
        };
        if record.status.phase.is_over() {
            self.violate(format!("n{n} is tainted by a recovery that is over"));
        }
        let plan = &record.spec.plan;
        let evidence = record.spec.evidence.last().unwrap();
        let evidence_kind = evidence.kind;
        let machine = &self.machines[n];
        let observed = self.observations[&read];
        let runs = plan.pods.iter().find(|p| machine.runs(&p.uid)).map(|p| p.uid.clone());
        // Pods released earlier stay released.
        let before = self.nodes[n].fence.take().filter(|f| f.ours).unwrap_or_default();
        let fence = Fence {
            ours: true,
            record: mark.record,
            read: observed.rest,
            boot: self.nodes[n].boot,
            planned: plan.pods.iter().map(|p| p.uid.clone()).chain(before.planned).collect(),
            left_alone: plan
                .left_alone
                .iter()
                .filter(|l| l.added_tolerations.is_some())
                .filter_map(|l| l.uid.clone())
                .collect(),
            collected: before.collected,
        };
        self.nodes[n].fence = Some(fence);
        if let Some(other) = observed.other_alive.filter(|_| observed.most_lost && !self.setting.lies) {
            self.violate(format!("n{n} is tainted while most nodes are not ready, and n{other} runs"));
        }
        if evidence_kind == EvidenceKind::CloudShutdown && observed.shut_down.is_none_or(|ticks| ticks > 60) {
            self.violate(format!("n{n} is tainted by old evidence of the cloud: {:?}", observed.shut_down));
        }
        if !observed.unreachable {
            self.violate(format!("n{n} is tainted before it was marked unreachable"));
        }
        if observed.fresh {
            self.violate(format!("n{n} is tainted while its Lease is valid"));
        }
        if observed.alive && !self.setting.lies && (evidence.pods.is_none() || runs.is_some()) {
            self.violate(format!("n{n} is tainted although its machine runs and has reported; {runs:?} runs"));
        }
    }

    /// Our taint is removed: no released pod may still run on the node.
    fn check_return(&mut self, n: usize, read: u64) {
        let Some(fence) = self.nodes[n].fence.as_ref().filter(|f| f.ours) else { return };
        let there = self.nodes[n].has(OUT_OF_SERVICE) && !self.nodes[n].foreign.contains(OUT_OF_SERVICE);
        let machine = &self.machines[n];
        let rest = self.observations[&read].rest;
        let collected = fence.collected.iter().filter(|(_, turn)| **turn < rest);
        let left = collected.map(|(uid, _)| uid).find(|uid| machine.runs_since(uid, fence.boot)).cloned();
        let released = |uid: &str, v: usize| {
            let collected = fence.collected.get(uid).is_some_and(|turn| *turn < rest);
            collected && fence.boot == machine.boot && self.volumes[v].at != Some(n)
        };
        let mounted = machine.mounted.iter().find(|m| released(&m.uid, m.volume)).map(|m| m.volume);
        if let Some(v) = mounted.filter(|_| there) {
            self.violate(format!("the taint is removed from n{n}, where the released v{v} is still mounted"));
            return;
        }
        if let Some(uid) = left.filter(|_| there) {
            self.violate(format!("the taint is removed from n{n}, where the collected {uid} still runs"));
        }
    }

    /// Checks the number of nodes that are being recovered.
    pub(crate) fn check_limits(&mut self) {
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
            self.violate(format!("{all} nodes are recovered at once, {zones:?} by zone"));
        }
    }

    /// We delete a pod: it has to be planned in a record.
    pub(crate) fn check_deleted(&mut self, uid: &str) {
        let of_plan =
            |r: &Value| r["spec"]["plan"]["pods"].as_array().is_some_and(|p| p.iter().any(|p| p["uid"] == uid));
        if !self.records.values().any(of_plan) {
            self.violate(format!("{uid} is deleted, and is in no plan"));
        }
    }

    /// Checks a record that is written.
    pub(crate) fn check_record(&mut self, record: &NodeRecovery, read: u64) {
        if record.status.phase.is_over() {
            self.closed.insert(record.spec.node.name.clone(), self.observations[&read].rest);
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
        // Pods collected in an earlier attempt during the same boot are not in this plan.
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
            .find(|p| p.is_active() && self.has_added_tolerations(p) && p.patched < self.observations[&read].rest);
        if let Some(pod) = up.map(|p| p.uid.clone()) {
            self.violate(format!("{pod} still has added tolerations after the recovery was undone"));
        } else if marked {
            self.violate(format!("n{n} still has the annotation after the recovery was undone"));
        } else if collected.is_some_and(|turn| turn < self.observations[&read].rest) {
            self.violate(format!("n{n}: pods were collected, and the recovery is recorded as undone"));
        }
    }

    /// Records what a recoverer could observe. The taint of an earlier boot must not stay after that.
    pub(crate) fn record_observation(
        &mut self,
        n: usize,
        record: Option<&NodeRecovery>,
        write: Option<&RecoveryWrite>,
    ) {
        let machine = &self.machines[n];
        let there = self.nodes.iter().filter(|n| n.gone.is_none());
        let (all, lost) = there.fold((0, 0), |(all, lost), n| (all + 1, lost + usize::from(n.ready != Ready::True)));
        let node = &self.nodes[n];
        let observation = super::world::Observation {
            alive: machine.power == Power::On && machine.reported,
            most_lost: lost * 2 > all,
            unreachable: node.ready == Ready::Unknown,
            fresh: self.tick - node.lease_written <= 4,
            other_alive: (0..NODES).filter(|m| *m != n && self.nodes[*m].gone.is_none()).find(|m| {
                if self.nodes[*m].ready == Ready::True {
                    return false;
                }
                let machine = &self.machines[*m];
                machine.power == Power::On && machine.reported
            }),
            shut_down: node.shut_down.map(|since| self.tick - since),
            rest: self.read.at,
        };
        self.observations.insert(self.turn, observation);
        let Some(record) = record.filter(|r| !r.status.phase.is_over()) else { return };
        let ours = node
            .mark
            .as_ref()
            .and_then(|m| serde_json::from_str::<RecoveryAnnotation>(m).ok())
            .filter(|m| m.record == record.name() && m.ended.is_none());
        let former = ours.is_some_and(|m| m.boot_id != format!("boot-{}", node.boot));
        let goes = matches!(write, Some(RecoveryWrite::Node { .. }));
        if former && !goes {
            self.violate(format!("n{n} keeps the taint of an earlier boot"));
        }
    }

    /// Ends all faults. Nodes that are off are recovered; then they come back, and nothing of the recoveries is left.
    pub(crate) fn check_recovery(&mut self) {
        self.faults_over = true;
        self.trace(|| "no more faults".into());
        self.setting.lag = 0;
        let scripted: Vec<usize> = self.scripts.iter().map(|script| script.node).collect();
        let off = |w: &World, n: &usize| scripted.contains(n) && w.machines[*n].power == Power::Off;
        let (stay_off, others): (Vec<usize>, Vec<usize>) = (0..NODES).partition(|n| off(self, n));
        for n in others {
            self.set_state(n, State::Up);
        }
        for n in &stay_off {
            let in_phase = |w: &World, phase: &str| {
                let of_node = |r: &&Value| r["spec"]["node"]["name"] == *w.nodes[*n].name;
                w.records.values().filter(of_node).any(|r| r["status"]["phase"] == phase)
            };
            // A replacement pod on another machine that is off is not Ready before that machine is back.
            let waits_for_others = |w: &World| {
                let elsewhere = |m: usize| m != *n && stay_off.contains(&m);
                let mut not_ready = w.pods.iter().filter(|pod| !pod.ready);
                in_phase(w, "Released") && not_ready.all(|pod| pod.node.is_some_and(elsewhere))
            };
            let recovered = |w: &World| in_phase(w, "Recovered") || waits_for_others(w);
            let name = self.nodes[*n].name.clone();
            self.wait_until(&format!("{name} recovered"), |w| {
                recovered(w) || w.nodes[*n].gone.is_some() || w.nothing_to_release.contains(n)
            });
        }
        for n in stay_off {
            self.set_state(n, State::Up);
        }
        self.wait_until("healthy cluster", |w| {
            let clean = |n: &super::world::Node| n.mark.is_none() && !n.has(OUT_OF_SERVICE) && n.ready == Ready::True;
            let over = |r: &Value| matches!(r["status"]["phase"].as_str(), Some("Returned" | "Undone" | "Void"));
            w.nodes.iter().all(clean) && w.records.values().all(over) && w.pods.iter().all(|p| p.ready)
        });
        self.check_added_tolerations();
    }

    /// Whether a pod tolerates a taint forever that its workload does not.
    fn has_added_tolerations(&self, pod: &super::world::Pod) -> bool {
        match self.sets[pod.set].tolerates {
            Tolerates::Nothing | Tolerates::NotReady => pod.tolerates[0].is_none(),
            Tolerates::OutOfService => pod.tolerates[1].is_none(),
            Tolerates::All => false,
        }
    }

    /// No pod has added tolerations any more, except from a recoverer that did not see the end.
    fn check_added_tolerations(&mut self) {
        let closed = |p: &&super::world::Pod| {
            let node = p.node.map(|n| &self.nodes[n].name);
            node.and_then(|name| self.closed.get(name)).is_some_and(|closed| p.patched < *closed)
        };
        if let Some(uid) =
            self.pods.iter().filter(|p| self.has_added_tolerations(p)).find(closed).map(|p| p.uid.clone())
        {
            self.violate(format!("{uid} still has added tolerations after the end"));
        }
    }

    fn wait_until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        let end = self.tick + RECOVERY_TICKS;
        while !holds(self) {
            if self.tick >= end || self.violation.is_some() {
                let records: Vec<String> = self
                    .records
                    .values()
                    .map(|r| format!("{}: {} {}", r["metadata"]["name"], r["status"]["phase"], r["status"]["message"]))
                    .collect();
                self.violate(format!("not in time: {what}; {records:?}"));
                return;
            }
            self.one_tick(false);
            self.one_tick(false);
            for n in 0..NODES {
                if self.violation.is_none() && self.needs_recovery(n) {
                    let end = self.recover_without_faults(n);
                    let nothing = |end: &RecoveryEnd| {
                        use stead_recovery::Refusal::{NothingToRelease, RecordedAsEvidence};
                        matches!(end, RecoveryEnd::Refused(NothingToRelease(_) | RecordedAsEvidence(_)))
                    };
                    self.nothing_to_release.extend(end.as_ref().filter(|end| nothing(end)).map(|_| n));
                    self.trace(|| format!("carla for n{n}: {end:?}"));
                }
            }
        }
    }
}
