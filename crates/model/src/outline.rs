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
    has_waiting_container: bool,
    controller: Option<(Box<str>, Box<str>)>,
    claims: Box<[Box<str>]>,
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
            has_waiting_container: at(["status", "containerStatuses"])
                .is_some_and(|containers| containers.items().any(is_waiting)),
            controller: at(["metadata", "ownerReferences"]).and_then(controller),
            claims: at(["spec", "volumes"])
                .map(|volumes| volumes.items().filter_map(|volume| claim(pod, volume)).collect())
                .unwrap_or_default(),
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

    /// Whether one of its containers, init containers left out, waits to be started.
    pub fn has_waiting_container(&self) -> bool {
        self.has_waiting_container
    }

    /// The names of the claims that it uses.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.claims.iter().map(|claim| &**claim)
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

fn is_waiting(container: JsonRef<'_>) -> bool {
    let waiting = container.field("state").and_then(|state| state.field("waiting"));
    waiting.is_some_and(|waiting| matches!(waiting.token(), Token::Object(_)))
}

/// The claim of a volume: the one that it names, or the one that is created for the pod.
fn claim(pod: JsonRef<'_>, volume: JsonRef<'_>) -> Option<Box<str>> {
    if let Some(named) = volume.field("persistentVolumeClaim") {
        return named.field("claimName").and_then(JsonRef::text).map(Box::from);
    }
    volume.field("ephemeral").filter(|ephemeral| matches!(ephemeral.token(), Token::Object(_)))?;
    let name = |of: JsonRef<'_>| of.field("name").and_then(JsonRef::text).map(str::to_owned);
    Some(format!("{}-{}", pod.field("metadata").and_then(name)?, name(volume)?).into())
}

fn controller(owners: JsonRef<'_>) -> Option<(Box<str>, Box<str>)> {
    let controls = |owner: &JsonRef<'_>| {
        owner.field("controller").is_some_and(|controller| matches!(controller.token(), Token::Bool(true)))
    };
    let owner = owners.items().find(controls)?;
    let text = |field: &str| owner.field(field).and_then(JsonRef::text).map(Box::from);
    Some((text("kind")?, text("name")?))
}
