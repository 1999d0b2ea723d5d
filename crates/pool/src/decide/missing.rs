//! Who is missing, and is probed.

use super::order::{Need, give};
use super::sight::Sight;
use super::{Act, Decision, Note, NoteReason, Rule};
use crate::{Member, PeerState, Record, Repair, Report};

/// Probes the first that is missing.
pub(super) fn probe(sight: &Sight<'_>, record: &mut Record, decision: &mut Decision) {
    let wanted = sight.view.wanted;
    for (ordinal, report) in sight.view.reports {
        if sight.record.joined_as(*ordinal).is_some_and(|m| !is_forgotten(sight, *ordinal, m))
            || !wanted.wants(*ordinal)
            || sight.is_copy(*ordinal)
        {
            continue;
        }
        if sight.running(*ordinal).is_none() {
            note_what_it_says(sight, report, decision);
            continue;
        }
        let Some(uuid) = report.uuid else { continue };
        let pod = wanted.pod(*ordinal);
        let forgotten = sight.record.joined_as(*ordinal).is_some();
        let listed = sight.witnesses().any(|(w, _)| sight.peer(w, uuid).is_some());
        if (listed && !forgotten) || is_being_probed(sight, *ordinal) {
            decision.notes.push(Note::normal(*ordinal, NoteReason::Joining, format!("{pod} is joining the pool")));
            continue;
        }
        // One that was never recorded and calls the decider its friend was taken in by somebody who forgot it since.
        let unrecorded = !sight.record.members.contains_key(ordinal) && calls_the_decider_friend(sight, report);
        let forgotten = forgotten || unrecorded;
        match if forgotten { Ties::None } else { old_ties(sight, report) } {
            Ties::None if sight.core().is_none() && !forgotten => {
                let text = format!("{pod} is probed when more than half of the pool is connected");
                decision.notes.push(Note::normal(*ordinal, NoteReason::Waiting, text));
            }
            Ties::None if decision.act.is_none() && record.order.is_none() && !decision.step_down => {
                decision.notes.push(Note::normal(*ordinal, NoteReason::Probing, format!("probing {pod}")));
                decision.act = Some(Act::Probe { ordinal: *ordinal, host: wanted.host(*ordinal), uuid });
            }
            Ties::None => {}
            Ties::OfThisPool => {
                let why = format!("{pod} was detached while it was disconnected, and still lists its old peers");
                decision.notes.push(Note::warning(*ordinal, NoteReason::Detached, why.clone()));
                let idle = record.order.is_none() && decision.act.is_none();
                if idle && sight.another_comes_back(*ordinal).is_none() && sight.has_settled_but_for(*ordinal) {
                    give(sight, record, *ordinal, Need::new(report, Repair::Forget, why));
                }
            }
            Ties::Others(text) => decision.notes.push(Note::warning(*ordinal, NoteReason::OtherPool, text)),
        }
    }
}

/// One that does not start has its reasons.
fn note_what_it_says(sight: &Sight<'_>, report: &Report, decision: &mut Decision) {
    if let Some(doing) = &report.doing {
        let text = format!("waiting for {}, which is not in the pool: {doing}", sight.view.wanted.pod(report.ordinal));
        decision.notes.push(Note::normal(report.ordinal, NoteReason::Waiting, text));
    }
}

/// Whether a member lists the decider as a friend, and neither the decider nor any of the decider's friends lists the
/// member: no friend would introduce it. A probe by the decider is all that it needs.
fn is_forgotten(sight: &Sight<'_>, ordinal: u32, member: &Member) -> bool {
    let lists_the_decider = sight.as_itself(ordinal).is_some_and(|r| calls_the_decider_friend(sight, r));
    let decider = sight.view.decider;
    let mut words = sight.words_on(ordinal, member.uuid).into_iter();
    let unlisted = words.all(|(who, p)| p.is_none() || (who != decider && !sight.are_friends(decider, who)));
    lists_the_decider && ordinal != decider && unlisted
}

fn calls_the_decider_friend(sight: &Sight<'_>, report: &Report) -> bool {
    let decider = sight.record.joined_as(sight.view.decider).map(|m| m.uuid);
    decider.is_some() && report.peers.iter().any(|p| p.uuid == decider && p.state == PeerState::Befriended)
}

/// Whether the decider is waiting for this one's answer.
fn is_being_probed(sight: &Sight<'_>, ordinal: u32) -> bool {
    let peers = sight.view.reports.get(&sight.view.decider).map(|r| r.peers.as_slice()).unwrap_or_default();
    peers.iter().any(|p| p.hosts.iter().any(|h| sight.view.wanted.ordinal(h) == Some(ordinal)))
}

/// What one that is not of the pool has from before.
enum Ties {
    /// Nothing: it can be probed.
    None,
    /// Friends and volumes of this pool, which has them too.
    OfThisPool,
    /// Something that this pool does not have.
    Others(String),
}

fn old_ties(sight: &Sight<'_>, report: &Report) -> Ties {
    if report.peers.is_empty() && report.volumes.is_empty() {
        return Ties::None;
    }
    let pod = sight.view.wanted.pod(report.ordinal);
    let strangers = sight.friends_of_its_own(report);
    let keep = sight.rules.hold(Rule::OnlyCopy);
    if keep && !strangers.is_empty() {
        return Ties::Others(format!("{pod} cannot join: it belongs to another pool, with {}", strangers.join(", ")));
    }
    let volumes = sight.volumes_of_its_own(report);
    if keep && !volumes.is_empty() {
        return Ties::Others(format!("{pod} cannot join: it is the only peer that has volume {}", volumes.join(", ")));
    }
    Ties::OfThisPool
}
