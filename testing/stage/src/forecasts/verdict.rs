//! Compares a forecast with what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::situation::{Situation, WAYS};

/// What came of a situation.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// The situation.
    pub situation: Situation,
    /// The moment of which the answer tells.
    pub as_of: Timestamp,
    /// How long after the node fell silent, or the update, that was.
    pub after: Duration,
    /// When the pod should be Ready; none for never.
    pub foreseen: Option<Timestamp>,
    /// Where it should be.
    pub nodes: BTreeSet<String>,
    /// When it was Ready, and where.
    pub came: Option<(Timestamp, String)>,
    /// How long it took from the answer until the way was taken.
    pub typing: Duration,
    /// How late the machine itself was at worst since the answer.
    pub late: Duration,
    /// The forecast, as it was given.
    pub said: String,
}

/// From here on it is worth a word that something is late.
const LATE: Duration = Duration::from_secs(1);

/// How good a forecast was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It came when it should, or never as it should.
    Right,
    /// It came later than it should, by no more than the machine itself was late. It is not right, but no fault either.
    Late,
    /// It came too early or too late, or not while somebody looked.
    Off,
    /// It came though it never should.
    NeverWrong,
    /// It came to a node that was not named.
    Elsewhere,
}

impl Seen {
    /// How good the forecast was, if it may be so far off.
    pub fn verdict(&self, limit: Duration) -> Verdict {
        match (self.foreseen, &self.came) {
            (None, None) => Verdict::Right,
            (None, Some(_)) => Verdict::NeverWrong,
            (Some(_), Some((_, node))) if !self.nodes.contains(node) => Verdict::Elsewhere,
            (Some(foreseen), Some((came, _))) => self.nearness(came.duration_since(foreseen), limit),
            (Some(_), None) => Verdict::Off,
        }
    }

    /// What to think of one that came so much later than was foreseen. Who took the way late got it late.
    fn nearness(&self, apart: SignedDuration, limit: Duration) -> Verdict {
        match apart.unsigned_abs() {
            early if apart.is_negative() && early > limit => Verdict::Off,
            apart if apart <= limit + self.typing => Verdict::Right,
            apart if apart <= limit + self.typing + self.late => Verdict::Late,
            _ => Verdict::Off,
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: SignedDuration| format!("{:.1} s", time.as_secs_f64());
        let from = |at: Option<Timestamp>| at.map_or("never".to_owned(), |at| seconds(at.duration_since(self.as_of)));
        let came = self.came.as_ref().map(|(at, _)| *at);
        write!(
            f,
            "{:3} {:17} foreseen {:>8}  came {:>8}",
            self.situation.number,
            self.situation.way,
            from(self.foreseen),
            from(came)
        )?;
        match self.foreseen.zip(came) {
            Some((foreseen, came)) => write!(f, "  off {:>7}", seconds(came.duration_since(foreseen)))?,
            None => write!(f, "             ")?,
        }
        for (what, time) in [("typed after", self.typing), ("machine late by", self.late)] {
            if time >= LATE {
                write!(f, "  {what} {:.1} s", time.as_secs_f64())?;
            }
        }
        write!(f, "  {} after {:.0} s", self.situation, self.after.as_secs_f64())?;
        match &self.came {
            Some((_, node)) if self.nodes.contains(node) => write!(f, "; on {node}, one of {}", self.nodes.len()),
            Some((_, node)) => write!(f, "; on {node}, not one of {:?}", self.nodes),
            None => Ok(()),
        }
    }
}

/// The verdicts by way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<&'static str, Vec<Verdict>>);

/// Of a hundred forecasts so many have to be right.
const RIGHT_OF_100: usize = 95;

impl Tally {
    /// Counts one in.
    pub fn add(&mut self, way: &'static str, verdict: Verdict) {
        self.0.entry(way).or_default().push(verdict);
    }

    /// How many there are of a kind, of all.
    pub fn count(&self, verdict: Verdict) -> (usize, usize) {
        let all = || self.0.values().flatten();
        (all().filter(|v| **v == verdict).count(), all().count())
    }

    /// Whether enough are right, and none is wrong that must not be.
    pub fn is_good(&self) -> bool {
        let (right, all) = self.count(Verdict::Right);
        let bad = self.count(Verdict::NeverWrong).0 + self.count(Verdict::Elsewhere).0;
        all > 0 && right * 100 >= all * RIGHT_OF_100 && bad == 0
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for way in WAYS {
            let all = self.0.get(way).map(Vec::as_slice).unwrap_or_default();
            let right = all.iter().filter(|v| **v == Verdict::Right).count();
            writeln!(f, "{way:17} {right:3} of {:3}", all.len())?;
        }
        let (right, all) = self.count(Verdict::Right);
        let (never, elsewhere) = (self.count(Verdict::NeverWrong).0, self.count(Verdict::Elsewhere).0);
        let late = self.count(Verdict::Late).0;
        write!(
            f,
            "{right} of {all} right; as late as the machine: {late}; \"never\" wrong: {never}; on a node that was not \
             named: {elsewhere}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_right() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let verdict = |foreseen: Option<i64>, came: Option<(i64, &str)>, [typing, late]: [u64; 2]| {
            let seen = Seen {
                situation: Situation::draw(1, 0),
                as_of: at(0),
                after: Duration::ZERO,
                foreseen: foreseen.map(at),
                nodes: ["a".to_owned()].into(),
                came: came.map(|(second, node)| (at(second), node.to_owned())),
                typing: Duration::from_secs(typing),
                late: Duration::from_secs(late),
                said: String::new(),
            };
            seen.verdict(Duration::from_secs(3))
        };
        for (foreseen, came, expected) in [
            (None, None, Verdict::Right),
            (None, Some((9, "a")), Verdict::NeverWrong),
            (Some(10), Some((13, "a")), Verdict::Right),
            (Some(10), Some((7, "a")), Verdict::Right),
            (Some(10), Some((14, "a")), Verdict::Off),
            (Some(10), Some((6, "a")), Verdict::Off),
            (Some(10), Some((10, "b")), Verdict::Elsewhere),
            (Some(10), None, Verdict::Off),
        ] {
            assert_eq!(verdict(foreseen, came, [0, 0]), expected, "{foreseen:?} {came:?}");
        }
        // Who typed the command two seconds later gets it two seconds later, and not earlier.
        assert_eq!(verdict(Some(10), Some((15, "a")), [2, 0]), Verdict::Right);
        assert_eq!(verdict(Some(10), Some((16, "a")), [2, 0]), Verdict::Off);
        assert_eq!(verdict(Some(10), Some((6, "a")), [2, 0]), Verdict::Off);
        // What a machine was late by is told apart.
        assert_eq!(verdict(Some(10), Some((16, "a")), [2, 1]), Verdict::Late);
        assert_eq!(verdict(Some(10), Some((17, "a")), [2, 1]), Verdict::Off);
        assert_eq!(verdict(Some(10), Some((6, "a")), [0, 9]), Verdict::Off);
    }

    #[test]
    fn how_many_have_to_be_right() {
        let tally = |right: usize, others: &[Verdict]| {
            let mut tally = Tally::default();
            for verdict in std::iter::repeat_n(Verdict::Right, right).chain(others.iter().copied()) {
                tally.add("do-nothing", verdict);
            }
            tally.is_good()
        };
        assert!(tally(38, &[Verdict::Off; 2]));
        assert!(!tally(37, &[Verdict::Off; 3]));
        assert!(!tally(37, &[Verdict::Late; 3]));
        assert!(!tally(99, &[Verdict::NeverWrong]));
        assert!(!tally(99, &[Verdict::Elsewhere]));
        assert!(!tally(0, &[]));
    }
}
