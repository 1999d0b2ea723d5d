//! Who is rejected, and how it is cured: by its own agent, with its glusterd stopped.

use super::order::{Need, give};
use super::sight::Sight;
use super::{Decision, Note, NoteReason, Rule};
use crate::{Peer, PeerState, Record, Repair, Report, VolumeName};

/// How long a handshake may be under way before it counts as stuck, in seconds.
pub(super) const STUCK: u64 = 30;

/// Orders the cure of the first that needs one.
pub(super) fn cure(sight: &Sight<'_>, record: &mut Record, decision: &mut Decision) {
    let one_at_a_time = sight.rules.hold(Rule::OneRepair);
    for (ordinal, _) in sight.record.joined() {
        if sight.is_copy(ordinal) {
            continue;
        }
        if sight.rules.hold(Rule::Healthy) && sight.is_healthy(ordinal) {
            note_quarrel(sight, ordinal, decision);
            continue;
        }
        let Some(report) = sight.running(ordinal).filter(|r| sight.view.pods.get(&ordinal) == Some(&r.pod)) else {
            wait_for(sight, ordinal, decision);
            continue;
        };
        let Some(need) = needs(sight, ordinal, report) else {
            wait_for(sight, ordinal, decision);
            continue;
        };
        decision.notes.push(Note::warning(ordinal, NoteReason::Rejected, need.reason.clone()));
        if need.repair == Repair::RestoreIdentity
            && let Some(note) = only_copy(sight, report)
        {
            decision.notes.push(note);
            continue;
        }
        if one_at_a_time && record.order.is_some() {
            continue;
        }
        if one_at_a_time && let Some(other) = sight.another_comes_back(ordinal) {
            let text = format!(
                "{} is repaired when {} is running again",
                sight.view.wanted.pod(ordinal),
                sight.view.wanted.pod(other)
            );
            decision.notes.push(Note::normal(ordinal, NoteReason::Waiting, text));
            continue;
        }
        give(sight, record, ordinal, need);
    }
}

/// What one needs that runs and is not healthy.
fn needs(sight: &Sight<'_>, ordinal: u32, report: &Report) -> Option<Need> {
    let restore = |why: String| Need::new(report, Repair::RestoreIdentity, why);
    let member = sight.record.joined_as(ordinal)?;
    let pod = sight.view.wanted.pod(ordinal);
    let own = report.uuid?;
    let words = sight.words_on(ordinal, member.uuid);
    if own != member.uuid {
        let known = words.iter().any(|(_, p)| p.is_some());
        let why = format!("{pod} has lost its state: its UUID is {own} now, and the pool knows it as {}", member.uuid);
        return known.then(|| restore(why));
    }
    if report.peers.is_empty() && report.volumes.is_empty() && sight.since_long(ordinal, STUCK) {
        // It contradicts nobody, and nothing is taken from it.
        let known = words.iter().any(|(_, p)| p.is_some());
        return known.then(|| restore(format!("{pod} has its UUID but lists no peers")));
    }
    // Two that wait for each other: both say so, and one of them begins anew.
    let in_between = |p: &Peer| p.connected && !matches!(p.state, PeerState::Befriended | PeerState::Rejected);
    let all_wait = !words.is_empty() && words.iter().all(|(_, p)| p.is_some_and(in_between));
    if all_wait && sight.core().is_none() && ordinal != sight.view.decider && sight.since_long(ordinal, STUCK) {
        return Some(restore(format!("{pod} is stuck joining the pool: {}", member.seen)));
    }
    let rejecters = estranged(sight, ordinal, report)?;
    let differing = differing_volumes(sight, report);
    if differing.is_empty() {
        return Some(restore(format!("{pod} cannot join the pool: {}", member.seen)));
    }
    let names = differing.join(", ");
    let reason = format!("{pod} is rejected by {rejecters} peers: its definition of {names} differs from theirs");
    // Only these are taken away, which the others have: volumes that it alone knows come into the pool with it.
    Some(Need { repair: Repair::ResyncVolumes, volumes: differing, reason })
}

/// Whether one has fallen out with the core of the pool, and how many of that reject it. One that merely has no
/// connection has not: it and the core still call each other friends.
fn estranged(sight: &Sight<'_>, ordinal: u32, report: &Report) -> Option<usize> {
    let core = sight.core().filter(|core| !core.contains(&ordinal))?;
    let own = report.uuid?;
    let (mut rejections, mut friends) = (0, 0);
    for member in core {
        let uuid = sight.record.joined_as(*member)?.uuid;
        let (from, to) = (sight.peer(*member, own), report.peers.iter().find(|p| p.uuid == Some(uuid)));
        let rejected = |p: Option<&Peer>| p.is_some_and(|p| p.state == PeerState::Rejected && p.connected);
        rejections += usize::from(rejected(from) || rejected(to));
        friends += usize::from(to.is_some_and(|p| p.state == PeerState::Befriended));
    }
    // One that is looked for at an old address is only not found.
    let misnamed = core.iter().any(|m| sight.is_misnamed(*m, ordinal) || sight.is_misnamed(ordinal, *m));
    let stuck = friends * 2 <= core.len() && !misnamed && sight.since_long(ordinal, STUCK);
    (rejections * 2 > core.len() || stuck).then_some(rejections)
}

/// Volumes of which this one has another definition than the others, at the same version.
fn differing_volumes(sight: &Sight<'_>, report: &Report) -> Vec<VolumeName> {
    let differs = |name: &VolumeName, version: Option<u64>, checksum: &Option<String>| {
        sight.witnesses().filter(|(w, _)| *w != report.ordinal).flat_map(|(_, r)| &r.volumes).any(|v| {
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

/// Why one cannot have its identity and its peers written anew: it is the only copy of something. Volumes stay where they
/// are, but those that it made under another identity have their bricks at somebody whom nobody would know then.
pub(super) fn only_copy(sight: &Sight<'_>, report: &Report) -> Option<Note> {
    if !sight.rules.hold(Rule::OnlyCopy) {
        return None;
    }
    let ordinal = report.ordinal;
    let pod = sight.view.wanted.pod(ordinal);
    let volumes = sight.volumes_of_its_own(report);
    if !volumes.is_empty() && sight.as_itself(ordinal).is_none() {
        let text = format!(
            "{pod} is not repaired: it is the only peer that has volume {}, under another UUID",
            volumes.join(", ")
        );
        return Some(Note::warning(ordinal, NoteReason::OnlyCopy, text));
    }
    let strangers = sight.friends_of_its_own(report);
    if !strangers.is_empty() {
        let text = format!(
            "{pod} is not repaired: it is the only peer that lists {}; does it belong to another pool?",
            strangers.join(", ")
        );
        return Some(Note::warning(ordinal, NoteReason::OnlyCopy, text));
    }
    None
}

/// Two that most of the pool has as friends and that reject each other: neither is restarted for that, but somebody should
/// know. It passes when either of them is restarted.
fn note_quarrel(sight: &Sight<'_>, ordinal: u32, decision: &mut Decision) {
    let Some(member) = sight.record.joined_as(ordinal) else { return };
    let words = sight.words_on(ordinal, member.uuid);
    let rejecters = words.iter().filter(|(_, p)| p.is_some_and(|p| p.state == PeerState::Rejected));
    for (who, _) in rejecters.filter(|(who, _)| sight.is_healthy(*who) && *who < ordinal) {
        let (a, b) = (sight.view.wanted.pod(*who), sight.view.wanted.pod(ordinal));
        let text =
            format!("{a} and {b} reject each other, and most other peers accept both: restart one of the two pods");
        decision.notes.push(Note::warning(ordinal, NoteReason::Quarrel, text));
    }
}

/// One that is merely away, or that nothing can be done for now, is waited for.
fn wait_for(sight: &Sight<'_>, ordinal: u32, decision: &mut Decision) {
    let Some(member) = sight.record.joined_as(ordinal) else { return };
    if !sight.view.wanted.wants(ordinal) || sight.is_whole(ordinal) {
        return;
    }
    let pod = sight.view.wanted.pod(ordinal);
    let words = sight.words_on(ordinal, member.uuid);
    let rejecters = words.iter().filter(|(_, p)| p.is_some_and(|p| p.state == PeerState::Rejected)).count();
    if rejecters > 0 && sight.as_itself(ordinal).is_some() {
        let text = format!(
            "{pod} is rejected by {rejecters} of its peers; it is repaired when more than half of all {} peers reject it",
            sight.size()
        );
        decision.notes.push(Note::warning(ordinal, NoteReason::Rejected, text));
        return;
    }
    let doing = sight.view.reports.get(&ordinal).and_then(|r| r.doing.as_ref());
    let text = match doing {
        Some(doing) => format!("waiting for {pod}: {} ({doing})", member.seen),
        None => format!("waiting for {pod}: {}", member.seen),
    };
    decision.notes.push(Note::normal(ordinal, NoteReason::Waiting, text));
}
