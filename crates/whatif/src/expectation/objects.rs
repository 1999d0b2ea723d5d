//! Events, conditions and fields of objects.

use stead_kubectl::kind_named;
use stead_sim::{SimEvent, SimObject};

use super::{ConditionExpectation, EventExpectation, FieldExpectation, Pattern, View, reference};

impl EventExpectation {
    pub(super) fn holds(&self, view: View<'_>) -> Result<(), String> {
        let (kind, name) = self.about.split_once('/').unwrap_or(("*", &self.about));
        let kind = kind_named(kind).map_or(kind, |kind| kind.kind);
        let message = self.message.as_deref().unwrap_or("*");
        let similar = |event: &&SimEvent| {
            let about = &event.note.about;
            event.note.reason == self.reason
                && Pattern::new(kind).matches(about.kind.name())
                && Pattern::new(name).matches(&about.name)
        };
        let events = view.simulation.events().iter().filter(similar);
        let found: Vec<&str> = events.map(|event| event.note.message.as_str()).collect();
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
