//! The fast path: the best nodes for a pod, without visiting other pods.
//!
//! The reference path ([`crate::evaluate`]) runs every plugin on every node and counts all pods each time. Here a
//! [`Cluster`] keeps an index that it updates with each change:
//!
//! - [`columns`]: results of the plugins that depend on one node, as columns by slot, shared by all pods of a class and
//!   computed again only for changed nodes;
//! - [`groups`]: how many pods each selector in use counts on each node;
//! - [`existing_terms`]: the affinity terms of existing pods;
//! - [`topology`]: the nodes' topology labels as numbers.
//!
//! For each pod a few passes over columns remain ([`pass`]). The result is only the feasible and the best nodes;
//! reasons, messages and preemption need the reference path, which also handles pods that the index does not support.

mod changes;
mod classes;
mod columns;
mod existing_terms;
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

use changes::Changes;
use classes::{Classes, Images, NodeRules, Room};
use columns::{ImageColumns, NodeColumns, RoomColumns};
use existing_terms::ExistingTerms;
use groups::Groups;
use pass::Scratch;
pub use placement::Placement;
use topology::Topologies;

/// The index of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Index {
    groups: Groups,
    existing_terms: ExistingTerms,
    topologies: Topologies,
    /// Slots whose node has changed.
    node_changes: Changes,
    /// Slots whose node or pods have changed.
    room_changes: Changes,
    nodes: Classes<NodeRules, NodeColumns>,
    rooms: Classes<Room, RoomColumns>,
    images: Classes<Images, ImageColumns>,
    /// The slots in the order of their nodes' names; none after nodes were added or removed.
    by_name: Option<Arc<[u32]>>,
    scratch: Scratch,
}

impl Index {
    fn new(cluster: &Cluster) -> Index {
        let mut index = Index::default();
        for (slot, info) in cluster.slots.iter().enumerate() {
            for pod in info.iter().flat_map(|info| &info.pods) {
                index.groups.add_pod(slot as u32, pod);
                index.existing_terms.add_pod(slot as u32, pod);
            }
        }
        index
    }

    /// Records that a node was added, changed or removed.
    pub(crate) fn node_changed(&mut self, slot: u32, node: Option<&Node>) {
        self.topologies.node_changed(slot, node);
        self.node_changes.push(slot);
        self.room_changes.push(slot);
        self.by_name = None;
    }

    /// Counts a pod on a node.
    pub(crate) fn add_pod(&mut self, slot: u32, pod: &Pod) {
        self.groups.add_pod(slot, pod);
        self.existing_terms.add_pod(slot, pod);
        self.room_changes.push(slot);
    }

    /// Removes a pod from the counts of a node.
    pub(crate) fn remove_pod(&mut self, slot: u32, pod: &Pod) {
        self.groups.remove_pod(slot, pod);
        self.existing_terms.remove_pod(slot, pod);
        self.room_changes.push(slot);
    }

    fn by_name(&mut self, cluster: &Cluster) -> Arc<[u32]> {
        Arc::clone(self.by_name.get_or_insert_with(|| cluster.slots_by_name().collect()))
    }

    /// Takes the result of the reference path.
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
    /// The feasible and the best nodes for a pod, the same as those of [`evaluate`], at a fraction of the cost. The
    /// first call builds an index, which the cluster then keeps up to date.
    pub fn place(&mut self, pod: &Pod) -> Result<Placement<'_>, Unmodelled> {
        check_modelled(self, pod)?;
        // Taken out meanwhile, so that it can change while the cluster is borrowed.
        let mut index = self.index.take().unwrap_or_else(|| Box::new(Index::new(self)));
        let applies = pod.nominated.is_none() && !self.has_nominated() && self.profile(pod).is_default();
        if !(applies && index.pass(self, pod)) {
            let verdict = evaluate(self, pod)?;
            index.take_over(self, &verdict);
        }
        let index = self.index.insert(index);
        let Scratch { fits, best, fitting, .. } = &index.scratch;
        Ok(Placement { slots: &self.slots, fits, best, fitting: *fitting })
    }
}
