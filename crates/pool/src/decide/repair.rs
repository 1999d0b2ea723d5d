//! Orders repairs of rejected peers. Their own agents carry them out, with glusterd stopped.

use super::pool_view::PoolView;
use super::repair_order::{RepairNeed, give_order};
use super::{Decision, Note, NoteReason, Rule};
use crate::{Peer, PeerState, Record, Repair, Report, VolumeName};

/// How long a handshake may be under way before it counts as stuck, in seconds.
pub(super) const STUCK_SECONDS: u64 = 30;

/// Orders the repair of the first member that needs one.
pub(super) fn order_repairs(pool: &PoolView<'_>, record: &mut Record, decision: &mut Decision) {
    let one_at_a_time = pool.rules.hold(Rule::OneRepair);
    for (ordinal, _) in pool.record.joined() {
        if pool.is_copy(ordinal) {
            continue;
        }
        if pool.rules.hold(Rule::Healthy) && pool.is_healthy(ordinal) {
            note_mutual_rejection(pool, ordinal, decision);
            continue;
        }
        let Some(report) = pool.running(ordinal).filter(|r| pool.view.pods.get(&ordinal) == Some(&r.pod)) else {
            note_waiting(pool, ordinal, decision);
            continue;
        };
        let Some(need) = needed_repair(pool, ordinal, report) else {
            note_waiting(pool, ordinal, decision);
            continue;
        };
        decision.notes.push(Note::warning(ordinal, NoteReason::Rejected, need.reason.clone()));
        if need.repair == Repair::RestoreIdentity
            && let Some(note) = only_copy(pool, report)
        {
            decision.notes.push(note);
            continue;
        }
        if one_at_a_time && record.order.is_some() {
            continue;
        }
        if one_at_a_time && let Some(other) = pool.another_is_starting(ordinal) {
            let text = format!(
                "{} is repaired when {} is running again",
                pool.view.wanted.pod(ordinal),
                pool.view.wanted.pod(other)
            );
            decision.notes.push(Note::normal(ordinal, NoteReason::Waiting, text));
            continue;
        }
        give_order(pool, record, ordinal, need);
    }
}

/// Returns the repair that a running member needs that is not healthy.
fn needed_repair(pool: &PoolView<'_>, ordinal: u32, report: &Report) -> Option<RepairNeed> {
    let restore = |why: String| RepairNeed::new(report, Repair::RestoreIdentity, why);
    let member = pool.record.joined_as(ordinal)?;
    let pod = pool.view.wanted.pod(ordinal);
    let own = report.uuid?;
    let views = pool.views_of(ordinal, member.uuid);
    if own != member.uuid {
        let known = views.iter().any(|(_, p)| p.is_some());
        let why = format!("{pod} has lost its state: its UUID is {own} now, and the pool knows it as {}", member.uuid);
        return known.then(|| restore(why));
    }
    if report.peers.is_empty() && report.volumes.is_empty() && pool.is_unchanged_for(ordinal, STUCK_SECONDS) {
        // It contradicts nobody, and a restore removes nothing from it.
        let known = views.iter().any(|(_, p)| p.is_some());
        return known.then(|| restore(format!("{pod} has its UUID but lists no peers")));
    }
    // Two peers wait for each other: one of them is restored.
    let in_handshake = |p: &Peer| p.connected && !matches!(p.state, PeerState::Befriended | PeerState::Rejected);
    let all_wait = !views.is_empty() && views.iter().all(|(_, p)| p.is_some_and(in_handshake));
    if all_wait
        && pool.core().is_none()
        && ordinal != pool.view.decider
        && pool.is_unchanged_for(ordinal, STUCK_SECONDS)
    {
        return Some(restore(format!("{pod} is stuck joining the pool: {}", member.seen)));
    }
    let rejecters = rejections_by_core(pool, ordinal, report)?;
    let differing = differing_volumes(pool, report);
    if differing.is_empty() {
        return Some(restore(format!("{pod} cannot join the pool: {}", member.seen)));
    }
    let names = differing.join(", ");
    let reason = format!("{pod} is rejected by {rejecters} peers: its definition of {names} differs from theirs");
    // Only volumes that the others have are removed; volumes that only this peer knows stay.
    Some(RepairNeed { repair: Repair::ResyncVolumes, volumes: differing, reason })
}

/// Returns how many peers of the core reject the member, if it has to be repaired. A member that is only disconnected
/// need not be: it and the core still have each other befriended.
fn rejections_by_core(pool: &PoolView<'_>, ordinal: u32, report: &Report) -> Option<usize> {
    let core = pool.core().filter(|core| !core.contains(&ordinal))?;
    let own = report.uuid?;
    let (mut rejections, mut friends) = (0, 0);
    for member in core {
        let uuid = pool.record.joined_as(*member)?.uuid;
        let (from, to) = (pool.peer(*member, own), report.peers.iter().find(|p| p.uuid == Some(uuid)));
        let rejected = |p: Option<&Peer>| p.is_some_and(|p| p.state == PeerState::Rejected && p.connected);
        rejections += usize::from(rejected(from) || rejected(to));
        friends += usize::from(to.is_some_and(|p| p.state == PeerState::Befriended));
    }
    // A peer that is looked for at an old address is only not found.
    let misnamed = core.iter().any(|m| pool.is_misnamed(*m, ordinal) || pool.is_misnamed(ordinal, *m));
    let stuck = friends * 2 <= core.len() && !misnamed && pool.is_unchanged_for(ordinal, STUCK_SECONDS);
    (rejections * 2 > core.len() || stuck).then_some(rejections)
}

/// Volumes of which this pod has a definition that differs from the others' with the same version.
fn differing_volumes(pool: &PoolView<'_>, report: &Report) -> Vec<VolumeName> {
    let differs = |name: &VolumeName, version: Option<u64>, checksum: &Option<String>| {
        pool.witnesses().filter(|(w, _)| *w != report.ordinal).flat_map(|(_, r)| &r.volumes).any(|v| {
            v.name == *name
                && v.version == version
                && v.checksum.is_some()
                && checksum.is_some()
                && v.checksum != *checksum
        })
    };
    let volumes = report.volumes.iter().filter(|v| differs(&v.name, v.version, &v.checksum));
    volumes.map(|v| v.name.clone()).collect()
}

/// Returns why identity and peers of a pod cannot be restored: it has the only copy of something. Volumes are kept, but
/// bricks of volumes that it created under another UUID would belong to a peer that nobody knows.
pub(super) fn only_copy(pool: &PoolView<'_>, report: &Report) -> Option<Note> {
    if !pool.rules.hold(Rule::OnlyCopy) {
        return None;
    }
    let ordinal = report.ordinal;
    let pod = pool.view.wanted.pod(ordinal);
    let volumes = pool.unknown_volumes(report);
    if !volumes.is_empty() && pool.running_as_recorded(ordinal).is_none() {
        let text = format!(
            "{pod} is not repaired: it is the only peer that has volume {}, under another UUID",
            volumes.join(", ")
        );
        return Some(Note::warning(ordinal, NoteReason::OnlyCopy, text));
    }
    let strangers = pool.unknown_peers(report);
    if !strangers.is_empty() {
        let text = format!(
            "{pod} is not repaired: it is the only peer that lists {}; does it belong to another pool?",
            strangers.join(", ")
        );
        return Some(Note::warning(ordinal, NoteReason::OnlyCopy, text));
    }
    None
}

/// Warns of two peers that reject each other while most peers accept both: neither is restarted by the agents. It ends
/// when either is restarted.
fn note_mutual_rejection(pool: &PoolView<'_>, ordinal: u32, decision: &mut Decision) {
    let Some(member) = pool.record.joined_as(ordinal) else { return };
    let views = pool.views_of(ordinal, member.uuid);
    let rejecters = views.iter().filter(|(_, p)| p.is_some_and(|p| p.state == PeerState::Rejected));
    for (who, _) in rejecters.filter(|(who, _)| pool.is_healthy(*who) && *who < ordinal) {
        let (a, b) = (pool.view.wanted.pod(*who), pool.view.wanted.pod(ordinal));
        let text =
            format!("{a} and {b} reject each other, and most other peers accept both: restart one of the two pods");
        decision.notes.push(Note::warning(ordinal, NoteReason::Quarrel, text));
    }
}

/// Notes that a peer is waited for: it is disconnected, or nothing can be done for it now.
fn note_waiting(pool: &PoolView<'_>, ordinal: u32, decision: &mut Decision) {
    let Some(member) = pool.record.joined_as(ordinal) else { return };
    if !pool.view.wanted.includes(ordinal) || pool.is_whole(ordinal) {
        return;
    }
    let pod = pool.view.wanted.pod(ordinal);
    let views = pool.views_of(ordinal, member.uuid);
    let rejecters = views.iter().filter(|(_, p)| p.is_some_and(|p| p.state == PeerState::Rejected)).count();
    if rejecters > 0 && pool.running_as_recorded(ordinal).is_some() {
        let text = format!(
            "{pod} is rejected by {rejecters} of its peers; it is repaired when more than half of all {} peers reject it",
            pool.size()
        );
        decision.notes.push(Note::warning(ordinal, NoteReason::Rejected, text));
        return;
    }
    let doing = pool.view.reports.get(&ordinal).and_then(|r| r.doing.as_ref());
    let text = match doing {
        Some(doing) => format!("waiting for {pod}: {} ({doing})", member.seen),
        None => format!("waiting for {pod}: {}", member.seen),
    };
    decision.notes.push(Note::normal(ordinal, NoteReason::Waiting, text));
}
