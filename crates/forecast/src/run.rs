//! Runs a fork of the cluster until it is clear what becomes of pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use stead_model::{
    ModelError, ObjectKey, Objects, PodView, UNREACHABLE, not_recreated, pod_volumes, unique_volume_name,
};
use stead_placement::{Cluster, DEFAULT_SCHEDULER, Pod as PlacedPod, PodKey, evaluate};
use stead_sim::{Behaviour, Change, Happening, ObjectKind, SimKey, Simulation};

use crate::line::{Line, is_connected, volumes};
use crate::option::Intervention;
use crate::outlook::{Outcome, Outlook, TieWithUnreachable, Uncertainty};
use crate::rest::{RestWatch, matters, may_help};
use crate::snapshot::{self, unread};
use crate::timers::Clock;

/// A cluster whose future can be asked for.
#[derive(Debug)]
pub struct Forecaster<'a> {
    objects: &'a Objects,
    start: Simulation,
}

/// What becomes of some pods after an intervention.
#[derive(Debug)]
pub struct Run {
    /// What becomes of each pod.
    pub outlooks: Vec<Outlook>,
    /// The volumes that are detached from nodes which may still have them mounted, with the node.
    pub torn: Vec<(String, String)>,
    /// The pods that existed and are gone at the end.
    pub gone: BTreeSet<ObjectKey>,
    /// When the deletion of a pod was requested during the run: of the first one of its name.
    pub deleted: BTreeMap<ObjectKey, Timestamp>,
    /// When a node that fell silent was found to be.
    pub found_unreachable: BTreeMap<String, Timestamp>,
    /// When a volume began to be detached from a node: by volume and node.
    pub detaching: BTreeMap<(String, String), Timestamp>,
    /// The cluster at the end.
    pub(crate) end: Simulation,
}

/// So long a run goes on after all pods are Ready, to see what else the intervention leads to.
const AFTERMATH: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);

/// Replacements that fail within this time fail at once.
const MOMENT: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);

/// So long controllers look at everything when they begin.
const SETTLED: jiff::SignedDuration = jiff::SignedDuration::from_millis(10);

impl<'a> Forecaster<'a> {
    /// The cluster of these objects at a time, to ask what becomes of some pods. `whole` is what all objects make.
    pub fn new(
        objects: &'a Objects,
        clock: &Clock,
        whole: &Cluster,
        about: &[PodView<'_>],
    ) -> Result<Forecaster<'a>, ModelError> {
        let mut start = snapshot::resume(objects, clock, whole, about)?;
        start.follow();
        // The controllers of a cluster that is running have looked at everything: once, for all options.
        let settled = start.now() + SETTLED;
        while start.next_at().is_some_and(|at| at <= settled) {
            if start.run_step().is_err() {
                break;
            }
        }
        Ok(Forecaster { objects, start })
    }

    /// What becomes of pods after an intervention.
    pub fn run(&self, intervention: &Intervention, pods: &[PodView<'_>]) -> Run {
        let mut simulation = self.start.clone();
        // The objects were read, or the intervention changes nothing.
        let _ = intervention.apply(&mut simulation);
        let lines = pods.iter().map(|pod| Follower::of(self.objects, &self.start, *pod)).collect();
        let returned = match intervention {
            Intervention::ReturnNode(node) => Some(node.clone()),
            _ => None,
        };
        let unmarked = match intervention {
            Intervention::Nothing => BTreeSet::new(),
            _ => unmarked(&self.start),
        };
        Course { simulation, lines, returned, unmarked, found: Found::default() }.finish()
    }
}

/// The nodes that nothing is heard of and that have no taint for that yet.
fn unmarked(simulation: &Simulation) -> BTreeSet<String> {
    let is_marked = |node: &Node| {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints.into_iter().any(|taint| taint.key == UNREACHABLE)
    };
    let nodes = simulation.store().all::<Node>().filter(|node| !is_marked(node));
    nodes.filter_map(|node| node.metadata.name.clone()).filter(|name| !is_connected(simulation, name)).collect()
}

/// A line of pods, and what became of it so far.
#[derive(Debug)]
struct Follower {
    line: Line,
    /// What of its volumes was not read, for the pod where it is and for one that is created in its place.
    unread: [Option<&'static str>; 2],
    /// Whether its controller is gone, or about to go.
    is_last: bool,
    outcome: Option<Outcome>,
    nodes: Vec<String>,
    tie: Option<TieWithUnreachable>,
}

impl Follower {
    fn of(objects: &Objects, simulation: &Simulation, pod: PodView<'_>) -> Follower {
        let line = Line::of(objects, simulation, pod);
        let nodes = line.pod(simulation.store()).and_then(|pod| pod.spec.as_ref()?.node_name.clone());
        Follower {
            unread: [pod.node(), None].map(|node| unread(objects, pod, node, &pod_volumes(objects, pod))),
            is_last: not_recreated(objects, pod).is_some(),
            nodes: nodes.into_iter().collect(),
            outcome: None,
            tie: None,
            line,
        }
    }
}

/// A run.
struct Course {
    simulation: Simulation,
    lines: Vec<Follower>,
    returned: Option<String>,
    /// The nodes that are lost, but were not marked unreachable when a person was about to run a command.
    unmarked: BTreeSet<String>,
    found: Found,
}

/// What was seen of the cluster on the way.
#[derive(Default)]
struct Found {
    torn: Vec<(String, String)>,
    gone: BTreeSet<ObjectKey>,
    deleted: BTreeMap<ObjectKey, Timestamp>,
    unreachable: BTreeMap<String, Timestamp>,
    detaching: BTreeMap<(String, String), Timestamp>,
}

impl Found {
    fn see(&mut self, change: &Change, at: Timestamp) {
        match change.key.kind {
            ObjectKind::Pod => {
                let (before, after) = change.of::<Pod>();
                let leaves = |pod: &Arc<Pod>| pod.metadata.deletion_timestamp.is_some();
                if before.is_some_and(|pod| !leaves(pod)) && after.is_none_or(leaves) {
                    self.deleted.entry(change.key.to_model()).or_insert(at);
                }
            }
            ObjectKind::Node => {
                let (before, after) = change.of::<Node>();
                if !before.is_some_and(|node| is_unknown(node)) && after.is_some_and(|node| is_unknown(node)) {
                    self.unreachable.entry(change.key.name.to_string()).or_insert(at);
                }
            }
            ObjectKind::VolumeAttachment => {
                let (Some(before), after) = change.of::<VolumeAttachment>() else { return };
                let leaves = |found: &Arc<VolumeAttachment>| found.metadata.deletion_timestamp.is_some();
                let volume = before.spec.source.persistent_volume_name.clone();
                if !leaves(before)
                    && after.is_none_or(leaves)
                    && let Some(volume) = volume
                {
                    self.detaching.entry((volume, before.spec.node_name.clone())).or_insert(at);
                }
            }
            _ => {}
        }
    }
}

fn is_unknown(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
}

impl Course {
    fn finish(mut self) -> Run {
        let mut rest = RestWatch::new(self.simulation.settings(), self.simulation.now());
        self.observe(&mut rest);
        let mut end = None;
        while end.is_none_or(|end| self.simulation.now() < end) && !rest.is_over(&mut self.simulation) {
            if let Err(limit) = self.simulation.run_step() {
                self.give_up(limit.at);
                break;
            }
            self.observe(&mut rest);
            self.skip_circles();
            if end.is_none() && self.lines.iter().all(|line| line.outcome.is_some()) {
                end = Some(self.simulation.now() + AFTERMATH);
            }
        }
        self.add_nodes_of_return();
        let outlooks = (0..self.lines.len()).map(|index| self.outlook(index)).collect();
        let Found { torn, gone, deleted, unreachable, detaching } = self.found;
        Run { outlooks, torn, gone, deleted, found_unreachable: unreachable, detaching, end: self.simulation }
    }

    /// Takes note of what happened in a step.
    fn observe(&mut self, rest: &mut RestWatch) {
        for (at, happening) in self.simulation.take_journal() {
            let Happening::Changed(change) = happening else { continue };
            self.found.see(&change, at);
            match change.key.kind {
                ObjectKind::Pod => self.pod_changed(&change, at),
                ObjectKind::VolumeAttachment if change.after.is_none() => self.detached(&change, at),
                _ => {}
            }
            if matters(&change) {
                self.changed(&change, at, rest);
            }
        }
        for index in 0..self.lines.len() {
            self.check(index);
        }
    }

    /// Takes note of a change that matters. What replacements do that fail one after the other does not.
    fn changed(&mut self, change: &Change, at: Timestamp, rest: &mut RestWatch) {
        match self.lines.iter().find(|line| line.line.is_about(change)) {
            Some(line) if line.line.goes_in_circles() => {}
            None if !may_help(change) && self.lines.iter().any(|line| line.line.goes_in_circles()) => {}
            found => {
                rest.changed(at);
                if found.is_none() {
                    self.lines.iter_mut().for_each(|line| line.line.count_anew());
                }
            }
        }
    }

    /// Where one replacement after the other fails at once, only what comes later can help.
    fn skip_circles(&mut self) {
        let now = self.simulation.now();
        let (mut open, mut fast) = (0, 0);
        for line in self.lines.iter().filter(|line| line.outcome.is_none()) {
            open += 1;
            fast += usize::from(line.line.circles_since(now, MOMENT));
        }
        if open == 0 || open != fast {
            return;
        }
        let later = self.simulation.pending().map(|(_, _, at)| at).filter(|at| at.duration_since(now) > MOMENT).min();
        match later {
            Some(at) => self.simulation.skip_until(at),
            // Nothing else happens.
            None => self
                .lines
                .iter_mut()
                .filter(|line| line.outcome.is_none())
                .for_each(|line| line.outcome = Some(Outcome::Never)),
        }
    }

    fn pod_changed(&mut self, change: &Change, at: Timestamp) {
        let (before, after) = change.of::<Pod>();
        let open = |line: &&mut Follower| line.outcome.is_none();
        for line in self.lines.iter_mut().filter(open) {
            line.line.pod_changed(&self.simulation, change, at);
        }
        let Some(after) = after else {
            self.found.gone.insert(change.key.to_model());
            return;
        };
        if before.is_none() {
            let store = self.simulation.store();
            let waiting =
                self.lines.iter_mut().filter(open).filter(|line| !line.is_last && line.line.takes(store, after));
            if let Some(line) = waiting.min_by_key(|line| line.line.awaited) {
                line.line.replaced(after, at);
                line.nodes.clear();
            }
        }
        let was_bound = before.is_some_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
        if !was_bound && after.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
            self.bound(after);
        }
    }

    /// A pod was put on a node: others may have been as good.
    fn bound(&mut self, pod: &Arc<Pod>) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let is_ours = |line: &Follower| line.line.current.as_ref().is_some_and(|(_, current)| **current == *uid);
        let Some(index) = self.lines.iter().position(is_ours) else { return };
        let chosen = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let Choice { nodes, best } = Choice::of(&self.simulation, pod);
        let (heard, unreachable): (Vec<String>, Vec<String>) =
            best.iter().cloned().partition(|node| is_connected(&self.simulation, node));
        let line = &mut self.lines[index];
        let is_tie = !heard.is_empty() && !unreachable.is_empty();
        line.tie = is_tie.then_some(TieWithUnreachable { nodes: best.len(), unreachable });
        let simulation = &self.simulation;
        line.nodes = nodes.into_iter().filter(|node| *node == chosen || is_connected(simulation, node)).collect();
        if !line.nodes.contains(&chosen) {
            line.nodes.insert(0, chosen);
        }
    }

    fn detached(&mut self, change: &Change, at: Timestamp) {
        let Some(attachment) = change.of::<VolumeAttachment>().0 else { return };
        let store = self.simulation.store();
        for line in self.lines.iter_mut().filter(|line| line.outcome.is_none()) {
            line.line.detached(store, attachment, at);
        }
        let node = &attachment.spec.node_name;
        if is_connected(&self.simulation, node) {
            return;
        }
        let Some(volume) = attachment.spec.source.persistent_volume_name.as_deref() else { return };
        let unique = store.get::<PersistentVolume>("", volume).and_then(|volume| unique_volume_name(volume));
        let in_use = store.get::<Node>("", node).map(|node| {
            let in_use = node.status.as_ref().and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default();
            unique.is_none_or(|unique| in_use.contains(&unique))
        });
        if in_use.unwrap_or(true) {
            self.found.torn.push((volume.to_owned(), node.clone()));
        }
    }

    /// Whether it is clear by now what becomes of a line.
    fn check(&mut self, index: usize) {
        let Follower { line, unread, outcome, .. } = &mut self.lines[index];
        if outcome.is_some() {
            return;
        }
        let store = self.simulation.store();
        if let Some(pod) = line.pod(store)
            && let Some(kind) = unread[usize::from(line.is_new)]
            && (line.is_new || !has_started(pod))
        {
            *outcome = Some(Outcome::Unknown(Uncertainty::Unread(kind)));
            return;
        }
        line.check_ready(&self.simulation, self.returned.as_deref());
        if let Some(at) = line.ready {
            *outcome = Some(Outcome::Ready(at));
        } else if line.awaited.is_some() && line.owner().is_none() && line.last_pod(store).is_none() {
            // Nobody creates another.
            *outcome = Some(Outcome::Never);
        }
    }

    /// The simulation has reached a limit.
    fn give_up(&mut self, at: Timestamp) {
        for line in self.lines.iter_mut().filter(|line| line.outcome.is_none()) {
            line.outcome = Some(Outcome::Unknown(Uncertainty::NotSettled(at)));
        }
    }

    /// Whether a node that is back has lost its taints when a pod is scheduled is a matter of moments.
    fn add_nodes_of_return(&mut self) {
        if self.returned.is_none() {
            return;
        }
        for line in self.lines.iter_mut().filter(|line| line.line.is_new && !line.nodes.is_empty()) {
            let Some(pod) = line.line.pod(self.simulation.store()) else { continue };
            let others = Choice::of(&self.simulation, pod).nodes;
            let new: Vec<String> = others.into_iter().filter(|node| !line.nodes.contains(node)).collect();
            line.nodes.extend(new.into_iter().filter(|node| is_connected(&self.simulation, node)));
        }
    }

    fn outlook(&self, index: usize) -> Outlook {
        let line = &self.lines[index];
        let outcome = match &line.outcome {
            Some(outcome) => outcome.clone(),
            None => self.uncertainty(line).map_or(Outcome::Never, Outcome::Unknown),
        };
        let mut milestones = line.line.milestones.clone();
        milestones.sort_by_key(|(at, _)| *at);
        Outlook {
            outcome,
            milestones,
            nodes: line.nodes.clone(),
            pod: line.line.last_pod(self.simulation.store()).map(|key| key.to_model()),
            tie: line.tie.clone(),
        }
    }

    /// Why a line that has come to rest without being Ready may go on all the same.
    fn uncertainty(&self, line: &Follower) -> Option<Uncertainty> {
        let store = self.simulation.store();
        // A person needs some seconds for a command, after which the node may be marked.
        let node = line.nodes.first().filter(|node| line.line.is_stranded && self.unmarked.contains(*node));
        if let Some(node) = node {
            return Some(Uncertainty::NotMarkedYet(node.clone()));
        }
        if let Some(owner) = line.line.owner().filter(|owner| !is_simulated(owner)) {
            return Some(Uncertainty::OtherController(owner.kind.clone(), owner.name.clone()));
        }
        if let Some(pod) = line.line.pod(store) {
            return self.unscheduled(pod).or_else(|| self.held_by_stuck_pod(pod));
        }
        if let Some((before, why)) = line.line.predecessors(store).find_map(|pod| Some((pod, self.unscheduled(pod)?))) {
            let pod = before.metadata.name.clone().unwrap_or_default();
            return Some(Uncertainty::Predecessor { pod, why: Box::new(why) });
        }
        let last = line.line.last_pod(store).and_then(|key| store.at::<Pod>(&key))?;
        let node = last.spec.as_ref()?.node_name.clone()?;
        self.stuck_pod(&SimKey::of(ObjectKind::Pod, &last.metadata), &node)
    }

    /// A pod of this name that the kubelet of a node has not ended though its grace period is over.
    fn stuck_pod(&self, pod: &SimKey, node: &str) -> Option<Uncertainty> {
        let workload = self.simulation.world().workload(pod)?;
        let is_stuck = workload.behaviour == Behaviour::NeverStops && is_connected(&self.simulation, node);
        is_stuck.then(|| Uncertainty::KubeletStuck { pod: pod.name.to_string(), node: node.to_owned() })
    }

    /// A pod waits for a volume of such a one, whether its object is there or not.
    fn held_by_stuck_pod(&self, pod: &Pod) -> Option<Uncertainty> {
        let store = self.simulation.store();
        let attachments = volumes(store, pod).into_iter().flat_map(|volume| {
            let found = store.attachments_of(&volume).filter_map(|key| store.at::<VolumeAttachment>(key));
            found.map(|found| (volume.clone(), found.spec.node_name.clone())).collect::<Vec<_>>()
        });
        let own = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        attachments.filter(|(_, node)| Some(node.as_str()) != own).find_map(|(volume, node)| {
            let mut processes = self.simulation.world().processes();
            processes.find_map(|(_, process)| {
                let is_holder = *process.node == *node && process.volumes.iter().any(|used| **used == *volume);
                is_holder.then(|| self.stuck_pod(&process.pod, &node)).flatten()
            })
        })
    }
}

impl Course {
    /// Why it cannot be told whether a pod without a node gets one.
    fn unscheduled(&self, pod: &Pod) -> Option<Uncertainty> {
        let spec = pod.spec.as_ref().filter(|spec| spec.node_name.is_none())?;
        let scheduler = spec.scheduler_name.as_deref().unwrap_or_default();
        if !scheduler.is_empty() && scheduler != DEFAULT_SCHEDULER {
            return Some(Uncertainty::OtherScheduler(scheduler.to_owned()));
        }
        if pod.status.as_ref().is_some_and(|status| status.nominated_node_name.is_some()) {
            return Some(Uncertainty::Preempts);
        }
        let compiled = PlacedPod::compile(pod, self.simulation.settings().version).ok()?;
        match evaluate(self.simulation.placement(), &compiled) {
            Err(unmodelled) => Some(Uncertainty::Unmodelled(unmodelled.to_string())),
            Ok(verdict) => {
                let error = verdict.error.map(|error| format!("kube-scheduler cannot decide: {error}"));
                error.map(Uncertainty::Unmodelled)
            }
        }
    }
}

fn is_simulated(owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference) -> bool {
    match owner.kind.as_str() {
        "ReplicaSet" | "StatefulSet" | "DaemonSet" => owner.api_version == "apps/v1",
        "Job" => owner.api_version == "batch/v1",
        "Node" => owner.api_version == "v1",
        _ => false,
    }
}

fn has_started(pod: &Pod) -> bool {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    containers.clone().any(|container| container.state.as_ref().is_some_and(|state| state.running.is_some()))
}

/// The nodes that a pod can go to.
struct Choice {
    /// All, the best first.
    nodes: Vec<String>,
    /// Those that are as good as the best.
    best: Vec<String>,
}

impl Choice {
    /// The nodes that the scheduler chose from when it placed a pod.
    fn of(simulation: &Simulation, pod: &Pod) -> Choice {
        let none = Choice { nodes: Vec::new(), best: Vec::new() };
        let mut unbound = pod.clone();
        unbound.spec.get_or_insert_default().node_name = None;
        let Ok(compiled) = PlacedPod::compile(&unbound, simulation.settings().version) else { return none };
        let mut cluster = simulation.placement().clone();
        cluster.remove_pod(&PodKey::new(&compiled.key.namespace, &compiled.key.name));
        let Ok(verdict) = evaluate(&cluster, &compiled) else { return none };
        let mut nodes: Vec<(i64, String)> = verdict.scores.iter().map(|(n, s)| (-s.total, n.to_string())).collect();
        nodes.sort();
        let best = verdict.best.iter().map(ToString::to_string).collect();
        Choice { nodes: nodes.into_iter().map(|(_, node)| node).collect(), best }
    }
}
