//! The objects in which the agents store data. They are installed empty; applying them again changes nothing.

use serde_json::{Value, json};
use stead_pool::{config_map, key_secret};

use super::manifest;
use super::values::Pool;
use crate::manifest::Manifest;

/// The ConfigMap of the record. It comes before the admission policy, which denies everything without it.
pub(super) fn record(pool: &Pool) -> Manifest {
    named(manifest(pool, "configmaps", "v1", "ConfigMap", json!({})), config_map::name(&pool.name))
}

/// The Secret with the key that the agents sign with. It is installed here so that agents need no right to create
/// Secrets.
pub(super) fn key(pool: &Pool) -> Manifest {
    let secret = manifest(pool, "secrets", "v1", "Secret", json!({"type": "Opaque"}));
    named(secret, key_secret::name(&pool.name))
}

fn named(mut manifest: Manifest, name: String) -> Manifest {
    manifest.object["metadata"]["name"] = Value::from(name);
    manifest
}
