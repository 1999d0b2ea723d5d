//! Admission policies: checks that CRD validation rules cannot express.

use serde_json::{Value, json};

use crate::manifest::{Manifest, Part};

/// What is not checked when an object is written in a cluster without these policies.
pub const UNCHECKED: &str = "a reference to a Topology of another namespace is accepted (the operator then reports it in \
                             the condition TopologyReady, and does not apply it), and the spelling \
                             topologySpreadConstraint gives no warning";

/// The policies, one per kind.
const TEXTS: [&str; 4] = [
    include_str!("../policies/glanceapis.yaml"),
    include_str!("../policies/glances.yaml"),
    include_str!("../policies/openstackcontrolplanes.yaml"),
    include_str!("../policies/topologies.yaml"),
];

/// Returns all policies with their bindings.
pub(crate) fn policies() -> Vec<Manifest> {
    TEXTS.iter().flat_map(|text| policy(&crate::read(text))).collect()
}

fn policy(text: &Value) -> [Manifest; 2] {
    let (resource, group) = (text["resource"].as_str().unwrap_or_default(), text["group"].as_str().unwrap_or_default());
    let definition = format!("{resource}.{group}");
    let name = format!("stead.{definition}");
    // Finalizers can be removed from an object that is being deleted, even if it is invalid.
    let faultless = "has(object.metadata.deletionTimestamp) || size(variables.faults) == 0";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [{
                    "apiGroups": [group],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": [resource],
                }],
            },
            "variables": text["variables"],
            "validations": [{
                "expression": faultless,
                "messageExpression": "variables.faults.join(', ')",
                "reason": "Invalid",
            }],
        },
    });
    let actions = text.get("actions").cloned().unwrap_or_else(|| json!(["Deny"]));
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": actions},
    });
    let manifest = |plural, object| Manifest::new(Part::Definitions, plural, object).about(&definition);
    [manifest("validatingadmissionpolicies", policy), manifest("validatingadmissionpolicybindings", binding)]
}
