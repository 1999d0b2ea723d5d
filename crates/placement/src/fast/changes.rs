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
