//! The fast path: the nodes that are best for a pod, without a walk over pods.
//!
//! The plain path ([`crate::evaluate`]) asks every plugin about every node and counts every pod anew. Here a
//! [`Cluster`] keeps what these answers are made of and changes it along with itself:
//!
//! - [`columns`]: what a node by itself says of a pod, in columns by slot, shared by all pods that are alike in what
//!   matters there, and asked again only where a node has changed;
//! - [`groups`]: how many pods each selector in use counts on each node;
//! - [`carried`]: the affinity terms of pods that are on nodes;
//! - [`topology`]: the nodes' topology labels as numbers.
//!
//! What is left for each pod are a few passes over columns ([`pass`]). Only the best nodes and those that fit come
//! out; reasons, messages and preemption are the plain path's, and so are pods to which the index does not apply.

mod alike;
mod carried;
mod changes;
mod columns;
mod groups;
mod interpod;
mod label_index;
mod pass;
mod placement;
mod spread;
mod tally;
mod topology;
mod volumes;

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cycle::{check_modelled, evaluate};
use crate::node::Node;
use crate::pod::Pod;
use crate::verdict::{Unmodelled, Verdict};

use alike::{Classes, Images, NodeRules, Room};
use carried::CarriedTerms;
use changes::Changes;
use columns::{ImageColumns, NodeColumns, RoomColumns};
use groups::Groups;
use pass::Scratch;
pub use placement::Placement;
use topology::Topologies;

/// What the fast path keeps of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    groups: Groups,
    carried: CarriedTerms,
    topologies: Topologies,
    /// Slots whose node has changed.
    node_changes: Changes,
    /// Slots whose node or pods have changed.
    room_changes: Changes,
    nodes: Classes<NodeRules, NodeColumns>,
    rooms: Classes<Room, RoomColumns>,
    images: Classes<Images, ImageColumns>,
    /// By slot, the node's place in the order of names; none where nodes have come or gone.
    ranks: Option<Arc<[u32]>>,
    scratch: Scratch,
}

impl Index {
    fn new(cluster: &Cluster) -> Index {
        let mut index = Index::default();
        for (slot, info) in cluster.slots.iter().enumerate() {
            for pod in info.iter().flat_map(|info| &info.pods) {
                index.groups.pod_came(slot as u32, pod);
                index.carried.pod_came(slot as u32, pod);
            }
        }
        index
    }

    /// A node is there with a new state, or has gone.
    pub(crate) fn node_changed(&mut self, slot: u32, node: Option<&Node>) {
        self.topologies.node_changed(slot, node);
        self.node_changes.push(slot);
        self.room_changes.push(slot);
        self.ranks = None;
    }

    /// A pod has come to a node.
    pub(crate) fn pod_came(&mut self, slot: u32, pod: &Pod) {
        self.groups.pod_came(slot, pod);
        self.carried.pod_came(slot, pod);
        self.room_changes.push(slot);
    }

    /// A pod has left a node.
    pub(crate) fn pod_left(&mut self, slot: u32, pod: &Pod) {
        self.groups.pod_left(slot, pod);
        self.carried.pod_left(slot, pod);
        self.room_changes.push(slot);
    }

    fn ranks(&mut self, cluster: &Cluster) -> Arc<[u32]> {
        let ranks = self.ranks.get_or_insert_with(|| {
            let mut ranks = vec![u32::MAX; cluster.slots.len()];
            for (slot, rank) in cluster.slots_by_name().zip(0..) {
                ranks[slot as usize] = rank;
            }
            ranks.into()
        });
        Arc::clone(ranks)
    }

    /// Takes over what the plain path says.
    fn take_over(&mut self, cluster: &Cluster, verdict: &Verdict) {
        let slot = |name: &Arc<str>| cluster.slot_of(name).expect("a verdict is about nodes of the cluster");
        let Scratch { fits, best, fitting, .. } = &mut self.scratch;
        fits.clear();
        fits.resize(cluster.slots.len(), 0);
        for name in verdict.feasible() {
            fits[slot(name) as usize] = 1;
        }
        *fitting = verdict.scores.len();
        best.clear();
        best.extend(verdict.best.iter().map(slot));
    }
}

impl Cluster {
    /// Where a pod would go: the nodes that fit and the best of them, as [`evaluate`] has them, at a fraction of the
    /// cost. The first call builds an index, which the cluster then keeps up to date.
    pub fn place(&mut self, pod: &Pod) -> Result<Placement<'_>, Unmodelled> {
        check_modelled(self, pod)?;
        // It lies aside meanwhile, so that it can change while the cluster is read.
        let mut index = self.index.take().unwrap_or_else(|| Box::new(Index::new(self)));
        let applies = pod.nominated.is_none() && !self.has_nominated();
        if !(applies && index.pass(self, pod)) {
            let verdict = evaluate(self, pod)?;
            index.take_over(self, &verdict);
        }
        let index = self.index.insert(index);
        let Scratch { fits, best, fitting, .. } = &index.scratch;
        Ok(Placement { slots: &self.slots, fits, best, fitting: *fitting })
    }
}
