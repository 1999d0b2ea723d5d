//! The result of a check.

use std::process::{ExitCode, ExitStatus};

/// The result of a check that completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything was as expected.
    Passed,
    /// Something was not as expected; the output says what.
    Failed,
    /// A component that the check needs is missing; the output says which.
    Skipped,
}

/// The exit code of a program whose checks were skipped.
const SKIPPED: u8 = 3;

impl Outcome {
    /// Converts from a boolean.
    pub fn passed(passed: bool) -> Outcome {
        if passed { Outcome::Passed } else { Outcome::Failed }
    }
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> ExitCode {
        match outcome {
            Outcome::Passed => ExitCode::SUCCESS,
            Outcome::Failed => ExitCode::FAILURE,
            Outcome::Skipped => ExitCode::from(SKIPPED),
        }
    }
}

impl From<ExitStatus> for Outcome {
    fn from(status: ExitStatus) -> Outcome {
        match status.code() {
            Some(0) => Outcome::Passed,
            Some(code) if code == i32::from(SKIPPED) => Outcome::Skipped,
            _ => Outcome::Failed,
        }
    }
}
