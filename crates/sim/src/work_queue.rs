//! What controllers have to look at, by virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use jiff::{SignedDuration, Timestamp};

use crate::controllers::ControllerId;
use crate::step::Item;

/// Work of one controller.
type Work = (ControllerId, Item);

/// A time, and the order in which work for the same time was added.
type Turn = (Timestamp, u64);

/// The work of all controllers. Each item is queued at most once for each controller, at the earliest time.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkQueue {
    due: BTreeMap<Work, Turn>,
    /// Entries whose turn is not the one in `due` were replaced by an earlier one.
    heap: BinaryHeap<Reverse<(Turn, Work)>>,
    added: u64,
    /// How often the step of an item failed in a row.
    failures: BTreeMap<Work, u32>,
}

impl WorkQueue {
    /// Queues an item, unless it is queued for an earlier time.
    pub(crate) fn add(&mut self, at: Timestamp, controller: ControllerId, item: Item) {
        let work = (controller, item);
        if self.due.get(&work).is_some_and(|(due, _)| *due <= at) {
            return;
        }
        self.added += 1;
        let turn = (at, self.added);
        self.due.insert(work.clone(), turn);
        self.heap.push(Reverse((turn, work)));
    }

    /// Takes an item out of the queue.
    pub(crate) fn remove(&mut self, controller: ControllerId, item: Item) {
        self.due.remove(&(controller, item));
    }

    /// The time of the next item.
    pub(crate) fn next_at(&mut self) -> Option<Timestamp> {
        while let Some(Reverse((turn, work))) = self.heap.peek() {
            if self.due.get(work) == Some(turn) {
                return Some(turn.0);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the next item.
    pub(crate) fn pop(&mut self) -> Option<(Timestamp, ControllerId, Item)> {
        let at = self.next_at()?;
        let Reverse((_, work)) = self.heap.pop()?;
        self.due.remove(&work);
        let (controller, item) = work;
        Some((at, controller, item))
    }

    /// The delay before a failed item is tried again: it doubles with each failure in a row.
    pub(crate) fn failed(
        &mut self,
        controller: ControllerId,
        item: &Item,
        first: SignedDuration,
        most: SignedDuration,
    ) -> SignedDuration {
        let failures = self.failures.entry((controller, item.clone())).or_default();
        let delay = first.checked_mul(1_i32.checked_shl(*failures).unwrap_or(i32::MAX)).unwrap_or(most).min(most);
        *failures = (*failures + 1).min(30);
        delay
    }

    /// The step of an item succeeded.
    pub(crate) fn succeeded(&mut self, controller: ControllerId, item: &Item) {
        if !self.failures.is_empty() {
            self.failures.remove(&(controller, item.clone()));
        }
    }

    /// The queued work, in the order of controllers and items.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (ControllerId, &Item, Timestamp)> {
        self.due.iter().map(|((controller, item), (at, _))| (*controller, item, *at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::SimKey;

    #[test]
    fn the_earliest_time_of_an_item_counts() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let item = |name: &str| Item::Object(SimKey::node(name));
        let mut queue = WorkQueue::default();
        queue.add(at(9), ControllerId::PodGc, item("a"));
        queue.add(at(5), ControllerId::PodGc, item("a"));
        queue.add(at(7), ControllerId::PodGc, item("a"));
        queue.add(at(6), ControllerId::Kubelet, item("b"));
        queue.add(at(6), ControllerId::Kubelet, item("a"));
        queue.add(at(4), ControllerId::Kubelet, item("c"));
        queue.remove(ControllerId::Kubelet, item("c"));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(
            order,
            [
                (at(5), ControllerId::PodGc, item("a")),
                (at(6), ControllerId::Kubelet, item("b")),
                (at(6), ControllerId::Kubelet, item("a")),
            ]
        );
        let second = SignedDuration::from_secs(1);
        let delays: Vec<i64> =
            (0..5).map(|_| queue.failed(ControllerId::PodGc, &Item::Pass, second, second * 6).as_secs()).collect();
        assert_eq!(delays, [1, 2, 4, 6, 6]);
    }
}
