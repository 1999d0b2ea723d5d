//! What is kept of a pool in Kubernetes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::names::id_or_nil;
use crate::{BrickPath, HostName, PeerId, VolumeName};

/// What is kept of a pool in Kubernetes: enough to give each pod its identity back when no peer answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Who belongs to the pool, or did, by ordinal.
    pub members: BTreeMap<u32, Member>,
    /// The repair that is under way: one at a time.
    pub order: Option<Order>,
    /// The number of the last order.
    pub orders: u64,
}

impl Record {
    /// Those that belong to the pool.
    pub fn joined(&self) -> impl Iterator<Item = (u32, &Member)> {
        self.members.iter().filter(|(_, m)| m.standing == Standing::Joined).map(|(o, m)| (*o, m))
    }

    /// The one of this ordinal, if it belongs to the pool.
    pub fn joined_as(&self, ordinal: u32) -> Option<&Member> {
        self.members.get(&ordinal).filter(|m| m.standing == Standing::Joined)
    }
}

/// One of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The name by which the others know it.
    pub host: HostName,
    /// Its identity.
    #[serde(deserialize_with = "id_or_nil")]
    pub uuid: PeerId,
    /// The operating version that it had.
    pub operating_version: u32,
    /// The addresses that it had, the last one first; a few of them.
    pub addresses: Vec<HostName>,
    /// What it holds.
    pub bricks: Vec<BrickAt>,
    /// Whether it belongs to the pool.
    pub standing: Standing,
    /// How the others saw it last, in glusterd's words, for people.
    pub seen: String,
    /// Since when they have seen it so, in seconds of the clock that [`crate::View::now`] is told by.
    #[serde(default)]
    pub since: u64,
    /// Since when no other member lists it as a peer, by the same clock; none while one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted_since: Option<u64>,
}

/// Whether one belongs to the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    /// It does.
    Joined,
    /// It did, and was detached.
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

/// A repair that one agent is to make on its own pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// Its number.
    pub id: u64,
    /// Whose pod.
    pub ordinal: u32,
    /// The pod's uid: another pod of the same name does not carry it out.
    pub pod: String,
    /// What to do.
    pub repair: Repair,
    /// Since when, in seconds of the clock that [`crate::View::now`] is told by.
    pub since: u64,
    /// Since when it is known to be carried out, by the same clock: from then on the pool has time to settle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<u64>,
    /// Whether the agent is not to begin any more. The order stays until the agent reports that it is done with it: it
    /// may have begun before it read this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// The volumes that others have too. [`Repair::ResyncVolumes`] takes these away; no other repair is carried out on one
    /// that has more.
    #[serde(default)]
    pub volumes: Vec<VolumeName>,
    /// Why, for people.
    pub reason: String,
}

/// What is repaired, with glusterd stopped. What is taken away is kept aside, never deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Repair {
    /// Its old identity and its peers are written back.
    RestoreIdentity,
    /// Its definitions of the order's volumes are taken away; they come back from the others.
    ResyncVolumes,
    /// It was detached while it was away: peers and volumes are taken away, its identity stays.
    Forget,
    /// It looks for a peer at an address that this one had: its peers are written anew, by their names.
    CorrectNames,
}
