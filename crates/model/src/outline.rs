//! The few fields of a pod by which others choose it.

use std::borrow::Cow;

use jiff::Timestamp;

use crate::json::JsonRef;

/// What a walk over all pods of a large cluster looks at. It is read once, and without the rest of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodOutline {
    node: Option<Box<str>>,
    nominated_node: Option<Box<str>>,
    phase: Option<Word>,
    created: Option<Box<str>>,
    is_terminating: bool,
    is_ready: bool,
    is_unready: bool,
    has_waiting_container: bool,
    owners: Box<[OwnerOutline]>,
    claims: Box<[Box<str>]>,
}

/// A text that is one of a few as a rule: these are not copied.
type Word = Cow<'static, str>;

const WORDS: [&str; 8] = ["Running", "Pending", "Succeeded", "Failed", "ReplicaSet", "StatefulSet", "DaemonSet", "Job"];

#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnerOutline {
    kind: Option<Word>,
    name: Option<Box<str>>,
    is_controller: bool,
}

impl PodOutline {
    pub(crate) fn of(pod: JsonRef<'_>) -> PodOutline {
        let [metadata, spec, status] = ["metadata", "spec", "status"].map(|part| pod.field(part));
        let conditions = || at(status, "conditions").into_iter().flat_map(JsonRef::items);
        let name = text(at(metadata, "name"));
        PodOutline {
            node: text(at(spec, "nodeName")).map(Box::from),
            nominated_node: text(at(status, "nominatedNodeName")).map(Box::from),
            phase: text(at(status, "phase")).map(word),
            created: text(at(metadata, "creationTimestamp")).map(Box::from),
            is_terminating: at(metadata, "deletionTimestamp").is_some_and(|at| at.text().is_some()),
            is_ready: conditions().any(|condition| readiness(condition) == Some(true)),
            is_unready: conditions().any(|condition| readiness(condition) == Some(false)),
            has_waiting_container: at(status, "containerStatuses")
                .is_some_and(|containers| containers.items().any(is_waiting)),
            owners: at(metadata, "ownerReferences").into_iter().flat_map(JsonRef::items).map(owner).collect(),
            claims: at(spec, "volumes")
                .map(|volumes| volumes.items().filter_map(|volume| claim(name, volume)).collect())
                .unwrap_or_default(),
        }
    }

    /// Fields, by depth and name, that are large and that the outline does not look at.
    pub(crate) fn does_not_need(depth: usize, name: &str) -> bool {
        depth == 1 && matches!(name, "containers" | "initContainers" | "annotations" | "labels" | "managedFields")
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

    /// When it was created.
    pub fn created(&self) -> Option<Timestamp> {
        self.created.as_deref()?.parse().ok()
    }

    /// Whether its deletion was requested.
    pub fn is_terminating(&self) -> bool {
        self.is_terminating
    }

    /// Whether it has the condition Ready.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether its condition Ready says that it is not. A pod without the condition has not reported anything.
    pub fn is_unready(&self) -> bool {
        self.is_unready
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
        let owner = self.owners.iter().find(|owner| owner.is_controller)?;
        Some((owner.kind.as_deref()?, owner.name.as_deref()?))
    }

    /// The kind and the name of its controller, or of its only owner.
    pub fn controller_or_only_owner(&self) -> Option<(&str, &str)> {
        match &*self.owners {
            [only] => Some((only.kind.as_deref()?, only.name.as_deref()?)),
            _ => self.controller(),
        }
    }

    /// The kind and the name of its first owner; empty where they are missing.
    pub fn first_owner(&self) -> Option<(&str, &str)> {
        let owner = self.owners.first()?;
        Some((owner.kind.as_deref().unwrap_or_default(), owner.name.as_deref().unwrap_or_default()))
    }
}

fn word(text: &str) -> Word {
    match WORDS.into_iter().find(|word| *word == text) {
        Some(word) => Cow::Borrowed(word),
        None => Cow::Owned(text.to_owned()),
    }
}

fn at<'t>(part: Option<JsonRef<'t>>, field: &str) -> Option<JsonRef<'t>> {
    part.and_then(|part| part.field(field))
}

fn text(value: Option<JsonRef<'_>>) -> Option<&str> {
    value.and_then(JsonRef::text).filter(|text| !text.is_empty())
}

/// What a condition says about readiness; none for another condition.
fn readiness(condition: JsonRef<'_>) -> Option<bool> {
    let text = |field: &str| condition.field(field).and_then(JsonRef::text);
    (text("type") == Some("Ready")).then(|| text("status") == Some("True"))
}

fn is_waiting(container: JsonRef<'_>) -> bool {
    let waiting = container.field("state").and_then(|state| state.field("waiting"));
    waiting.is_some_and(JsonRef::is_object)
}

/// The claim of a volume: the one that it names, or the one that is created for the pod.
fn claim(pod: Option<&str>, volume: JsonRef<'_>) -> Option<Box<str>> {
    if let Some(named) = volume.field("persistentVolumeClaim") {
        return named.field("claimName").and_then(JsonRef::text).map(Box::from);
    }
    volume.field("ephemeral").filter(|ephemeral| ephemeral.is_object())?;
    Some(format!("{}-{}", pod?, volume.field("name").and_then(JsonRef::text)?).into())
}

fn owner(owner: JsonRef<'_>) -> OwnerOutline {
    let text = |field: &str| owner.field(field).and_then(JsonRef::text);
    OwnerOutline {
        kind: text("kind").map(word),
        name: text("name").map(Box::from),
        is_controller: owner.field("controller").is_some_and(JsonRef::is_true),
    }
}
