//! Which object is reconciled next: an ordered queue that is told the time.
//!
//! A key is in the queue at most once, however often it is added. It is never handed out while it is being reconciled: if
//! it is added meanwhile, it waits until that is done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stead_loops::ObjectKey;

/// The first pause after a failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The result of a reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It succeeded; reconcile again after this time, if any.
    Well {
        /// When to reconcile again.
        again: Option<Duration>,
    },
    /// It worked with outdated objects; reconcile again at once.
    Outdated,
    /// It failed; reconcile again after a pause that grows with each failure, and is at least this long.
    Badly {
        /// The pause that the server asked for.
        at_least: Option<Duration>,
    },
}

/// Keys that wait, by when they are due and then by name; and those that are being reconciled.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    order: BTreeSet<(Duration, ObjectKey)>,
    waiting: BTreeMap<ObjectKey, Duration>,
    running: BTreeMap<ObjectKey, Running>,
    failures: BTreeMap<ObjectKey, u32>,
}

#[derive(Debug)]
struct Running {
    since: Duration,
    next: Option<Duration>,
}

impl Queue {
    /// Adds a key that is due at this time; of two times the earlier one applies.
    pub(crate) fn add(&mut self, key: ObjectKey, at: Duration) {
        if let Some(running) = self.running.get_mut(&key) {
            running.next = Some(running.next.map_or(at, |next| next.min(at)));
            return;
        }
        if let Some(earlier) = self.waiting.get(&key).copied() {
            if earlier <= at {
                return;
            }
            self.order.remove(&(earlier, key.clone()));
        }
        self.waiting.insert(key.clone(), at);
        self.order.insert((at, key));
    }

    /// The first key that is due. It counts as being reconciled until [`Queue::end`].
    pub(crate) fn take(&mut self, now: Duration) -> Option<ObjectKey> {
        let (due, _) = self.order.first()?;
        if *due > now {
            return None;
        }
        let (_, key) = self.order.pop_first()?;
        self.waiting.remove(&key);
        self.running.insert(key.clone(), Running { since: now, next: None });
        Some(key)
    }

    /// A reconciliation has ended.
    pub(crate) fn end(&mut self, key: &ObjectKey, now: Duration, ended: Ended) {
        let mut next = self.running.remove(key).and_then(|running| running.next);
        let mut at = |due: Duration| next = Some(next.map_or(due, |next| next.min(due)));
        match ended {
            Ended::Well { again } => {
                self.failures.remove(key);
                if let Some(again) = again {
                    at(now + again);
                }
            }
            Ended::Outdated => at(now),
            Ended::Badly { at_least } => {
                let failures = self.failures.entry(key.clone()).or_default();
                let pause = FIRST_PAUSE.saturating_mul(1 << (*failures).min(16)).min(LONGEST_PAUSE);
                *failures += 1;
                at(now + pause.max(at_least.unwrap_or_default()));
            }
        }
        if let Some(due) = next {
            self.add(key.clone(), due);
        }
    }

    /// When the first waiting key is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        self.order.first().map(|(due, _)| *due)
    }

    /// How many keys wait and are due.
    pub(crate) fn due(&self, now: Duration) -> usize {
        self.order.iter().take_while(|(due, _)| *due <= now).count()
    }

    /// How many keys are being reconciled.
    pub(crate) fn running(&self) -> usize {
        self.running.len()
    }

    /// When the oldest reconciliation in progress began.
    pub(crate) fn oldest_work(&self) -> Option<Duration> {
        self.running.values().map(|r| r.since).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("Topology", "openstack", name)
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    const WELL: Ended = Ended::Well { again: None };

    #[test]
    fn keys_are_ordered_by_time_and_name_and_unique() {
        let mut queue = Queue::default();
        for (name, at) in [("c", 10), ("b", 5), ("a", 5), ("c", 20), ("b", 1), ("a", 5)] {
            queue.add(key(name), ms(at));
        }
        assert_eq!(queue.next_due(), Some(ms(1)));
        let mut order = Vec::new();
        while let Some(k) = queue.take(ms(10)) {
            order.push(k.name);
        }
        assert_eq!(order, ["b", "a", "c"]);
    }

    #[test]
    fn a_key_is_not_handed_out_before_it_is_due() {
        let mut queue = Queue::default();
        queue.add(key("a"), ms(10));
        assert_eq!(queue.take(ms(9)), None);
        assert_eq!(queue.take(ms(10)), Some(key("a")));
    }

    #[test]
    fn a_key_is_reconciled_by_one_worker_at_a_time() {
        let mut queue = Queue::default();
        queue.add(key("a"), ms(0));
        assert_eq!(queue.take(ms(0)), Some(key("a")));
        queue.add(key("a"), ms(1));
        assert_eq!(queue.take(ms(5)), None, "it is being reconciled");
        queue.end(&key("a"), ms(6), WELL);
        assert_eq!(queue.take(ms(6)), Some(key("a")), "it changed meanwhile");
        queue.end(&key("a"), ms(7), WELL);
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn pauses_double_up_to_a_minute_and_are_reset_by_success() {
        let mut queue = Queue::default();
        let mut now = ms(0);
        let mut pauses = Vec::new();
        queue.add(key("a"), now);
        for _ in 0..10 {
            queue.take(now);
            queue.end(&key("a"), now, Ended::Badly { at_least: None });
            let due = queue.next_due().expect("it is tried again");
            pauses.push((due - now).as_millis());
            now = due;
        }
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]);
        queue.take(now);
        queue.end(&key("a"), now, WELL);
        queue.add(key("a"), now);
        queue.take(now);
        queue.end(&key("a"), now, Ended::Badly { at_least: None });
        assert_eq!(queue.next_due(), Some(now + ms(250)));
    }

    #[test]
    fn the_server_may_ask_for_a_longer_pause() {
        let mut queue = Queue::default();
        queue.add(key("a"), ms(0));
        queue.take(ms(0));
        queue.end(&key("a"), ms(0), Ended::Badly { at_least: Some(ms(7000)) });
        assert_eq!(queue.next_due(), Some(ms(7000)));
    }

    #[test]
    fn a_change_replaces_a_later_time() {
        let mut queue = Queue::default();
        queue.add(key("a"), ms(0));
        queue.take(ms(0));
        queue.end(&key("a"), ms(0), Ended::Well { again: Some(ms(60_000)) });
        assert_eq!(queue.next_due(), Some(ms(60_000)));
        queue.add(key("a"), ms(100));
        assert_eq!(queue.take(ms(100)), Some(key("a")));
        assert_eq!(
            queue.next_due(),
            None,
            "the later time is dropped: the loop asks for it again if it still needs it"
        );
    }

    #[test]
    fn an_outdated_key_is_due_at_once() {
        let mut queue = Queue::default();
        queue.add(key("a"), ms(0));
        queue.take(ms(0));
        assert_eq!(queue.oldest_work(), Some(ms(0)));
        queue.end(&key("a"), ms(3), Ended::Outdated);
        assert_eq!((queue.next_due(), queue.running(), queue.due(ms(3))), (Some(ms(3)), 0, 1));
    }
}
