//! The moments at which a periodic loop runs.

use jiff::{SignedDuration, Timestamp};

/// Whole periods from a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    /// One of the moments.
    pub(crate) start: Timestamp,
    /// The time from one to the next.
    pub(crate) period: SignedDuration,
}

impl Grid {
    /// The first moment that is not before a time.
    pub(crate) fn at_or_after(self, time: Timestamp) -> Timestamp {
        let last = self.at_or_before(time);
        if last == time { time } else { last + self.period }
    }

    /// The last moment that is not after a time.
    pub(crate) fn at_or_before(self, time: Timestamp) -> Timestamp {
        let (passed, period) = (time.duration_since(self.start).as_nanos(), self.period.as_nanos());
        if period <= 0 {
            return time;
        }
        // The remainder is less than the period, which is a SignedDuration.
        let since = i64::try_from(passed.rem_euclid(period)).unwrap_or_default();
        time - SignedDuration::from_nanos(since)
    }

    /// The first moment after a time.
    pub(crate) fn after(self, time: Timestamp) -> Timestamp {
        self.at_or_before(time) + self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_around_a_time() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let grid = Grid { start: at(102), period: SignedDuration::from_secs(5) };
        for (time, before, from, after) in
            [(102, 102, 102, 107), (103, 102, 107, 107), (106, 102, 107, 107), (101, 97, 102, 102), (97, 97, 97, 102)]
        {
            let found = (grid.at_or_before(at(time)), grid.at_or_after(at(time)), grid.after(at(time)));
            assert_eq!(found, (at(before), at(from), at(after)), "{time}");
        }
    }
}
