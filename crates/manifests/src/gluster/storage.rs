//! StorageClass and claim templates of a pool.

use serde_json::{Value, json};

use super::values::Pool;
use crate::manifest::{Manifest, Part};

/// The StorageClass, if one is to be created. A brick's volume is provisioned where its pod was scheduled, and is
/// retained after its claim is deleted.
pub(super) fn class(pool: &Pool) -> Option<Manifest> {
    let (new, name) = (pool.new_class.as_ref()?, pool.storage_class.as_ref()?);
    let mut object = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": new.provisioner,
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true,
    });
    if !new.parameters.is_empty() {
        object["parameters"] = json!(new.parameters);
    }
    Some(Manifest::new(Part::Pool, "storageclasses", object))
}

/// The claim templates of a pod.
pub(super) fn claims(pool: &Pool) -> Value {
    let state = pool.state_storage_class.as_ref().or(pool.storage_class.as_ref());
    json!([
        claim(&pool.state_claim, state, &pool.state_size),
        claim(&pool.brick_claim, pool.storage_class.as_ref(), &pool.brick_size),
    ])
}

fn claim(name: &str, class: Option<&String>, size: &str) -> Value {
    // Includes the fields that the API server would add to a template, so that nothing differs when it is applied
    // again.
    let mut claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
        },
    });
    if let Some(class) = class {
        claim["spec"]["storageClassName"] = class.as_str().into();
    }
    claim
}
