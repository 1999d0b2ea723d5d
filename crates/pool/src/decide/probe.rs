//! Probes pods that are not members yet.

use super::pool_view::PoolView;
use super::repair_order::{RepairNeed, give_order};
use super::{Decision, Note, NoteReason, PeerCommand, Rule};
use crate::{Member, PeerState, Record, Repair, Report};

/// Probes the first pod that is missing.
pub(super) fn probe_missing(pool: &PoolView<'_>, record: &mut Record, decision: &mut Decision) {
    let wanted = pool.view.wanted;
    for (ordinal, report) in pool.view.reports {
        if pool.record.joined_as(*ordinal).is_some_and(|m| !is_forgotten(pool, *ordinal, m))
            || !wanted.includes(*ordinal)
            || pool.is_copy(*ordinal)
        {
            continue;
        }
        if pool.running(*ordinal).is_none() {
            note_reason_of_wait(pool, report, decision);
            continue;
        }
        let Some(uuid) = report.uuid else { continue };
        let pod = wanted.pod(*ordinal);
        let forgotten = pool.record.joined_as(*ordinal).is_some();
        let listed = pool.witnesses().any(|(w, _)| pool.peer(w, uuid).is_some());
        if (listed && !forgotten) || is_being_probed(pool, *ordinal) {
            decision.notes.push(Note::normal(*ordinal, NoteReason::Joining, format!("{pod} is joining the pool")));
            continue;
        }
        // A pod that was never recorded and lists the decider as befriended was probed by a peer that has lost its
        // state since.
        let unrecorded = !pool.record.members.contains_key(ordinal) && lists_decider_as_friend(pool, report);
        let forgotten = forgotten || unrecorded;
        match if forgotten { OldState::None } else { old_state(pool, report) } {
            OldState::None if pool.core().is_none() && !forgotten => {
                let text = format!("{pod} is probed when more than half of the pool is connected");
                decision.notes.push(Note::normal(*ordinal, NoteReason::Waiting, text));
            }
            OldState::None if decision.act.is_none() && record.order.is_none() && !decision.step_down => {
                decision.notes.push(Note::normal(*ordinal, NoteReason::Probing, format!("probing {pod}")));
                decision.act = Some(PeerCommand::Probe { ordinal: *ordinal, host: wanted.host(*ordinal), uuid });
            }
            OldState::None => {}
            OldState::OfThisPool => {
                let why = format!("{pod} was detached while it was disconnected, and still lists its old peers");
                decision.notes.push(Note::warning(*ordinal, NoteReason::Detached, why.clone()));
                let idle = record.order.is_none() && decision.act.is_none();
                if idle && pool.another_is_starting(*ordinal).is_none() && pool.is_settled_except(*ordinal) {
                    give_order(pool, record, *ordinal, RepairNeed::new(report, Repair::Forget, why));
                }
            }
            OldState::Others(text) => decision.notes.push(Note::warning(*ordinal, NoteReason::OtherPool, text)),
        }
    }
}

/// Notes why a pod does not start.
fn note_reason_of_wait(pool: &PoolView<'_>, report: &Report, decision: &mut Decision) {
    if let Some(doing) = &report.doing {
        let text = format!("waiting for {}, which is not in the pool: {doing}", pool.view.wanted.pod(report.ordinal));
        decision.notes.push(Note::normal(report.ordinal, NoteReason::Waiting, text));
    }
}

/// Whether a member lists the decider as befriended, and neither the decider nor its befriended peers list the member:
/// no peer would introduce it. A probe by the decider is enough.
fn is_forgotten(pool: &PoolView<'_>, ordinal: u32, member: &Member) -> bool {
    let lists_the_decider = pool.running_as_recorded(ordinal).is_some_and(|r| lists_decider_as_friend(pool, r));
    let decider = pool.view.decider;
    let mut views = pool.views_of(ordinal, member.uuid).into_iter();
    let unlisted = views.all(|(who, p)| p.is_none() || (who != decider && !pool.are_friends(decider, who)));
    lists_the_decider && ordinal != decider && unlisted
}

fn lists_decider_as_friend(pool: &PoolView<'_>, report: &Report) -> bool {
    let decider = pool.record.joined_as(pool.view.decider).map(|m| m.uuid);
    decider.is_some() && report.peers.iter().any(|p| p.uuid == decider && p.state == PeerState::Befriended)
}

/// Whether the decider waits for the pod's answer to a probe.
fn is_being_probed(pool: &PoolView<'_>, ordinal: u32) -> bool {
    let peers = pool.view.reports.get(&pool.view.decider).map(|r| r.peers.as_slice()).unwrap_or_default();
    peers.iter().any(|p| p.hosts.iter().any(|h| pool.view.wanted.ordinal(h) == Some(ordinal)))
}

/// The old state of a pod that is not a member.
enum OldState {
    /// None: it can be probed.
    None,
    /// Peers and volumes of this pool, which still has them.
    OfThisPool,
    /// Peers or volumes that this pool does not have.
    Others(String),
}

fn old_state(pool: &PoolView<'_>, report: &Report) -> OldState {
    if report.peers.is_empty() && report.volumes.is_empty() {
        return OldState::None;
    }
    let pod = pool.view.wanted.pod(report.ordinal);
    let strangers = pool.unknown_peers(report);
    let keep = pool.rules.hold(Rule::OnlyCopy);
    if keep && !strangers.is_empty() {
        return OldState::Others(format!(
            "{pod} cannot join: it belongs to another pool, with {}",
            strangers.join(", ")
        ));
    }
    let volumes = pool.unknown_volumes(report);
    if keep && !volumes.is_empty() {
        return OldState::Others(format!(
            "{pod} cannot join: it is the only peer that has volume {}",
            volumes.join(", ")
        ));
    }
    OldState::OfThisPool
}
