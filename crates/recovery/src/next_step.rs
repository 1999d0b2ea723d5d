//! What a step leads to.

use std::time::Duration;

use serde_json::Value;

use crate::record::NodeRecovery;
use crate::refusal::Refusal;

/// What to do next about a recovery.
#[derive(Debug, Clone, PartialEq)]
pub struct NextStep {
    /// The one write to make now. After it, whether it succeeded or not, the cluster is read again.
    pub write: Option<RecoveryWrite>,
    /// What the recovery waits for.
    pub waits: Vec<Wait>,
    /// Why there is nothing more to do for now.
    pub end: Option<RecoveryEnd>,
    /// When to look again, if there is no write and no end.
    pub again: Duration,
    /// Whether the next step needs to know which pods the node's kubelet runs ([`crate::ClusterView::running`]).
    pub ask_running: bool,
}

impl NextStep {
    pub(crate) fn write(write: RecoveryWrite) -> NextStep {
        NextStep { write: Some(write), ..NextStep::wait(Vec::new()) }
    }

    pub(crate) fn wait(waits: Vec<Wait>) -> NextStep {
        NextStep { write: None, waits, end: None, again: Duration::from_secs(1), ask_running: false }
    }

    pub(crate) fn end(end: RecoveryEnd) -> NextStep {
        NextStep { end: Some(end), ..NextStep::wait(Vec::new()) }
    }

    pub(crate) fn refuse(refusal: impl Into<Refusal>) -> NextStep {
        NextStep::end(RecoveryEnd::Refused(refusal.into()))
    }

    /// The same, and the next step needs to know which pods the kubelet runs.
    pub(crate) fn asking_running(self) -> NextStep {
        NextStep { ask_running: true, ..self }
    }
}

/// One write. The API server refuses it if the object that it was decided for has changed.
#[derive(Debug, Clone, PartialEq)]
pub enum RecoveryWrite {
    /// The record: created if it has no resourceVersion, otherwise replaced at that version, spec and status in one write.
    Record(Box<NodeRecovery>),
    /// A JSON merge patch of the Node, with its UID and resourceVersion.
    Node {
        /// Its name.
        name: String,
        /// The patch.
        patch: Value,
        /// What it does, for people.
        what: String,
    },
    /// A JSON merge patch of a pod, with its UID and resourceVersion.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The patch.
        patch: Value,
        /// What it does, for people.
        what: String,
    },
    /// The deletion of a pod, with the usual grace period: the pod garbage collector does the rest.
    DeletePod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The UID that this was decided for.
        uid: String,
        /// The version that this was decided for.
        resource_version: String,
    },
}

/// Something that a recovery waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// A pod, a volume or the node.
    pub what: String,
    /// Its state.
    pub how: String,
}

impl std::fmt::Display for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.how)
    }
}

/// Why nothing more is done for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryEnd {
    /// All replacement pods are Ready. The taint stays until the node is back.
    Recovered,
    /// The node is back in service.
    Returned,
    /// Everything is as it was before.
    Undone,
    /// The recovery must not start or continue; this step has written nothing.
    Refused(Refusal),
}

impl RecoveryEnd {
    /// Why the recovery must not start or continue.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            RecoveryEnd::Recovered | RecoveryEnd::Returned | RecoveryEnd::Undone => None,
            RecoveryEnd::Refused(refusal) => Some(refusal),
        }
    }
}
