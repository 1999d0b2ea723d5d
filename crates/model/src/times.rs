//! Times and durations as Kubernetes writes them, within bounds that arithmetic cannot leave.
//!
//! An API server accepts a toleration of 2^63 seconds, and a clock may report any year. A time that far away says nothing,
//! and a sum with it would overflow: it is dropped or cut here, so that no caller has to check.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A hundred years: a longer duration means never.
pub const CENTURY: SignedDuration = SignedDuration::from_hours(100 * 365 * 24);

/// No cluster is older.
const EARLIEST: Timestamp = Timestamp::UNIX_EPOCH;

/// The year 3000.
const LATEST: Timestamp = Timestamp::constant(32_503_680_000, 0);

/// Whether a time is one that a cluster can report.
pub fn is_near(at: Timestamp) -> bool {
    (EARLIEST..LATEST).contains(&at)
}

/// A time; none where it is too far away to be one.
pub fn near(at: Timestamp) -> Option<Timestamp> {
    Some(at).filter(|at| is_near(*at))
}

/// A number of seconds, at most a century.
pub fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds.clamp(0, CENTURY.as_secs()))
}

/// When an object was created.
pub fn created(metadata: &ObjectMeta) -> Option<Timestamp> {
    near(metadata.creation_timestamp.as_ref()?.0)
}

/// The deletion of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deletion {
    /// When it was requested.
    pub requested: Timestamp,
    /// When its grace period ends (`deletionTimestamp`).
    pub due: Timestamp,
}

/// The deletion of an object; none where nobody has requested it. An absurdly long grace period moves the end only.
pub fn deletion(metadata: &ObjectMeta) -> Option<Deletion> {
    let due = metadata.deletion_timestamp.as_ref()?.0;
    let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
    let requested = due.checked_sub(SignedDuration::from_secs(grace)).ok().filter(|at| is_near(*at));
    let due = due.clamp(EARLIEST, LATEST);
    Some(Deletion { requested: requested.unwrap_or(due), due })
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn times_and_durations_are_kept_within_bounds() {
        for (text, kept) in [
            ("2026-01-01T00:00:00Z", true),
            ("9999-12-30T22:00:00Z", false),
            ("0001-01-01T00:00:00Z", false),
            ("-009999-01-02T01:59:59Z", false),
        ] {
            assert_eq!(near(at(text)).is_some(), kept, "{text}");
        }
        for (given, kept) in [(40, 40), (-1, 0), (i64::MAX, CENTURY.as_secs())] {
            assert_eq!(seconds(given), SignedDuration::from_secs(kept), "{given}");
        }
    }

    #[test]
    fn a_deletion_was_requested_however_long_its_grace_period_is() {
        let of = |due: &str, grace: i64| {
            let metadata = ObjectMeta {
                deletion_timestamp: Some(Time(at(due))),
                deletion_grace_period_seconds: Some(grace),
                ..ObjectMeta::default()
            };
            let deletion = deletion(&metadata).expect("it is being deleted");
            (deletion.requested, deletion.due)
        };
        let requested = at("2026-01-01T00:00:00Z");
        assert_eq!(of("2026-01-01T00:00:30Z", 30), (requested, at("2026-01-01T00:00:30Z")));
        assert_eq!(of("5194-11-16T09:46:40Z", 100_000_000_000), (requested, LATEST));
        for grace in [1_000_000_000_000, i64::MAX, i64::MIN] {
            assert_eq!(of("2026-01-01T00:00:00Z", grace), (requested, requested), "{grace}");
        }
        assert_eq!(deletion(&ObjectMeta::default()), None);
    }
}
