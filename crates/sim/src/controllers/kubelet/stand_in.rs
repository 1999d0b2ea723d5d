//! The stand-in kubelets of the testbed (`testing/testbed/src/nodes`): they run nothing, and only change the status of pods
//! after the delays of the settings.
//!
//! They watch pods whether their node is reachable or not, and their delays pass whether it is or not; they report only
//! while it is.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateTerminated, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodSpec,
    PodStatus,
};

use super::status::{init_containers, is_sidecar, running, terminated_state, waiting};
use super::volumes::Mounts;
use super::{Kubelet, Out, PodId, id_of};
use crate::api::whole_seconds;
use crate::choices::Question;
use crate::object::SimKey;
use crate::pods::{condition, has_ended, is_ready, is_terminating, node_of, phase, reported, status_mut};
use crate::step::{Context, DeleteOptions, Wakes, Write};
use crate::store::Change;
use crate::volumes::claim_keys;
use crate::workload::Behaviour;
use crate::world::Process;

/// The label of a Job's pods.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// A stage of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Creating,
    Running,
    Ready,
    /// With this exit code.
    Terminated(i32),
}

/// What a stand-in does with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    /// It looks at the status to see what comes next.
    Look,
    /// It waits before it reports that containers run.
    Start(Timestamp),
    /// It waits before it reports that they are ready.
    Ready(Timestamp),
    /// It waits before it reports that the containers of a Job have ended.
    EndJob(Timestamp),
    /// It waits before it deletes the pod.
    Stop(Timestamp),
    /// It has deleted the pod, which is kept by finalizers.
    Deleted,
    /// The pod is gone; its process goes on until the node is reachable.
    Gone,
}

/// A pod as a stand-in knows it.
#[derive(Debug, Clone)]
pub(super) struct StandIn {
    node: Arc<str>,
    task: Task,
    /// When the stage began that a pod had when its cluster was taken over.
    since: Option<Timestamp>,
}

impl Kubelet {
    pub(super) fn stand_in_changed(&mut self, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<Pod>();
        let known = || before.is_some_and(|pod| self.stand_ins.get(&id_of(pod)).is_some());
        // Only the end of a finished pod is of interest.
        if after.is_some_and(|pod| !has_ended(pod) || is_terminating(pod)) || (after.is_none() && known()) {
            wakes.now(change.key.clone());
        }
    }

    /// Jobs may end in another way from now on, and pods become ready that did not.
    pub(super) fn stand_in_behaviours_changed(&mut self, cx: &Context<'_>) {
        let waits = |id: &PodId, task: Task| match task {
            Task::EndJob(_) => true,
            Task::Look => cx.store.at::<Pod>(&id.0).is_some_and(|pod| phase(pod) == "Running" && !is_ready(pod)),
            _ => false,
        };
        let waiting = self.stand_ins.iter().filter(|(id, stand_in)| waits(id, stand_in.task));
        let keys: Vec<SimKey> = waiting.map(|(id, _)| id.0.clone()).collect();
        keys.into_iter().for_each(|key| self.wake(key, SignedDuration::ZERO));
    }

    /// Takes over a pod of a cluster that is running.
    pub(super) fn resume_stand_in(&mut self, cx: &mut Context<'_>, node: &Arc<str>, pod: &Arc<Pod>) {
        let id = id_of(pod);
        self.change_node(node, |run| run.pods.insert(id.clone()));
        // On a node that is not reachable the next stage begins when it is back.
        let reachable = cx.world.state(node).reports();
        let since = stage_began(pod).filter(|began| reachable && *began < cx.now);
        self.stand_ins.insert(id.clone(), StandIn { node: Arc::clone(node), task: Task::Look, since });
        if phase(pod) == "Running" {
            let volumes = self.take_over_volumes(cx, &id, node, pod);
            let process = Process { pod: id.0.clone(), node: Arc::clone(node), volumes };
            cx.world.start_process(&id.1, process, cx.now);
        }
    }

    pub(super) fn stand_in_step(&mut self, cx: &mut Context<'_>, key: &SimKey, out: &mut Out) {
        let here = self.stand_ins.iter_from(|id| id.0.cmp(key).then(Ordering::Greater));
        let ids: Vec<PodId> = here.map(|(id, _)| id).take_while(|id| id.0 == *key).cloned().collect();
        for id in &ids {
            self.stand_in(cx, id, out);
        }
        let Some(pod) = cx.store.at::<Pod>(key) else { return };
        let id = id_of(pod);
        if ids.contains(&id) {
            return;
        }
        let Some(node) = node_of(pod).and_then(|name| self.nodes.key(|other| (**other).cmp(name))).cloned() else {
            return;
        };
        self.change_node(&node, |run| run.pods.insert(id.clone()));
        self.stand_ins.insert(id.clone(), StandIn { node, task: Task::Look, since: None });
        self.stand_in(cx, &id, out);
    }

    fn stand_in(&mut self, cx: &mut Context<'_>, id: &PodId, out: &mut Out) {
        let Some(mut stand_in) = self.stand_ins.remove(|other| other.cmp(id)) else { return };
        let pod = cx.store.at::<Pod>(&id.0).filter(|pod| pod.metadata.uid.as_deref() == Some(&*id.1)).cloned();
        // It looks at its pods as soon as it is back, before it reports its own status.
        let reachable = cx.world.state(&stand_in.node).reports();
        let Some(pod) = pod else {
            self.release_in_use(&stand_in.node, id);
            if reachable || !cx.world.state(&stand_in.node).executes() {
                self.change_node(&stand_in.node, |run| run.pods.remove(id));
                return cx.world.end_process(&id.1);
            }
            stand_in.task = Task::Gone;
            self.stand_ins.insert(id.clone(), stand_in);
            return;
        };
        let keep = if is_terminating(&pod) {
            self.stop(cx, id, &mut stand_in, &pod, reachable, out)
        } else {
            self.go_on(cx, id, &mut stand_in, &pod, reachable, out);
            true
        };
        if keep {
            self.stand_ins.insert(id.clone(), stand_in);
        } else {
            self.change_node(&stand_in.node, |run| run.pods.remove(id));
        }
    }

    /// Ends a pod. Gives whether there is more to do.
    fn stop(
        &mut self,
        cx: &mut Context<'_>,
        id: &PodId,
        stand_in: &mut StandIn,
        pod: &Arc<Pod>,
        reachable: bool,
        out: &mut Out,
    ) -> bool {
        if stand_in.task == Task::Deleted || !reachable {
            return true;
        }
        let until = match stand_in.task {
            Task::Stop(until) => until,
            _ if has_ended(pod) => cx.now,
            _ => {
                let stop = self.delays(cx, pod).stop;
                stand_in.since.take().unwrap_or(cx.now) + recorded_delay(cx, &id.0, "stop", stop)
            }
        };
        stand_in.task = Task::Stop(until);
        if until > cx.now {
            out.look_at(until);
            return true;
        }
        cx.world.end_process(&id.1);
        self.release_volumes(&stand_in.node, id, pod);
        let options = DeleteOptions { uid: Some(id.1.to_string()), grace: Some(0), ..DeleteOptions::default() };
        out.writes.push(Write::Delete(id.0.clone(), options));
        stand_in.task = Task::Deleted;
        // The object is gone unless finalizers keep it.
        pod.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty())
    }

    fn delays(&self, cx: &Context<'_>, pod: &Pod) -> crate::settings::WorkloadDelays {
        cx.world.workload_of(cx.store, pod).delays(cx.settings).clone()
    }

    /// The next stage of a pod.
    fn go_on(
        &mut self,
        cx: &mut Context<'_>,
        id: &PodId,
        stand_in: &mut StandIn,
        pod: &Arc<Pod>,
        reachable: bool,
        out: &mut Out,
    ) {
        if stand_in.task == Task::Look {
            if !reachable {
                return;
            }
            match self.next_task(cx, id, stand_in, pod, out) {
                Some(task) => stand_in.task = task,
                None => return,
            }
        }
        let (until, stage) = match stand_in.task {
            Task::Start(until) => (until, Stage::Running),
            Task::Ready(until) => (until, Stage::Ready),
            Task::EndJob(until) => match cx.world.workload_of(cx.store, pod).behaviour {
                Behaviour::KeepsRunning => return,
                Behaviour::FailsWith(code) => (until, Stage::Terminated(code)),
                Behaviour::CrashLoop => (until, Stage::Terminated(1)),
                _ => (until, Stage::Terminated(0)),
            },
            _ => return,
        };
        if until > cx.now {
            return out.look_at(until);
        }
        if reachable {
            stand_in.task = Task::Look;
            self.report(cx, id, &stand_in.node, pod, stage, out);
        }
    }

    /// What comes next, by the status of the pod; none if there is nothing to wait for.
    fn next_task(
        &mut self,
        cx: &mut Context<'_>,
        id: &PodId,
        stand_in: &mut StandIn,
        pod: &Arc<Pod>,
        out: &mut Out,
    ) -> Option<Task> {
        let (delays, from) = (self.delays(cx, pod), stand_in.since.take().unwrap_or(cx.now));
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        let ready = is_ready(pod) && !statuses.is_empty() && statuses.iter().all(|status| status.ready);
        match phase(pod) {
            "Pending" if statuses.is_empty() => {
                self.report(cx, id, &stand_in.node, pod, Stage::Creating, out);
                None
            }
            "Pending" => match self.mount(cx, id, &stand_in.node, pod) {
                Mounts::Done(_) => Some(Task::Start(from + recorded_delay(cx, &id.0, "start", delays.start))),
                Mounts::NoClaim(_) | Mounts::NotAttached => None,
            },
            "Running" => {
                self.ensure_process(cx, id, &stand_in.node, pod);
                let never = cx.world.workload_of(cx.store, pod).behaviour == Behaviour::NeverReady;
                let is_job = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(JOB_NAME));
                match (ready, never, is_job) {
                    (false, false, _) => Some(Task::Ready(from + recorded_delay(cx, &id.0, "ready", delays.ready))),
                    (true, _, true) => Some(Task::EndJob(from + recorded_delay(cx, &id.0, "job", delays.job))),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// A stand-in runs nothing, but what it stands for does.
    fn ensure_process(&mut self, cx: &mut Context<'_>, id: &PodId, node: &Arc<str>, pod: &Pod) {
        if cx.world.process(&id.1).is_none() {
            let volumes = self.take_over_volumes(cx, id, node, pod);
            let process = Process { pod: id.0.clone(), node: Arc::clone(node), volumes };
            cx.world.start_process(&id.1, process, cx.now);
        }
    }

    fn report(&mut self, cx: &mut Context<'_>, id: &PodId, node: &Arc<str>, pod: &Pod, stage: Stage, out: &mut Out) {
        let host = Kubelet::host_address(cx, node);
        let had = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        let address = match (stage, had) {
            (Stage::Creating, _) => None,
            (_, Some(address)) => Some(address),
            _ if on_host => Some(host.clone()),
            _ => Some(self.new_address()),
        };
        match stage {
            Stage::Running => self.ensure_process(cx, id, node, pod),
            Stage::Terminated(_) => cx.world.end_process(&id.1),
            Stage::Creating | Stage::Ready => {}
        }
        let mut pod = pod.clone();
        pod.metadata.resource_version = None;
        patch_status(&mut pod, stage, host, address, cx.now);
        out.writes.push(Write::Status(pod.into()));
    }

    /// An unreachable node keeps the process of a pod that is gone, but reports its volumes as free when it is back.
    fn release_in_use(&mut self, node: &Arc<str>, id: &PodId) {
        self.release_volumes(node, id, &Pod::default());
    }
}

/// How long a stage takes: a recording knows how long it took.
fn recorded_delay(cx: &mut Context<'_>, pod: &SimKey, stage: &'static str, delay: SignedDuration) -> SignedDuration {
    let question = Question::StandInDelay { pod: format!("{}/{}", pod.namespace, pod.name), stage };
    let recorded = cx.choices.take_recorded(&question).and_then(|millis| millis.parse().ok());
    recorded.map_or(delay, SignedDuration::from_millis)
}

/// When the stage of a pod began, by its status; none if it does not say so: a pod that waits for volumes.
fn stage_began(pod: &Pod) -> Option<Timestamp> {
    if let Some(deadline) = &pod.metadata.deletion_timestamp {
        let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or_default());
        return deadline.0.checked_sub(grace).ok();
    }
    let status = pod.status.as_ref()?;
    if is_ready(pod) {
        return condition(pod, "Ready")?.last_transition_time.as_ref().map(|at| at.0);
    }
    if phase(pod) == "Running" {
        let running = status.container_statuses.iter().flatten().filter_map(|one| one.state.as_ref()?.running.as_ref());
        let started = running.filter_map(|running| running.started_at.as_ref()).map(|at| at.0).max();
        // It is not ready since the node was lost, or since it was started.
        let lost = condition(pod, "Ready").and_then(|ready| ready.last_transition_time.as_ref()).map(|at| at.0);
        return started.max(lost);
    }
    let waits = claim_keys(pod).next().is_some();
    status.start_time.as_ref().filter(|_| !waits).map(|at| at.0)
}

/// The status of a pod at a stage. What a stage does not say stays as it is.
fn patch_status(pod: &mut Pod, stage: Stage, host: String, address: Option<String>, now: Timestamp) {
    let spec = pod.spec.clone().unwrap_or_default();
    let conditions = conditions(pod, &spec, stage, now);
    let status: &mut PodStatus = status_mut(pod);
    status.phase = Some(
        match stage {
            Stage::Creating => "Pending",
            Stage::Running | Stage::Ready => "Running",
            Stage::Terminated(0) => "Succeeded",
            Stage::Terminated(_) => "Failed",
        }
        .into(),
    );
    status.host_ips = Some(vec![HostIP { ip: host.clone() }]);
    status.host_ip = Some(host);
    status.start_time.get_or_insert_with(|| whole_seconds(now));
    status.container_statuses = Some(spec.containers.iter().map(|c| container(c, stage, now)).collect());
    let init = init_containers(&spec);
    if !init.is_empty() {
        status.init_container_statuses = Some(init.iter().map(|c| init_container(c, stage, now)).collect());
    }
    if let Some(address) = address {
        status.pod_ips = Some(vec![PodIP { ip: address.clone() }]);
        status.pod_ip = Some(address);
    }
    let shown = status.conditions.get_or_insert_default();
    for new in conditions {
        match shown.iter_mut().find(|condition| condition.type_ == new.type_) {
            Some(condition) => {
                let kept = (condition.last_probe_time.take(), condition.observed_generation);
                *condition = PodCondition { last_probe_time: kept.0, observed_generation: kept.1, ..new };
            }
            None => shown.push(new),
        }
    }
}

fn conditions(pod: &Pod, spec: &PodSpec, stage: Stage, now: Timestamp) -> Vec<PodCondition> {
    let names: Vec<&str> = spec.containers.iter().map(|container| container.name.as_str()).collect();
    let unready = format!("containers with unready status: [{}]", names.join(" "));
    let (ready, reason, message) = match stage {
        Stage::Ready => (true, None, None),
        Stage::Creating | Stage::Running => (false, Some("ContainersNotReady"), Some(unready)),
        Stage::Terminated(0) => (false, Some("PodCompleted"), None),
        Stage::Terminated(_) => (false, Some("PodFailed"), None),
    };
    let rows = [
        ("PodReadyToStartContainers", matches!(stage, Stage::Running | Stage::Ready), None, None),
        ("Initialized", stage != Stage::Creating, None, None),
        ("Ready", ready, reason, message.clone()),
        ("ContainersReady", ready, reason, message),
        ("PodScheduled", true, None, None),
    ];
    let of = |(kind, status, reason, message): (&str, bool, Option<&str>, Option<String>)| {
        let status = if status { "True" } else { "False" };
        let same = condition(pod, kind).filter(|condition| condition.status == status);
        PodCondition {
            type_: kind.into(),
            status: status.into(),
            reason: reason.map(str::to_owned),
            message,
            last_transition_time: same.map_or_else(|| reported(now), |same| same.last_transition_time.clone()),
            ..PodCondition::default()
        }
    };
    rows.into_iter().map(of).collect()
}

fn container(container: &Container, stage: Stage, now: Timestamp) -> ContainerStatus {
    let state = match stage {
        Stage::Creating => waiting("ContainerCreating", None),
        Stage::Running | Stage::Ready => running(now),
        Stage::Terminated(code) => terminated(code, now),
    };
    container_status(container, stage == Stage::Ready, state)
}

fn init_container(container: &Container, stage: Stage, now: Timestamp) -> ContainerStatus {
    let state = match stage {
        Stage::Creating => waiting("PodInitializing", None),
        Stage::Running | Stage::Ready if is_sidecar(container) => running(now),
        _ => terminated(0, now),
    };
    container_status(container, stage != Stage::Creating, state)
}

fn terminated(code: i32, now: Timestamp) -> Option<ContainerState> {
    terminated_state(ContainerStateTerminated {
        exit_code: code,
        reason: Some(if code == 0 { "Completed" } else { "Error" }.into()),
        started_at: reported(now),
        finished_at: reported(now),
        ..ContainerStateTerminated::default()
    })
}

fn container_status(container: &Container, ready: bool, state: Option<ContainerState>) -> ContainerStatus {
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        ready,
        started: Some(state.as_ref().is_some_and(|state| state.running.is_some())),
        state,
        ..ContainerStatus::default()
    }
}
