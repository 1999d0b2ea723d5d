//! Which time of a schedule is due (`mostRecentScheduleTime` and `nextScheduleTimeDuration`).

use jiff::{SignedDuration, Timestamp};

use super::schedule::Schedule;

/// How long after a time of the schedule the controller looks.
const AFTER_SCHEDULE: SignedDuration = SignedDuration::from_millis(100);

/// The times of the schedule that have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    /// The latest one; none if there is none.
    pub(super) latest: Option<Timestamp>,
    /// How many of them were missed, roughly: none if the latest is the only one.
    pub(super) missed: i64,
}

/// The schedule is valid but there is no time in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("time difference between two schedules is less than 1 second")]
pub(super) struct NeverDue;

/// The times of a schedule since another time until now.
pub(super) fn passed(schedule: &Schedule, since: Timestamp, now: Timestamp) -> Result<Passed, NeverDue> {
    let first = schedule.next(since).ok_or(NeverDue)?;
    if now < first {
        return Ok(Passed { latest: None, missed: 0 });
    }
    let second = schedule.next(first).ok_or(NeverDue)?;
    if now < second {
        return Ok(Passed { latest: Some(first), missed: 0 });
    }
    let between = second.duration_since(first).as_secs();
    if between < 1 {
        return Err(NeverDue);
    }
    let missed = now.duration_since(first).as_secs() / between + 1;
    // One interval earlier than needed, because the times of a schedule need not be equally far apart.
    let from = first + SignedDuration::from_secs((missed - 2) * between);
    let times = std::iter::successors(schedule.next(from), |time| schedule.next(*time));
    Ok(Passed { latest: times.take_while(|time| *time <= now).last(), missed })
}

/// How long until the controller looks again. None if there is no further time.
pub(super) fn wait(schedule: &Schedule, since: Timestamp, now: Timestamp) -> Option<SignedDuration> {
    let from = match passed(schedule, since, now) {
        Ok(Passed { latest: Some(latest), .. }) => latest,
        Ok(Passed { missed: 0, .. }) => since,
        Ok(_) | Err(NeverDue) => now,
    };
    let next = schedule.next(from)?;
    Some((next + AFTER_SCHEDULE).duration_since(now).max(SignedDuration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_time_that_has_passed() {
        for (schedule, since, now, latest, missed) in [
            ("0 * * * *", "T10:00:00Z", "T10:59:59Z", None, 0),
            ("0 * * * *", "T10:00:00Z", "T11:00:00Z", Some("T11:00:00Z"), 0),
            ("0 * * * *", "T10:00:00Z", "T11:59:59Z", Some("T11:00:00Z"), 0),
            ("0 * * * *", "T10:00:00Z", "T12:00:01Z", Some("T12:00:00Z"), 2),
            ("0 * * * *", "T10:00:00Z", "T17:30:00Z", Some("T17:00:00Z"), 7),
            ("* * * * *", "T10:00:00Z", "T12:00:30Z", Some("T12:00:00Z"), 120),
            ("30 6-16/4 * * 1-5", "T06:30:00Z", "T18:00:00Z", Some("T14:30:00Z"), 2),
            // Kubernetes looks for the latest time from 18:30 on here, and finds none.
            ("30 6-16/4 * * 1-5", "T06:30:00Z", "T23:00:00Z", None, 4),
            ("@every 7m", "T10:00:00Z", "T10:30:00Z", Some("T10:28:00Z"), 4),
        ] {
            let at = |time: &str| -> Timestamp { format!("2026-01-05{time}").parse().expect("a time") };
            let found = passed(&Schedule::parse(schedule).expect("a schedule"), at(since), at(now));
            assert_eq!(found, Ok(Passed { latest: latest.map(at), missed }), "{schedule} {since} {now}");
        }
        let never = Schedule::parse("59 23 31 2 *").expect("a schedule");
        assert_eq!(passed(&never, Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH), Err(NeverDue));
    }

    #[test]
    fn the_controller_looks_shortly_after_the_next_time() {
        for (since, now, millis) in [
            ("T10:00:00Z", "T10:00:00Z", 3_600_100),
            ("T10:00:00Z", "T10:59:59.9Z", 200),
            ("T10:00:00Z", "T11:30:00Z", 1_800_100),
            ("T10:00:00Z", "T15:30:00Z", 1_800_100),
        ] {
            let at = |time: &str| -> Timestamp { format!("2026-01-05{time}").parse().expect("a time") };
            let schedule = Schedule::parse("@hourly").expect("a schedule");
            let wait = wait(&schedule, at(since), at(now)).expect("a time");
            assert_eq!(wait.as_millis(), millis, "{since} {now}");
        }
    }
}
