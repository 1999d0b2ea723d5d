//! The configuration of the cluster's kube-scheduler.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde_json::Value;
use stead_model::{ModelError, Objects};
use stead_placement::Profiles;

use crate::output::first_line;

/// Reads the file of `--scheduler-config`, and checks that everything in it is modelled.
pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Option<Value>> {
    let Some(path) = path else { return Ok(None) };
    let name = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let config: Value =
        serde_saphyr::from_str(&text).map_err(|error| anyhow!("{name}: {}", first_line(&error.to_string())))?;
    match Profiles::read(&config) {
        Ok(_) => Ok(Some(config)),
        Err(ModelError::Malformed { field, reason, .. }) => Err(anyhow!("{name}: {field}: {reason}")),
        Err(error) => Err(anyhow!("{name}: {error}")),
    }
}

/// Adds the configuration to a cluster's objects. An error if the one that these have, of OpenShift, is not modelled.
pub(crate) fn set(objects: &mut Objects, config: Option<Value>) -> anyhow::Result<()> {
    if let Some(config) = config {
        objects.insert(Profiles::key(), config);
    }
    Profiles::of(objects).map(drop).map_err(Into::into)
}
