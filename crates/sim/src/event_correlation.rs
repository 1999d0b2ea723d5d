//! What the reporters of `core/v1` events do before they write one (`k8s.io/client-go/tools/record/events_cache.go`): many
//! events of one reason become one, and too many about one object are dropped.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use stead_model::fork::Sorted;
use stead_model::times::near;
use stead_model::{Event, Typed};

use crate::event_log::{COMBINED, EventNote};
use crate::object::{ObjectKind, SimKey};
use crate::store::Store;

/// How many texts of one reason are events of their own, less one (`defaultAggregateMaxEvents`).
const MAX_TEXTS: usize = 10;
/// After this time without an event of a reason its texts are forgotten (`defaultAggregateIntervalInSeconds`).
const TEXTS_KEPT: SignedDuration = SignedDuration::from_secs(600);
/// How many events about one object are reported at once (`defaultSpamBurst`).
const BURST: f64 = 25.0;
/// How often one more is reported (`defaultSpamQPS`).
const REFILL: SignedDuration = SignedDuration::from_secs(300);

/// What happens to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Correlated {
    /// It is reported as it is.
    Single,
    /// It is reported by the event that stands for all of this reason.
    Combined,
    /// It is not reported.
    Dropped,
}

/// Who reports about which object, and whether it is a warning.
type Source = (SimKey, Arc<str>, Arc<str>, bool);

/// The events of one source.
#[derive(Debug, Clone)]
struct Reports {
    /// How many events may be reported at the time of the last one.
    tokens: f64,
    last: Timestamp,
    /// The texts by reason, and the time of the last one.
    texts: Vec<(Arc<str>, BTreeSet<Arc<str>>, Timestamp)>,
}

/// What all reporters remember.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventCorrelator {
    reports: Sorted<Source, Arc<Reports>>,
}

impl EventCorrelator {
    /// What the reporters of a cluster remember, by the events that it has.
    pub(crate) fn of(store: &Store) -> EventCorrelator {
        let mut events: Vec<(Timestamp, Source, String, String)> = Vec::new();
        let untyped =
            store.iter().filter(|(key, _)| matches!(key.kind, ObjectKind::Untyped(_)) && key.kind.name() == "Event");
        for (key, object) in untyped {
            let Ok(event) = Event::from_raw(&key.to_model(), &object.to_json()) else { continue };
            // Those of `events.k8s.io` have no such limits.
            let Some(at) = event.last_timestamp.as_ref().and_then(|at| near(at.0)) else { continue };
            let Some(source) = source_of(&event) else { continue };
            let count = object.to_json()["count"].as_u64().unwrap_or(1).clamp(1, 100);
            let text = |text: &Option<String>| text.clone().unwrap_or_default();
            for _ in 0..count {
                events.push((at, source.clone(), text(&event.reason), text(&event.message)));
            }
        }
        events.sort();
        let mut correlator = EventCorrelator::default();
        for (at, source, reason, message) in events {
            correlator.add(source, &reason, message.strip_prefix(COMBINED).unwrap_or(&message), at);
        }
        correlator
    }

    /// What happens to an event about the object with a UID.
    pub(crate) fn correlate(&mut self, note: &EventNote, uid: &str, component: &str, now: Timestamp) -> Correlated {
        let source: Source = (note.about.clone(), uid.into(), component.into(), note.warning);
        self.add(source, note.reason, &note.message, now)
    }

    fn add(&mut self, source: Source, reason: &str, text: &str, now: Timestamp) -> Correlated {
        let known = self.reports.remove(|other| other.cmp(&source));
        let mut reports = known.unwrap_or_else(|| Arc::new(Reports { tokens: BURST, last: now, texts: Vec::new() }));
        let found = Arc::make_mut(&mut reports);
        let correlated = match (found.is_combined(reason, text, now), found.is_accepted(now)) {
            (_, false) => Correlated::Dropped,
            (true, true) => Correlated::Combined,
            (false, true) => Correlated::Single,
        };
        self.reports.insert(source, reports);
        correlated
    }
}

impl Reports {
    /// `EventAggregate`. Of too many texts one is forgotten, any of them: here the last one.
    fn is_combined(&mut self, reason: &str, text: &str, now: Timestamp) -> bool {
        self.texts.retain(|(_, _, last)| now.duration_since(*last) <= TEXTS_KEPT);
        let place = self.texts.iter().position(|(other, ..)| **other == *reason).unwrap_or_else(|| {
            self.texts.push((reason.into(), BTreeSet::new(), now));
            self.texts.len() - 1
        });
        let (_, texts, last) = &mut self.texts[place];
        *last = now;
        if texts.contains(text) {
            return false;
        }
        if texts.len() + 1 >= MAX_TEXTS {
            return true;
        }
        texts.insert(text.into());
        false
    }

    /// `EventSourceObjectSpamFilter.Filter`.
    fn is_accepted(&mut self, now: Timestamp) -> bool {
        let passed = now.duration_since(self.last).as_secs_f64();
        self.tokens = (self.tokens + passed / REFILL.as_secs_f64()).min(BURST);
        self.last = now;
        let accepted = self.tokens >= 1.0;
        if accepted {
            self.tokens -= 1.0;
        }
        accepted
    }
}

/// Who reported an event about which object.
fn source_of(event: &Event) -> Option<Source> {
    let about = event.involved_object.as_ref()?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let kind = stead_model::Kind::find(&text(&about.api_version), &text(&about.kind))?;
    let namespace = if kind.namespaced { text(&about.namespace) } else { String::new() };
    let key = SimKey::new(ObjectKind::of(kind), &namespace, &text(&about.name));
    let component = event.reporting_component.as_deref().filter(|name| !name.is_empty())?;
    Some((key, text(&about.uid).into(), component.into(), event.r#type.as_deref() == Some("Warning")))
}
