//! The admission policy: denies a scale-down that would leave bricks without their peer, and a recreated pool that is
//! too small for its bricks.

use serde_json::{Value, json};
use stead_pool::config_map;

use super::labels;
use super::values::Pool;
use crate::manifest::{Manifest, Part};

const TEXT: &str = include_str!("../../policies/gluster-pool.yaml");

/// Builds the policy and its binding. Both are cluster-scoped; their names contain namespace and pool.
pub(super) fn objects(pool: &Pool) -> Vec<Manifest> {
    let name = format!("stead.gluster.{}.{}", pool.namespace, pool.name);
    let metadata = json!({"name": name, "labels": labels(pool)});
    let text = crate::read(TEXT);
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": pool.namespace}},
                "resourceRules": [{
                    "apiGroups": ["apps"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["statefulsets", "statefulsets/scale"],
                    "resourceNames": [pool.name],
                }],
            },
            "variables": text["variables"],
            "validations": text["validations"],
        },
    });
    // The record is installed, empty, before the policy: without it, the bricks are not known.
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata,
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "paramRef": {
                "name": config_map::name(&pool.name),
                "namespace": pool.namespace,
                "parameterNotFoundAction": "Deny",
            },
        },
    });
    let manifest = |plural, object: Value| Manifest::new(Part::Pool, plural, object);
    vec![manifest("validatingadmissionpolicies", policy), manifest("validatingadmissionpolicybindings", binding)]
}
