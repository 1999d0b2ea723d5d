//! The lanes of a timeline: what each node and pod was, and when.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use stead_sim::{Happening, SimKey};

use crate::expectation::node_ready;
use crate::play::Run;
use crate::pod_table::PodRow;

/// What a node or a pod is for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LaneState {
    /// A pod without a node.
    Pending,
    /// A pod whose containers do not run yet.
    Starting,
    /// A pod that runs and is not Ready.
    NotReady,
    /// A pod or a node that is Ready.
    Ready,
    /// A pod that is being deleted.
    Terminating,
    /// A pod that has ended.
    Ended,
    /// A node that is not Ready.
    NodeDown,
}

impl LaneState {
    /// All of them, in the order of the legend.
    pub(super) const ALL: [LaneState; 7] = [
        LaneState::Pending,
        LaneState::Starting,
        LaneState::NotReady,
        LaneState::Ready,
        LaneState::Terminating,
        LaneState::Ended,
        LaneState::NodeDown,
    ];

    /// The letter in the lane, the class, and what it means.
    pub(super) fn shown(self) -> (&'static str, &'static str, &'static str) {
        match self {
            LaneState::Pending => ("P", "pending", "Pending"),
            LaneState::Starting => ("C", "starting", "ContainerCreating"),
            LaneState::NotReady => ("N", "notready", "Running, not Ready"),
            LaneState::Ready => ("R", "ready", "Ready"),
            LaneState::Terminating => ("T", "terminating", "Terminating"),
            LaneState::Ended => ("E", "ended", "ended"),
            LaneState::NodeDown => ("D", "down", "node NotReady"),
        }
    }
}

/// A state, from a time to a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
    pub(super) state: LaneState,
    /// The node of a pod.
    pub(super) node: Option<String>,
}

/// What happened to a node or a pod of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) segments: Vec<Segment>,
}

/// The lanes of a run.
pub(super) struct Lanes {
    pub(super) nodes: Vec<Lane>,
    pub(super) pods: Vec<Lane>,
}

/// A state and the node of a pod; none for an object that does not exist.
type Seen = Option<(LaneState, Option<String>)>;

#[derive(Default)]
struct Recorder {
    lanes: BTreeMap<String, Vec<(Timestamp, Seen)>>,
}

impl Recorder {
    fn see(&mut self, name: String, at: Timestamp, seen: Seen) {
        let lane = self.lanes.entry(name).or_default();
        if lane.last().is_some_and(|(_, last)| *last == seen) {
            return;
        }
        // Of several states at one moment the last one stays.
        if lane.last().is_some_and(|(last, _)| *last == at) {
            lane.pop();
        }
        lane.push((at, seen));
    }

    fn finish(self, end: Timestamp) -> Vec<Lane> {
        let lane = |(name, seen): (String, Vec<(Timestamp, Seen)>)| {
            let ends = seen.iter().skip(1).map(|(at, _)| *at).chain([end]);
            let segments = seen.iter().zip(ends).filter_map(|((from, seen), to)| {
                let (state, node) = seen.clone()?;
                Some(Segment { from: *from, to, state, node })
            });
            Lane { name, segments: segments.collect() }
        };
        self.lanes.into_iter().map(lane).filter(|lane| !lane.segments.is_empty()).collect()
    }
}

/// The lanes of a run.
pub(super) fn lanes(run: &Run) -> Lanes {
    let (mut nodes, mut pods) = (Recorder::default(), Recorder::default());
    let several = namespaces(run) > 1;
    for node in run.start.store().all::<Node>() {
        nodes.see(node.metadata.name.clone().unwrap_or_default(), run.began, Some(node_state(node)));
    }
    for pod in run.start.store().all::<Pod>() {
        let key = SimKey::of(stead_sim::ObjectKind::Pod, &pod.metadata);
        pods.see(pod_name(&key, several), run.began, Some(pod_state(pod, run.began)));
    }
    for (at, happening) in run.steps.iter().flat_map(|step| &step.happenings) {
        let Happening::Changed(change) = happening else { continue };
        if let (before, after) = change.of::<Node>()
            && before.or(after).is_some()
        {
            nodes.see(change.key.name.to_string(), *at, after.map(|node| node_state(node)));
        }
        if let (before, after) = change.of::<Pod>()
            && before.or(after).is_some()
        {
            pods.see(pod_name(&change.key, several), *at, after.map(|pod| pod_state(pod, *at)));
        }
    }
    let end = run.end.now();
    Lanes { nodes: nodes.finish(end), pods: pods.finish(end) }
}

/// In how many namespaces there are pods.
fn namespaces(run: &Run) -> usize {
    let changed = run.steps.iter().flat_map(|step| &step.happenings).filter_map(|(_, happening)| match happening {
        Happening::Changed(change) if change.key.kind == stead_sim::ObjectKind::Pod => {
            Some(change.key.namespace.to_string())
        }
        _ => None,
    });
    let there = run.start.store().all::<Pod>().filter_map(|pod| pod.metadata.namespace.clone());
    changed.chain(there).collect::<std::collections::BTreeSet<_>>().len()
}

fn pod_name(key: &SimKey, with_namespace: bool) -> String {
    if with_namespace { format!("{}/{}", key.namespace, key.name) } else { key.name.to_string() }
}

fn node_state(node: &Node) -> (LaneState, Option<String>) {
    (if node_ready(node) == "True" { LaneState::Ready } else { LaneState::NodeDown }, None)
}

fn pod_state(pod: &Pod, now: Timestamp) -> (LaneState, Option<String>) {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|node| !node.is_empty());
    let row = PodRow::of(pod, now);
    let (ready, status) = (row.cell("READY").unwrap_or_default(), row.cell("STATUS").unwrap_or_default());
    let all_ready = ready.split_once('/').is_some_and(|(ready, all)| ready == all);
    let state = match status {
        "Terminating" => LaneState::Terminating,
        "Completed" | "Succeeded" | "Failed" | "Error" | "Evicted" => LaneState::Ended,
        "Running" if all_ready => LaneState::Ready,
        "Running" => LaneState::NotReady,
        _ if node.is_none() => LaneState::Pending,
        "CrashLoopBackOff" => LaneState::NotReady,
        _ => LaneState::Starting,
    };
    (state, node)
}
