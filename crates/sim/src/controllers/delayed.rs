//! Items that wait for a time, as in the delaying work queue of client-go (`AddAfter`).
//!
//! The work queue of the simulation keeps one time for each item: a step for another reason would make it forget a later
//! one. A controller that delays items keeps the time here, and after a step asks for what is left of it.

use jiff::{SignedDuration, Timestamp};
use stead_model::fork::Sorted;

use crate::object::SimKey;

/// The items that wait, each for its earliest time: a later one is dropped, as in client-go.
#[derive(Debug, Clone, Default)]
pub(super) struct Delayed {
    due: Sorted<SimKey, Timestamp>,
}

impl Delayed {
    /// Lets an item wait until a time, unless it waits for an earlier one.
    pub(super) fn add(&mut self, key: &SimKey, at: Timestamp) {
        if self.due.get(key).is_none_or(|due| at < *due) {
            self.due.insert(key.clone(), at);
        }
    }

    /// The item's step begins: a time that has come is done with.
    pub(super) fn begin(&mut self, key: &SimKey, now: Timestamp) {
        if self.due.get(key).is_some_and(|due| *due <= now) {
            self.forget(key);
        }
    }

    /// How long the item has still to wait.
    pub(super) fn left(&self, key: &SimKey, now: Timestamp) -> Option<SignedDuration> {
        self.due.get(key).map(|due| due.duration_since(now).max(SignedDuration::ZERO))
    }

    /// The item does not wait any more.
    pub(super) fn forget(&mut self, key: &SimKey) {
        self.due.remove(|other| other.cmp(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_counts_until_it_has_come() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let key = SimKey::node("a");
        let mut delayed = Delayed::default();
        delayed.add(&key, at(9));
        delayed.add(&key, at(5));
        delayed.add(&key, at(7));
        delayed.begin(&key, at(3));
        assert_eq!(delayed.left(&key, at(3)), Some(SignedDuration::from_secs(2)));
        delayed.begin(&key, at(5));
        assert_eq!(delayed.left(&key, at(5)), None);
    }
}
