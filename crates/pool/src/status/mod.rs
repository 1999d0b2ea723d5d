//! How a pool stands, for people: every peer as every other sees it.
//!
//! [`StatusInput`] is what was read from outside: what Kubernetes has, and what the agents answered. [`status`] judges it,
//! [`render`] puts it into words. Whether the pool is whole is judged by the peers' own views alone, not by what the
//! agents think of it.

mod evaluate;
mod matrix;
mod render;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config_map::RecordError;
use crate::{BrickPath, Daemon, FieldError, Membership, PeerId, PoolSpec, Record, Report, VolumeName};

pub use evaluate::status;
pub use render::render;

/// What was seen of a pool.
#[derive(Debug, Clone)]
pub struct StatusInput {
    /// The namespace.
    pub namespace: String,
    /// What the StatefulSet wants.
    pub wanted: PoolSpec,
    /// What is recorded; none if there is no record, or why it cannot be read.
    pub record: Result<Option<Record>, RecordError>,
    /// The pod that holds the Lease.
    pub decider: Option<String>,
    /// The pods that Kubernetes has.
    pub pods: BTreeMap<u32, PodSummary>,
    /// What the pods' agents answered, or why they did not.
    pub answers: BTreeMap<u32, Result<AgentAnswer, NoAgentAnswer>>,
    /// What was said in events, the oldest first.
    pub events: Vec<PoolEvent>,
    /// Seconds of the clock that the record's times are of.
    pub now: u64,
}

/// A pod, as Kubernetes has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSummary {
    /// Its node, once it has one.
    pub node: Option<String>,
    /// In one word: `ready`, `not ready`, `ending`, or its phase.
    pub state: String,
}

/// Why an agent gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAgentAnswer {
    /// Its pod has no address yet.
    #[error("its pod has no address yet")]
    NoAddress,
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// It does not have a page of this name.
    #[error("it has no page /{0}")]
    NoPage(&'static str),
    /// It could not be reached, or the API server says no.
    #[error("{0}")]
    Refused(String),
    /// What it answered is no report.
    #[error("its answer cannot be read: {0}")]
    Unreadable(#[from] FieldError),
}

/// What an agent answered.
#[derive(Debug, Clone)]
pub struct AgentAnswer {
    /// What its glusterd says.
    pub report: Report,
    /// Why it is not ready.
    pub unready: Option<String>,
    /// What it says of the pool, if it decides.
    pub notes: Vec<NoteText>,
}

/// What an agent says of itself and the pool: its page `/pool`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolPage {
    /// The pool.
    #[serde(default)]
    pub pool: String,
    /// The agent's pod.
    #[serde(default)]
    pub ordinal: u32,
    /// Whether it leads.
    #[serde(default)]
    pub leads: bool,
    /// Why it is not ready.
    #[serde(default)]
    pub unready: Option<String>,
    /// What it says of the pool, if it leads.
    #[serde(default)]
    pub notes: Vec<NoteText>,
}

/// Something that an agent says of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteText {
    /// Whose pod; none if it is about the whole pool.
    pub ordinal: Option<u32>,
    /// A word for machines.
    pub reason: String,
    /// A sentence for people.
    pub text: String,
    /// `Normal` or `Warning`.
    pub severity: String,
}

/// What was said in an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolEvent {
    /// When, as Kubernetes writes times.
    pub time: String,
    /// Of whom.
    pub pod: String,
    /// A word for machines.
    pub reason: String,
    /// A sentence for people.
    pub text: String,
    /// `Normal` or `Warning`.
    pub severity: String,
}

/// How a pool stands.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// Its name.
    pub pool: String,
    /// Its namespace.
    pub namespace: String,
    /// Whether every peer that is wanted sees every other in the pool and connected, and nothing is left to do.
    pub whole: bool,
    /// How many peers are wanted.
    pub wanted: u32,
    /// The pod that decides for the pool.
    pub decider: Option<String>,
    /// The peers.
    pub peers: Vec<PeerStatus>,
    /// Volumes with their bricks, as `POD:DIRECTORY`.
    pub volumes: BTreeMap<VolumeName, Vec<String>>,
    /// What keeps the pool from being whole, in sentences.
    pub troubles: Vec<String>,
    /// The repair that is under way.
    pub repair: Option<RepairStatus>,
    /// What the one who decides says.
    pub notes: Vec<NoteText>,
    /// What was said in events, the oldest first.
    pub events: Vec<PoolEvent>,
}

/// How a peer stands.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerStatus {
    /// The pod's name.
    pub pod: String,
    /// Whether the StatefulSet wants it.
    pub wanted: bool,
    /// Whether it belongs to the pool; none if it is not recorded.
    #[serde(rename = "standing")]
    pub membership: Option<Membership>,
    /// The pod in one word.
    pub pod_state: String,
    /// Its node.
    pub node: Option<String>,
    /// Whether its glusterd runs; none if its agent did not answer.
    pub glusterd: Option<Daemon>,
    /// Its identity, as itself or else the record says.
    pub uuid: Option<PeerId>,
    /// The volumes that it holds bricks of.
    pub bricks: Vec<VolumeName>,
    /// Entries that wait to be healed.
    pub heals: Option<u64>,
    /// Its bricks whose disks do not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stuck_bricks: Vec<BrickPath>,
    /// How it sees the others, by pod; none if its agent did not answer.
    pub sees: Option<BTreeMap<String, PeerView>>,
    /// Others that it knows and that are no pods of this pool, by name.
    pub strangers: Vec<String>,
    /// What its agent does or waits for.
    pub doing: Option<String>,
    /// Why it is not ready.
    pub unready: Option<String>,
    /// Why its agent did not answer.
    pub silent: Option<String>,
}

/// How one peer sees another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerView {
    /// In glusterd's words, such as `Peer in Cluster (Connected)`; none if it does not know the other.
    pub words: Option<String>,
    /// In one word, for a table.
    pub word: PeerCondition,
    /// The identity by which it knows the other.
    pub uuid: Option<PeerId>,
    /// Whether others see the same peer in another way.
    pub disputed: bool,
}

/// The condition of a peer as another peer sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerCondition {
    /// In the pool and connected.
    Ok,
    /// In the pool and not connected.
    Away,
    /// Rejected.
    Rejected,
    /// Being detached.
    Leaving,
    /// Being added.
    Joining,
    /// Not listed.
    Unknown,
}

impl PeerCondition {
    fn as_str(self) -> &'static str {
        match self {
            PeerCondition::Ok => "ok",
            PeerCondition::Away => "away",
            PeerCondition::Rejected => "rejected",
            PeerCondition::Leaving => "leaving",
            PeerCondition::Joining => "joining",
            PeerCondition::Unknown => "unknown",
        }
    }
}

/// A repair that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepairStatus {
    /// Whose pod.
    pub pod: String,
    /// What is done.
    pub what: String,
    /// Why.
    pub reason: String,
    /// For how many seconds.
    pub seconds: u64,
}
