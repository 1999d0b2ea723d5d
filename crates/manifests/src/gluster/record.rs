//! What the agents keep in Kubernetes, installed empty: they fill it, and applying it again changes nothing.

use serde_json::{Value, json};
use stead_pool::{config_map, key_secret};

use super::manifest;
use super::values::Pool;
use crate::manifest::Manifest;

/// The ConfigMap of the record. The admission policy refuses everything while there is none, so it comes before the policy.
pub(super) fn record(pool: &Pool) -> Manifest {
    named(manifest(pool, "configmaps", "v1", "ConfigMap", json!({})), config_map::name(&pool.name))
}

/// The Secret of the key that the agents sign with. It is here so that agents need no right to create Secrets.
pub(super) fn key(pool: &Pool) -> Manifest {
    let secret = manifest(pool, "secrets", "v1", "Secret", json!({"type": "Opaque"}));
    named(secret, key_secret::name(&pool.name))
}

fn named(mut manifest: Manifest, name: String) -> Manifest {
    manifest.object["metadata"]["name"] = Value::from(name);
    manifest
}
