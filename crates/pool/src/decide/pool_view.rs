//! How the peers see each other, and whose reports count.

use std::collections::{BTreeMap, BTreeSet};

use super::{DecisionInput, Note, NoteReason, Rule, Rules, Severity};
use crate::{BrickAt, Daemon, HostName, Member, Peer, PeerId, PeerState, Record, Report, VolumeName};

/// How long a peer may take to come back before others need not wait for it, in seconds.
pub(super) const START_SECONDS: u64 = 120;

/// How long nothing must have changed before what a peer knows is taken away, in seconds. An agent whose glusterd is slow
/// or whose machine was suspended answers with its last report, which may not have a peer or a volume that it has now.
pub(super) const SETTLE_SECONDS: u64 = 15;

/// The record and the reports, combined.
pub(super) struct PoolView<'a> {
    pub(super) view: &'a DecisionInput<'a>,
    pub(super) rules: Rules,
    pub(super) record: &'a Record,
    /// Those whose word on others counts: they run with their recorded identity and know at least half of the pool.
    witnesses: BTreeSet<u32>,
    /// The most of them that all have each other as friends, connected: where the pool is whole.
    core: BTreeSet<u32>,
    /// Identities that more than one pod has, with those pods.
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

    /// Whether two have each other as friends, connected.
    pub(super) fn are_friends(&self, a: u32, b: u32) -> bool {
        let has = |who: u32, whom: u32| {
            let member = self.record.joined_as(whom);
            member.and_then(|m| self.peer(who, m.uuid)).is_some_and(is_friend)
        };
        has(a, b) && has(b, a)
    }

    /// The core of the pool, if it is more than half of it.
    pub(super) fn core(&self) -> Option<&BTreeSet<u32>> {
        Some(&self.core).filter(|core| self.is_majority(core.len()))
    }

    fn is_witness(&self, ordinal: u32) -> bool {
        let Some(report) = self.running_as_recorded(ordinal) else { return false };
        let knows = self.record.joined().filter(|(_, m)| report.peers.iter().any(|p| p.uuid == Some(m.uuid))).count();
        (knows + 1) * 2 >= self.size() && !self.is_copy(ordinal)
    }

    /// How many belong to the pool.
    pub(super) fn size(&self) -> usize {
        self.record.joined().count()
    }

    /// What one reports whose glusterd runs.
    pub(super) fn running(&self, ordinal: u32) -> Option<&'a Report> {
        self.view.reports.get(&ordinal).filter(|r| r.daemon == Daemon::Running)
    }

    /// The same, if it has the identity that is recorded.
    pub(super) fn running_as_recorded(&self, ordinal: u32) -> Option<&'a Report> {
        let member = self.record.joined_as(ordinal)?;
        self.running(ordinal).filter(|r| r.uuid == Some(member.uuid))
    }

    /// Those whose word on `ordinal` counts, with how they see it; none if they do not know it.
    pub(super) fn views_of(&self, ordinal: u32, uuid: PeerId) -> Vec<(u32, Option<&'a Peer>)> {
        let others = self.witnesses.iter().filter(|w| **w != ordinal);
        others.map(|w| (*w, self.peer(*w, uuid))).collect()
    }

    /// Whether there are witnesses besides this one, and none of them lists it as a peer.
    pub(super) fn is_unlisted(&self, ordinal: u32, uuid: PeerId) -> bool {
        let words = self.views_of(ordinal, uuid);
        !words.is_empty() && words.iter().all(|(_, p)| p.is_none())
    }

    /// How one sees an identity.
    pub(super) fn peer(&self, who: u32, uuid: PeerId) -> Option<&'a Peer> {
        self.view.reports.get(&who)?.peers.iter().find(|p| p.uuid == Some(uuid))
    }

    pub(super) fn witnesses(&self) -> impl Iterator<Item = (u32, &'a Report)> {
        self.witnesses.iter().filter_map(|w| Some((*w, self.view.reports.get(w)?)))
    }

    /// Whether so many are more than half of the pool; without the rule, one is enough.
    pub(super) fn is_majority(&self, count: usize) -> bool {
        if self.rules.hold(Rule::Majority) { count * 2 > self.size() } else { count > 0 }
    }

    /// Whether more than half of the pool answers. One that knows nobody answers too: it contradicts no one. And one that
    /// is out of the pool but for the record is not waited for.
    pub(super) fn majority_answers(&self) -> bool {
        let answers = self.record.joined().filter(|(o, m)| {
            let knows_nobody = self.running(*o).is_some_and(|r| r.peers.is_empty());
            self.witnesses.contains(o) || knows_nobody || self.running_as_recorded(*o).is_some() || self.is_out(*o, m)
        });
        self.is_majority(answers.count())
    }

    /// Whether one was detached and only the record does not say so: it is not wanted, it has no pod and no bricks, and all
    /// others answer and do not know it.
    fn is_out(&self, ordinal: u32, member: &Member) -> bool {
        let words = self.views_of(ordinal, member.uuid);
        !self.view.wanted.includes(ordinal)
            && !self.view.pods.contains_key(&ordinal)
            && member.bricks.is_empty()
            && words.len() + 1 == self.size()
            && words.iter().all(|(_, p)| p.is_none())
    }

    pub(super) fn decider_belongs(&self) -> bool {
        let decider = &self.view.decider;
        let words = self.record.joined_as(*decider).map(|m| self.views_of(*decider, m.uuid)).unwrap_or_default();
        // If nobody knows it, another is the pool; unless nobody else knows anybody, or has volumes that it does not have.
        let has_no_volumes = self.view.reports.get(decider).is_some_and(|r| r.volumes.is_empty());
        let is_the_pool = |r: &Report| !r.peers.is_empty() || (has_no_volumes && !r.volumes.is_empty());
        let sociable = words.iter().any(|(w, _)| self.view.reports.get(w).is_some_and(is_the_pool));
        let unanswered =
            words.iter().any(|(w, _)| self.record.joined_as(*w).is_some_and(|m| self.peer(*decider, m.uuid).is_some()));
        let unknown = !words.is_empty() && (sociable || unanswered) && words.iter().all(|(_, p)| p.is_none());
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

    /// Whether most of the pool, itself included, has this one among its friends, connected, as the one that is recorded.
    pub(super) fn is_healthy(&self, ordinal: u32) -> bool {
        let Some(member) = self.record.joined_as(ordinal) else { return false };
        let words = self.views_of(ordinal, member.uuid);
        let friends = words.iter().filter(|(_, p)| p.is_some_and(is_friend)).count();
        friends > 0 && (friends + 1) * 2 > self.size()
    }

    /// Whether all who can tell have this one among their friends, connected, and it has all of them.
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

    /// Whether another than this one is on its way back, by its own word.
    pub(super) fn another_is_starting(&self, ordinal: u32) -> Option<u32> {
        self.record.joined().map(|(o, _)| o).find(|o| {
            let under_way = self.view.reports.get(o).is_some_and(|r| r.daemon != Daemon::Running);
            *o != ordinal && under_way && !self.is_unchanged_for(*o, START_SECONDS)
        })
    }

    /// Whether all members but one have been seen as they are now for a while, and those of them that answer are connected.
    pub(super) fn is_settled_except(&self, but: u32) -> bool {
        let is_connected = |o: u32, m: &Member| {
            let mut words = self.views_of(o, m.uuid).into_iter().filter(|(w, _)| *w != but);
            self.running_as_recorded(o).is_none() || words.all(|(_, p)| p.is_some_and(|p| p.connected))
        };
        let mut others = self.record.joined().filter(|(o, _)| *o != but);
        !self.rules.hold(Rule::Settled)
            || others.all(|(o, m)| self.is_unchanged_for(o, SETTLE_SECONDS) && is_connected(o, m))
    }

    /// Whether one has been seen as it is now for so many seconds.
    pub(super) fn is_unchanged_for(&self, ordinal: u32, seconds: u64) -> bool {
        self.record.members.get(&ordinal).is_some_and(|m| self.view.now.saturating_sub(m.since) >= seconds)
    }

    /// Whether one knows another, and not by its name.
    pub(super) fn is_nameless(&self, who: u32, whom: u32) -> bool {
        let Some(member) = self.record.joined_as(whom) else { return false };
        let unnamed = |p: &Peer| p.state == PeerState::Befriended && !p.hosts.contains(&member.host);
        self.peer(who, member.uuid).is_some_and(unnamed)
    }

    /// Whether one has another as a friend, and calls it by something else than its name.
    pub(super) fn is_misnamed(&self, who: u32, whom: u32) -> bool {
        let Some(member) = self.record.joined_as(whom) else { return false };
        let misnamed = |p: &Peer| p.state == PeerState::Befriended && p.hosts.first() != Some(&member.host);
        self.peer(who, member.uuid).is_some_and(misnamed)
    }

    /// Those that one looks for at an address that they had: they run, and elsewhere. glusterd calls a friend by the first
    /// name it has of it, and keeps to that until it is started again.
    pub(super) fn sought_at_old_address(&self, who: u32) -> Vec<u32> {
        let astray = |(whom, member): &(u32, &Member)| {
            let here = |p: &Peer| self.running_as_recorded(*whom).is_some_and(|r| p.hosts.first() != Some(&r.address));
            *whom != who && self.peer(who, member.uuid).is_some_and(|p| is_lost_by_name(p, member) && here(p))
        };
        self.record.joined().filter(astray).map(|(whom, _)| whom).collect()
    }

    /// Whether this pod has the identity of another pod.
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

    /// The pod that a peer is, by its identity or by its names.
    pub(super) fn ordinal_of(&self, peer: &Peer) -> Option<u32> {
        let recorded = self.record.joined().find(|(_, m)| Some(m.uuid) == peer.uuid).map(|(o, _)| o);
        let mut reports = self.view.reports.values().filter(|r| r.uuid.is_some() && r.uuid == peer.uuid);
        let reported = reports.next().map(|r| r.ordinal);
        recorded.or(reported).or_else(|| peer.hosts.iter().find_map(|h| self.view.wanted.ordinal(h)))
    }

    /// What a pod holds, by what these reports say.
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

    /// Volumes of a pod's report that no witness but itself knows.
    pub(super) fn unknown_volumes(&self, report: &Report) -> Vec<VolumeName> {
        let known = |name: &VolumeName| {
            self.witnesses().any(|(w, r)| w != report.ordinal && r.volumes.iter().any(|v| v.name == *name))
        };
        report.volumes.iter().map(|v| v.name.clone()).filter(|name| !known(name)).collect()
    }

    /// Friends in a pod's report that nobody of the pool knows, and that are not pods of the pool under an old identity.
    pub(super) fn unknown_peers(&self, report: &Report) -> Vec<HostName> {
        let known = |p: &&Peer| {
            let recorded = self.record.members.values().any(|m| Some(m.uuid) == p.uuid);
            let named =
                p.hosts.iter().filter_map(|h| self.view.wanted.ordinal(h)).any(|o| self.record.joined_as(o).is_some());
            recorded || named || p.uuid.is_some_and(|uuid| self.witnesses.iter().any(|w| self.peer(*w, uuid).is_some()))
        };
        report.peers.iter().filter(|p| !known(p)).flat_map(|p| p.hosts.clone()).collect()
    }

    /// Pods in words.
    pub(super) fn pods(&self, ordinals: impl Iterator<Item = u32>) -> String {
        let names: Vec<String> = ordinals.map(|o| self.view.wanted.pod(o)).collect();
        names.join(", ")
    }
}

/// Whether this is a friend with a connection.
pub(super) fn is_friend(peer: &Peer) -> bool {
    peer.state == PeerState::Befriended && peer.connected
}

/// Whether this peer is not found under what it is called by, and that is not its name.
pub(super) fn is_lost_by_name(peer: &Peer, member: &Member) -> bool {
    !peer.connected && peer.hosts.first().is_some_and(|h| *h != member.host)
}

/// Identities that more than one pod reports.
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
