//! The ways out, and what a way leads to.

use jiff::Timestamp;
use serde::Serialize;

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

/// Why something does not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Miss {
    /// It never does.
    Never(String),
    /// It cannot be told whether it does.
    Unknown(String),
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
    pub(super) fn step(&mut self, what: impl Into<String>, at: Timestamp) {
        self.steps.push(Step { what: what.into(), at: Some(at) });
    }

    pub(super) fn never(mut self, why: impl Into<String>) -> Outcome {
        self.steps.push(Step { what: why.into(), at: None });
        Outcome { ready_at: None, ..self }
    }

    pub(super) fn missed(self, miss: Miss) -> Outcome {
        match miss {
            Miss::Never(why) => self.never(why),
            Miss::Unknown(why) => Outcome { ready_at: None, unknown: Some(why), ..self },
        }
    }

    pub(super) fn ready(mut self, at: Timestamp) -> Outcome {
        self.step("Ready", at);
        Outcome { ready_at: Some(at), ..self }
    }
}
