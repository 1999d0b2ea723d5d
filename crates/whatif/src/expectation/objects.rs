//! Events, conditions and fields of objects.

use serde_json::Value;
use stead_kubectl::kind_named;
use stead_model::Kind;
use stead_sim::{ObjectKind, SimObject};

use super::{ConditionExpectation, EventExpectation, FieldExpectation, Pattern, View, reference};

impl EventExpectation {
    pub(super) fn holds(&self, view: View<'_>) -> Result<(), String> {
        let (kind, name) = self.about.split_once('/').unwrap_or(("*", &self.about));
        let kind = kind_named(kind).map_or(kind, |kind| kind.kind);
        let message = self.message.as_deref().unwrap_or("*");
        let is_similar = |reason: &str, about_kind: &str, about_name: &str| {
            reason == self.reason && Pattern::new(kind).matches(about_kind) && Pattern::new(name).matches(about_name)
        };
        // Those of the cluster in which the simulation began, and its own.
        let text = |text: &Value| text.as_str().unwrap_or_default().to_owned();
        let events =
            Kind::named("Event").into_iter().flat_map(|kind| view.simulation.store().of_kind(ObjectKind::of(kind)));
        let earlier = events.map(|(_, event)| event.to_json()).filter(|event| {
            let about = &event["involvedObject"];
            is_similar(&text(&event["reason"]), &text(&about["kind"]), &text(&about["name"]))
        });
        let own = view.simulation.events().iter().filter(|event| {
            let about = &event.note.about;
            is_similar(event.note.reason, about.kind.name(), &about.name)
        });
        let own = own.map(|event| event.note.message.to_string());
        let found: Vec<String> = earlier.map(|event| text(&event["message"])).chain(own).collect();
        if found.iter().any(|text| Pattern::new(message).matches(text)) {
            return Ok(());
        }
        let about = &self.about;
        match found.last() {
            None => Err(format!("there is no event {} about {about}", self.reason)),
            Some(text) => Err(format!("the event {} about {about} says {text:?}, not {message:?}", self.reason)),
        }
    }
}

impl ConditionExpectation {
    pub(super) fn holds(&self, view: View<'_>) -> Result<(), String> {
        let object = existing(view, &self.of)?.to_json();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == self.condition_type.as_str());
        let Some(found) = found else {
            return Err(format!("{} has no condition {}", self.of, self.condition_type));
        };
        let parts =
            [("status", Some(&self.status)), ("reason", self.reason.as_ref()), ("message", self.message.as_ref())];
        for (part, wanted) in parts {
            let is = found[part].as_str().unwrap_or_default();
            if let Some(text) = wanted.filter(|text| !Pattern::new(text).matches(is)) {
                let kind = &self.condition_type;
                return Err(format!("the {part} of condition {kind} of {} is {is:?}, not {text:?}", self.of));
            }
        }
        Ok(())
    }
}

impl FieldExpectation {
    pub(super) fn holds(&self, view: View<'_>) -> Result<(), String> {
        let object = existing(view, &self.of)?.to_json();
        let value = self.path.split('.').fold(&object, |value, name| match name.parse::<usize>() {
            Ok(index) if value.is_array() => &value[index],
            _ => &value[name],
        });
        match *value == self.is {
            true => Ok(()),
            false => Err(format!("{} of {} is {value}, not {}", self.path, self.of, self.is)),
        }
    }
}

pub(super) fn is_absent(view: View<'_>, text: &str) -> Result<(), String> {
    let key = reference(text, view.namespace)?;
    match view.simulation.store().object(&key) {
        None => Ok(()),
        Some(_) => Err(format!("{key} exists")),
    }
}

/// An object that has to exist.
fn existing<'a>(view: View<'a>, text: &str) -> Result<&'a SimObject, String> {
    let key = reference(text, view.namespace)?;
    view.simulation.store().object(&key).ok_or_else(|| format!("{key} does not exist"))
}
