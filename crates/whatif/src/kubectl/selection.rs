//! The objects that a command is about.

use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use stead_kubectl::Targets;
use stead_sim::{ApiError, ObjectKind, SimKey, SimObject};

use super::{Command, CommandError};

impl Command<'_> {
    /// The keys of the objects, in the order of the command line and then of their names.
    pub(super) fn select(&self, targets: &Targets) -> Result<Vec<SimKey>, CommandError> {
        let mut keys = Vec::new();
        for file in &targets.files {
            for object in self.manifests.read(file)? {
                keys.push(self.in_namespace(object)?.key());
            }
        }
        for target in &targets.objects {
            let kind = ObjectKind::of(target.kind);
            let namespace = if target.kind.namespaced { self.namespace } else { "" };
            match &target.name {
                Some(name) => keys.push(SimKey::new(kind, namespace, name)),
                None => {
                    let store = self.simulation.store();
                    let inside = |key: &SimKey| targets.all_namespaces || &*key.namespace == namespace;
                    for (key, object) in store.of_kind(kind).filter(|(key, _)| inside(key)) {
                        if is_selected(targets, object)? {
                            keys.push(key.clone());
                        }
                    }
                }
            }
        }
        Ok(keys)
    }

    /// An object of a file, in the namespace of the command if it names none.
    pub(super) fn in_namespace(&self, object: &Value) -> Result<SimObject, CommandError> {
        let mut object = object.clone();
        if object["metadata"]["namespace"].is_null() && object["metadata"].is_object() {
            object["metadata"]["namespace"] = self.namespace.into();
        }
        SimObject::from_json(&object).map_err(|error| CommandError::Client(error.to_string()))
    }

    /// Refuses an object that does not exist.
    pub(super) fn must_exist(&self, key: &SimKey) -> Result<(), CommandError> {
        match self.simulation.store().object(key) {
            Some(_) => Ok(()),
            None => Err(ApiError::NotFound(key.clone()).into()),
        }
    }
}

fn is_selected(targets: &Targets, object: &SimObject) -> Result<bool, CommandError> {
    let labels = object.metadata().labels.clone().unwrap_or_default();
    if targets.selector.as_ref().is_some_and(|selector| !selector.matches(&labels)) {
        return Ok(false);
    }
    let Some(fields) = &targets.field_selector else { return Ok(true) };
    for term in fields.split(',').filter(|term| !term.is_empty()) {
        let (path, wanted, value) = match (term.split_once("!="), term.split_once('=')) {
            (Some((path, value)), _) => (path, false, value),
            (None, Some((path, value))) => (path, true, value.trim_start_matches('=')),
            (None, None) => return Err(CommandError::Client(format!("field selector {term:?} has no ="))),
        };
        if (field(object, path)? == value) != wanted {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The fields that the API server can select by.
fn field(object: &SimObject, path: &str) -> Result<String, CommandError> {
    let pod = |read: fn(&Pod) -> Option<&String>| match object {
        SimObject::Pod(pod) => Some(read(pod).cloned().unwrap_or_default()),
        _ => None,
    };
    let value = match path {
        "metadata.name" => object.metadata().name.clone(),
        "metadata.namespace" => object.metadata().namespace.clone(),
        "spec.nodeName" => pod(|pod| pod.spec.as_ref()?.node_name.as_ref()),
        "status.phase" => pod(|pod| pod.status.as_ref()?.phase.as_ref()),
        "spec.schedulerName" => pod(|pod| pod.spec.as_ref()?.scheduler_name.as_ref()),
        "spec.restartPolicy" => pod(|pod| pod.spec.as_ref()?.restart_policy.as_ref()),
        _ => None,
    };
    value.ok_or_else(|| CommandError::Client(format!("field label not supported: {path}")))
}
