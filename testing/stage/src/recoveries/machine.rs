//! The machine of a run, and its true state at each moment.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use jiff::Timestamp;
use stead_machines::{Api, Machines};

use super::draw::MachineAction;
use super::story::Story;

/// What its processes do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    Suspended,
    Off,
}

/// How it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Standing {
    power: Power,
    cut_off: bool,
    /// It is being started or resumed: nobody may say that it is off, and nothing is heard of it.
    waking: bool,
}

/// As a machine is in the beginning.
const WELL: Standing = Standing { power: Power::On, cut_off: false, waking: false };

/// A machine to which things are done, one at a time.
pub(super) struct Machine<'a> {
    machines: &'a Machines,
    pub(super) name: String,
    story: &'a Story,
    turn: tokio::sync::Mutex<()>,
    /// How it stood from when on, the last being now.
    history: Mutex<Vec<(Timestamp, Standing)>>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(machines: &'a Machines, name: String, story: &'a Story) -> Machine<'a> {
        let history = Mutex::new(vec![(Timestamp::now(), WELL)]);
        Machine { machines, name, story, turn: tokio::sync::Mutex::default(), history }
    }

    fn history(&self) -> MutexGuard<'_, Vec<(Timestamp, Standing)>> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn standing(&self) -> Standing {
        self.history().last().map_or(WELL, |(_, standing)| *standing)
    }

    fn stands(&self, standing: Standing) {
        self.history().push((Timestamp::now(), standing));
    }

    /// Whether somebody who has a look can truly say that it is off.
    pub(super) fn is_off(&self) -> bool {
        self.standing().power != Power::On
    }

    /// Whether it is powered off, and not only suspended.
    pub(super) fn is_powered_off(&self) -> bool {
        self.standing().power == Power::Off
    }

    /// Whether its kubelet is heard of.
    pub(super) fn is_heard(&self) -> bool {
        self.standing() == WELL
    }

    /// Whether its kubelet was heard of for all of this time.
    pub(super) fn was_heard(&self, from: Timestamp, to: Timestamp) -> bool {
        let history = self.history();
        let ends = history.iter().skip(1).map(|(end, _)| *end).chain([Timestamp::MAX]);
        history
            .iter()
            .zip(ends)
            .filter(|((begin, _), end)| *begin < to && *end > from)
            .all(|((_, standing), _)| *standing == WELL)
    }

    /// Does it; what is so already, or cannot be, is left out.
    pub(super) async fn does(&self, action: MachineAction) -> Result<()> {
        let _turn = self.turn.lock().await;
        let (now, name) = (self.standing(), self.name.as_str());
        match action {
            MachineAction::Suspend if now.power == Power::On => {
                self.machines.silence(name).await?;
                self.stands(Standing { power: Power::Suspended, ..now });
            }
            MachineAction::Resume if now.power == Power::Suspended => {
                self.stands(Standing { power: Power::On, waking: true, ..now });
                self.machines.resume(name).await?;
                self.stands(Standing { power: Power::On, ..now });
            }
            MachineAction::PowerOff if now.power != Power::Off => {
                self.machines.kill(name).await?;
                self.stands(Standing { power: Power::Off, ..now });
            }
            MachineAction::Boot => {
                if now.power != Power::Off {
                    self.machines.kill(name).await?;
                }
                self.stands(Standing { power: Power::On, waking: true, ..now });
                self.machines.boot(name).await?;
                self.stands(Standing { power: Power::On, ..now });
            }
            MachineAction::CutOff if !now.cut_off => {
                self.machines.cut(&[name], Api::Unreachable).await?;
                self.stands(Standing { cut_off: true, ..now });
            }
            MachineAction::Rejoin if now.cut_off => {
                self.machines.rejoin(name).await?;
                self.stands(Standing { cut_off: false, ..now });
            }
            _ => return Ok(()),
        }
        self.story.tell(format!("{name}: {action:?}"));
        Ok(())
    }

    /// All is well with it again.
    pub(super) async fn comes_back(&self) -> Result<()> {
        self.does(MachineAction::Rejoin).await?;
        match self.standing().power {
            Power::On => Ok(()),
            Power::Suspended => self.does(MachineAction::Resume).await,
            Power::Off => self.does(MachineAction::Boot).await,
        }
    }
}
