//! What a pod's state has to be before its glusterd starts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{BrickPath, Daemon, HostName, Membership, Peer, PeerId, PeerState, PoolSpec, Record, Report, VolumeName};

/// `state=` of a friend in a file of `peers/`.
const FRIEND: u32 = 3;

/// What a pod's `/var/lib/glusterd` holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateDir {
    /// The identity in `glusterd.info`, if there is one.
    pub uuid: Option<PeerId>,
    /// The operating version in `glusterd.info`.
    pub operating_version: Option<u32>,
    /// The files in `peers/`.
    pub peers: Vec<PeerFile>,
    /// The volumes in `vols/`, with the directories of bricks that are this pod's own.
    pub volumes: BTreeMap<VolumeName, Vec<BrickPath>>,
}

/// A file in `peers/`, which is named for the identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerFile {
    /// `uuid=`.
    pub uuid: PeerId,
    /// `state=`; 3 is a friend.
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

/// What to do before glusterd starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Boot {
    /// Start it as it is.
    Start,
    /// Write this identity in place of what is there, then start; what is there is kept aside.
    Restore(Identity),
    /// Take peers and volumes away, keep the identity, then start; what is there is kept aside.
    Forget,
    /// Do not start yet: look again shortly.
    Wait(String),
}

/// What to do before the glusterd of `ordinal` starts, by what its state directory holds, what is recorded, and what
/// those of the others that answer report.
pub fn boot(
    wanted: &PoolSpec,
    ordinal: u32,
    state: &StateDir,
    record: &Record,
    reports: &BTreeMap<u32, Report>,
) -> Boot {
    let known = Known { wanted, ordinal, record, reports };
    if let Some(uuid) = state.uuid
        && let Some(other) = known.holder_of(uuid)
    {
        return Boot::Wait(format!(
            "UUID {uuid} is also that of {}: one of the two state directories is a copy; remove the wrong one",
            wanted.pod(other)
        ));
    }
    match known.known_as() {
        KnownAs::Uuid(uuid) => comes_back(&known, state, uuid),
        KnownAs::Detached if state.peers.is_empty() && state.volumes.is_empty() => Boot::Start,
        KnownAs::Detached if known.has_all_of(state) => Boot::Forget,
        // It is not of the pool, so nothing is lost by waiting; started as it is, it would be a stranger with old friends.
        KnownAs::Detached if wanted.includes(ordinal) => Boot::Wait(format!(
            "{} was detached while it was disconnected, and no peer that answers has all the peers and volumes that it still lists",
            wanted.pod(ordinal)
        )),
        KnownAs::Detached | KnownAs::Unknown => Boot::Start,
    }
}

/// The identity that the pool knows the pod of `ordinal` by, with its friends, to be written for
/// [`crate::Repair::RestoreIdentity`]; none if the pool does not know it.
pub fn identity(wanted: &PoolSpec, ordinal: u32, record: &Record, reports: &BTreeMap<u32, Report>) -> Option<Identity> {
    let known = Known { wanted, ordinal, record, reports };
    match known.known_as() {
        KnownAs::Uuid(uuid) => known.identity(uuid),
        KnownAs::Detached | KnownAs::Unknown => None,
    }
}

/// A pod of the pool starts: as it is if it knows who it is and has friends, else with what the pool knows of it.
fn comes_back(known: &Known<'_>, state: &StateDir, uuid: PeerId) -> Boot {
    let Some(identity) = known.identity(uuid) else {
        return Boot::Wait("the operating version of the pool is not known".to_owned());
    };
    if state.uuid == Some(uuid) {
        // One friend is enough: glusterd learns of the others from it. One that has its identity and no friends was
        // detached, unless somebody has it as a friend still.
        let lost_friends = state.peers.is_empty() && !identity.peers.is_empty() && known.is_listed(uuid);
        // glusterd calls a friend by its first name only, and a pod's address does not last.
        let misnamed = state
            .peers
            .iter()
            .any(|p| identity.peers.iter().any(|q| q.uuid == p.uuid && q.hosts.first() != p.hosts.first()));
        let nobody_lost = state.peers.iter().all(|p| identity.peers.iter().any(|q| q.uuid == p.uuid));
        return if lost_friends || (misnamed && nobody_lost) { Boot::Restore(identity) } else { Boot::Start };
    }
    // One without an identity is nobody: glusterd would make it a stranger with somebody's friends and volumes. The
    // volumes stay where they are when the identity is written.
    if state.uuid.is_none() {
        return Boot::Restore(identity);
    }
    // Friends and volumes that only this directory knows are not written over, whatever they are.
    let nothing_lost = state.volumes.is_empty() && state.peers.is_empty();
    if nothing_lost || known.has_all_of(state) { Boot::Restore(identity) } else { Boot::Start }
}

/// By which identity the pool knows a name.
enum KnownAs {
    /// By this one.
    Uuid(PeerId),
    /// It was of the pool and is no more.
    Detached,
    /// The pool never heard of it.
    Unknown,
}

/// What is known about a pod without asking itself.
struct Known<'a> {
    wanted: &'a PoolSpec,
    ordinal: u32,
    record: &'a Record,
    reports: &'a BTreeMap<u32, Report>,
}

impl Known<'_> {
    /// The others that are of the pool, by what is recorded or, if nothing is, by having friends. One that has no
    /// friends though it should is no witness.
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

    /// Whether those that answer are more than half of what is recorded: only they can say that one is not of the pool.
    fn majority(&self) -> bool {
        let joined = self.record.members.values().filter(|m| m.membership == Membership::Joined).count();
        self.reporters().count() * 2 > joined
    }

    /// Another pod that has this identity, or is recorded with it.
    fn holder_of(&self, uuid: PeerId) -> Option<u32> {
        let reports = self.reports.values().filter(|r| r.uuid == Some(uuid)).map(|r| r.ordinal);
        let joined = self.record.members.iter().filter(|(_, m)| m.membership == Membership::Joined && m.uuid == uuid);
        reports.chain(joined.map(|(o, _)| *o)).find(|o| *o != self.ordinal)
    }

    /// Whether one that answers knows this identity.
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
        // What is recorded is not what the pool says: it is asked for the name.
        if let Some(uuid) = self.majority().then(|| self.by_name()).flatten() {
            return KnownAs::Uuid(uuid);
        }
        if recorded.is_some() { KnownAs::Detached } else { KnownAs::Unknown }
    }

    /// The one identity under which those that answer have this pod's name among their friends.
    fn by_name(&self) -> Option<PeerId> {
        let named = |p: &&Peer| p.hosts.iter().any(|h| self.wanted.ordinal(h) == Some(self.ordinal));
        let settled = |p: &&Peer| matches!(p.state, PeerState::Befriended | PeerState::Rejected);
        let mut uuids = self.reporters().flat_map(|r| &r.peers).filter(named).filter(settled).filter_map(|p| p.uuid);
        let first = uuids.next()?;
        uuids.all(|u| u == first).then_some(first)
    }

    /// Whether others have every friend and every volume that a state directory has. A friend that is a pod of the pool
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

    /// The identity with all friends: those recorded that the pool still knows, and those that it has besides.
    fn identity(&self, uuid: PeerId) -> Option<Identity> {
        let mut friends: BTreeMap<PeerId, Vec<HostName>> = BTreeMap::new();
        let majority = self.majority();
        for (ordinal, member) in self.record.members.iter().filter(|(_, m)| m.membership == Membership::Joined) {
            let known = self
                .reporters()
                .any(|r| r.uuid == Some(member.uuid) || r.peers.iter().any(|p| p.uuid == Some(member.uuid)));
            if *ordinal != self.ordinal && (known || !majority) {
                friends.insert(member.uuid, vec![member.host.clone()]);
            }
        }
        for report in self.reporters() {
            if let Some(own) = report.uuid {
                friends.entry(own).or_insert_with(|| vec![self.wanted.host(report.ordinal)]);
            }
            for peer in report.peers.iter().filter(|p| p.state == PeerState::Befriended) {
                // A file without a host would keep glusterd from starting.
                let names = || Some((peer.uuid?, self.names(peer))).filter(|(_, hosts)| !hosts.is_empty());
                if let Some((uuid, hosts)) = names() {
                    friends.entry(uuid).or_insert(hosts);
                }
            }
        }
        friends.remove(&uuid);
        let recorded =
            self.record.members.values().filter(|m| m.membership == Membership::Joined).map(|m| m.operating_version);
        let reported = self.reporters().filter_map(|r| r.operating_version);
        let operating_version = recorded.chain(reported).max().filter(|v| *v > 0)?;
        let peers = friends.into_iter().map(|(uuid, hosts)| PeerFile { uuid, state: FRIEND, hosts }).collect();
        Some(Identity { uuid, operating_version, peers })
    }

    /// A peer's name in this pool; of one that is not of the StatefulSet, the names that it has.
    fn names(&self, peer: &Peer) -> Vec<HostName> {
        let by_report = self.reports.values().find(|r| r.uuid.is_some() && r.uuid == peer.uuid).map(|r| r.ordinal);
        match by_report.or_else(|| peer.hosts.iter().find_map(|h| self.wanted.ordinal(h))) {
            Some(ordinal) => vec![self.wanted.host(ordinal)],
            None => peer.hosts.clone(),
        }
    }
}
