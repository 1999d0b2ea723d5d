//! The machine of a run, and the history of its actual state.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use jiff::Timestamp;
use stead_machines::{Api, Machines};

use super::run_log::RunLog;
use super::run_spec::MachineAction;

/// Whether the processes of the machine run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    Suspended,
    Off,
}

/// The state of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MachineState {
    power: Power,
    disconnected: bool,
    /// The machine is being booted or resumed: it is not off, but has no heartbeat yet.
    starting: bool,
}

/// The state of a machine at the start of a run.
const HEALTHY: MachineState = MachineState { power: Power::On, disconnected: false, starting: false };

/// A machine that fails and returns. Actions are performed one at a time.
pub(super) struct Machine<'a> {
    machines: &'a Machines,
    pub(super) name: String,
    log: &'a RunLog,
    turn: tokio::sync::Mutex<()>,
    /// The states with the time of their start; the last one is current.
    history: Mutex<Vec<(Timestamp, MachineState)>>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(machines: &'a Machines, name: String, log: &'a RunLog) -> Machine<'a> {
        let history = Mutex::new(vec![(Timestamp::now(), HEALTHY)]);
        Machine { machines, name, log, turn: tokio::sync::Mutex::default(), history }
    }

    fn history(&self) -> MutexGuard<'_, Vec<(Timestamp, MachineState)>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MachineState {
        self.history().last().map_or(HEALTHY, |(_, state)| *state)
    }

    fn set_state(&self, state: MachineState) {
        self.history().push((Timestamp::now(), state));
    }

    /// Whether a person can truthfully confirm that the machine is off.
    pub(super) fn is_off(&self) -> bool {
        self.state().power != Power::On
    }

    /// Whether the machine is powered off, and not only suspended.
    pub(super) fn is_powered_off(&self) -> bool {
        self.state().power == Power::Off
    }

    /// Whether the kubelet sends heartbeats.
    pub(super) fn has_heartbeat(&self) -> bool {
        self.state() == HEALTHY
    }

    /// Whether the kubelet sent heartbeats during all of this time.
    pub(super) fn had_heartbeat(&self, from: Timestamp, to: Timestamp) -> bool {
        let history = self.history();
        let ends = history.iter().skip(1).map(|(end, _)| *end).chain([Timestamp::MAX]);
        history
            .iter()
            .zip(ends)
            .filter(|((begin, _), end)| *begin < to && *end > from)
            .all(|((_, state), _)| *state == HEALTHY)
    }

    /// Performs an action. An action that has no effect in the current state is skipped.
    pub(super) async fn perform(&self, action: MachineAction) -> Result<()> {
        let _turn = self.turn.lock().await;
        let (now, name) = (self.state(), self.name.as_str());
        match action {
            MachineAction::Suspend if now.power == Power::On => {
                self.machines.suspend(name).await?;
                self.set_state(MachineState { power: Power::Suspended, ..now });
            }
            MachineAction::Resume if now.power == Power::Suspended => {
                self.set_state(MachineState { power: Power::On, starting: true, ..now });
                self.machines.resume(name).await?;
                self.set_state(MachineState { power: Power::On, ..now });
            }
            MachineAction::PowerOff if now.power != Power::Off => {
                self.machines.kill(name).await?;
                self.set_state(MachineState { power: Power::Off, ..now });
            }
            MachineAction::Boot => {
                if now.power != Power::Off {
                    self.machines.kill(name).await?;
                }
                self.set_state(MachineState { power: Power::On, starting: true, ..now });
                self.machines.boot(name).await?;
                self.set_state(MachineState { power: Power::On, ..now });
            }
            MachineAction::Disconnect if !now.disconnected => {
                self.machines.cut(&[name], Api::Unreachable).await?;
                self.set_state(MachineState { disconnected: true, ..now });
            }
            MachineAction::Reconnect if now.disconnected => {
                self.machines.rejoin(name).await?;
                self.set_state(MachineState { disconnected: false, ..now });
            }
            _ => return Ok(()),
        }
        self.log.add(format!("{name}: {action:?}"));
        Ok(())
    }

    /// Makes the machine healthy again.
    pub(super) async fn restore(&self) -> Result<()> {
        self.perform(MachineAction::Reconnect).await?;
        match self.state().power {
            Power::On => Ok(()),
            Power::Suspended => self.perform(MachineAction::Resume).await,
            Power::Off => self.perform(MachineAction::Boot).await,
        }
    }
}
