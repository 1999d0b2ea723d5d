//! Schedules of CronJobs (`github.com/robfig/cron/v3`, `ParseStandard`), in UTC.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// When a CronJob creates Jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Schedule {
    /// At these times.
    At(Box<Fields>),
    /// After this time (`@every`), from whole second to whole second.
    Every(SignedDuration),
}

/// The times of a schedule: for each field a bit for each value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    minute: u64,
    hour: u64,
    day: u64,
    month: u64,
    weekday: u64,
}

/// Why a text is not a schedule. Messages are those of the Go package.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ScheduleError {
    #[error("empty spec string")]
    Empty,
    #[error("expected exactly 5 fields, found {found}: [{fields}]")]
    FieldCount { found: usize, fields: String },
    #[error("failed to parse int from {0}: strconv.Atoi: parsing {0:?}: invalid syntax")]
    NotANumber(String),
    #[error("negative number ({number}) not allowed: {text}")]
    Negative { number: i64, text: String },
    #[error("too many hyphens: {0}")]
    TooManyHyphens(String),
    #[error("too many slashes: {0}")]
    TooManySlashes(String),
    #[error("beginning of range ({start}) below minimum ({least}): {text}")]
    BelowMinimum { start: u64, least: u64, text: String },
    #[error("end of range ({end}) above maximum ({most}): {text}")]
    AboveMaximum { end: u64, most: u64, text: String },
    #[error("beginning of range ({start}) beyond end of range ({end}): {text}")]
    Reversed { start: u64, end: u64, text: String },
    #[error("step of range should be a positive number: {0}")]
    NoStep(String),
    #[error("unrecognized descriptor: {0}")]
    UnknownDescriptor(String),
    #[error("failed to parse duration {0}: time: invalid duration {1:?}")]
    NotADuration(String, String),
    #[error("time zone {0:?} is not modelled: only UTC is")]
    ZoneNotModelled(String),
}

/// The bit of a field that has a star: a day of the month and a day of the week are both needed if one of them has it,
/// otherwise one of them is enough.
const STAR: u64 = 1 << 63;

/// The values of a field.
struct Bounds {
    least: u64,
    most: u64,
    /// The names of the values from the least on.
    names: &'static [&'static str],
}

const MINUTES: Bounds = Bounds { least: 0, most: 59, names: &[] };
const HOURS: Bounds = Bounds { least: 0, most: 23, names: &[] };
const DAYS: Bounds = Bounds { least: 1, most: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    least: 1,
    most: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { least: 0, most: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

/// Whether a time zone has the time of UTC at all times.
pub(super) fn is_utc(zone: &str) -> bool {
    let zone = zone.strip_prefix("Etc/").unwrap_or(zone);
    ["", "UTC", "UCT", "Universal", "Zulu", "GMT", "GMT0", "GMT+0", "GMT-0", "Greenwich"].contains(&zone)
}

impl Schedule {
    /// Reads a schedule, which may name a time zone.
    pub(super) fn parse(text: &str) -> Result<Schedule, ScheduleError> {
        if text.is_empty() {
            return Err(ScheduleError::Empty);
        }
        let mut text = text;
        if let Some(zoned) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            let (zone, rest) = zoned.split_once(' ').unwrap_or((zoned, ""));
            if !is_utc(zone) {
                return Err(ScheduleError::ZoneNotModelled(zone.into()));
            }
            text = rest.trim();
        }
        if let Some(duration) = text.strip_prefix("@every ") {
            let invalid = || ScheduleError::NotADuration(text.into(), duration.into());
            let duration = parse_duration(duration).ok_or_else(invalid)?;
            return Ok(Schedule::Every(SignedDuration::from_secs(duration.as_secs().max(1))));
        }
        let fields = match text {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            other if other.starts_with('@') => return Err(ScheduleError::UnknownDescriptor(other.into())),
            other => other,
        };
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            return Err(ScheduleError::FieldCount { found: fields.len(), fields: fields.join(" ") });
        };
        Ok(Schedule::At(Box::new(Fields {
            minute: parse_field(minute, &MINUTES)?,
            hour: parse_field(hour, &HOURS)?,
            day: parse_field(day, &DAYS)?,
            month: parse_field(month, &MONTHS)?,
            weekday: parse_field(weekday, &WEEKDAYS)?,
        })))
    }

    /// The next time after another; none if there is none in five years.
    pub(super) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let second = Timestamp::from_second(after.as_second()).ok()?;
        match self {
            Schedule::Every(delay) => second.checked_add(*delay).ok(),
            Schedule::At(fields) => fields.next(second.checked_add(SignedDuration::from_secs(1)).ok()?),
        }
    }
}

impl Fields {
    /// The first time that is not before another, which is a whole second.
    fn next(&self, start: Timestamp) -> Option<Timestamp> {
        let start = start.to_zoned(TimeZone::UTC).datetime();
        // Times are whole minutes.
        let start = if start.second() == 0 {
            start
        } else {
            start.checked_add(SignedDuration::from_secs(60 - i64::from(start.second()))).ok()?
        };
        let last_year = start.year() + 5;
        let mut date = start.date();
        while date.year() <= last_year {
            if !has(self.month, date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
                continue;
            }
            if self.is_day(date) {
                let first = if date == start.date() { (start.hour(), start.minute()) } else { (0, 0) };
                let hours = (first.0..24).filter(|hour| has(self.hour, *hour));
                let mut times = hours.flat_map(|hour| {
                    let least = if hour == first.0 { first.1 } else { 0 };
                    (least..60).filter(|minute| has(self.minute, *minute)).map(move |minute| (hour, minute))
                });
                if let Some((hour, minute)) = times.next() {
                    return Some(date.at(hour, minute, 0, 0).to_zoned(TimeZone::UTC).ok()?.timestamp());
                }
            }
            date = date.tomorrow().ok()?;
        }
        None
    }

    fn is_day(&self, date: Date) -> bool {
        let day = has(self.day, date.day());
        let weekday = has(self.weekday, date.weekday().to_sunday_zero_offset());
        if (self.day | self.weekday) & STAR > 0 { day && weekday } else { day || weekday }
    }
}

fn has(field: u64, value: i8) -> bool {
    field & (1 << value) > 0
}

/// Reads a field: ranges with commas between them.
fn parse_field(text: &str, bounds: &Bounds) -> Result<u64, ScheduleError> {
    let ranges = text.split(',').filter(|range| !range.is_empty());
    ranges.map(|range| parse_range(range, bounds)).try_fold(0, |bits, range| Ok(bits | range?))
}

/// Reads a range: `*`, a value or two with a hyphen, and perhaps a step.
fn parse_range(text: &str, bounds: &Bounds) -> Result<u64, ScheduleError> {
    let mut parts = text.split('/');
    let range = parts.next().unwrap_or_default();
    let step = parts.next();
    if parts.next().is_some() {
        return Err(ScheduleError::TooManySlashes(text.into()));
    }
    let mut limits = range.split('-');
    let (first, last) = (limits.next().unwrap_or_default(), limits.next());
    let is_star = matches!(first, "*" | "?");
    let (start, mut end) = if is_star {
        (bounds.least, bounds.most)
    } else {
        let start = parse_value(first, bounds)?;
        if limits.next().is_some() {
            return Err(ScheduleError::TooManyHyphens(text.into()));
        }
        (start, last.map_or(Ok(start), |last| parse_value(last, bounds))?)
    };
    let step = match step {
        Some(step) => {
            // A single value with a step means from there on.
            end = if last.is_none() { bounds.most } else { end };
            parse_number(step)?
        }
        None => 1,
    };
    let text = || text.to_owned();
    if start < bounds.least {
        return Err(ScheduleError::BelowMinimum { start, least: bounds.least, text: text() });
    }
    if end > bounds.most {
        return Err(ScheduleError::AboveMaximum { end, most: bounds.most, text: text() });
    }
    if start > end {
        return Err(ScheduleError::Reversed { start, end, text: text() });
    }
    let Some(stride) = usize::try_from(step).ok().filter(|step| *step > 0) else {
        return Err(ScheduleError::NoStep(text()));
    };
    let star = if is_star && step == 1 { STAR } else { 0 };
    Ok((start..=end).step_by(stride).fold(star, |bits, value| bits | 1 << value))
}

fn parse_value(text: &str, bounds: &Bounds) -> Result<u64, ScheduleError> {
    let name = text.to_lowercase();
    match (bounds.least..).zip(bounds.names).find(|(_, other)| **other == name) {
        Some((value, _)) => Ok(value),
        None => parse_number(text),
    }
}

fn parse_number(text: &str) -> Result<u64, ScheduleError> {
    let number: i64 = text.parse().map_err(|_| ScheduleError::NotANumber(text.into()))?;
    u64::try_from(number).map_err(|_| ScheduleError::Negative { number, text: text.into() })
}

/// Reads a duration such as `1h30m` or `1.5h`, as Go writes it.
fn parse_duration(text: &str) -> Option<SignedDuration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut sum = SignedDuration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let unit = rest[number..].find(|c: char| c.is_ascii_digit() || c == '.').map_or(rest.len(), |end| number + end);
        let nanos: i64 = match &rest[number..unit] {
            "ns" => 1,
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = rest[..number].split_once('.').unwrap_or((&rest[..number], ""));
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let mut part = i128::from(whole) * i128::from(nanos);
        let mut digit = i128::from(nanos);
        for c in fraction.chars() {
            digit /= 10;
            part += digit * i128::from(c.to_digit(10)?);
        }
        sum = sum.checked_add(SignedDuration::from_nanos(i64::try_from(part).ok()?))?;
        rest = &rest[unit..];
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_time_of_a_schedule() {
        for (schedule, after, expected) in [
            ("* * * * *", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"),
            ("* * * * *", "2026-01-01T00:00:00.5Z", "2026-01-01T00:01:00Z"),
            ("* * * * *", "2026-01-01T00:00:59.9Z", "2026-01-01T00:01:00Z"),
            ("*/15 * * * *", "2026-01-01T14:45:00Z", "2026-01-01T15:00:00Z"),
            ("20-35/15 * * * *", "2026-01-01T14:45:00Z", "2026-01-01T15:20:00Z"),
            ("20-35/15 * * * *", "2026-01-01T15:20:00Z", "2026-01-01T15:35:00Z"),
            ("5/20 * * * *", "2026-01-01T15:26:00Z", "2026-01-01T15:45:00Z"),
            ("30 6-16/4 * * 1-5", "2026-01-02T14:31:00Z", "2026-01-05T06:30:00Z"),
            ("0 0 * Feb Mon", "2026-01-01T00:00:00Z", "2026-02-02T00:00:00Z"),
            ("0 0 * feb sun,MON", "2026-02-02T00:00:00Z", "2026-02-08T00:00:00Z"),
            // Both days without a star: one of them is enough.
            ("0 12 13 * 5", "2026-01-01T00:00:00Z", "2026-01-02T12:00:00Z"),
            ("0 12 13 * 5", "2026-01-09T12:00:00Z", "2026-01-13T12:00:00Z"),
            // A step removes the star.
            ("0 12 */31 * 5", "2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"),
            ("0 12 13 * ?", "2026-01-01T12:00:00Z", "2026-01-13T12:00:00Z"),
            ("0 0 29 2 *", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"),
            ("0 0 31 2 *", "2026-01-01T00:00:00Z", ""),
            ("@hourly", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"),
            ("@daily", "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"),
            ("@midnight", "2025-12-31T23:59:59Z", "2026-01-01T00:00:00Z"),
            ("@weekly", "2026-01-01T00:00:00Z", "2026-01-04T00:00:00Z"),
            ("@monthly", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"),
            ("@yearly", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            ("@annually", "2025-06-01T00:00:00Z", "2026-01-01T00:00:00Z"),
            ("@every 1h30m", "2026-01-01T00:00:00.5Z", "2026-01-01T01:30:00Z"),
            ("@every 1.5h", "2026-01-01T00:00:00Z", "2026-01-01T01:30:00Z"),
            ("@every 10ms", "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"),
            ("TZ=Etc/UTC 0 5 * * *", "2026-01-01T00:00:00Z", "2026-01-01T05:00:00Z"),
        ] {
            let next = Schedule::parse(schedule).expect("a schedule").next(after.parse().expect("a time"));
            assert_eq!(next, expected.parse().ok(), "{schedule} after {after}");
        }
    }

    #[test]
    fn texts_that_are_no_schedule() {
        for (text, expected) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("5 j * * *", "failed to parse int from j: strconv.Atoi: parsing \"j\": invalid syntax"),
            ("-1 * * * *", "failed to parse int from : strconv.Atoi: parsing \"\": invalid syntax"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("*/2/3 * * * *", "too many slashes: */2/3"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("@fortnightly", "unrecognized descriptor: @fortnightly"),
            ("@every soon", "failed to parse duration @every soon: time: invalid duration \"soon\""),
            ("TZ=Europe/Berlin 0 5 * * *", "time zone \"Europe/Berlin\" is not modelled: only UTC is"),
        ] {
            assert_eq!(Schedule::parse(text).expect_err("no schedule").to_string(), expected, "{text}");
        }
    }
}
