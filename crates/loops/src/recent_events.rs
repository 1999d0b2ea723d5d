//! Events that were created recently, so that a loop may repeat an event in each run.

use std::collections::BTreeMap;
use std::time::Duration;

use stead_model::ObjectKey;

use crate::step::LoopEvent;

/// How long the same event is not repeated.
const REPEAT_AFTER: Duration = Duration::from_secs(600);

/// The longest note that the API server accepts.
const LONGEST_NOTE: usize = 1024;

/// Events, and when they were created.
#[derive(Debug, Clone, Default)]
pub struct RecentEvents {
    last: BTreeMap<(ObjectKey, &'static str, String), Duration>,
}

impl RecentEvents {
    /// Whether an event was not created recently; it then counts as created.
    pub fn is_new(&mut self, now: Duration, event: &LoopEvent) -> bool {
        self.last.retain(|_, at| now.saturating_sub(*at) < REPEAT_AFTER);
        let content = (event.about.clone(), event.reason, event.message.clone());
        if self.last.contains_key(&content) {
            return false;
        }
        self.last.insert(content, now);
        true
    }

    /// An event could not be created.
    pub fn forget(&mut self, event: &LoopEvent) {
        self.last.remove(&(event.about.clone(), event.reason, event.message.clone()));
    }
}

/// A note that the API server accepts: cut between two characters if it is too long.
pub fn note(message: &str) -> &str {
    let mut end = message.len().min(LONGEST_NOTE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_event_is_created_once_in_ten_minutes() {
        let event = |message: &str| LoopEvent {
            about: ObjectKey::new("Glance", "n", "g"),
            warning: false,
            reason: "Made",
            message: message.into(),
        };
        let mut events = RecentEvents::default();
        let minutes = |n: u64| Duration::from_secs(60 * n);
        for (at, message, is_new) in [(0, "a", true), (1, "a", false), (1, "b", true), (9, "a", false), (10, "a", true)]
        {
            assert_eq!(events.is_new(minutes(at), &event(message)), is_new, "{message} at {at}");
        }
        events.forget(&event("a"));
        assert!(events.is_new(minutes(10), &event("a")));
    }

    #[test]
    fn notes_are_cut_between_characters() {
        assert_eq!(note("short"), "short");
        assert_eq!(note(&"ä".repeat(600)).len(), 1024);
        assert_eq!(note(&format!("x{}", "ä".repeat(600))).len(), 1023);
    }
}
