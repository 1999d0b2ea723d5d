//! Who is known by an address only, or is looked for at one that it had.

use super::sight::Sight;
use super::{Act, Decision, Note};

/// Has those called by their names whom somebody knows by an address only: when they move, they would not be found. It
/// takes one that knows them so; if that is not the decider, another is to decide.
pub(super) fn name(sight: &Sight<'_>, decision: &mut Decision) {
    // Handing over takes a while: first all come in.
    if decision.step_down || decision.notes.iter().any(|n| n.reason == "Joining") {
        return;
    }
    let mut for_another = None;
    for (ordinal, member) in sight.record.joined().filter(|(o, _)| sight.as_itself(*o).is_some()) {
        for (who, _) in
            sight.words_on(ordinal, &member.uuid).into_iter().filter(|(w, _)| sight.is_nameless(*w, ordinal))
        {
            if who == sight.view.decider && !is_taken(sight, &member.host) {
                let (host, uuid) = (member.host.clone(), member.uuid.clone());
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
        let text = format!("{who} knows {whom} by its address only: it is to decide, and to call it by its name");
        decision.notes.push(Note::normal(sight.view.decider, "StepsDown", text));
        decision.step_down = true;
    }
}

/// Whether the decider has somebody by this name already: glusterd would not ask again.
fn is_taken(sight: &Sight<'_>, host: &String) -> bool {
    let own = sight.view.reports.get(&sight.view.decider);
    own.is_some_and(|r| r.peers.iter().any(|p| p.hosts.contains(host)))
}

/// Notes who does not find another, because it calls it by an address that it had: glusterd calls a friend by the first
/// name it has of it. It gets the right one when its pod is started again, and healthy peers are not restarted for it.
pub(super) fn note_old_names(sight: &Sight<'_>, decision: &mut Decision) {
    for (ordinal, member) in sight.record.joined().filter(|(o, _)| sight.as_itself(*o).is_some()) {
        for (who, peer) in sight.words_on(ordinal, &member.uuid) {
            if peer.is_some_and(|p| !p.connected && p.hosts.first().is_some_and(|h| *h != member.host)) {
                let (who_pod, whom) = (sight.view.wanted.pod(who), sight.view.wanted.pod(ordinal));
                let text = format!(
                    "{who_pod} looks for {whom} at an address that it had: restart {who_pod}, and it will know its name"
                );
                decision.notes.push(Note::warning(who, "OldAddress", text));
            }
        }
    }
}
