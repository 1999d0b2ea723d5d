//! How a check ended.

use std::process::{ExitCode, ExitStatus};

/// How a check ended that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Everything held.
    Passed,
    /// Something did not hold; the output says what.
    Failed,
    /// A component that the check needs is missing; the output says which.
    Skipped,
}

/// The exit code of a program whose checks were skipped.
const SKIPPED: u8 = 3;

impl Outcome {
    /// Passed or failed.
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
