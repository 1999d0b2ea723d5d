//! InterPodAffinity.

use std::collections::BTreeMap;

use stead_semantics::labels::{Labels, Selector};

use super::MAX_SCORE;
use crate::cluster::Cluster;
use crate::node::{Node, NodeInfo};
use crate::pod::{AffinityTerm, Pod, PodSpec};
use crate::status::{Code, Filtered, Plugin, RejectionReason, reject};

/// The weight of another pod's required affinity in the score (`hardPodAffinityWeight`).
pub(crate) const HARD_AFFINITY_WEIGHT: i64 = 1;

/// Whether a term selects a pod. The labels of the pod's namespace are needed if the term's namespaces are not
/// resolved.
pub(crate) fn matches(
    term: &AffinityTerm,
    namespace: &str,
    labels: &Labels,
    namespace_labels: Option<&Labels>,
) -> bool {
    let in_namespace = term.namespaces.contains(namespace)
        || match namespace_labels {
            Some(l) => term.namespace_selector.matches(l),
            None => term.namespace_selector.matches(&Labels::new()),
        };
    in_namespace && term.selector.matches(labels)
}

/// A term of the pod to place, with the selected namespaces added (`mergeAffinityTermNamespacesIfNotEmpty`).
pub(crate) fn resolve(cluster: &Cluster, term: &AffinityTerm) -> AffinityTerm {
    let mut term = term.clone();
    if !term.namespace_selector.is_empty() {
        let selected = cluster.namespaces().iter().filter(|(_, labels)| term.namespace_selector.matches(labels));
        term.namespaces.extend(selected.map(|(name, _)| name.clone()));
        if !cluster.rules().keeps_namespace_selector {
            term.namespace_selector = Selector::nothing();
        }
    }
    term
}

/// Counts by topology key and value, without zeros.
type Counts<'a> = BTreeMap<(&'a str, &'a str), i64>;

fn add<'a>(counts: &mut Counts<'a>, node: &'a Node, key: &str, n: i64) {
    if let Some((key, value)) = node.labels.get_key_value(key) {
        let entry = counts.entry((key, value)).or_insert(0);
        *entry += n;
        if *entry == 0 {
            counts.remove(&(key.as_str(), value.as_str()));
        }
    }
}

/// The counts of PreFilter.
#[derive(Debug, Clone)]
pub(crate) struct State<'a> {
    affinity: Vec<AffinityTerm>,
    anti_affinity: Vec<AffinityTerm>,
    namespace_labels: Labels,
    /// Pods with an anti-affinity term that selects the pod to place.
    existing: Counts<'a>,
    with: Counts<'a>,
    against: Counts<'a>,
}

impl<'a> State<'a> {
    /// PreFilter; none if no rule applies.
    pub(crate) fn new(cluster: &'a Cluster, pod: &PodSpec) -> Option<State<'a>> {
        let mut state = State {
            affinity: pod.affinity.iter().map(|t| resolve(cluster, t)).collect(),
            anti_affinity: pod.anti_affinity.iter().map(|t| resolve(cluster, t)).collect(),
            namespace_labels: cluster.namespaces().get(&*pod.namespace).cloned().unwrap_or_default(),
            existing: Counts::new(),
            with: Counts::new(),
            against: Counts::new(),
        };
        // As in kube-scheduler: without rules of its own, only existing pods with a required anti-affinity matter.
        let own_rules = !state.affinity.is_empty() || !state.anti_affinity.is_empty();
        for info in cluster.nodes().filter(|i| own_rules || i.has_anti_affinity()) {
            for other in &info.pods {
                state.update(pod, other, &info.node, 1);
            }
        }
        (own_rules || !state.existing.is_empty()).then_some(state)
    }

    /// Adds a pod to a node or removes it.
    pub(crate) fn update(&mut self, pod: &PodSpec, other: &Pod, node: &'a Node, n: i64) {
        for term in &other.spec.anti_affinity {
            if matches(term, &pod.namespace, &pod.labels, Some(&self.namespace_labels)) {
                add(&mut self.existing, node, &term.topology_key, n);
            }
        }
        let namespace = &*other.key.namespace;
        if !self.affinity.is_empty() && self.affinity.iter().all(|t| matches(t, namespace, other.labels(), None)) {
            for term in &self.affinity {
                add(&mut self.with, node, &term.topology_key, n);
            }
        }
        for term in &self.anti_affinity {
            if matches(term, namespace, other.labels(), None) {
                add(&mut self.against, node, &term.topology_key, n);
            }
        }
    }

    pub(crate) fn filter(&self, pod: &PodSpec, node: &Node) -> Filtered {
        if !self.satisfies_affinity(pod, node) {
            return reject(Plugin::InterPodAffinity, Code::Unresolvable, RejectionReason::PodAffinity);
        }
        let hit = |counts: &Counts<'_>, key: &str| {
            node.label(key).is_some_and(|value| counts.get(&(key, value)).is_some_and(|n| *n > 0))
        };
        if self.anti_affinity.iter().any(|t| hit(&self.against, &t.topology_key)) {
            return reject(Plugin::InterPodAffinity, Code::Unschedulable, RejectionReason::PodAntiAffinity);
        }
        if !self.existing.is_empty() && node.labels.keys().any(|key| hit(&self.existing, key)) {
            return reject(Plugin::InterPodAffinity, Code::Unschedulable, RejectionReason::ExistingPodAntiAffinity);
        }
        Ok(())
    }

    fn satisfies_affinity(&self, pod: &PodSpec, node: &Node) -> bool {
        let mut found = true;
        for term in &self.affinity {
            match node.label(&term.topology_key) {
                None => return false,
                Some(value) => found &= self.with.get(&(&*term.topology_key, value)).is_some_and(|n| *n > 0),
            }
        }
        // The first pod of a group with affinity to itself may run on any node.
        found || (self.with.is_empty() && self.affinity.iter().all(|t| matches(t, &pod.namespace, &pod.labels, None)))
    }
}

/// The scores of the feasible nodes; none if no pod has a preference.
pub(crate) fn score(cluster: &Cluster, pod: &PodSpec, fitting: &[&NodeInfo]) -> Option<Vec<i64>> {
    let resolved = |terms: &[(AffinityTerm, i32)]| -> Vec<(AffinityTerm, i64)> {
        terms.iter().map(|(t, w)| (resolve(cluster, t), i64::from(*w))).collect()
    };
    let mut preferences = resolved(&pod.preferred_affinity);
    preferences.extend(resolved(&pod.preferred_anti_affinity).into_iter().map(|(t, weight)| (t, -weight)));
    let namespace_labels = cluster.namespaces().get(&*pod.namespace).cloned().unwrap_or_default();
    let mut sums: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
    for info in cluster.nodes() {
        for other in &info.pods {
            for (term, weight) in &preferences {
                if matches(term, &other.key.namespace, other.labels(), None) {
                    prefer(&mut sums, &info.node, &term.topology_key, *weight);
                }
            }
            let own = |term: &AffinityTerm| matches(term, &pod.namespace, &pod.labels, Some(&namespace_labels));
            for term in other.spec.affinity.iter().filter(|t| own(t)) {
                prefer(&mut sums, &info.node, &term.topology_key, HARD_AFFINITY_WEIGHT);
            }
            for (term, weight) in other.spec.preferred_affinity.iter().filter(|(t, _)| own(t)) {
                prefer(&mut sums, &info.node, &term.topology_key, i64::from(*weight));
            }
            for (term, weight) in other.spec.preferred_anti_affinity.iter().filter(|(t, _)| own(t)) {
                prefer(&mut sums, &info.node, &term.topology_key, -i64::from(*weight));
            }
        }
    }
    if sums.is_empty() {
        return None;
    }
    let scores: Vec<i64> = fitting
        .iter()
        .map(|info| sums.iter().filter_map(|(key, values)| values.get(info.node.label(key)?)).sum())
        .collect();
    Some(normalize(&scores))
}

fn prefer<'a>(sums: &mut BTreeMap<&'a str, BTreeMap<&'a str, i64>>, node: &'a Node, key: &str, weight: i64) {
    if let Some((key, value)) = node.labels.get_key_value(key) {
        *sums.entry(key).or_default().entry(value).or_insert(0) += weight;
    }
}

/// Scales scores from the lowest to the highest.
fn normalize(scores: &[i64]) -> Vec<i64> {
    let min = scores.iter().copied().min().unwrap_or(0);
    let max = scores.iter().copied().max().unwrap_or(0);
    scores.iter().map(|score| if max > min { share(*score, min, max) } else { 0 }).collect()
}

pub(crate) fn share(score: i64, min: i64, max: i64) -> i64 {
    (MAX_SCORE as f64 * ((score - min) as f64 / (max - min) as f64)) as i64
}
