//! A run, drawn from a seed.

use std::fmt;
use std::time::Duration;

use stead_testbed::Faults;

use crate::disturb::SeededRandom;

/// So many writes have numbers of their own: a recovery with all its ends makes fewer.
const WRITES: u32 = 14;

/// What befalls the machine at first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It is suspended, in the middle of a write perhaps.
    Suspended,
    /// It loses its power.
    PowerLost,
    /// It is cut off and writes on: nobody can truly say that it is off.
    CutOff,
    /// It is cut off and writes on, and then it is suspended.
    CutOffAndSuspended,
}

/// What is done to the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MachineAction {
    Suspend,
    Resume,
    PowerOff,
    /// It is started anew, whatever it was.
    Boot,
    CutOff,
    Rejoin,
}

/// When that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Right after so many writes of the first person.
    Write(u64),
    /// So long after the first call.
    After(Duration),
}

/// How often the first person is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kills {
    Never,
    /// After this write.
    Once(u64),
    /// After every single write.
    Always,
}

impl Kills {
    pub(super) fn after(self, write: u64) -> bool {
        self == Kills::Always || self == Kills::Once(write)
    }
}

/// How the API is for those who recover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Fine,
    Slow,
    Failing,
    Stale,
    /// All of that.
    Bad,
}

impl Api {
    pub(super) fn faults(self) -> Faults {
        let slow = Faults { delay: 0.5, delay_up_to: Duration::from_millis(700), ..Faults::default() };
        let failing = Faults { conflict: 0.1, too_many: 0.02, internal: 0.02, lost_answer: 0.1, ..Faults::default() };
        let stale = Faults { stale: 0.4, stale_by: Duration::from_secs(6), ..Faults::default() };
        match self {
            Api::Fine => Faults::default(),
            Api::Slow => slow,
            Api::Failing => failing,
            Api::Stale => stale,
            Api::Bad => {
                Faults { delay: 0.2, delay_up_to: slow.delay_up_to, stale: 0.2, stale_by: stale.stale_by, ..failing }
            }
        }
    }
}

/// What a run is.
#[derive(Debug, Clone)]
pub(super) struct Draw {
    pub(super) trouble: Trouble,
    /// The storage cannot take a disk from the machine: two writers would be two.
    pub(super) loose: bool,
    /// The pods are Terminating before anybody calls.
    pub(super) late: bool,
    /// Somebody calls before the node is silent.
    pub(super) early: bool,
    /// The first writer is of a StatefulSet, and else of a Deployment.
    pub(super) set: bool,
    /// There is a second writer, of the other kind.
    pub(super) second: bool,
    /// There is one that fits nowhere else.
    pub(super) pinned: bool,
    /// Somebody has put a taint of their own on the node.
    pub(super) foreign: bool,
    pub(super) api: Api,
    pub(super) kills: Kills,
    /// What is done to the machine in the middle of it.
    pub(super) action: Option<(Moment, MachineAction)>,
    /// What is done to it after that.
    pub(super) then: Option<(Duration, MachineAction)>,
    /// A second person calls too, so long after the first.
    pub(super) other: Option<Duration>,
    /// Somebody wants to undo it, so long after the first call.
    pub(super) abort: Option<Duration>,
}

impl Draw {
    /// The run of this number.
    pub(super) fn new(random: &mut SeededRandom, number: u32) -> Draw {
        let trouble = match random.below(10) {
            0..4 => Trouble::Suspended,
            4..7 => Trouble::PowerLost,
            7 => Trouble::CutOff,
            _ => Trouble::CutOffAndSuspended,
        };
        let turn = u64::from(number % WRITES) + 1;
        let kills = match random.below(4) {
            0 => Kills::Never,
            1 => Kills::Always,
            _ => Kills::Once(turn),
        };
        let moment = match random.below(5) {
            // Every write has its turn, in the order of the runs.
            0..3 => Moment::Write(turn),
            _ => Moment::After(random.up_to(Duration::from_secs(26))),
        };
        let (action, then) = machine_actions(trouble, random);
        let delay = |random: &mut SeededRandom, most| random.up_to(Duration::from_secs(most));
        Draw {
            trouble,
            loose: one_in(random, 3),
            late: one_in(random, 6),
            early: one_in(random, 4),
            set: one_in(random, 2),
            second: one_in(random, 3),
            pinned: one_in(random, 3),
            foreign: one_in(random, 3),
            api: [Api::Fine, Api::Slow, Api::Failing, Api::Stale, Api::Bad][random.below(5) as usize],
            kills,
            action: action.map(|action| (moment, action)),
            then: then.map(|action| (Duration::from_secs(1) + delay(random, 11), action)),
            other: one_in(random, 3).then(|| delay(random, 6)),
            abort: one_in(random, 6).then(|| delay(random, 25)),
        }
    }
}

fn one_in(random: &mut SeededRandom, many: u32) -> bool {
    random.below(many) == 0
}

/// What is done to the machine in the middle of it, and after that.
fn machine_actions(trouble: Trouble, random: &mut SeededRandom) -> (Option<MachineAction>, Option<MachineAction>) {
    let all: &[(Option<MachineAction>, Option<MachineAction>)] = match trouble {
        Trouble::Suspended => &[
            (None, None),
            (Some(MachineAction::Resume), None),
            (Some(MachineAction::Resume), None),
            (Some(MachineAction::Resume), Some(MachineAction::Suspend)),
            (Some(MachineAction::Resume), Some(MachineAction::CutOff)),
            (Some(MachineAction::Boot), None),
            (Some(MachineAction::PowerOff), Some(MachineAction::Boot)),
        ],
        Trouble::PowerLost => &[
            (None, None),
            (Some(MachineAction::Boot), None),
            (Some(MachineAction::Boot), Some(MachineAction::PowerOff)),
            (Some(MachineAction::Boot), Some(MachineAction::CutOff)),
        ],
        Trouble::CutOff => &[(None, None), (Some(MachineAction::Rejoin), None)],
        Trouble::CutOffAndSuspended => &[
            (None, None),
            (Some(MachineAction::Resume), None),
            (Some(MachineAction::Resume), Some(MachineAction::Rejoin)),
            (Some(MachineAction::Rejoin), Some(MachineAction::Resume)),
            (Some(MachineAction::Boot), Some(MachineAction::Rejoin)),
        ],
    };
    all[random.below(all.len() as u32) as usize]
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.trouble, if self.late { " for long" } else { "" })?;
        if self.loose {
            write!(f, ", disks not taken away")?;
        }
        write!(f, ", {}", if self.set { "StatefulSet" } else { "Deployment" })?;
        let there =
            [(self.second, "another"), (self.pinned, "one that is bound to it"), (self.foreign, "a foreign taint")];
        for (_, what) in there.iter().filter(|(there, _)| *there) {
            write!(f, " + {what}")?;
        }
        if let Some((moment, action)) = &self.action {
            match moment {
                Moment::Write(number) => write!(f, ", {action:?} after write {number}")?,
                Moment::After(time) => write!(f, ", {action:?} after {:.1} s", time.as_secs_f64())?,
            }
        }
        if let Some((time, action)) = &self.then {
            write!(f, ", {:.1} s later {action:?}", time.as_secs_f64())?;
        }
        write!(f, "; API {:?}", self.api)?;
        match self.kills {
            Kills::Never => {}
            Kills::Once(write) => write!(f, ", killed after write {write}")?,
            Kills::Always => write!(f, ", killed after each write")?,
        }
        let calls =
            [(self.early, "called early"), (self.other.is_some(), "two at once"), (self.abort.is_some(), "--abort")];
        for (_, what) in calls.iter().filter(|(there, _)| *there) {
            write!(f, ", {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_number_of_a_seed_is_one_run_and_all_kinds_are_drawn() {
        let draw = |number| Draw::new(&mut SeededRandom(7 * 1_000_003 + u64::from(number)), number);
        assert_eq!(format!("{:?}", draw(3)), format!("{:?}", draw(3)));
        let all: Vec<Draw> = (0..300).map(draw).collect();
        for trouble in [Trouble::Suspended, Trouble::PowerLost, Trouble::CutOff, Trouble::CutOffAndSuspended] {
            assert!(all.iter().any(|draw| draw.trouble == trouble), "{trouble:?}");
        }
        // Each of the first writes is one after which somebody is killed.
        for write in 1..=12 {
            assert!(all.iter().any(|draw| draw.kills.after(write) && draw.kills != Kills::Always), "{write}");
        }
    }
}
