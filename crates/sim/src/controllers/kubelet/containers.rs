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
use crate::settings::{KubeletDelays, Settings};
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

    /// Plans the starts of all containers from an init container on, one after the other, in the time that the workload
    /// needs. The volumes are mounted.
    pub(super) fn plan_start(&mut self, settings: &Settings, first: usize, now: Timestamp) {
        let pod = Arc::clone(&self.pod);
        let Some(spec) = pod.spec.as_ref() else { return };
        let init = init_containers(spec);
        let ordered = init.iter().skip(first).filter(|container| !is_sidecar(container)).count();
        let parts = i32::try_from(ordered + 1).unwrap_or(i32::MAX);
        let slice = self.workload.delays(settings).start / parts;
        let mut at = now + slice;
        for (index, container) in init.iter().enumerate().skip(first) {
            self.at(at, index, What::Start);
            if !is_sidecar(container) {
                at += slice;
                self.at(at, index, What::Exit(0));
            }
        }
        for index in init.len()..init.len() + spec.containers.len() {
            self.at(at, index, What::Start);
        }
    }

    /// Plans what is still going to happen to the containers of a pod in a cluster that is running.
    pub(super) fn plan_rest(&mut self, settings: &Settings, now: Timestamp) {
        let status = self.status();
        let init = init_count(&self.pod);
        let started = |index: usize| {
            let status = container_status(&status, index);
            status.is_some_and(|status| is_running(status) || ended(status).is_some() || status.last_state.is_some())
        };
        let count = init + self.pod.spec.as_ref().map_or(0, |spec| spec.containers.len());
        if !(init..count).any(started) {
            let current = (0..init).rev().find(|index| started(*index));
            return self.plan_start(settings, current.unwrap_or(0), now);
        }
        for index in 0..count {
            let Some(found) = container_status(&status, index) else { continue };
            let state = found.state.as_ref();
            if let Some(since) = state.and_then(|state| near(state.running.as_ref()?.started_at.as_ref()?.0)) {
                self.plan_running(settings, index, since, found.ready, now);
                continue;
            }
            match state.and_then(|state| state.waiting.as_ref()?.reason.as_deref()) {
                Some("CrashLoopBackOff") => {
                    let last = found.last_state.as_ref().and_then(|state| state.terminated.as_ref());
                    let finished = last.and_then(|end| near(end.finished_at.as_ref()?.0)).unwrap_or(now);
                    self.plan_crash_loop(&settings.kubelet, index, found.restart_count, finished, now);
                }
                Some("ErrImagePull" | "ImagePullBackOff") => self.workload.behaviour = Behaviour::MissingImage,
                _ if index >= init && ended(found).is_none() => {
                    let start = self.workload.delays(settings).start;
                    self.at(now + start, index, What::Start);
                }
                _ => {}
            }
        }
    }

    /// A container that crashed so many times before goes on to do so.
    fn plan_crash_loop(
        &mut self,
        delays: &KubeletDelays,
        index: usize,
        restarts: i32,
        finished: Timestamp,
        now: Timestamp,
    ) {
        self.workload.behaviour = Behaviour::CrashLoop;
        let doublings = u32::try_from(restarts.clamp(1, 20) - 1).unwrap_or_default();
        let wait = (delays.crash_backoff * 2_i32.pow(doublings)).min(delays.crash_backoff_max);
        self.backoffs.push(Backoff { index, wait, updated: finished });
        if wait < delays.crash_backoff_max {
            self.at((finished + wait).max(now), index, What::Start);
        }
    }

    /// Plans what happens to a container that runs since a time.
    fn plan_running(&mut self, settings: &Settings, index: usize, since: Timestamp, ready: bool, now: Timestamp) {
        let init = init_count(&self.pod);
        let pod = Arc::clone(&self.pod);
        let Some(spec) = container(&pod, index) else { return };
        let delays = self.workload.delays(settings).clone();
        // A time that has passed starts anew.
        let after = |delay: SignedDuration| {
            let at = since + delay;
            if at >= now { at } else { now + delay }
        };
        if index < init && !is_sidecar(spec) {
            return self.at(after(delays.start), index, What::Exit(0));
        }
        let ready_in = if self.waits_for_readiness(spec) { delays.ready } else { SignedDuration::ZERO };
        if !ready {
            match self.workload.behaviour {
                Behaviour::NeverReady => self.at(after(delays.ready), index, What::Unready),
                // A container that should have been ready long ago has a reason not to be.
                _ if since + ready_in * 3 + SignedDuration::from_secs(60) < now => {}
                _ => self.at(after(ready_in), index, What::Ready),
            }
        }
        match self.workload.behaviour {
            _ if index < init => {}
            Behaviour::Healthy if ends_by_itself(&pod) => self.at(after(delays.job), index, What::Exit(0)),
            Behaviour::FailsWith(code) => self.at(after(delays.job), index, What::Exit(code)),
            Behaviour::CrashLoop => self.at(after(delays.ready), index, What::Exit(1)),
            _ => {}
        }
    }

    /// Whether a container is ready later than it runs: it has a probe, or its workload has a delay of its own.
    fn waits_for_readiness(&self, spec: &Container) -> bool {
        spec.readiness_probe.is_some() || spec.startup_probe.is_some() || self.workload.delays.is_some()
    }

    /// Before 1.35 containers with a readiness probe are not ready after the restart of a kubelet until the next success.
    pub(super) fn probe_again(&mut self, settings: &Settings, status: &mut PodStatus, now: Timestamp) {
        let pod = Arc::clone(&self.pod);
        for index in 0.. {
            let Some(spec) = container(&pod, index) else { return };
            let found = container_status_mut(status, index);
            if let Some(found) = found.filter(|found| spec.readiness_probe.is_some() && found.ready) {
                found.ready = false;
                let ready = self.workload.delays(settings).ready;
                self.at(now + ready, index, What::Ready);
            }
        }
    }

    /// Plans anew what happens to containers that run or wait for their next start.
    fn plan_again(&mut self, settings: &Settings, now: Timestamp) {
        let status = self.status();
        self.timers.retain(|timer| timer.what == What::Start);
        for index in 0.. {
            let Some(found) = container_status(&status, index) else { return };
            if is_running(found) {
                if self.workload.behaviour == Behaviour::NeverReady && found.ready {
                    self.at(now, index, What::Unready);
                }
                self.plan_running(settings, index, now, found.ready, now);
            } else if ended(found).is_none() && !self.timers.iter().any(|timer| timer.index == index) {
                self.at(now, index, What::Start);
            }
        }
    }
}

impl Kubelet {
    /// Workloads behave in another way from now on.
    pub(super) fn behaviours_changed(&mut self, cx: &Context<'_>) {
        let of = |pod: &Pod| cx.world.workload_of(cx.store, pod);
        let running = self.pods.iter().filter(|(_, run)| run.stage == Stage::Running);
        let changed: Vec<PodId> =
            running.filter(|(_, run)| of(&run.pod) != run.workload).map(|(id, _)| id.clone()).collect();
        for id in changed {
            self.change_pod(&id, |run| {
                run.workload = of(&run.pod);
                run.plan_again(cx.settings, cx.now);
            });
            self.wake(id.0, SignedDuration::ZERO);
        }
        self.stand_in_behaviours_changed();
    }
}

/// What a change of a container is made with.
pub(super) struct Turn<'a, 'b> {
    pub(super) cx: &'a Context<'b>,
    pub(super) id: &'a PodId,
    pub(super) run: &'a mut PodRun,
    pub(super) status: &'a mut PodStatus,
    pub(super) out: &'a mut Out,
}

impl Turn<'_, '_> {
    fn event(&mut self, warning: bool, reason: &'static str, message: impl Into<String>) {
        let note = EventNote { warning, ..EventNote::normal(&self.id.0, reason, message) };
        self.out.event(self.cx, note);
    }

    /// Something happens to a container.
    pub(super) fn fire(&mut self, timer: Timer) {
        let index = timer.index;
        let pod = Arc::clone(&self.run.pod);
        let Some(spec) = container(&pod, index) else { return };
        match timer.what {
            What::Start if self.run.workload.behaviour == Behaviour::MissingImage && index >= init_count(&pod) => {
                self.fail_pull(index, spec);
            }
            What::Start => self.start(index, spec),
            What::Ready => {
                if let Some(found) = container_status_mut(self.status, index).filter(|found| is_running(found)) {
                    found.ready = true;
                    found.started = Some(true);
                }
            }
            What::Unready => {
                if let Some(found) = container_status_mut(self.status, index) {
                    found.ready = false;
                }
                self.event(true, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503");
            }
            What::Exit(code) => self.exit(index, spec, code),
            What::PullBackOff => self.wait_for_pull(index, spec),
        }
    }

    fn start(&mut self, index: usize, spec: &Container) {
        let (now, settings) = (self.cx.now, self.cx.settings);
        let Some(found) = container_status_mut(self.status, index) else { return };
        // A container that ended before is another one now.
        if let Some(state) = found.state.take().filter(|state| state.terminated.is_some()) {
            found.last_state = Some(state);
        }
        if let Some(last) = &found.last_state {
            found.restart_count += 1;
            let finished = last.terminated.as_ref().and_then(|end| near(end.finished_at.as_ref()?.0));
            self.run.next_backoff(index, finished.unwrap_or(now), &settings.kubelet, now);
        }
        let helps = index < init_count(&self.run.pod) && !is_sidecar(spec);
        found.state = running(now);
        found.container_id = Some(format!("containerd://{}-{}-{}", self.id.1, spec.name, found.restart_count));
        found.image_id = spec.image.clone().unwrap_or_default();
        found.started = Some(spec.startup_probe.is_none());
        let never = self.run.workload.behaviour == Behaviour::NeverReady;
        found.ready = !helps && !never && !self.run.waits_for_readiness(spec);
        let ready = found.ready;
        if !helps {
            self.run.plan_running(settings, index, now, ready, now);
        }
        self.report_start(spec);
    }

    /// The events of a container that is started, for an image that is on the machine.
    fn report_start(&mut self, spec: &Container) {
        let (image, name) = (spec.image.as_deref().unwrap_or_default(), &spec.name);
        let settings = self.cx.settings;
        let allowed = if settings.since(35) { " and can be accessed by the pod" } else { "" };
        self.event(false, "Pulled", format!("Container image \"{image}\" already present on machine{allowed}"));
        let (created, started) = match () {
            () if settings.since(36) => ("Container created".to_owned(), "Container started".to_owned()),
            () if settings.since(32) => (format!("Created container: {name}"), format!("Started container {name}")),
            () => (format!("Created container {name}"), format!("Started container {name}")),
        };
        self.event(false, "Created", created);
        self.event(false, "Started", started);
    }

    fn exit(&mut self, index: usize, spec: &Container, code: i32) {
        let (now, delays) = (self.cx.now, &self.cx.settings.kubelet);
        let pod = Arc::clone(&self.run.pod);
        let Some(pod_spec) = pod.spec.as_ref() else { return };
        let Some(found) = container_status_mut(self.status, index).filter(|found| is_running(found)) else { return };
        self.run.timers.retain(|timer| timer.index != index);
        let end = terminated_state(end_of(found, code, if code == 0 { "Completed" } else { "Error" }, now));
        let helps = index < init_count(&pod) && !is_sidecar(spec);
        found.ready = helps && code == 0;
        found.started = Some(false);
        let again = if helps { code != 0 } else { restarts(spec, pod_spec, code) };
        let backoff = self.run.backoff(index).filter(|backoff| now.duration_since(backoff.updated) <= STABLE);
        let Some(backoff) = backoff.filter(|_| again) else {
            found.state = end;
            if again {
                self.run.at(now + delays.sync, index, What::Start);
            }
            return;
        };
        let (wait, name) = (go_duration(backoff.wait), full_name(self.id));
        found.last_state = end;
        let message = format!("back-off {wait} restarting failed container={} pod={name}", spec.name);
        found.state = waiting("CrashLoopBackOff", Some(message));
        // At the longest wait only the number of restarts would change: the loop is left there, so that the cluster can
        // come to rest.
        if backoff.wait < delays.crash_backoff_max {
            self.run.at(now + backoff.wait, index, What::Start);
        }
        self.event(true, "BackOff", format!("Back-off restarting failed container {} in pod {name}", spec.name));
    }

    fn fail_pull(&mut self, index: usize, spec: &Container) {
        let (now, delays) = (self.cx.now, &self.cx.settings.kubelet);
        let image = spec.image.as_deref().unwrap_or_default();
        let error = pull_error(image);
        self.event(false, "Pulling", format!("Pulling image \"{image}\""));
        self.event(true, "Failed", format!("Failed to pull image \"{image}\": {error}"));
        self.event(true, "Failed", "Error: ErrImagePull");
        if let Some(found) = container_status_mut(self.status, index) {
            found.state = waiting("ErrImagePull", Some(error));
        }
        self.run.next_backoff(index, now, delays, now);
        self.run.at(now + delays.sync, index, What::PullBackOff);
        // As for a crash loop: at the longest wait nothing changes any more.
        let wait = self.run.backoff(index).map(|backoff| backoff.wait).unwrap_or_default();
        if wait < delays.crash_backoff_max {
            self.run.at(now + wait, index, What::Start);
        }
    }

    fn wait_for_pull(&mut self, index: usize, spec: &Container) {
        let image = spec.image.as_deref().unwrap_or_default();
        let back_off = format!("Back-off pulling image \"{image}\"");
        let message = format!("{back_off}: ErrImagePull: {}", pull_error(image));
        self.event(false, "BackOff", back_off);
        self.event(true, "Failed", "Error: ImagePullBackOff");
        if let Some(found) = container_status_mut(self.status, index) {
            found.state = waiting("ImagePullBackOff", Some(message));
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
