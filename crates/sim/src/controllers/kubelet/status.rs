//! The status that a kubelet reports for a pod: phase, conditions and containers (`generateAPIPodStatus`).

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod, PodCondition, PodSpec, PodStatus, VolumeMountStatus,
};

use crate::api::whole_seconds;
use crate::pods::observed_generation;
use crate::settings::Settings;

/// The conditions that belong to the kubelet.
const OWN_CONDITIONS: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

/// Whether a condition belongs to the kubelet (`PodConditionByKubelet`).
fn is_own(kind: &str) -> bool {
    OWN_CONDITIONS.contains(&kind)
}

/// Whether an init container runs beside the others (`IsRestartableInitContainer`).
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

pub(super) fn init_containers(spec: &PodSpec) -> &[Container] {
    spec.init_containers.as_deref().unwrap_or_default()
}

/// A container of a pod by its index: init containers first.
pub(super) fn container(pod: &Pod, index: usize) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    let init = init_containers(spec);
    init.get(index).or_else(|| spec.containers.get(index.checked_sub(init.len())?))
}

/// The status of a container by its index.
pub(super) fn container_status(status: &PodStatus, index: usize) -> Option<&ContainerStatus> {
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    init.get(index).or_else(|| status.container_statuses.as_ref()?.get(index.checked_sub(init.len())?))
}

/// The status of a container by its index, to change it.
pub(super) fn container_status_mut(status: &mut PodStatus, index: usize) -> Option<&mut ContainerStatus> {
    let init = status.init_container_statuses.as_deref_mut().unwrap_or_default();
    match index.checked_sub(init.len()) {
        None => init.get_mut(index),
        Some(index) => status.container_statuses.as_mut()?.get_mut(index),
    }
}

/// All statuses of containers, init containers first.
pub(super) fn all_containers(status: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    let init = status.init_container_statuses.iter().flatten();
    init.chain(status.container_statuses.iter().flatten())
}

/// Whether a container runs.
pub(super) fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|state| state.running.is_some())
}

fn terminated(state: Option<&ContainerState>) -> Option<&ContainerStateTerminated> {
    state?.terminated.as_ref()
}

/// The end of a container in its current state.
pub(super) fn ended(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    terminated(status.state.as_ref())
}

fn last_end(status: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    terminated(status.last_state.as_ref())
}

pub(super) fn waiting(reason: &str, message: Option<String>) -> Option<ContainerState> {
    let waiting = ContainerStateWaiting { reason: Some(reason.to_owned()), message };
    Some(ContainerState { waiting: Some(waiting), ..ContainerState::default() })
}

pub(super) fn running(since: Timestamp) -> Option<ContainerState> {
    let running = ContainerStateRunning { started_at: Some(whole_seconds(since)) };
    Some(ContainerState { running: Some(running), ..ContainerState::default() })
}

pub(super) fn terminated_state(end: ContainerStateTerminated) -> Option<ContainerState> {
    Some(ContainerState { terminated: Some(end), ..ContainerState::default() })
}

/// The end of a container that ran.
pub(super) fn end_of(status: &ContainerStatus, code: i32, reason: &str, now: Timestamp) -> ContainerStateTerminated {
    let started = status.state.as_ref().and_then(|state| state.running.as_ref()?.started_at.clone());
    ContainerStateTerminated {
        exit_code: code,
        reason: Some(reason.to_owned()),
        started_at: started,
        finished_at: Some(whole_seconds(now)),
        container_id: status.container_id.clone(),
        ..ContainerStateTerminated::default()
    }
}

/// The end of a container that nobody knows anything of.
fn unknown_end() -> ContainerStateTerminated {
    ContainerStateTerminated {
        exit_code: 137,
        reason: Some("ContainerStatusUnknown".into()),
        message: Some("The container could not be located when the pod was terminated".into()),
        ..ContainerStateTerminated::default()
    }
}

/// The status of a pod before its containers are created.
pub(super) fn initial(pod: &Pod, host: &str, settings: &Settings, now: Timestamp) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let Some(spec) = pod.spec.as_ref() else { return status };
    let init = init_containers(spec);
    let reason = if init.is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let of = |container: &Container| ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        started: Some(false),
        state: waiting(reason, None),
        volume_mounts: mounts(container, settings),
        ..ContainerStatus::default()
    };
    status.container_statuses = Some(spec.containers.iter().map(of).collect());
    status.init_container_statuses = Some(init.iter().map(of).collect()).filter(|list: &Vec<_>| !list.is_empty());
    status.host_ip = Some(host.to_owned());
    status.host_ips = Some(vec![k8s_openapi::api::core::v1::HostIP { ip: host.to_owned() }]);
    status.start_time.get_or_insert_with(|| whole_seconds(now));
    status
}

fn mounts(container: &Container, settings: &Settings) -> Option<Vec<VolumeMountStatus>> {
    let mounts = container.volume_mounts.as_ref().filter(|mounts| !mounts.is_empty() && settings.since(31))?;
    let of = |mount: &k8s_openapi::api::core::v1::VolumeMount| VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: mount.read_only,
        recursive_read_only: (mount.read_only == Some(true)).then(|| "Disabled".to_owned()),
        ..VolumeMountStatus::default()
    };
    Some(mounts.iter().map(of).collect())
}

/// Sets the address of a pod.
pub(super) fn set_address(status: &mut PodStatus, address: String) {
    status.pod_ips = Some(vec![k8s_openapi::api::core::v1::PodIP { ip: address.clone() }]);
    status.pod_ip = Some(address);
}

/// The states of containers when a pod has ended: what nobody knows counts as a failure (`TerminatePod`).
pub(super) fn end_containers(pod: &Pod, status: &mut PodStatus, code: i32, now: Timestamp) {
    let has_init = pod.spec.as_ref().is_some_and(|spec| !init_containers(spec).is_empty());
    let touched = |status: &ContainerStatus| last_end(status).is_some() || !is_waiting(status);
    let started = status.container_statuses.iter().flatten().any(touched);
    let init_done = status.init_container_statuses.iter().flatten().last();
    let initialized = !has_init
        || started
        || init_done.is_some_and(|last| is_running(last) || ended(last).is_some_and(|end| end.exit_code == 0));
    let last_init = status.init_container_statuses.as_deref().and_then(|list| list.iter().rposition(touched));
    let last_init = last_init.unwrap_or(0);
    let init = status.init_container_statuses.iter_mut().flatten().take(last_init + 1);
    let regular = status.container_statuses.iter_mut().flatten();
    let regular: Vec<&mut ContainerStatus> = if initialized { regular.collect() } else { Vec::new() };
    for status in init.chain(regular) {
        status.ready = status.ready && ended(status).is_some();
        status.started = Some(false);
        if is_running(status) {
            let reason = if code == 0 { "Completed" } else { "Error" };
            status.state = terminated_state(end_of(status, code, reason, now));
        } else if ended(status).is_none() {
            let last = status.last_state.take().filter(|state| state.terminated.is_some());
            status.state = last.or_else(|| terminated_state(unknown_end()));
        }
    }
}

fn is_waiting(status: &ContainerStatus) -> bool {
    !is_running(status) && ended(status).is_none()
}

/// Whether a container that ended is started again.
pub(super) fn restarts(container: &Container, spec: &PodSpec, code: i32) -> bool {
    match spec.restart_policy.as_deref().unwrap_or("Always") {
        _ if is_sidecar(container) => true,
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

/// The phase of a pod (`getPhase`). `terminal`: no container is started again.
fn phase(pod: &Pod, status: &PodStatus, terminal: bool) -> &'static str {
    let Some(spec) = pod.spec.as_ref() else { return "Pending" };
    let of = |list: &Option<Vec<ContainerStatus>>, index: usize| list.as_ref().and_then(|list| list.get(index)).cloned();
    let (mut pending_init, mut pending_sidecars, mut failed_init) = (0, 0, false);
    let (mut unknown, mut running, mut not_started, mut stopped, mut final_stops, mut succeeded) = (0, 0, 0, 0, 0, 0);
    for (index, container) in init_containers(spec).iter().enumerate() {
        let status = of(&status.init_container_statuses, index);
        if is_sidecar(container) {
            match status {
                None => unknown += 1,
                Some(status) if is_running(&status) => {
                    pending_sidecars += usize::from(status.started != Some(true));
                    running += 1;
                }
                Some(status) if ended(&status).is_some() || last_end(&status).is_some() => {}
                Some(_) => {
                    pending_sidecars += 1;
                    not_started += 1;
                }
            }
            continue;
        }
        match status.as_ref().filter(|status| !is_running(status)).and_then(|status| ended(status).or(last_end(status))) {
            None => pending_init += 1,
            Some(end) if end.exit_code != 0 => {
                failed_init = failed_init || !restarts(container, spec, end.exit_code);
                pending_init += 1;
            }
            Some(_) => {}
        }
    }
    for (index, container) in spec.containers.iter().enumerate() {
        let Some(status) = of(&status.container_statuses, index) else {
            unknown += 1;
            continue;
        };
        match ended(&status).or(last_end(&status)) {
            _ if is_running(&status) => running += 1,
            Some(end) => {
                stopped += 1;
                final_stops += usize::from(!restarts(container, spec, end.exit_code));
                succeeded += usize::from(end.exit_code == 0 && ended(&status).is_some());
            }
            None => not_started += 1,
        }
    }
    let initialized = running + stopped > 0 && spec.containers.len() > unknown + not_started;
    if failed_init {
        return "Failed";
    }
    if pending_init > 0 || (pending_sidecars > 0 && !initialized) || not_started > 0 {
        return "Pending";
    }
    match () {
        () if running > 0 && unknown == 0 => "Running",
        () if stopped > 0 && unknown == 0 => match (terminal || stopped == final_stops, stopped == succeeded) {
            (false, _) => "Running",
            (true, true) => "Succeeded",
            (true, false) => "Failed",
        },
        () => "Pending",
    }
}

/// What a kubelet knows of a pod besides its containers.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodFacts<'a> {
    /// The pod as the API server has it.
    pub(super) pod: &'a Pod,
    /// Whether it has a sandbox.
    pub(super) sandbox: bool,
    /// Whether no container is started again.
    pub(super) terminal: bool,
}

/// Computes phase and conditions from the containers. `before` is what the kubelet knew before: a condition that has the
/// same status keeps its time.
pub(super) fn refresh(facts: PodFacts<'_>, status: &mut PodStatus, before: &PodStatus, settings: &Settings, now: Timestamp) {
    let PodFacts { pod, sandbox, terminal } = facts;
    let ended = |phase: Option<&str>| matches!(phase, Some("Succeeded" | "Failed"));
    // A pod does not leave a terminal phase.
    let api = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let old = before.phase.as_deref();
    let computed = phase(pod, status, terminal);
    let kept = [api, old].into_iter().find(|phase| ended(*phase)).flatten();
    let new = kept.unwrap_or(computed).to_owned();
    if old != Some(new.as_str()) {
        (status.reason, status.message) = (None, None);
    }
    status.phase = Some(new);
    let generation = observed_generation(pod, settings);
    status.observed_generation = generation.or(status.observed_generation);
    let foreign = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut conditions: Vec<PodCondition> = foreign.filter(|condition| !is_own(&condition.type_)).cloned().collect();
    let own = own_conditions(pod, status, &conditions, sandbox);
    conditions.extend(own.into_iter().map(|mut condition| {
        let same = before.conditions.iter().flatten().find(|other| other.type_ == condition.type_);
        let kept = same.filter(|other| other.status == condition.status);
        let kept = kept.and_then(|other| other.last_transition_time.clone());
        condition.last_transition_time = Some(kept.unwrap_or_else(|| whole_seconds(now)));
        condition.observed_generation = generation;
        condition
    }));
    status.conditions = Some(conditions);
}

/// Takes the conditions that belong to others from the API server. What only the kubelet has of them is added.
pub(super) fn merge_foreign(pod: &Pod, status: &mut PodStatus) {
    let shown = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut conditions: Vec<PodCondition> = shown.filter(|condition| !is_own(&condition.type_)).cloned().collect();
    for condition in status.conditions.take().into_iter().flatten() {
        if is_own(&condition.type_) || !conditions.iter().any(|other| other.type_ == condition.type_) {
            conditions.push(condition);
        }
    }
    status.conditions = Some(conditions);
}

fn condition(kind: &str, status: bool, reason: Option<&str>, message: Option<String>) -> PodCondition {
    PodCondition {
        type_: kind.into(),
        status: if status { "True" } else { "False" }.into(),
        reason: reason.map(str::to_owned),
        message,
        ..PodCondition::default()
    }
}

fn own_conditions(pod: &Pod, status: &PodStatus, foreign: &[PodCondition], sandbox: bool) -> Vec<PodCondition> {
    let containers_ready = containers_ready(pod, status);
    let gates = pod.spec.iter().flat_map(|spec| spec.readiness_gates.iter().flatten());
    let closed: Vec<String> = gates
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            match foreign.iter().find(|condition| condition.type_ == *kind) {
                None => Some(format!("corresponding condition of pod readiness gate \"{kind}\" does not exist.")),
                Some(found) if found.status != "True" => {
                    let status = &found.status;
                    Some(format!("the status of pod readiness gate \"{kind}\" is not \"True\", but {status}"))
                }
                Some(_) => None,
            }
        })
        .collect();
    let ready = match &containers_ready {
        Ok(()) if closed.is_empty() => condition("Ready", true, None, None),
        Ok(()) => condition("Ready", false, Some("ReadinessGatesNotReady"), Some(closed.join(", "))),
        Err((reason, message)) => condition("Ready", false, Some(reason), message.clone()),
    };
    let containers = match containers_ready {
        Ok(()) => condition("ContainersReady", true, None, None),
        Err((reason, message)) => condition("ContainersReady", false, Some(reason), message),
    };
    vec![
        condition("PodReadyToStartContainers", sandbox, None, None),
        initialized(pod, status),
        ready,
        containers,
        condition("PodScheduled", true, None, None),
    ]
}

/// Whether all containers are ready; otherwise the reason and the message.
fn containers_ready(pod: &Pod, status: &PodStatus) -> Result<(), (&'static str, Option<String>)> {
    match status.phase.as_deref() {
        Some("Succeeded") => return Err(("PodCompleted", None)),
        Some("Failed") => return Err(("PodFailed", None)),
        _ => {}
    }
    let Some(spec) = pod.spec.as_ref() else { return Ok(()) };
    let init = init_containers(spec).iter().zip(status.init_container_statuses.iter().flatten());
    let sidecars = init.filter(|(container, _)| is_sidecar(container));
    let regular = spec.containers.iter().zip(status.container_statuses.iter().flatten());
    let unready = sidecars.chain(regular).filter(|(_, status)| !status.ready);
    let names: Vec<&str> = unready.map(|(container, _)| container.name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(("ContainersNotReady", Some(format!("containers with unready status: [{}]", names.join(" ")))))
}

fn initialized(pod: &Pod, status: &PodStatus) -> PodCondition {
    let kind = "Initialized";
    if status.phase.as_deref() == Some("Succeeded") {
        return condition(kind, true, Some("PodCompleted"), None);
    }
    let started = |status: &ContainerStatus| status.started == Some(true) || !is_waiting(status);
    if status.container_statuses.iter().flatten().any(started) {
        return condition(kind, true, None, None);
    }
    let spec = pod.spec.as_ref().map(init_containers).unwrap_or_default();
    let init = spec.iter().zip(status.init_container_statuses.iter().flatten());
    let incomplete = init.filter(|(container, status)| {
        if is_sidecar(container) { status.started != Some(true) } else { !status.ready }
    });
    let names: Vec<&str> = incomplete.map(|(container, _)| container.name.as_str()).collect();
    if names.is_empty() {
        return condition(kind, true, None, None);
    }
    let message = format!("containers with incomplete status: [{}]", names.join(" "));
    condition(kind, false, Some("ContainersNotInitialized"), Some(message))
}

/// Whether two statuses are the same as far as they belong to the kubelet (`isPodStatusByKubeletEqual`).
pub(super) fn same_for_kubelet(a: &PodStatus, b: &PodStatus) -> bool {
    fn own(status: &PodStatus) -> impl Iterator<Item = (&str, &str, Option<&str>, Option<&str>)> {
        OWN_CONDITIONS.iter().filter_map(|kind| {
            let condition = status.conditions.iter().flatten().find(|condition| condition.type_ == *kind)?;
            let (reason, message) = (condition.reason.as_deref(), condition.message.as_deref());
            Some((*kind, condition.status.as_str(), reason, message))
        })
    }
    a.phase == b.phase
        && a.reason == b.reason
        && a.message == b.message
        && a.container_statuses == b.container_statuses
        && a.init_container_statuses == b.init_container_statuses
        && a.pod_ip == b.pod_ip
        && a.host_ip == b.host_ip
        && a.start_time == b.start_time
        && a.observed_generation == b.observed_generation
        && own(a).eq(own(b))
}

/// A duration as Go prints it: `1m20s`.
pub(super) fn go_duration(duration: SignedDuration) -> String {
    let (hours, rest) = (duration.as_secs() / 3600, duration.as_secs() % 3600);
    match (hours, rest / 60, rest % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m{seconds}s"),
        (hours, minutes, seconds) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Rows of Go's `TestPodPhaseWithRestartAlways`, `…Never`, `…OnFailure` and of those with init containers.
    #[test]
    fn phases() {
        let wait = || json!({ "waiting": {} });
        let run = || json!({ "running": {} });
        let done = || json!({ "terminated": { "exitCode": 0 } });
        let failed = || json!({ "terminated": { "exitCode": 1 } });
        for (policy, init, states, terminal, expected) in [
            ("Always", vec![], vec![wait(), wait()], false, "Pending"),
            ("Always", vec![], vec![run(), run()], false, "Running"),
            ("Always", vec![], vec![run(), wait()], false, "Pending"),
            ("Always", vec![], vec![run(), failed()], false, "Running"),
            ("Always", vec![], vec![done(), done()], false, "Running"),
            ("Always", vec![], vec![done(), done()], true, "Succeeded"),
            ("Always", vec![], vec![failed(), done()], true, "Failed"),
            ("Never", vec![], vec![done(), done()], false, "Succeeded"),
            ("Never", vec![], vec![failed(), done()], false, "Failed"),
            ("Never", vec![], vec![run(), done()], false, "Running"),
            ("OnFailure", vec![], vec![done(), done()], false, "Succeeded"),
            ("OnFailure", vec![], vec![failed(), done()], false, "Running"),
            ("Never", vec![run()], vec![wait()], false, "Pending"),
            ("Never", vec![failed()], vec![wait()], false, "Failed"),
            ("Always", vec![failed()], vec![wait()], false, "Pending"),
            ("Always", vec![done()], vec![run()], false, "Running"),
        ] {
            let containers = |states: &[Value]| -> Vec<Value> {
                (0..states.len()).map(|i| json!({ "name": format!("c{i}") })).collect()
            };
            let statuses = |states: &[Value]| -> Vec<Value> {
                let of = |state: &Value| json!({ "name": "", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state });
                states.iter().map(of).collect()
            };
            let pod = json!({
                "spec": { "restartPolicy": policy, "containers": containers(&states), "initContainers": containers(&init) },
                "status": { "containerStatuses": statuses(&states), "initContainerStatuses": statuses(&init) },
            });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let status = pod.status.clone().expect("a status");
            assert_eq!(phase(&pod, &status, terminal), expected, "{policy} {init:?} {states:?} {terminal}");
        }
    }

    #[test]
    fn durations_are_printed_as_go_does() {
        let printed = |seconds| go_duration(SignedDuration::from_secs(seconds));
        assert_eq!([10, 80, 300, 3661].map(printed), ["10s", "1m20s", "5m0s", "1h1m1s"]);
    }
}
