//! How the peers see each other, and whose reports count.

use std::collections::{BTreeMap, BTreeSet};

use super::{DecisionInput, Note, NoteReason, Rule, Rules, Severity};
use crate::{BrickAt, Daemon, HostName, Member, Peer, PeerId, PeerState, Record, Report, VolumeName};

/// How long other peers wait for a peer that is starting, in seconds.
pub(super) const START_SECONDS: u64 = 120;

/// How long nothing must have changed before anything is removed from a peer, in seconds. An agent whose glusterd is
/// slow, or whose machine was suspended, answers with its last report, which may lack a current peer or volume.
pub(super) const SETTLE_SECONDS: u64 = 15;

/// The record and the reports, combined.
pub(super) struct PoolView<'a> {
    pub(super) view: &'a DecisionInput<'a>,
    pub(super) rules: Rules,
    pub(super) record: &'a Record,
    /// Members whose reports count: they run with the recorded UUID and know at least half of the pool.
    witnesses: BTreeSet<u32>,
    /// The largest set of witnesses that are all befriended and connected with each other.
    core: BTreeSet<u32>,
    /// UUIDs that more than one pod has, with those pods.
    copies: BTreeMap<PeerId, BTreeSet<u32>>,
}

impl<'a> PoolView<'a> {
    pub(super) fn new(view: &'a DecisionInput<'a>, rules: Rules, record: &'a Record) -> PoolView<'a> {
        let mut pool = PoolView {
            view,
            rules,
            record,
            witnesses: BTreeSet::new(),
            core: BTreeSet::new(),
            copies: copies(view.reports),
        };
        pool.witnesses = record.joined().map(|(o, _)| o).filter(|o| pool.is_witness(*o)).collect();
        pool.core = pool.largest_core();
        pool
    }

    fn largest_core(&self) -> BTreeSet<u32> {
        let mut largest = BTreeSet::new();
        for centre in &self.witnesses {
            let mut core = BTreeSet::from([*centre]);
            for other in &self.witnesses {
                if core.iter().all(|c| c == other || self.are_friends(*c, *other)) {
                    core.insert(*other);
                }
            }
            if core.len() > largest.len() {
                largest = core;
            }
        }
        largest
    }

    /// Whether two members are befriended and connected in both directions.
    pub(super) fn are_friends(&self, a: u32, b: u32) -> bool {
        let has = |who: u32, whom: u32| {
            let member = self.record.joined_as(whom);
            member.and_then(|m| self.peer(who, m.uuid)).is_some_and(is_friend)
        };
        has(a, b) && has(b, a)
    }

    /// The core, if it is more than half of the pool.
    pub(super) fn core(&self) -> Option<&BTreeSet<u32>> {
        Some(&self.core).filter(|core| self.is_majority(core.len()))
    }

    fn is_witness(&self, ordinal: u32) -> bool {
        let Some(report) = self.running_as_recorded(ordinal) else { return false };
        let knows = self.record.joined().filter(|(_, m)| report.peers.iter().any(|p| p.uuid == Some(m.uuid))).count();
        (knows + 1) * 2 >= self.size() && !self.is_copy(ordinal)
    }

    /// The number of members.
    pub(super) fn size(&self) -> usize {
        self.record.joined().count()
    }

    /// The report of a pod whose glusterd runs.
    pub(super) fn running(&self, ordinal: u32) -> Option<&'a Report> {
        self.view.reports.get(&ordinal).filter(|r| r.daemon == Daemon::Running)
    }

    /// The report of a pod whose glusterd runs with the recorded UUID.
    pub(super) fn running_as_recorded(&self, ordinal: u32) -> Option<&'a Report> {
        let member = self.record.joined_as(ordinal)?;
        self.running(ordinal).filter(|r| r.uuid == Some(member.uuid))
    }

    /// How the other witnesses see a member; none if they do not list it.
    pub(super) fn views_of(&self, ordinal: u32, uuid: PeerId) -> Vec<(u32, Option<&'a Peer>)> {
        let others = self.witnesses.iter().filter(|w| **w != ordinal);
        others.map(|w| (*w, self.peer(*w, uuid))).collect()
    }

    /// Whether there are other witnesses, and none of them lists the member.
    pub(super) fn is_unlisted(&self, ordinal: u32, uuid: PeerId) -> bool {
        let views = self.views_of(ordinal, uuid);
        !views.is_empty() && views.iter().all(|(_, p)| p.is_none())
    }

    /// How a pod sees the peer with this UUID.
    pub(super) fn peer(&self, who: u32, uuid: PeerId) -> Option<&'a Peer> {
        self.view.reports.get(&who)?.peers.iter().find(|p| p.uuid == Some(uuid))
    }

    pub(super) fn witnesses(&self) -> impl Iterator<Item = (u32, &'a Report)> {
        self.witnesses.iter().filter_map(|w| Some((*w, self.view.reports.get(w)?)))
    }

    /// Whether this number is more than half of the pool; without the rule, one is enough.
    pub(super) fn is_majority(&self, count: usize) -> bool {
        if self.rules.hold(Rule::Majority) { count * 2 > self.size() } else { count > 0 }
    }

    /// Whether more than half of the pool answers. A member without peers counts: it contradicts nobody. A member that
    /// was detached counts too: nobody waits for it.
    pub(super) fn majority_answers(&self) -> bool {
        let answers = self.record.joined().filter(|(o, m)| {
            let knows_nobody = self.running(*o).is_some_and(|r| r.peers.is_empty());
            self.witnesses.contains(o)
                || knows_nobody
                || self.running_as_recorded(*o).is_some()
                || self.was_detached(*o, m)
        });
        self.is_majority(answers.count())
    }

    /// Whether a member was detached and only the record does not say so: it is not wanted, has no pod and no bricks,
    /// and all others answer and do not list it.
    fn was_detached(&self, ordinal: u32, member: &Member) -> bool {
        let views = self.views_of(ordinal, member.uuid);
        !self.view.wanted.includes(ordinal)
            && !self.view.pods.contains_key(&ordinal)
            && member.bricks.is_empty()
            && views.len() + 1 == self.size()
            && views.iter().all(|(_, p)| p.is_none())
    }

    pub(super) fn decider_belongs(&self) -> bool {
        let decider = &self.view.decider;
        let views = self.record.joined_as(*decider).map(|m| self.views_of(*decider, m.uuid)).unwrap_or_default();
        // If nobody lists it, the others are the pool, unless they list no peers either and have no volumes that it
        // lacks.
        let has_no_volumes = self.view.reports.get(decider).is_some_and(|r| r.volumes.is_empty());
        let is_the_pool = |r: &Report| !r.peers.is_empty() || (has_no_volumes && !r.volumes.is_empty());
        let others_have_pool = views.iter().any(|(w, _)| self.view.reports.get(w).is_some_and(is_the_pool));
        let unanswered =
            views.iter().any(|(w, _)| self.record.joined_as(*w).is_some_and(|m| self.peer(*decider, m.uuid).is_some()));
        let unknown = !views.is_empty() && (others_have_pool || unanswered) && views.iter().all(|(_, p)| p.is_none());
        self.witnesses.contains(decider) && !unknown && self.core().is_none_or(|core| core.contains(decider))
    }

    pub(super) fn why_not_the_decider(&self) -> Note {
        let decider = self.view.decider;
        let pod = self.view.wanted.pod(decider);
        let why = if self.record.joined_as(decider).is_some()
            && self.running(decider).is_some()
            && self.running_as_recorded(decider).is_none()
        {
            "its UUID is not the recorded one".to_owned()
        } else {
            format!(
                "its glusterd does not answer, or is not connected to most of {}",
                self.pods(self.record.joined().map(|(o, _)| o))
            )
        };
        Note::normal(decider, NoteReason::StepsDown, format!("{pod} does not lead the pool: {why}"))
    }

    pub(super) fn why_no_majority(&self) -> Note {
        let (here, away): (Vec<_>, Vec<_>) =
            self.record.joined().partition(|(o, _)| self.running_as_recorded(*o).is_some());
        Note::of(
            None,
            Severity::Warning,
            NoteReason::NoMajority,
            format!(
                "nothing is changed while only {} of {} peers answer; waiting for {}",
                here.len(),
                self.size(),
                self.pods(away.iter().map(|(o, _)| *o))
            ),
        )
    }

    /// Whether most of the pool, including the member itself, has it befriended and connected, with the recorded UUID.
    pub(super) fn is_healthy(&self, ordinal: u32) -> bool {
        let Some(member) = self.record.joined_as(ordinal) else { return false };
        let views = self.views_of(ordinal, member.uuid);
        let friends = views.iter().filter(|(_, p)| p.is_some_and(is_friend)).count();
        friends > 0 && (friends + 1) * 2 > self.size()
    }

    /// Whether all witnesses have the member befriended and connected, and it has all of them.
    pub(super) fn is_whole(&self, ordinal: u32) -> bool {
        let (Some(member), Some(report)) = (self.record.joined_as(ordinal), self.running_as_recorded(ordinal)) else {
            return false;
        };
        let seen = self.views_of(ordinal, member.uuid).iter().all(|(_, p)| p.is_some_and(is_friend));
        let sees = self.record.joined().filter(|(o, _)| *o != ordinal).all(|(o, m)| {
            let peer = report.peers.iter().find(|p| p.uuid == Some(m.uuid));
            let here = self.running_as_recorded(o).is_some();
            peer.is_some_and(|p| p.state == PeerState::Befriended && (p.connected || !here))
        });
        seen && sees
    }

    /// Returns another member that reports that it is starting.
    pub(super) fn another_is_starting(&self, ordinal: u32) -> Option<u32> {
        self.record.joined().map(|(o, _)| o).find(|o| {
            let starting = self.view.reports.get(o).is_some_and(|r| r.daemon != Daemon::Running);
            *o != ordinal && starting && !self.is_unchanged_for(*o, START_SECONDS)
        })
    }

    /// Whether all members except one have not changed for a while, and those that answer are connected.
    pub(super) fn is_settled_except(&self, but: u32) -> bool {
        let is_connected = |o: u32, m: &Member| {
            let mut views = self.views_of(o, m.uuid).into_iter().filter(|(w, _)| *w != but);
            self.running_as_recorded(o).is_none() || views.all(|(_, p)| p.is_some_and(|p| p.connected))
        };
        let mut others = self.record.joined().filter(|(o, _)| *o != but);
        !self.rules.hold(Rule::Settled)
            || others.all(|(o, m)| self.is_unchanged_for(o, SETTLE_SECONDS) && is_connected(o, m))
    }

    /// Whether a member has not changed for this many seconds.
    pub(super) fn is_unchanged_for(&self, ordinal: u32, seconds: u64) -> bool {
        self.record.members.get(&ordinal).is_some_and(|m| self.view.now.saturating_sub(m.since) >= seconds)
    }

    /// Whether a pod lists another one, but not by its name.
    pub(super) fn is_known_by_address_only(&self, who: u32, whom: u32) -> bool {
        let Some(member) = self.record.joined_as(whom) else { return false };
        let unnamed = |p: &Peer| p.state == PeerState::Befriended && !p.hosts.contains(&member.host);
        self.peer(who, member.uuid).is_some_and(unnamed)
    }

    /// Whether a pod has another one befriended, under another first name than its host name.
    pub(super) fn is_misnamed(&self, who: u32, whom: u32) -> bool {
        let Some(member) = self.record.joined_as(whom) else { return false };
        let misnamed = |p: &Peer| p.state == PeerState::Befriended && p.hosts.first() != Some(&member.host);
        self.peer(who, member.uuid).is_some_and(misnamed)
    }

    /// The running members that a pod looks for at an old address. glusterd connects to the first name of a peer, until
    /// it is restarted.
    pub(super) fn peers_at_old_address(&self, who: u32) -> Vec<u32> {
        let at_old_address = |(whom, member): &(u32, &Member)| {
            let here = |p: &Peer| self.running_as_recorded(*whom).is_some_and(|r| p.hosts.first() != Some(&r.address));
            *whom != who && self.peer(who, member.uuid).is_some_and(|p| is_lost_by_name(p, member) && here(p))
        };
        self.record.joined().filter(at_old_address).map(|(whom, _)| whom).collect()
    }

    /// Whether this pod has the same UUID as another pod.
    pub(super) fn is_copy(&self, ordinal: u32) -> bool {
        self.copies.values().any(|pods| pods.contains(&ordinal))
    }

    pub(super) fn note_copies(&self, notes: &mut Vec<Note>) {
        for (uuid, pods) in &self.copies {
            let text = format!(
                "{} have the same UUID {uuid}: one state directory is a copy of the other; they are left alone until one is removed",
                self.pods(pods.iter().copied())
            );
            notes.push(Note::of(None, Severity::Warning, NoteReason::Copied, text));
        }
    }

    /// The pod of a peer, by UUID or by name.
    pub(super) fn ordinal_of(&self, peer: &Peer) -> Option<u32> {
        let recorded = self.record.joined().find(|(_, m)| Some(m.uuid) == peer.uuid).map(|(o, _)| o);
        let mut reports = self.view.reports.values().filter(|r| r.uuid.is_some() && r.uuid == peer.uuid);
        let reported = reports.next().map(|r| r.ordinal);
        recorded.or(reported).or_else(|| peer.hosts.iter().find_map(|h| self.view.wanted.ordinal(h)))
    }

    /// The bricks of a pod, according to these reports.
    pub(super) fn bricks<'r>(
        &self,
        ordinal: u32,
        member: &Member,
        reports: impl Iterator<Item = &'r Report>,
    ) -> Vec<BrickAt> {
        let mut found = BTreeSet::new();
        for volume in reports.flat_map(|r| &r.volumes) {
            for brick in &volume.bricks {
                let by_name =
                    self.view.wanted.ordinal(&brick.host) == Some(ordinal) || member.addresses.contains(&brick.host);
                if by_name || brick.uuid == Some(member.uuid) {
                    found.insert(BrickAt { volume: volume.name.clone(), path: brick.path.clone() });
                }
            }
        }
        found.into_iter().collect()
    }

    /// Volumes in a pod's report that no other witness knows.
    pub(super) fn unknown_volumes(&self, report: &Report) -> Vec<VolumeName> {
        let known = |name: &VolumeName| {
            self.witnesses().any(|(w, r)| w != report.ordinal && r.volumes.iter().any(|v| v.name == *name))
        };
        report.volumes.iter().map(|v| v.name.clone()).filter(|name| !known(name)).collect()
    }

    /// Peers in a pod's report that no member knows, and that are not pods of the pool under an old UUID.
    pub(super) fn unknown_peers(&self, report: &Report) -> Vec<HostName> {
        let known = |p: &&Peer| {
            let recorded = self.record.members.values().any(|m| Some(m.uuid) == p.uuid);
            let named =
                p.hosts.iter().filter_map(|h| self.view.wanted.ordinal(h)).any(|o| self.record.joined_as(o).is_some());
            recorded || named || p.uuid.is_some_and(|uuid| self.witnesses.iter().any(|w| self.peer(*w, uuid).is_some()))
        };
        report.peers.iter().filter(|p| !known(p)).flat_map(|p| p.hosts.clone()).collect()
    }

    /// Lists the names of pods.
    pub(super) fn pods(&self, ordinals: impl Iterator<Item = u32>) -> String {
        let names: Vec<String> = ordinals.map(|o| self.view.wanted.pod(o)).collect();
        names.join(", ")
    }
}

/// Whether a peer is befriended and connected.
pub(super) fn is_friend(peer: &Peer) -> bool {
    peer.state == PeerState::Befriended && peer.connected
}

/// Whether a peer is disconnected and not listed first under its host name.
pub(super) fn is_lost_by_name(peer: &Peer, member: &Member) -> bool {
    !peer.connected && peer.hosts.first().is_some_and(|h| *h != member.host)
}

/// UUIDs that more than one pod reports.
fn copies(reports: &BTreeMap<u32, Report>) -> BTreeMap<PeerId, BTreeSet<u32>> {
    let mut holders: BTreeMap<PeerId, BTreeSet<u32>> = BTreeMap::new();
    for report in reports.values() {
        if let Some(uuid) = report.uuid {
            holders.entry(uuid).or_default().insert(report.ordinal);
        }
    }
    holders.retain(|_, pods| pods.len() > 1);
    holders
}
