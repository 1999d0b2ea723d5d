//! What was done in a run, and when.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

/// The story of a run, for those who want to know why it failed.
#[derive(Default)]
pub(super) struct Story(Mutex<Vec<(Timestamp, String)>>);

impl Story {
    pub(super) fn tell(&self, what: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((Timestamp::now(), what.into()));
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, what) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            writeln!(f, "{at:.3}  {}", what.trim_end().replace('\n', "\n    "))?;
        }
        Ok(())
    }
}
