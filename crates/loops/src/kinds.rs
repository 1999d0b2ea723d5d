//! The kinds that the loops look at, and what is kept of them.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::step::MANAGER;

/// A kind that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// API group and version.
    pub api_version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The kind's name in a path.
    pub plural: &'static str,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
    /// The label selector that bounds what is watched; empty for all.
    pub selector: &'static str,
    /// Whether the kind may be unknown to the cluster.
    pub optional: bool,
}

const fn kind(api_version: &'static str, kind: &'static str, plural: &'static str, selector: &'static str) -> Watched {
    Watched { api_version, kind, plural, namespaced: true, selector, optional: false }
}

/// The kinds of which the loops read single objects by name ([`crate::references`]). They are never listed or watched:
/// the operator needs no right to see Secrets that no spec refers to.
pub const READ_BY_NAME: &[Watched] = &[kind("v1", "Secret", "secrets", "")];

/// The kinds that the loops watch.
pub const WATCHED: &[Watched] = &[
    kind("topology.openstack.org/v1beta1", "Topology", "topologies", ""),
    kind("glance.openstack.org/v1beta1", "Glance", "glances", ""),
    kind("glance.openstack.org/v1beta1", "GlanceAPI", "glanceapis", ""),
    kind("core.openstack.org/v1beta1", "OpenStackControlPlane", "openstackcontrolplanes", ""),
    kind("apps/v1", "StatefulSet", "statefulsets", "service=glance"),
    kind("batch/v1", "Job", "jobs", "service=glance"),
    kind("batch/v1", "CronJob", "cronjobs", ""),
    kind("v1", "Pod", "pods", "service=glance"),
    kind("v1", "PersistentVolumeClaim", "persistentvolumeclaims", "service=glance"),
    kind("v1", "Service", "services", ""),
    kind("v1", "ServiceAccount", "serviceaccounts", "service=glance"),
    kind("rbac.authorization.k8s.io/v1", "Role", "roles", "service=glance"),
    kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", "service=glance"),
    Watched {
        optional: true,
        ..kind("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", "network-attachment-definitions", "")
    },
    Watched { namespaced: false, ..kind("v1", "Node", "nodes", "") },
];

/// What is kept of an object: enough to decide by, and no secret.
pub fn trim(mut object: Value) -> Value {
    if let Some(fields) = object["metadata"]["managedFields"].as_array_mut() {
        // Who else set something matters only where Stead applied something too.
        let applied = fields.iter().any(|f| f["manager"] == MANAGER && f["operation"] == "Apply");
        fields.retain(|f| applied && f["subresource"].as_str().unwrap_or_default().is_empty());
    }
    match object["kind"].as_str() {
        Some("Secret") => digest(&mut object),
        Some("Node") => heartless(&mut object),
        _ => {}
    }
    object
}

/// Values of a Secret give way to their digests: that they changed is all that anyone here may know.
fn digest(secret: &mut Value) {
    // kubectl apply leaves a copy of all that was applied, in plain sight.
    if let Some(meta) = secret.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("annotations");
    }
    for field in ["data", "stringData"] {
        let Some(data) = secret.get_mut(field).and_then(Value::as_object_mut) else { continue };
        for value in data.values_mut() {
            *value = Value::String(hex(value.as_str().unwrap_or_default()));
        }
    }
}

/// A node without what changes with each of its heartbeats.
fn heartless(node: &mut Value) {
    let kept: Vec<Value> = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|c| json!({"type": c["type"], "status": c["status"]}))
        .collect();
    let status = json!({"allocatable": node["status"]["allocatable"], "conditions": kept});
    node["status"] = status;
}

/// The SHA-256 of a text, in hexadecimal.
pub(crate) fn hex(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
