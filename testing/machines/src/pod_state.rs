//! The state of a pod, and the status that its kubelet reports, without I/O.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

/// The state of a container, as in the pod's status.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ContainerState {
    /// A `ContainerState` of the API: waiting, running or terminated.
    pub(crate) state: Value,
    /// How it terminated the last time.
    pub(crate) last: Option<Value>,
    pub(crate) restarts: u32,
    /// Its startup probe has succeeded, or it has none.
    pub(crate) started: bool,
    /// Its readiness probe succeeds, or it has none.
    pub(crate) ready: bool,
}

/// The state of a pod.
#[derive(Debug, Default)]
pub(crate) struct PodState {
    pub(crate) address: Option<String>,
    pub(crate) containers: BTreeMap<String, ContainerState>,
    /// Set when no container will run again.
    pub(crate) finished: bool,
    start_time: Option<Value>,
    /// By condition type: status and last transition time.
    transitions: BTreeMap<String, (String, Value)>,
}

/// The state of a container that has not started.
pub(crate) fn waiting(reason: &str, message: Option<&str>) -> Value {
    let mut waiting = json!({ "reason": reason });
    if let Some(message) = message {
        waiting["message"] = json!(message);
    }
    json!({ "waiting": waiting })
}

/// The state of a running container.
pub(crate) fn running(since: &str) -> Value {
    json!({ "running": { "startedAt": since } })
}

/// The state of a terminated container.
pub(crate) fn terminated(code: i32, reason: Option<&str>, started: &str, finished: &str) -> Value {
    let reason = reason.unwrap_or(if code == 0 { "Completed" } else { "Error" });
    json!({ "terminated": { "exitCode": code, "reason": reason, "startedAt": started, "finishedAt": finished } })
}

impl PodState {
    /// The state when the kubelet first sees the pod: new, or left from an earlier boot, in which its containers died.
    pub(crate) fn of(pod: &Pod, now: &str) -> PodState {
        let status = pod.status.as_ref();
        let reported = |name: &str| {
            let main = status.and_then(|s| s.container_statuses.as_deref()).unwrap_or_default();
            let init = status.and_then(|s| s.init_container_statuses.as_deref()).unwrap_or_default();
            main.iter().chain(init).find(|c| c.name == name)
        };
        let mut containers = BTreeMap::new();
        let has_init = !init_containers(pod).is_empty();
        for (container, first) in
            init_containers(pod).iter().map(|c| (c, true)).chain(main_containers(pod).iter().map(|c| (c, false)))
        {
            let reason = if first || has_init { "PodInitializing" } else { "ContainerCreating" };
            let mut state =
                ContainerState { state: waiting(reason, None), last: None, restarts: 0, started: false, ready: false };
            if let Some(before) = reported(&container.name) {
                state.restarts = u32::try_from(before.restart_count).unwrap_or_default();
                state.last = before.last_state.as_ref().map(|s| json!(s)).filter(|s| s != &json!({}));
                let was = before.state.as_ref();
                if let Some(run) = was.and_then(|s| s.running.as_ref()) {
                    let since = run.started_at.as_ref().map_or(json!(now), |time| json!(time));
                    let since = since.as_str().unwrap_or(now).to_owned();
                    state.last = Some(terminated(255, Some("Unknown"), &since, now));
                    state.restarts += 1;
                } else if let Some(end) = was.and_then(|s| s.terminated.as_ref()) {
                    state.last = Some(json!({ "terminated": end }));
                }
            }
            containers.insert(container.name.clone(), state);
        }
        let start_time = status.and_then(|s| s.start_time.as_ref()).map(|time| json!(time));
        let transitions = status
            .and_then(|s| s.conditions.as_deref())
            .unwrap_or_default()
            .iter()
            .filter_map(|c| Some((c.type_.clone(), (c.status.clone(), json!(c.last_transition_time.as_ref()?)))));
        PodState { containers, start_time, transitions: transitions.collect(), ..PodState::default() }
    }

    /// Returns the status as a strategic merge patch. Fields that are not in it do not change.
    pub(crate) fn status(&mut self, pod: &Pod, node_address: &str, now: &str) -> Value {
        let start_time = self.start_time.get_or_insert_with(|| json!(now)).clone();
        let mut status = json!({
            "phase": self.phase(pod),
            "hostIP": node_address,
            "hostIPs": [{ "ip": node_address }],
            "startTime": start_time,
            "conditions": self.conditions(pod, now),
            "containerStatuses": main_containers(pod).iter().map(|c| self.container(c, false)).collect::<Vec<_>>(),
        });
        if !init_containers(pod).is_empty() {
            status["initContainerStatuses"] = init_containers(pod).iter().map(|c| self.container(c, true)).collect();
        }
        if let Some(address) = &self.address {
            status["podIP"] = json!(address);
            // A strategic merge would keep the address from an earlier boot beside this one.
            status["podIPs"] = json!([{ "$patch": "replace" }, { "ip": address }]);
        }
        status
    }

    fn phase(&self, pod: &Pod) -> &'static str {
        let codes: Vec<Option<i64>> = main_containers(pod).iter().map(|c| self.code(&c.name)).collect();
        let init_failed = init_containers(pod).iter().any(|c| self.code(&c.name).is_some_and(|code| code != 0));
        if self.finished {
            let succeeded = codes.iter().all(|code| *code == Some(0)) && !init_failed;
            return if succeeded { "Succeeded" } else { "Failed" };
        }
        let not_started = |c: &Container| {
            self.containers.get(&c.name).is_none_or(|s| s.state.get("waiting").is_some() && s.last.is_none())
        };
        if !self.initialized(pod) || main_containers(pod).iter().any(not_started) { "Pending" } else { "Running" }
    }

    fn code(&self, name: &str) -> Option<i64> {
        self.containers.get(name)?.state.get("terminated")?.get("exitCode")?.as_i64()
    }

    fn initialized(&self, pod: &Pod) -> bool {
        init_containers(pod).iter().all(|c| self.code(&c.name) == Some(0))
    }

    fn conditions(&mut self, pod: &Pod, now: &str) -> Vec<Value> {
        let unready: Vec<&str> = main_containers(pod)
            .iter()
            .map(|c| c.name.as_str())
            .filter(|name| !self.containers.get(*name).is_some_and(|s| s.ready))
            .collect();
        let unready_message = format!("containers with unready status: [{}]", unready.join(" "));
        let ready = match (self.finished, self.phase(pod)) {
            (true, "Succeeded") => ("False", Some("PodCompleted"), None),
            (true, _) => ("False", Some("PodFailed"), None),
            _ if unready.is_empty() => ("True", None, None),
            _ => ("False", Some("ContainersNotReady"), Some(unready_message)),
        };
        let incomplete: Vec<&str> =
            init_containers(pod).iter().map(|c| c.name.as_str()).filter(|name| self.code(name) != Some(0)).collect();
        let initialized = if incomplete.is_empty() {
            ("True", None, None)
        } else {
            let message = format!("containers with incomplete status: [{}]", incomplete.join(" "));
            ("False", Some("ContainersNotInitialized"), Some(message))
        };
        let sandbox = if self.address.is_some() && !self.finished { "True" } else { "False" };
        let rows = [
            ("PodReadyToStartContainers", (sandbox, None, None)),
            ("Initialized", initialized),
            ("Ready", ready.clone()),
            ("ContainersReady", ready),
            ("PodScheduled", ("True", None, None)),
        ];
        rows.into_iter()
            .map(|(kind, (status, reason, message))| {
                let since = match self.transitions.get(kind) {
                    Some((was, since)) if was == status => since.clone(),
                    _ => json!(now),
                };
                self.transitions.insert(kind.to_owned(), (status.to_owned(), since.clone()));
                json!({
                    "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
                })
            })
            .collect()
    }

    fn container(&self, container: &Container, init: bool) -> Value {
        let image = container.image.as_deref().unwrap_or_default();
        let Some(state) = self.containers.get(&container.name) else { return json!({ "name": container.name }) };
        // An init container that has completed is ready.
        let ready = if init { self.code(&container.name) == Some(0) } else { state.ready };
        json!({
            "name": container.name,
            "image": image,
            "imageID": "",
            "containerID": format!("process://{}-{}", container.name, state.restarts),
            "ready": ready,
            "started": state.started,
            "restartCount": state.restarts,
            "state": state.state,
            "lastState": state.last.clone().unwrap_or_else(|| json!({})),
        })
    }
}

/// The regular containers of a pod.
pub(crate) fn main_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default()
}

/// The init containers of a pod.
pub(crate) fn init_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(status: Value) -> Pod {
        let spec = json!({ "containers": [{ "name": "a" }, { "name": "b" }], "initContainers": [{ "name": "i" }] });
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec, "status": status })).unwrap()
    }

    const NOW: &str = "2026-02-02T00:00:00Z";

    #[test]
    fn phase_and_readiness_follow_the_containers() {
        let done = |code| terminated(code, None, NOW, NOW);
        let wait = || waiting("PodInitializing", None);
        let run = || running(NOW);
        for (init, a, b, finished, phase, ready) in [
            (wait(), wait(), wait(), false, "Pending", "False"),
            (done(0), run(), wait(), false, "Pending", "False"),
            (done(0), run(), run(), false, "Running", "True"),
            (done(0), done(1), run(), false, "Running", "False"),
            (done(0), done(0), done(0), true, "Succeeded", "False"),
            (done(0), done(1), done(0), true, "Failed", "False"),
            (done(1), wait(), wait(), true, "Failed", "False"),
        ] {
            let pod = pod(json!({}));
            let mut state = PodState::of(&pod, NOW);
            for (name, now) in [("i", init), ("a", a), ("b", b)] {
                let container = state.containers.get_mut(name).unwrap();
                container.ready = now.get("running").is_some();
                container.state = now;
            }
            state.finished = finished;
            let status = state.status(&pod, "10.1.0.1", NOW);
            assert_eq!(
                (status["phase"].as_str(), status["conditions"][2]["status"].as_str()),
                (Some(phase), Some(ready))
            );
        }
    }

    #[test]
    fn containers_that_ran_before_a_reboot_are_terminated() {
        let before = json!({
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{ "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
            "containerStatuses": [{
                "name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 2,
                "state": { "running": { "startedAt": "2026-01-01T00:00:01Z" } },
            }],
        });
        let pod = pod(before);
        let status = PodState::of(&pod, NOW).status(&pod, "10.1.0.1", NOW);
        let a = &status["containerStatuses"][0];
        assert_eq!((&a["restartCount"], &a["lastState"]["terminated"]["exitCode"]), (&json!(3), &json!(255)));
        assert_eq!(status["startTime"], "2026-01-01T00:00:00Z");
        assert_eq!(status["conditions"][4]["lastTransitionTime"], "2026-01-01T00:00:00Z");
    }
}
