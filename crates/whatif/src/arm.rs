//! Where a rehearsal is played: the simulation is one place, a real control plane can be another.

use jiff::{SignedDuration, Timestamp};
use stead_kubectl::KubectlCommand;
use stead_sim::{DriverState, Happening, MachineState, Simulation};

use crate::expectation::Expectation;
use crate::kubectl::{CommandError, Manifests, execute};
use crate::play::StepError;
use crate::rehearsal::FailureKind;

/// A cluster in which the steps of a rehearsal are played. Expectations look at it as a simulation in the same state.
pub trait Arm {
    /// The time in the cluster.
    fn now(&self) -> Timestamp;

    /// By how much ages may differ.
    fn age_tolerance(&self) -> SignedDuration {
        SignedDuration::ZERO
    }

    /// Whether it has the components that an expectation is about.
    fn can_judge(&self, _: &Expectation) -> bool {
        true
    }

    /// Executes a command: its line, and what was parsed of it. Gives the lines that kubectl prints.
    fn execute(
        &mut self,
        line: &str,
        command: &KubectlCommand,
        manifests: &Manifests,
    ) -> Result<Vec<String>, CommandError>;

    /// The machine of a node fails in some way, or is back.
    fn set_machine(&mut self, node: &str, failure: Option<FailureKind>) -> Result<(), StepError>;

    /// A storage driver fails with an error, or works again.
    fn set_driver(&mut self, driver: &str, error: Option<&str>) -> Result<(), StepError>;

    /// Lets time pass.
    fn skip(&mut self, duration: SignedDuration) -> Result<(), StepError>;

    /// Checks whether something is so now; the error says what is so instead.
    fn check(&mut self, holds: &mut dyn FnMut(&Simulation) -> Result<(), String>) -> Result<(), StepError>;

    /// Lets time pass until something is so, at most for some time. It is looked at after each change, once in each period,
    /// and at the end.
    fn wait(
        &mut self,
        within: SignedDuration,
        period: SignedDuration,
        holds: &mut dyn FnMut(&Simulation) -> bool,
    ) -> Result<bool, StepError>;

    /// Lets time pass until nothing happens any more, at most for some time. The problem says what is going to happen.
    fn rest(&mut self, within: SignedDuration, problem: &mut String) -> Result<bool, StepError>;

    /// Takes what happened since the last call.
    fn take_journal(&mut self) -> Vec<(Timestamp, Happening)>;
}

impl Arm for Simulation {
    fn now(&self) -> Timestamp {
        Simulation::now(self)
    }

    fn execute(
        &mut self,
        _: &str,
        command: &KubectlCommand,
        manifests: &Manifests,
    ) -> Result<Vec<String>, CommandError> {
        execute(self, command, manifests)
    }

    fn set_machine(&mut self, node: &str, failure: Option<FailureKind>) -> Result<(), StepError> {
        let changed = match failure {
            None => self.heal(node),
            Some(FailureKind::Shutdown) => self.shut_down(node),
            Some(FailureKind::Crash) => self.fail(node, MachineState::Off),
            Some(FailureKind::Suspend) => self.fail(node, MachineState::Suspended),
            Some(FailureKind::Partition) => self.fail(node, MachineState::Partitioned),
            Some(FailureKind::Kubelet) => self.fail(node, MachineState::KubeletStopped),
        };
        changed.map_err(|error| StepError::NotSo(error.to_string()))
    }

    fn set_driver(&mut self, driver: &str, error: Option<&str>) -> Result<(), StepError> {
        let failing = |message: &str| DriverState::Failing { message: message.to_owned(), reschedule: false };
        Simulation::set_driver(self, driver, error.map_or(DriverState::Working, failing));
        Ok(())
    }

    fn skip(&mut self, duration: SignedDuration) -> Result<(), StepError> {
        Ok(self.run_for(duration)?)
    }

    fn check(&mut self, holds: &mut dyn FnMut(&Simulation) -> Result<(), String>) -> Result<(), StepError> {
        holds(self).map_err(StepError::NotSo)
    }

    fn wait(
        &mut self,
        within: SignedDuration,
        period: SignedDuration,
        holds: &mut dyn FnMut(&Simulation) -> bool,
    ) -> Result<bool, StepError> {
        let until = self.now() + within;
        loop {
            let next = (self.now() + period).min(until);
            if self.run_until_holds(next, &mut *holds)? {
                return Ok(true);
            }
            if next == until {
                return Ok(holds(self));
            }
        }
    }

    fn rest(&mut self, within: SignedDuration, problem: &mut String) -> Result<bool, StepError> {
        let until = self.now() + within;
        while let Some(at) = self.next_at() {
            if at > until {
                let next = self.pending().min_by_key(|(_, _, at)| *at);
                *problem =
                    next.map(|(id, _, at)| format!("{} is going to look at {at}", id.component())).unwrap_or_default();
                return Ok(false);
            }
            self.run_step()?;
        }
        Ok(true)
    }

    fn take_journal(&mut self) -> Vec<(Timestamp, Happening)> {
        Simulation::take_journal(self)
    }
}
