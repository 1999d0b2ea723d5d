//! Since when the one who decides has seen things as they are.
//!
//! The record tells times by the clock of whoever wrote it, and clocks of two machines are never compared. So whoever
//! begins to lead counts anew, by a clock of its own that goes as fast whatever the machine's is set to.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use stead_pool::Record;

/// What one has seen for as long as it has led.
#[derive(Debug)]
pub(crate) struct Tenure {
    began: Instant,
    /// The time of day then, in seconds: what is written into the record is read by people too.
    began_at: u64,
    seen: BTreeMap<Thing, u64>,
}

/// Something that lasts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Thing {
    /// A member is seen so.
    Member(u32, String),
    /// No other member lists a member as a peer.
    Unlisted(u32),
    /// An order is there.
    Ordered(u64),
    /// It is known to be carried out.
    Made(u64),
}

impl Tenure {
    /// One that begins now, with nothing seen.
    pub(crate) fn begin() -> Tenure {
        let began_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Tenure { began: Instant::now(), began_at, seen: BTreeMap::new() }
    }

    /// Seconds of its clock.
    pub(crate) fn now(&self) -> u64 {
        self.began_at + self.began.elapsed().as_secs()
    }

    /// The record as it was read at this time, with the times since when it has been so told by this clock.
    pub(crate) fn by_own_clock(&mut self, mut record: Record, now: u64) -> Record {
        let before = std::mem::take(&mut self.seen);
        let mut since = |thing: Thing| {
            let since = before.get(&thing).copied().unwrap_or(now);
            *self.seen.entry(thing).or_insert(since)
        };
        for (ordinal, member) in &mut record.members {
            member.since = since(Thing::Member(*ordinal, member.seen.clone()));
            member.unlisted_since = member.unlisted_since.map(|_| since(Thing::Unlisted(*ordinal)));
        }
        if let Some(order) = &mut record.order {
            order.since = since(Thing::Ordered(order.id));
            order.made = order.made.map(|_| since(Thing::Made(order.id)));
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use stead_pool::{Member, Order, Repair, Standing};

    use crate::stand_in::{A, name};

    use super::*;

    /// A record of one member, written by somebody whose clock is far ahead.
    fn record(seen: &str, order: Option<u64>, made: bool) -> Record {
        const AHEAD: u64 = 1 << 40;
        let member = Member {
            host: name("g-0.d"),
            uuid: name(A),
            operating_version: 100_000,
            addresses: Vec::new(),
            bricks: Vec::new(),
            standing: Standing::Joined,
            seen: seen.into(),
            since: AHEAD,
            unlisted_since: None,
        };
        let order = order.map(|id| Order {
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
    fn times_are_those_of_the_one_who_decides() {
        let mut tenure = Tenure::begin();
        for (now, seen, order, made, times) in [
            (100, "away", None, false, (100, None, None)),
            (130, "away", Some(1), false, (100, Some(130), None)),
            (140, "here", Some(1), true, (140, Some(130), Some(140))),
            (150, "here", Some(1), true, (140, Some(130), Some(140))),
            (160, "here", Some(2), false, (140, Some(160), None)),
            // What was otherwise meanwhile begins anew.
            (170, "away", None, false, (170, None, None)),
            (180, "away", Some(2), false, (170, Some(180), None)),
        ] {
            let found = tenure.by_own_clock(record(seen, order, made), now);
            let order = found.order.as_ref();
            assert_eq!((found.members[&0].since, order.map(|o| o.since), order.and_then(|o| o.made)), times, "{now}");
        }
        let anew = Tenure::begin().by_own_clock(record("away", None, false), 200);
        assert_eq!(anew.members[&0].since, 200);
    }
}
