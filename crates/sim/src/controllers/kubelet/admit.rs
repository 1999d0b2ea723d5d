//! How a pod comes under the care of a kubelet: admission, the restart of the kubelet, the boot of the machine, and a
//! cluster that is running already.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod, PodStatus};
use stead_model::times::{deletion, near};

use super::admission::{Amounts, Rejection, rejection};
use super::pod::{PodRun, Stage};
use super::report::Report;
use super::status::{all_containers, container_status_mut, end_of, initial, is_running, merge_foreign, terminated_state};
use super::{Kubelet, Out, PodId, id_of};
use crate::event_log::EventNote;
use crate::pods::{condition, has_ended, is_terminating, observed_generation};
use crate::step::{Context, Write};
use crate::world::MachineState;

/// The message of a sandbox that was lost.
const SANDBOX_CHANGED: &str = "Pod sandbox changed, it will be killed and re-created.";

impl Kubelet {
    /// Accepts or rejects a pod. Gives whether it was accepted.
    pub(super) fn admit(
        &mut self,
        cx: &Context<'_>,
        id: &PodId,
        name: &Arc<str>,
        pod: &Arc<Pod>,
        out: &mut Out,
    ) -> bool {
        let Some(node) = cx.store.get::<Node>("", name) else { return false };
        let requests = Amounts::of_pod(pod);
        let allocatable = self.allocatable(name, node);
        let Some(run) = self.node_run(name).filter(|run| !run.starting) else { return false };
        let others = run.pods.iter().filter_map(|id| self.pods.get(id)).filter(|run| run.takes_room()).map(|run| &*run.pod);
        let rejected = match run.shutdown {
            Some(_) => Some(Rejection {
                reason: "NodeShutdown".into(),
                event: "NodeShutdown",
                message: "Pod was rejected as the node is shutting down.".into(),
            }),
            None => run.used.missing(&requests, &allocatable).or_else(|| rejection(pod, node, others)),
        };
        if let Some(rejected) = rejected {
            reject(cx, id, pod, &rejected, out);
            return false;
        }
        let workload = cx.world.workload_of(cx.store, pod);
        let mut run = PodRun::new(name, pod, workload);
        let has_containers = |status: &&PodStatus| status.container_statuses.as_ref().is_some_and(|list| !list.is_empty());
        let known = pod.status.as_ref().filter(has_containers);
        let ran = known.is_some_and(|status| all_containers(status).any(is_running));
        let status = match known {
            None => initial(pod, &Kubelet::host_address(cx, name), cx.settings, cx.now),
            Some(status) => {
                // The machine was booted: nothing runs any more, and containers start again.
                let mut status = status.clone();
                lose_containers(&mut status, cx.now);
                status
            }
        };
        Report { connected: true, out: &mut *out }.set_status(cx, &mut run, status, false);
        if run.has_ended() {
            run.stage = Stage::Unmounting { at: cx.now };
        } else if ran {
            out.event(cx, EventNote::normal(&id.0, "SandboxChanged", SANDBOX_CHANGED));
        }
        self.change_node(name, |node| {
            node.pods.insert(id.clone());
            if run.takes_room() {
                node.used.add(&requests);
            }
        });
        self.pods.insert(id.clone(), Arc::new(run));
        true
    }

    /// After the restart of a kubelet a pod is admitted again. Gives whether it goes on as before.
    pub(super) fn take_back(&mut self, cx: &mut Context<'_>, id: &PodId, run: &mut PodRun, report: &mut Report<'_>) -> bool {
        if run.gone || is_terminating(&run.pod) || !matches!(run.stage, Stage::Volumes | Stage::Running) {
            return true;
        }
        run.restarted = false;
        let Some(node) = cx.store.get::<Node>("", &run.node) else { return true };
        let mut used = self.node_run(&run.node).map(|node| node.used.clone()).unwrap_or_default();
        let requests = Amounts::of_pod(&run.pod);
        used.remove(&requests);
        let missing = used.missing(&requests, &self.allocatable(&run.node, node));
        if let Some(rejected) = missing.or_else(|| rejection(&run.pod, node, std::iter::empty())) {
            cx.world.end_process(&id.1);
            let status = reject(cx, id, &run.pod, &rejected, report.out);
            run.own = Some(Arc::new(status));
            run.timers.clear();
            self.free_room(run);
            run.stage = Stage::Unmounting { at: cx.now + cx.settings.kubelet.unmount };
            return false;
        }
        // A new kubelet knows the states of containers, but of conditions only what the API server has.
        let mut status = run.status();
        if !cx.settings.since(35) {
            run.probe_again(cx.settings, &mut status, cx.now);
        }
        run.own = None;
        run.backoffs.clear();
        report.set_status(cx, run, status, false);
        true
    }

    /// Takes over a deleted pod that has ended: its volumes are unmounted, and its object goes (`SyncTerminatedPod`).
    pub(super) fn take_ended(&mut self, cx: &mut Context<'_>, id: &PodId, node: &Arc<str>, pod: &Arc<Pod>) {
        let mut run = PodRun::new(node, pod, cx.world.workload_of(cx.store, pod));
        run.mounted = self.take_over_volumes(cx, id, node, pod);
        run.stage = Stage::Unmounting { at: cx.now + cx.settings.kubelet.unmount };
        self.change_node(node, |node| {
            node.pods.insert(id.clone());
        });
        self.pods.insert(id.clone(), Arc::new(run));
    }

    /// Takes over a pod of a cluster that is running.
    pub(super) fn resume_pod(&mut self, cx: &mut Context<'_>, node: &Arc<str>, pod: &Arc<Pod>) {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let off = cx.world.state(node) == MachineState::Off;
        if has_ended(pod) || off || statuses.is_none_or(Vec::is_empty) {
            return;
        }
        let id = id_of(pod);
        let mut known = Arc::clone(pod);
        if !cx.world.is_connected(node, cx.now) {
            // It learns of the deletion when it is back.
            let metadata = &mut Arc::make_mut(&mut known).metadata;
            (metadata.deletion_timestamp, metadata.deletion_grace_period_seconds) = (None, None);
        }
        let mut run = PodRun::new(node, &known, cx.world.workload_of(cx.store, pod));
        let status = run.status();
        let started = |status: &ContainerStatus| {
            is_running(status) || status.last_state.as_ref().is_some_and(|state| state.terminated.is_some())
        };
        if status.pod_ip.is_some() || all_containers(&status).any(started) {
            run.stage = Stage::Running;
            run.sandbox = true;
            run.mounted = self.take_over_volumes(cx, &id, node, pod);
            run.plan_rest(cx.settings, cx.now);
            self.track_process(cx, &id, &run, &status);
            if let Some(deletion) = deletion(&pod.metadata).filter(|_| cx.world.is_connected(node, cx.now)) {
                let stop = run.workload.delays(cx.settings).stop;
                run.timers.clear();
                run.stage = Stage::Stopping { ends: (deletion.requested + stop).min(deletion.due).max(cx.now), code: 0 };
            }
        }
        // A kubelet that nobody hears of knows it as well, and says so when it is back.
        run.own = marked_by_controller(&run).map(Arc::new);
        self.change_node(node, |node| {
            node.pods.insert(id.clone());
            node.used.add(&Amounts::of_pod(pod));
        });
        self.pods.insert(id, Arc::new(run));
    }
}

/// `rejectPod`: the pod has failed, and nobody tries again.
fn reject(cx: &Context<'_>, id: &PodId, pod: &Pod, rejected: &Rejection, out: &mut Out) -> PodStatus {
    out.event(cx, EventNote::warning(&id.0, rejected.event, rejected.message.clone()));
    let shown = pod.status.clone().unwrap_or_default();
    // The kubelet knows nothing else of it: containers, conditions and addresses are not reported.
    let mut status = PodStatus {
        phase: Some("Failed".into()),
        reason: Some(rejected.reason.clone()),
        message: Some(format!("Pod was rejected: {}", rejected.message)),
        start_time: shown.start_time.or_else(|| Some(crate::api::whole_seconds(cx.now))),
        qos_class: shown.qos_class,
        observed_generation: observed_generation(pod, cx.settings).or(shown.observed_generation),
        ..PodStatus::default()
    };
    merge_foreign(pod, &mut status);
    let mut failed = Pod { status: Some(status.clone()), ..pod.clone() };
    failed.metadata.resource_version = None;
    out.writes.push(Write::Status(failed.into()));
    status
}

/// The containers of a machine that was booted have ended with it.
fn lose_containers(status: &mut PodStatus, now: Timestamp) {
    let count = all_containers(status).count();
    for index in 0..count {
        let Some(container) = container_status_mut(status, index).filter(|container| is_running(container)) else {
            continue;
        };
        container.state = terminated_state(end_of(container, 255, "Unknown", now));
        container.ready = false;
        container.started = Some(false);
    }
}

/// The status that a pod's kubelet knows if the node controller has turned Ready to False meanwhile.
fn marked_by_controller(run: &PodRun) -> Option<PodStatus> {
    let status = run.pod.status.as_ref()?;
    let (ready, containers) = (condition(&run.pod, "Ready")?, condition(&run.pod, "ContainersReady")?);
    if ready.status == "True" || containers.status != "True" || ready.reason.is_some() {
        return None;
    }
    let mut own = status.clone();
    for condition in own.conditions.iter_mut().flatten().filter(|condition| condition.type_ == "Ready") {
        condition.status = "True".into();
        condition.last_transition_time = containers.last_transition_time.clone().filter(|time| near(time.0).is_some());
    }
    Some(own)
}
