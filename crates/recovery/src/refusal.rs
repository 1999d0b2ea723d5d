//! Why a recovery does not start or continue.

use jiff::Timestamp;
use stead_model::{ModelError, OUT_OF_SERVICE};

use crate::concurrency::{LimitReached, MostUnreachable};
use crate::drivers::UnrevokedVolume;
use crate::evidence::NoEvidence;
use crate::plan::PlanError;
use crate::record::EvidenceKind;
use crate::record_size::MAX_RECORD;
use crate::sign_of_life::SignOfLife;

/// Why a recovery does not start or continue. Nothing was written by the step that gives this reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no Node of this name.
    #[error("node {0}: not found")]
    NodeNotFound(String),
    /// The Node that the recovery is for is gone.
    #[error("node {node} with UID {uid} is gone")]
    NodeGone {
        /// The node.
        node: String,
        /// The UID that it had.
        uid: String,
    },
    /// An object that the decision depends on is malformed.
    #[error(transparent)]
    Malformed(#[from] ModelError),
    /// A record of the node cannot be read.
    #[error(
        "NodeRecovery {name} cannot be read ({error}): repair it, or delete it if its node does not have the taint \
         {OUT_OF_SERVICE}"
    )]
    UnreadableRecord {
        /// The record.
        name: String,
        /// What is wrong with it.
        error: ModelError,
    },
    /// The node is alive.
    #[error("{0}")]
    Alive(SignOfLife),
    /// Nothing proves that the machine is off.
    #[error(transparent)]
    NoEvidence(#[from] NoEvidence),
    /// The record has no evidence.
    #[error("node {0}: its record has no evidence")]
    NoRecordedEvidence(String),
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The node has nothing that a recovery would release.
    #[error("node {0}: no pod or volume to release")]
    NothingToRelease(String),
    /// The same, where the recoveries of other nodes need the evidence of this one.
    #[error("node {0}: no pod or volume to release; recorded as evidence for the recoveries of other nodes")]
    RecordedAsEvidence(String),
    /// Most nodes are not Ready.
    #[error(transparent)]
    MostUnreachable(#[from] MostUnreachable),
    /// Other recoveries come first.
    #[error(transparent)]
    LimitReached(#[from] LimitReached),
    /// Volumes are involved that a suspended machine could still write to.
    #[error(
        "node {node}: {}: detaching does not stop the machine from writing to it, so a suspended machine does not count \
         as off; state that the machine is powered off with --powered-off",
        first_three(volumes)
    )]
    PowerOffNotStated {
        /// The node.
        node: String,
        /// The volumes that the machine can still write to after they were detached.
        volumes: Vec<UnrevokedVolume>,
    },
    /// The policy no longer accepts the evidence that the recovery was started with.
    #[error("node {node}: the policy no longer accepts {kind:?}, the evidence that this recovery was started with")]
    EvidenceNotAccepted {
        /// The node.
        node: String,
        /// The kind of the evidence.
        kind: EvidenceKind,
    },
    /// The evidence has expired before the taint was applied.
    #[error(
        "node {node}: the evidence that its machine is off is too old ({by} at {at}), and nothing was done since; confirm \
         again with --confirm-off \"REASON\", or undo the recovery with --abort"
    )]
    EvidenceExpired {
        /// The node.
        node: String,
        /// Who stated it.
        by: String,
        /// When.
        at: Timestamp,
    },
    /// New evidence does not prove that everything in the plan has stopped.
    #[error("node {node}: {what}: the evidence ({kind:?}) does not cover it")]
    EvidenceDoesNotCover {
        /// The node.
        node: String,
        /// What it does not cover.
        what: String,
        /// The kind of the evidence.
        kind: EvidenceKind,
    },
    /// There is no recovery to abort.
    #[error("node {0}: no recovery to abort")]
    NothingToAbort(String),
    /// Pods or volumes were already released.
    #[error(
        "node {node}: too late to abort: pods or volumes were released at {since}; the taint is removed when the node is back"
    )]
    TooLateToAbort {
        /// The node.
        node: String,
        /// The point of no return.
        since: Timestamp,
    },
    /// Somebody removed the taint before everything was released.
    #[error(
        "node {0}: somebody removed the taint {OUT_OF_SERVICE} before all pods and volumes were released: confirm again \
         with --confirm-off to continue, or undo the recovery with --abort"
    )]
    TaintRemoved(String),
    /// The record does not fit into etcd.
    #[error(
        "node {node}: the record of its recovery would have {size} bytes, more than the {MAX_RECORD} that fit into etcd: \
         too many of its pods stay; delete those that are not needed"
    )]
    RecordTooLarge {
        /// The node.
        node: String,
        /// The size of the record.
        size: usize,
    },
}

/// The first three volumes, and how many more there are.
fn first_three(volumes: &[UnrevokedVolume]) -> String {
    let named: Vec<String> = volumes.iter().take(3).map(UnrevokedVolume::to_string).collect();
    let more = volumes.len().saturating_sub(named.len());
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{tail}", named.join(", "))
}
