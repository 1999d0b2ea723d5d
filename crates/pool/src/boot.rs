//! Decides what the state directory of a pod needs before its glusterd starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{BrickPath, Daemon, HostName, Membership, Peer, PeerId, PeerState, PoolSpec, Record, Report, VolumeName};

/// `state=` of a befriended peer in a file of `peers/`.
const BEFRIENDED: u32 = 3;

/// The content of a pod's `/var/lib/glusterd`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDir {
    /// The UUID in `glusterd.info`, if there is one.
    pub uuid: Option<PeerId>,
    /// The operating version in `glusterd.info`.
    pub operating_version: Option<u32>,
    /// The files in `peers/`.
    pub peers: Vec<PeerFile>,
    /// The volumes in `vols/`, with the directories of this pod's bricks.
    pub volumes: BTreeMap<VolumeName, Vec<BrickPath>>,
}

/// A file in `peers/`, which is named for the peer's UUID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFile {
    /// `uuid=`.
    pub uuid: PeerId,
    /// `state=`; 3 is a befriended peer.
    pub state: u32,
    /// `hostname1=` and so on.
    pub hosts: Vec<HostName>,
}

/// An identity to write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// `UUID=` in `glusterd.info`.
    pub uuid: PeerId,
    /// `operating-version=` in `glusterd.info`.
    pub operating_version: u32,
    /// The files in `peers/`, all of them.
    pub peers: Vec<PeerFile>,
}

/// The action before glusterd starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// Start glusterd without a change.
    Start,
    /// Replace identity and peers, then start; the old files are moved aside.
    Restore(Identity),
    /// Remove peers and volumes, keep the identity, then start; the old files are moved aside.
    Forget,
    /// Do not start yet; try again shortly.
    Wait(String),
}

/// Decides what to do before the glusterd of `ordinal` starts, from its state directory, the record and the reports of
/// the other pods that answer.
pub fn boot(
    wanted: &PoolSpec,
    ordinal: u32,
    state: &StateDir,
    record: &Record,
    reports: &BTreeMap<u32, Report>,
) -> Boot {
    let known = PoolKnowledge { wanted, ordinal, record, reports };
    if let Some(uuid) = state.uuid
        && let Some(other) = known.holder_of(uuid)
    {
        return Boot::Wait(format!(
            "UUID {uuid} is also the UUID of {}: one of the two state directories is a copy; remove the wrong one",
            wanted.pod(other)
        ));
    }
    match known.known_as() {
        KnownAs::Uuid(uuid) => boot_member(&known, state, uuid),
        KnownAs::Detached if state.peers.is_empty() && state.volumes.is_empty() => Boot::Start,
        KnownAs::Detached if known.has_all_of(state) => Boot::Forget,
        // It is not a member, so waiting loses nothing. Started without a change, it would be an unknown peer that
        // lists old peers.
        KnownAs::Detached if wanted.includes(ordinal) => Boot::Wait(format!(
            "{} was detached while it was disconnected, and no peer that answers has all the peers and volumes that it still lists",
            wanted.pod(ordinal)
        )),
        KnownAs::Detached | KnownAs::Unknown => Boot::Start,
    }
}

/// Returns the identity by which the pool knows the pod of `ordinal`, with its peers, for
/// [`crate::Repair::RestoreIdentity`]; none if the pool does not know the pod.
pub fn identity(wanted: &PoolSpec, ordinal: u32, record: &Record, reports: &BTreeMap<u32, Report>) -> Option<Identity> {
    let known = PoolKnowledge { wanted, ordinal, record, reports };
    match known.known_as() {
        KnownAs::Uuid(uuid) => known.identity(uuid),
        KnownAs::Detached | KnownAs::Unknown => None,
    }
}

/// Decides for a member of the pool: it starts without a change if it has its identity and peers, else with the
/// identity that the pool knows.
fn boot_member(known: &PoolKnowledge<'_>, state: &StateDir, uuid: PeerId) -> Boot {
    let Some(identity) = known.identity(uuid) else {
        return Boot::Wait("the operating version of the pool is not known".to_owned());
    };
    if state.uuid == Some(uuid) {
        // One peer is enough: glusterd learns of the others from it. A pod with its identity but without peers was
        // detached, unless another pod still lists it.
        let lost_peers = state.peers.is_empty() && !identity.peers.is_empty() && known.is_listed(uuid);
        // glusterd connects to the first name of a peer only, and the address of a pod changes.
        let misnamed = state
            .peers
            .iter()
            .any(|p| identity.peers.iter().any(|q| q.uuid == p.uuid && q.hosts.first() != p.hosts.first()));
        let no_peer_lost = state.peers.iter().all(|p| identity.peers.iter().any(|q| q.uuid == p.uuid));
        return if lost_peers || (misnamed && no_peer_lost) { Boot::Restore(identity) } else { Boot::Start };
    }
    // Without an identity, glusterd would create a new one, with the peers and volumes of the old one. Restoring the
    // identity keeps the volumes.
    if state.uuid.is_none() {
        return Boot::Restore(identity);
    }
    // Peers and volumes that only this directory knows are not overwritten.
    let nothing_lost = state.volumes.is_empty() && state.peers.is_empty();
    if nothing_lost || known.has_all_of(state) { Boot::Restore(identity) } else { Boot::Start }
}

/// How the pool knows a pod.
enum KnownAs {
    /// By this UUID.
    Uuid(PeerId),
    /// It was a member and was detached.
    Detached,
    /// It never was a member.
    Unknown,
}

/// What the record and the other pods know about a pod.
struct PoolKnowledge<'a> {
    wanted: &'a PoolSpec,
    ordinal: u32,
    record: &'a Record,
    reports: &'a BTreeMap<u32, Report>,
}

impl PoolKnowledge<'_> {
    /// Reports of other members: according to the record, or, without one, of pods with peers. A pod that lists no
    /// peers although it should is not counted.
    fn reporters(&self) -> impl Iterator<Item = &Report> {
        let joined = self.record.members.values().filter(|m| m.membership == Membership::Joined).count();
        self.reports.values().filter(move |r| {
            let recorded = self.record.members.get(&r.ordinal).filter(|m| m.membership == Membership::Joined);
            let of_the_pool = match recorded {
                Some(member) => r.uuid == Some(member.uuid) && (joined == 1 || !r.peers.is_empty()),
                None => joined == 0 && !r.peers.is_empty(),
            };
            r.ordinal != self.ordinal && r.daemon == Daemon::Running && of_the_pool
        })
    }

    /// Whether more than half of the recorded members answer: only a majority can tell that a pod is not a member.
    fn majority(&self) -> bool {
        let joined = self.record.members.values().filter(|m| m.membership == Membership::Joined).count();
        self.reporters().count() * 2 > joined
    }

    /// Returns another pod that has this identity, or is recorded with it.
    fn holder_of(&self, uuid: PeerId) -> Option<u32> {
        let reports = self.reports.values().filter(|r| r.uuid == Some(uuid)).map(|r| r.ordinal);
        let joined = self.record.members.iter().filter(|(_, m)| m.membership == Membership::Joined && m.uuid == uuid);
        reports.chain(joined.map(|(o, _)| *o)).find(|o| *o != self.ordinal)
    }

    /// Whether a member that answers lists this identity.
    fn is_listed(&self, uuid: PeerId) -> bool {
        self.reporters().any(|r| r.peers.iter().any(|p| p.uuid == Some(uuid)))
    }

    fn known_as(&self) -> KnownAs {
        let recorded = self.record.members.get(&self.ordinal);

        if let Some(member) = recorded.filter(|m| m.membership == Membership::Joined)
            && (self.is_listed(member.uuid) || !self.majority())
        {
            return KnownAs::Uuid(member.uuid);
        }
        // The record differs from the pool: look for the pod's name.
        if let Some(uuid) = self.majority().then(|| self.by_name()).flatten() {
            return KnownAs::Uuid(uuid);
        }
        if recorded.is_some() { KnownAs::Detached } else { KnownAs::Unknown }
    }

    /// Returns the only identity under which the members list a peer with this pod's name.
    fn by_name(&self) -> Option<PeerId> {
        let named = |p: &&Peer| p.hosts.iter().any(|h| self.wanted.ordinal(h) == Some(self.ordinal));
        let settled = |p: &&Peer| matches!(p.state, PeerState::Befriended | PeerState::Rejected);
        let mut uuids = self.reporters().flat_map(|r| &r.peers).filter(named).filter(settled).filter_map(|p| p.uuid);
        let first = uuids.next()?;
        uuids.all(|u| u == first).then_some(first)
    }

    /// Whether other pods have every peer and every volume of a state directory. A peer that is a pod of this pool
    /// under an old identity is no loss.
    fn has_all_of(&self, state: &StateDir) -> bool {
        let peers = state.peers.iter().all(|p| {
            let recorded = self.record.members.values().any(|m| m.uuid == p.uuid);
            let ours = |h: &HostName| self.record.joined().any(|(_, m)| m.host == *h || m.addresses.contains(h));
            recorded
                || p.hosts.iter().any(ours)
                || self.reporters().any(|r| r.uuid == Some(p.uuid) || r.peers.iter().any(|q| q.uuid == Some(p.uuid)))
        });
        let volumes = state.volumes.keys().all(|v| self.reporters().any(|r| r.volumes.iter().any(|w| w.name == *v)));
        peers && volumes
    }

    /// Builds the identity with all peers: recorded members that the pool still knows, and other peers that the members
    /// list.
    fn identity(&self, uuid: PeerId) -> Option<Identity> {
        let mut peers_by_id: BTreeMap<PeerId, Vec<HostName>> = BTreeMap::new();
        let majority = self.majority();
        for (ordinal, member) in self.record.members.iter().filter(|(_, m)| m.membership == Membership::Joined) {
            let known = self
                .reporters()
                .any(|r| r.uuid == Some(member.uuid) || r.peers.iter().any(|p| p.uuid == Some(member.uuid)));
            if *ordinal != self.ordinal && (known || !majority) {
                peers_by_id.insert(member.uuid, vec![member.host.clone()]);
            }
        }
        for report in self.reporters() {
            if let Some(own) = report.uuid {
                peers_by_id.entry(own).or_insert_with(|| vec![self.wanted.host(report.ordinal)]);
            }
            for peer in report.peers.iter().filter(|p| p.state == PeerState::Befriended) {
                // glusterd does not start with a peer file that has no host.
                let names = || Some((peer.uuid?, self.names(peer))).filter(|(_, hosts)| !hosts.is_empty());
                if let Some((uuid, hosts)) = names() {
                    peers_by_id.entry(uuid).or_insert(hosts);
                }
            }
        }
        peers_by_id.remove(&uuid);
        let recorded =
            self.record.members.values().filter(|m| m.membership == Membership::Joined).map(|m| m.operating_version);
        let reported = self.reporters().filter_map(|r| r.operating_version);
        let operating_version = recorded.chain(reported).max().filter(|v| *v > 0)?;
        let peers = peers_by_id.into_iter().map(|(uuid, hosts)| PeerFile { uuid, state: BEFRIENDED, hosts }).collect();
        Some(Identity { uuid, operating_version, peers })
    }

    /// Returns a peer's name in this pool; for a peer that is not a pod of the StatefulSet, all its names.
    fn names(&self, peer: &Peer) -> Vec<HostName> {
        let by_report = self.reports.values().find(|r| r.uuid.is_some() && r.uuid == peer.uuid).map(|r| r.ordinal);
        match by_report.or_else(|| peer.hosts.iter().find_map(|h| self.wanted.ordinal(h))) {
            Some(ordinal) => vec![self.wanted.host(ordinal)],
            None => peer.hosts.clone(),
        }
    }
}
