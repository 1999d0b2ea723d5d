//! The plain causes: image, configuration, crash, probe.

use jiff::SignedDuration;
use serde_json::Value;

use super::Why;
use crate::outage::events;
use crate::outage::node::time;
use crate::outage::pod::PodSeen;
use crate::outage::words::when;

impl Why<'_> {
    /// The plain causes: image, configuration, crash, probe.
    pub(crate) fn plain(&self, pod: PodSeen) -> Vec<String> {
        let mut out = Vec::new();
        for container in pod.containers() {
            out.extend(self.container(container));
        }
        let uid = pod.0["metadata"]["uid"].as_str();
        let said = events::about(self.objects, "Pod", pod.namespace(), pod.name(), uid);
        let mut seen: Vec<&str> = Vec::new();
        for said in said.iter().rev().filter(|s| s.warning && tells(&s.reason)) {
            if !seen.contains(&said.reason.as_str()) {
                seen.push(&said.reason);
                let at = said.at.map(|at| format!(" ({})", when(at, self.clock.now))).unwrap_or_default();
                out.push(format!("{} says {}: {:?}{at}", said.by, said.reason, said.message));
            }
        }
        out
    }

    fn container(&self, container: &Value) -> Option<String> {
        let name = container["name"].as_str().unwrap_or_default();
        let text = |value: &Value| value.as_str().filter(|s| !s.is_empty()).map(str::to_owned);
        if let Some(waiting) = container["state"].get("waiting") {
            let reason = text(&waiting["reason"])?;
            if matches!(reason.as_str(), "ContainerCreating" | "PodInitializing") {
                return None;
            }
            let message = text(&waiting["message"]).map(|m| format!(": {m:?}")).unwrap_or_default();
            let what = match reason.as_str() {
                "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" => "its image cannot be had",
                "CreateContainerConfigError" => "something that it is configured from is missing",
                "CrashLoopBackOff" => "it starts and ends again and again",
                _ => "it does not start",
            };
            let last = &container["lastState"]["terminated"];
            let code = last["exitCode"].as_i64().map(|code| {
                let reason = text(&last["reason"]).map(|r| format!(", {r}")).unwrap_or_default();
                format!("; it ended with exit code {code}{reason}")
            });
            return Some(format!("container {name}: {what}: {reason}{message}{}", code.unwrap_or_default()));
        }
        let running = container["state"].get("running").and_then(|r| time(&r["startedAt"]))?;
        let old = self.clock.now.duration_since(running) > SignedDuration::from_secs(5);
        (container["ready"] == false && old)
            .then(|| format!("container {name} runs since {}, but is not ready", when(running, self.clock.now)))
    }
}

/// Whether an event's reason tells why a pod does not start, or does not end.
fn tells(reason: &str) -> bool {
    matches!(
        reason,
        "FailedAttachVolume"
            | "FailedMount"
            | "FailedCreatePodSandBox"
            | "Failed"
            | "FailedKillPod"
            | "BackOff"
            | "Unhealthy"
            | "FailedPostStartHook"
            | "FailedPreStopHook"
            | "InspectFailed"
            | "NetworkNotReady"
            | "FailedMapVolume"
    )
}
