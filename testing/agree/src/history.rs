//! The changes of a recording, with the whole objects before and after each.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::recording::{Recording, What, key_of};

/// A change of an object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// Milliseconds since the snapshot.
    pub(crate) at: i64,
    /// The object before; none if it was created.
    pub(crate) before: Option<Value>,
    /// The object after; none if it was removed.
    pub(crate) after: Option<Value>,
}

/// All changes of a recording.
#[derive(Debug, Clone)]
pub(crate) struct History {
    /// The changes, in order.
    pub(crate) changes: Vec<Change>,
    /// The objects of the snapshot.
    pub(crate) kept: BTreeMap<String, Value>,
    /// The objects at the end.
    pub(crate) end: BTreeMap<String, Value>,
}

impl Change {
    /// The object after the change, or before its removal.
    pub(crate) fn latest(&self) -> &Value {
        self.after.as_ref().or(self.before.as_ref()).unwrap_or(&Value::Null)
    }

    pub(crate) fn kind(&self) -> &str {
        self.latest()["kind"].as_str().unwrap_or_default()
    }
}

impl History {
    pub(crate) fn of(recording: &Recording) -> History {
        let kept: BTreeMap<String, Value> =
            recording.snapshot.iter().map(|object| (key_of(object), object.clone())).collect();
        let (mut objects, mut changes) = (kept.clone(), Vec::new());
        for moment in &recording.moments {
            let (before, after) = match &moment.what {
                What::Created(object) => {
                    let object = object.clone();
                    (objects.insert(key_of(&object), object.clone()), Some(object))
                }
                What::Changed(key, patch) => {
                    let Some(before) = objects.get(key).cloned() else { continue };
                    let mut after = before.clone();
                    json_patch::merge(&mut after, patch);
                    objects.insert(key.clone(), after.clone());
                    (Some(before), Some(after))
                }
                What::Removed(key) => match objects.remove(key) {
                    Some(before) => (Some(before), None),
                    None => continue,
                },
                What::Did { .. } => continue,
            };
            changes.push(Change { at: moment.at, before, after });
        }
        History { changes, kept, end: objects }
    }
}
