//! `scale`, `label`, `annotate`, `patch`, `set image` and `set resources`.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::Value;
use stead_kubectl::{KeyChange, PatchType};
use stead_sim::{ObjectPart, Patch, SimKey, SimObject, Write};

use super::rollout::template;
use super::{Command, CommandError};

impl Command<'_> {
    pub(super) fn scale(&mut self, key: &SimKey, replicas: i32, current: Option<i32>) -> Result<(), CommandError> {
        let mut object = self.object(key)?;
        let count = match &mut object {
            SimObject::Deployment(it) => &mut Arc::make_mut(it).spec.get_or_insert_default().replicas,
            SimObject::StatefulSet(it) => &mut Arc::make_mut(it).spec.get_or_insert_default().replicas,
            SimObject::ReplicaSet(it) => &mut Arc::make_mut(it).spec.get_or_insert_default().replicas,
            _ => {
                let name = key.kind.entry().plural;
                return Err(CommandError::Client(format!("cannot scale {name}: the resource has no scale")));
            }
        };
        if let Some(current) = current.filter(|current| *count != Some(*current)) {
            let is = count.unwrap_or_default();
            return Err(CommandError::Client(format!("Expected replicas to be {current}, was {is}")));
        }
        *count = Some(replicas);
        self.write(object)?;
        self.print(key, "scaled");
        Ok(())
    }

    pub(super) fn change_keys(
        &mut self,
        key: &SimKey,
        field: &str,
        changes: &[KeyChange],
        overwrite: bool,
    ) -> Result<(), CommandError> {
        let mut object = self.object(key)?;
        let metadata = object.metadata_mut();
        let (map, set, unset, none) = match field {
            "labels" => (&mut metadata.labels, "labeled", "unlabeled", "not labeled"),
            _ => (&mut metadata.annotations, "annotated", "annotated", "annotated"),
        };
        let map = map.get_or_insert_default();
        let before = map.clone();
        for change in changes {
            let Some(value) = &change.value else {
                map.remove(&change.key);
                continue;
            };
            if let Some(old) = map.get(&change.key).filter(|old| !overwrite && *old != value) {
                let name = &change.key;
                return Err(CommandError::Client(format!(
                    "'{name}' already has a value ({old}), and --overwrite is false"
                )));
            }
            map.insert(change.key.clone(), value.clone());
        }
        let done = match before == *map {
            true => none,
            false if changes.iter().all(|change| change.value.is_none()) => unset,
            false => set,
        };
        self.write(object)?;
        self.print(key, done);
        Ok(())
    }

    pub(super) fn patch(
        &mut self,
        key: &SimKey,
        patch: &Value,
        patch_type: PatchType,
        subresource: Option<&str>,
    ) -> Result<(), CommandError> {
        if let Some(other) = subresource.filter(|name| *name != "status" && *name != "scale") {
            return Err(CommandError::Client(format!("--subresource={other} is not supported")));
        }
        let patch = match patch_type {
            PatchType::Merge => Patch::Merge(patch.clone()),
            PatchType::Json => Patch::Json(patch.clone()),
            PatchType::Strategic => Patch::Strategic(patch.clone()),
        };
        let part = if subresource == Some("status") { ObjectPart::Status } else { ObjectPart::Spec };
        let changed = self.simulation.request(Write::Patch { key: key.clone(), patch, part })?.is_some();
        self.print(key, if changed { "patched" } else { "patched (no change)" });
        Ok(())
    }

    pub(super) fn set_image(&mut self, key: &SimKey, images: &[(String, String)]) -> Result<(), CommandError> {
        let mut object = self.object(key)?;
        let spec = pod_spec(&mut object)?;
        for (name, image) in images {
            let found = change_containers(spec, name, |container| container.image = Some(image.clone()));
            if !found {
                return Err(CommandError::Client(format!("unable to find container named \"{name}\"")));
            }
        }
        self.write(object)?;
        self.print(key, "image updated");
        Ok(())
    }

    pub(super) fn set_resources(
        &mut self,
        key: &SimKey,
        containers: &str,
        limits: &[(String, String)],
        requests: &[(String, String)],
    ) -> Result<(), CommandError> {
        let mut object = self.object(key)?;
        let spec = pod_spec(&mut object)?;
        let found = change_containers(spec, containers, |container| {
            let resources = container.resources.get_or_insert_default();
            set_quantities(resources.limits.get_or_insert_default(), limits);
            set_quantities(resources.requests.get_or_insert_default(), requests);
        });
        if !found {
            return Err(CommandError::Client(format!("unable to find container named {containers}")));
        }
        self.write(object)?;
        self.print(key, "resource requirements updated");
        Ok(())
    }
}

/// Quantities of zero remove an entry, as in kubectl.
fn set_quantities(map: &mut BTreeMap<String, Quantity>, changes: &[(String, String)]) {
    for (name, value) in changes {
        match value.as_str() {
            "0" => drop(map.remove(name)),
            _ => drop(map.insert(name.clone(), Quantity(value.clone()))),
        }
    }
}

fn pod_spec(object: &mut SimObject) -> Result<&mut PodSpec, CommandError> {
    if let SimObject::Pod(pod) = object {
        return Ok(Arc::make_mut(pod).spec.get_or_insert_default());
    }
    Ok(template(object, "setting containers")?.spec.get_or_insert_default())
}

/// Changes the containers of a name, `*` for all. Gives whether there is one.
fn change_containers(spec: &mut PodSpec, name: &str, change: impl Fn(&mut Container)) -> bool {
    let containers = spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten());
    let chosen = containers.filter(|container| name == "*" || container.name == name);
    chosen.map(change).count() > 0
}
