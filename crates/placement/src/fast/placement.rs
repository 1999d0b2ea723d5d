//! The feasible and best nodes for a pod.

use std::sync::Arc;

use crate::cluster::Slots;
use crate::verdict::pick;

/// The feasible and best nodes for a pod.
#[derive(Debug, Clone, Copy)]
pub struct Placement<'a> {
    pub(super) slots: &'a Slots,
    /// By slot, 1 if the node is feasible.
    pub(super) fits: &'a [u8],
    /// The best slots, sorted by node name.
    pub(super) best: &'a [u32],
    pub(super) fitting: usize,
}

impl<'a> Placement<'a> {
    fn name(&self, slot: usize) -> &'a Arc<str> {
        &self.slots[slot].as_ref().expect("a slot that fits holds a node").node.name
    }

    /// Whether some node is feasible.
    pub fn fits(&self) -> bool {
        self.fitting > 0
    }

    /// The number of feasible nodes.
    pub fn fitting(&self) -> usize {
        self.fitting
    }

    /// The feasible nodes, in no particular order.
    pub fn feasible(&self) -> impl Iterator<Item = &'a Arc<str>> {
        let fitting = self.fits.iter().enumerate().filter(|(_, fits)| **fits != 0);
        fitting.map(|(slot, _)| self.name(slot))
    }

    /// The nodes with the highest score, sorted by name. kube-scheduler picks one of them at random.
    pub fn best(&self) -> impl ExactSizeIterator<Item = &'a Arc<str>> {
        self.best.iter().map(|slot| self.name(*slot as usize))
    }

    /// The best node at an index, in the order of [`Placement::best`].
    pub fn nth_best(&self, index: usize) -> Option<&'a Arc<str>> {
        self.best.get(index).map(|slot| self.name(*slot as usize))
    }

    /// One of the best nodes, the same one for the same seed.
    pub fn choose(&self, seed: u64) -> Option<&'a Arc<str>> {
        (!self.best.is_empty()).then(|| self.name(self.best[pick(self.best.len(), seed)] as usize))
    }
}
