//! Time since the start, which does not jump when the system time is set.

use std::time::{Duration, Instant};

/// Counts from its creation.
#[derive(Debug, Clone, Copy)]
pub struct MonotonicClock {
    start: Instant,
}

impl Default for MonotonicClock {
    fn default() -> MonotonicClock {
        MonotonicClock::new()
    }
}

impl MonotonicClock {
    /// A clock that starts now.
    pub fn new() -> MonotonicClock {
        MonotonicClock { start: Instant::now() }
    }

    /// The time since the start.
    pub fn now(&self) -> Duration {
        self.start.elapsed()
    }
}
