//! What happens in a run, drawn from a seed.

use std::fmt;
use std::time::Duration;

use stead_testbed::Faults;

use crate::disturb::SeededRandom;

/// The number of writes after which something can happen: more than a recovery makes.
const MAX_WRITES: u32 = 14;

/// How the machine fails first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InitialFault {
    /// The machine is suspended, possibly during a write.
    Suspended,
    /// The machine loses power.
    PowerLost,
    /// The machine is disconnected and keeps writing: nobody can truthfully confirm that it is off.
    Disconnected,
    /// The machine is disconnected and keeps writing, and is then suspended.
    DisconnectedAndSuspended,
}

/// An action on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MachineAction {
    Suspend,
    Resume,
    PowerOff,
    /// Boots the machine in any state; powers it off before if necessary.
    Boot,
    Disconnect,
    Reconnect,
}

/// When an action is performed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Immediately after this write of the first person.
    Write(u64),
    /// This long after the first call.
    After(Duration),
}

/// After which writes the call of the first person is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kills {
    Never,
    /// After the write with this number.
    Once(u64),
    /// After every write.
    Always,
}

impl Kills {
    pub(super) fn after(self, write: u64) -> bool {
        self == Kills::Always || self == Kills::Once(write)
    }
}

/// The faults of the API for those who run `stead recover`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApiFaults {
    None,
    Slow,
    Failing,
    Stale,
    /// All of these.
    All,
}

impl ApiFaults {
    pub(super) fn faults(self) -> Faults {
        let slow = Faults { delay: 0.5, delay_up_to: Duration::from_millis(700), ..Faults::default() };
        let failing = Faults { conflict: 0.1, too_many: 0.02, internal: 0.02, lost_answer: 0.1, ..Faults::default() };
        let stale = Faults { stale: 0.4, stale_by: Duration::from_secs(6), ..Faults::default() };
        match self {
            ApiFaults::None => Faults::default(),
            ApiFaults::Slow => slow,
            ApiFaults::Failing => failing,
            ApiFaults::Stale => stale,
            ApiFaults::All => {
                Faults { delay: 0.2, delay_up_to: slow.delay_up_to, stale: 0.2, stale_by: stale.stale_by, ..failing }
            }
        }
    }
}

/// What happens in a run.
#[derive(Debug, Clone)]
pub(super) struct RunSpec {
    pub(super) initial_fault: InitialFault,
    /// Detaching a disk does not revoke the machine's access: with two writers both would write.
    pub(super) detach_does_not_revoke: bool,
    /// The first call is made only when the pods are Terminating.
    pub(super) late_call: bool,
    /// There is a call before the node is unreachable.
    pub(super) early_call: bool,
    /// The first writer belongs to a StatefulSet, otherwise to a Deployment.
    pub(super) stateful_set: bool,
    /// There is a second writer, of the other kind.
    pub(super) second_writer: bool,
    /// There is a writer that cannot run on another node.
    pub(super) pinned_writer: bool,
    /// The node has a taint that does not belong to Stead.
    pub(super) foreign_taint: bool,
    pub(super) api: ApiFaults,
    pub(super) kills: Kills,
    /// An action on the machine during the recovery.
    pub(super) action: Option<(Moment, MachineAction)>,
    /// A second action, this long after the first.
    pub(super) then: Option<(Duration, MachineAction)>,
    /// A second person calls this long after the first.
    pub(super) second_call: Option<Duration>,
    /// A third person calls with `--abort` this long after the first.
    pub(super) abort: Option<Duration>,
}

impl RunSpec {
    /// Draws the run with this number.
    pub(super) fn draw(random: &mut SeededRandom, number: u32) -> RunSpec {
        let initial_fault = match random.below(10) {
            0..4 => InitialFault::Suspended,
            4..7 => InitialFault::PowerLost,
            7 => InitialFault::Disconnected,
            _ => InitialFault::DisconnectedAndSuspended,
        };
        let write = u64::from(number % MAX_WRITES) + 1;
        let kills = match random.below(4) {
            0 => Kills::Never,
            1 => Kills::Always,
            _ => Kills::Once(write),
        };
        let moment = match random.below(5) {
            // The number of the run determines the write, so that all writes are covered.
            0..3 => Moment::Write(write),
            _ => Moment::After(random.up_to(Duration::from_secs(26))),
        };
        let (action, then) = machine_actions(initial_fault, random);
        let delay = |random: &mut SeededRandom, most| random.up_to(Duration::from_secs(most));
        RunSpec {
            initial_fault,
            detach_does_not_revoke: one_in(random, 3),
            late_call: one_in(random, 6),
            early_call: one_in(random, 4),
            stateful_set: one_in(random, 2),
            second_writer: one_in(random, 3),
            pinned_writer: one_in(random, 3),
            foreign_taint: one_in(random, 3),
            api: [ApiFaults::None, ApiFaults::Slow, ApiFaults::Failing, ApiFaults::Stale, ApiFaults::All]
                [random.below(5) as usize],
            kills,
            action: action.map(|action| (moment, action)),
            then: then.map(|action| (Duration::from_secs(1) + delay(random, 11), action)),
            second_call: one_in(random, 3).then(|| delay(random, 6)),
            abort: one_in(random, 6).then(|| delay(random, 25)),
        }
    }
}

fn one_in(random: &mut SeededRandom, many: u32) -> bool {
    random.below(many) == 0
}

/// Draws the first and the second action on the machine.
fn machine_actions(
    initial_fault: InitialFault,
    random: &mut SeededRandom,
) -> (Option<MachineAction>, Option<MachineAction>) {
    let all: &[(Option<MachineAction>, Option<MachineAction>)] = match initial_fault {
        InitialFault::Suspended => &[
            (None, None),
            (Some(MachineAction::Resume), None),
            (Some(MachineAction::Resume), None),
            (Some(MachineAction::Resume), Some(MachineAction::Suspend)),
            (Some(MachineAction::Resume), Some(MachineAction::Disconnect)),
            (Some(MachineAction::Boot), None),
            (Some(MachineAction::PowerOff), Some(MachineAction::Boot)),
        ],
        InitialFault::PowerLost => &[
            (None, None),
            (Some(MachineAction::Boot), None),
            (Some(MachineAction::Boot), Some(MachineAction::PowerOff)),
            (Some(MachineAction::Boot), Some(MachineAction::Disconnect)),
        ],
        InitialFault::Disconnected => &[(None, None), (Some(MachineAction::Reconnect), None)],
        InitialFault::DisconnectedAndSuspended => &[
            (None, None),
            (Some(MachineAction::Resume), None),
            (Some(MachineAction::Resume), Some(MachineAction::Reconnect)),
            (Some(MachineAction::Reconnect), Some(MachineAction::Resume)),
            (Some(MachineAction::Boot), Some(MachineAction::Reconnect)),
        ],
    };
    all[random.below(all.len() as u32) as usize]
}

impl fmt::Display for RunSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{}", self.initial_fault, if self.late_call { " for long" } else { "" })?;
        if self.detach_does_not_revoke {
            write!(f, ", detach does not revoke")?;
        }
        write!(f, ", {}", if self.stateful_set { "StatefulSet" } else { "Deployment" })?;
        let extras = [
            (self.second_writer, "a second writer"),
            (self.pinned_writer, "a pinned writer"),
            (self.foreign_taint, "a foreign taint"),
        ];
        for (_, what) in extras.iter().filter(|(present, _)| *present) {
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
        write!(f, "; API faults: {:?}", self.api)?;
        match self.kills {
            Kills::Never => {}
            Kills::Once(write) => write!(f, ", killed after write {write}")?,
            Kills::Always => write!(f, ", killed after each write")?,
        }
        let calls = [
            (self.early_call, "called early"),
            (self.second_call.is_some(), "two calls at the same time"),
            (self.abort.is_some(), "--abort"),
        ];
        for (_, what) in calls.iter().filter(|(present, _)| *present) {
            write!(f, ", {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_determines_the_run_and_all_kinds_are_drawn() {
        let draw = |number| RunSpec::draw(&mut SeededRandom(7 * 1_000_003 + u64::from(number)), number);
        assert_eq!(format!("{:?}", draw(3)), format!("{:?}", draw(3)));
        let all: Vec<RunSpec> = (0..300).map(draw).collect();
        for initial_fault in [
            InitialFault::Suspended,
            InitialFault::PowerLost,
            InitialFault::Disconnected,
            InitialFault::DisconnectedAndSuspended,
        ] {
            assert!(all.iter().any(|draw| draw.initial_fault == initial_fault), "{initial_fault:?}");
        }
        // Some run is killed after each of the first writes.
        for write in 1..=12 {
            assert!(all.iter().any(|draw| draw.kills.after(write) && draw.kills != Kills::Always), "{write}");
        }
    }
}
