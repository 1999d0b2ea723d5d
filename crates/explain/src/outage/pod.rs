//! How long a pod took to start, and when it ended.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ContainerStatus;
use stead_model::PodView;
use stead_model::times::near;

use super::timers::LOST;

/// When a pod has ended, as far as its containers tell; otherwise when its deletion was requested.
pub(crate) fn ended_at(pod: PodView) -> Option<Timestamp> {
    let finished = |c: &ContainerStatus| near(c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0);
    let finished = pod.container_statuses().filter_map(finished).max();
    finished.map(|at| at + LOST).or(pod.deletion_requested()).filter(|_| pod.has_ended())
}

/// The time from a pod's start, or from when its last volume was requested, to running containers.
pub(crate) fn started_in(pod: PodView, attached: Option<Timestamp>) -> Option<SignedDuration> {
    let start = near(pod.status()?.start_time.as_ref()?.0)?;
    let began = start.max(attached.unwrap_or(Timestamp::MIN));
    let ran = pod.container_statuses().filter_map(started).max()?;
    (ran >= began).then(|| ran.duration_since(began))
}

/// The time from running containers to ready ones. The node controller takes Ready away from the pods of an unreachable
/// node, but not ContainersReady.
pub(crate) fn ready_in(pod: PodView) -> Option<SignedDuration> {
    let ran = pod.container_statuses().filter_map(started).max()?;
    let ready = pod.condition_since("ContainersReady", "True")?;
    Some(ready.duration_since(ran).max(SignedDuration::ZERO))
}

/// Whether a container of a pod is running.
pub(crate) fn runs(pod: PodView) -> bool {
    pod.container_statuses().any(|c| c.state.as_ref().is_some_and(|state| state.running.is_some()))
}

/// When a container was started that runs, or did.
fn started(container: &ContainerStatus) -> Option<Timestamp> {
    let state = container.state.as_ref()?;
    let running = state.running.as_ref().and_then(|running| near(running.started_at.as_ref()?.0));
    running.or_else(|| near(state.terminated.as_ref()?.started_at.as_ref()?.0))
}
