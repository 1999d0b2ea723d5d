//! What a kubelet does for its Node: registration, its Lease after a silence, its status, and the reaction to what happens
//! to its machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::LeaseView;

use super::admission::{Amounts, Used};
use super::shutdown::Shutdown;
use super::{Kubelet, Out, PodId};
use crate::event_log::EventNote;
use crate::grid::Grid;
use crate::machines::{boot_id_after, conditions, lease, lease_key, next_tick, node_reference, renewal};
use crate::nodes::{condition, is_ready};
use crate::object::SimKey;
use crate::settings::KubeletForm;
use crate::step::{Context, Wakes, Write};
use crate::store::Change;
use crate::world::{Machine, MachineState};

/// The shortest time between two statuses of a stand-in.
const STAND_IN_GAP: SignedDuration = SignedDuration::from_millis(100);

/// The kubelet of a node.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeRun {
    /// The machine when it was last looked at.
    state: MachineState,
    boots: u32,
    /// Since when nothing runs on it, while it is suspended.
    suspended: Option<Timestamp>,
    /// The kubelet was started, and has not seen its Node since.
    pub(super) starting: bool,
    /// The kubelet has not looked at its pods since it reaches the API server again.
    returning: bool,
    /// The Node as it was when it was deleted.
    deleted: Option<Arc<Node>>,
    /// When the last status was written.
    reported: Option<Timestamp>,
    unschedulable: bool,
    /// The attachable volumes that are mounted or about to be, with the pods that use them.
    pub(super) in_use: BTreeMap<String, BTreeSet<Arc<str>>>,
    /// The pods that wait for volumes.
    pub(super) waiting: BTreeSet<SimKey>,
    pub(super) pods: BTreeSet<PodId>,
    pub(super) used: Used,
    /// What a version of its Node has for pods.
    allocatable: Option<(Arc<Node>, Arc<Amounts>)>,
    pub(super) shutdown: Option<Shutdown>,
}

impl Kubelet {
    pub(super) fn node_run(&self, name: &str) -> Option<&Arc<NodeRun>> {
        self.nodes.find(|other| (**other).cmp(name))
    }

    /// Changes what is known of a node.
    pub(super) fn change_node<T>(&mut self, name: &str, change: impl FnOnce(&mut NodeRun) -> T) -> T {
        let mut run = self.nodes.remove(|other| (**other).cmp(name)).unwrap_or_default();
        let result = change(Arc::make_mut(&mut run));
        self.nodes.insert(name.into(), run);
        result
    }

    /// What a node has for pods, read once for each version of its Node.
    pub(super) fn allocatable(&mut self, name: &str, node: &Arc<Node>) -> Arc<Amounts> {
        let read = self.node_run(name).and_then(|run| run.allocatable.as_ref());
        if let Some((_, amounts)) = read.filter(|(version, _)| Arc::ptr_eq(version, node)) {
            return Arc::clone(amounts);
        }
        let amounts = Arc::new(Amounts::of_node(node));
        self.change_node(name, |run| run.allocatable = Some((Arc::clone(node), Arc::clone(&amounts))));
        amounts
    }

    /// Whether the kubelet of a node works, whether it reaches the API server or not.
    pub(super) fn works(&self, machine: &Machine, name: &str, now: Timestamp) -> bool {
        match machine.state {
            MachineState::Running => now >= machine.lease_phase || !self.node_run(name).is_some_and(|run| run.starting),
            MachineState::Partitioned => true,
            _ => false,
        }
    }

    /// Machines, disks or workloads have changed.
    pub(super) fn world_changed(&mut self, cx: &mut Context<'_>, out: &mut Out) {
        for (name, machine) in cx.world.take_machine_changes() {
            self.machine_changed(cx, &name, &machine);
        }
        for name in cx.world.take_shutdowns() {
            self.begin_shutdown(cx, &name, out);
        }
        if !cx.world.workloads().eq(self.workloads.iter().map(|(key, workload)| (key, workload))) {
            self.workloads = cx.world.workloads().map(|(key, workload)| (key.clone(), workload.clone())).collect();
            self.behaviours_changed(cx);
        }
        // A disk may be attached now that was not.
        let waiting: Vec<SimKey> = self.nodes.iter().flat_map(|(_, run)| run.waiting.iter().cloned()).collect();
        waiting.into_iter().for_each(|pod| self.wake(pod, SignedDuration::ZERO));
    }

    /// A machine is new, or in another state.
    pub(super) fn machine_changed(&mut self, cx: &Context<'_>, name: &Arc<str>, machine: &Machine) {
        let now = cx.now;
        let is_new = self.node_run(name).is_none();
        let (rebooted, restarted, resumed, pods) = self.change_node(name, |run| {
            let before = std::mem::replace(&mut run.state, machine.state);
            let rebooted = !is_new && (machine.boots != run.boots || machine.state == MachineState::Off);
            run.boots = machine.boots;
            let was_down = matches!(before, MachineState::Off | MachineState::KubeletStopped);
            let restarted = !is_new && machine.state == MachineState::Running && (was_down || rebooted);
            run.starting |= restarted;
            run.returning = machine.state == MachineState::Running;
            if rebooted {
                run.shutdown = None;
            }
            let resumed = run.suspended.take().map(|since| now.duration_since(since));
            run.suspended = (machine.state == MachineState::Suspended).then_some(now);
            (rebooted, restarted, resumed, run.pods.clone())
        });
        if rebooted && cx.settings.kubelet.form == KubeletForm::Kubernetes {
            self.forget_pods(name);
        }
        for id in &pods {
            if let Some(time) = resumed {
                self.delay_pod(id, time);
            }
            if restarted && !rebooted {
                self.restart_pod(id);
            }
        }
        let up = machine.lease_phase.duration_since(now).max(SignedDuration::ZERO);
        let running = machine.state == MachineState::Running;
        self.wake(SimKey::node(name), if running { up } else { SignedDuration::ZERO });
        pods.into_iter().for_each(|(pod, _)| self.wake(pod, SignedDuration::ZERO));
    }

    /// A kubelet that reaches the API server again looks at all its pods.
    fn look_at_pods(&mut self, cx: &Context<'_>, name: &str) {
        let known = self.change_node(name, |run| {
            run.returning = false;
            run.pods.iter().map(|(key, _)| key.clone()).collect::<BTreeSet<SimKey>>()
        });
        for pod in known.into_iter().chain(cx.store.pods_on(name).cloned()) {
            self.wake(pod, SignedDuration::ZERO);
        }
    }

    /// A Node has changed: the kubelet corrects its status, and volumes may be attached.
    pub(super) fn node_changed(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        let name = &change.key.name;
        let (before, after) = change.of::<Node>();
        let Some(run) = self.node_run(name) else { return };
        let Some(node) = after else {
            let deleted = before.cloned();
            return self.change_node(name, |run| run.deleted = deleted);
        };
        let volumes = |node: &Arc<Node>| {
            let status = node.status.as_ref();
            status.map(|status| (status.volumes_attached.clone(), status.volumes_in_use.clone()))
        };
        if !run.waiting.is_empty() && before.map(volumes) != Some(volumes(node)) {
            run.waiting.iter().for_each(|pod| wakes.now(pod.clone()));
        }
        let created = before.is_none();
        if created {
            run.pods.iter().for_each(|(key, _)| wakes.now(key.clone()));
            cx.store.pods_on(name).for_each(|key| wakes.now(key.clone()));
        }
        let spec = node.spec.as_ref();
        let marked = spec.and_then(|spec| spec.unschedulable).unwrap_or_default() != run.unschedulable;
        if created || marked || !is_ready(node) || !has_in_use(node, run) {
            wakes.now(change.key.clone());
        }
    }

    /// The kubelet of a node in a cluster that is running.
    pub(super) fn resume_node(&mut self, cx: &Context<'_>, name: &Arc<str>) {
        let Some(machine) = cx.world.machine(name) else { return };
        let spec = cx.store.get::<Node>("", name).and_then(|node| node.spec.as_ref());
        let unschedulable = spec.and_then(|spec| spec.unschedulable).unwrap_or_default();
        let suspended = (machine.state == MachineState::Suspended).then_some(cx.now);
        let run = NodeRun { state: machine.state, boots: machine.boots, suspended, unschedulable, ..NodeRun::default() };
        self.nodes.insert(Arc::clone(name), Arc::new(run));
    }

    pub(super) fn node_step(&mut self, cx: &mut Context<'_>, key: &SimKey, out: &mut Out) {
        let name = Arc::clone(&key.name);
        let Some(machine) = cx.world.machine(&name).cloned() else { return };
        let Some(run) = self.node_run(&name).cloned() else { return };
        if !machine.is_connected(cx.now) {
            if machine.state.reports() {
                out.look_at(machine.lease_phase);
            }
            return;
        }
        if run.returning {
            self.look_at_pods(cx, &name);
        }
        let Some(node) = cx.store.get::<Node>("", &name).cloned() else {
            // A kubelet registers its Node only when it starts.
            if run.starting {
                self.register(cx, &name, &machine, out);
            }
            return;
        };
        if run.starting {
            self.change_node(&name, |run| run.starting = false);
            self.look_at_pods(cx, &name);
            out.event(cx, EventNote::normal(key, "Starting", "Starting kubelet."));
        }
        renew_lease(cx, &node, &name, &machine, out);
        if cx.store.get::<CSINode>("", &name).is_none()
            && let Some(spec) = cx.world.machine_spec(&name)
        {
            out.writes.push(Write::Create(spec.csi_node(node_reference(&node)).into()));
        }
        self.report_status(cx, key, &node, &machine, out);
        self.continue_shutdown(cx, &name, out);
    }

    /// Creates the Node again, as it was registered first.
    fn register(&mut self, cx: &Context<'_>, name: &Arc<str>, machine: &Machine, out: &mut Out) {
        let deleted = self.node_run(name).and_then(|run| run.deleted.clone());
        let node = match (cx.world.machine_spec(name), deleted) {
            (Some(spec), _) => spec.node(cx.settings, machine.boots, cx.now),
            (None, Some(deleted)) => Node {
                metadata: ObjectMeta {
                    name: deleted.metadata.name.clone(),
                    labels: deleted.metadata.labels.clone(),
                    annotations: deleted.metadata.annotations.clone(),
                    ..ObjectMeta::default()
                },
                spec: None,
                status: deleted.status.clone(),
            },
            (None, None) => return,
        };
        out.writes.push(Write::Create(node.into()));
    }

    /// Reports the status of the node if it differs, at the next moment at which the kubelet looks at it.
    fn report_status(&mut self, cx: &Context<'_>, key: &SimKey, node: &Node, machine: &Machine, out: &mut Out) {
        let Some(run) = self.node_run(&key.name).cloned() else { return };
        let Some((status, events)) = self.wanted_status(cx, node, machine, &run) else { return };
        let period = cx.settings.kubelet.status_period;
        let mut at = next_tick(machine, period, SignedDuration::ZERO, cx.now);
        if cx.settings.kubelet.form == KubeletForm::StandIn {
            at = at.max(run.reported.map_or(at, |reported| reported + STAND_IN_GAP));
        }
        // The start and the end of an orderly shutdown are reported at once.
        if at > cx.now && !run.shutdown.as_ref().is_some_and(|_| is_ready(node)) {
            return out.look_at(at);
        }
        events.into_iter().for_each(|event| out.event(cx, event));
        let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
        self.change_node(&key.name, |run| {
            run.reported = Some(cx.now);
            run.unschedulable = unschedulable;
        });
        if node.status.as_ref() != Some(&status) {
            let mut node = Node { status: Some(status), ..node.clone() };
            node.metadata.resource_version = None;
            out.writes.push(Write::Status(node.into()));
        }
    }

    /// The status that the kubelet would report, and the events about it; none if there is nothing new.
    fn wanted_status(
        &self,
        cx: &Context<'_>,
        node: &Node,
        machine: &Machine,
        run: &NodeRun,
    ) -> Option<(NodeStatus, Vec<EventNote>)> {
        let key = SimKey::node(node.metadata.name.as_deref().unwrap_or_default());
        let (form, spec) = (cx.settings.kubelet.form, cx.world.machine_spec(&key.name));
        let mut status = node.status.clone().unwrap_or_default();
        let mut events = Vec::new();
        let boot_id = status.node_info.as_ref().map(|info| info.boot_id.clone()).unwrap_or_default();
        let current = match spec {
            Some(spec) => spec.status(cx.settings, machine.boots, cx.now).node_info.map(|info| info.boot_id),
            None => (machine.boots > 0).then(|| boot_id_after(&boot_id, machine.boots)),
        };
        let rebooted = current.as_ref().is_some_and(|current| *current != boot_id);
        if form == KubeletForm::StandIn {
            if is_ready(node) && !rebooted && has_in_use(node, run) {
                return None;
            }
            if let Some(spec) = spec {
                let fresh = spec.status(cx.settings, machine.boots, cx.now);
                status.capacity = fresh.capacity;
                status.allocatable = fresh.allocatable;
                status.addresses = fresh.addresses;
                status.node_info = fresh.node_info;
            }
            for condition in conditions(form, cx.now) {
                set_condition(&mut status, condition);
            }
            status.volumes_in_use = in_use(run);
            return Some((status, events));
        }
        if let Some(current) = current.filter(|_| rebooted) {
            if !boot_id.is_empty() {
                let message = format!("Node {} has been rebooted, boot id: {current}", key.name);
                events.push(EventNote::warning(&key, "Rebooted", message));
            }
            status.node_info.get_or_insert_default().boot_id = current;
        }
        let conditions_changed = own_conditions(cx, node, run, &mut status, &mut events);
        let unschedulable = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default();
        let marked = unschedulable != run.unschedulable;
        if marked {
            let reason = if unschedulable { "NodeNotSchedulable" } else { "NodeSchedulable" };
            let message = format!("Node {} status is now: {reason}", key.name);
            events.push(EventNote::normal(&key, reason, message));
        }
        let changed = conditions_changed || rebooted || !has_in_use(node, run);
        if !changed && !marked {
            return None;
        }
        if changed {
            status.volumes_in_use = in_use(run);
        } else {
            status = node.status.clone().unwrap_or_default();
        }
        Some((status, events))
    }
}

/// Sets the conditions of a kubelet. Gives whether any has changed, heartbeats aside.
fn own_conditions(
    cx: &Context<'_>,
    node: &Node,
    run: &NodeRun,
    status: &mut NodeStatus,
    events: &mut Vec<EventNote>,
) -> bool {
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let found = cx.world.machine_spec(name).is_none();
    let mut changed = false;
    for mut wanted in conditions(KubeletForm::Kubernetes, cx.now) {
        let before = condition(node, &wanted.type_);
        if found && before.is_none() && condition(node, "Ready").is_some() {
            // Nor does it report what it has not reported before.
            continue;
        }
        if wanted.type_ == "Ready" && run.shutdown.is_some() {
            wanted.status = "False".into();
            wanted.reason = Some("KubeletNotReady".into());
            wanted.message = Some("node is shutting down".into());
        } else if let Some(before) = before.filter(|before| found && before.status != "Unknown") {
            // What was wrong with a machine that was found stays so.
            wanted = NodeCondition { last_heartbeat_time: wanted.last_heartbeat_time, ..before.clone() };
        }
        let same = before.filter(|before| before.status == wanted.status);
        if let Some(same) = same {
            wanted.last_transition_time = same.last_transition_time.clone();
        } else if wanted.type_ == "Ready" && before.is_some() {
            let reason = if wanted.status == "True" { "NodeReady" } else { "NodeNotReady" };
            let message = format!("Node {name} status is now: {reason}");
            events.push(EventNote::normal(&SimKey::node(name), reason, message));
        }
        changed |= same.is_none_or(|same| same.reason != wanted.reason || same.message != wanted.message);
        set_condition(status, wanted);
    }
    changed
}

fn set_condition(status: &mut NodeStatus, new: NodeCondition) {
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|condition| condition.type_ == new.type_) {
        Some(condition) => *condition = new,
        None => conditions.push(new),
    }
}

/// After a silence the first renewal is written; the others are implied.
fn renew_lease(cx: &Context<'_>, node: &Node, name: &str, machine: &Machine, out: &mut Out) {
    let grid = Grid { start: machine.lease_phase, period: cx.settings.kubelet.lease_period };
    let latest = grid.at_or_before(cx.now);
    match cx.store.at::<Lease>(&lease_key(name)) {
        None => out.writes.push(Write::Create(lease(node, cx.settings, latest).into())),
        Some(found) if LeaseView::of(found).is_none_or(|lease| lease.renewed < machine.lease_phase) => {
            out.writes.extend(renewal(cx.store, name, latest));
        }
        Some(_) => {}
    }
}

/// The volumes in use, as a kubelet reports them.
fn in_use(run: &NodeRun) -> Option<Vec<String>> {
    let volumes: Vec<String> = run.in_use.keys().cloned().collect();
    Some(volumes).filter(|volumes| !volumes.is_empty())
}

/// Whether the Node shows the volumes that are in use.
fn has_in_use(node: &Node, run: &NodeRun) -> bool {
    let shown = node.status.as_ref().and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default();
    shown.iter().eq(run.in_use.keys())
}
