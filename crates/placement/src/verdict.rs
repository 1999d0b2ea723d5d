//! The result for one pod.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::pod::PodKey;
use crate::status::{Plugin, Rejection, SchedulingError};

/// kube-scheduler's decision about a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    /// The rejected nodes, with the reasons.
    pub rejected: BTreeMap<Arc<str>, Rejection>,
    /// The feasible nodes, with their scores.
    pub scores: BTreeMap<Arc<str>, NodeScores>,
    /// The nodes with the highest score. kube-scheduler picks one of them at random.
    pub best: Vec<Arc<str>>,
    /// The message of the FailedScheduling event, if no node is feasible.
    pub message: Option<String>,
    /// The nodes that preemption could equally well nominate, if no node is feasible.
    pub nominees: Vec<Nominee>,
    /// Whether the failed attempt takes the nominated node from the pod, if it has one.
    pub clears_nomination: bool,
    /// The error that ended kube-scheduler's attempt.
    pub error: Option<SchedulingError>,
}

/// Why no node is feasible for a pod: a [`Verdict`] without the nodes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Refusal {
    /// The plugins that reject the pod.
    pub plugins: BTreeSet<Plugin>,
    /// The message of the FailedScheduling event; none after an error.
    pub message: Option<String>,
    /// The nodes that preemption could equally well nominate.
    pub nominees: Vec<Nominee>,
    /// Whether the failed attempt takes the nominated node from the pod, if it has one.
    pub clears_nomination: bool,
    /// The error that ended kube-scheduler's attempt.
    pub error: Option<SchedulingError>,
}

/// The scores of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeScores {
    /// The normalized and weighted score of each plugin.
    pub by_plugin: BTreeMap<Plugin, i64>,
    /// The sum of the scores.
    pub total: i64,
}

/// A node that preemption could nominate, with the pods that would be evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nominee {
    /// The node.
    pub node: Arc<str>,
    /// The pods that would be evicted, the most important first.
    pub victims: Vec<PodKey>,
    /// The number of victims that a disruption budget protects.
    pub violations: usize,
}

impl Verdict {
    /// Whether some node is feasible.
    pub fn fits(&self) -> bool {
        !self.scores.is_empty()
    }

    /// The feasible nodes, by name.
    pub fn feasible(&self) -> impl Iterator<Item = &Arc<str>> {
        self.scores.keys()
    }

    /// One of the best nodes, the same one for the same seed.
    pub fn choose(&self, seed: u64) -> Option<&Arc<str>> {
        (!self.best.is_empty()).then(|| &self.best[pick(self.best.len(), seed)])
    }
}

/// An index below `len` that depends only on the seed.
pub(crate) fn pick(len: usize, seed: u64) -> usize {
    // SplitMix64: every bit of the seed affects every bit of the result.
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) % len as u64) as usize
}

/// A pod that uses a feature that is not modelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pod {pod}: {field}: not modelled: {what}")]
pub struct Unmodelled {
    /// The pod.
    pub pod: PodKey,
    /// The field that uses it.
    pub field: String,
    /// The feature.
    pub what: String,
}
