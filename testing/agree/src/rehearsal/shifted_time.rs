//! The time in a cluster in which long waits are shortened.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Moments at which the clock is put forward.
#[derive(Debug, Default)]
pub(super) struct ShiftedTime {
    jumps: Vec<(Timestamp, SignedDuration)>,
}

impl ShiftedTime {
    /// From this moment on, the time is later by this much.
    pub(super) fn jump(&mut self, at: Timestamp, by: SignedDuration) {
        self.jumps.push((at, by));
    }

    /// The time in the cluster at a moment.
    pub(super) fn at(&self, moment: Timestamp) -> Timestamp {
        self.jumps.iter().filter(|(at, _)| *at <= moment).fold(moment, |time, (_, by)| time + *by)
    }

    /// Replaces all times in an object.
    pub(super) fn shift(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => fields.values_mut().for_each(|value| self.shift(value)),
            Value::Array(items) => items.iter_mut().for_each(|value| self.shift(value)),
            Value::String(text) => {
                // A time begins with its year and ends with its zone: most texts are not parsed.
                let is_time = text.ends_with('Z') && text.starts_with(|c: char| c.is_ascii_digit());
                if let Some(moment) = is_time.then(|| text.parse::<Timestamp>().ok()).flatten() {
                    *text = self.at(moment).to_string();
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_after_a_jump_are_later() {
        let mut time = ShiftedTime::default();
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        time.jump(at("2026-01-01T00:10:00Z"), SignedDuration::from_hours(24));
        let mut object = json!({ "created": "2026-01-01T00:09:59Z", "name": "7Z", "seen": ["2026-01-01T00:10:01Z"] });
        time.shift(&mut object);
        let expected = json!({ "created": "2026-01-01T00:09:59Z", "name": "7Z", "seen": ["2026-01-02T00:10:01Z"] });
        assert_eq!(object, expected);
    }
}
