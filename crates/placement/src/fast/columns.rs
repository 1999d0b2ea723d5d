//! Results of the plugins that depend on one node, as columns by slot, one set for each class of pods.
//!
//! Every value comes from the plugins of the reference path. Only changed nodes are computed again.

use std::sync::Arc;

use super::changes::Changes;
use super::topology::{Topologies, Topology};
use crate::cluster::{Cluster, Slots};
use crate::node::NodeInfo;
use crate::plugins::{fit, images, node};
use crate::pod::PodSpec;
use crate::profile::FitStrategy;

/// Calls `set` for every slot that may have changed since `seen`.
fn refresh(seen: &mut Option<usize>, changes: &Changes, slots: &Slots, mut set: impl FnMut(usize, Option<&NodeInfo>)) {
    let mut visit = |slot: usize| set(slot, slots[slot].as_deref());
    match seen.and_then(|then| changes.since(then)) {
        Some(changed) => changed.iter().for_each(|slot| visit(*slot as usize)),
        None => (0..slots.len()).for_each(visit),
    }
    *seen = Some(changes.now());
}

/// The rules of the node itself: cordon, taints, affinity, features. If the affinity lists names, no other node
/// matches.
#[derive(Debug, Clone, Default)]
pub(super) struct NodeColumns {
    seen: Option<usize>,
    /// 1 if the node passes the filters before those of volumes.
    pub(super) fits: Vec<u8>,
    /// 1 if the node has the features that the pod needs.
    pub(super) features: Vec<u8>,
    /// 1 if the pod's node affinity matches.
    affinity: Vec<u8>,
    /// 1 if the pod tolerates the taints.
    taints: Vec<u8>,
    /// TaintToleration's score, not normalized.
    pub(super) taint_scores: Vec<i64>,
    /// NodeAffinity's score, not normalized.
    pub(super) affinity_scores: Vec<i64>,
    frames: Vec<(FrameKey, Arc<Frame>)>,
}

impl NodeColumns {
    pub(super) fn refresh(&mut self, changes: &Changes, slots: &Slots, spec: &PodSpec) {
        if self.seen == Some(changes.now()) {
            return;
        }
        let len = slots.len();
        for column in [&mut self.fits, &mut self.features, &mut self.affinity, &mut self.taints] {
            column.resize(len, 0);
        }
        self.taint_scores.resize(len, 0);
        self.affinity_scores.resize(len, 0);
        self.frames.clear();
        refresh(&mut self.seen, changes, slots, |slot, info| {
            let Some(NodeInfo { node: n, .. }) = info else {
                self.fits[slot] = 0;
                self.affinity[slot] = 0;
                self.taints[slot] = 0;
                self.taint_scores[slot] = 0;
                return;
            };
            let affinity = node::affinity(spec, n).is_ok();
            let taints = node::untolerated(n, &spec.tolerations).is_none();
            let fits = affinity && taints && node::unschedulable(spec, n).is_ok();
            self.fits[slot] = u8::from(fits);
            self.features[slot] = u8::from(node::features(spec, n).is_ok());
            self.affinity[slot] = u8::from(affinity);
            self.taints[slot] = u8::from(taints);
            self.taint_scores[slot] = node::taint_score(spec, n);
            self.affinity_scores[slot] = node::affinity_score(spec, n).unwrap_or(0);
        });
    }

    /// The nodes of a spread constraint.
    pub(super) fn frame(&mut self, key: FrameKey, topologies: &Topologies) -> Arc<Frame> {
        if let Some((_, frame)) = self.frames.iter().find(|(k, _)| *k == key) {
            return Arc::clone(frame);
        }
        let mut eligible = vec![1; self.fits.len()];
        let mut only = |column: &[u8]| eligible.iter_mut().zip(column).for_each(|(e, c)| *e &= c);
        for key in &key.required {
            only(&topologies[*key].labelled);
        }
        if key.honor_affinity {
            only(&self.affinity);
        }
        if key.honor_taints {
            only(&self.taints);
        }
        let frame = Arc::new(Frame::new(eligible, &topologies[key.topology]));
        if self.frames.len() >= FRAMES {
            self.frames.clear();
        }
        self.frames.push((key, Arc::clone(&frame)));
        frame
    }
}

/// The maximum number of frames for a class.
const FRAMES: usize = 64;

/// What a spread constraint's frame depends on, besides the pod's tolerations and node affinity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrameKey {
    /// The topology keys that a node must have.
    pub(super) required: Vec<usize>,
    /// The topology key of the constraint.
    pub(super) topology: usize,
    pub(super) honor_affinity: bool,
    pub(super) honor_taints: bool,
}

/// The nodes whose pods a spread constraint counts.
#[derive(Debug)]
pub(super) struct Frame {
    /// By slot, 1 if the node counts.
    pub(super) eligible: Vec<u8>,
    /// By domain, whether it has a counted node.
    pub(super) present: Vec<bool>,
    /// The number of such domains.
    pub(super) domains: usize,
}

impl Frame {
    fn new(eligible: Vec<u8>, topology: &Topology) -> Frame {
        let mut present = vec![false; topology.len()];
        for (domain, eligible) in topology.domain.iter().zip(&eligible) {
            present[*domain as usize] |= *eligible != 0;
        }
        let domains = present.iter().filter(|p| **p).count();
        Frame { eligible, present, domains }
    }
}

/// The free ports and resources of a node, and the scores for them.
#[derive(Debug, Clone, Default)]
pub(super) struct RoomColumns {
    seen: Option<usize>,
    /// 1 if ports and resources suffice.
    pub(super) fits: Vec<u8>,
    /// The sum of the scores of NodeResourcesFit and NodeResourcesBalancedAllocation.
    pub(super) scores: Vec<i32>,
}

impl RoomColumns {
    pub(super) fn refresh(&mut self, changes: &Changes, cluster: &Cluster, spec: &PodSpec) {
        let (slots, rules) = (&cluster.slots, cluster.rules());
        self.fits.resize(slots.len(), 0);
        self.scores.resize(slots.len(), 0);
        let balanced = fit::scores_balance(spec, rules);
        refresh(&mut self.seen, changes, slots, |slot, info| {
            let Some(info) = info else {
                self.fits[slot] = 0;
                return;
            };
            self.fits[slot] = u8::from(node::ports(spec, info).is_ok() && fit::filter(spec, info, rules).is_ok());
            let balance = if balanced { fit::balance_score(spec, info, rules) } else { 0 };
            self.scores[slot] = (fit::score(spec, info, FitStrategy::LeastAllocated) + balance) as i32;
        });
    }
}

/// ImageLocality's scores. They depend on the number of nodes and of nodes with the image, so any change affects them.
#[derive(Debug, Clone, Default)]
pub(super) struct ImageColumns {
    seen: Option<usize>,
    /// Empty if all are zero.
    pub(super) scores: Vec<i32>,
}

impl ImageColumns {
    pub(super) fn refresh(&mut self, changes: &Changes, cluster: &Cluster, spec: &PodSpec) {
        if self.seen == Some(changes.now()) {
            return;
        }
        self.seen = Some(changes.now());
        self.scores.clear();
        if spec.images.iter().any(|name| cluster.image(name).is_some()) {
            let score = |info: &NodeInfo| images::score(cluster, spec, &info.node) as i32;
            self.scores.extend(cluster.slots.iter().map(|info| info.as_deref().map_or(0, score)));
        }
    }
}
