//! The events that components report.

use std::sync::Arc;

use jiff::Timestamp;
use stead_model::fork::{Chunks, Sorted};

use crate::object::SimKey;

/// An event to report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventNote {
    /// The object that it is about.
    pub about: SimKey,
    /// Whether its type is Warning.
    pub warning: bool,
    /// The reason, such as `FailedScheduling`.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

impl EventNote {
    /// An event of type Normal.
    pub fn normal(about: &SimKey, reason: &'static str, message: impl Into<String>) -> EventNote {
        EventNote { about: about.clone(), warning: false, reason, message: message.into() }
    }

    /// An event of type Warning.
    pub fn warning(about: &SimKey, reason: &'static str, message: impl Into<String>) -> EventNote {
        EventNote { warning: true, ..EventNote::normal(about, reason, message) }
    }
}

/// An event as it is stored: equal ones are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimEvent {
    /// What was reported.
    pub note: Arc<EventNote>,
    /// The component that reported it.
    pub component: &'static str,
    /// When it was first reported.
    pub first: Timestamp,
    /// When it was last reported.
    pub last: Timestamp,
    /// How often.
    pub count: u32,
}

/// All events, in the order of their first report.
#[derive(Debug, Clone, Default)]
pub struct EventLog {
    events: Chunks<SimEvent>,
    /// Where the event of an object with a reason is.
    latest: Sorted<(SimKey, &'static str, Arc<str>), usize>,
}

impl EventLog {
    /// The events, in the order of their first report.
    pub fn iter(&self) -> impl Iterator<Item = &SimEvent> {
        self.events.iter()
    }

    /// The events about an object, in the order of their first report.
    pub fn about<'a>(&'a self, key: &'a SimKey) -> impl Iterator<Item = &'a SimEvent> {
        let first = |other: &(SimKey, &'static str, Arc<str>)| other.0.cmp(key).then(std::cmp::Ordering::Greater);
        let mut found: Vec<usize> =
            self.latest.iter_from(first).take_while(|((about, ..), _)| about == key).map(|(_, at)| *at).collect();
        found.sort_unstable();
        found.into_iter().map(|at| &self.events[at])
    }

    /// Adds an event, or counts it where an equal one is there.
    pub(crate) fn add(&mut self, note: Arc<EventNote>, component: &'static str, now: Timestamp) -> SimEvent {
        let key = (note.about.clone(), note.reason, Arc::from(note.message.as_str()));
        if let Some(at) = self.latest.get(&key) {
            let event = self.events.get_mut(*at);
            event.last = now;
            event.count += 1;
            return event.clone();
        }
        let event = SimEvent { note, component, first: now, last: now, count: 1 };
        self.latest.insert(key, self.events.len());
        self.events.push(event.clone());
        event
    }
}
