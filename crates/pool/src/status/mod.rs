//! The status of a pool for users: every peer as every other sees it.
//!
//! [`StatusInput`] has the objects in Kubernetes and the answers of the agents. [`status`] evaluates it, [`render`]
//! formats it. Whether the pool is healthy depends on the peers' reports only, not on the agents' notes.

mod evaluate;
mod matrix;
mod render;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::config_map::RecordError;
use crate::{BrickPath, Daemon, JsonFieldError, Membership, PeerId, PoolSpec, Record, Report, VolumeName};

pub use evaluate::status;
pub use render::render;

/// The input of a status.
#[derive(Debug, Clone)]
pub struct StatusInput {
    /// The namespace.
    pub namespace: String,
    /// The desired pods.
    pub wanted: PoolSpec,
    /// The record; none if there is none, or why it cannot be read.
    pub record: Result<Option<Record>, RecordError>,
    /// The pod that holds the Lease.
    pub decider: Option<String>,
    /// The pods in Kubernetes.
    pub pods: BTreeMap<u32, PodSummary>,
    /// The answers of the agents, or why there is none.
    pub answers: BTreeMap<u32, Result<AgentAnswer, NoAgentAnswer>>,
    /// Recent events, the oldest first.
    pub events: Vec<PoolEvent>,
    /// The time, in seconds of the clock of the record.
    pub now: u64,
}

/// A pod in Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSummary {
    /// The node, once it is scheduled.
    pub node: Option<String>,
    /// One of `ready`, `not ready`, `ending`, or the phase.
    pub state: String,
}

/// Why an agent did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoAgentAnswer {
    /// The pod has no address yet.
    #[error("its pod has no address yet")]
    NoAddress,
    /// The time limit was exceeded.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// The page does not exist.
    #[error("the agent has no page /{0}")]
    NoPage(&'static str),
    /// The agent could not be reached, or the API server refused the request.
    #[error("{0}")]
    Refused(String),
    /// The answer is not a valid report.
    #[error("its answer cannot be read: {0}")]
    Unreadable(#[from] JsonFieldError),
}

/// The answer of an agent.
#[derive(Debug, Clone)]
pub struct AgentAnswer {
    /// The report about its glusterd.
    pub report: Report,
    /// Why the pod is not ready.
    pub unready: Option<String>,
    /// The leader's notes, if the agent leads.
    pub notes: Vec<NoteText>,
}

/// The page `/pool` of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolPage {
    /// The pool.
    #[serde(default)]
    pub pool: String,
    /// The ordinal of the agent's pod.
    #[serde(default)]
    pub ordinal: u32,
    /// Whether the agent leads.
    #[serde(default)]
    pub leads: bool,
    /// Why the pod is not ready.
    #[serde(default)]
    pub unready: Option<String>,
    /// The leader's notes, if the agent leads.
    #[serde(default)]
    pub notes: Vec<NoteText>,
}

/// A note of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoteText {
    /// The ordinal of the pod; none if the note is about the whole pool.
    pub ordinal: Option<u32>,
    /// The reason, for programs.
    pub reason: String,
    /// The text, for users.
    pub text: String,
    /// `Normal` or `Warning`.
    pub severity: String,
}

/// An event about a pod of the pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolEvent {
    /// The time, as Kubernetes writes it.
    pub time: String,
    /// The pod.
    pub pod: String,
    /// The reason, for programs.
    pub reason: String,
    /// The text, for users.
    pub text: String,
    /// `Normal` or `Warning`.
    pub severity: String,
}

/// The status of a pool.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The name of the pool.
    pub pool: String,
    /// The namespace of the pool.
    pub namespace: String,
    /// Whether the pool is healthy: every wanted peer sees every other in the pool and connected, and nothing is left
    /// to do.
    pub whole: bool,
    /// The wanted number of peers.
    pub wanted: u32,
    /// The leader.
    pub decider: Option<String>,
    /// The peers.
    pub peers: Vec<PeerStatus>,
    /// Volumes with their bricks, as `POD:DIRECTORY`.
    pub volumes: BTreeMap<VolumeName, Vec<String>>,
    /// The problems, as sentences.
    pub troubles: Vec<String>,
    /// The repair in progress.
    pub repair: Option<RepairStatus>,
    /// The leader's notes.
    pub notes: Vec<NoteText>,
    /// Recent events, the oldest first.
    pub events: Vec<PoolEvent>,
}

/// The status of a peer.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerStatus {
    /// The pod's name.
    pub pod: String,
    /// Whether the StatefulSet includes it.
    pub wanted: bool,
    /// Whether it is a member; none if it is not recorded.
    #[serde(rename = "standing")]
    pub membership: Option<Membership>,
    /// The state of the pod in one word.
    pub pod_state: String,
    /// The node of the pod.
    pub node: Option<String>,
    /// Whether its glusterd runs; none if its agent did not answer.
    pub glusterd: Option<Daemon>,
    /// Its UUID, as reported or else as recorded.
    pub uuid: Option<PeerId>,
    /// The volumes that it holds bricks of.
    pub bricks: Vec<VolumeName>,
    /// The number of pending heals.
    pub heals: Option<u64>,
    /// Its bricks whose disks do not answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stuck_bricks: Vec<BrickPath>,
    /// How it sees the others, by pod; none if its agent did not answer.
    pub sees: Option<BTreeMap<String, PeerView>>,
    /// Peers that it lists and that are not pods of this pool.
    pub strangers: Vec<String>,
    /// What its agent is doing or waits for.
    pub doing: Option<String>,
    /// Why the pod is not ready.
    pub unready: Option<String>,
    /// Why its agent did not answer.
    pub silent: Option<String>,
}

/// How one peer sees another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeerView {
    /// The state in glusterd's wording, such as `Peer in Cluster (Connected)`; none if it does not list the other.
    pub words: Option<String>,
    /// The state in one word, for a table.
    pub word: PeerCondition,
    /// The UUID by which it knows the other.
    pub uuid: Option<PeerId>,
    /// Whether other peers report a different state.
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

/// A repair in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepairStatus {
    /// The pod.
    pub pod: String,
    /// The description of the repair.
    pub what: String,
    /// The reason.
    pub reason: String,
    /// The duration so far, in seconds.
    pub seconds: u64,
}
