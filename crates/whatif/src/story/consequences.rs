//! What follows from a step, in the words of people who watch a cluster.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use stead_sim::{Change, Happening, SimEvent};

use crate::expectation::node_ready;
use crate::play::PlayedStep;

/// Something that followed from a step: what happened, to which objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consequence {
    /// When it happened first.
    pub at: Timestamp,
    /// The kind of the objects, such as `pod`.
    pub kind: &'static str,
    /// What happened, such as `ready`.
    pub what: String,
    /// The objects, with their node where that matters: `web-0 on worker-1`.
    pub names: Vec<String>,
    /// How much it matters; 0 matters most.
    pub(super) rank: u8,
}

/// The same thing that happens to several objects within this time is one consequence.
const TOGETHER: SignedDuration = SignedDuration::from_secs(30);

/// What a change means: how much it matters, the kind of the object, what happened, and on which node.
struct Told {
    rank: u8,
    kind: &'static str,
    what: String,
    node: Option<String>,
}

/// What happened in some steps that a person wants to know, in the order of time.
pub fn consequences<'a>(steps: impl IntoIterator<Item = &'a PlayedStep>) -> Vec<Consequence> {
    let mut out: Vec<Consequence> = Vec::new();
    let mut last: BTreeMap<(&'static str, String), usize> = BTreeMap::new();
    for (at, happening) in steps.into_iter().flat_map(|step| &step.happenings) {
        let (name, told) = match happening {
            Happening::Changed(change) => (name(change), told(change)),
            Happening::Reported(event) => (event.note.about.name.to_string(), told_of_event(event)),
        };
        for Told { rank, kind, what, node } in told {
            let name = node.map_or_else(|| name.clone(), |node| format!("{name} on {node}"));
            let near = last.get(&(kind, what.clone())).copied();
            match near.filter(|i| at.duration_since(out[*i].at) < TOGETHER) {
                Some(i) if out[i].names.contains(&name) => {}
                Some(i) => out[i].names.push(name),
                None => {
                    last.insert((kind, what.clone()), out.len());
                    out.push(Consequence { at: *at, kind, what, names: vec![name], rank });
                }
            }
        }
    }
    out
}

/// The name of an object: that of the volume for an attachment.
fn name(change: &Change) -> String {
    let (before, after) = change.of::<VolumeAttachment>();
    let volume = after.or(before).and_then(|it| it.spec.source.persistent_volume_name.clone());
    volume.unwrap_or_else(|| change.key.name.to_string())
}

fn told(change: &Change) -> Vec<Told> {
    let mut out = Vec::new();
    let mut tell = |rank, kind, what: &str, node: Option<&str>| {
        out.push(Told { rank, kind, what: what.to_owned(), node: node.map(str::to_owned) });
    };
    let (before, after) = change.of::<Node>();
    if let (Some(before), Some(after)) = (before, after) {
        let (was, is) = (node_ready(before), node_ready(after));
        if was != is {
            tell(0, "node", if is == "True" { "Ready" } else { "NotReady" }, None);
        }
        if is_out_of_service(after) && !is_out_of_service(before) {
            tell(0, "node", "out of service", None);
        }
    } else if before.is_some() {
        tell(0, "node", "deleted", None);
    }
    let (before, after) = change.of::<Pod>();
    match (before, after) {
        (Some(_), None) => tell(4, "pod", "gone", None),
        (before, Some(after)) => {
            if let Some((rank, what, node)) = told_of_pod(before.map(|pod| &**pod), after) {
                tell(rank, "pod", &what, node);
            }
        }
        (None, None) => {}
    }
    let (before, after) = change.of::<VolumeAttachment>();
    let attached = |it: &VolumeAttachment| it.status.as_ref().is_some_and(|status| status.attached);
    match (before, after) {
        (before, Some(after)) if attached(after) && !before.is_some_and(|before| attached(before)) => {
            tell(3, "volume", &format!("attached to {}", after.spec.node_name), None);
        }
        (Some(before), None) => tell(3, "volume", &format!("detached from {}", before.spec.node_name), None),
        _ => {}
    }
    out
}

fn is_out_of_service(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    taints.iter().any(|taint| taint.key == stead_model::OUT_OF_SERVICE)
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

fn told_of_pod<'a>(before: Option<&Pod>, after: &'a Pod) -> Option<(u8, String, Option<&'a str>)> {
    let ready = |pod: &Pod| condition(pod, "Ready").is_some_and(|condition| condition.status == "True");
    let node = after.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|node| !node.is_empty());
    let was_terminating = before.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    if after.metadata.deletion_timestamp.is_some() && !was_terminating {
        return Some((1, "Terminating".to_owned(), node));
    }
    match (before.is_some_and(ready), ready(after)) {
        (false, true) => return Some((2, "Ready".to_owned(), node)),
        (true, false) => return Some((5, "not Ready".to_owned(), None)),
        _ => {}
    }
    let phase = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
    let (was, is) = (before.map(phase).unwrap_or_default(), phase(after));
    if was != is && matches!(is.as_str(), "Failed" | "Succeeded") {
        return Some((3, is, None));
    }
    let unscheduled = |pod: &Pod| condition(pod, "PodScheduled").filter(|c| c.status == "False")?.message.clone();
    let (was, is) = (before.and_then(unscheduled), unscheduled(after));
    is.filter(|message| was.as_ref() != Some(message)).map(|message| (1, format!("Pending: {message}"), None))
}

/// Warnings about volumes: nothing else says why a pod does not start.
fn told_of_event(event: &SimEvent) -> Vec<Told> {
    let reason = event.note.reason;
    let is_new = event.count == 1;
    let tells = is_new && matches!(reason, "FailedAttachVolume" | "FailedMount" | "ProvisioningFailed");
    let told = Told { rank: 3, kind: "pod", what: format!("{reason}: {}", event.note.message), node: None };
    if tells { vec![told] } else { Vec::new() }
}
