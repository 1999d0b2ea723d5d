//! Who has left for good, and is detached.

use super::sight::{SETTLES, Sight, is_friend};
use super::{Act, Decision, Note, NoteReason, Rule, Severity};
use crate::{HostName, Member};

/// Detaches the last that has left, if it may be.
pub(super) fn detach(sight: &Sight<'_>, decision: &mut Decision) {
    let wanted = sight.view.wanted;
    let leaving: Vec<(u32, &Member)> = sight.record.joined().filter(|(o, m)| has_left(sight, *o, m)).collect();
    if leaving.is_empty() {
        return;
    }
    if wanted.replicas == 0 {
        let text = format!("{} is scaled to 0: the pool is kept as it is", wanted.name());
        decision.notes.push(Note::of(None, Severity::Normal, NoteReason::ScaledToZero, text));
        return;
    }
    for (ordinal, member) in leaving.into_iter().rev() {
        if let Some(note) = bricks_kept(sight, ordinal, member).or_else(|| refused(sight, ordinal, decision)) {
            decision.notes.push(note);
        } else if decision.act.is_none() && !decision.step_down {
            let text = format!("{} was scaled away and holds no bricks: detaching it", wanted.pod(ordinal));
            decision.notes.push(Note::normal(ordinal, NoteReason::Detaching, text));
            let host = name_at_the_decider(sight, ordinal, member);
            decision.act = Some(Act::Detach { ordinal, host, uuid: member.uuid });
        }
    }
}

/// The name by which the decider's glusterd knows one: its own name, if that is among them.
fn name_at_the_decider(sight: &Sight<'_>, ordinal: u32, member: &Member) -> HostName {
    let hosts = sight.peer(sight.view.decider, member.uuid).map(|p| p.hosts.as_slice()).unwrap_or_default();
    match hosts.first() {
        Some(first) if !hosts.contains(&member.host) => first.clone(),
        _ => sight.view.wanted.host(ordinal),
    }
}

/// Whether one is not wanted any more. One that is merely away is still wanted.
fn has_left(sight: &Sight<'_>, ordinal: u32, member: &Member) -> bool {
    let away = !sight.words_on(ordinal, member.uuid).iter().any(|(_, p)| p.is_some_and(|p| p.connected));
    !sight.view.wanted.wants(ordinal) || (away && ordinal != sight.view.decider && !sight.rules.hold(Rule::Patience))
}

fn bricks_kept(sight: &Sight<'_>, ordinal: u32, member: &Member) -> Option<Note> {
    let reported = sight.bricks(ordinal, member, sight.view.reports.values());
    let mut volumes: Vec<&str> = member.bricks.iter().chain(&reported).map(|b| &*b.volume).collect();
    volumes.sort_unstable();
    volumes.dedup();
    if volumes.is_empty() || !sight.rules.hold(Rule::Bricks) {
        return None;
    }
    let text = format!(
        "{pod} was scaled away and holds bricks of {volumes}: it stays in the pool; move its bricks to other peers, or scale up again",
        pod = sight.view.wanted.pod(ordinal),
        volumes = volumes.join(", ")
    );
    Some(Note::warning(ordinal, NoteReason::BricksKept, text))
}

/// Why it cannot be done now, if it cannot.
fn refused(sight: &Sight<'_>, ordinal: u32, decision: &mut Decision) -> Option<Note> {
    let pod = sight.view.wanted.pod(ordinal);
    let others: Vec<(u32, &Member)> = sight.record.joined().filter(|(o, _)| *o != ordinal).collect();
    if ordinal == sight.view.decider {
        let another = others.iter().any(|(o, _)| sight.view.wanted.wants(*o) && sight.as_itself(*o).is_some());
        decision.step_down = another;
        let text = format!("{pod} was scaled away and cannot detach itself: another peer has to lead");
        return Some(Note::normal(ordinal, NoteReason::DetachWaits, text));
    }
    if sight.core().is_none() {
        let text = format!("{pod} was scaled away; it is detached when more than half of the pool is connected");
        return Some(Note::normal(ordinal, NoteReason::DetachWaits, text));
    }
    // The decider's glusterd refuses while it does not have all others as friends, connected.
    let away = |(o, m): &&(u32, &Member)| {
        *o != sight.view.decider && !sight.peer(sight.view.decider, m.uuid).is_some_and(is_friend)
    };
    let away: Vec<u32> = others.iter().filter(away).map(|(o, _)| *o).collect();
    if !away.is_empty() {
        let away = sight.pods(away.into_iter());
        let text = format!(
            "{pod} was scaled away; glusterd detaches no peer while another is disconnected: waiting for {away}"
        );
        return Some(Note::normal(ordinal, NoteReason::DetachWaits, text));
    }
    // One that others do not have as a friend would not hear of it, or is about to be repaired.
    let estranged = others.iter().map(|(o, _)| *o).filter(|o| !sight.is_whole_but_for(*o, ordinal));
    let estranged: Vec<u32> = estranged.filter(|_| sight.rules.hold(Rule::OneRepair)).collect();
    if !estranged.is_empty() {
        let estranged = sight.pods(estranged.into_iter());
        let text = format!(
            "{pod} was scaled away; it is detached when all other peers answer and are connected: waiting for {estranged}"
        );
        return Some(Note::normal(ordinal, NoteReason::DetachWaits, text));
    }
    (!sight.has_settled_but_for(ordinal)).then(|| {
        let text = format!("{pod} was scaled away; it is detached when no peer has changed its state for {SETTLES} s");
        Note::normal(ordinal, NoteReason::DetachWaits, text)
    })
}

impl Sight<'_> {
    /// Whether a peer and all others but `but` have each other as friends, connected. Each glusterd has connections of its
    /// own: one that has none to the decider has not told it of its new volumes.
    fn is_whole_but_for(&self, ordinal: u32, but: u32) -> bool {
        let (Some(member), Some(report)) = (self.record.joined_as(ordinal), self.as_itself(ordinal)) else {
            return false;
        };
        let words = self.words_on(ordinal, member.uuid);
        let seen = words.iter().filter(|(w, _)| *w != but).all(|(_, p)| p.is_some_and(is_friend));
        let sees = self
            .record
            .joined()
            .filter(|(o, _)| *o != ordinal && *o != but)
            .all(|(_, m)| report.peers.iter().any(|p| p.uuid == Some(m.uuid) && is_friend(p)));
        seen && sees
    }
}
