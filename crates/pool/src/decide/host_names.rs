//! Corrects peers that are known by an address only, or by an old address.

use super::pool_view::PoolView;
use super::repair::{STUCK_SECONDS, only_copy};
use super::repair_order::{Need, give};
use super::{Decision, Note, NoteReason, PeerCommand};
use crate::{HostName, Record, Repair};

/// Has those called by their names whom somebody knows by an address only: when they move, they would not be found. It
/// takes one that knows them so; if that is not the decider, another is to decide.
pub(super) fn probe_by_name(pool: &PoolView<'_>, decision: &mut Decision) {
    // Handing over takes a while: first all come in.
    if decision.step_down || decision.notes.iter().any(|n| n.reason == NoteReason::Joining) {
        return;
    }
    let mut for_another = None;
    for (ordinal, member) in pool.record.joined().filter(|(o, _)| pool.running_as_recorded(*o).is_some()) {
        for (who, _) in pool.views_of(ordinal, member.uuid).into_iter().filter(|(w, _)| pool.is_nameless(*w, ordinal)) {
            if who == pool.view.decider && !is_taken(pool, &member.host) {
                let (host, uuid) = (member.host.clone(), member.uuid);
                decision.act = Some(PeerCommand::Probe { ordinal, host, uuid });
                return;
            }
            if who != pool.view.decider && pool.core().is_none_or(|core| core.contains(&who)) {
                for_another.get_or_insert((who, ordinal));
            }
        }
    }
    if let Some((who, ordinal)) = for_another {
        let (who, whom) = (pool.view.wanted.pod(who), pool.view.wanted.pod(ordinal));
        let text = format!("{who} knows {whom} by its address only: it has to lead, to probe it by its name");
        decision.notes.push(Note::normal(pool.view.decider, NoteReason::StepsDown, text));
        decision.step_down = true;
    }
}

/// Whether the decider has somebody by this name already: glusterd would not ask again.
fn is_taken(pool: &PoolView<'_>, host: &HostName) -> bool {
    let own = pool.view.reports.get(&pool.view.decider);
    own.is_some_and(|r| r.peers.iter().any(|p| p.hosts.contains(host)))
}

/// Has the peers of one written anew that looks for another at an address that this one had: it does not find it before
/// its glusterd is started again, with the right names. It is not healthy, whatever the others think of it; bricks run on
/// meanwhile. This has time until nothing else is to be done.
pub(super) fn correct(pool: &PoolView<'_>, record: &mut Record, decision: &mut Decision) {
    for (who, report) in pool.record.joined().filter_map(|(o, _)| Some((o, pool.running_as_recorded(o)?))) {
        let pod = pool.view.wanted.pod(who);
        let astray = pool.sought_at_old_address(who);
        if astray.is_empty() {
            continue;
        }
        let why = format!("{pod} looks for {} at an old address", pool.pods(astray.iter().copied()));
        decision.notes.push(Note::warning(who, NoteReason::OldAddress, why.clone()));
        if let Some(note) = only_copy(pool, report) {
            decision.notes.push(note);
            continue;
        }
        let stays = astray.iter().any(|whom| pool.is_unchanged_for(*whom, STUCK_SECONDS));
        let idle = decision.act.is_none() && record.order.is_none() && !decision.step_down;
        if stays && idle && pool.another_is_starting(who).is_none() {
            give(pool, record, who, Need::new(report, Repair::CorrectNames, why));
        }
    }
}
