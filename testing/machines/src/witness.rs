//! Records who could write to a disk and when, and finds violations.
//!
//! A holder is a pod that has a disk mounted on a machine. It can write from then until it has been unmounted, the
//! disk was detached from the machine, or all its processes are dead. A pod that is frozen in between can write as
//! soon as it is resumed, so that counts too.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use jiff::Timestamp;

/// A point in time, by two clocks: one that never goes back, and the one on the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// For comparisons.
    pub monotonic: Instant,
    /// For people.
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
    /// Its processes ended, and it was unmounted.
    Unmounted,
    /// Its machine lost its power.
    Died,
    /// The storage took the disk away.
    TakenAway {
        /// Whether processes of the holder ran then: neither frozen nor dead.
        running: bool,
    },
}

/// A time in which a pod could write to a volume.
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
    /// When and how that ended, if it has.
    pub to: Option<(Moment, End)>,
    /// How often something was changed: data, names or attributes.
    pub writes: u64,
    /// When that was last.
    pub last_write: Option<Moment>,
}

impl Interval {
    fn overlaps(&self, other: &Interval) -> bool {
        let before = |a: &Interval, b: &Interval| a.to.is_some_and(|(end, _)| end.monotonic <= b.from.monotonic);
        !before(self, other) && !before(other, self)
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Pods on two nodes could write to one volume at the same instant. (Those on one node share its file system.)
    TwoWriters(Box<[Interval; 2]>),
    /// A disk was taken from under a process that ran and had it mounted.
    EarlyDetach(Box<Interval>),
}

/// Takes notes.
#[derive(Default)]
pub(crate) struct Witness(Mutex<Vec<Interval>>);

impl Witness {
    fn notes(&self) -> MutexGuard<'_, Vec<Interval>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pod can write from now on. What is returned names this note.
    pub(crate) fn begin(&self, volume: &str, node: &str, pod: &str, uid: &str) -> usize {
        let [volume, node, pod, uid] = [volume, node, pod, uid].map(str::to_owned);
        let from = Moment::now();
        let mut notes = self.notes();
        notes.push(Interval { volume, node, pod, uid, from, to: None, writes: 0, last_write: None });
        notes.len() - 1
    }

    /// It cannot any more. The first end is the end.
    pub(crate) fn end(&self, note: usize, how: End) {
        if let Some(interval) = self.notes().get_mut(note) {
            interval.to.get_or_insert_with(|| (Moment::now(), how));
        }
    }

    /// It did write.
    pub(crate) fn wrote(&self, note: usize) {
        if let Some(interval) = self.notes().get_mut(note) {
            interval.writes += 1;
            interval.last_write = Some(Moment::now());
        }
    }

    pub(crate) fn all(&self) -> Vec<Interval> {
        self.notes().clone()
    }
}

/// What must not be, among these.
pub(crate) fn violations(all: &[Interval]) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, one) in all.iter().enumerate() {
        if matches!(one.to, Some((_, End::TakenAway { running: true }))) {
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
    fn who_could_write_at_once() {
        let witness = Witness::default();
        // One after the other, on two nodes; two at once on one node; two volumes.
        let a = witness.begin("v", "n0", "ns/a", "1");
        witness.wrote(a);
        witness.end(a, End::Unmounted);
        let b = witness.begin("v", "n1", "ns/b", "2");
        let c = witness.begin("v", "n1", "ns/c", "3");
        witness.begin("w", "n0", "ns/d", "4");
        witness.end(b, End::Died);
        assert_eq!(violations(&witness.all()), []);
        assert_eq!((witness.all()[a].writes, witness.all()[b].writes), (1, 0));
        // Two at once on two nodes.
        witness.begin("v", "n2", "ns/e", "5");
        let [Violation::TwoWriters(two)] = &violations(&witness.all())[..] else { panic!("{:?}", witness.all()) };
        assert_eq!((two[0].uid.as_str(), two[1].uid.as_str()), ("3", "5"));
        // Taken away from one that ran; what comes later is no other end.
        witness.end(c, End::TakenAway { running: true });
        witness.end(c, End::Unmounted);
        let found = violations(&witness.all());
        assert!(
            matches!(&found[..], [Violation::EarlyDetach(i), Violation::TwoWriters(_)] if i.uid == "3"),
            "{found:?}"
        );
    }
}
