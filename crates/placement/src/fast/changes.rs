//! Which nodes have changed since a cached value was last updated.

/// The number of changes that are kept. A value that is older is computed again from scratch.
const KEPT: usize = 4096;

/// A list of changed slots in the order of the changes, without the oldest ones.
#[derive(Debug, Clone, Default)]
pub(super) struct Changes {
    forgotten: usize,
    slots: Vec<u32>,
}

impl Changes {
    pub(super) fn push(&mut self, slot: u32) {
        if self.slots.len() == 2 * KEPT {
            self.slots.drain(..KEPT);
            self.forgotten += KEPT;
        }
        self.slots.push(slot);
    }

    /// The current position, for a later call of `since`.
    pub(super) fn now(&self) -> usize {
        self.forgotten + self.slots.len()
    }

    /// The slots that have changed since a position, possibly repeated; none if the position is too old.
    pub(super) fn since(&self, then: usize) -> Option<&[u32]> {
        then.checked_sub(self.forgotten).map(|from| &self.slots[from..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_since_a_position() {
        let mut changes = Changes::default();
        let start = changes.now();
        (0..10).for_each(|slot| changes.push(slot));
        assert_eq!(changes.since(start), Some(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9][..]));
        let then = changes.now();
        (0..3 * KEPT as u32).for_each(|slot| changes.push(slot));
        assert_eq!(changes.since(then), None);
        let then = changes.now();
        changes.push(7);
        assert_eq!(changes.since(then), Some(&[7][..]));
        assert_eq!(changes.since(changes.now()), Some(&[][..]));
    }
}
