//! What must never happen, and what has to happen in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use stead_recovery::{
    EvidenceKind, NodeRecovery, RecoveryAnnotation, RecoveryEnd, RecoveryPhase, RecoveryWrite, Refusal,
};

use super::cluster::{NODES, Tolerates, node_name, zone};
use super::faults::State;
use super::run::{OUT_OF_SERVICE, Ready, Run, TICK};

/// The time for the recovery after the faults.
const RECOVERY_TIME: SignedDuration = SignedDuration::from_secs(1_200);

/// For how long a report of the cloud is evidence.
const CLOUD_EVIDENCE: SignedDuration = SignedDuration::from_secs(600);

/// For how long a Lease is valid.
const LEASE: SignedDuration = SignedDuration::from_secs(40);

/// What the checks know of the current or last out-of-service taint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fence {
    pub(crate) ours: bool,
    /// The name of the record.
    record: String,
    /// The turn of the read that the decision is based on.
    read: u64,
    /// The boot of the machine that it is for.
    boot_id: String,
    planned: BTreeSet<String>,
    left_alone: BTreeSet<String>,
    /// The volumes of each planned pod.
    volumes: BTreeMap<String, Vec<String>>,
    /// The planned pods that were collected, and when.
    collected: BTreeMap<String, u64>,
}

/// The state at the time of a read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Observation {
    /// Whether the machine ran and had reported to the API server.
    alive: bool,
    /// Whether most nodes were not ready.
    most_lost: bool,
    /// Whether the node controller had marked the node unreachable.
    unreachable: bool,
    /// Whether its Lease was still valid.
    fresh: bool,
    /// Another node that was not ready although its machine ran and had reported.
    other_alive: Option<usize>,
    /// For how long the cloud had reported the machine as shut down.
    shut_down: Option<SignedDuration>,
    /// The turn in which everything except nodes was read.
    rest: u64,
}

impl Run {
    /// Whether a recovery has taken a node out of service.
    pub(crate) fn is_in_recovery(&self, n: usize) -> bool {
        use RecoveryPhase::{Fenced, Recovered, Released};
        let name = node_name(n);
        let after_taint = |phase: RecoveryPhase| matches!(phase, Fenced | Released | Recovered);
        self.records().any(|record| record.spec.node.name == name && after_taint(record.status.phase))
    }

    /// A volume is detached from a machine: no process of the machine may be able to write, except on a machine that
    /// was rightly taken out of service and has come back since.
    pub(crate) fn check_detach(&mut self, volume: &str, n: usize) {
        let fence = self.nodes[n].fence.as_ref();
        let fenced = |uid: &str| fence.is_some_and(|fence| !fence.ours || fence.planned.contains(uid));
        let name = node_name(n);
        let uses = |process: &stead_sim::Process| {
            *process.node == *name && process.volumes.iter().any(|mounted| **mounted == *volume)
        };
        let processes = self.simulation.world().processes().filter(|(_, process)| uses(process));
        let writer = processes.map(|(uid, _)| uid.to_string()).find(|uid| self.is_on(n) && !fenced(uid));
        if let Some(uid) = writer {
            self.violate(format!("volume {volume} is detached from n{n} while {uid} can write"));
        }
    }

    /// A pod's object was removed because its node is out of service. Pods that were scheduled or deleted by others
    /// after our read do not count.
    pub(crate) fn check_pod_collection(&mut self, uid: &str, n: usize, touched: u64) {
        let turn = self.turn;
        let Some(fence) = self.nodes[n].fence.as_mut().filter(|fence| fence.ours) else { return };
        let (planned, left_alone) = (fence.planned.contains(uid), fence.left_alone.contains(uid));
        let later = touched > fence.read;
        if planned {
            fence.collected.insert(uid.into(), turn);
        } else if left_alone && !later {
            self.violate(format!("{uid} on n{n} was planned to be left alone, and was collected"));
        } else if !later {
            self.violate(format!("{uid} on n{n} was in no plan, and was collected"));
        }
    }

    /// We have changed a node: applied our taint, or removed it.
    pub(crate) fn check_patch(&mut self, n: usize, mark: Option<RecoveryAnnotation>, was_ours: bool, read: u64) {
        let Some(mark) = mark.filter(|mark| mark.ended.is_none()) else { return self.check_return(n, was_ours, read) };
        let record = self.record(&mark.record);
        let record = record.filter(|record| record.spec.evidence.last().is_some_and(|e| e.statement.by != "nobody"));
        let Some(record) = record else { return self.violate(format!("n{n} is tainted without recorded evidence")) };
        if record.status.phase.is_over() {
            self.violate(format!("n{n} is tainted by a recovery that is over"));
        }
        let evidence = record.spec.evidence.last().unwrap();
        let processes = self.processes(n);
        let runs = record.spec.plan.pods.iter().find(|pod| processes.contains(&pod.uid)).map(|pod| pod.uid.clone());
        let observed = self.observations[&read];
        self.note_fence(n, &record, observed.rest);
        if let Some(other) = observed.other_alive.filter(|_| observed.most_lost && !self.setting.lies) {
            self.violate(format!("n{n} is tainted while most nodes are not ready, and n{other} runs"));
        }
        let expired = observed.shut_down.is_none_or(|age| age > CLOUD_EVIDENCE);
        if evidence.kind == EvidenceKind::CloudShutdown && expired {
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

    fn note_fence(&mut self, n: usize, record: &NodeRecovery, read: u64) {
        let plan = &record.spec.plan;
        let boot_id = self.boot_id(n);
        // Pods released earlier stay released.
        let before = self.nodes[n].fence.take().filter(|fence| fence.ours).unwrap_or_default();
        let kept = plan.left_alone.iter().filter(|left| left.added_tolerations.is_some());
        let volumes = plan.pods.iter().map(|pod| (pod.uid.clone(), pod.volumes.clone()));
        self.nodes[n].fence = Some(Fence {
            ours: true,
            record: record.name().into(),
            read,
            boot_id,
            planned: plan.pods.iter().map(|pod| pod.uid.clone()).chain(before.planned).collect(),
            left_alone: kept.filter_map(|left| left.uid.clone()).collect(),
            volumes: before.volumes.into_iter().chain(volumes).collect(),
            collected: before.collected,
        });
    }

    fn boot_id(&self, n: usize) -> String {
        let info = self.node(n).and_then(|node| node.status.as_ref()?.node_info.as_ref());
        info.map(|info| info.boot_id.clone()).unwrap_or_default()
    }

    /// Our taint was removed: no released pod may still run on the node.
    fn check_return(&mut self, n: usize, was_ours: bool, read: u64) {
        let Some(fence) = self.nodes[n].fence.clone().filter(|fence| fence.ours && was_ours) else { return };
        // Nothing that ran before a restart runs after it.
        let boots = self.simulation.world().machine(&node_name(n)).map_or(0, |machine| machine.boots);
        if !fence.boot_id.ends_with(&format!("{boots:012x}")) {
            return;
        }
        let rest = self.observations[&read].rest;
        let released: Vec<&String> =
            fence.collected.iter().filter(|(_, turn)| **turn < rest).map(|(uid, _)| uid).collect();
        let processes = self.processes(n);
        if let Some(uid) = released.iter().find(|uid| processes.contains(**uid)) {
            self.violate(format!("the taint is removed from n{n}, where the collected {uid} still runs"));
        }
        let mut volumes = released.iter().flat_map(|uid| fence.volumes.get(*uid).into_iter().flatten());
        let mounted = volumes.find(|volume| self.is_mounted(volume, n) && !self.is_attached(volume, n)).cloned();
        if let Some(volume) = mounted {
            self.violate(format!("the taint is removed from n{n}, where the released {volume} is still mounted"));
        }
    }

    /// Whether the kubelet of a node reports a volume as in use.
    fn is_mounted(&self, volume: &str, n: usize) -> bool {
        let status = self.node(n).and_then(|node| node.status.as_ref());
        let in_use = status.and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default();
        in_use.iter().any(|name| name.ends_with(&format!("^{volume}")))
    }

    fn is_attached(&self, volume: &str, n: usize) -> bool {
        self.simulation.store().all::<VolumeAttachment>().any(|attachment| {
            attachment.spec.node_name == node_name(n)
                && attachment.spec.source.persistent_volume_name.as_deref() == Some(volume)
        })
    }

    /// Checks the number of nodes that are being recovered.
    pub(crate) fn check_limits(&mut self) {
        let (mut all, mut zones) = (0, BTreeMap::<&str, usize>::new());
        for n in 0..NODES {
            let Some(mark) = self.mark(n).and_then(|mark| serde_json::from_str::<RecoveryAnnotation>(mark).ok()) else {
                continue;
            };
            let phase = self.record(&mark.record).map(|record| record.status.phase);
            let counts = matches!(phase, Some(RecoveryPhase::Planned | RecoveryPhase::Fenced));
            if mark.ended.is_none() && self.has(n, OUT_OF_SERVICE) && counts {
                all += 1;
                *zones.entry(zone(n)).or_default() += 1;
            }
        }
        if all > self.policy.at_once || zones.values().any(|zone| *zone > self.policy.at_once_per_zone) {
            self.violate(format!("{all} nodes are recovered at once, {zones:?} by zone"));
        }
    }

    /// We delete a pod: it has to be planned in a record.
    pub(crate) fn check_deleted(&mut self, uid: &str) {
        if !self.records().any(|record| record.spec.plan.pod(uid).is_some()) {
            self.violate(format!("{uid} is deleted, and is in no plan"));
        }
    }

    /// Checks a record that was written.
    pub(crate) fn check_record(&mut self, record: &NodeRecovery, read: u64) {
        let rest = self.observations[&read].rest;
        if record.status.phase.is_over() {
            self.closed.insert(record.spec.node.name.clone(), rest);
        }
        if record.status.phase != RecoveryPhase::Undone {
            return;
        }
        let n = (0..NODES).find(|n| node_name(*n) == record.spec.node.name).unwrap();
        let ours = self.has(n, OUT_OF_SERVICE) && !self.nodes[n].foreign.contains(OUT_OF_SERVICE);
        let marked = ours && self.mark(n).is_some_and(|mark| mark.contains(record.name()));
        // Pods collected in an earlier attempt during the same boot are not in this plan.
        let planned = |uid: &str| record.spec.plan.pod(uid).is_some_and(|pod| !pod.released_earlier);
        let fence = self.nodes[n].fence.as_ref().filter(|fence| fence.record == record.name());
        let collected =
            fence.and_then(|fence| fence.collected.iter().filter(|(uid, _)| planned(uid)).map(|(_, turn)| *turn).min());
        let kept = record.spec.plan.left_alone.iter().filter(|left| left.added_tolerations.is_some());
        let kept: BTreeSet<&str> = kept.filter_map(|left| left.uid.as_deref()).collect();
        let left = self.with_added_tolerations().into_iter();
        let left = left.filter(|(uid, _)| kept.contains(uid.as_str()));
        let pod = left.map(|(uid, _)| uid).find(|uid| self.pods[uid].patched < rest);
        if let Some(pod) = pod {
            self.violate(format!("{pod} still has added tolerations after the recovery was undone"));
        } else if marked {
            self.violate(format!("n{n} still has the annotation after the recovery was undone"));
        } else if collected.is_some_and(|turn| turn < rest) {
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
        let now = self.simulation.now();
        for m in 0..NODES {
            let connected = self.is_connected(m);
            self.nodes[m].reported |= connected;
        }
        let there: Vec<usize> = (0..NODES).filter(|m| self.node(*m).is_some()).collect();
        let lost = there.iter().filter(|m| self.ready(**m) != Ready::True).count();
        let alive = |m: usize| self.is_on(m) && self.nodes[m].reported;
        let renewed = self.simulation.last_renewal(&node_name(n), now);
        let observation = Observation {
            alive: alive(n),
            most_lost: lost * 2 > there.len(),
            unreachable: self.ready(n) == Ready::Unknown,
            fresh: renewed.is_some_and(|renewed| now.duration_since(renewed) <= LEASE),
            other_alive: there.iter().copied().find(|m| *m != n && self.ready(*m) != Ready::True && alive(*m)),
            shut_down: self.nodes[n].shut_down.map(|since| now.duration_since(since)),
            rest: self.read.turn,
        };
        self.observations.insert(self.turn, observation);
        let Some(record) = record.filter(|record| !record.status.phase.is_over()) else { return };
        let mark = self.mark(n).and_then(|mark| serde_json::from_str::<RecoveryAnnotation>(mark).ok());
        let ours = mark.filter(|mark| mark.record == record.name() && mark.ended.is_none());
        let former = ours.is_some_and(|mark| mark.boot_id != self.boot_id(n));
        if former && !matches!(write, Some(RecoveryWrite::Node { .. })) {
            self.violate(format!("n{n} keeps the taint of an earlier boot"));
        }
    }

    /// Ends all faults. Nodes that are off are recovered; then they come back, and nothing of the recoveries is left.
    pub(crate) fn check_recovery(&mut self) {
        self.faults_over = true;
        self.trace(|| "no more faults".into());
        let scripted: BTreeSet<usize> = self.scripts.iter().map(|script| script.node).collect();
        let (stay_off, others): (Vec<usize>, Vec<usize>) =
            (0..NODES).partition(|n| scripted.contains(n) && self.is_off(*n));
        others.into_iter().for_each(|n| self.set_state(n, State::Up));
        (0..NODES).for_each(|n| self.make_room(n));
        for n in &stay_off {
            self.wait_until(&format!("n{n} recovered"), |run| {
                run.is_recovered(*n, &stay_off) || run.node(*n).is_none() || run.nothing_to_release.contains(n)
            });
        }
        stay_off.into_iter().for_each(|n| self.set_state(n, State::Up));
        self.wait_until("healthy cluster", |run| {
            let clean = |n: usize| run.mark(n).is_none() && !run.has(n, OUT_OF_SERVICE) && run.ready(n) == Ready::True;
            (0..NODES).all(clean)
                && run.records().all(|record| record.status.phase.is_over())
                && run.unready_pods().next().is_none()
        });
        self.check_added_tolerations();
    }

    /// The pods that are not Ready. Those of a ReplicaSet that have ended were replaced.
    fn unready_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let replaced = |pod: &Pod| has_ended(pod) && pod.metadata.generate_name.is_some();
        self.all_pods().filter(move |pod| !is_ready(pod) && !replaced(pod))
    }

    /// A replacement pod on another machine that is off is not Ready before that machine is back.
    fn is_recovered(&self, n: usize, off: &[usize]) -> bool {
        let name = node_name(n);
        let in_phase = |phase: RecoveryPhase| {
            self.records().any(|record| record.spec.node.name == name && record.status.phase == phase)
        };
        let elsewhere = |pod: &Pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            off.iter().any(|m| *m != n && node == Some(&node_name(*m)))
        };
        let waits_for_others = || self.unready_pods().all(|pod| elsewhere(pod));
        in_phase(RecoveryPhase::Recovered) || (in_phase(RecoveryPhase::Released) && waits_for_others())
    }

    /// The pods that tolerate a taint for ever that their workload does not, with their nodes.
    fn with_added_tolerations(&self) -> Vec<(String, Option<String>)> {
        let pods = self.all_pods().filter(|pod| {
            let metadata = &pod.metadata;
            let workload = self.setting.workload_of(metadata.name.as_deref().unwrap());
            let added = match workload.tolerates {
                Tolerates::Nothing | Tolerates::NotReady | Tolerates::OutOfServiceForAMinute => {
                    tolerates_forever(pod, OUT_OF_SERVICE)
                }
                Tolerates::OutOfService => tolerates_forever(pod, "node.kubernetes.io/unreachable"),
                Tolerates::All => false,
            };
            added && metadata.deletion_timestamp.is_none()
        });
        let uid_and_node =
            |pod: &Pod| (pod.metadata.uid.clone().unwrap(), pod.spec.as_ref().and_then(|spec| spec.node_name.clone()));
        pods.map(|pod| uid_and_node(pod)).collect()
    }

    /// No pod has added tolerations any more, except from a recoverer that did not see the end.
    fn check_added_tolerations(&mut self) {
        let closed = |(uid, node): &(String, Option<String>)| {
            let closed = node.as_ref().and_then(|node| self.closed.get(node));
            closed.is_some_and(|closed| self.pods[uid].patched < *closed)
        };
        if let Some((uid, _)) = self.with_added_tolerations().into_iter().find(closed) {
            self.violate(format!("{uid} still has added tolerations after the end"));
        }
    }

    fn wait_until(&mut self, what: &str, holds: impl Fn(&Run) -> bool) {
        let end = self.simulation.now() + RECOVERY_TIME;
        while self.violation.is_none() && !holds(self) {
            if self.simulation.now() >= end {
                let phase = |record: NodeRecovery| {
                    format!("{}: {:?} {}", record.name(), record.status.phase, record.status.message)
                };
                let records: Vec<String> = self.records().map(phase).collect();
                let pods: Vec<_> = self.unready_pods().filter_map(|pod| pod.metadata.name.clone()).collect();
                self.violate(format!("not in time: {what}; {records:?}; not Ready: {pods:?}"));
                return;
            }
            self.other_actors();
            self.pass(TICK * 2);
            for n in 0..NODES {
                if self.violation.is_none() && self.needs_recovery(n) {
                    let end = self.recover_without_faults(n);
                    let nothing = |end: &RecoveryEnd| {
                        let refusal = end.refusal();
                        matches!(refusal, Some(Refusal::NothingToRelease(_) | Refusal::RecordedAsEvidence(_)))
                    };
                    self.nothing_to_release.extend(end.as_ref().filter(|end| nothing(end)).map(|_| n));
                    self.trace(|| format!("carla for n{n}: {end:?}"));
                }
            }
        }
    }
}

/// Whether a pod has succeeded or failed.
pub(crate) fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether the first toleration of this key has no end.
fn tolerates_forever(pod: &Pod, key: &str) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let first = tolerations.iter().find(|toleration| toleration.key.as_deref().is_none_or(|other| other == key));
    first.is_some_and(|toleration| toleration.toleration_seconds.is_none())
}
