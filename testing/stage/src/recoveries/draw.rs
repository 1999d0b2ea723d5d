//! What a run is, drawn from a seed.

use std::fmt;
use std::time::Duration;

use stead_testbed::Faults;

use crate::disturb::Dice;

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
pub(super) enum Deed {
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
    pub(super) deed: Option<(Moment, Deed)>,
    /// What is done to it after that.
    pub(super) then: Option<(Duration, Deed)>,
    /// A second person calls too, so long after the first.
    pub(super) other: Option<Duration>,
    /// Somebody wants to undo it, so long after the first call.
    pub(super) abort: Option<Duration>,
}

impl Draw {
    /// The run of this number.
    pub(super) fn new(dice: &mut Dice, number: u32) -> Draw {
        let trouble = match dice.below(10) {
            0..4 => Trouble::Suspended,
            4..7 => Trouble::PowerLost,
            7 => Trouble::CutOff,
            _ => Trouble::CutOffAndSuspended,
        };
        let turn = u64::from(number % WRITES) + 1;
        let kills = match dice.below(4) {
            0 => Kills::Never,
            1 => Kills::Always,
            _ => Kills::Once(turn),
        };
        let moment = match dice.below(5) {
            // Every write has its turn, in the order of the runs.
            0..3 => Moment::Write(turn),
            _ => Moment::After(dice.up_to(Duration::from_secs(26))),
        };
        let (deed, then) = deeds(trouble, dice);
        let delay = |dice: &mut Dice, most| dice.up_to(Duration::from_secs(most));
        Draw {
            trouble,
            // A machine that was only suspended is not off to such a storage.
            loose: trouble == Trouble::PowerLost && one_in(dice, 2),
            late: one_in(dice, 6),
            early: one_in(dice, 4),
            set: one_in(dice, 2),
            second: one_in(dice, 3),
            pinned: one_in(dice, 3),
            foreign: one_in(dice, 3),
            api: [Api::Fine, Api::Slow, Api::Failing, Api::Stale, Api::Bad][dice.below(5) as usize],
            kills,
            deed: deed.map(|deed| (moment, deed)),
            then: then.map(|deed| (Duration::from_secs(1) + delay(dice, 11), deed)),
            other: one_in(dice, 3).then(|| delay(dice, 6)),
            abort: one_in(dice, 6).then(|| delay(dice, 25)),
        }
    }
}

fn one_in(dice: &mut Dice, many: u32) -> bool {
    dice.below(many) == 0
}

/// What is done to the machine in the middle of it, and after that.
fn deeds(trouble: Trouble, dice: &mut Dice) -> (Option<Deed>, Option<Deed>) {
    let all: &[(Option<Deed>, Option<Deed>)] = match trouble {
        Trouble::Suspended => &[
            (None, None),
            (Some(Deed::Resume), None),
            (Some(Deed::Resume), None),
            (Some(Deed::Resume), Some(Deed::Suspend)),
            (Some(Deed::Resume), Some(Deed::CutOff)),
            (Some(Deed::Boot), None),
            (Some(Deed::PowerOff), Some(Deed::Boot)),
        ],
        Trouble::PowerLost => &[
            (None, None),
            (Some(Deed::Boot), None),
            (Some(Deed::Boot), Some(Deed::PowerOff)),
            (Some(Deed::Boot), Some(Deed::CutOff)),
        ],
        Trouble::CutOff => &[(None, None), (Some(Deed::Rejoin), None)],
        Trouble::CutOffAndSuspended => &[
            (None, None),
            (Some(Deed::Resume), None),
            (Some(Deed::Resume), Some(Deed::Rejoin)),
            (Some(Deed::Rejoin), Some(Deed::Resume)),
            (Some(Deed::Boot), Some(Deed::Rejoin)),
        ],
    };
    all[dice.below(all.len() as u32) as usize]
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
        if let Some((moment, deed)) = &self.deed {
            match moment {
                Moment::Write(number) => write!(f, ", {deed:?} after write {number}")?,
                Moment::After(time) => write!(f, ", {deed:?} after {:.1} s", time.as_secs_f64())?,
            }
        }
        if let Some((time, deed)) = &self.then {
            write!(f, ", {:.1} s later {deed:?}", time.as_secs_f64())?;
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
        let draw = |number| Draw::new(&mut Dice(7 * 1_000_003 + u64::from(number)), number);
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
