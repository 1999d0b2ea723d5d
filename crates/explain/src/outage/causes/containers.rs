//! What containers and events report: images, configuration, crashes, probes.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ContainerStatus;
use stead_model::PodView;
use stead_model::times::near;

use super::OutageExplainer;
use crate::outage::time_text::when;

/// How long a running container may be not ready without being reported.
const STARTING: SignedDuration = SignedDuration::from_secs(5);

impl OutageExplainer<'_> {
    /// What a pod's containers and events report.
    pub(crate) fn containers(&self, pod: PodView) -> Vec<String> {
        let mut out: Vec<String> = pod.container_statuses().filter_map(|status| self.container(status)).collect();
        let events = self.objects.events_about(pod.key(), pod.uid());
        let mut seen: Vec<&str> = Vec::new();
        for event in events.iter().rev().filter(|event| event.is_warning && is_about_starting(event.reason)) {
            if !seen.contains(&event.reason) {
                seen.push(event.reason);
                let at = event.at.map(|at| format!(" ({})", when(at, self.clock.now))).unwrap_or_default();
                out.push(format!("{} reports {}: {:?}{at}", event.reported_by, event.reason, event.message));
            }
        }
        out
    }

    fn container(&self, container: &ContainerStatus) -> Option<String> {
        let (name, state) = (&container.name, container.state.as_ref()?);
        let quoted = |text: &Option<String>| text.as_deref().filter(|t| !t.is_empty()).map(|t| format!(": {t:?}"));
        if let Some(waiting) = &state.waiting {
            let reason = waiting.reason.as_deref().filter(|reason| !reason.is_empty())?;
            let what = match reason {
                "ContainerCreating" | "PodInitializing" => return None,
                "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" => "the image cannot be pulled",
                "CreateContainerConfigError" => "a ConfigMap, a Secret or a key of one is missing",
                "CrashLoopBackOff" => "it crashes again and again",
                _ => "it does not start",
            };
            let last = container.last_state.as_ref().and_then(|state| state.terminated.as_ref());
            let code = last.map(|last| {
                let reason = last.reason.as_ref().map(|reason| format!(", {reason}")).unwrap_or_default();
                format!("; last exit code {}{reason}", last.exit_code)
            });
            let message = quoted(&waiting.message).unwrap_or_default();
            return Some(format!("container {name}: {what}: {reason}{message}{}", code.unwrap_or_default()));
        }
        let started = near(state.running.as_ref()?.started_at.as_ref()?.0)?;
        let late = self.clock.now.duration_since(started) > STARTING;
        (!container.ready && late)
            .then(|| format!("container {name} runs since {}, but is not ready", when(started, self.clock.now)))
    }
}

/// Whether an event's reason tells why a pod does not start, or does not end.
fn is_about_starting(reason: &str) -> bool {
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
