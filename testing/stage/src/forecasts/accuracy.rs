//! Compares a forecast with what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::situation::{OPTIONS, Situation};

/// A forecast, and what happened.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayedForecast {
    /// The situation.
    pub situation: Situation,
    /// The time of the forecast.
    pub as_of: Timestamp,
    /// The time from the trigger to the forecast.
    pub after: Duration,
    /// When the pod is forecast to be Ready; none for never, or if that is unknown.
    pub ready_at: Option<Timestamp>,
    /// Whether the forecast says that it cannot be told.
    pub is_unknown: bool,
    /// The nodes in the forecast.
    pub nodes: BTreeSet<String>,
    /// When the pod was Ready, and its node.
    pub actual: Option<(Timestamp, String)>,
    /// The time from the forecast until the commands of the option were run.
    pub command_delay: Duration,
    /// The longest delay of the machine since the forecast.
    pub machine_delay: Duration,
    /// The forecast as printed by `stead explain`.
    pub forecast_json: String,
}

/// Delays from this on are reported.
const REPORTED_DELAY: Duration = Duration::from_secs(1);

/// The accuracy of a forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accuracy {
    /// The pod was Ready when forecast, or never, as forecast.
    Accurate,
    /// The pod was Ready too late, but not later than the delays of the machine explain.
    DelayedByMachine,
    /// The pod was Ready too early or too late, or not within the observed time.
    Inaccurate,
    /// The forecast says that it cannot be told.
    Unknown,
    /// The pod was Ready, but "never" was forecast.
    UnexpectedlyReady,
    /// The pod was Ready on a node that is not in the forecast.
    WrongNode,
}

impl PlayedForecast {
    /// Returns the accuracy of the forecast, with `max_error` as the maximum error.
    pub fn accuracy(&self, max_error: Duration) -> Accuracy {
        match (self.ready_at, &self.actual) {
            _ if self.is_unknown => Accuracy::Unknown,
            (None, None) => Accuracy::Accurate,
            (None, Some(_)) => Accuracy::UnexpectedlyReady,
            (Some(_), Some((_, node))) if !self.nodes.contains(node) => Accuracy::WrongNode,
            (Some(ready_at), Some((actual, _))) => self.time_accuracy(actual.duration_since(ready_at), max_error),
            (Some(_), None) => Accuracy::Inaccurate,
        }
    }

    /// Returns the accuracy for an error in time. Commands that were run later make the pod Ready later.
    fn time_accuracy(&self, error: SignedDuration, max_error: Duration) -> Accuracy {
        match error.unsigned_abs() {
            early if error.is_negative() && early > max_error => Accuracy::Inaccurate,
            error if error <= max_error + self.command_delay => Accuracy::Accurate,
            error if error <= max_error + self.command_delay + self.machine_delay => Accuracy::DelayedByMachine,
            _ => Accuracy::Inaccurate,
        }
    }
}

impl fmt::Display for PlayedForecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: SignedDuration| format!("{:.1} s", time.as_secs_f64());
        let from = |at: Option<Timestamp>| at.map_or("never".to_owned(), |at| seconds(at.duration_since(self.as_of)));
        let forecast = if self.is_unknown { "unknown".to_owned() } else { from(self.ready_at) };
        let actual = self.actual.as_ref().map(|(at, _)| *at);
        write!(
            f,
            "{:3} {:17} forecast {:>8}  actual {:>8}",
            self.situation.number,
            self.situation.option,
            forecast,
            from(actual)
        )?;
        match self.ready_at.zip(actual) {
            Some((ready_at, actual)) => write!(f, "  error {:>7}", seconds(actual.duration_since(ready_at)))?,
            None => write!(f, "               ")?,
        }
        for (what, time) in [("command delay", self.command_delay), ("machine delay", self.machine_delay)] {
            if time >= REPORTED_DELAY {
                write!(f, "  {what} {:.1} s", time.as_secs_f64())?;
            }
        }
        write!(f, "  {} after {:.0} s", self.situation, self.after.as_secs_f64())?;
        match &self.actual {
            Some((_, node)) if self.nodes.contains(node) => {
                write!(f, "; on {node}, one of {} in the forecast", self.nodes.len())
            }
            Some((_, node)) => write!(f, "; on {node}, not one of {:?}", self.nodes),
            None => Ok(()),
        }
    }
}

/// The accuracies by option.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AccuracyTally(BTreeMap<&'static str, Vec<Accuracy>>);

/// The required percentage of accurate forecasts.
const REQUIRED_PERCENT: usize = 98;

impl AccuracyTally {
    /// Adds a forecast.
    pub fn add(&mut self, option: &'static str, accuracy: Accuracy) {
        self.0.entry(option).or_default().push(accuracy);
    }

    /// Returns the number of forecasts with this accuracy, and the number of all.
    pub fn count(&self, accuracy: Accuracy) -> (usize, usize) {
        let all = || self.0.values().flatten();
        (all().filter(|a| **a == accuracy).count(), all().count())
    }

    /// Whether enough forecasts are accurate, and no forecast has a wrong node or a wrong "never".
    pub fn is_good(&self) -> bool {
        let (accurate, all) = self.count(Accuracy::Accurate);
        let bad = self.count(Accuracy::UnexpectedlyReady).0 + self.count(Accuracy::WrongNode).0;
        all > 0 && accurate * 100 >= all * REQUIRED_PERCENT && bad == 0
    }
}

impl fmt::Display for AccuracyTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for option in OPTIONS {
            let all = self.0.get(option).map(Vec::as_slice).unwrap_or_default();
            let accurate = all.iter().filter(|a| **a == Accuracy::Accurate).count();
            writeln!(f, "{option:17} {accurate:3} of {:3}", all.len())?;
        }
        let (accurate, all) = self.count(Accuracy::Accurate);
        let (never, wrong_node) = (self.count(Accuracy::UnexpectedlyReady).0, self.count(Accuracy::WrongNode).0);
        let (delayed, unknown) = (self.count(Accuracy::DelayedByMachine).0, self.count(Accuracy::Unknown).0);
        write!(
            f,
            "{accurate} of {all} accurate; delayed by the machine: {delayed}; unknown: {unknown}; wrong \"never\": {never}; on a node that is \
             not in the forecast: {wrong_node}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_depends_on_time_node_and_delays() {
        let at = |second| Timestamp::from_second(second).expect("a valid time");
        let accuracy =
            |ready_at: Option<i64>, actual: Option<(i64, &str)>, [command_delay, machine_delay]: [u64; 2]| {
                let played = PlayedForecast {
                    situation: Situation::draw(1, 0),
                    as_of: at(0),
                    after: Duration::ZERO,
                    ready_at: ready_at.map(at),
                    is_unknown: false,
                    nodes: ["a".to_owned()].into(),
                    actual: actual.map(|(second, node)| (at(second), node.to_owned())),
                    command_delay: Duration::from_secs(command_delay),
                    machine_delay: Duration::from_secs(machine_delay),
                    forecast_json: String::new(),
                };
                played.accuracy(Duration::from_secs(3))
            };
        for (ready_at, actual, expected) in [
            (None, None, Accuracy::Accurate),
            (None, Some((9, "a")), Accuracy::UnexpectedlyReady),
            (Some(10), Some((13, "a")), Accuracy::Accurate),
            (Some(10), Some((7, "a")), Accuracy::Accurate),
            (Some(10), Some((14, "a")), Accuracy::Inaccurate),
            (Some(10), Some((6, "a")), Accuracy::Inaccurate),
            (Some(10), Some((10, "b")), Accuracy::WrongNode),
            (Some(10), None, Accuracy::Inaccurate),
        ] {
            assert_eq!(accuracy(ready_at, actual, [0, 0]), expected, "{ready_at:?} {actual:?}");
        }
        // A command that is run two seconds later makes the pod Ready two seconds later, and not earlier.
        assert_eq!(accuracy(Some(10), Some((15, "a")), [2, 0]), Accuracy::Accurate);
        assert_eq!(accuracy(Some(10), Some((16, "a")), [2, 0]), Accuracy::Inaccurate);
        assert_eq!(accuracy(Some(10), Some((6, "a")), [2, 0]), Accuracy::Inaccurate);
        // Delays of the machine are counted separately.
        assert_eq!(accuracy(Some(10), Some((16, "a")), [2, 1]), Accuracy::DelayedByMachine);
        assert_eq!(accuracy(Some(10), Some((17, "a")), [2, 1]), Accuracy::Inaccurate);
        assert_eq!(accuracy(Some(10), Some((6, "a")), [0, 9]), Accuracy::Inaccurate);
    }

    #[test]
    fn required_percentage() {
        let is_good = |accurate: usize, others: &[Accuracy]| {
            let mut tally = AccuracyTally::default();
            for accuracy in std::iter::repeat_n(Accuracy::Accurate, accurate).chain(others.iter().copied()) {
                tally.add("do-nothing", accuracy);
            }
            tally.is_good()
        };
        assert!(is_good(98, &[Accuracy::Inaccurate; 2]));
        assert!(is_good(98, &[Accuracy::Unknown; 2]));
        assert!(!is_good(97, &[Accuracy::Inaccurate; 3]));
        assert!(!is_good(97, &[Accuracy::DelayedByMachine, Accuracy::Unknown, Accuracy::Inaccurate]));
        assert!(!is_good(99, &[Accuracy::UnexpectedlyReady]));
        assert!(!is_good(99, &[Accuracy::WrongNode]));
        assert!(!is_good(0, &[]));
    }
}
