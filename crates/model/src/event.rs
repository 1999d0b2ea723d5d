//! Events.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use serde::Deserialize;
use serde_json::Value;

use crate::error::ModelError;
use crate::key::ObjectKey;
use crate::objects::Objects;
use crate::times::{created, near};
use crate::typed::{ParsedJson, Typed, parse_json};

/// An event of either API group: `events.k8s.io` has other names for the same fields.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// The object that it is about.
    #[serde(alias = "regarding")]
    pub involved_object: Option<ObjectReference>,
    /// Why it was reported, in one word.
    pub reason: Option<String>,
    /// What was reported.
    #[serde(alias = "note")]
    pub message: Option<String>,
    /// `Normal` or `Warning`.
    pub r#type: Option<String>,
    /// The component that reported it.
    #[serde(alias = "deprecatedSource")]
    pub source: Option<EventSource>,
    /// The component that reported it, in newer events.
    #[serde(alias = "reportingController")]
    pub reporting_component: Option<String>,
    /// When it was first reported.
    #[serde(alias = "deprecatedFirstTimestamp")]
    pub first_timestamp: Option<Time>,
    /// When it was last reported.
    #[serde(alias = "deprecatedLastTimestamp")]
    pub last_timestamp: Option<Time>,
    /// When it was first reported, in newer events.
    pub event_time: Option<MicroTime>,
    /// The repetitions, in newer events.
    pub series: Option<EventSeries>,
}

/// The repetitions of an event.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EventSeries {
    /// When it was last reported.
    pub last_observed_time: Option<MicroTime>,
}

impl Typed for Event {
    const KIND: &'static str = "Event";

    fn from_json(key: &ObjectKey, json: ParsedJson<'_>) -> Result<Self, ModelError> {
        parse_json(key, json)
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventView<'a> {
    /// When it was last reported.
    pub at: Option<Timestamp>,
    /// When it was first reported.
    pub first: Option<Timestamp>,
    /// Why it was reported, in one word.
    pub reason: &'a str,
    /// What was reported.
    pub message: &'a str,
    /// The component that reported it.
    pub reported_by: &'a str,
    /// Whether it is a warning.
    pub is_warning: bool,
}

impl<'a> EventView<'a> {
    fn of(event: &'a Event) -> EventView<'a> {
        let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default().trim();
        let first = event.first_timestamp.as_ref().map(|time| time.0).and_then(near);
        let first = first.or_else(|| near(event.event_time.as_ref()?.0)).or_else(|| created(&event.metadata));
        let last = event.series.as_ref().and_then(|series| near(series.last_observed_time.as_ref()?.0));
        let last = last.or_else(|| near(event.last_timestamp.as_ref()?.0));
        let source = event.source.as_ref().map(|source| text(&source.component)).filter(|source| !source.is_empty());
        EventView {
            at: last.or(first),
            first,
            reason: text(&event.reason),
            message: text(&event.message),
            reported_by: source.unwrap_or_else(|| text(&event.reporting_component)),
            is_warning: event.r#type.as_deref() == Some("Warning"),
        }
    }
}

impl Objects {
    /// All warnings with the object that each is about and its UID, in no order of time; malformed events are left out.
    pub fn warning_events(&self) -> impl Iterator<Item = (ObjectKey, Option<&str>, EventView<'_>)> {
        let warnings = self.of_kind("Event").filter(|event| event.raw()["type"] == "Warning");
        warnings.filter_map(|event| {
            let event = event.typed::<Event>().ok()?;
            let about = event.involved_object.as_ref()?;
            let text = |field: &'_ Option<String>| field.clone().unwrap_or_default();
            let key = ObjectKey::new(&text(&about.kind), &text(&about.namespace), &text(&about.name));
            Some((key, about.uid.as_deref().filter(|uid| !uid.is_empty()), EventView::of(event)))
        })
    }

    /// The events about an object, the newest last. An object that was recreated has the name of the old one: with a UID,
    /// events about another object of the name are left out.
    pub fn events_about(&self, object: &ObjectKey, uid: Option<&str>) -> Vec<EventView<'_>> {
        let about = |raw: &Value| {
            let reference = [&raw["involvedObject"], &raw["regarding"]].into_iter().find(|o| o.is_object());
            reference.is_some_and(|reference| {
                let same = |field: &str, value: &str| reference[field].as_str().unwrap_or_default() == value;
                let uid = uid.zip(reference["uid"].as_str()).is_none_or(|(a, b)| a == b);
                same("kind", &object.kind) && same("name", &object.name) && same("namespace", &object.namespace) && uid
            })
        };
        let events = self.of_kind("Event").filter(|event| about(event.raw()));
        let mut out: Vec<EventView<'_>> =
            events.filter_map(|event| event.typed::<Event>().ok()).map(EventView::of).collect();
        out.sort_by_key(|event| (event.at, event.first));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_of_both_groups_say_the_same() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": "a", "namespace": "n" },
            "involvedObject": { "kind": "Pod", "namespace": "n", "name": "p", "uid": "1" },
            "reason": "BackOff", "message": " again ", "type": "Warning", "source": { "component": "kubelet" },
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:01:00Z", "eventTime": null,
        });
        let new = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "b", "namespace": "n" },
            "regarding": { "kind": "Pod", "namespace": "n", "name": "p", "uid": "1" },
            "reason": "BackOff", "note": "again", "type": "Warning", "reportingController": "kubelet",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "series": { "count": 2, "lastObservedTime": "2026-01-01T00:01:00.000000Z" },
        });
        let objects = Objects::from_items([core, new]);
        let said = objects.events_about(&ObjectKey::pod("n", "p"), Some("1"));
        assert!(matches!(said.as_slice(), [a, b] if a == b), "{said:?}");
        assert_eq!((said[0].reason, said[0].message, said[0].reported_by), ("BackOff", "again", "kubelet"));
        assert_eq!(objects.events_about(&ObjectKey::pod("n", "p"), Some("2")), []);
        assert_eq!(objects.events_about(&ObjectKey::pod("n", "q"), None), []);
    }
}
