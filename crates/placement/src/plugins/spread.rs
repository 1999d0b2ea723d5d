//! PodTopologySpread.

use std::borrow::Cow;
use std::collections::BTreeMap;

use stead_semantics::labels::{Labels, Selector};

use super::{MAX_SCORE, node};
use crate::cluster::Cluster;
use crate::node::{Node, NodeInfo};
use crate::pod::{Pod, PodSpec, SpreadConstraint};
use crate::status::{Code, Filtered, Plugin, RejectionReason, reject};

pub(crate) const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";

/// The constraints that apply to a pod: its own, or the cluster defaults for pods of a service or an owner.
pub(crate) fn constraints<'a>(cluster: &Cluster, pod: &'a PodSpec, hard: bool) -> Vec<Cow<'a, SpreadConstraint>> {
    if !pod.spread.is_empty() {
        return pod.spread.iter().filter(|c| c.hard == hard).map(Cow::Borrowed).collect();
    }
    if hard {
        return Vec::new();
    }
    let selector = cluster.workloads().default_selector(pod);
    if selector.is_empty() {
        return Vec::new();
    }
    let default = |max_skew, key: &str| {
        Cow::Owned(SpreadConstraint {
            max_skew,
            topology_key: key.into(),
            hard: false,
            selector: selector.clone(),
            min_domains: 1,
            honor_affinity: true,
            honor_taints: false,
        })
    };
    vec![default(3, HOSTNAME), default(5, ZONE)]
}

/// Whether a constraint counts the pods of a node.
pub(crate) fn includes(c: &SpreadConstraint, pod: &PodSpec, n: &Node) -> bool {
    let affinity = || pod.required_nodes.as_ref().is_none_or(|r| r.matches(&n.name, &n.labels));
    (!c.honor_affinity || affinity()) && (!c.honor_taints || node::untolerated(n, &pod.tolerations).is_none())
}

pub(crate) fn has_all_keys(labels: &Labels, constraints: &[Cow<'_, SpreadConstraint>]) -> bool {
    constraints.iter().all(|c| labels.contains_key(&*c.topology_key))
}

/// The number of pods on a node that a selector counts. In kube-scheduler an empty selector counts none.
fn count(info: &NodeInfo, selector: &Selector, namespace: &str) -> i64 {
    if selector.is_empty() {
        return 0;
    }
    let matches =
        |p: &&std::sync::Arc<Pod>| !p.terminating && *p.key.namespace == *namespace && selector.matches(p.labels());
    info.pods.iter().filter(matches).count() as i64
}

/// The number of pods in each domain, for each constraint.
#[derive(Debug, Clone)]
pub(crate) struct State<'a> {
    pub(crate) constraints: Vec<Cow<'a, SpreadConstraint>>,
    pub(crate) counts: Vec<BTreeMap<&'a str, i64>>,
}

impl<'a> State<'a> {
    /// PreFilter; none if the pod has no hard constraint.
    pub(crate) fn new(cluster: &'a Cluster, pod: &'a PodSpec) -> Option<State<'a>> {
        let constraints = constraints(cluster, pod, true);
        if constraints.is_empty() {
            return None;
        }
        let mut counts = vec![BTreeMap::new(); constraints.len()];
        for info in cluster.nodes() {
            if !has_all_keys(&info.node.labels, &constraints) {
                continue;
            }
            for (c, counts) in constraints.iter().zip(&mut counts) {
                if includes(c, pod, &info.node) {
                    let value = info.node.label(&c.topology_key).expect("all keys are there");
                    *counts.entry(value).or_insert(0) += count(info, &c.selector, &pod.namespace);
                }
            }
        }
        Some(State { constraints, counts })
    }

    /// The minimum over the domains of a constraint.
    pub(crate) fn least(&self, i: usize) -> i64 {
        let counts = &self.counts[i];
        if (counts.len() as i64) < i64::from(self.constraints[i].min_domains) {
            return 0;
        }
        counts.values().copied().min().unwrap_or(i64::from(i32::MAX))
    }

    pub(crate) fn filter(&self, pod: &PodSpec, n: &Node) -> Filtered {
        for (i, c) in self.constraints.iter().enumerate() {
            let Some(value) = n.label(&c.topology_key) else {
                return reject(Plugin::PodTopologySpread, Code::Unresolvable, RejectionReason::SpreadLabelMissing);
            };
            let own = i64::from(c.selector.matches(&pod.labels));
            let here = self.counts[i].get(value).copied().unwrap_or(0);
            if here + own - self.least(i) > i64::from(c.max_skew) {
                return reject(Plugin::PodTopologySpread, Code::Unschedulable, RejectionReason::SpreadConstraint);
            }
        }
        Ok(())
    }

    /// Adds a pod to a node or removes it. Unlike PreFilter this counts pods that are being deleted, and applies empty
    /// selectors.
    pub(crate) fn update(&mut self, pod: &PodSpec, other: &Pod, n: &'a Node, delta: i64) {
        if *other.key.namespace != *pod.namespace || !has_all_keys(&n.labels, &self.constraints) {
            return;
        }
        for (c, counts) in self.constraints.iter().zip(&mut self.counts) {
            if c.selector.matches(other.labels()) && includes(c, pod, n) {
                let value = n.label(&c.topology_key).expect("all keys are there");
                *counts.entry(value).or_insert(0) += delta;
            }
        }
    }
}

/// The scores of the feasible nodes; none if the pod has no soft constraint.
pub(crate) fn score(cluster: &Cluster, pod: &PodSpec, fitting: &[&NodeInfo]) -> Option<Vec<i64>> {
    let constraints = constraints(cluster, pod, false);
    if constraints.is_empty() {
        return None;
    }
    // The cluster defaults also score nodes without the label; a pod's own constraints ignore them.
    let all_keys = !pod.spread.is_empty();
    let ignored: Vec<bool> = fitting.iter().map(|i| all_keys && !has_all_keys(&i.node.labels, &constraints)).collect();
    let mut counts: Vec<BTreeMap<&str, i64>> = vec![BTreeMap::new(); constraints.len()];
    for (info, _) in fitting.iter().zip(&ignored).filter(|(_, ignored)| !**ignored) {
        for (c, counts) in constraints.iter().zip(&mut counts).filter(|(c, _)| *c.topology_key != *HOSTNAME) {
            counts.insert(info.node.label(&c.topology_key).unwrap_or_default(), 0);
        }
    }
    let weights: Vec<f64> = constraints
        .iter()
        .zip(&counts)
        .map(|(c, counts)| {
            let hosts = ignored.iter().filter(|i| !**i).count();
            let size = if *c.topology_key == *HOSTNAME { hosts } else { counts.len() };
            libm::log((size + 2) as f64)
        })
        .collect();
    for info in cluster.nodes() {
        if all_keys && !has_all_keys(&info.node.labels, &constraints) {
            continue;
        }
        for (c, counts) in constraints.iter().zip(&mut counts) {
            let value = info.node.label(&c.topology_key).unwrap_or_default();
            if let Some(n) = counts.get_mut(value)
                && includes(c, pod, &info.node)
            {
                *n += count(info, &c.selector, &pod.namespace);
            }
        }
    }
    let mut scores: Vec<Option<i64>> = Vec::with_capacity(fitting.len());
    for (info, ignored) in fitting.iter().zip(&ignored) {
        if *ignored {
            scores.push(None);
            continue;
        }
        let mut score = 0.0;
        for ((c, counts), weight) in constraints.iter().zip(&counts).zip(&weights) {
            if let Some(value) = info.node.label(&c.topology_key) {
                let n = if *c.topology_key == *HOSTNAME {
                    count(info, &c.selector, &pod.namespace)
                } else {
                    counts.get(value).copied().unwrap_or(0)
                };
                score += n as f64 * weight + f64::from(c.max_skew - 1);
            }
        }
        scores.push(Some(libm::round(score) as i64));
    }
    Some(normalize(&scores))
}

/// Fewer pods give a higher score; ignored nodes get 0.
fn normalize(scores: &[Option<i64>]) -> Vec<i64> {
    let min = scores.iter().flatten().copied().min().unwrap_or(i64::MAX);
    let max = scores.iter().flatten().copied().max().unwrap_or(0).max(0);
    let share = |score: &Option<i64>| match score {
        None => 0,
        Some(_) if max == 0 => MAX_SCORE,
        Some(score) => MAX_SCORE * (max + min - score) / max,
    };
    scores.iter().map(share).collect()
}
