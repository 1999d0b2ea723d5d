//! Pods as `kubectl get pods -o wide` prints them.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStatus, Pod};

/// The columns.
pub const COLUMNS: [&str; 9] =
    ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED NODE", "READINESS GATES"];

/// A pod as a row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRow {
    /// One cell for each of [`COLUMNS`].
    pub cells: [String; 9],
}

impl PodRow {
    /// The row of a pod at a time.
    pub fn of(pod: &Pod, now: Timestamp) -> PodRow {
        let shown = Shown::of(pod);
        let text = |value: Option<&str>| value.filter(|text| !text.is_empty()).unwrap_or("<none>").to_owned();
        let (spec, status) = (pod.spec.as_ref(), pod.status.as_ref());
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let address = status.and_then(|status| status.pod_ips.as_ref()?.first()).map(|ip| ip.ip.as_str());
        let restarts = match shown.last_restart.filter(|_| shown.restarts > 0) {
            Some(at) => format!("{} ({} ago)", shown.restarts, age(at, now)),
            None => shown.restarts.to_string(),
        };
        PodRow {
            cells: [
                pod.metadata.name.clone().unwrap_or_default(),
                format!("{}/{}", shown.ready, shown.containers),
                shown.status,
                restarts,
                created.map_or_else(|| "<unknown>".to_owned(), |at| age(at, now)),
                text(address),
                text(spec.and_then(|spec| spec.node_name.as_deref())),
                text(status.and_then(|status| status.nominated_node_name.as_deref())),
                readiness_gates(pod),
            ],
        }
    }

    /// The cell of a column.
    pub fn cell(&self, column: &str) -> Option<&str> {
        COLUMNS.iter().position(|name| *name == column).map(|at| self.cells[at].as_str())
    }
}

/// What the table says about the containers of a pod (`printPod` of `pkg/printers/internalversion`).
struct Shown {
    containers: usize,
    ready: usize,
    restarts: i32,
    last_restart: Option<Timestamp>,
    status: String,
}

impl Shown {
    fn of(pod: &Pod) -> Shown {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let gated = condition(pod, "PodScheduled").is_some_and(|c| c.reason.as_deref() == Some("SchedulingGated"));
        let reason = match status.and_then(|status| status.reason.as_deref()).filter(|reason| !reason.is_empty()) {
            _ if gated => "SchedulingGated",
            Some(reason) => reason,
            None => phase,
        };
        let init: &[Container] = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
        let sidecars = init.iter().filter(|container| is_sidecar(container)).count();
        let containers = pod.spec.as_ref().map_or(0, |spec| spec.containers.len()) + sidecars;
        let mut shown = Shown { containers, ready: 0, restarts: 0, last_restart: None, status: reason.to_owned() };
        let initializing = shown.add_init(pod, init);
        if !initializing || is_true(pod, "Initialized") {
            shown.add_containers(pod);
        }
        if pod.metadata.deletion_timestamp.is_some() && !matches!(phase, "Succeeded" | "Failed") {
            let lost = status.and_then(|status| status.reason.as_deref()) == Some("NodeLost");
            shown.status = if lost { "Unknown" } else { "Terminating" }.to_owned();
        }
        shown
    }

    /// Adds the init containers, up to the first that has not ended. Gives whether there is one.
    fn add_init(&mut self, pod: &Pod, init: &[Container]) -> bool {
        let statuses = pod.status.as_ref().and_then(|status| status.init_container_statuses.as_deref());
        let mut initializing = false;
        for (i, container) in statuses.unwrap_or_default().iter().enumerate() {
            let sidecar = init.iter().any(|spec| spec.name == container.name && is_sidecar(spec));
            self.count_restarts(container);
            let state = container.state.clone().unwrap_or_default();
            if state.terminated.as_ref().is_some_and(|ended| ended.exit_code == 0) {
                continue;
            }
            if sidecar && container.started == Some(true) {
                self.ready += usize::from(container.ready);
                continue;
            }
            let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.as_deref());
            self.status = match (&state.terminated, waiting) {
                (Some(_), _) => format!("Init:{}", ended_reason(&state)),
                (None, Some(reason)) if !reason.is_empty() && reason != "PodInitializing" => format!("Init:{reason}"),
                _ => format!("Init:{i}/{}", init.len()),
            };
            initializing = true;
            break;
        }
        initializing
    }

    fn add_containers(&mut self, pod: &Pod) {
        // Restarts of init containers are shown only while the pod is initialized.
        (self.restarts, self.last_restart) = (0, None);
        let (mut has_running, mut error) = (false, None);
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref());
        for container in statuses.unwrap_or_default().iter().rev() {
            self.count_restarts(container);
            let state = container.state.clone().unwrap_or_default();
            let waiting = state.waiting.as_ref().and_then(|waiting| waiting.reason.clone());
            if let Some(reason) = waiting.filter(|reason| !reason.is_empty()) {
                self.status = reason;
            } else if let Some(ended) = &state.terminated {
                self.status = ended_reason(&state);
                error = (ended.exit_code != 0).then(|| self.status.clone()).or(error);
            } else if container.ready && state.running.is_some() {
                has_running = true;
                self.ready += 1;
            }
        }
        if self.status == "Completed" {
            if has_running && is_true(pod, "Ready") {
                self.status = "Running".to_owned();
            } else if let Some(error) = error {
                self.status = error;
            } else if has_running {
                self.status = "NotReady".to_owned();
            }
        }
    }

    fn count_restarts(&mut self, container: &ContainerStatus) {
        self.restarts += container.restart_count;
        let ended = container.last_state.as_ref().and_then(|state| state.terminated.as_ref()?.finished_at.as_ref());
        self.last_restart = self.last_restart.max(ended.map(|time| time.0));
    }
}

fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

fn ended_reason(state: &ContainerState) -> String {
    let ended = state.terminated.clone().unwrap_or_default();
    match (ended.reason.filter(|reason| !reason.is_empty()), ended.signal.filter(|signal| *signal != 0)) {
        (Some(reason), _) => reason,
        (None, Some(signal)) => format!("Signal:{signal}"),
        (None, None) => format!("ExitCode:{}", ended.exit_code),
    }
}

fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a k8s_openapi::api::core::v1::PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

fn is_true(pod: &Pod, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|condition| condition.status == "True")
}

fn readiness_gates(pod: &Pod) -> String {
    let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default();
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    format!("{}/{}", gates.iter().filter(|gate| is_true(pod, &gate.condition_type)).count(), gates.len())
}

/// A duration as kubectl prints it (`HumanDuration` of `k8s.io/apimachinery/pkg/util/duration`).
pub fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let two = |large: i64, unit: char, small: i64, part: char| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{part}"),
    };
    match () {
        () if seconds < -1 => "<invalid>".to_owned(),
        () if seconds < 0 => "0s".to_owned(),
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => two(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => two(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 24 * 8 => two(hours / 24, 'd', hours % 24, 'h'),
        () if hours < 24 * 365 * 2 => format!("{}d", hours / 24),
        () if hours < 24 * 365 * 8 => two(hours / 24 / 365, 'y', hours / 24 % 365, 'd'),
        () => format!("{}y", hours / 24 / 365),
    }
}

/// A table of texts with aligned columns, as kubectl prints it.
pub fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        padded.collect::<Vec<_>>().join("   ").trim_end().to_owned() + "\n"
    };
    let head = line(header.to_vec());
    rows.iter().fold(head, |text, row| text + &line(row.iter().map(String::as_str).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn row(pod: Value) -> [String; 3] {
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let cells = PodRow::of(&pod, Timestamp::from_second(1000).expect("a time")).cells;
        [cells[1].clone(), cells[2].clone(), cells[3].clone()]
    }

    #[test]
    fn statuses_are_those_of_kubectl() {
        let running = json!({ "name": "a", "ready": true, "restartCount": 0, "state": { "running": {} }, "image": "", "imageID": "" });
        let spec = json!({ "containers": [{ "name": "a" }, { "name": "b" }] });
        let waiting = |reason: &str| {
            json!({ "name": "b", "ready": false, "restartCount": 3, "image": "", "imageID": "",
            "state": { "waiting": { "reason": reason } } })
        };
        for (status, deleted, expected) in [
            (json!({ "phase": "Pending" }), false, ["0/2", "Pending", "0"]),
            (
                json!({ "phase": "Running", "containerStatuses": [running, waiting("CrashLoopBackOff")] }),
                false,
                ["1/2", "CrashLoopBackOff", "3"],
            ),
            (json!({ "phase": "Running", "containerStatuses": [running] }), true, ["1/2", "Terminating", "0"]),
            (json!({ "phase": "Failed", "reason": "Evicted" }), true, ["0/2", "Evicted", "0"]),
            (
                json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "SchedulingGated" }] }),
                false,
                ["0/2", "SchedulingGated", "0"],
            ),
        ] {
            let at = deleted.then_some("1970-01-01T00:00:00Z");
            let pod = json!({ "metadata": { "name": "p", "deletionTimestamp": at }, "spec": spec, "status": status });
            assert_eq!(row(pod), expected, "{status}");
        }
    }

    #[test]
    fn ages_are_those_of_kubectl() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (363, "6m3s"),
            (3600, "60m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (100_000, "27h"),
            (241_200, "2d19h"),
            (864_000, "10d"),
            (63_072_000, "2y"),
        ] {
            assert_eq!(age(at(0), at(seconds)), text, "{seconds}");
        }
    }
}
