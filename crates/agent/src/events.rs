//! Kubernetes events for notes: one for each note, not one per round.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use stead_pool::{Note, NoteReason};

/// The component that reports the events.
const COMPONENT: &str = "stead-gluster-agent";

/// The notes of the last round, for which events were created.
#[derive(Debug, Default)]
pub(crate) struct SentNotes {
    notes: BTreeMap<(Option<u32>, NoteReason), String>,
}

impl SentNotes {
    /// Returns the notes that are new since the last round. A note that disappeared and comes back is new.
    pub(crate) fn new_notes<'a>(&mut self, notes: &'a [Note]) -> Vec<&'a Note> {
        let before = std::mem::take(&mut self.notes);
        let mut new = Vec::new();
        for note in notes {
            let key = (note.ordinal, note.reason);
            if before.get(&key) != Some(&note.text) && !self.notes.contains_key(&key) {
                new.push(note);
            }
            self.notes.insert(key, note.text.clone());
        }
        new
    }
}

/// The pod that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EventSubject<'a> {
    /// The pod's namespace.
    pub(crate) namespace: &'a str,
    /// The pod's name.
    pub(crate) pod: &'a str,
    /// The pod's uid, if it exists.
    pub(crate) uid: Option<&'a str>,
}

/// Builds an event. `number` makes its name unique.
pub(crate) fn event(about: &EventSubject<'_>, by: &str, note: &Note, time: Timestamp, number: u128) -> Event {
    // Without fractions of a second, as Kubernetes writes it.
    let time = Timestamp::from_second(time.as_second()).ok().map(Time);
    Event {
        metadata: ObjectMeta {
            namespace: Some(about.namespace.to_owned()),
            name: Some(format!("{}.{number:x}", about.pod)),
            ..ObjectMeta::default()
        },
        involved_object: ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(about.namespace.to_owned()),
            name: Some(about.pod.to_owned()),
            uid: about.uid.map(str::to_owned),
            ..ObjectReference::default()
        },
        reason: Some(note.reason.to_string()),
        // The API server takes 1024 characters.
        message: Some(note.text.chars().take(1000).collect()),
        type_: Some(note.severity.as_str().to_owned()),
        count: Some(1),
        first_timestamp: time.clone(),
        last_timestamp: time,
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: Some(by.to_owned()) }),
        reporting_component: Some(COMPONENT.to_owned()),
        reporting_instance: Some(by.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use stead_pool::Severity;

    use super::*;

    fn note(ordinal: u32, reason: NoteReason, text: &str) -> Note {
        Note { ordinal: Some(ordinal), reason, text: text.into(), severity: Severity::Warning }
    }

    #[test]
    fn a_note_becomes_one_event_while_it_lasts() {
        let mut sent = SentNotes::default();
        let (a, b, c) =
            (note(1, NoteReason::Rejected, "x"), note(2, NoteReason::Waiting, "y"), note(2, NoteReason::Waiting, "z"));
        for (notes, new) in [
            (vec![a.clone(), b.clone()], vec!["x", "y"]),
            (vec![a.clone(), b.clone()], vec![]),
            (vec![a.clone(), c.clone()], vec!["z"]),
            (vec![c.clone()], vec![]),
            (vec![a.clone(), c.clone()], vec!["x"]),
        ] {
            let found: Vec<&str> = sent.new_notes(&notes).iter().map(|n| n.text.as_str()).collect();
            assert_eq!(found, new, "{notes:?}");
        }
    }
}
