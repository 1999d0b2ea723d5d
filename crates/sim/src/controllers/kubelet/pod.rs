//! The life of a pod on its node: admission, volumes, containers, the end, and what survives a restart.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition, PodStatus};
use stead_model::times::{deletion, near};

use super::admission::{Rejection, rejection};
use super::containers::{Backoff, Timer};
use super::status::{
    PodFacts, all_containers, container_status_mut, end_containers, end_of, initial, is_running, merge_foreign,
    refresh, same_for_kubelet, set_address, terminated_state,
};
use super::volumes::Mounts;
use super::{Kubelet, Out, PodId, id_of};
use crate::event_log::EventNote;
use crate::machines::next_tick;
use crate::object::SimKey;
use crate::pods::{condition, has_ended, is_terminating, node_of, observed_generation, set_condition};
use crate::step::{Context, DeleteOptions, Wakes, Write};
use crate::store::{Change, Store};
use crate::volumes::UnusableClaim;
use crate::workload::Workload;
use crate::world::{Machine, MachineState, Process};

/// The grace period of containers whose pod a restarted kubelet does not know.
const ORPHAN_GRACE: i64 = 2;

/// What a kubelet does with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It waits for the volumes.
    Volumes,
    /// Containers run, or are about to.
    Running,
    /// Containers have been told to end.
    Stopping {
        /// When they end.
        ends: Timestamp,
        /// Their exit code.
        code: i32,
    },
    /// No container runs any more; mounts are removed.
    Unmounting {
        /// When that is done.
        at: Timestamp,
    },
    /// Only the API server has to be told.
    Finished,
}

/// A pod as its kubelet knows it.
#[derive(Debug, Clone)]
pub(super) struct PodRun {
    pub(super) node: Arc<str>,
    /// The pod as the kubelet has last seen it.
    pub(super) pod: Arc<Pod>,
    /// The pod was removed from the API server.
    gone: bool,
    /// The status that the kubelet knows, if the API server has another one.
    own: Option<Arc<PodStatus>>,
    pub(super) stage: Stage,
    pub(super) timers: Vec<Timer>,
    pub(super) backoffs: Vec<Backoff>,
    pub(super) sandbox: bool,
    pub(super) workload: Workload,
    /// The PersistentVolumes that it can write to.
    mounted: Vec<Arc<str>>,
    /// The kubelet was restarted and has not looked at it since.
    restarted: bool,
    /// The grace period that an orderly shutdown of the machine gives it.
    pub(super) shutdown: Option<i64>,
}

impl PodRun {
    pub(super) fn new(node: &Arc<str>, pod: &Arc<Pod>, workload: Workload) -> PodRun {
        PodRun {
            node: Arc::clone(node),
            pod: Arc::clone(pod),
            gone: false,
            own: None,
            stage: Stage::Volumes,
            timers: Vec::new(),
            backoffs: Vec::new(),
            sandbox: false,
            workload,
            mounted: Vec::new(),
            restarted: false,
            shutdown: None,
        }
    }

    /// The status that the kubelet knows.
    pub(super) fn status(&self) -> PodStatus {
        match &self.own {
            Some(own) => PodStatus::clone(own),
            None => self.pod.status.clone().unwrap_or_default(),
        }
    }

    /// Sees the pod as the API server has it.
    fn see(&mut self, store: &Store, id: &PodId) {
        match store.at::<Pod>(&id.0).filter(|pod| pod.metadata.uid.as_deref() == Some(&*id.1)) {
            Some(pod) => self.see_object(pod),
            None => self.gone = true,
        }
    }

    fn see_object(&mut self, pod: &Arc<Pod>) {
        if Arc::ptr_eq(&self.pod, pod) {
            return;
        }
        let own = match &self.own {
            Some(own) => Some(Arc::clone(own)),
            None => self.pod.status.clone().map(Arc::new),
        };
        let shown = pod.status.as_ref();
        self.own = own.filter(|own| !shown.is_some_and(|shown| same_for_kubelet(own, shown)));
        self.pod = Arc::clone(pod);
    }

    /// The grace period with which its containers have to end; none if they go on.
    fn stop_requested(&self) -> Option<i64> {
        let spec = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
        let deleted = self.pod.metadata.deletion_grace_period_seconds.filter(|_| is_terminating(&self.pod));
        let grace = match (self.gone, deleted) {
            (true, _) if self.restarted => ORPHAN_GRACE,
            (true, _) => spec,
            (false, Some(grace)) => grace,
            (false, None) if has_ended(&self.pod) => spec,
            (false, None) => self.shutdown?,
        };
        Some(self.shutdown.map_or(grace, |shutdown| shutdown.min(grace)).max(1))
    }

    fn due(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Volumes | Stage::Running => self.timers.iter().map(|timer| timer.at).min(),
            Stage::Stopping { ends, .. } => Some(ends),
            Stage::Unmounting { at } => Some(at),
            Stage::Finished => None,
        }
    }

    fn delay(&mut self, time: SignedDuration) {
        self.timers.iter_mut().for_each(|timer| timer.at += time);
        match &mut self.stage {
            Stage::Stopping { ends: at, .. } | Stage::Unmounting { at } => *at += time,
            Stage::Volumes | Stage::Running | Stage::Finished => {}
        }
    }
}

/// Whether a step may tell the API server, and what it tells.
struct Report<'a> {
    connected: bool,
    out: &'a mut Out,
}

impl Kubelet {
    /// A pod has changed on a node whose kubelet sees that.
    pub(super) fn pod_changed(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<Pod>();
        let Some(pod) = after else {
            let known = before.is_some_and(|pod| self.pods.get(&id_of(pod)).is_some());
            return if known { wakes.now(change.key.clone()) } else { () };
        };
        let id = id_of(pod);
        let Some(run) = self.pods.remove(|other| other.cmp(&id)) else {
            if !has_ended(pod) {
                wakes.now(change.key.clone());
            }
            return;
        };
        let mut run = Arc::unwrap_or_clone(run);
        let requested = run.stop_requested();
        run.see_object(pod);
        if run.stop_requested() != requested {
            wakes.now(change.key.clone());
        } else if run.own.is_some()
            && let Some(machine) = cx.world.machine(&run.node)
        {
            wakes.after(change.key.clone(), reconciled_at(cx, machine).duration_since(cx.now));
        }
        self.pods.insert(id, Arc::new(run));
    }

    pub(super) fn pod_step(&mut self, cx: &mut Context<'_>, key: &SimKey, out: &mut Out) {
        let here = self.pods.iter_from(|id| id.0.cmp(key).then(Ordering::Greater));
        let ids: Vec<PodId> = here.map(|(id, _)| id).take_while(|id| id.0 == *key).cloned().collect();
        for id in &ids {
            self.advance(cx, id, out);
        }
        let Some(pod) = cx.store.at::<Pod>(key).filter(|pod| !has_ended(pod)).cloned() else { return };
        let id = id_of(&pod);
        if ids.contains(&id) {
            return;
        }
        let Some(node) = node_of(&pod).and_then(|name| self.nodes.key(|other| (**other).cmp(name))).cloned() else { return };
        if cx.world.is_connected(&node, cx.now) && self.admit(cx, &id, &node, &pod, out) {
            self.advance(cx, &id, out);
        }
    }

    /// Accepts or rejects a pod. Gives whether it was accepted.
    fn admit(&mut self, cx: &mut Context<'_>, id: &PodId, name: &Arc<str>, pod: &Arc<Pod>, out: &mut Out) -> bool {
        let Some(node) = cx.store.get::<Node>("", name) else { return false };
        let Some(run) = self.node_run(name).filter(|run| !run.starting) else { return false };
        let others = run.pods.iter().filter_map(|id| self.pods.get(id)).map(|run| &*run.pod);
        let rejected = match run.shutdown {
            Some(_) => Some(Rejection {
                reason: "NodeShutdown".into(),
                event: "NodeShutdown",
                message: "Pod was rejected as the node is shutting down.".into(),
            }),
            None => rejection(pod, node, &run.used, others),
        };
        if let Some(rejected) = rejected {
            reject(cx, id, pod, &rejected, out);
            return false;
        }
        let workload = cx.world.workload_of(cx.store, pod);
        let mut run = PodRun::new(name, pod, workload);
        let mut status = run.status();
        let ran = all_containers(&status).any(is_running);
        if ran {
            // The machine was booted: nothing runs any more, and containers start again.
            lose_containers(&mut status, cx.now);
        } else if status.container_statuses.as_ref().is_none_or(Vec::is_empty) {
            status = initial(pod, &Kubelet::host_address(cx, name), cx.settings, cx.now);
        }
        self.set_status(cx, &mut run, status, false, &mut Report { connected: true, out });
        if matches!(run.status().phase.as_deref(), Some("Succeeded" | "Failed")) {
            run.stage = Stage::Unmounting { at: cx.now };
        } else if ran {
            out.event(cx, EventNote::normal(&id.0, "SandboxChanged", SANDBOX_CHANGED));
        }
        self.change_node(name, |node| {
            node.pods.insert(id.clone());
            node.used.add(pod);
        });
        self.pods.insert(id.clone(), Arc::new(run));
        true
    }

    /// Goes on with a pod.
    fn advance(&mut self, cx: &mut Context<'_>, id: &PodId, out: &mut Out) {
        let Some(run) = self.pods.remove(|other| other.cmp(id)) else { return };
        let mut run = Arc::unwrap_or_clone(run);
        let Some(machine) = cx.world.machine(&run.node).cloned() else { return };
        let connected = machine.is_connected(cx.now);
        if connected {
            run.see(cx.store, id);
        }
        let mut keep = true;
        if self.works(&machine, &run.node, cx.now) {
            let mut report = Report { connected, out };
            keep = self.live(cx, id, &mut run, &mut report);
            report.out.next = [report.out.next, run.due().filter(|_| keep)].into_iter().flatten().min();
            if keep && connected && run.own.is_some() && !run.gone {
                self.reconcile(cx, &machine, &run, report.out);
            }
        }
        if keep {
            self.pods.insert(id.clone(), Arc::new(run));
        } else {
            self.forget_pod(id, &run);
        }
    }

    /// The API server has another status than the kubelet: it is told again when the kubelet compares them next.
    fn reconcile(&self, cx: &Context<'_>, machine: &Machine, run: &PodRun, out: &mut Out) {
        let written = |write: &Write| matches!(write, Write::Status(object) if object.uid() == run.pod.metadata.uid.as_deref().unwrap_or_default());
        if out.writes.iter().any(written) {
            return;
        }
        let at = reconciled_at(cx, machine);
        if at > cx.now {
            return out.look_at(at);
        }
        out.writes.push(write_status(run, run.status()));
    }

    /// Goes through the stages as far as time and volumes allow. Gives whether the pod is still there.
    fn live(&mut self, cx: &mut Context<'_>, id: &PodId, run: &mut PodRun, report: &mut Report<'_>) -> bool {
        if run.restarted && report.connected && !self.take_back(cx, id, run, report) {
            return true;
        }
        loop {
            match run.stage {
                Stage::Volumes | Stage::Running => {
                    if let Some(grace) = run.stop_requested() {
                        self.begin_stop(cx, id, run, grace, report);
                    } else if run.stage == Stage::Volumes {
                        if !report.connected || !self.mount_volumes(cx, id, run, report) {
                            return true;
                        }
                    } else if !self.run_containers(cx, id, run, report) {
                        return true;
                    }
                }
                Stage::Stopping { ends, code } => {
                    let latest = run.stop_requested().map_or(ends, |grace| cx.now + SignedDuration::from_secs(grace));
                    let ends = ends.min(latest);
                    if ends > cx.now {
                        run.stage = Stage::Stopping { ends, code };
                        return true;
                    }
                    self.finish_stop(cx, id, run, code, report);
                }
                Stage::Unmounting { at } if at > cx.now => return true,
                Stage::Unmounting { .. } => {
                    self.release_volumes(&run.node, id, &run.pod);
                    run.stage = Stage::Finished;
                }
                Stage::Finished => return !finish(cx, id, run, report),
            }
        }
    }

    /// After the restart of a kubelet a pod is admitted again. Gives whether it goes on as before.
    fn take_back(&mut self, cx: &mut Context<'_>, id: &PodId, run: &mut PodRun, report: &mut Report<'_>) -> bool {
        if run.gone || is_terminating(&run.pod) || !matches!(run.stage, Stage::Volumes | Stage::Running) {
            return true;
        }
        run.restarted = false;
        let Some(node) = cx.store.get::<Node>("", &run.node) else { return true };
        let mut used = self.node_run(&run.node).map(|node| node.used.clone()).unwrap_or_default();
        used.remove(&run.pod);
        if let Some(rejected) = rejection(&run.pod, node, &used, std::iter::empty()) {
            cx.world.end_process(&id.1);
            let status = reject(cx, id, &run.pod, &rejected, report.out);
            run.own = Some(Arc::new(status));
            run.timers.clear();
            run.stage = Stage::Unmounting { at: cx.now + cx.settings.kubelet.unmount };
            return false;
        }
        // A new kubelet knows the states of containers, but of conditions only what the API server has.
        let mut status = run.status();
        if !cx.settings.since(35) {
            self.probe_again(cx, run, &mut status);
        }
        run.own = None;
        run.backoffs.clear();
        self.set_status(cx, run, status, false, report);
        true
    }

    /// Mounts the volumes. Gives whether that is done.
    fn mount_volumes(&mut self, cx: &mut Context<'_>, id: &PodId, run: &mut PodRun, report: &mut Report<'_>) -> bool {
        match self.mount(cx, id, &run.node, &run.pod) {
            Mounts::Done(volumes) => {
                run.mounted = volumes;
                run.stage = Stage::Running;
                self.plan_start(cx, run);
                true
            }
            Mounts::NoClaim(unusable) => {
                let (UnusableClaim::NotFound(claim) | UnusableClaim::Unbound(claim)) = &unusable;
                let names: Vec<&str> = claim_volumes(&run.pod, claim).collect();
                let problem = match &unusable {
                    UnusableClaim::NotFound(claim) => {
                        format!("error processing PVC {}/{claim}: failed to fetch PVC from API server: persistentvolumeclaims \"{claim}\" not found", id.0.namespace)
                    }
                    UnusableClaim::Unbound(claim) => {
                        format!("error processing PVC {}/{claim}: PVC is not bound", id.0.namespace)
                    }
                };
                let names = names.join(" ");
                let message = format!(
                    "Unable to attach or mount volumes: unmounted volumes=[{names}], unattached volumes=[], \
                     failed to process volumes=[{names}]: {problem}"
                );
                report.out.event(cx, EventNote::warning(&id.0, "FailedMount", message));
                false
            }
            Mounts::NotAttached => false,
        }
    }

    /// Starts, readies and ends containers whose time has come. Gives whether there is more to do at once.
    fn run_containers(&mut self, cx: &mut Context<'_>, id: &PodId, run: &mut PodRun, report: &mut Report<'_>) -> bool {
        let mut status = None;
        run.timers.sort_by_key(|timer| (timer.at, timer.index));
        while let Some(timer) = run.timers.first().copied().filter(|timer| timer.at <= cx.now) {
            run.timers.remove(0);
            let status = status.get_or_insert_with(|| run.status());
            if !run.sandbox {
                run.sandbox = true;
                let address = match run.pod.spec.as_ref().and_then(|spec| spec.host_network) {
                    Some(true) => Kubelet::host_address(cx, &run.node),
                    _ => self.new_address(),
                };
                set_address(status, address);
            }
            self.fire(cx, id, run, status, timer, report.out);
            run.timers.sort_by_key(|timer| (timer.at, timer.index));
        }
        let Some(status) = status else { return false };
        self.track_process(cx, id, run, &status);
        self.set_status(cx, run, status, false, report);
        let ended = matches!(run.status().phase.as_deref(), Some("Succeeded" | "Failed"));
        if ended {
            // Sidecars end with the other containers.
            self.finish_stop(cx, id, run, 0, report);
        }
        ended
    }

    /// A process exists in the world exactly while a container runs.
    fn track_process(&mut self, cx: &mut Context<'_>, id: &PodId, run: &PodRun, status: &PodStatus) {
        let runs = all_containers(status).any(is_running);
        if runs && cx.world.process(&id.1).is_none() {
            let (node, volumes) = (Arc::clone(&run.node), run.mounted.clone());
            cx.world.start_process(&id.1, Process { pod: id.0.clone(), node, volumes }, cx.now);
        } else if !runs {
            cx.world.end_process(&id.1);
        }
    }

    /// Tells the containers to end (`SyncTerminatingPod`).
    fn begin_stop(&mut self, cx: &mut Context<'_>, id: &PodId, run: &mut PodRun, grace: i64, report: &mut Report<'_>) {
        run.timers.clear();
        let status = run.status();
        let running: Vec<String> = all_containers(&status).filter(|c| is_running(c)).map(|c| c.name.clone()).collect();
        if running.is_empty() {
            return self.finish_stop(cx, id, run, 0, report);
        }
        // The status of a pod that is being deleted is reported for its new generation.
        self.set_status(cx, run, status, false, report);
        for name in &running {
            report.out.event(cx, EventNote::normal(&id.0, "Killing", format!("Stopping container {name}")));
        }
        let (stop, grace) = (run.workload.delays(cx.settings).stop, SignedDuration::from_secs(grace));
        let code = if stop > grace { 137 } else { 0 };
        run.stage = Stage::Stopping { ends: cx.now + stop.min(grace), code };
    }

    /// All containers have ended (`SyncTerminatedPod`).
    fn finish_stop(&mut self, cx: &mut Context<'_>, id: &PodId, run: &mut PodRun, code: i32, report: &mut Report<'_>) {
        cx.world.end_process(&id.1);
        run.timers.clear();
        run.sandbox = false;
        let mut status = run.status();
        end_containers(&run.pod, &mut status, code, cx.now);
        self.set_status(cx, run, status, true, report);
        run.stage = Stage::Unmounting { at: cx.now + cx.settings.kubelet.unmount };
    }

    /// Computes phase and conditions, and reports the status if it is new.
    fn set_status(
        &mut self,
        cx: &Context<'_>,
        run: &mut PodRun,
        mut status: PodStatus,
        terminal: bool,
        report: &mut Report<'_>,
    ) {
        let before = run.status();
        let facts = PodFacts { pod: &run.pod, sandbox: run.sandbox, terminal };
        refresh(facts, &mut status, &before, cx.settings, cx.now);
        if terminal && run.shutdown.is_some() {
            mark_shutdown(&run.pod, &mut status, cx);
        }
        if same_for_kubelet(&before, &status) {
            return;
        }
        if report.connected && !run.gone {
            report.out.writes.push(write_status(run, status.clone()));
        }
        run.own = Some(Arc::new(status));
    }

    /// The pod has left the node.
    fn forget_pod(&mut self, id: &PodId, run: &PodRun) {
        self.release_volumes(&run.node, id, &run.pod);
        let shuts_down = self.change_node(&run.node, |node| {
            if node.pods.remove(id) {
                node.used.remove(&run.pod);
            }
            node.shutdown.is_some()
        });
        if shuts_down {
            self.wake(SimKey::node(&run.node), SignedDuration::ZERO);
        }
    }

    /// The machine was switched off: its memory and its mounts are gone.
    pub(super) fn forget_pods(&mut self, node: &Arc<str>) {
        let pods = self.change_node(node, |run| {
            run.in_use.clear();
            run.waiting.clear();
            run.used = Default::default();
            std::mem::take(&mut run.pods)
        });
        for id in pods {
            self.pods.remove(|other| other.cmp(&id));
        }
    }

    /// Nothing ran for a while: everything happens later.
    pub(super) fn delay_pod(&mut self, id: &PodId, time: SignedDuration) {
        self.change_pod(id, |run| run.delay(time));
    }

    /// The kubelet was restarted while the containers went on.
    pub(super) fn restart_pod(&mut self, id: &PodId) {
        self.change_pod(id, |run| run.restarted = true);
    }

    pub(super) fn change_pod(&mut self, id: &PodId, change: impl FnOnce(&mut PodRun)) {
        if let Some(run) = self.pods.remove(|other| other.cmp(id)) {
            let mut run = Arc::unwrap_or_clone(run);
            change(&mut run);
            self.pods.insert(id.clone(), Arc::new(run));
        }
    }

    /// Takes over a pod of a cluster that is running.
    pub(super) fn resume_pod(&mut self, cx: &mut Context<'_>, node: &Arc<str>, pod: &Arc<Pod>) {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let off = cx.world.state(node) == MachineState::Off;
        if has_ended(pod) || off || statuses.is_none_or(Vec::is_empty) {
            return;
        }
        let id = id_of(pod);
        let mut run = PodRun::new(node, pod, cx.world.workload_of(cx.store, pod));
        let status = run.status();
        let started = |status: &k8s_openapi::api::core::v1::ContainerStatus| {
            is_running(status) || status.last_state.as_ref().is_some_and(|state| state.terminated.is_some())
        };
        if status.pod_ip.is_some() || all_containers(&status).any(started) {
            run.stage = Stage::Running;
            run.sandbox = true;
            run.mounted = self.take_over_volumes(cx, &id, node, pod);
            self.plan_rest(cx, &mut run);
            self.track_process(cx, &id, &run, &status);
            if let Some(deletion) = deletion(&pod.metadata).filter(|_| cx.world.is_connected(node, cx.now)) {
                let stop = run.workload.delays(cx.settings).stop;
                run.timers.clear();
                run.stage = Stage::Stopping { ends: (deletion.requested + stop).min(deletion.due).max(cx.now), code: 0 };
            }
        }
        if cx.world.is_connected(node, cx.now) {
            run.own = marked_by_controller(&run).map(Arc::new);
        }
        self.change_node(node, |node| {
            node.pods.insert(id.clone());
            node.used.add(pod);
        });
        self.pods.insert(id, Arc::new(run));
    }
}

/// The message of a sandbox that was lost.
const SANDBOX_CHANGED: &str = "Pod sandbox changed, it will be killed and re-created.";

/// The moment at which a kubelet compares the statuses of pods next. It lies between two reports of the node's status.
fn reconciled_at(cx: &Context<'_>, machine: &Machine) -> Timestamp {
    let period = cx.settings.kubelet.pod_status_period;
    next_tick(machine, period, period / 2, cx.now)
}

/// The volumes of a pod that use a claim.
fn claim_volumes<'a>(pod: &'a Pod, claim: &'a str) -> impl Iterator<Item = &'a str> {
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let uses = move |volume: &&k8s_openapi::api::core::v1::Volume| {
        stead_model::claim_of(volume, name).is_some_and(|(used, _)| used == claim)
    };
    volumes.filter(uses).map(|volume| volume.name.as_str())
}

/// The patch of a pod's status: conditions that belong to others stay as the API server has them.
fn write_status(run: &PodRun, mut status: PodStatus) -> Write {
    merge_foreign(&run.pod, &mut status);
    status.qos_class = run.pod.status.as_ref().and_then(|status| status.qos_class.clone());
    let mut metadata = run.pod.metadata.clone();
    metadata.resource_version = None;
    Write::Status(Pod { metadata, spec: run.pod.spec.clone(), status: Some(status) }.into())
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

/// The status of a pod that ended because its machine shuts down.
fn mark_shutdown(pod: &Pod, status: &mut PodStatus, cx: &Context<'_>) {
    const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
    if status.phase.as_deref() != Some("Succeeded") {
        status.phase = Some("Failed".into());
    }
    status.reason = Some("Terminated".into());
    status.message = Some(MESSAGE.into());
    let target = PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some("TerminationByKubelet".into()),
        message: Some(MESSAGE.into()),
        observed_generation: observed_generation(pod, cx.settings),
        ..PodCondition::default()
    };
    let mut marked = Pod { status: Some(std::mem::take(status)), ..Pod::default() };
    set_condition(&mut marked, target, cx.now);
    *status = marked.status.unwrap_or_default();
}

/// Tells the API server that a pod has ended. Gives whether that is done.
fn finish(cx: &Context<'_>, id: &PodId, run: &PodRun, report: &mut Report<'_>) -> bool {
    if !report.connected {
        return false;
    }
    if run.gone {
        return true;
    }
    if run.own.is_some() {
        report.out.writes.push(write_status(run, run.status()));
    }
    if is_terminating(&run.pod) {
        let options = DeleteOptions { uid: Some(id.1.to_string()), grace: Some(0), ..DeleteOptions::default() };
        report.out.writes.push(Write::Delete(id.0.clone(), options));
    }
    true
}
