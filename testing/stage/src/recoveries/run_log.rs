//! The log of a run.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

/// What was done in a run, with times. It is printed when the run fails.
#[derive(Default)]
pub(super) struct RunLog(Mutex<Vec<(Timestamp, String)>>);

impl RunLog {
    /// Adds an entry.
    pub(super) fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((Timestamp::now(), what.into()));
    }
}

impl fmt::Display for RunLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, what) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            writeln!(f, "{at:.3}  {}", what.trim_end().replace('\n', "\n    "))?;
        }
        Ok(())
    }
}
