//! Why a pod on a node does not start, as its kubelet or a controller reports it.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Pod;
use stead_model::{Objects, PodView, pod_volumes};

use crate::timers::Clock;

/// What fails at first may come right, so long after the pod was scheduled.
const SETBACK: SignedDuration = SignedDuration::from_secs(30);

/// Why a pod does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartFailure {
    /// Its kubelet reports it of a container.
    Container {
        /// The container.
        name: String,
        /// The reason.
        reason: String,
        /// The message.
        message: Option<String>,
    },
    /// An event reports it.
    Event {
        /// The component that reported it.
        by: String,
        /// The reason.
        reason: String,
        /// The message.
        message: String,
    },
}

impl StartFailure {
    /// Why a pod does not start, as it was read; none if nothing tells.
    pub fn of(objects: &Objects, pod: PodView<'_>) -> Option<StartFailure> {
        StartFailure::of_containers(pod).or_else(|| last_event(objects, pod))
    }

    /// Why a container of a pod does not start, where its kubelet has a word for it.
    pub fn of_containers(pod: PodView<'_>) -> Option<StartFailure> {
        pod.container_statuses().find_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            let reason = waiting.reason.clone().filter(|reason| !is_creating(reason))?;
            Some(StartFailure::Container { name: container.name.clone(), reason, message: waiting.message.clone() })
        })
    }
}

fn is_creating(reason: &str) -> bool {
    matches!(reason, "ContainerCreating" | "PodInitializing")
}

/// What was reported last of a pod none of whose containers runs, where that is a failure: earlier ones are overcome. That
/// another node has a volume is none: the attachments tell whether that is over.
fn last_event(objects: &Objects, pod: PodView<'_>) -> Option<StartFailure> {
    let events = objects.events_about(pod.key(), pod.uid());
    let last = events.last().filter(|event| event.is_warning && fails(event.reason) && !runs(pod))?;
    let (by, reason, message) = (last.reported_by, last.reason, last.message);
    let waits = message.contains("Volume is already");
    let event = StartFailure::Event { by: by.to_string(), reason: reason.to_string(), message: message.to_string() };
    (!waits).then_some(event)
}

/// Whether a pod waits for a volume of another node, as events tell.
pub(crate) fn waits_for_volume(objects: &Objects, pod: PodView<'_>) -> bool {
    let events = objects.events_about(pod.key(), pod.uid());
    let last = events.last().filter(|event| event.is_warning && fails(event.reason) && !runs(pod));
    last.is_some_and(|event| event.message.contains("Volume is already"))
}

/// Whether an event's reason is that of a pod which does not start.
fn fails(reason: &str) -> bool {
    let volumes = ["FailedAttachVolume", "FailedMount", "FailedMapVolume"];
    let others = ["Failed", "FailedCreatePodSandBox", "FailedPostStartHook", "InspectFailed", "NetworkNotReady"];
    volumes.contains(&reason) || others.contains(&reason)
}

fn runs(pod: PodView<'_>) -> bool {
    pod.container_statuses().any(|c| c.state.as_ref().is_some_and(|state| state.running.is_some()))
}

/// Whether the time is over in which a failure may still come right.
fn is_persistent(pod: PodView<'_>, clock: &Clock) -> bool {
    let scheduled = pod.condition_since("PodScheduled", "True").or(pod.created());
    scheduled.is_none_or(|at| clock.now.duration_since(at) > SETBACK)
}

/// Whether a pod cannot start where it is, and waits for no volume.
pub(crate) fn cannot_start(objects: &Objects, clock: &Clock, pod: PodView<'_>) -> bool {
    if pod.node().is_none() || pod.is_ready() || pod.is_terminating() || runs(pod) || !is_persistent(pod, clock) {
        return false;
    }
    match StartFailure::of(objects, pod) {
        // The simulation goes on with it.
        Some(StartFailure::Container { reason, .. }) if reason == "CrashLoopBackOff" => false,
        None => false,
        Some(_) => pod_volumes(objects, pod).iter().filter(|volume| volume.is_exclusive()).all(|volume| {
            let mut here = volume.attachments.iter().map(|attachment| Some(attachment.node.as_str()) == pod.node());
            here.all(|is_here| is_here)
        }),
    }
}

/// Forgets a failure of a pod that was scheduled a moment ago.
pub(crate) fn forget_setback(pod: &mut Pod, view: PodView<'_>, clock: &Clock) {
    if is_persistent(view, clock) {
        return;
    }
    let statuses = pod.status.iter_mut().flat_map(|status| status.container_statuses.iter_mut().flatten());
    for waiting in statuses.filter_map(|container| container.state.as_mut()?.waiting.as_mut()) {
        if waiting.reason.as_deref().is_some_and(|reason| !is_creating(reason) && reason != "CrashLoopBackOff") {
            waiting.reason = Some("ContainerCreating".into());
            waiting.message = None;
        }
    }
}
