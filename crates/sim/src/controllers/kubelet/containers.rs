//! The life of containers: image, start, readiness, end, and the back-off before the next start.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use stead_model::times::near;

use super::pod::{PodRun, Stage};
use super::status::{
    container, container_status, container_status_mut, end_of, ended, go_duration, init_containers, is_running,
    is_sidecar, restarts, running, terminated_state, waiting,
};
use super::{Kubelet, Out, PodId};
use crate::event_log::EventNote;
use crate::settings::KubeletDelays;
use crate::step::Context;
use crate::workload::Behaviour;

/// A container that ran for this long is not in a crash loop any more.
const STABLE: SignedDuration = SignedDuration::from_secs(600);

/// Something that is going to happen to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Timer {
    pub(super) at: Timestamp,
    /// The index of the container, init containers first.
    pub(super) index: usize,
    pub(super) what: What,
}

/// What happens to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Start,
    Ready,
    /// Its readiness probe has failed.
    Unready,
    /// It ends with this code.
    Exit(i32),
    /// The kubelet waits before it pulls the image again.
    PullBackOff,
}

/// How long a kubelet waits before it starts a container or pulls its image again (`flowcontrol.Backoff`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backoff {
    index: usize,
    wait: SignedDuration,
    updated: Timestamp,
}

impl PodRun {
    fn backoff(&self, index: usize) -> Option<Backoff> {
        self.backoffs.iter().find(|backoff| backoff.index == index).copied()
    }

    /// Goes on to the next, longer wait.
    fn next_backoff(&mut self, index: usize, event: Timestamp, delays: &KubeletDelays, now: Timestamp) {
        let before = self.backoff(index).filter(|backoff| event.duration_since(backoff.updated) <= STABLE);
        let wait = match before {
            Some(before) => (before.wait * 2).min(delays.crash_backoff_max),
            None => delays.crash_backoff,
        };
        self.backoffs.retain(|backoff| backoff.index != index);
        self.backoffs.push(Backoff { index, wait, updated: now });
    }

    fn at(&mut self, at: Timestamp, index: usize, what: What) {
        self.timers.push(Timer { at, index, what });
    }
}

/// Whether a pod ends by itself.
fn ends_by_itself(pod: &Pod) -> bool {
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    matches!(policy, Some("Never" | "OnFailure"))
}

fn init_count(pod: &Pod) -> usize {
    pod.spec.as_ref().map_or(0, |spec| init_containers(spec).len())
}

/// A pod as messages name it.
fn full_name(id: &PodId) -> String {
    format!("{}_{}({})", id.0.name, id.0.namespace, id.1)
}

impl Kubelet {
    /// The volumes are mounted: containers start one after the other, in the time that the workload needs.
    pub(super) fn plan_start(&mut self, cx: &Context<'_>, run: &mut PodRun) {
        self.plan_from(cx, run, 0);
    }

    /// Plans the starts of all containers from an init container on. The others of the pod follow the last of them.
    fn plan_from(&mut self, cx: &Context<'_>, run: &mut PodRun, first: usize) {
        let pod = Arc::clone(&run.pod);
        let Some(spec) = pod.spec.as_ref() else { return };
        let init = init_containers(spec);
        let ordered = init.iter().skip(first).filter(|container| !is_sidecar(container)).count();
        let parts = i32::try_from(ordered + 1).unwrap_or(i32::MAX);
        let slice = run.workload.delays(cx.settings).start / parts;
        let mut at = cx.now + slice;
        for (index, container) in init.iter().enumerate().skip(first) {
            run.at(at, index, What::Start);
            if !is_sidecar(container) {
                at += slice;
                run.at(at, index, What::Exit(0));
            }
        }
        for index in init.len()..init.len() + spec.containers.len() {
            run.at(at, index, What::Start);
        }
    }

    /// What is still going to happen to the containers of a pod in a cluster that is running.
    pub(super) fn plan_rest(&mut self, cx: &Context<'_>, run: &mut PodRun) {
        let status = run.status();
        let init = init_count(&run.pod);
        let started = |index: usize| {
            let status = container_status(&status, index);
            status.is_some_and(|status| is_running(status) || ended(status).is_some() || status.last_state.is_some())
        };
        let count = init + run.pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        if !(init..count).any(started) {
            let current = (0..init).rev().find(|index| started(*index));
            return self.plan_from(cx, run, current.map_or(0, |index| index));
        }
        for index in 0..count {
            let Some(found) = container_status(&status, index).cloned() else { continue };
            let since = found.state.as_ref().and_then(|state| near(state.running.as_ref()?.started_at.as_ref()?.0));
            if let Some(since) = since {
                self.plan_running(cx, run, index, since, found.ready);
                continue;
            }
            let reason = found.state.as_ref().and_then(|state| state.waiting.as_ref()?.reason.clone());
            match reason.as_deref() {
                Some("CrashLoopBackOff") => {
                    run.workload.behaviour = Behaviour::CrashLoop;
                    let last = found.last_state.as_ref().and_then(|state| state.terminated.as_ref());
                    let finished = last.and_then(|end| near(end.finished_at.as_ref()?.0)).unwrap_or(cx.now);
                    let delays = &cx.settings.kubelet;
                    let doublings = u32::try_from(found.restart_count.clamp(1, 20) - 1).unwrap_or_default();
                    let wait = (delays.crash_backoff * 2_i32.pow(doublings)).min(delays.crash_backoff_max);
                    run.backoffs.push(Backoff { index, wait, updated: finished });
                    if wait < delays.crash_backoff_max {
                        run.at((finished + wait).max(cx.now), index, What::Start);
                    }
                }
                Some("ErrImagePull" | "ImagePullBackOff") => run.workload.behaviour = Behaviour::MissingImage,
                _ if index >= init && ended(&found).is_none() => {
                    run.at(cx.now + run.workload.delays(cx.settings).start, index, What::Start);
                }
                _ => {}
            }
        }
    }

    /// What happens to a container that runs since a time.
    fn plan_running(&mut self, cx: &Context<'_>, run: &mut PodRun, index: usize, since: Timestamp, ready: bool) {
        let init = init_count(&run.pod);
        let pod = Arc::clone(&run.pod);
        let Some(spec) = container(&pod, index) else { return };
        let delays = run.workload.delays(cx.settings).clone();
        // A time that has passed starts anew.
        let after = |delay: SignedDuration| {
            let at = since + delay;
            if at >= cx.now { at } else { cx.now + delay }
        };
        if index < init && !is_sidecar(spec) {
            return run.at(after(delays.start), index, What::Exit(0));
        }
        let probed = spec.readiness_probe.is_some() || spec.startup_probe.is_some();
        let ready_in = if probed || run.workload.delays.is_some() { delays.ready } else { SignedDuration::ZERO };
        if !ready {
            match run.workload.behaviour {
                Behaviour::NeverReady => run.at(after(delays.ready), index, What::Unready),
                // A container that should have been ready long ago has a reason not to be.
                _ if since + ready_in * 3 + SignedDuration::from_secs(60) < cx.now => {}
                _ => run.at(after(ready_in), index, What::Ready),
            }
        }
        match run.workload.behaviour {
            _ if index < init => {}
            Behaviour::Healthy if ends_by_itself(&run.pod) => run.at(after(delays.job), index, What::Exit(0)),
            Behaviour::FailsWith(code) => run.at(after(delays.job), index, What::Exit(code)),
            Behaviour::CrashLoop => run.at(after(delays.ready), index, What::Exit(1)),
            _ => {}
        }
    }

    /// Before 1.35 containers with a readiness probe are not ready after the restart of a kubelet until the next success.
    pub(super) fn probe_again(&mut self, cx: &Context<'_>, run: &mut PodRun, status: &mut PodStatus) {
        let pod = Arc::clone(&run.pod);
        for index in 0.. {
            let Some(spec) = container(&pod, index) else { return };
            let found = container_status_mut(status, index).filter(|found| spec.readiness_probe.is_some() && found.ready);
            if let Some(found) = found {
                found.ready = false;
                run.at(cx.now + run.workload.delays(cx.settings).ready, index, What::Ready);
            }
        }
    }

    /// The workloads behave in another way from now on.
    pub(super) fn behaviours_changed(&mut self, cx: &Context<'_>) {
        let changed: Vec<PodId> = self
            .pods
            .iter()
            .filter(|(_, run)| run.stage == Stage::Running)
            .filter(|(_, run)| cx.world.workload_of(cx.store, &run.pod) != run.workload)
            .map(|(id, _)| id.clone())
            .collect();
        for id in changed {
            let Some(run) = self.pods.remove(|other| other.cmp(&id)) else { continue };
            let mut run = Arc::unwrap_or_clone(run);
            run.workload = cx.world.workload_of(cx.store, &run.pod);
            self.replan(cx, &mut run);
            self.wake(id.0.clone(), SignedDuration::ZERO);
            self.pods.insert(id, Arc::new(run));
        }
        self.stand_in_behaviours_changed();
    }

    /// Plans anew what happens to containers that run or wait for their next start.
    fn replan(&mut self, cx: &Context<'_>, run: &mut PodRun) {
        let status = run.status();
        run.timers.retain(|timer| timer.what == What::Start);
        for index in 0.. {
            let Some(found) = container_status(&status, index) else { return };
            if is_running(found) {
                if run.workload.behaviour == Behaviour::NeverReady && found.ready {
                    run.at(cx.now, index, What::Unready);
                }
                self.plan_running(cx, run, index, cx.now, found.ready);
            } else if ended(found).is_none() && !run.timers.iter().any(|timer| timer.index == index) {
                run.at(cx.now, index, What::Start);
            }
        }
    }

    /// Something happens to a container.
    pub(super) fn fire(
        &mut self,
        cx: &Context<'_>,
        id: &PodId,
        run: &mut PodRun,
        status: &mut PodStatus,
        timer: Timer,
        out: &mut Out,
    ) {
        let Timer { index, what, .. } = timer;
        let pod = Arc::clone(&run.pod);
        let Some(spec) = container(&pod, index) else { return };
        match what {
            What::Start if run.workload.behaviour == Behaviour::MissingImage && index >= init_count(&pod) => {
                self.fail_pull(cx, id, run, status, index, spec, out);
            }
            What::Start => self.start(cx, id, run, status, index, spec, out),
            What::Ready => {
                if let Some(found) = container_status_mut(status, index).filter(|found| is_running(found)) {
                    found.ready = true;
                    found.started = Some(true);
                }
            }
            What::Unready => {
                if let Some(found) = container_status_mut(status, index) {
                    found.ready = false;
                    let message = "Readiness probe failed: HTTP probe failed with statuscode: 503";
                    out.event(cx, EventNote::warning(&id.0, "Unhealthy", message));
                }
            }
            What::Exit(code) => self.exit(cx, id, run, status, index, code, out),
            What::PullBackOff => {
                let image = spec.image.as_deref().unwrap_or_default();
                let back_off = format!("Back-off pulling image \"{image}\"");
                out.event(cx, EventNote::normal(&id.0, "BackOff", back_off.clone()));
                out.event(cx, EventNote::warning(&id.0, "Failed", "Error: ImagePullBackOff"));
                let message = format!("{back_off}: ErrImagePull: {}", pull_error(image));
                if let Some(found) = container_status_mut(status, index) {
                    found.state = waiting("ImagePullBackOff", Some(message));
                }
            }
        }
    }

    fn start(
        &mut self,
        cx: &Context<'_>,
        id: &PodId,
        run: &mut PodRun,
        status: &mut PodStatus,
        index: usize,
        spec: &Container,
        out: &mut Out,
    ) {
        let Some(found) = container_status_mut(status, index) else { return };
        // A container that ended before is another one now.
        if let Some(state) = found.state.take().filter(|state| state.terminated.is_some()) {
            found.last_state = Some(state);
        }
        if found.last_state.is_some() {
            found.restart_count += 1;
            let finished = found.last_state.as_ref().and_then(|state| near(state.terminated.as_ref()?.finished_at.as_ref()?.0));
            run.next_backoff(index, finished.unwrap_or(cx.now), &cx.settings.kubelet, cx.now);
        }
        found.state = running(cx.now);
        found.container_id = Some(format!("containerd://{}-{}-{}", id.1, spec.name, found.restart_count));
        found.image_id = spec.image.clone().unwrap_or_default();
        let waits = spec.readiness_probe.is_some() || spec.startup_probe.is_some() || run.workload.delays.is_some();
        let init = index < init_count(&run.pod);
        found.started = Some(spec.startup_probe.is_none());
        found.ready = !waits && run.workload.behaviour != Behaviour::NeverReady && (!init || is_sidecar(spec));
        let ready = found.ready;
        started_events(cx, id, spec, out);
        if !init || is_sidecar(spec) {
            self.plan_running(cx, run, index, cx.now, ready);
        }
    }

    fn exit(
        &mut self,
        cx: &Context<'_>,
        id: &PodId,
        run: &mut PodRun,
        status: &mut PodStatus,
        index: usize,
        code: i32,
        out: &mut Out,
    ) {
        let pod = Arc::clone(&run.pod);
        let (Some(spec), Some(pod_spec)) = (container(&pod, index), pod.spec.as_ref()) else { return };
        let Some(found) = container_status_mut(status, index).filter(|found| is_running(found)) else { return };
        run.timers.retain(|timer| timer.index != index);
        let reason = if code == 0 { "Completed" } else { "Error" };
        let end = terminated_state(end_of(found, code, reason, cx.now));
        let init = index < init_count(&pod) && !is_sidecar(spec);
        found.ready = init && code == 0;
        found.started = Some(false);
        let again = if init { code != 0 } else { restarts(spec, pod_spec, code) };
        let backoff = run.backoff(index).filter(|backoff| cx.now.duration_since(backoff.updated) <= STABLE);
        let Some(backoff) = backoff.filter(|_| again) else {
            found.state = end;
            if again {
                run.at(cx.now + cx.settings.kubelet.sync, index, What::Start);
            }
            return;
        };
        found.last_state = end;
        let wait = go_duration(backoff.wait);
        let message = format!("back-off {wait} restarting failed container={} pod={}", spec.name, full_name(id));
        found.state = waiting("CrashLoopBackOff", Some(message));
        let message = format!("Back-off restarting failed container {} in pod {}", spec.name, full_name(id));
        out.event(cx, EventNote::warning(&id.0, "BackOff", message));
        // At the longest wait only the number of restarts would change: the loop is left there, so that the cluster can
        // come to rest.
        if backoff.wait < cx.settings.kubelet.crash_backoff_max {
            run.at(cx.now + backoff.wait, index, What::Start);
        }
    }

    fn fail_pull(
        &mut self,
        cx: &Context<'_>,
        id: &PodId,
        run: &mut PodRun,
        status: &mut PodStatus,
        index: usize,
        spec: &Container,
        out: &mut Out,
    ) {
        let image = spec.image.as_deref().unwrap_or_default();
        let error = pull_error(image);
        out.event(cx, EventNote::normal(&id.0, "Pulling", format!("Pulling image \"{image}\"")));
        out.event(cx, EventNote::warning(&id.0, "Failed", format!("Failed to pull image \"{image}\": {error}")));
        out.event(cx, EventNote::warning(&id.0, "Failed", "Error: ErrImagePull"));
        if let Some(found) = container_status_mut(status, index) {
            found.state = waiting("ErrImagePull", Some(error));
        }
        run.next_backoff(index, cx.now, &cx.settings.kubelet, cx.now);
        let wait = run.backoff(index).map(|backoff| backoff.wait).unwrap_or_default();
        run.at(cx.now + cx.settings.kubelet.sync, index, What::PullBackOff);
        // As for a crash loop: at the longest wait nothing changes any more.
        if wait < cx.settings.kubelet.crash_backoff_max {
            run.at(cx.now + wait, index, What::Start);
        }
    }
}

/// What containerd says about an image that does not exist.
fn pull_error(image: &str) -> String {
    format!(
        "rpc error: code = NotFound desc = failed to pull and unpack image \"{image}\": failed to resolve reference \
         \"{image}\": {image}: not found"
    )
}

/// The events of a container that is started, for an image that is on the machine.
fn started_events(cx: &Context<'_>, id: &PodId, spec: &Container, out: &mut Out) {
    let (image, name) = (spec.image.as_deref().unwrap_or_default(), &spec.name);
    let allowed = if cx.settings.since(35) { " and can be accessed by the pod" } else { "" };
    let pulled = format!("Container image \"{image}\" already present on machine{allowed}");
    let (created, started) = match () {
        () if cx.settings.since(36) => ("Container created".to_owned(), "Container started".to_owned()),
        () if cx.settings.since(32) => (format!("Created container: {name}"), format!("Started container {name}")),
        () => (format!("Created container {name}"), format!("Started container {name}")),
    };
    out.event(cx, EventNote::normal(&id.0, "Pulled", pulled));
    out.event(cx, EventNote::normal(&id.0, "Created", created));
    out.event(cx, EventNote::normal(&id.0, "Started", started));
}
