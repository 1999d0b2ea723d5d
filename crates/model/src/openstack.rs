//! The custom resources of OpenStack that Stead reads: the fields that are read, and no others.
//!
//! The definitions belong to the OpenStack operators; unknown fields are ignored. A test in `stead-manifests` compares
//! these types with the schemas of the definitions.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::error::ModelError;
use crate::key::ObjectKey;
use crate::typed::{Typed, parse};

/// A value, or its default where it is null.
fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Rules for placing pods that several services refer to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Topology {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// Its rules.
    #[serde(deserialize_with = "nullable")]
    pub spec: TopologySpec,
}

/// The rules of a Topology, as written: a rule that Kubernetes would reject is reported, and does not hide the others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologySpec {
    /// Spread constraints of pods.
    pub topology_spread_constraints: Option<Value>,
    /// The same, as a draft of the resource spelled it.
    pub topology_spread_constraint: Option<Value>,
    /// Node and pod affinity of pods.
    pub affinity: Option<Value>,
}

impl TopologySpec {
    /// The spread constraints, and the name of their field.
    pub fn spread(&self) -> (&'static str, Option<&Value>) {
        match (&self.topology_spread_constraints, &self.topology_spread_constraint) {
            (None, Some(draft)) => ("topologySpreadConstraint", Some(draft)),
            (released, _) => ("topologySpreadConstraints", released.as_ref()),
        }
    }
}

/// A reference to a Topology. An empty one opts out of an inherited one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopologyRef {
    /// The name.
    pub name: Option<String>,
    /// The namespace: the object's own, or none.
    pub namespace: Option<String>,
}

impl TopologyRef {
    /// The name of the Topology; none where the reference opts out.
    pub fn topology(&self) -> Option<&str> {
        self.name.as_deref().filter(|name| !name.is_empty())
    }
}

/// OpenStack's image service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Glance {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "nullable")]
    pub spec: GlanceSpec,
    /// What its operator reports.
    #[serde(deserialize_with = "nullable")]
    pub status: ConditionedStatus,
}

/// What a Glance is to be; also a template in an OpenStackControlPlane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GlanceSpec {
    /// Its APIs by name.
    #[serde(rename = "glanceAPIs", deserialize_with = "nullable")]
    pub glance_apis: BTreeMap<String, GlanceApiTemplate>,
    /// The Topology that its APIs follow where they have no reference of their own.
    pub topology_ref: Option<TopologyRef>,
}

/// One API of a Glance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GlanceApiTemplate {
    /// `split`, `single` or `edge`.
    pub r#type: Option<String>,
    /// How many pods are wanted.
    pub replicas: Option<i32>,
    /// The Topology that its pods follow.
    pub topology_ref: Option<TopologyRef>,
}

/// One API of a Glance, as created by the Glance's operator.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GlanceApi {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "nullable")]
    pub spec: GlanceApiSpec,
    /// What its operator reports.
    #[serde(deserialize_with = "nullable")]
    pub status: ConditionedStatus,
}

/// What a GlanceAPI is to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GlanceApiSpec {
    /// `internal`, `external`, `single` or `edge`.
    pub api_type: Option<String>,
    /// How many pods are wanted.
    pub replicas: Option<i32>,
    /// Labels that a node must have to run the pods.
    #[serde(deserialize_with = "nullable")]
    pub node_selector: BTreeMap<String, String>,
    /// Where its pods keep data.
    #[serde(deserialize_with = "nullable")]
    pub storage: Storage,
    /// The Topology that its pods follow.
    pub topology_ref: Option<TopologyRef>,
}

/// Where the pods of a GlanceAPI keep data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Storage {
    /// Whether no claims are created.
    pub external: Option<bool>,
    /// The storage class of the claims.
    pub storage_class: Option<String>,
    /// The size of the claims.
    pub storage_request: Option<String>,
}

/// OpenStack's control plane, as far as Glance is concerned.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenStackControlPlane {
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// What is wanted.
    #[serde(deserialize_with = "nullable")]
    pub spec: OpenStackControlPlaneSpec,
    /// What its operator reports.
    #[serde(deserialize_with = "nullable")]
    pub status: ConditionedStatus,
}

/// What an OpenStackControlPlane is to be.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OpenStackControlPlaneSpec {
    /// Its Glance.
    pub glance: Option<GlanceSection>,
    /// The Topology that all services follow that have no reference of their own.
    pub topology_ref: Option<TopologyRef>,
}

/// The Glance of a control plane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GlanceSection {
    /// Whether there is to be one.
    pub enabled: Option<bool>,
    /// What it is to be.
    pub template: Option<GlanceSpec>,
    /// Whether the name of the Glance gets a suffix.
    pub unique_pod_names: Option<bool>,
}

/// The conditions that an operator reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConditionedStatus {
    /// The conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
}

/// A condition in the form of the OpenStack operators.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// Its type.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, in one word.
    pub reason: Option<String>,
    /// Why.
    pub message: Option<String>,
    /// How bad a false condition is.
    pub severity: Option<String>,
    /// Since when it has this status.
    pub last_transition_time: Option<Time>,
}

macro_rules! typed {
    ($($type:ident $kind:literal)*) => {
        $(impl Typed for $type {
            const KIND: &'static str = $kind;

            fn from_raw(key: &ObjectKey, raw: &Value) -> Result<Self, ModelError> {
                parse(key, raw)
            }

            fn metadata_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        })*
    };
}

typed! {
    Topology "Topology"
    Glance "Glance"
    GlanceApi "GlanceAPI"
    OpenStackControlPlane "OpenStackControlPlane"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Objects;
    use serde_json::json;

    #[test]
    fn unknown_fields_are_ignored_and_wrong_ones_are_named() {
        let api = |spec: Value| {
            let object = json!({ "apiVersion": "glance.openstack.org/v1beta1", "kind": "GlanceAPI",
                "metadata": { "name": "g", "namespace": "n" }, "spec": spec, "status": null });
            let objects = Objects::from_items([object]);
            let found = objects.get::<GlanceApi>(&ObjectKey::namespaced("GlanceAPI", "n", "g"));
            found.map(|api| api.expect("it is there").clone()).map_err(|e| e.to_string())
        };
        let read = api(json!({ "replicas": 3, "later": { "x": 1 }, "nodeSelector": null })).expect("it is well formed");
        assert_eq!((read.spec.replicas, read.spec.topology_ref), (Some(3), None));
        let wrong = api(json!({ "storage": { "external": "yes" } })).expect_err("external is a boolean");
        assert_eq!(wrong, "glanceapi n/g: spec.storage.external: invalid type: string \"yes\", expected a boolean");
    }

    #[test]
    fn an_empty_reference_opts_out() {
        for (reference, expected) in [
            (json!(null), None),
            (json!({}), Some(None)),
            (json!({ "name": "" }), Some(None)),
            (json!({ "name": "t" }), Some(Some("t"))),
        ] {
            let spec: GlanceSpec = serde_json::from_value(json!({ "topologyRef": reference })).expect("a spec");
            assert_eq!(spec.topology_ref.as_ref().map(TopologyRef::topology), expected, "{reference}");
        }
    }
}
