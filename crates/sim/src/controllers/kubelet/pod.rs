//! The life of a pod on its node: volumes, containers, and the end.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use stead_model::times::seconds;

use super::admission::Amounts;
use super::containers::{Backoff, Timer, Turn};
use super::report::Report;
use super::status::{all_containers, end_containers, is_running, same_for_kubelet, set_address};
use super::volumes::{Mounts, unusable_claim_message};
use super::{Kubelet, Out, PodId, id_of};
use crate::event_log::EventNote;
use crate::object::SimKey;
use crate::pods::{has_ended, is_terminating, node_of};
use crate::step::{Context, Wakes};
use crate::store::{Change, Store};
use crate::workload::{Behaviour, Workload};
use crate::world::Process;

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
    pub(super) gone: bool,
    /// The status that the kubelet knows, if the API server has another one.
    pub(super) own: Option<Arc<PodStatus>>,
    pub(super) stage: Stage,
    pub(super) timers: Vec<Timer>,
    pub(super) backoffs: Vec<Backoff>,
    pub(super) sandbox: bool,
    pub(super) workload: Workload,
    /// The PersistentVolumes that it can write to.
    pub(super) mounted: Vec<Arc<str>>,
    /// The kubelet was restarted and has not looked at it since.
    pub(super) restarted: bool,
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

    /// The status that the kubelet knows; none if there is none yet.
    pub(super) fn known_status(&self) -> Option<&PodStatus> {
        self.own.as_deref().or(self.pod.status.as_ref())
    }

    /// A copy of the status that the kubelet knows, to change it.
    pub(super) fn status(&self) -> PodStatus {
        self.known_status().cloned().unwrap_or_default()
    }

    /// Whether it has succeeded or failed, as far as the kubelet knows.
    pub(super) fn has_ended(&self) -> bool {
        let phase = self.known_status().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    }

    /// Sees the pod as the API server has it.
    fn see(&mut self, store: &Store, id: &PodId) {
        match store.at::<Pod>(&id.0).filter(|pod| pod.metadata.uid.as_deref() == Some(&*id.1)) {
            Some(pod) => self.see_object(pod),
            None => self.gone = true,
        }
    }

    pub(super) fn see_object(&mut self, pod: &Arc<Pod>) {
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

    /// Whether it takes room: not any more once its containers have ended (`IsPodKnownTerminated`), though its volumes are
    /// still to be unmounted.
    pub(super) fn takes_room(&self) -> bool {
        !matches!(self.stage, Stage::Unmounting { .. } | Stage::Finished)
    }

    fn due(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Volumes | Stage::Running => self.timers.iter().map(|timer| timer.at).min(),
            Stage::Stopping { .. } if self.workload.behaviour == Behaviour::NeverStops => None,
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

impl Kubelet {
    /// A pod has changed on a node whose kubelet sees that.
    pub(super) fn pod_changed(&mut self, change: &Change, wakes: &mut Wakes) {
        let (before, after) = change.of::<Pod>();
        let Some(pod) = after else {
            let known = before.is_some_and(|pod| self.pods.get(&id_of(pod)).is_some());
            if known {
                wakes.now(change.key.clone());
            }
            return;
        };
        let id = id_of(pod);
        let Some(run) = self.pods.remove(|other| other.cmp(&id)) else {
            if !has_ended(pod) || is_terminating(pod) {
                wakes.now(change.key.clone());
            }
            return;
        };
        let mut run = Arc::unwrap_or_clone(run);
        let requested = run.stop_requested();
        run.see_object(pod);
        if run.stop_requested() != requested || run.own.is_some() {
            wakes.now(change.key.clone());
        }
        self.pods.insert(id, Arc::new(run));
    }

    pub(super) fn pod_step(&mut self, cx: &mut Context<'_>, key: &SimKey, out: &mut Out) {
        let here = self.pods.iter_from(|id| id.0.cmp(key).then(Ordering::Greater));
        let ids: Vec<PodId> = here.map(|(id, _)| id).take_while(|id| id.0 == *key).cloned().collect();
        for id in &ids {
            self.advance(cx, id, out);
        }
        let concerns = |pod: &&Arc<Pod>| !has_ended(pod) || is_terminating(pod);
        let Some(pod) = cx.store.at::<Pod>(key).filter(concerns).cloned() else { return };
        let id = id_of(&pod);
        if ids.contains(&id) {
            return;
        }
        let Some(node) = node_of(&pod).and_then(|name| self.nodes.key(|other| (**other).cmp(name))).cloned() else { return };
        if !cx.world.is_connected(&node, cx.now) {
            return;
        }
        if has_ended(&pod) {
            self.take_ended(cx, &id, &node, &pod);
            self.advance(cx, &id, out);
        } else if self.admit(cx, &id, &node, &pod, out) {
            self.advance(cx, &id, out);
        }
    }

    /// Goes on with a pod.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>, id: &PodId, out: &mut Out) {
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
                report.reconcile(cx, &machine, &run);
            }
        }
        if keep {
            self.pods.insert(id.clone(), Arc::new(run));
        } else {
            self.forget_pod(id, &run);
        }
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
                Stage::Stopping { .. } if run.workload.behaviour == Behaviour::NeverStops => return true,
                Stage::Stopping { ends, code } => {
                    let latest = run.stop_requested().map_or(ends, |grace| cx.now + seconds(grace));
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
                Stage::Finished => return !report.finish(id, run),
            }
        }
    }

    /// Mounts the volumes. Gives whether that is done.
    fn mount_volumes(&mut self, cx: &mut Context<'_>, id: &PodId, run: &mut PodRun, report: &mut Report<'_>) -> bool {
        match self.mount(cx, id, &run.node, &run.pod) {
            Mounts::Done(volumes) => {
                run.mounted = volumes;
                run.stage = Stage::Running;
                run.plan_start(cx.settings, 0, cx.now);
                true
            }
            Mounts::NoClaim(unusable) => {
                let message = unusable_claim_message(&run.pod, &unusable);
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
            Turn { cx, id, run, status, out: report.out }.fire(timer);
            run.timers.sort_by_key(|timer| (timer.at, timer.index));
        }
        let Some(status) = status else { return false };
        self.track_process(cx, id, run, &status);
        report.set_status(cx, run, status, false);
        let ended = run.has_ended();
        if ended {
            // Sidecars end with the other containers.
            self.finish_stop(cx, id, run, 0, report);
        }
        ended
    }

    /// A process exists in the world exactly while a container runs.
    pub(super) fn track_process(&mut self, cx: &mut Context<'_>, id: &PodId, run: &PodRun, status: &PodStatus) {
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
        report.set_status(cx, run, status, false);
        for name in &running {
            report.out.event(cx, EventNote::normal(&id.0, "Killing", format!("Stopping container {name}")));
        }
        let (stop, grace) = (run.workload.delays(cx.settings).stop, seconds(grace));
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
        report.set_status(cx, run, status, true);
        self.free_room(run);
        run.stage = Stage::Unmounting { at: cx.now + cx.settings.kubelet.unmount };
    }

    /// A pod takes no room any more.
    pub(super) fn free_room(&mut self, run: &PodRun) {
        if run.takes_room() {
            self.change_node(&run.node, |node| node.used.remove(&Amounts::of_pod(&run.pod)));
        }
    }

    /// The pod has left the node.
    fn forget_pod(&mut self, id: &PodId, run: &PodRun) {
        self.release_volumes(&run.node, id, &run.pod);
        let shuts_down = self.change_node(&run.node, |node| {
            if node.pods.remove(id) && run.takes_room() {
                node.used.remove(&Amounts::of_pod(&run.pod));
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

}
