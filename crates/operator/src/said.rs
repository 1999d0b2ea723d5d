//! Events that were said lately, so that a loop may say the same at each look.

use std::collections::BTreeMap;
use std::time::Duration;

use stead_loops::{Event, ObjectKey};

/// How long the same words are not repeated.
const SILENCE: Duration = Duration::from_secs(600);

/// The longest note that the API server takes.
const LONGEST_NOTE: usize = 1024;

/// What was said, and when.
#[derive(Debug, Default)]
pub(crate) struct Said {
    last: BTreeMap<(ObjectKey, String, String), Duration>,
}

impl Said {
    /// Whether an event is news; it then counts as said.
    pub(crate) fn is_news(&mut self, now: Duration, event: &Event) -> bool {
        self.last.retain(|_, at| now.saturating_sub(*at) < SILENCE);
        let words = (event.about.clone(), event.reason.clone(), event.message.clone());
        if self.last.contains_key(&words) {
            return false;
        }
        self.last.insert(words, now);
        true
    }

    /// An event could not be written after all.
    pub(crate) fn unsaid(&mut self, event: &Event) {
        self.last.remove(&(event.about.clone(), event.reason.clone(), event.message.clone()));
    }
}

/// A note that the API server takes, cut at a character.
pub(crate) fn note(message: &str) -> &str {
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
    fn the_same_words_are_said_once_in_ten_minutes() {
        let event = |message: &str| Event {
            about: ObjectKey::new("Glance", "n", "g"),
            warning: false,
            reason: "Made".into(),
            message: message.into(),
        };
        let mut said = Said::default();
        let minutes = |n: u64| Duration::from_secs(60 * n);
        for (at, message, news) in [(0, "a", true), (1, "a", false), (1, "b", true), (9, "a", false), (10, "a", true)] {
            assert_eq!(said.is_news(minutes(at), &event(message)), news, "{message} at {at}");
        }
        said.unsaid(&event("a"));
        assert!(said.is_news(minutes(10), &event("a")));
    }

    #[test]
    fn notes_are_cut_at_a_character() {
        assert_eq!(note("short"), "short");
        assert_eq!(note(&"ä".repeat(600)).len(), 1024);
        assert_eq!(note(&format!("x{}", "ä".repeat(600))).len(), 1023);
    }
}
