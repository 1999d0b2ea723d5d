//! The report of an agent about its pod's glusterd.

use serde::{Deserialize, Deserializer, Serialize};

use crate::json::{self, JsonFieldError};
use crate::names::optional_id;
use crate::{BrickPath, HostName, PeerId, VolumeName};

/// The maximum length of free text, in characters.
const MAX_TEXT: usize = 1000;

/// The state of one glusterd, and of the other peers as it sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The pod's ordinal.
    pub ordinal: u32,
    /// The pod's uid.
    pub pod: String,
    /// The pod's address.
    pub address: HostName,
    /// Whether glusterd runs.
    pub daemon: Daemon,
    /// The UUID in its state directory.
    pub uuid: Option<PeerId>,
    /// The operating version.
    pub operating_version: Option<u32>,
    /// The other peers as it sees them.
    pub peers: Vec<Peer>,
    /// The volumes that it knows.
    pub volumes: Vec<GlusterVolume>,
    /// The number of pending heals on this pod's bricks or from them; none if it is not known.
    pub heals: Option<u64>,
    /// This pod's bricks whose disks do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck_bricks: Vec<BrickPath>,
    /// The last order of the record that this agent carried out.
    pub done: Option<u64>,
    /// What the agent is doing or waits for, for users.
    #[serde(default, deserialize_with = "one_line")]
    pub doing: Option<String>,
}

impl Report {
    /// Reads a report. A value that is not valid is an error that names the field.
    pub fn from_json(json: &[u8]) -> Result<Report, JsonFieldError> {
        json::read(json)
    }
}

/// Reads free text as one line of limited length: it is printed to terminals and written into events.
fn one_line<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let line = |text: String| text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_TEXT).collect();
    Ok(text.map(line))
}

/// Whether glusterd runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Daemon {
    /// It has not been started yet, or it is stopped for a repair.
    Stopped,
    /// It was started and does not answer yet.
    Starting,
    /// It answers.
    Running,
}

/// A peer as another glusterd sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its UUID; none while it is being probed.
    #[serde(with = "optional_id")]
    pub uuid: Option<PeerId>,
    /// Its names and addresses.
    pub hosts: Vec<HostName>,
    /// The state of the peer relationship.
    pub state: PeerState,
    /// Whether it is connected.
    pub connected: bool,
}

/// glusterd's state of a peer relationship, with its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PeerState {
    /// 0: "Establishing Connection".
    Default,
    /// 1: "Probe Sent to Peer".
    RequestSent,
    /// 2: "Probe Received from Peer".
    RequestReceived,
    /// 3: "Peer in Cluster".
    Befriended,
    /// 4: "Accepted peer request".
    RequestAccepted,
    /// 5: "Sent and Received peer request".
    RequestSentReceived,
    /// 6: "Peer Rejected".
    Rejected,
    /// 7: "Peer detach in progress".
    UnfriendSent,
    /// 8: "Probe Received from peer".
    ProbeReceived,
    /// 9: "Connected to Peer".
    ConnectedReceived,
    /// 10: "Peer is connected and Accepted".
    ConnectedAccepted,
    /// Another number.
    Unknown,
}

impl PeerState {
    /// Returns the state for the number in `peers/` and in the XML output.
    pub fn of(number: u32) -> PeerState {
        match number {
            0 => PeerState::Default,
            1 => PeerState::RequestSent,
            2 => PeerState::RequestReceived,
            3 => PeerState::Befriended,
            4 => PeerState::RequestAccepted,
            5 => PeerState::RequestSentReceived,
            6 => PeerState::Rejected,
            7 => PeerState::UnfriendSent,
            8 => PeerState::ProbeReceived,
            9 => PeerState::ConnectedReceived,
            10 => PeerState::ConnectedAccepted,
            _ => PeerState::Unknown,
        }
    }

    /// The state in glusterd's wording.
    pub fn words(self) -> &'static str {
        match self {
            PeerState::Default => "Establishing Connection",
            PeerState::RequestSent => "Probe Sent to Peer",
            PeerState::RequestReceived => "Probe Received from Peer",
            PeerState::Befriended => "Peer in Cluster",
            PeerState::RequestAccepted => "Accepted peer request",
            PeerState::RequestSentReceived => "Sent and Received peer request",
            PeerState::Rejected => "Peer Rejected",
            PeerState::UnfriendSent => "Peer detach in progress",
            PeerState::ProbeReceived => "Probe Received from peer",
            PeerState::ConnectedReceived => "Connected to Peer",
            PeerState::ConnectedAccepted => "Peer is connected and Accepted",
            PeerState::Unknown => "Invalid State",
        }
    }
}

/// A Gluster volume, as one glusterd knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GlusterVolume {
    /// Its name.
    pub name: VolumeName,
    /// The version of its definition. Peers with the same version and different checksums reject each other.
    pub version: Option<u64>,
    /// The checksum of its definition.
    pub checksum: Option<String>,
    /// Whether it is started.
    pub started: bool,
    /// Its bricks.
    pub bricks: Vec<Brick>,
}

/// A brick of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Brick {
    /// The host name that the volume was created with.
    pub host: HostName,
    /// The UUID of the peer that holds it.
    pub uuid: Option<PeerId>,
    /// The directory.
    pub path: BrickPath,
}
