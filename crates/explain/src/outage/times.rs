//! Times and lengths as Kubernetes writes them, kept where they can be reckoned with.
//!
//! An API server takes a toleration of 2^63 seconds, and a clock may say any year. What lies so far away tells nothing,
//! and a sum with it would leave the calendar: it is dropped or cut here, so that nobody else has to think of it.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// What takes longer than this century of years never comes.
pub const CENTURY: SignedDuration = SignedDuration::from_hours(100 * 365 * 24);

/// No cluster is older.
const EARLIEST: Timestamp = Timestamp::UNIX_EPOCH;

/// None will see the year 3000.
const LATEST: Timestamp = Timestamp::constant(32_503_680_000, 0);

/// Whether a moment is one that a cluster may tell of.
pub fn is_near(at: Timestamp) -> bool {
    (EARLIEST..LATEST).contains(&at)
}

/// A time as Kubernetes writes it; none where it is too far away to be one.
pub(crate) fn time(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok().filter(|at| is_near(*at))
}

/// A number of seconds, no more than a century of them.
pub(crate) fn seconds(value: &Value) -> Option<SignedDuration> {
    value.as_i64().map(|s| SignedDuration::from_secs(s.clamp(0, CENTURY.as_secs())))
}

/// When a deletion was asked for, and when it is due: that much later as there was time to end. A time of ages makes it
/// due in ages, and it was asked for all the same.
pub(crate) fn deletion(metadata: &Value) -> Option<(Timestamp, Timestamp)> {
    let due: Timestamp = metadata["deletionTimestamp"].as_str()?.parse().ok()?;
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    let asked = due.checked_sub(SignedDuration::from_secs(grace)).ok().filter(|at| is_near(*at));
    let due = due.clamp(EARLIEST, LATEST);
    Some((asked.unwrap_or(due), due))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_too_far_away_is_no_time() {
        for (text, known) in [
            ("2026-01-01T00:00:00Z", true),
            ("9999-12-30T22:00:00Z", false),
            ("0001-01-01T00:00:00Z", false),
            ("-009999-01-02T01:59:59Z", false),
            ("soon", false),
        ] {
            assert_eq!(time(&json!(text)).is_some(), known, "{text}");
        }
        for (given, kept) in [(json!(40), 40), (json!(-1), 0), (json!(i64::MAX), CENTURY.as_secs())] {
            assert_eq!(seconds(&given), Some(SignedDuration::from_secs(kept)), "{given}");
        }
        assert_eq!(seconds(&json!("40")), None);
    }

    #[test]
    fn a_deletion_was_asked_for_however_long_it_may_take() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let of = |due: &str, grace: i64| {
            deletion(&json!({ "deletionTimestamp": due, "deletionGracePeriodSeconds": grace })).expect("it is deleted")
        };
        let asked = at("2026-01-01T00:00:00Z");
        assert_eq!(of("2026-01-01T00:00:30Z", 30), (asked, at("2026-01-01T00:00:30Z")));
        assert_eq!(of("5194-11-16T09:46:40Z", 100_000_000_000), (asked, LATEST));
        for grace in [1_000_000_000_000, i64::MAX, i64::MIN] {
            assert_eq!(of("2026-01-01T00:00:00Z", grace), (asked, asked), "{grace}");
        }
    }
}
