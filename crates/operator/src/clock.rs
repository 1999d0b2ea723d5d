//! The time that has passed since the start, which is all that queue, lease and memory need to know of it.

use std::time::{Duration, Instant};

/// Counts from its making.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn new() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }
}
