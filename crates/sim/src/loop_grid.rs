//! The moments at which a periodic loop of a controller runs.

use jiff::{SignedDuration, Timestamp};

/// Whole periods from the start of a controller. A loop that has nothing to do is not run, so only the moments at which it
/// would do something count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LoopGrid {
    start: Option<Timestamp>,
}

impl LoopGrid {
    /// Starts the loop, unless it has started.
    pub(crate) fn start(&mut self, now: Timestamp) {
        self.start.get_or_insert(now);
    }

    /// The first moment after a time; the time itself if there is no period.
    pub(crate) fn after(&self, at: Timestamp, period: SignedDuration) -> Timestamp {
        let (start, period) = (self.start.unwrap_or(at), period.as_nanos());
        if period <= 0 {
            return at;
        }
        let next = at.duration_since(start).as_nanos().div_euclid(period).saturating_add(1).saturating_mul(period);
        let next = SignedDuration::from_nanos(i64::try_from(next).unwrap_or(i64::MAX));
        start.checked_add(next).unwrap_or(Timestamp::MAX)
    }

    /// How long [`crate::step::Wakes::after`] has to wait so that the item is looked at in the first moment after the
    /// change has arrived.
    pub(crate) fn wait(&self, now: Timestamp, reaction: SignedDuration, period: SignedDuration) -> SignedDuration {
        let arrival = now + reaction;
        self.after(arrival, period).duration_since(arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_whole_periods_from_the_start() {
        let at = |millis: i64| Timestamp::from_millisecond(millis).expect("a time");
        let millis = SignedDuration::from_millis;
        let mut grid = LoopGrid::default();
        grid.start(at(1_030));
        grid.start(at(9_999));
        for (time, next) in [(1_000, 1_030), (1_030, 1_130), (1_129, 1_130), (1_130, 1_230), (1_131, 1_230)] {
            assert_eq!(grid.after(at(time), millis(100)), at(next), "{time}");
        }
        assert_eq!(grid.after(at(7), SignedDuration::ZERO), at(7));
        assert_eq!(grid.wait(at(1_100), millis(2), millis(100)), millis(28));
    }
}
