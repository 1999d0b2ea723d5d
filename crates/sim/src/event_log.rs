//! The events that components report.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stead_model::fork::{Chunks, Sorted};

use crate::event_correlation::{Correlated, EventCorrelator};
use crate::object::SimKey;
use crate::store::Store;

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
    /// The version of the object that the component knew, if events are counted by it, whatever their message: in
    /// `events.k8s.io`, which kube-scheduler uses.
    pub version: Option<Arc<str>>,
}

impl EventNote {
    /// An event of type Normal.
    pub fn normal(about: &SimKey, reason: &'static str, message: impl Into<String>) -> EventNote {
        EventNote { about: about.clone(), warning: false, reason, message: message.into(), version: None }
    }

    /// An event of type Warning.
    pub fn warning(about: &SimKey, reason: &'static str, message: impl Into<String>) -> EventNote {
        EventNote { warning: true, ..EventNote::normal(about, reason, message) }
    }

    /// The same, counted by the version of the object.
    pub fn of_version(self, version: Option<&str>) -> EventNote {
        EventNote { version: Some(version.unwrap_or_default().into()), ..self }
    }

    /// What equal events have in common besides object and reason.
    fn series(&self) -> Arc<str> {
        match &self.version {
            Some(version) => format!("\u{0}{version}").into(),
            None => self.message.as_str().into(),
        }
    }
}

/// The beginning of the message of an event that stands for several (`aggregateByReasonMessageFunc`).
pub(crate) const COMBINED: &str = "(combined from similar events): ";

/// A series of events of `events.k8s.io` ends this long after its last one (`finishTime` of client-go's tools/events).
const SERIES_END: SignedDuration = SignedDuration::from_mins(6);

/// An event as it is stored: equal ones are counted. The API server has the count of kube-scheduler's events only up to
/// 2 at once, and larger ones with a delay of up to half an hour.
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
    /// What the reporters of `core/v1` events remember.
    correlator: EventCorrelator,
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

    /// What was reported before, by the events of a cluster that is taken over.
    pub(crate) fn remember(&mut self, store: &Store) {
        self.correlator = EventCorrelator::of(store);
    }

    /// Adds an event about the object with a UID, or counts it where an equal one is there. None if the API server is not
    /// told about it.
    pub(crate) fn add(
        &mut self,
        mut note: Arc<EventNote>,
        uid: &str,
        component: &'static str,
        now: Timestamp,
    ) -> Option<SimEvent> {
        let mut series = note.series();
        if note.version.is_none() {
            match self.correlator.correlate(&note, uid, component, now) {
                Correlated::Dropped => return None,
                Correlated::Single => {}
                Correlated::Combined => {
                    let message = format!("{COMBINED}{}", note.message);
                    note = Arc::new(EventNote { message, ..EventNote::clone(&note) });
                    series = format!("\u{0}combined {uid}").into();
                }
            }
        }
        let key = (note.about.clone(), note.reason, series);
        let latest = self.latest.get(&key).copied();
        let ended = |at: &usize| note.version.is_some() && self.events[*at].last + SERIES_END < now;
        if let Some(at) = latest.filter(ended) {
            self.latest.insert((key.0.clone(), key.1, format!("{}\u{0}{at}", key.2).into()), at);
        } else if let Some(at) = latest {
            let event = self.events.get_mut(at);
            if note.version.is_none() {
                event.note = note;
            }
            event.last = now;
            event.count += 1;
            return (event.note.version.is_none() || event.count == 2).then(|| event.clone());
        }
        let event = SimEvent { note, component, first: now, last: now, count: 1 };
        self.latest.insert(key, self.events.len());
        self.events.push(event.clone());
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_by_their_text_or_by_the_version_of_the_object() {
        let pod = SimKey::pod("n", "a");
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let mut log = EventLog::default();
        let mut add = |second, message: &str, version: Option<&str>| {
            let note = EventNote::warning(&pod, "Failed", message);
            let note = if version.is_some() { note.of_version(version) } else { note };
            let event = log.add(Arc::new(note), "", "x", at(second))?;
            Some((event.note.message.clone(), event.count))
        };
        let told = |message: &str, count| Some((message.to_owned(), count));
        assert_eq!(add(0, "a", None), told("a", 1));
        assert_eq!(add(1, "b", None), told("b", 1));
        assert_eq!(add(2, "a", None), told("a", 2));
        assert_eq!(add(3, "a", None), told("a", 3));
        // The text of the first event stays, the third is counted in memory only.
        assert_eq!(add(4, "a", Some("7")), told("a", 1));
        assert_eq!(add(5, "b", Some("7")), told("a", 2));
        assert_eq!(add(6, "c", Some("7")), None);
        assert_eq!(add(7, "c", Some("8")), told("c", 1));
        assert_eq!(add(7 + 361, "d", Some("8")), told("d", 1));
        assert_eq!(log.about(&pod).map(|event| event.count).collect::<Vec<_>>(), [3, 1, 3, 1, 1]);
    }

    #[test]
    fn many_events_of_one_reason_become_one_and_too_many_of_one_object_are_dropped() {
        let pod = SimKey::pod("n", "a");
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        let mut log = EventLog::default();
        let mut add = |second, message: String| {
            let event = log.add(Arc::new(EventNote::normal(&pod, "Created", message)), "1", "x", at(second))?;
            Some((event.note.message.clone(), event.count))
        };
        for number in 0..9 {
            assert_eq!(add(0, number.to_string()), Some((number.to_string(), 1)));
        }
        for number in 9..25 {
            assert_eq!(add(1, number.to_string()), Some((format!("{COMBINED}{number}"), number - 8)));
        }
        assert_eq!(add(2, "late".into()), None, "25 at once");
        assert_eq!(add(301, "later".into()), Some((format!("{COMBINED}later"), 17)));
        assert_eq!(add(302, "again".into()), None);
        assert_eq!(add(1000, "after a pause".into()), Some(("after a pause".into(), 1)));
    }
}
