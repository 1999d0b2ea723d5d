//! What an installation would do to a cluster.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::manifest::{Manifest, is_ours};

/// What would be done about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It is not there: it is made.
    Create,
    /// It is there, and these fields would get other values.
    Change(Vec<String>),
    /// It is there as it should be.
    Unchanged,
    /// It is left from an installation with other options: it is deleted.
    Delete,
    /// It belongs to somebody else, or is about a definition that does: it is left as it is.
    Foreign,
}

/// The definitions of a cluster that have the name of one of ours and are somebody else's. `live` are definitions as
/// they are in the cluster.
pub fn foreign<'a>(live: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    let name = |definition: &Value| definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    live.into_iter().filter(|definition| !is_ours(definition)).map(name).collect()
}

/// Whether a manifest is left out because of a foreign definition.
pub fn is_left_out(manifest: &Manifest, foreign: &BTreeSet<String>) -> bool {
    manifest.about.as_ref().is_some_and(|definition| foreign.contains(definition))
}

/// What applying changes: `live` is the object as it is, `applied` as the API server says that it would be.
pub fn compare(live: &Value, applied: &Value) -> Action {
    let mut changed = Vec::new();
    differences(&significant(live), &significant(applied), "", &mut changed);
    if changed.is_empty() { Action::Unchanged } else { Action::Change(changed) }
}

/// An object without what the API server writes by itself.
fn significant(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["managedFields", "resourceVersion", "generation", "creationTimestamp", "uid"] {
            metadata.remove(field);
        }
    }
    object
}

/// The paths at which two values differ. A list of another length is one difference, not one for each item.
fn differences(a: &Value, b: &Value, at: &str, found: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) => {
            let names: BTreeSet<&String> = x.keys().chain(y.keys()).collect();
            for name in names {
                let inner = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                let none = Value::Null;
                differences(x.get(name).unwrap_or(&none), y.get(name).unwrap_or(&none), &inner, found);
            }
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            for (i, (x, y)) in x.iter().zip(y).enumerate() {
                differences(x, y, &format!("{at}[{i}]"), found);
            }
        }
        (a, b) if a != b => found.push(at.to_owned()),
        _ => {}
    }
}

/// What an installation would do, in the order in which it would do it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Each object, and what would be done about it.
    pub steps: Vec<(Manifest, Action)>,
}

impl Plan {
    /// Whether there is anything to write.
    pub fn changes(&self) -> bool {
        self.steps.iter().any(|(_, action)| matches!(action, Action::Create | Action::Change(_) | Action::Delete))
    }

    /// The definitions that belong to somebody else.
    pub fn foreign(&self) -> Vec<&str> {
        let foreign = self.steps.iter().filter(|(m, action)| m.is_definition() && *action == Action::Foreign);
        foreign.map(|(manifest, _)| manifest.name()).collect()
    }
}
