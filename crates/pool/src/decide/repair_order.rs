//! The repair in progress.

use std::collections::BTreeMap;

use super::pool_view::{PoolView, is_lost_by_name};
use super::{Decision, DecisionInput, Note, NoteReason};
use crate::{Daemon, Member, Peer, PeerState, Record, Repair, RepairOrder, Report, VolumeName};

/// How long a pod has to carry out an order, in seconds.
const REPAIR_SECONDS: u64 = 180;

/// How long the pool has, after that, to be whole again.
const RECOVER_SECONDS: u64 = 60;

/// A repair that a pod needs, and why.
pub(super) struct RepairNeed {
    pub(super) repair: Repair,
    /// The volumes to remove; for repairs that remove none, the volumes that the pod has.
    pub(super) volumes: Vec<VolumeName>,
    pub(super) reason: String,
}

impl RepairNeed {
    pub(super) fn new(report: &Report, repair: Repair, reason: String) -> RepairNeed {
        RepairNeed { repair, volumes: report.volumes.iter().map(|v| v.name.clone()).collect(), reason }
    }
}

/// Gives a repair order; replaces the previous one, if any.
pub(super) fn give_order(pool: &PoolView<'_>, record: &mut Record, ordinal: u32, need: RepairNeed) {
    let Some(pod) = pool.view.pods.get(&ordinal) else { return };
    let RepairNeed { repair, volumes, reason } = need;
    record.orders += 1;
    record.order = Some(RepairOrder {
        id: record.orders,
        ordinal,
        pod: pod.clone(),
        repair,
        since: pool.view.now,
        made: None,
        withdrawn: false,
        volumes,
        reason,
    });
}

/// Removes the order for a pod that no longer exists: no other pod carries it out. Kubernetes tells this, so no
/// majority of peers is needed.
pub(super) fn drop_if_gone(view: &DecisionInput<'_>, record: &mut Record, decision: &mut Decision) {
    if let Some(order) = record.order.take_if(|o| view.pods.get(&o.ordinal) != Some(&o.pod)) {
        let text = format!("pod {} was to be repaired and no longer exists", view.wanted.pod(order.ordinal));
        decision.notes.push(Note::normal(order.ordinal, NoteReason::RepairDropped, text));
    }
}

/// Follows the progress of the order. It is removed only when the agent has reported that it is done with it: a report
/// can be older than the moment in which the agent stopped its glusterd, and the next order would be a second repair at
/// the same time.
pub(super) fn follow(pool: &PoolView<'_>, record: &mut Record, decision: &mut Decision) {
    let Some(mut order) = record.order.clone() else { return };
    let pod = pool.view.wanted.pod(order.ordinal);
    let age = pool.view.now.saturating_sub(order.since);
    let report = pool.view.reports.get(&order.ordinal).filter(|r| r.pod == order.pod);
    let done = report.is_some_and(|r| r.done == Some(order.id));
    if done && order.made.is_none() {
        order.made = Some(pool.view.now);
        record.order = Some(order.clone());
    }
    let late = match order.made {
        Some(made) => pool.view.now.saturating_sub(made) > RECOVER_SECONDS,
        None => age > REPAIR_SECONDS,
    };
    let finished = done && report.is_some_and(|r| r.daemon == Daemon::Running);
    if finished && is_repaired(pool, &order, report) {
        record.order = None;
        decision.notes.push(Note::normal(order.ordinal, NoteReason::Repaired, format!("{pod} is repaired")));
    } else if finished && order.withdrawn {
        record.order = None;
        let text = format!("the repair of {pod} was withdrawn");
        decision.notes.push(Note::normal(order.ordinal, NoteReason::RepairDropped, text));
    } else if late && order.made.is_some() {
        record.order = None;
        let text = format!("the repair of {pod} did not help: it will be tried again ({})", order.reason);
        decision.notes.push(Note::warning(order.ordinal, NoteReason::RepairFailed, text));
    } else if late && report.is_some() {
        let text = format!(
            "{pod} did not carry out its repair within {REPAIR_SECONDS} s: it will be tried again ({})",
            order.reason
        );
        decision.notes.push(Note::warning(order.ordinal, NoteReason::RepairFailed, text));
        record.order = Some(RepairOrder { withdrawn: true, ..order });
    } else if late {
        // It may be in progress: another repair would be a second one at the same time.
        let text = format!(
            "{pod} is being repaired and does not answer: no other peer is repaired until it answers or its pod is deleted"
        );
        decision.notes.push(Note::warning(order.ordinal, NoteReason::Repairing, text));
    } else {
        let text = format!("{pod} is being repaired: {}", order.reason);
        decision.notes.push(Note::normal(order.ordinal, NoteReason::Repairing, text));
    }
}

/// Whether a pod whose agent is done with an order is as intended.
fn is_repaired(pool: &PoolView<'_>, order: &RepairOrder, report: Option<&Report>) -> bool {
    match order.repair {
        Repair::Forget => report.is_some_and(|r| r.peers.is_empty()),
        Repair::RestoreIdentity | Repair::ResyncVolumes => pool.is_whole(order.ordinal),
        Repair::CorrectNames => pool.peers_at_old_address(order.ordinal).is_empty(),
    }
}

/// Whether an order removes only what at least one of the `others` that answer has. Checked right before a glusterd is
/// stopped: time has passed since the order was given.
pub fn loses_nothing(order: &RepairOrder, own: &Report, others: &BTreeMap<u32, Report>) -> bool {
    let elsewhere = |name: &VolumeName| others.values().any(|r| r.volumes.iter().any(|v| v.name == *name));
    match order.repair {
        Repair::ResyncVolumes => order.volumes.iter().all(elsewhere),
        Repair::Forget => own.volumes.iter().all(|v| elsewhere(&v.name)),
        Repair::RestoreIdentity => own.volumes.iter().all(|v| order.volumes.contains(&v.name)),
        Repair::CorrectNames => true,
    }
}

/// Whether an order is still needed, according to the pod itself. Checked right before its glusterd is stopped, so that
/// a pod that became healthy is left alone.
pub fn still_needed(order: &RepairOrder, record: &Record, own: &Report) -> bool {
    if order.repair == Repair::CorrectNames {
        let not_found = |m: &Member| own.peers.iter().any(|p| p.uuid == Some(m.uuid) && is_lost_by_name(p, m));
        return record.joined().any(|(_, m)| not_found(m));
    }
    let Some(member) = record.joined_as(order.ordinal) else { return true };
    let others = || record.joined().filter(|(o, _)| *o != order.ordinal);
    let listed = |state: PeerState, connected: bool| {
        let is_so = |p: &Peer| p.state == state && (p.connected || !connected);
        others().filter(|(_, m)| own.peers.iter().any(|p| p.uuid == Some(m.uuid) && is_so(p))).count()
    };
    let friends = listed(PeerState::Befriended, false);
    // Disconnected peers may have forgotten this one: the connected ones decide.
    let rejected = listed(PeerState::Rejected, true) > listed(PeerState::Befriended, true);
    let running_as_recorded = own.daemon == Daemon::Running && own.uuid == Some(member.uuid);
    let count = others().count();
    !(running_as_recorded && friends > 0 && (friends + 1) * 2 > count + 1 && !rejected)
}

#[cfg(test)]
mod tests {
    use crate::{DecisionInput, HostName, PeerId, PoolSpec, decide};

    use super::*;

    fn uuid(ordinal: u32) -> PeerId {
        format!("00000000-0000-4000-8000-00000000000{}", ordinal + 1).parse().expect("a UUID")
    }

    fn host(ordinal: u32) -> HostName {
        format!("g-{ordinal}.d").parse().expect("a host name")
    }

    fn member(ordinal: u32) -> (u32, Member) {
        let member = Member::joined(host(ordinal), uuid(ordinal), 100_000);
        (ordinal, member)
    }

    /// The report of a pod; the last pod and the others reject each other.
    fn report(ordinal: u32) -> (u32, Report) {
        let peer = |other: u32| Peer {
            uuid: Some(uuid(other)),
            hosts: vec![host(other)],
            state: if ordinal == 2 || other == 2 { PeerState::Rejected } else { PeerState::Befriended },
            connected: true,
        };
        let report = Report {
            ordinal,
            pod: format!("uid-{ordinal}"),
            address: host(ordinal),
            daemon: Daemon::Running,
            uuid: Some(uuid(ordinal)),
            operating_version: Some(100_000),
            peers: (0..3).filter(|other| *other != ordinal).map(peer).collect(),
            volumes: Vec::new(),
            heals: Some(0),
            stuck_bricks: Vec::new(),
            done: None,
            doing: None,
        };
        (ordinal, report)
    }

    #[test]
    fn the_pool_has_time_to_recover_after_a_repair() {
        let wanted = PoolSpec::new("g", "d", 3, 0).expect("host names");
        let pods: BTreeMap<u32, String> = (0..3).map(|o| (o, format!("uid-{o}"))).collect();
        for (made, done, age, reason) in [
            (None, None, REPAIR_SECONDS, NoteReason::Repairing),
            (None, None, REPAIR_SECONDS + 1, NoteReason::RepairFailed),
            (None, Some(1), REPAIR_SECONDS, NoteReason::Repairing),
            (None, Some(1), REPAIR_SECONDS + 1, NoteReason::Repairing),
            (Some(10), Some(1), 10 + RECOVER_SECONDS, NoteReason::Repairing),
            (Some(10), Some(1), 10 + RECOVER_SECONDS + 1, NoteReason::RepairFailed),
            (Some(REPAIR_SECONDS), Some(1), REPAIR_SECONDS + RECOVER_SECONDS, NoteReason::Repairing),
            (Some(REPAIR_SECONDS), Some(1), REPAIR_SECONDS + RECOVER_SECONDS + 1, NoteReason::RepairFailed),
        ] {
            let order = RepairOrder {
                id: 1,
                ordinal: 2,
                pod: "uid-2".into(),
                repair: Repair::RestoreIdentity,
                since: 1000,
                made: made.map(|made| 1000 + made),
                withdrawn: false,
                volumes: Vec::new(),
                reason: "it is rejected".into(),
            };
            let record = Record { members: (0..3).map(member).collect(), order: Some(order), orders: 1 };
            let mut reports: BTreeMap<u32, Report> = (0..3).map(report).collect();
            if let Some(last) = reports.get_mut(&2) {
                last.done = done;
            }
            let now = 1000 + age;
            let (wanted, record, reports, pods) = (&wanted, &record, &reports, &pods);
            let decision = decide(&DecisionInput { wanted, record, reports, pods, decider: 0, now });
            assert!(
                decision.notes.iter().any(|n| n.reason == reason),
                "{made:?}, {done:?}, {age} s: {:?}",
                decision.notes
            );
            let noted = decision.record.and_then(|r| r.order).filter(|o| o.id == 1).and_then(|o| o.made);
            if reason == NoteReason::Repairing && done.is_some() {
                assert_eq!(noted, Some(1000 + made.unwrap_or(age)), "{made:?}, {done:?}, {age} s");
            }
        }
    }
}
