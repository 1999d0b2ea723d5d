//! The few fields of a pod by which others choose it.

use crate::tokens::{JsonRef, Token};

/// What a walk over all pods of a large cluster looks at. It is read once, and without the rest of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodOutline {
    node: Option<Box<str>>,
    nominated_node: Option<Box<str>>,
    phase: Option<Box<str>>,
    is_terminating: bool,
    is_ready: bool,
    controller: Option<(Box<str>, Box<str>)>,
}

impl PodOutline {
    pub(crate) fn of(pod: JsonRef<'_>) -> PodOutline {
        let at = |path: [&str; 2]| pod.field(path[0])?.field(path[1]);
        let text = |path| at(path).and_then(JsonRef::text).filter(|text| !text.is_empty()).map(Box::from);
        PodOutline {
            node: text(["spec", "nodeName"]),
            nominated_node: text(["status", "nominatedNodeName"]),
            phase: text(["status", "phase"]),
            is_terminating: at(["metadata", "deletionTimestamp"]).is_some_and(|at| at.text().is_some()),
            is_ready: at(["status", "conditions"]).is_some_and(|conditions| conditions.items().any(is_ready)),
            controller: at(["metadata", "ownerReferences"]).and_then(controller),
        }
    }

    /// The node that it has.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// The node that preemption has promised it.
    pub fn nominated_node(&self) -> Option<&str> {
        self.nominated_node.as_deref()
    }

    /// Its phase.
    pub fn phase(&self) -> Option<&str> {
        self.phase.as_deref()
    }

    /// Whether its deletion was requested.
    pub fn is_terminating(&self) -> bool {
        self.is_terminating
    }

    /// Whether it has the condition Ready.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// The kind and the name of its controller.
    pub fn controller(&self) -> Option<(&str, &str)> {
        self.controller.as_ref().map(|(kind, name)| (&**kind, &**name))
    }
}

fn is_ready(condition: JsonRef<'_>) -> bool {
    let is = |field: &str, value: &str| condition.field(field).and_then(JsonRef::text) == Some(value);
    is("type", "Ready") && is("status", "True")
}

fn controller(owners: JsonRef<'_>) -> Option<(Box<str>, Box<str>)> {
    let controls = |owner: &JsonRef<'_>| {
        owner.field("controller").is_some_and(|controller| matches!(controller.token(), Token::Bool(true)))
    };
    let owner = owners.items().find(controls)?;
    let text = |field: &str| owner.field(field).and_then(JsonRef::text).map(Box::from);
    Some((text("kind")?, text("name")?))
}
