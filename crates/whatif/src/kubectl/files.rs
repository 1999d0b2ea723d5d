//! `apply`, `create` and `replace` of objects in files.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stead_sim::{ApiError, DeleteOptions, ObjectPart, SimKey, SimObject, Write};

use super::{Command, CommandError};

/// The objects of the files that commands name. Somebody else has read them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Manifests {
    files: BTreeMap<String, Vec<Value>>,
}

impl Manifests {
    /// Adds a file; `-` for the input of a command. Lists are taken apart.
    pub fn add(&mut self, name: impl Into<String>, objects: impl IntoIterator<Item = Value>) {
        let entry = self.files.entry(name.into()).or_default();
        for object in objects {
            match object["items"]
                .as_array()
                .filter(|_| object["kind"].as_str().is_some_and(|kind| kind.ends_with("List")))
            {
                Some(items) => entry.extend(items.iter().cloned()),
                None => entry.push(object),
            }
        }
    }

    /// The objects of a file; none if it was not added.
    pub fn file(&self, name: &str) -> Option<&[Value]> {
        self.files.get(name).map(Vec::as_slice)
    }

    pub(super) fn read(&self, file: &str) -> Result<&[Value], CommandError> {
        self.file(file).ok_or_else(|| CommandError::Client(format!("the path \"{file}\" does not exist")))
    }
}

impl Command<'_> {
    fn objects(&self, files: &[String]) -> Result<Vec<SimObject>, CommandError> {
        let mut objects = Vec::new();
        for file in files {
            for object in self.manifests.read(file)? {
                objects.push(self.in_namespace(object)?);
            }
        }
        Ok(objects)
    }

    pub(super) fn apply(&mut self, files: &[String]) -> Result<(), CommandError> {
        for file in files {
            for given in self.manifests.read(file)?.to_vec() {
                let key = self.in_namespace(&given)?.key();
                let existed = self.simulation.store().object(&key).is_some();
                let (manager, part) = ("kubectl".to_owned(), ObjectPart::Spec);
                let write = Write::Apply { object: self.given(&given, &key), manager, part };
                let changed = self.simulation.request(write)?.is_some();
                let done = match (existed, changed) {
                    (false, _) => "created",
                    (true, true) => "configured",
                    (true, false) => "unchanged",
                };
                self.print(&key, done);
            }
        }
        Ok(())
    }

    /// The fields that were given, with the namespace of the object.
    fn given(&self, object: &Value, key: &SimKey) -> Value {
        let mut object = object.clone();
        if !key.namespace.is_empty() {
            object["metadata"]["namespace"] = (&*key.namespace).into();
        }
        object
    }

    pub(super) fn create(&mut self, files: &[String]) -> Result<(), CommandError> {
        for object in self.objects(files)? {
            let created = self.simulation.request(Write::Create(object))?;
            if let Some(created) = created {
                self.print(&created.key(), "created");
            }
        }
        Ok(())
    }

    pub(super) fn create_namespace(&mut self, name: &str) -> Result<(), CommandError> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let object = self.in_namespace(&namespace)?;
        let key = object.key();
        self.simulation.request(Write::Create(object))?;
        self.print(&key, "created");
        Ok(())
    }

    pub(super) fn replace(&mut self, files: &[String], force: bool) -> Result<(), CommandError> {
        for object in self.objects(files)? {
            let key = object.key();
            if force {
                let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
                match self.simulation.request(Write::Delete(key.clone(), options)) {
                    Ok(_) | Err(ApiError::NotFound(_)) => {}
                    Err(error) => return Err(error.into()),
                }
                self.simulation.request(Write::Create(object))?;
            } else {
                self.write(object)?;
            }
            self.print(&key, "replaced");
        }
        Ok(())
    }
}
