//! Durations as people write them: `90s`, `1m30s`, `2d19h`.

use jiff::SignedDuration;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A duration in a rehearsal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub SignedDuration);

/// The units, the largest first, in milliseconds.
const UNITS: [(&str, i64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

impl std::str::FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<HumanDuration, String> {
        let invalid = || format!("{text:?} is not a duration such as 90s, 1m30s or 2d19h");
        let (mut rest, mut total) = (text.trim(), 0_i64);
        if rest.is_empty() {
            return Err(invalid());
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0).ok_or_else(invalid)?;
            let number: i64 = rest[..digits].parse().map_err(|_| invalid())?;
            let end = rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| digits + at);
            let unit = rest[digits..end].trim();
            let (_, millis) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
            total = number.checked_mul(*millis).and_then(|part| total.checked_add(part)).ok_or_else(invalid)?;
            rest = &rest[end..];
        }
        // A century: no rehearsal is longer, and no sum with a time overflows.
        match total <= 100 * 365 * 86_400_000 {
            true => Ok(HumanDuration(SignedDuration::from_millis(total))),
            false => Err(invalid()),
        }
    }
}

impl std::fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut left = i64::try_from(self.0.as_millis()).unwrap_or(i64::MAX);
        if left <= 0 {
            return f.write_str("0s");
        }
        for (unit, millis) in UNITS {
            if left >= millis {
                write!(f, "{}{unit}", left / millis)?;
                left %= millis;
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<HumanDuration, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, seconds, written) in
            [("90s", 90, "1m30s"), ("2d19h", 241_200, "2d19h"), ("1h 5m", 3900, "1h5m"), ("0s", 0, "0s")]
        {
            let duration: HumanDuration = text.parse().expect(text);
            assert_eq!((duration.0.as_secs(), duration.to_string().as_str()), (seconds, written), "{text}");
        }
        for text in ["", "5", "s", "5x", "-5s", "99999999999d"] {
            assert!(text.parse::<HumanDuration>().is_err(), "{text}");
        }
    }
}
