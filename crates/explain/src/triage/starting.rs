//! Pods that have a node and are not ready: what their containers wait for.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus};
use stead_model::PodView;

use super::evidence::Evidence;
use super::missing::missing_object;
use super::roots::{Root, Roots};
use super::{StuckCause, creating, unready};

/// Reasons of `pkg/kubelet/images` and of the errors of `k8s.io/cri-api`.
const IMAGE_ERRORS: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];

/// Reasons of `pkg/kubelet/container` and `pkg/kubelet/kuberuntime` for a container that does not start or does not stay up.
const START_ERRORS: [&str; 6] = [
    "CrashLoopBackOff",
    "RunContainerError",
    "CreateContainerError",
    "PreCreateHookError",
    "PreStartHookError",
    "PostStartHookError",
];

/// The reason of a container whose environment or security context cannot be computed.
const CONFIG_ERROR: &str = "CreateContainerConfigError";

pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>) {
    let group = |cause| Root::new(cause, evidence.group_of(pod.key()));
    if let Some((container, reason, detail)) = waiting(pod, |reason| IMAGE_ERRORS.contains(&reason)) {
        let detail = image_detail(reason, &container.image, detail);
        return roots.assign(pod.key(), group(StuckCause::ImagePull), &detail);
    }
    if let Some((_, reason, detail)) = waiting(pod, |reason| reason == CONFIG_ERROR) {
        let missing = missing_object(pod, detail).map(|object| Root::new(StuckCause::MissingReference, object));
        // Without a message, a missing Secret or ConfigMap is by far the most common reason.
        let unnamed = if detail.is_empty() { StuckCause::MissingReference } else { StuckCause::ConfigInvalid };
        return roots.assign(pod.key(), missing.unwrap_or_else(|| group(unnamed)), &said(reason, detail));
    }
    if let Some((container, reason, detail)) = waiting(pod, |reason| START_ERRORS.contains(&reason)) {
        let detail = last_end(container).unwrap_or_else(|| said(reason, detail));
        return roots.assign(pod.key(), group(StuckCause::CrashLoop), &detail);
    }
    if is_ready(pod) {
        return;
    }
    if let Some(detail) = restarts(evidence, pod) {
        return roots.assign(pod.key(), group(StuckCause::CrashLoop), &detail);
    }
    if is_creating(pod) {
        let since = pod.condition_since("PodScheduled", "True").or(pod.created());
        if evidence.lasted(since, evidence.thresholds.creating) {
            creating::assign(evidence, roots, pod);
        }
        return;
    }
    unready::assign(evidence, roots, pod);
}

/// Whether a pod is ready, or says nothing from which the opposite follows.
fn is_ready(pod: PodView<'_>) -> bool {
    match pod.condition("Ready") {
        Some(condition) => condition.status == "True",
        None => pod.phase() == "Running" && pod.container_statuses().all(|container| container.ready),
    }
}

/// The first container that waits for one of these reasons, with the kubelet's message.
fn waiting<'a>(pod: PodView<'a>, is: impl Fn(&str) -> bool) -> Option<(&'a ContainerStatus, &'a str, &'a str)> {
    pod.container_statuses().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|reason| is(reason))?;
        Some((container, reason, waiting.message.as_deref().unwrap_or_default()))
    })
}

fn said(reason: &str, detail: &str) -> String {
    if detail.is_empty() { reason.to_owned() } else { format!("{reason}: {detail}") }
}

/// The image, and what the registry said where that is known.
fn image_detail(reason: &str, image: &str, message: &str) -> String {
    let image = if image.is_empty() || message.contains(image) { String::new() } else { format!(" {image}") };
    said(&format!("{reason}{image}"), message)
}

/// How a container ended that is started again and again.
fn last_end(container: &ContainerStatus) -> Option<String> {
    let ended = terminated(&container.last_state).or_else(|| terminated(&container.state))?;
    let reason = ended.reason.as_deref().filter(|reason| !matches!(*reason, "" | "Error" | "Completed"));
    let why = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let restarts = match container.restart_count {
        0 => String::new(),
        1 => ", 1 restart".to_owned(),
        n => format!(", {n} restarts"),
    };
    Some(format!("container {} exits with code {}{why}{restarts}", container.name, ended.exit_code))
}

fn terminated(state: &Option<ContainerState>) -> Option<&k8s_openapi::api::core::v1::ContainerStateTerminated> {
    state.as_ref()?.terminated.as_ref()
}

/// A container between two attempts of a crash loop: it has failed more than once, the last time a short while ago.
fn restarts(evidence: &Evidence<'_>, pod: PodView<'_>) -> Option<String> {
    let always = pod.spec().and_then(|spec| spec.restart_policy.as_deref()).is_none_or(|policy| policy == "Always");
    let failing = |container: &&ContainerStatus| {
        let ended = terminated(&container.state).or_else(|| terminated(&container.last_state));
        let recent = |at: jiff::Timestamp| evidence.now.duration_since(at) <= evidence.thresholds.not_ready * 2;
        let down = always && terminated(&container.state).is_some();
        container.restart_count >= 2
            && !container.ready
            && ended.is_some_and(|e| e.exit_code != 0 && e.finished_at.as_ref().map_or(down, |at| recent(at.0)))
    };
    let container = pod.container_statuses().find(failing)?;
    // A failed liveness or startup probe also restarts the container; the kubelet then reports the probe.
    let probed = evidence.pod_warnings(pod).any(|event| event.reason == "Unhealthy");
    (!probed).then(|| last_end(container)).flatten()
}

/// Whether the kubelet has not started any container yet.
fn is_creating(pod: PodView<'_>) -> bool {
    let begun = |container: &ContainerStatus| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
            || container.last_state.as_ref().is_some_and(|state| state.terminated.is_some())
    };
    pod.phase() == "Pending" && !pod.container_statuses().any(begun)
}
