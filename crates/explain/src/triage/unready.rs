//! Pods whose containers run, or ran, and that are not ready for too long.

use k8s_openapi::api::core::v1::ContainerStatus;
use stead_model::PodView;

use super::StuckCause;
use super::evidence::Evidence;
use super::roots::{Root, Roots};

pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>) {
    let since = pod.condition_since("Ready", "False").or(pod.created());
    if !evidence.lasted(since, evidence.thresholds.not_ready) || is_finishing(pod) {
        return;
    }
    let root = |cause| Root::new(cause, evidence.group_of(pod.key()));
    let (cause, detail) = reason(evidence, pod);
    roots.assign(pod.key(), root(cause), &detail);
}

fn reason(evidence: &Evidence<'_>, pod: PodView<'_>) -> (StuckCause, String) {
    let runs = |c: &ContainerStatus| c.state.as_ref().is_some_and(|state| state.running.is_some());
    let init = pod.status().and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
    if pod.phase() == "Pending"
        && let Some(container) = init.iter().find(|c| runs(c) && !is_sidecar(pod, &c.name))
    {
        return (StuckCause::InitNotFinished, format!("init container {} still runs", container.name));
    }
    if let Some(event) = evidence.pod_warnings(pod).find(|event| event.reason == "Unhealthy") {
        return (StuckCause::ProbeFailing, event.message.to_owned());
    }
    // The kubelet reports a running container as ready unless a readiness or startup probe fails.
    if let Some(container) = pod.container_statuses().find(|c| runs(c) && !c.ready) {
        return (StuckCause::ProbeFailing, format!("container {} runs and is not ready", container.name));
    }
    if pod.condition("Initialized").is_some_and(|condition| condition.status == "False") {
        let told = pod.condition("Initialized").and_then(|condition| condition.message.clone());
        return (StuckCause::InitNotFinished, told.unwrap_or_default());
    }
    let gates = pod.spec().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    let closed = gates.iter().find(|gate| pod.condition(&gate.condition_type).is_none_or(|c| c.status != "True"));
    if let Some(gate) = closed {
        return (StuckCause::NotReady, format!("readiness gate {} is not True", gate.condition_type));
    }
    let told = pod.condition("Ready").and_then(|condition| condition.message.clone());
    (StuckCause::NotReady, told.unwrap_or_default())
}

/// Whether an init container keeps running beside the others (restartPolicy Always).
fn is_sidecar(pod: PodView<'_>, name: &str) -> bool {
    let containers = pod.spec().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    containers.iter().any(|c| c.name == name && c.restart_policy.as_deref() == Some("Always"))
}

/// Whether some containers of a pod that runs to its end have succeeded and the others run: it is not meant to be ready.
fn is_finishing(pod: PodView<'_>) -> bool {
    let runs_to_end =
        pod.spec().and_then(|spec| spec.restart_policy.as_deref()).is_some_and(|policy| policy != "Always");
    let statuses = pod.status().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let succeeded =
        |c: &&ContainerStatus| c.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|t| t.exit_code == 0);
    runs_to_end && statuses.iter().any(|c| succeeded(&c)) && statuses.iter().all(|c| c.ready || succeeded(&c))
}
