//! Times and lists in words.

use jiff::{SignedDuration, Timestamp};

/// A length of time as kubectl prints ages: the two largest units.
pub(crate) fn span(length: SignedDuration) -> String {
    let seconds = rounded(length).abs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    let two = |a: i64, a_unit: &str, b: i64, b_unit: &str| match b {
        0 => format!("{a}{a_unit}"),
        b => format!("{a}{a_unit}{b}{b_unit}"),
    };
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => two(minutes, "m", seconds % 60, "s"),
        (0, _, _) => two(hours, "h", minutes, "m"),
        _ => two(days, "d", hours, "h"),
    }
}

/// Seconds, the nearest.
fn rounded(length: SignedDuration) -> i64 {
    (length + SignedDuration::from_millis(500 * i64::from(length.signum()))).as_secs()
}

/// A moment, to the second.
pub(crate) fn moment(at: Timestamp) -> String {
    at.round(jiff::Unit::Second).unwrap_or(at).to_string()
}

/// A moment and how far it is from now.
pub(crate) fn when(at: Timestamp, now: Timestamp) -> String {
    let apart = at.duration_since(now);
    match rounded(apart) {
        0 => format!("{}, now", moment(at)),
        s if s > 0 => format!("{}, in {}", moment(at), span(apart)),
        _ => format!("{}, {} ago", moment(at), span(apart)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_read_as_kubectl_has_them() {
        let table =
            [(0, "0s"), (59, "59s"), (60, "1m"), (372, "6m12s"), (3600, "1h"), (7260, "2h1m"), (243_000, "2d19h")];
        for (seconds, text) in table {
            assert_eq!(span(SignedDuration::from_secs(seconds)), text);
        }
    }
}
