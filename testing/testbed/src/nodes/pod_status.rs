//! The status that a kubelet reports for a pod, without I/O.

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

/// The stage of a pod's lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its volumes and containers are being created.
    Creating,
    /// Its containers run.
    Running,
    /// Its containers are ready.
    Ready,
    /// Its containers have terminated, with this exit code.
    Terminated(i32),
}

/// Returns the status of a pod at a stage, as a strategic merge patch. Fields that are not in it do not change.
pub(super) fn status(pod: &Pod, stage: Stage, host: &str, address: Option<&str>, time: &str) -> Value {
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let phase = match stage {
        Stage::Creating => "Pending",
        Stage::Running | Stage::Ready => "Running",
        Stage::Terminated(0) => "Succeeded",
        Stage::Terminated(_) => "Failed",
    };
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let mut status = json!({
        "phase": phase,
        "hostIP": host,
        "hostIPs": [{ "ip": host }],
        "startTime": started.map_or(json!(time), |started| json!(started)),
        "conditions": conditions(pod, stage, time),
        "containerStatuses": containers.iter().map(|c| container(c, stage, time)).collect::<Vec<_>>(),
    });
    if !init.is_empty() {
        status["initContainerStatuses"] = init.iter().map(|c| init_container(c, stage, time)).collect();
    }
    if let Some(address) = address {
        status["podIP"] = json!(address);
        status["podIPs"] = json!([{ "ip": address }]);
    }
    status
}

fn conditions(pod: &Pod, stage: Stage, time: &str) -> Vec<Value> {
    let names = pod.spec.iter().flat_map(|spec| spec.containers.iter().map(|c| c.name.as_str()));
    let unready = format!("containers with unready status: [{}]", names.collect::<Vec<_>>().join(" "));
    let (ready, reason, message) = match stage {
        Stage::Ready => ("True", None, None),
        Stage::Creating | Stage::Running => ("False", Some("ContainersNotReady"), Some(unready)),
        Stage::Terminated(0) => ("False", Some("PodCompleted"), None),
        Stage::Terminated(_) => ("False", Some("PodFailed"), None),
    };
    let initialized = if stage == Stage::Creating { "False" } else { "True" };
    let sandbox = if matches!(stage, Stage::Running | Stage::Ready) { "True" } else { "False" };
    let rows = [
        ("PodReadyToStartContainers", sandbox, None, None),
        ("Initialized", initialized, None, None),
        ("Ready", ready, reason, message.clone()),
        ("ContainersReady", ready, reason, message),
        ("PodScheduled", "True", None, None),
    ];
    rows.into_iter()
        .map(|(kind, status, reason, message)| {
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": transition(pod, kind, status).unwrap_or_else(|| json!(time)),
            })
        })
        .collect()
}

/// Returns the last transition time of a condition that already has this status.
fn transition(pod: &Pod, kind: &str, status: &str) -> Option<Value> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let same = conditions.iter().find(|c| c.type_ == kind && c.status == status)?;
    same.last_transition_time.as_ref().map(|time| json!(time))
}

fn container(container: &Container, stage: Stage, time: &str) -> Value {
    let state = match stage {
        Stage::Creating => json!({ "waiting": { "reason": "ContainerCreating" } }),
        Stage::Running | Stage::Ready => json!({ "running": { "startedAt": time } }),
        Stage::Terminated(code) => terminated(code, time),
    };
    container_status(container, stage == Stage::Ready, &state)
}

fn init_container(container: &Container, stage: Stage, time: &str) -> Value {
    let sidecar = container.restart_policy.as_deref() == Some("Always");
    let state = match stage {
        Stage::Creating => json!({ "waiting": { "reason": "PodInitializing" } }),
        Stage::Running | Stage::Ready if sidecar => json!({ "running": { "startedAt": time } }),
        _ => terminated(0, time),
    };
    container_status(container, stage != Stage::Creating, &state)
}

fn terminated(code: i32, time: &str) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({ "terminated": { "exitCode": code, "reason": reason, "startedAt": time, "finishedAt": time } })
}

fn container_status(container: &Container, ready: bool, state: &Value) -> Value {
    json!({
        "name": container.name,
        "image": container.image.as_deref().unwrap_or_default(),
        "imageID": "",
        "ready": ready,
        "started": state.get("running").is_some(),
        "restartCount": 0,
        "state": state,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Pod {
        let condition =
            json!({ "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
        serde_json::from_value(json!({
            "spec": { "containers": [{ "name": "a", "image": "x" }, { "name": "b" }], "initContainers": [{ "name": "i" }] },
            "status": { "conditions": [condition] },
        }))
        .unwrap()
    }

    #[test]
    fn status_follows_the_stage() {
        for (stage, phase, ready, state) in [
            (Stage::Creating, "Pending", "False", "waiting"),
            (Stage::Running, "Running", "False", "running"),
            (Stage::Ready, "Running", "True", "running"),
            (Stage::Terminated(0), "Succeeded", "False", "terminated"),
            (Stage::Terminated(1), "Failed", "False", "terminated"),
        ] {
            let status = status(&pod(), stage, "10.1.0.1", Some("10.2.0.1"), "2026-02-02T00:00:00Z");
            assert_eq!(status["phase"], phase, "{stage:?}");
            assert_eq!(status["conditions"][2]["status"], ready, "{stage:?}");
            assert!(status["containerStatuses"][1]["state"].get(state).is_some(), "{stage:?}");
        }
    }

    #[test]
    fn an_unchanged_condition_keeps_its_transition_time() {
        let status = status(&pod(), Stage::Running, "10.1.0.1", None, "2026-02-02T00:00:00Z");
        let times = |i: usize| status["conditions"][i]["lastTransitionTime"].as_str();
        assert_eq!((times(4), times(2)), (Some("2026-01-01T00:00:00Z"), Some("2026-02-02T00:00:00Z")));
        assert_eq!(status["conditions"][2]["message"], "containers with unready status: [a b]");
    }
}
