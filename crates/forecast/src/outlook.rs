//! What becomes of a pod: typed facts, which others put into words.

use jiff::Timestamp;
use stead_model::ObjectKey;

/// What becomes of a pod and of those that replace it.
#[derive(Debug, Clone, PartialEq)]
pub struct Outlook {
    /// How it ends.
    pub outcome: Outcome,
    /// The moments on the way, in the order of time.
    pub milestones: Vec<(Timestamp, Milestone)>,
    /// The nodes that it may go to, the likeliest first; the node that it has.
    pub nodes: Vec<String>,
    /// The last pod of the line, as long as it exists.
    pub pod: Option<ObjectKey>,
    /// The scheduler may have chosen a node that nothing is heard of.
    pub tie: Option<TieWithUnreachable>,
}

/// How it ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// The pod, or the one in its place, is Ready at this time.
    Ready(Timestamp),
    /// Never: nothing that it depends on changes any more, or only the same things over and over again.
    Never,
    /// It cannot be told.
    Unknown(Uncertainty),
}

/// Why something cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Uncertainty {
    /// Objects were not read.
    #[error("{0} were not read: where its volumes are is unknown")]
    Unread(&'static str),
    /// It needs something that is not modelled.
    #[error("{0}")]
    Unmodelled(String),
    /// Pods that do not take part have to make room.
    #[error("the scheduler removes other pods for it: when they have ended is unknown")]
    Preempts,
    /// The pod has a scheduler of its own.
    #[error("it is scheduled by {0}, which is not simulated")]
    OtherScheduler(String),
    /// The pod has a controller that is not one of Kubernetes.
    #[error("its {0} {1} is not simulated: whether and when that creates a replacement is unknown")]
    OtherController(String, String),
    /// A StatefulSet creates the pod after another one, of which it cannot be told.
    #[error("its StatefulSet creates it only when pod {pod} is Ready, which is unknown: {why}")]
    Predecessor {
        /// The other pod.
        pod: String,
        /// Why it cannot be told.
        why: Box<Uncertainty>,
    },
    /// A kubelet has not ended a pod though its grace period is over.
    #[error("the kubelet of {node} has not ended pod {pod}, although its grace period is over: why is unknown")]
    KubeletStuck {
        /// The pod.
        pod: String,
        /// The node.
        node: String,
    },
    /// A pod is scheduled to a node that is lost, because it is not marked unreachable yet.
    #[error("it may be scheduled to {0}, which is not marked unreachable yet: that depends on when the command is run")]
    NotMarkedYet(String),
    /// The simulation has reached a limit.
    #[error("the simulation ended at {0}, before the cluster came to rest")]
    NotSettled(Timestamp),
}

/// The scheduler chooses at random among equally good nodes, and nothing is heard of some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TieWithUnreachable {
    /// How many nodes are equally good.
    pub nodes: usize,
    /// Those that nothing is heard of.
    pub unreachable: Vec<String>,
}

/// A moment on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Milestone {
    /// A pod was created in its place before now.
    ReplacedBefore(String),
    /// The deletion of a pod is requested, or was.
    DeletionRequested(String),
    /// The object of a pod is gone.
    Gone(String),
    /// The replacement is created; `again` if that of a replacement.
    Created {
        /// Whether it replaces a replacement.
        again: bool,
    },
    /// It is scheduled.
    Scheduled,
    /// It is scheduled to a node that nothing is heard of.
    ScheduledToUnreachable(String),
    /// It is evicted from there.
    EvictedThere,
    /// A volume is detached from a node.
    Detached {
        /// The PersistentVolume.
        volume: String,
        /// The node.
        node: String,
    },
    /// The kubelet of a node that is back reports that it runs.
    StillRuns(String),
}
