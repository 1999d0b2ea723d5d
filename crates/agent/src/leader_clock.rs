//! Tracks how long the leader has observed each condition.
//!
//! The record has times of its writer's clock, and clocks of two machines are never compared. So a new leader starts to
//! count again, with its own monotonic clock.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use stead_pool::Record;

/// The conditions observed in this term of leadership, and since when.
#[derive(Debug)]
pub(crate) struct LeaderClock {
    began: Instant,
    /// The time of day at the start, in seconds: people read the times in the record.
    began_at: u64,
    since: BTreeMap<Condition, u64>,
}

/// A condition that lasts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Condition {
    /// A member is in this state.
    Member(u32, String),
    /// No other member lists a member as a peer.
    Unlisted(u32),
    /// A repair order exists.
    Ordered(u64),
    /// The agent has reported that the order is done.
    Made(u64),
}

impl LeaderClock {
    /// Starts now, with nothing observed.
    pub(crate) fn start() -> LeaderClock {
        let began_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        LeaderClock { began: Instant::now(), began_at, since: BTreeMap::new() }
    }

    /// The time in seconds.
    pub(crate) fn now(&self) -> u64 {
        self.began_at + self.began.elapsed().as_secs()
    }

    /// Returns the record with its times replaced by times of this clock.
    pub(crate) fn adjust(&mut self, mut record: Record, now: u64) -> Record {
        let before = std::mem::take(&mut self.since);
        let mut since = |condition: Condition| {
            let since = before.get(&condition).copied().unwrap_or(now);
            *self.since.entry(condition).or_insert(since)
        };
        for (ordinal, member) in &mut record.members {
            member.since = since(Condition::Member(*ordinal, member.seen.clone()));
            member.unlisted_since = member.unlisted_since.map(|_| since(Condition::Unlisted(*ordinal)));
        }
        if let Some(order) = &mut record.order {
            order.since = since(Condition::Ordered(order.id));
            order.made = order.made.map(|_| since(Condition::Made(order.id)));
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use stead_pool::{Member, Repair, RepairOrder};

    use crate::test_agent::{A, name};

    use super::*;

    /// A record with one member, written by an agent whose clock is far ahead.
    fn record(seen: &str, order: Option<u64>, made: bool) -> Record {
        const AHEAD: u64 = 1 << 40;
        let member = Member { seen: seen.into(), since: AHEAD, ..Member::joined(name("g-0.d"), name(A), 100_000) };
        let order = order.map(|id| RepairOrder {
            id,
            ordinal: 0,
            pod: "uid".into(),
            repair: Repair::Forget,
            since: AHEAD,
            made: made.then_some(AHEAD),
            withdrawn: false,
            volumes: Vec::new(),
            reason: String::new(),
        });
        Record { members: [(0, member)].into(), order, orders: 9 }
    }

    #[test]
    fn times_are_of_the_leaders_clock() {
        let mut clock = LeaderClock::start();
        for (now, seen, order, made, times) in [
            (100, "away", None, false, (100, None, None)),
            (130, "away", Some(1), false, (100, Some(130), None)),
            (140, "here", Some(1), true, (140, Some(130), Some(140))),
            (150, "here", Some(1), true, (140, Some(130), Some(140))),
            (160, "here", Some(2), false, (140, Some(160), None)),
            // A condition that was interrupted starts again.
            (170, "away", None, false, (170, None, None)),
            (180, "away", Some(2), false, (170, Some(180), None)),
        ] {
            let found = clock.adjust(record(seen, order, made), now);
            let order = found.order.as_ref();
            assert_eq!((found.members[&0].since, order.map(|o| o.since), order.and_then(|o| o.made)), times, "{now}");
        }
        let restarted = LeaderClock::start().adjust(record("away", None, false), 200);
        assert_eq!(restarted.members[&0].since, 200);
    }
}
