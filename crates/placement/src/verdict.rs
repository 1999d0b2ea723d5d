//! The answer about one pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::pod::PodKey;
use crate::status::{Plugin, Rejection, SchedulingError};

/// What kube-scheduler would say of a pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    /// The nodes that do not take it, and why.
    pub rejected: BTreeMap<Arc<str>, Rejection>,
    /// The nodes that fit, with their scores.
    pub scores: BTreeMap<Arc<str>, NodeScores>,
    /// The nodes with the highest score: kube-scheduler takes any of them.
    pub best: Vec<Arc<str>>,
    /// Where nothing fits, what the FailedScheduling event says.
    pub message: Option<String>,
    /// Where nothing fits but preemption would clear a node: the nodes that are equally good for that.
    pub nominees: Vec<Nominee>,
    /// The error that ended kube-scheduler's attempt.
    pub error: Option<SchedulingError>,
}

/// The scores of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeScores {
    /// By plugin, normalized and weighted.
    pub by_plugin: BTreeMap<Plugin, i64>,
    /// Their sum.
    pub total: i64,
}

/// A node that preemption would clear, and the pods that would have to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nominee {
    /// The node.
    pub node: Arc<str>,
    /// The pods that would be evicted, the most important first.
    pub victims: Vec<PodKey>,
    /// How many of them a disruption budget protects.
    pub violations: usize,
}

impl Verdict {
    /// Whether some node takes the pod as things are.
    pub fn fits(&self) -> bool {
        !self.scores.is_empty()
    }

    /// The nodes that fit, by name.
    pub fn feasible(&self) -> impl Iterator<Item = &Arc<str>> {
        self.scores.keys()
    }

    /// One of the best nodes, the same one for the same seed.
    pub fn choose(&self, seed: u64) -> Option<&Arc<str>> {
        (!self.best.is_empty()).then(|| &self.best[pick(self.best.len(), seed)])
    }
}

/// An index below `len`, by the seed alone.
pub(crate) fn pick(len: usize, seed: u64) -> usize {
    // SplitMix64: every bit of the seed reaches every bit of the result.
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) % len as u64) as usize
}

/// A pod that asks for what is not modelled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("pod {pod}: {field}: not modelled: {what}")]
pub struct Unmodelled {
    /// The pod.
    pub pod: PodKey,
    /// The field that asks for it.
    pub field: String,
    /// What it asks for.
    pub what: String,
}
