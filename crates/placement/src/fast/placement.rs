//! Where a pod would go.

use std::sync::Arc;

use crate::cluster::Slots;
use crate::verdict::pick;

/// Where a pod would go, as the cluster stands.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    pub(super) slots: &'a Slots,
    /// By slot, 1 where the node fits.
    pub(super) fits: &'a [u8],
    /// By name.
    pub(super) best: &'a [u32],
    pub(super) fitting: usize,
}

impl<'a> Placement<'a> {
    fn name(&self, slot: usize) -> &'a Arc<str> {
        &self.slots[slot].as_ref().expect("a slot that fits holds a node").node.name
    }

    /// Whether some node takes the pod as things are.
    pub fn fits(&self) -> bool {
        self.fitting > 0
    }

    /// How many nodes take it.
    pub fn fitting(&self) -> usize {
        self.fitting
    }

    /// The nodes that take it, in no particular order.
    pub fn feasible(&self) -> impl Iterator<Item = &'a Arc<str>> {
        let fitting = self.fits.iter().enumerate().filter(|(_, fits)| **fits != 0);
        fitting.map(|(slot, _)| self.name(slot))
    }

    /// The nodes with the highest score, by name: kube-scheduler takes any of them.
    pub fn best(&self) -> impl ExactSizeIterator<Item = &'a Arc<str>> {
        self.best.iter().map(|slot| self.name(*slot as usize))
    }

    /// One of the best nodes, the same one for the same seed.
    pub fn choose(&self, seed: u64) -> Option<&'a Arc<str>> {
        (!self.best.is_empty()).then(|| self.name(self.best[pick(self.best.len(), seed)] as usize))
    }
}
