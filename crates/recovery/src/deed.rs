//! What a step wants.

use std::time::Duration;

use serde_json::Value;

use crate::drivers::UnrevokedVolume;
use crate::record::NodeRecovery;

/// One look at a recovery.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The one write to make now; after it, whether it succeeded or not, the cluster is read anew.
    pub deed: Option<Deed>,
    /// What is waited for, for people.
    pub waits: Vec<Wait>,
    /// Whether there is nothing more to do for now.
    pub end: Option<End>,
    /// When to look again, where there is no deed and no end.
    pub again: Duration,
    /// Whether the next look needs to know what the node's kubelet really runs ([`crate::View::running`]).
    pub ask_running: bool,
}

impl Step {
    pub(crate) fn write(deed: Deed) -> Step {
        Step { deed: Some(deed), ..Step::wait(Vec::new()) }
    }

    pub(crate) fn wait(waits: Vec<Wait>) -> Step {
        Step { deed: None, waits, end: None, again: Duration::from_secs(1), ask_running: false }
    }

    pub(crate) fn end(end: End) -> Step {
        Step { end: Some(end), ..Step::wait(Vec::new()) }
    }

    pub(crate) fn refuse(why: impl Into<String>) -> Step {
        Step::end(End::Refused(why.into()))
    }
}

/// One write. Each is refused by the API server where what it was decided for has changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// The record is to be like this: made, where it has no resourceVersion, or else replaced at that version, spec and
    /// status in one write.
    Record(Box<NodeRecovery>),
    /// A JSON merge patch of the Node, with its uid and resourceVersion in it.
    Node {
        /// Its name.
        name: String,
        /// The patch.
        patch: Value,
        /// What that is, for people.
        what: String,
    },
    /// A JSON merge patch of a pod, with its uid and resourceVersion in it.
    Pod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The patch.
        patch: Value,
        /// What that is, for people.
        what: String,
    },
    /// A pod is to be deleted, with the usual grace: the collector does the rest.
    DeletePod {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The identity that this was decided for.
        uid: String,
        /// The version that this was decided for.
        resource_version: String,
    },
}

/// Something that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// For what: a pod, a volume, the node.
    pub what: String,
    /// How that stands.
    pub how: String,
}

/// Why nothing more is done for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// All successors are ready. The taint stays until the node is back.
    Recovered,
    /// The node is back in service.
    Returned,
    /// All is as it was before.
    Undone,
    /// It must not go on, and why; nothing was written by this step.
    Refused(String),
    /// It must not go on before somebody states that the machine is powered off; nothing was written by this step.
    PowerOffNotStated {
        /// The node.
        node: String,
        /// The volumes that the machine can still write to after they were detached.
        volumes: Vec<UnrevokedVolume>,
    },
}

impl End {
    /// Why it must not go on, where that is so.
    pub fn refusal(&self) -> Option<String> {
        match self {
            End::Recovered | End::Returned | End::Undone => None,
            End::Refused(why) => Some(why.clone()),
            End::PowerOffNotStated { node, volumes } => Some(format!(
                "node {node}: {}: detaching does not stop the machine from writing to it, so a suspended machine does not \
                 count as off; state that the machine is powered off with --powered-off",
                list(volumes)
            )),
        }
    }
}

/// The first few, and how many more there are.
fn list(volumes: &[UnrevokedVolume]) -> String {
    let named: Vec<String> = volumes.iter().take(3).map(UnrevokedVolume::to_string).collect();
    let more = volumes.len().saturating_sub(named.len());
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{tail}", named.join(", "))
}
