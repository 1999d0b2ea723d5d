//! Completion indexes of an Indexed Job (`indexed_job_utils.go`).

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;

/// The annotation and label of a pod with its completion index.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The completion index of a pod.
pub(super) fn index_of(pod: &Pod) -> Option<i32> {
    let index: i32 = pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok()?;
    (index >= 0).then_some(index)
}

/// The completion indexes of pods.
pub(super) fn indexes_of<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> BTreeSet<i32> {
    pods.into_iter().filter_map(index_of).collect()
}

/// A set of indexes as ordered intervals, which is how a Job's status has it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Indexes {
    /// The first and the last index of each interval.
    intervals: Vec<(i32, i32)>,
}

impl Indexes {
    /// Reads the text of a status, without indexes from `completions` on. Parts that are not intervals are ignored.
    pub(super) fn parse(text: &str, completions: i32) -> Indexes {
        let mut indexes = Indexes::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let mut limits = part.split('-').map(str::parse::<i32>);
            let Some(Ok(first)) = limits.next() else { continue };
            if first >= completions {
                break;
            }
            let last = match limits.next() {
                None => first,
                Some(Ok(last)) => last.min(completions - 1),
                Some(Err(_)) => continue,
            };
            match indexes.intervals.last_mut() {
                Some(before) if before.1 == first - 1 => before.1 = last,
                _ => indexes.intervals.push((first, last)),
            }
        }
        indexes
    }

    /// How many indexes there are.
    pub(super) fn total(&self) -> i32 {
        self.intervals.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Whether an index is among them.
    pub(super) fn contains(&self, index: i32) -> bool {
        let at = self.intervals.partition_point(|(_, last)| *last < index);
        self.intervals.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// These indexes and some more.
    pub(super) fn with(&self, more: &BTreeSet<i32>) -> Indexes {
        self.merge(&Indexes { intervals: more.iter().map(|index| (*index, *index)).collect() })
    }

    /// These indexes and others.
    pub(super) fn merge(&self, other: &Indexes) -> Indexes {
        let mut all = [self.intervals.as_slice(), &other.intervals].concat();
        all.sort_unstable();
        let mut intervals: Vec<(i32, i32)> = Vec::new();
        for (first, last) in all {
            match intervals.last_mut() {
                Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
                _ => intervals.push((first, last)),
            }
        }
        Indexes { intervals }
    }

    /// The lowest indexes below `completions` that are not among these, at most so many.
    pub(super) fn missing(&self, completions: i32, count: usize) -> Vec<i32> {
        let end = [(completions, completions)];
        let mut missing = Vec::new();
        let mut next = 0;
        for (first, last) in self.intervals.iter().chain(&end) {
            let room = count - missing.len();
            missing.extend((next..(*first).min(completions)).take(room));
            next = next.max(last + 1);
        }
        missing
    }

    /// How many indexes are in both.
    pub(super) fn common(&self, other: &Indexes) -> i32 {
        let overlap = |a: &(i32, i32), b: &(i32, i32)| (a.1.min(b.1) - a.0.max(b.0) + 1).max(0);
        self.intervals.iter().map(|a| other.intervals.iter().map(|b| overlap(a, b)).sum::<i32>()).sum()
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (first, last)) in self.intervals.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_read_and_written() {
        for (text, completions, expected, total) in [
            ("", 10, "", 0),
            ("1", 10, "1", 1),
            ("1,3", 10, "1,3", 2),
            ("1-3", 10, "1-3", 3),
            ("1,2,3,4,5,7", 10, "1-5,7", 6),
            ("3,5-7", 10, "3,5-7", 4),
            ("0-11,13-21", 15, "0-11,13,14", 14),
            ("0-11,13-21", 13, "0-11", 12),
            ("1-3,x,5-y,7", 10, "1-3,7", 4),
        ] {
            let indexes = Indexes::parse(text, completions);
            assert_eq!((indexes.to_string().as_str(), indexes.total()), (expected, total), "{text}");
        }
    }

    #[test]
    fn indexes_are_merged() {
        for (a, b, expected) in [
            ("", "1", "1"),
            ("1", "0", "0,1"),
            ("0-3", "4", "0-4"),
            ("1,3,5", "2,4", "1-5"),
            ("0-9", "3-4", "0-9"),
            ("1-3,7", "5,9-10", "1-3,5,7,9,10"),
        ] {
            let merged = Indexes::parse(a, 20).merge(&Indexes::parse(b, 20));
            assert_eq!(merged.to_string(), expected, "{a} {b}");
            let alone: Vec<i32> = expected.split([',', '-']).map(|it| it.parse().expect("a number")).collect();
            assert!(alone.iter().all(|index| merged.contains(*index)), "{expected}");
            assert!(!merged.contains(alone[0] - 1) && !merged.contains(alone[alone.len() - 1] + 1), "{expected}");
        }
    }

    #[test]
    fn the_lowest_missing_indexes_come_first() {
        for (taken, completions, count, expected) in [
            ("", 5, 3, vec![0, 1, 2]),
            ("0-1,3", 5, 9, vec![2, 4]),
            ("0,2,5", 8, 3, vec![1, 3, 4]),
            ("0-4", 5, 2, vec![]),
            ("7-8", 5, 2, vec![0, 1]),
        ] {
            assert_eq!(Indexes::parse(taken, 20).missing(completions, count), expected, "{taken}");
        }
    }
}
