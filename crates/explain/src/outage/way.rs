//! The ways out, and what a way leads to.

use jiff::Timestamp;
use serde::Serialize;
use stead_forecast::{Milestone, Outlook};

use crate::explanation::some;

/// What a person may do about a node that is silent, or about what hangs on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Nothing.
    DoNothing,
    /// Have the machine back, as it was.
    NodeReturns,
    /// Delete the pod that is in the way without waiting for its kubelet.
    ForceDeletePod,
    /// Delete the Node object.
    DeleteNode,
    /// Taint the node as out of service.
    OutOfService,
    /// Have the Deployment end its old pods before it starts new ones.
    RecreateStrategy,
}

impl Way {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Way::DoNothing => "do-nothing",
            Way::NodeReturns => "node-returns",
            Way::ForceDeletePod => "force-delete-pod",
            Way::DeleteNode => "delete-node",
            Way::OutOfService => "out-of-service",
            Way::RecreateStrategy => "recreate-strategy",
        }
    }
}

/// One of the moments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What happens; or, of what never does, why.
    pub what: String,
    /// When; none for never.
    pub at: Option<Timestamp>,
}

/// What becomes of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) ready_at: Option<Timestamp>,
    pub(crate) nodes: Vec<String>,
    pub(crate) steps: Vec<Step>,
    /// Why it cannot be told whether it ever is Ready.
    pub(crate) unknown: Option<String>,
    /// What may come instead, by the scheduler's own chance.
    pub(crate) doubt: Option<String>,
}

impl Outcome {
    /// An outlook in words. `never` says why the pod is never Ready.
    pub(super) fn of(outlook: &Outlook, now: Timestamp, never: impl FnOnce() -> String) -> Outcome {
        let step = |(at, milestone): &(Timestamp, Milestone)| Step { what: what(milestone, *at <= now), at: Some(*at) };
        let mut out = Outcome {
            nodes: outlook.nodes.clone(),
            steps: outlook.milestones.iter().map(step).collect(),
            ..Outcome::default()
        };
        match &outlook.outcome {
            stead_forecast::Outcome::Ready(at) => {
                out.ready_at = Some(*at);
                out.steps.push(Step { what: "Ready".to_owned(), at: Some(*at) });
            }
            stead_forecast::Outcome::Never => out.steps.push(Step { what: never(), at: None }),
            stead_forecast::Outcome::Unknown(why) => out.unknown = Some(why.to_string()),
        }
        out.doubt = outlook.tie.as_ref().filter(|_| out.ready_at.is_some()).map(|tie| {
            format!(
                "the scheduler chooses one of {} equally good nodes, possibly {}, which is unreachable: the pod would not \
                 start there",
                tie.nodes,
                some(&tie.unreachable)
            )
        });
        out
    }
}

/// A moment in words.
fn what(milestone: &Milestone, is_past: bool) -> String {
    match milestone {
        Milestone::ReplacedBefore(pod) => format!("pod {pod} was created in its place"),
        Milestone::DeletionRequested(pod) if is_past => format!("the deletion of pod {pod} was requested"),
        Milestone::DeletionRequested(pod) => format!("the deletion of pod {pod} is requested"),
        Milestone::Gone(pod) => format!("the object of pod {pod} is gone"),
        Milestone::Created { again: false } => "its replacement is created".to_owned(),
        Milestone::Created { again: true } => "another is created".to_owned(),
        Milestone::Scheduled => "it is scheduled".to_owned(),
        Milestone::ScheduledToUnreachable(node) => format!("it is scheduled to {node}, which is unreachable"),
        Milestone::EvictedThere => "it is evicted there".to_owned(),
        Milestone::Detached { volume, node } => format!("volume {volume} is detached from {node}"),
        Milestone::StillRuns(node) => format!("the kubelet of {node} reports that it still runs"),
    }
}
