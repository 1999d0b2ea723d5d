//! The record of a pool, stored in Kubernetes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::id_or_nil;
use crate::{BrickPath, HostName, PeerId, VolumeName};

/// The record of a pool, stored in Kubernetes: enough to restore the identity of each pod when no peer answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Current and former members of the pool, by ordinal.
    pub members: BTreeMap<u32, Member>,
    /// The repair in progress: one at a time.
    pub order: Option<RepairOrder>,
    /// The number of the last order.
    pub orders: u64,
}

impl Record {
    /// The current members.
    pub fn joined(&self) -> impl Iterator<Item = (u32, &Member)> {
        self.members.iter().filter(|(_, m)| m.membership == Membership::Joined).map(|(o, m)| (*o, m))
    }

    /// The current member of this ordinal.
    pub fn joined_as(&self, ordinal: u32) -> Option<&Member> {
        self.members.get(&ordinal).filter(|m| m.membership == Membership::Joined)
    }
}

/// A current or former member of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// Its host name.
    pub host: HostName,
    /// Its UUID.
    #[serde(deserialize_with = "id_or_nil")]
    pub uuid: PeerId,
    /// Its last known operating version.
    pub operating_version: u32,
    /// Its last few addresses, the latest first.
    pub addresses: Vec<HostName>,
    /// Its bricks.
    pub bricks: Vec<BrickAt>,
    /// Whether it is a current member.
    #[serde(rename = "standing")]
    pub membership: Membership,
    /// Its last state as reported by other peers, in glusterd's wording, for people.
    pub seen: String,
    /// Since when it has been in this state, in seconds of the clock of [`crate::DecisionInput::now`].
    #[serde(default)]
    pub since: u64,
    /// Since when no other member lists it as a peer, by the same clock; none while one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted_since: Option<u64>,
}

impl Member {
    /// A current member of which nothing else is known yet.
    pub fn joined(host: HostName, uuid: PeerId, operating_version: u32) -> Member {
        Member {
            host,
            uuid,
            operating_version,
            addresses: Vec::new(),
            bricks: Vec::new(),
            membership: Membership::Joined,
            seen: String::new(),
            since: 0,
            unlisted_since: None,
        }
    }
}

/// Whether a peer is a current member of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Membership {
    /// A current member.
    Joined,
    /// A former member that was detached.
    Left,
}

/// A brick that a member holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BrickAt {
    /// The volume.
    pub volume: VolumeName,
    /// The directory.
    pub path: BrickPath,
}

/// A repair that an agent has to carry out on its own pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairOrder {
    /// The number of the order.
    pub id: u64,
    /// The ordinal of the pod.
    pub ordinal: u32,
    /// The pod's uid: another pod of the same name does not carry it out.
    pub pod: String,
    /// The kind of repair.
    pub repair: Repair,
    /// When the order was given, in seconds of the clock of [`crate::DecisionInput::now`].
    pub since: u64,
    /// When the agent reported that it is done, by the same clock: from then on the pool has time to recover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<u64>,
    /// Whether the agent must not start it any more. The order stays until the agent reports that it is done with it:
    /// it may have started before it read this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// The volumes that other peers have too. [`Repair::ResyncVolumes`] removes these; no other repair is carried out
    /// on a peer that has more.
    #[serde(default)]
    pub volumes: Vec<VolumeName>,
    /// The reason, for people.
    pub reason: String,
}

/// A kind of repair. It requires glusterd to be stopped. Removed files are moved aside, never deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repair {
    /// Restore the old UUID and the list of peers.
    RestoreIdentity,
    /// Remove the definitions of the order's volumes; glusterd fetches them from the other peers.
    ResyncVolumes,
    /// Remove peers and volumes, keep the UUID: the peer was detached while it was disconnected.
    Forget,
    /// Rewrite the list of peers with their host names: the peer looks for another one at an old address.
    CorrectNames,
}
