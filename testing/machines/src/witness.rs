//! Records who could write to a disk and when, and finds violations.
//!
//! A holder is a pod that has a disk mounted on a machine. It can write until the disk is unmounted, the disk is
//! detached from the machine, or all its processes are dead. A frozen pod can write as soon as it is resumed, so it
//! counts too.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;

/// A point in time on two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Monotonic, for comparisons.
    pub monotonic: Instant,
    /// Wall clock, for people.
    pub wall: Timestamp,
}

impl Moment {
    fn now() -> Moment {
        Moment { monotonic: Instant::now(), wall: Timestamp::now() }
    }
}

/// How a holder lost the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Its processes terminated, and the disk was unmounted.
    Unmounted,
    /// Its machine was powered off.
    Died,
    /// The storage detached the disk.
    Detached {
        /// Whether the holder had a process that was neither frozen nor dead.
        running: bool,
    },
}

/// A period in which a pod could write to a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    /// The PersistentVolume.
    pub volume: String,
    /// The node on which it was mounted.
    pub node: String,
    /// The pod, as namespace/name.
    pub pod: String,
    /// The pod's uid.
    pub uid: String,
    /// When it was mounted.
    pub from: Moment,
    /// When and how the period ended; none if it has not.
    pub to: Option<(Moment, End)>,
    /// The number of changes of data, names or attributes.
    pub writes: u64,
    /// The time of the last change.
    pub last_write: Option<Moment>,
}

impl Interval {
    fn overlaps(&self, other: &Interval) -> bool {
        let before = |a: &Interval, b: &Interval| a.to.is_some_and(|(end, _)| end.monotonic <= b.from.monotonic);
        !before(self, other) && !before(other, self)
    }
}

/// Something that must never happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Pods on two nodes could write to one volume at the same time. (Pods on one node share its file system.)
    TwoWriters(Box<[Interval; 2]>),
    /// A disk was detached while a running process had it mounted.
    EarlyDetach(Box<Interval>),
}

/// Records the intervals.
#[derive(Default)]
pub(crate) struct Witness(Mutex<Vec<Interval>>);

impl Witness {
    fn intervals(&self) -> MutexGuard<'_, Vec<Interval>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an interval, and returns its index.
    pub(crate) fn begin(&self, volume: &str, node: &str, pod: &str, uid: &str) -> usize {
        let [volume, node, pod, uid] = [volume, node, pod, uid].map(str::to_owned);
        let from = Moment::now();
        let mut intervals = self.intervals();
        intervals.push(Interval { volume, node, pod, uid, from, to: None, writes: 0, last_write: None });
        intervals.len() - 1
    }

    /// Ends an interval. Later calls for the same interval do nothing.
    pub(crate) fn end(&self, index: usize, how: End) {
        if let Some(interval) = self.intervals().get_mut(index) {
            interval.to.get_or_insert_with(|| (Moment::now(), how));
        }
    }

    /// Counts a write.
    pub(crate) fn count_write(&self, index: usize) {
        if let Some(interval) = self.intervals().get_mut(index) {
            interval.writes += 1;
            interval.last_write = Some(Moment::now());
        }
    }

    pub(crate) fn all(&self) -> Vec<Interval> {
        self.intervals().clone()
    }
}

/// Returns the violations among these intervals.
pub(crate) fn violations(all: &[Interval]) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, one) in all.iter().enumerate() {
        if matches!(one.to, Some((_, End::Detached { running: true }))) {
            found.push(Violation::EarlyDetach(Box::new(one.clone())));
        }
        for other in &all[index + 1..] {
            if one.volume == other.volume && one.node != other.node && one.overlaps(other) {
                found.push(Violation::TwoWriters(Box::new([one.clone(), other.clone()])));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_writers_and_early_detaches_are_violations() {
        let witness = Witness::default();
        // One after the other on two nodes; two at the same time on one node; two volumes.
        let a = witness.begin("v", "n0", "ns/a", "1");
        witness.count_write(a);
        witness.end(a, End::Unmounted);
        let b = witness.begin("v", "n1", "ns/b", "2");
        let c = witness.begin("v", "n1", "ns/c", "3");
        witness.begin("w", "n0", "ns/d", "4");
        witness.end(b, End::Died);
        assert_eq!(violations(&witness.all()), []);
        assert_eq!((witness.all()[a].writes, witness.all()[b].writes), (1, 0));
        // Two at the same time on two nodes.
        witness.begin("v", "n2", "ns/e", "5");
        let [Violation::TwoWriters(two)] = &violations(&witness.all())[..] else { panic!("{:?}", witness.all()) };
        assert_eq!((two[0].uid.as_str(), two[1].uid.as_str()), ("3", "5"));
        // Detached from a running pod; a later end is ignored.
        witness.end(c, End::Detached { running: true });
        witness.end(c, End::Unmounted);
        let found = violations(&witness.all());
        assert!(
            matches!(&found[..], [Violation::EarlyDetach(i), Violation::TwoWriters(_)] if i.uid == "3"),
            "{found:?}"
        );
    }
}
