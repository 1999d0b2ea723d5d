//! The time that has passed since the start, which is all that a lease, a queue or a memory needs to know of it.

use std::time::{Duration, Instant};

/// Counts from its making.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

impl Clock {
    /// A clock that starts now.
    pub fn new() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }
}
