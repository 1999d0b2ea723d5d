//! Corrects peers that are known by an address only, or by an old address.

use super::pool_view::PoolView;
use super::repair::{STUCK_SECONDS, only_copy};
use super::repair_order::{RepairNeed, give_order};
use super::{Decision, Note, NoteReason, PeerCommand};
use crate::{HostName, Record, Repair};

/// Probes peers by name that another peer knows by an address only: with a new address, they would not be found. The
/// peer that knows them so has to run the probe; if it is not the decider, it has to lead first.
pub(super) fn probe_by_name(pool: &PoolView<'_>, decision: &mut Decision) {
    // First all pods join: a change of the leader takes a while.
    if decision.step_down || decision.notes.iter().any(|n| n.reason == NoteReason::Joining) {
        return;
    }
    let mut by_another = None;
    for (ordinal, member) in pool.record.joined().filter(|(o, _)| pool.running_as_recorded(*o).is_some()) {
        for (who, _) in
            pool.views_of(ordinal, member.uuid).into_iter().filter(|(w, _)| pool.is_known_by_address_only(*w, ordinal))
        {
            if who == pool.view.decider && !is_name_known(pool, &member.host) {
                let (host, uuid) = (member.host.clone(), member.uuid);
                decision.act = Some(PeerCommand::Probe { ordinal, host, uuid });
                return;
            }
            if who != pool.view.decider && pool.core().is_none_or(|core| core.contains(&who)) {
                by_another.get_or_insert((who, ordinal));
            }
        }
    }
    if let Some((who, ordinal)) = by_another {
        let (who, whom) = (pool.view.wanted.pod(who), pool.view.wanted.pod(ordinal));
        let text = format!("{who} knows {whom} by its address only: it has to lead, to probe it by its name");
        decision.notes.push(Note::normal(pool.view.decider, NoteReason::StepsDown, text));
        decision.step_down = true;
    }
}

/// Whether the decider already lists a peer with this name: then glusterd does not probe it again.
fn is_name_known(pool: &PoolView<'_>, host: &HostName) -> bool {
    let own = pool.view.reports.get(&pool.view.decider);
    own.is_some_and(|r| r.peers.iter().any(|p| p.hosts.contains(host)))
}

/// Orders a repair of a peer that looks for another one at an old address: it does not find it until its glusterd is
/// restarted with the right names. Bricks keep running during the repair. It is done only if nothing else is to be
/// done.
pub(super) fn correct(pool: &PoolView<'_>, record: &mut Record, decision: &mut Decision) {
    for (who, report) in pool.record.joined().filter_map(|(o, _)| Some((o, pool.running_as_recorded(o)?))) {
        let pod = pool.view.wanted.pod(who);
        let not_found = pool.peers_at_old_address(who);
        if not_found.is_empty() {
            continue;
        }
        let why = format!("{pod} looks for {} at an old address", pool.pods(not_found.iter().copied()));
        decision.notes.push(Note::warning(who, NoteReason::OldAddress, why.clone()));
        if let Some(note) = only_copy(pool, report) {
            decision.notes.push(note);
            continue;
        }
        let stays = not_found.iter().any(|whom| pool.is_unchanged_for(*whom, STUCK_SECONDS));
        let idle = decision.act.is_none() && record.order.is_none() && !decision.step_down;
        if stays && idle && pool.another_is_starting(who).is_none() {
            give_order(pool, record, who, RepairNeed::new(report, Repair::CorrectNames, why));
        }
    }
}
