//! Which nodes have changed since a cached evaluation last looked.

/// How much of the past is kept; whoever has not looked for longer starts afresh.
const KEPT: usize = 4096;

/// A list of changed slots in the order of the changes, of which the oldest part is forgotten.
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

    /// The present, to ask for what comes after it.
    pub(super) fn now(&self) -> usize {
        self.forgotten + self.slots.len()
    }

    /// The slots that have changed since then, some perhaps more than once; none where that is too long ago to tell.
    pub(super) fn since(&self, then: usize) -> Option<&[u32]> {
        then.checked_sub(self.forgotten).map(|from| &self.slots[from..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_what_came_after_or_that_it_cannot() {
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
