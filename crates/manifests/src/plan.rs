//! Computes what an installation would do to a cluster.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::manifest::{Manifest, is_ours};

/// What would be done with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// It does not exist and is created.
    Create,
    /// It exists, and these fields change.
    Change(Vec<String>),
    /// It exists and does not change.
    Unchanged,
    /// It is left over from an installation with other options, and is deleted.
    Delete,
    /// It belongs to somebody else, or is about a CRD that does, and is left alone.
    Foreign,
}

/// Returns the names of CRDs in the cluster that belong to somebody else. `live` are the existing CRDs with the names
/// of ours.
pub fn foreign<'a>(live: impl IntoIterator<Item = &'a Value>) -> BTreeSet<String> {
    let name = |definition: &Value| definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    live.into_iter().filter(|definition| !is_ours(definition)).map(name).collect()
}

/// Whether a manifest is left out because it is about a foreign CRD.
pub fn is_left_out(manifest: &Manifest, foreign: &BTreeSet<String>) -> bool {
    manifest.about.as_ref().is_some_and(|definition| foreign.contains(definition))
}

/// Compares an object before and after it is applied: `live` is the existing one, `applied` the result of a dry run.
pub fn compare(live: &Value, applied: &Value) -> Action {
    let mut changed = Vec::new();
    differences(&significant(live), &significant(applied), "", &mut changed);
    if changed.is_empty() { Action::Unchanged } else { Action::Change(changed) }
}

/// Returns the fields of a CRD in a cluster that differ from ours, without asking the API server for a dry run. Fields that
/// it sets by default are the same as if we had set them.
pub fn definition_differences(ours: &Manifest, live: &Value) -> Vec<String> {
    let mut spec = ours.object["spec"].clone();
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let defaults = [
        ("/conversion", json!({"strategy": "None"})),
        ("/names/listKind", format!("{kind}List").into()),
        ("/names/singular", kind.to_lowercase().into()),
    ];
    for (pointer, default) in defaults {
        let (parent, field) = pointer.rsplit_once('/').unwrap_or_default();
        if let Some(Value::Object(parent)) = spec.pointer_mut(parent) {
            parent.entry(field).or_insert(default);
        }
    }
    let mut found = Vec::new();
    differences(&spec, &live["spec"], "spec", &mut found);
    found
}

/// Returns the object without the fields that the API server sets.
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

/// Collects the paths at which two values differ. Lists of different length are one difference.
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

/// The plan of an installation, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Each object and what would be done with it.
    pub steps: Vec<(Manifest, Action)>,
}

impl Plan {
    /// Whether anything would be written.
    pub fn changes(&self) -> bool {
        self.steps.iter().any(|(_, action)| matches!(action, Action::Create | Action::Change(_) | Action::Delete))
    }

    /// The CRDs that belong to somebody else.
    pub fn foreign(&self) -> Vec<&str> {
        let foreign = self.steps.iter().filter(|(m, action)| m.is_definition() && *action == Action::Foreign);
        foreign.map(|(manifest, _)| manifest.name()).collect()
    }
}
