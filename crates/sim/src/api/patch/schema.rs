//! How lists and maps of Kubernetes objects are merged: the markers `x-kubernetes-list-type`, `x-kubernetes-map-type` and
//! `x-kubernetes-patch-merge-key` of its OpenAPI document, for the kinds of the simulation.

use serde_json::Value;
use stead_model::Kind;

use crate::api::strategy::is_custom;

/// Where in an object a value is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    kind: &'static Kind,
    /// The field that has the value, or the list that it is an item of; empty for the object itself.
    field: &'a str,
    /// The field around that one.
    parent: &'a str,
}

/// How a list is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListType {
    /// As a whole.
    Atomic,
    /// By its values.
    Set,
    /// By the fields that identify an item.
    Map(&'static [&'static str]),
}

/// Lists whose items have a name of their own.
const NAMED: [&str; 11] = [
    "containers",
    "initContainers",
    "ephemeralContainers",
    "env",
    "volumes",
    "imagePullSecrets",
    "schedulingGates",
    "resourceClaims",
    "resourceClaimStatuses",
    "drivers",
    "secrets",
];

/// Maps and structs that are one value.
const ATOMIC: [&str; 15] = [
    "nodeSelector",
    "selector",
    "labelSelector",
    "namespaceSelector",
    "nodeTopology",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
    "fieldRef",
    "resourceFieldRef",
    "secretRef",
    "claimRef",
    "targetRef",
    "dataSource",
    "preference",
];

impl<'a> Place<'a> {
    /// The object itself.
    pub(super) fn root(kind: &'static Kind) -> Place<'a> {
        Place { kind, field: "", parent: "" }
    }

    /// A field of the value at this place.
    pub(super) fn field<'b>(self, field: &'b str) -> Place<'b>
    where
        'a: 'b,
    {
        Place { kind: self.kind, field, parent: self.field }
    }

    /// Whether the definition of the kind says how its fields are merged. Lists in other kinds are atomic; the metadata
    /// are the same for all.
    fn is_known(self) -> bool {
        !is_custom(self.kind) || self.parent == "metadata"
    }

    /// How server-side apply merges the list at this place.
    pub(super) fn list_type(self) -> ListType {
        match (self.parent, self.field) {
            _ if !self.is_known() => ListType::Atomic,
            ("metadata", "finalizers") | (_, "podCIDRs" | "volumeLifecycleModes") => ListType::Set,
            ("status", "conditions") if self.kind.kind == "Job" => ListType::Atomic,
            (_, "hostIPs") => ListType::Atomic,
            ("containers" | "initContainers" | "ephemeralContainers", "ports") => {
                ListType::Map(&["containerPort", "protocol"])
            }
            ("spec", "ports") => ListType::Map(&["port", "protocol"]),
            (_, "topologySpreadConstraints") => ListType::Map(&["topologyKey", "whenUnsatisfiable"]),
            ("resources", "claims") => ListType::Map(&["name"]),
            _ => self.merge_key().map_or(ListType::Atomic, ListType::Map),
        }
    }

    /// The field that identifies an item of the list at this place in a strategic merge patch.
    pub(super) fn patch_merge_key(self) -> Option<&'static str> {
        match (self.parent, self.field) {
            _ if !self.is_known() => None,
            ("containers" | "initContainers" | "ephemeralContainers", "ports") => Some("containerPort"),
            ("spec", "ports") => Some("port"),
            (_, "topologySpreadConstraints") => Some("topologyKey"),
            _ => self.merge_key().and_then(|keys| keys.first().copied()),
        }
    }

    fn merge_key(self) -> Option<&'static [&'static str]> {
        match (self.parent, self.field) {
            // The pull secrets of a ServiceAccount are one value.
            ("", "imagePullSecrets") => None,
            (_, field) if NAMED.contains(&field) => Some(&["name"]),
            (_, "volumeDevices") => Some(&["devicePath"]),
            (_, "volumeMounts") => Some(&["mountPath"]),
            (_, "hostAliases" | "podIPs" | "hostIPs") => Some(&["ip"]),
            ("metadata", "ownerReferences") => Some(&["uid"]),
            ("status", "conditions" | "addresses") => Some(&["type"]),
            _ => None,
        }
    }

    /// Whether a strategic merge patch adds to the list of texts at this place.
    pub(super) fn is_patch_set(self) -> bool {
        matches!((self.parent, self.field), ("metadata", "finalizers") | (_, "podCIDRs"))
    }

    /// Whether the map or struct at this place is one value.
    pub(super) fn is_atomic(self) -> bool {
        !is_custom(self.kind)
            && match (self.parent, self.field) {
                ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution" | "required") => true,
                (_, field) => ATOMIC.contains(&field) || field.ends_with("SecretRef"),
            }
    }
}

/// The value of a field that identifies an item, which may be left out if it is the default.
pub(super) fn key_of(item: &Value, key: &str) -> Value {
    match (item.get(key), key) {
        (None, "protocol") => Value::from("TCP"),
        (found, _) => found.cloned().unwrap_or_default(),
    }
}
