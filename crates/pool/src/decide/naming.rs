//! Who is known by an address only, or is looked for at one that it had.

use super::order::{Need, give};
use super::rejected::{STUCK, only_copy};
use super::sight::Sight;
use super::{Act, Decision, Note, NoteReason};
use crate::{HostName, Record, Repair};

/// Has those called by their names whom somebody knows by an address only: when they move, they would not be found. It
/// takes one that knows them so; if that is not the decider, another is to decide.
pub(super) fn name(sight: &Sight<'_>, decision: &mut Decision) {
    // Handing over takes a while: first all come in.
    if decision.step_down || decision.notes.iter().any(|n| n.reason == NoteReason::Joining) {
        return;
    }
    let mut for_another = None;
    for (ordinal, member) in sight.record.joined().filter(|(o, _)| sight.as_itself(*o).is_some()) {
        for (who, _) in sight.words_on(ordinal, member.uuid).into_iter().filter(|(w, _)| sight.is_nameless(*w, ordinal))
        {
            if who == sight.view.decider && !is_taken(sight, &member.host) {
                let (host, uuid) = (member.host.clone(), member.uuid);
                decision.act = Some(Act::Probe { ordinal, host, uuid });
                return;
            }
            if who != sight.view.decider && sight.core().is_none_or(|core| core.contains(&who)) {
                for_another.get_or_insert((who, ordinal));
            }
        }
    }
    if let Some((who, ordinal)) = for_another {
        let (who, whom) = (sight.view.wanted.pod(who), sight.view.wanted.pod(ordinal));
        let text = format!("{who} knows {whom} by its address only: it has to lead, to probe it by its name");
        decision.notes.push(Note::normal(sight.view.decider, NoteReason::StepsDown, text));
        decision.step_down = true;
    }
}

/// Whether the decider has somebody by this name already: glusterd would not ask again.
fn is_taken(sight: &Sight<'_>, host: &HostName) -> bool {
    let own = sight.view.reports.get(&sight.view.decider);
    own.is_some_and(|r| r.peers.iter().any(|p| p.hosts.contains(host)))
}

/// Has the peers of one written anew that looks for another at an address that this one had: it does not find it before
/// its glusterd is started again, with the right names. It is not healthy, whatever the others think of it; bricks run on
/// meanwhile. This has time until nothing else is to be done.
pub(super) fn correct(sight: &Sight<'_>, record: &mut Record, decision: &mut Decision) {
    for (who, report) in sight.record.joined().filter_map(|(o, _)| Some((o, sight.as_itself(o)?))) {
        let pod = sight.view.wanted.pod(who);
        let astray = sight.looked_for_astray(who);
        if astray.is_empty() {
            continue;
        }
        let why = format!("{pod} looks for {} at an old address", sight.pods(astray.iter().copied()));
        decision.notes.push(Note::warning(who, NoteReason::OldAddress, why.clone()));
        if let Some(note) = only_copy(sight, report) {
            decision.notes.push(note);
            continue;
        }
        let stays = astray.iter().any(|whom| sight.since_long(*whom, STUCK));
        let idle = decision.act.is_none() && record.order.is_none() && !decision.step_down;
        if stays && idle && sight.another_comes_back(who).is_none() {
            give(sight, record, who, Need::new(report, Repair::CorrectNames, why));
        }
    }
}
