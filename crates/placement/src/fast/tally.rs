//! Counts by node.

/// The counts that are not zero, by slot. The pods of one application run on few of a cluster's nodes, so this is a
/// short list, not a column as long as the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Sorted by slot.
    counts: Vec<(u32, u32)>,
}

impl Tally {
    /// Slots with their counts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, u32)> {
        self.counts.iter().map(|(slot, n)| (*slot as usize, *n))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(super) fn add(&mut self, slot: u32, n: u32) {
        match self.counts.binary_search_by_key(&slot, |(s, _)| *s) {
            Ok(at) => self.counts[at].1 += n,
            Err(at) => self.counts.insert(at, (slot, n)),
        }
    }

    pub(super) fn remove_one(&mut self, slot: u32) {
        let at = self.counts.binary_search_by_key(&slot, |(s, _)| *s).expect("what leaves was counted");
        self.counts[at].1 -= 1;
        if self.counts[at].1 == 0 {
            self.counts.remove(at);
        }
    }

    pub(super) fn add_all(&mut self, other: &Tally) {
        for (slot, n) in &other.counts {
            self.add(*slot, *n);
        }
    }
}
