//! Changes to objects, and forks on which they are tried.

use json_patch::{AddOperation, Patch, PatchOperation, RemoveOperation, jsonptr::PointerBuf};
use serde::Serialize;
use serde_json::{Map, Value};
use stead_model::{Kind, ModelError, ObjectKey, Objects, PodView};
use stead_placement::{Cluster, Pod};

/// A change to one object.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// The object's kind.
    pub kind: String,
    /// Its namespace, where it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What is done to it.
    #[serde(flatten)]
    pub action: ChangeAction,
}

/// What is done to an object.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeAction {
    /// It is patched (RFC 6902).
    Patch(Patch),
    /// It is deleted (always true).
    Delete(bool),
    /// It is created.
    Create(Value),
}

impl Change {
    pub(crate) fn patch(key: &ObjectKey, operations: Vec<PatchOperation>) -> Change {
        Change::new(key, ChangeAction::Patch(Patch(operations)))
    }

    pub(crate) fn delete(key: &ObjectKey) -> Change {
        Change::new(key, ChangeAction::Delete(true))
    }

    pub(crate) fn create(key: &ObjectKey, value: Value) -> Change {
        Change::new(key, ChangeAction::Create(value))
    }

    fn new(key: &ObjectKey, action: ChangeAction) -> Change {
        Change { kind: key.kind.clone(), namespace: key.namespace.clone(), name: key.name.clone(), action }
    }

    /// The object that it is about.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.kind, &self.namespace, &self.name)
    }
}

fn pointer(path: &[&str]) -> PointerBuf {
    PointerBuf::from_tokens(path.iter().copied())
}

/// Sets a field, whether it was there or not.
pub(crate) fn set(path: &[&str], value: impl Into<Value>) -> PatchOperation {
    PatchOperation::Add(AddOperation { path: pointer(path), value: value.into() })
}

/// Removes a field.
pub(crate) fn unset(path: &[&str]) -> PatchOperation {
    PatchOperation::Remove(RemoveOperation { path: pointer(path) })
}

/// Sets a field below an object that may not be there yet, such as a label of a node without labels.
pub(crate) fn set_in(object: &Value, parent: &[&str], field: &str, value: impl Into<Value>) -> Vec<PatchOperation> {
    let mut operations = Vec::new();
    for depth in 1..=parent.len() {
        let there = parent[..depth].iter().try_fold(object, |o, field| o.get(*field)).is_some_and(|v| !v.is_null());
        if !there {
            operations.push(set(&parent[..depth], Value::Object(serde_json::Map::new())));
        }
    }
    let mut path = parent.to_vec();
    path.push(field);
    operations.push(set(&path, value));
    operations
}

/// Makes changes to a recorded case, in place. Fails where a change is about an object that the case does not have.
pub fn apply_to_case(given: &mut Map<String, Value>, changes: &[Change]) -> Result<(), ModelError> {
    for change in changes {
        let fault = |reason: &str| ModelError::malformed(change.key(), "changes", reason);
        let same = |o: &Value| ObjectKey::of_kind(&change.kind, o).is_some_and(|k| k == change.key());
        let list = Kind::named(&change.kind).and_then(|kind| kind.case_list);
        let list = list.ok_or_else(|| fault("not a kind of cases"))?;
        if let ChangeAction::Create(object) = &change.action {
            let list = given.entry(list).or_insert_with(|| Value::Array(Vec::new()));
            list.as_array_mut().ok_or_else(|| fault("not a list"))?.push(object.clone());
            continue;
        }
        let pod = change.kind == "Pod" && given.get("pod").is_some_and(same);
        let target = match given.get_mut(if pod { "pod" } else { list }) {
            Some(target) if pod => target,
            Some(Value::Array(items)) => {
                let at = items.iter().position(same).ok_or_else(|| fault("not in the case"))?;
                if matches!(change.action, ChangeAction::Delete(_)) {
                    items.remove(at);
                    continue;
                }
                &mut items[at]
            }
            _ => return Err(fault("not in the case")),
        };
        if let ChangeAction::Patch(patch) = &change.action {
            json_patch::patch(target, patch).map_err(|e| fault(&e.to_string()))?;
        }
    }
    Ok(())
}

/// A fork of the cluster with the pod to place, on which changes are tried.
#[derive(Debug, Clone)]
pub(crate) struct Trial {
    pub(crate) objects: Objects,
    pub(crate) cluster: Cluster,
    pub(crate) pod: Pod,
    pub(crate) key: ObjectKey,
}

impl Trial {
    pub(crate) fn new(objects: &Objects, key: &ObjectKey) -> Result<Trial, ModelError> {
        let pod = Pod::from_objects(objects, key)?;
        let cluster = Cluster::from_objects(objects, Some(key));
        Ok(Trial { cluster, pod, objects: objects.clone(), key: key.clone() })
    }

    /// The pod to place.
    pub(crate) fn view(&self) -> Option<PodView<'_>> {
        self.objects.pod(&self.key).ok().flatten()
    }

    /// The same with the changes made; none where one of them cannot be.
    pub(crate) fn with(&self, changes: &[Change]) -> Option<Trial> {
        let mut trial = self.clone();
        for change in changes {
            trial.apply(change)?;
        }
        Some(trial)
    }

    fn apply(&mut self, change: &Change) -> Option<()> {
        let key = change.key();
        let value = match &change.action {
            ChangeAction::Delete(_) => {
                self.objects.remove(&key);
                return self.cluster.take_object(&key).then_some(());
            }
            ChangeAction::Create(value) => value.clone(),
            ChangeAction::Patch(patch) => {
                let mut value = self.objects.raw(&key)?.clone();
                json_patch::patch(&mut value, patch).ok()?;
                value
            }
        };
        self.objects.insert(key.clone(), value);
        if key == self.key {
            self.pod = Pod::from_objects(&self.objects, &key).ok()?;
        } else {
            self.cluster.put_object(self.objects.object(&key)?).ok()?;
        }
        Some(())
    }
}

/// Parses a part of an object; none where it is missing or malformed.
pub(crate) fn part<'a, T: serde::Deserialize<'a>>(value: &'a Value) -> Option<T> {
    T::deserialize(value).ok()
}
