//! Detaches peers that were scaled away.

use super::pool_view::{PoolView, SETTLE_SECONDS, is_friend};
use super::{Decision, Note, NoteReason, PeerCommand, Rule, Severity};
use crate::{HostName, Member};

/// Detaches the last of the peers that were scaled away, if that is allowed.
pub(super) fn detach(pool: &PoolView<'_>, decision: &mut Decision) {
    let wanted = pool.view.wanted;
    let leaving: Vec<(u32, &Member)> = pool.record.joined().filter(|(o, m)| is_not_wanted(pool, *o, m)).collect();
    if leaving.is_empty() {
        return;
    }
    if wanted.replicas == 0 {
        let text = format!("{} is scaled to 0: the pool is kept as it is", wanted.name());
        decision.notes.push(Note::of(None, Severity::Normal, NoteReason::ScaledToZero, text));
        return;
    }
    for (ordinal, member) in leaving.into_iter().rev() {
        if let Some(note) = note_bricks(pool, ordinal, member).or_else(|| why_not_now(pool, ordinal, decision)) {
            decision.notes.push(note);
        } else if decision.act.is_none() && !decision.step_down {
            let text = format!("{} was scaled away and holds no bricks: detaching it", wanted.pod(ordinal));
            decision.notes.push(Note::normal(ordinal, NoteReason::Detaching, text));
            let host = name_at_the_decider(pool, ordinal, member);
            decision.act = Some(PeerCommand::Detach { ordinal, host, uuid: member.uuid });
        }
    }
}

/// The name by which the decider's glusterd knows the peer: the pod's host name, if it is among them.
fn name_at_the_decider(pool: &PoolView<'_>, ordinal: u32, member: &Member) -> HostName {
    let hosts = pool.peer(pool.view.decider, member.uuid).map(|p| p.hosts.as_slice()).unwrap_or_default();
    match hosts.first() {
        Some(first) if !hosts.contains(&member.host) => first.clone(),
        _ => pool.view.wanted.host(ordinal),
    }
}

/// Whether a peer is not wanted any more. A peer that is only disconnected is still wanted.
fn is_not_wanted(pool: &PoolView<'_>, ordinal: u32, member: &Member) -> bool {
    let away = !pool.views_of(ordinal, member.uuid).iter().any(|(_, p)| p.is_some_and(|p| p.connected));
    !pool.view.wanted.includes(ordinal) || (away && ordinal != pool.view.decider && !pool.rules.hold(Rule::Patience))
}

fn note_bricks(pool: &PoolView<'_>, ordinal: u32, member: &Member) -> Option<Note> {
    let reported = pool.bricks(ordinal, member, pool.view.reports.values());
    let mut volumes: Vec<&str> = member.bricks.iter().chain(&reported).map(|b| &*b.volume).collect();
    volumes.sort_unstable();
    volumes.dedup();
    if volumes.is_empty() || !pool.rules.hold(Rule::Bricks) {
        return None;
    }
    let text = format!(
        "{pod} was scaled away and holds bricks of {volumes}: it stays in the pool; move its bricks to other peers, or scale up again",
        pod = pool.view.wanted.pod(ordinal),
        volumes = volumes.join(", ")
    );
    Some(Note::warning(ordinal, NoteReason::BricksKept, text))
}

/// Returns why the peer cannot be detached now.
fn why_not_now(pool: &PoolView<'_>, ordinal: u32, decision: &mut Decision) -> Option<Note> {
    let pod = pool.view.wanted.pod(ordinal);
    let others: Vec<(u32, &Member)> = pool.record.joined().filter(|(o, _)| *o != ordinal).collect();
    if ordinal == pool.view.decider {
        let another =
            others.iter().any(|(o, _)| pool.view.wanted.includes(*o) && pool.running_as_recorded(*o).is_some());
        decision.step_down = another;
        let text = format!("{pod} was scaled away and cannot detach itself: another peer has to lead");
        return Some(Note::normal(ordinal, NoteReason::DetachWaits, text));
    }
    if pool.core().is_none() {
        let text = format!("{pod} was scaled away; it is detached when more than half of the pool is connected");
        return Some(Note::normal(ordinal, NoteReason::DetachWaits, text));
    }
    // glusterd refuses a detach while another peer is not befriended and connected.
    let away = |(o, m): &&(u32, &Member)| {
        *o != pool.view.decider && !pool.peer(pool.view.decider, m.uuid).is_some_and(is_friend)
    };
    let away: Vec<u32> = others.iter().filter(away).map(|(o, _)| *o).collect();
    if !away.is_empty() {
        let away = pool.pods(away.into_iter());
        let text = format!(
            "{pod} was scaled away; glusterd detaches no peer while another is disconnected: waiting for {away}"
        );
        return Some(Note::normal(ordinal, NoteReason::DetachWaits, text));
    }
    // A peer that is not befriended by all others would not learn of the detach, or is about to be repaired.
    let not_whole = others.iter().map(|(o, _)| *o).filter(|o| !pool.is_connected_except(*o, ordinal));
    let not_whole: Vec<u32> = not_whole.filter(|_| pool.rules.hold(Rule::OneRepair)).collect();
    if !not_whole.is_empty() {
        let not_whole = pool.pods(not_whole.into_iter());
        let text = format!(
            "{pod} was scaled away; it is detached when all other peers answer and are connected: waiting for {not_whole}"
        );
        return Some(Note::normal(ordinal, NoteReason::DetachWaits, text));
    }
    (!pool.is_settled_except(ordinal)).then(|| {
        let text =
            format!("{pod} was scaled away; it is detached when no peer has changed its state for {SETTLE_SECONDS} s");
        Note::normal(ordinal, NoteReason::DetachWaits, text)
    })
}

impl PoolView<'_> {
    /// Whether a peer and all others except `but` are befriended and connected in both directions. Connections are per
    /// direction: a peer without a connection to the decider has not told it of new volumes.
    fn is_connected_except(&self, ordinal: u32, but: u32) -> bool {
        let (Some(member), Some(report)) = (self.record.joined_as(ordinal), self.running_as_recorded(ordinal)) else {
            return false;
        };
        let views = self.views_of(ordinal, member.uuid);
        let seen = views.iter().filter(|(w, _)| *w != but).all(|(_, p)| p.is_some_and(is_friend));
        let sees = self
            .record
            .joined()
            .filter(|(o, _)| *o != ordinal && *o != but)
            .all(|(_, m)| report.peers.iter().any(|p| p.uuid == Some(m.uuid) && is_friend(p)));
        seen && sees
    }
}
