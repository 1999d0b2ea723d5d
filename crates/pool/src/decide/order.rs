//! The repair that is under way.

use super::sight::Sight;
use super::{Decision, Note};
use crate::{Daemon, Order, PeerState, Record, Repair, Report};

/// How long a pod has to carry out an order, in seconds.
const TO_CARRY_OUT: u64 = 180;

/// How long the pool has, after that, to be whole again.
const TO_SETTLE: u64 = 60;

/// Gives an order; the one before it, if there is one, is replaced.
pub(super) fn give(sight: &Sight<'_>, record: &mut Record, ordinal: u32, repair: Repair, reason: String) {
    let Some(pod) = sight.view.pods.get(&ordinal) else { return };
    let report = sight.view.reports.get(&ordinal);
    record.orders += 1;
    record.order = Some(Order {
        id: record.orders,
        ordinal,
        pod: pod.clone(),
        repair,
        since: sight.view.now,
        volumes: report.map(|r| r.volumes.iter().map(|v| v.name.clone()).collect()).unwrap_or_default(),
        reason,
    });
}

/// Looks how the order goes, and takes it away when it is done or will not be.
pub(super) fn follow(sight: &Sight<'_>, record: &mut Record, decision: &mut Decision) {
    let Some(order) = record.order.clone() else { return };
    let pod = sight.view.wanted.pod(order.ordinal);
    let age = sight.view.now.saturating_sub(order.since);
    let report = sight.view.reports.get(&order.ordinal).filter(|r| r.pod == order.pod);
    let done = report.is_some_and(|r| r.done == Some(order.id));
    let mut end = |note: Note| {
        record.order = None;
        decision.notes.push(note);
    };
    if sight.view.pods.get(&order.ordinal) != Some(&order.pod) {
        end(Note::normal(order.ordinal, "RepairDropped", format!("the {pod} that was to be repaired is gone")));
    } else if is_cured(sight, &order, report) {
        end(Note::normal(order.ordinal, "Repaired", format!("{pod} is repaired")));
    } else if age > if done { TO_SETTLE } else { TO_CARRY_OUT } {
        let text = if done {
            format!("the repair of {pod} was made and it is not whole: it will be tried again ({})", order.reason)
        } else {
            format!("the repair of {pod} was not made in {age} s: it will be tried again ({})", order.reason)
        };
        end(Note::warning(order.ordinal, "RepairFailed", text));
    } else {
        let text = format!("{pod} is being repaired: {}", order.reason);
        decision.notes.push(Note::normal(order.ordinal, "Repairing", text));
    }
}

fn is_cured(sight: &Sight<'_>, order: &Order, report: Option<&Report>) -> bool {
    let done = report.is_some_and(|r| r.done == Some(order.id) && r.daemon == Daemon::Running);
    match order.repair {
        Repair::Forget => done && report.is_some_and(|r| r.peers.is_empty()),
        Repair::RestoreIdentity | Repair::ResyncVolumes => sight.is_whole(order.ordinal),
    }
}

/// Whether an order is still to be carried out, by what the one to be repaired says itself: it is asked right before its
/// glusterd is stopped, so that one that became healthy meanwhile is left alone, and so is one that got a volume that
/// nobody else may have.
pub fn still_needed(order: &Order, record: &Record, own: &Report) -> bool {
    if own.volumes.iter().any(|v| !order.volumes.contains(&v.name)) {
        return false;
    }
    let Some(member) = record.joined_as(order.ordinal) else { return true };
    let others = || record.joined().filter(|(o, _)| *o != order.ordinal);
    let befriended = |uuid: &str| own.peers.iter().any(|p| p.uuid == uuid && p.state == PeerState::Befriended);
    let friends = others().filter(|(_, m)| befriended(&m.uuid)).count();
    let as_itself = own.daemon == Daemon::Running && own.uuid.as_ref() == Some(&member.uuid);
    let count = others().count();
    !(as_itself && friends > 0 && (friends + 1) * 2 > count + 1)
}
