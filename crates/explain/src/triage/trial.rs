//! What kube-scheduler would say about a pod without a node, now and with faulty or cordoned nodes back.
//!
//! The cluster is compiled once, when the first pod asks. Pods of a workload that use no claims are equal and share an answer.
//! In a cluster with very many pods nothing is tried, because compiling it parses every pod.

use std::collections::BTreeMap;

use stead_model::{NodeView, ObjectKey, PodView};
use stead_placement::{Attempt, Cluster, Node, Pod, PodKey, evaluate};

use super::evidence::Evidence;
use super::node_faults::NodeFault;

/// How many different pods are tried: each costs a pass over all nodes.
const MOST_TRIALS: usize = 40;

/// The largest number of pods with which a cluster is compiled.
const MOST_PODS: usize = 10_000;

/// What the scheduler's rules say about a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TrialResult {
    /// What kube-scheduler would report; none where some node can run the pod.
    pub(super) message: Option<String>,
    /// How many nodes can run it now.
    pub(super) feasible: usize,
    /// A node with a fault that could run it if it had none.
    pub(super) faulty: Option<String>,
    /// A cordoned node that could run it if it were not cordoned.
    pub(super) cordoned: Option<String>,
}

pub(super) struct SchedulingTrial<'e, 'a> {
    evidence: &'e Evidence<'a>,
    cluster: Option<Clusters>,
    results: BTreeMap<ObjectKey, Option<TrialResult>>,
    is_too_large: bool,
}

/// The cluster as it is, and with nodes back.
struct Clusters {
    now: Cluster,
    without_faults: Cluster,
    without_cordons: Cluster,
}

impl<'e, 'a> SchedulingTrial<'e, 'a> {
    pub(super) fn new(evidence: &'e Evidence<'a>) -> SchedulingTrial<'e, 'a> {
        let is_too_large = evidence.objects.of_kind("Pod").nth(MOST_PODS).is_some();
        SchedulingTrial { evidence, cluster: None, results: BTreeMap::new(), is_too_large }
    }

    /// What the rules say about a pod; none where they cannot tell.
    pub(super) fn result(&mut self, pod: PodView<'_>) -> Option<TrialResult> {
        if self.is_too_large {
            return None;
        }
        let key = match self.evidence.claims(pod).is_empty() {
            true => self.evidence.workloads(pod.key()).into_iter().next().unwrap_or_else(|| pod.key().clone()),
            false => pod.key().clone(),
        };
        if let Some(known) = self.results.get(&key) {
            return known.clone();
        }
        if self.results.len() >= MOST_TRIALS || self.evidence.objects.nodes().next().is_none() {
            return None;
        }
        let result = self.tried(pod);
        self.results.insert(key, result.clone());
        result
    }

    fn tried(&mut self, pod: PodView<'_>) -> Option<TrialResult> {
        let evidence = self.evidence;
        let to_place = Pod::from_objects(evidence.objects, pod.key()).ok()?;
        let clusters = self.cluster.get_or_insert_with(|| Clusters::new(evidence));
        // A pod does not compete with itself.
        let without = |cluster: &Cluster| {
            let mut fork = cluster.clone();
            fork.remove_pod(&PodKey::new(pod.namespace(), pod.name()));
            fork
        };
        let now = without(&clusters.now);
        let verdict = evaluate(&now, &to_place).ok().filter(|verdict| verdict.error.is_none())?;
        // A faulty node may not have its taints yet.
        let (faulty, healthy): (Vec<&str>, Vec<&str>) =
            verdict.feasible().map(AsRef::as_ref).partition(|name| evidence.faults.contains_key(*name));
        if verdict.fits() {
            let faulty = faulty.first().filter(|_| healthy.is_empty()).map(|name| (*name).to_owned());
            return Some(TrialResult { feasible: healthy.len(), faulty, ..TrialResult::default() });
        }
        let could = |cluster: &Cluster, nodes: Vec<&str>| {
            let cluster = without(cluster);
            let attempt = Attempt::new(&cluster, &to_place).ok()?;
            let fits = |name: &&str| cluster.node(name).is_some_and(|info| attempt.node(info).is_ok());
            nodes.into_iter().find(fits).map(str::to_owned)
        };
        Some(TrialResult {
            message: verdict.message,
            feasible: 0,
            faulty: could(&clusters.without_faults, evidence.faults.keys().map(String::as_str).collect()),
            cordoned: could(&clusters.without_cordons, evidence.cordoned.iter().copied().collect()),
        })
    }
}

impl Clusters {
    fn new(evidence: &Evidence<'_>) -> Clusters {
        let now = Cluster::from_objects(evidence.objects, None);
        let back = |nodes: &mut dyn Iterator<Item = NodeView<'_>>, uncordon: bool| {
            let mut fork = now.clone();
            for node in nodes {
                let Ok(mut compiled) = Node::compile(node.typed()) else { continue };
                match uncordon {
                    true => {
                        compiled.unschedulable = false;
                        compiled.taints.retain(|taint| taint.key != "node.kubernetes.io/unschedulable");
                    }
                    false => compiled.taints.retain(|taint| !is_of_condition(&taint.key)),
                }
                fork.set_node(compiled);
            }
            fork
        };
        let of = |name: &str| evidence.objects.node(name).ok().flatten();
        let faulty = evidence.faults.iter().filter(|(_, fault)| **fault != NodeFault::Deleted);
        let without_faults = back(&mut faulty.filter_map(|(name, _)| of(name)), false);
        let without_cordons = back(&mut evidence.cordoned.iter().filter_map(|name| of(name)), true);
        Clusters { now, without_faults, without_cordons }
    }
}

/// Whether the node controller sets a taint for the condition Ready, or a cloud for a machine that is shut down.
fn is_of_condition(key: &str) -> bool {
    [stead_model::UNREACHABLE, stead_model::NOT_READY, stead_model::SHUTDOWN, stead_model::OUT_OF_SERVICE]
        .contains(&key)
}
