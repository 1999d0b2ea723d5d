//! What an agent says of its own pod's glusterd.

use serde::{Deserialize, Deserializer, Serialize};

use crate::json::{self, FieldError};
use crate::names::optional_id;
use crate::{BrickPath, HostName, PeerId, VolumeName};

/// How much of a free text is kept, in characters.
const LONGEST_TEXT: usize = 1000;

/// What one glusterd says, of itself and of the others.
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
    /// Its identity, as its state directory has it.
    pub uuid: Option<PeerId>,
    /// The operating version.
    pub operating_version: Option<u32>,
    /// The others, as it sees them; itself not among them.
    pub peers: Vec<Peer>,
    /// The volumes that it knows.
    pub volumes: Vec<Volume>,
    /// Entries that wait to be healed on this pod's bricks or from them, if that could be told.
    pub heals: Option<u64>,
    /// This pod's bricks whose disks do not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stuck_bricks: Vec<BrickPath>,
    /// The last order of the record that this agent carried out.
    pub done: Option<u64>,
    /// What the agent is doing or waits for, for people.
    #[serde(default, deserialize_with = "one_line")]
    pub doing: Option<String>,
}

impl Report {
    /// Reads a report. A value that is not valid is an error that names the field.
    pub fn from_json(json: &[u8]) -> Result<Report, FieldError> {
        json::read(json)
    }
}

/// Reads free text as one line of limited length: it is printed to terminals and written into events.
fn one_line<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let line = |text: String| text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(LONGEST_TEXT).collect();
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

/// Another peer, as one glusterd sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Its identity; none while it is being probed.
    #[serde(with = "optional_id")]
    pub uuid: Option<PeerId>,
    /// Its names and addresses.
    pub hosts: Vec<HostName>,
    /// How far the friendship is.
    pub state: PeerState,
    /// Whether there is a connection.
    pub connected: bool,
}

/// glusterd's state of a friendship, with its number.
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
    /// The state of a number, as it stands in `peers/` and in the command line's XML.
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

    /// glusterd's own words.
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

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Its name.
    pub name: VolumeName,
    /// The version of its definition, and the checksum: two that have the same version and another checksum reject each other.
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
    /// The host, as the volume was made with.
    pub host: HostName,
    /// The identity of the peer that holds it.
    pub uuid: Option<PeerId>,
    /// The directory.
    pub path: BrickPath,
}
