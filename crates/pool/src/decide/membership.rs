//! Members of the pool: creates the record and updates it from the reports.

use std::collections::BTreeSet;

use super::pool_view::{PoolView, is_friend};
use super::{Decision, DecisionInput, Note, NoteReason, Rule, Severity};
use crate::{BrickAt, Daemon, HostName, Member, Membership, Peer, PeerId, PeerState, Record, Report};

/// The number of addresses kept per member.
const MAX_ADDRESSES: usize = 4;

/// How long no other member must have listed a member before it counts as detached, in seconds.
const UNLISTED_SECONDS: u64 = 5;

/// Creates the record: of a new pool if no pod has peers, else of the existing pool.
pub(super) fn initialize(view: &DecisionInput<'_>, record: &mut Record, decision: &mut Decision) {
    let running: Vec<&Report> =
        view.reports.values().filter(|r| r.daemon == Daemon::Running && r.uuid.is_some()).collect();
    let Some(own) = running.iter().find(|r| r.ordinal == view.decider) else {
        decision.step_down = true;
        return;
    };
    let answered = running.iter().filter(|r| view.wanted.includes(r.ordinal)).count();
    if answered * 2 <= view.wanted.replicas as usize {
        let text = format!(
            "the pool has no record yet, and {answered} of {} pods answer: waiting for more than half",
            view.wanted.replicas
        );
        decision.notes.push(Note::of(None, Severity::Normal, NoteReason::Waiting, text));
        return;
    }
    // A pod with peers or volumes belongs to an existing pool: it has to start the record, or its peers and volumes
    // would be left out.
    let has_something = |r: &Report| !r.peers.is_empty() || !r.volumes.is_empty();
    if !has_something(own) && running.iter().any(|r| has_something(r)) {
        decision.step_down = true;
        return;
    }
    match own.uuid {
        Some(uuid) if own.peers.is_empty() => create_pool(view, own, uuid, record, decision),
        _ => adopt_pool(view, own, &running, record, decision),
    }
}

fn create_pool(view: &DecisionInput<'_>, own: &Report, uuid: PeerId, record: &mut Record, decision: &mut Decision) {
    record.members.insert(own.ordinal, member(view, own.ordinal, uuid, Some(own)));
    let text = format!("{} starts the pool", view.wanted.pod(own.ordinal));
    decision.notes.push(Note::normal(own.ordinal, NoteReason::Founded, text));
}

fn adopt_pool(
    view: &DecisionInput<'_>,
    own: &Report,
    running: &[&Report],
    record: &mut Record,
    decision: &mut Decision,
) {
    let pool = listed_by(own);
    let is_member = |r: &&&Report| r.uuid.is_some_and(|u| pool.contains(&u));
    let members: Vec<&&Report> = running.iter().filter(is_member).collect();
    let differing: Vec<String> =
        members.iter().filter(|r| listed_by(r) != pool).map(|r| view.wanted.pod(r.ordinal)).collect();
    if !differing.is_empty() || members.len() * 2 <= pool.len() {
        let text = format!(
            "the pool has no record yet, and its {} peers do not list the same members: {} of them answer{}",
            pool.len(),
            members.len(),
            if differing.is_empty() { String::new() } else { format!("; different lists: {}", differing.join(", ")) }
        );
        decision.notes.push(Note::of(None, Severity::Warning, NoteReason::Disagree, text));
        return;
    }
    for (report, uuid) in members.iter().filter_map(|report| Some((report, report.uuid?))) {
        record.members.insert(report.ordinal, member(view, report.ordinal, uuid, Some(report)));
    }
    for peer in &own.peers {
        let named = peer.hosts.iter().find_map(|h| view.wanted.ordinal(h));
        if let (Some(ordinal), Some(uuid)) = (named, peer.uuid)
            && !record.joined().any(|(_, m)| m.uuid == uuid)
        {
            record.members.entry(ordinal).or_insert_with(|| member(view, ordinal, uuid, None));
        }
    }
    let text = format!("the pool existed already: {} peers are recorded as they are", record.members.len());
    decision.notes.push(Note::of(None, Severity::Normal, NoteReason::TakenOver, text));
}

/// The UUIDs that a pod knows as the pool, including its own.
fn listed_by(report: &Report) -> BTreeSet<PeerId> {
    report.uuid.into_iter().chain(report.peers.iter().filter_map(|p| p.uuid)).collect()
}

fn member(view: &DecisionInput<'_>, ordinal: u32, uuid: PeerId, report: Option<&Report>) -> Member {
    let known_version = view.reports.values().filter_map(|r| r.operating_version).max();
    let operating_version = report.and_then(|r| r.operating_version).or(known_version).unwrap_or_default();
    Member {
        addresses: report.map(|r| vec![r.address.clone()]).unwrap_or_default(),
        since: view.now,
        ..Member::joined(view.wanted.host(ordinal), uuid, operating_version)
    }
}

/// Updates the record: new members, departures, and the state and bricks of each member.
pub(super) fn update(pool: &PoolView<'_>, record: &mut Record, decision: &mut Decision) {
    record_new_members(pool, record, decision);
    record_departures(pool, record, decision);
    let joined: Vec<u32> = record.joined().map(|(o, _)| o).collect();
    let all_answer = joined.iter().all(|o| pool.witnesses().any(|(w, _)| w == *o));
    for ordinal in joined {
        let Some(member) = record.members.get_mut(&ordinal) else { continue };
        let mut bricks = pool.bricks(ordinal, member, pool.witnesses().map(|(_, r)| r));
        let unseen = member.bricks.iter().filter(|b| !bricks.contains(b) && !all_answer && !is_moved(pool, b));
        let unseen: Vec<BrickAt> = unseen.cloned().collect();
        bricks.extend(unseen);
        bricks.sort();
        member.bricks = bricks;
        if let Some(report) = pool.running_as_recorded(ordinal) {
            keep_address(member, &report.address);
            member.operating_version = report.operating_version.unwrap_or(member.operating_version);
        }
        let unlisted = pool.is_unlisted(ordinal, member.uuid);
        member.unlisted_since = unlisted.then(|| member.unlisted_since.unwrap_or(pool.view.now));
        let seen = describe(pool, ordinal, member);
        if seen != member.seen {
            member.seen = seen;
            member.since = pool.view.now;
        }
    }
}

/// Whether a brick that nobody reports was moved: most members know its volume, without the brick. If most do not know
/// the volume, they may have lost it, and a disconnected peer may be the only one that has it.
fn is_moved(pool: &PoolView<'_>, brick: &BrickAt) -> bool {
    let knows = |r: &Report| r.volumes.iter().any(|v| v.name == brick.volume);
    pool.is_majority(pool.witnesses().filter(|(_, r)| knows(r)).count())
}

/// Records peers that a member lists and that are not recorded, or with another UUID.
///
/// One member that lists it is enough: a peer that only some list is joining, or fell out partway. Either way its name
/// is in use: probing it with another UUID would give the pool two peers with one name.
fn record_new_members(pool: &PoolView<'_>, record: &mut Record, decision: &mut Decision) {
    let mut strangers = BTreeSet::new();
    let settled = pool.witnesses().flat_map(|(_, r)| &r.peers).filter(|p| is_established(p));
    let mut known: Vec<(PeerId, &Peer)> = settled.filter_map(|p| Some((p.uuid?, p))).collect();
    // The UUID that a pod really has comes before older ones.
    known.sort_by_key(|(uuid, _)| !pool.view.reports.values().any(|r| r.uuid == Some(*uuid)));
    for (uuid, peer) in known {
        if record.joined().any(|(_, m)| m.uuid == uuid) {
            continue;
        }
        let Some(ordinal) = pool.ordinal_of(peer) else {
            strangers.insert(peer.hosts.join(", "));
            continue;
        };
        let report = pool.view.reports.get(&ordinal).filter(|r| r.uuid == Some(uuid));
        let friends = pool.views_of(ordinal, uuid).iter().filter(|(_, p)| p.is_some_and(is_friend)).count();
        let pod = pool.view.wanted.pod(ordinal);
        if record.joined_as(ordinal).is_none() {
            decision.notes.push(Note::normal(ordinal, NoteReason::Joined, format!("{pod} has joined the pool")));
        } else if report.is_some() && pool.is_majority(friends + 1) && friends > 0 {
            let text = format!("{pod} is in the pool with a UUID that differs from the recorded one");
            decision.notes.push(Note::warning(ordinal, NoteReason::Changed, text));
        } else {
            continue;
        }
        let mut new = member(pool.view, ordinal, uuid, report);
        // Bricks and addresses belong to the pod, whatever its UUID is.
        if let Some(before) = record.members.remove(&ordinal) {
            new.bricks = if before.membership == Membership::Joined { before.bricks } else { Vec::new() };
            new.addresses
                .extend(before.addresses.into_iter().filter(|a| !new.addresses.contains(a)).collect::<Vec<_>>());
            new.addresses.truncate(MAX_ADDRESSES);
        }
        record.members.insert(ordinal, new);
    }
    for stranger in strangers {
        let text = format!("{stranger} is in the pool but not a pod of {}: it is left alone", pool.view.wanted.name());
        decision.notes.push(Note::of(None, Severity::Normal, NoteReason::Stranger, text));
    }
}

/// Whether a peer is befriended, was befriended, or is being befriended.
fn is_established(peer: &Peer) -> bool {
    use PeerState::{Befriended, Rejected, RequestAccepted, RequestSentReceived};
    matches!(peer.state, Befriended | Rejected | RequestAccepted | RequestSentReceived)
}

/// Records members as left that no member lists any more.
fn record_departures(pool: &PoolView<'_>, record: &mut Record, decision: &mut Decision) {
    let joined: Vec<(u32, PeerId)> = pool.record.joined().map(|(o, m)| (o, m.uuid)).collect();
    for (ordinal, uuid) in joined {
        let views = pool.views_of(ordinal, uuid);
        let Some(member) = record.members.get(&ordinal) else { continue };
        // Reports may be slightly old: not all of them list a new member yet.
        let since = member.unlisted_since.filter(|_| pool.is_unlisted(ordinal, uuid));
        let long = since.is_some_and(|since| pool.view.now.saturating_sub(since) >= UNLISTED_SECONDS);
        // glusterd detaches no peer that holds bricks. So the others have lost their state, and this member may be the
        // only one that still has its volumes, unless it answers and has nothing either.
        let is_blank = pool.running_as_recorded(ordinal).is_some_and(|r| r.peers.is_empty() && r.volumes.is_empty());
        let holds_bricks = !member.bricks.is_empty() && !is_blank && pool.rules.hold(Rule::Bricks);
        if !long || holds_bricks || ordinal == pool.view.decider {
            continue;
        }
        // If it disagrees, it may be right: then more than half of all members have to contradict it.
        let disagrees =
            pool.running_as_recorded(ordinal).is_some_and(|r| r.peers.iter().any(|p| p.state == PeerState::Befriended));
        let enough = if disagrees { pool.is_majority(views.len()) } else { views.len() * 2 + 1 > pool.size() };
        if enough && let Some(member) = record.members.get_mut(&ordinal) {
            member.membership = Membership::Left;
            member.seen = "detached".to_owned();
            member.since = pool.view.now;
            member.unlisted_since = None;
            let text = format!("{} is no longer in the pool", pool.view.wanted.pod(ordinal));
            decision.notes.push(Note::normal(ordinal, NoteReason::Left, text));
        }
    }
}

fn keep_address(member: &mut Member, address: &HostName) {
    if member.addresses.first().is_none_or(|a| a != address) {
        member.addresses.retain(|a| a != address);
        member.addresses.insert(0, address.clone());
        member.addresses.truncate(MAX_ADDRESSES);
    }
}

/// Describes how the others see a member, in glusterd's wording: once if they agree, else with the pods that say so.
fn describe(pool: &PoolView<'_>, ordinal: u32, member: &Member) -> String {
    let mut views: Vec<(String, Vec<u32>)> = Vec::new();
    for (who, peer) in pool.views_of(ordinal, member.uuid) {
        let words = peer.map_or("unknown".to_owned(), |p| {
            format!("{} ({})", p.state.words(), if p.connected { "Connected" } else { "Disconnected" })
        });
        match views.iter_mut().find(|(w, _)| *w == words) {
            Some((_, by)) => by.push(who),
            None => views.push((words, vec![who])),
        }
    }
    let not_listed = not_listed_by(pool, ordinal);
    if !not_listed.is_empty() && !views.is_empty() {
        views.push((format!("does not know {}", pool.pods(not_listed.into_iter())), vec![ordinal]));
    }
    match views.as_slice() {
        [] => "alone".to_owned(),
        [(words, _)] => words.clone(),
        many => {
            let each = many.iter().map(|(words, by)| format!("{words} at {}", pool.pods(by.iter().copied())));
            each.collect::<Vec<_>>().join("; ")
        }
    }
}

/// The members that a pod does not list as befriended.
fn not_listed_by(pool: &PoolView<'_>, ordinal: u32) -> Vec<u32> {
    let Some(report) = pool.running_as_recorded(ordinal) else { return Vec::new() };
    let befriended =
        |m: &Member| report.peers.iter().any(|p| p.uuid == Some(m.uuid) && p.state == PeerState::Befriended);
    pool.record.joined().filter(|(o, m)| *o != ordinal && !befriended(m)).map(|(o, _)| o).collect()
}
