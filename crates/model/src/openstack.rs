//! The custom resources of OpenStack that Stead reads: the fields that are read, and no others.
//!
//! The definitions belong to the OpenStack operators; unknown fields are ignored. A test in `stead-manifests` compares
//! these types with the schemas of the definitions.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::error::ModelError;
use crate::key::ObjectKey;
use crate::objects::ObjectRef;
use crate::typed::{ParsedJson, Typed, parse, parse_json};

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
    /// What Stead's operator reports.
    #[serde(deserialize_with = "nullable")]
    pub status: TopologyStatus,
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

/// What is reported about a Topology.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TopologyStatus {
    /// Whether the nodes can satisfy it.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<TopologyCondition>,
}

/// A condition of a Topology: unlike those of the OpenStack operators it has no severity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyCondition {
    /// Its type.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Since when it has this status.
    pub last_transition_time: Option<Time>,
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
    pub status: GlanceStatus,
}

/// What a Glance is to be; also a template in an OpenStackControlPlane.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GlanceSpec {
    /// Seconds until a request times out.
    pub api_timeout: Option<i64>,
    /// The image that its containers run.
    pub container_image: Option<String>,
    /// Configuration on top of what is rendered.
    pub custom_service_config: Option<String>,
    /// Secrets whose content is added to the configuration.
    pub custom_service_config_secrets: Option<Vec<String>>,
    /// The account that the database is used with.
    pub database_account: Option<String>,
    /// The database, by the name of its Galera or by its host name.
    pub database_instance: Option<String>,
    /// When and which deleted rows are purged.
    pub db_purge: Option<DbPurge>,
    /// Volumes that are mounted into the pods in addition.
    pub extra_mounts: Option<Vec<ExtraMounts>>,
    /// A template for each of its APIs, by name. The fields that the Glance fills in are not set.
    #[serde(rename = "glanceAPIs", deserialize_with = "nullable")]
    pub glance_apis: BTreeMap<String, GlanceApiSpec>,
    /// The image cache of APIs that do not set the size of their own.
    pub image_cache: Option<ImageCache>,
    /// The API that is registered in Keystone.
    pub keystone_endpoint: Option<String>,
    /// The cache of tokens, by the name of its Memcached or by its host name.
    pub memcached_instance: Option<String>,
    /// Labels that a node must have to run the pods.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The keys of the passwords in the Secret.
    pub password_selectors: Option<PasswordSelectors>,
    /// Whether finished Jobs are kept.
    pub preserve_jobs: Option<bool>,
    /// Limits by name; zero is no limit.
    pub quotas: Option<BTreeMap<String, i64>>,
    /// The Secret with the passwords.
    pub secret: Option<String>,
    /// Glance's user in Keystone.
    pub service_user: Option<String>,
    /// Where its APIs keep data.
    pub storage: Option<Storage>,
    /// The Topology that its APIs follow where they have no reference of their own.
    pub topology_ref: Option<TopologyRef>,
}

/// What is reported about a Glance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GlanceStatus {
    /// Its conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// Digests of what was done, by name.
    #[serde(deserialize_with = "nullable")]
    pub hash: BTreeMap<String, String>,
    /// The generation of the spec that the status is about.
    pub observed_generation: Option<i64>,
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
    pub status: GlanceApiStatus,
}

/// What a GlanceAPI is to be; also the template of an API in a Glance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GlanceApiSpec {
    /// Seconds until a request times out.
    pub api_timeout: Option<i64>,
    /// `internal`, `external`, `single` or `edge`. Filled in by the Glance.
    pub api_type: Option<String>,
    /// The image that its containers run.
    pub container_image: Option<String>,
    /// Configuration on top of what is rendered.
    pub custom_service_config: Option<String>,
    /// Secrets whose content is added to the configuration.
    pub custom_service_config_secrets: Option<Vec<String>>,
    /// The account that the database is used with. Filled in by the Glance.
    pub database_account: Option<String>,
    /// The host of the database. Filled in by the Glance.
    pub database_hostname: Option<String>,
    /// Volumes that are mounted into the pods in addition. Filled in by the Glance.
    pub extra_mounts: Option<Vec<ExtraMounts>>,
    /// Its image cache.
    pub image_cache: Option<ImageCache>,
    /// The cache of tokens. Filled in by the Glance.
    pub memcached_instance: Option<String>,
    /// The NetworkAttachmentDefinitions that the pods are attached to.
    pub network_attachments: Option<Vec<String>>,
    /// Labels that a node must have to run the pods.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Changes to the Services and probes that are created by default.
    pub r#override: Option<GlanceApiOverride>,
    /// The keys of the passwords in the Secret. Filled in by the Glance.
    pub password_selectors: Option<PasswordSelectors>,
    /// Whether Keystone's limits apply. Filled in by the Glance.
    pub quota: Option<bool>,
    /// How many pods are wanted.
    pub replicas: Option<i32>,
    /// Requests and limits of the containers, passed through.
    pub resources: Option<Value>,
    /// The Secret with the passwords. Filled in by the Glance.
    pub secret: Option<String>,
    /// The ServiceAccount of the pods. Filled in by the Glance.
    pub service_account: Option<String>,
    /// Glance's user in Keystone. Filled in by the Glance.
    pub service_user: Option<String>,
    /// Where its pods keep data.
    pub storage: Option<Storage>,
    /// Its certificates.
    pub tls: Option<GlanceTls>,
    /// The Topology that its pods follow.
    pub topology_ref: Option<TopologyRef>,
    /// `split`, `single` or `edge`.
    pub r#type: Option<String>,
}

/// What is reported about a GlanceAPI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GlanceApiStatus {
    /// Its addresses, by endpoint.
    #[serde(deserialize_with = "nullable")]
    pub api_endpoint: BTreeMap<String, String>,
    /// Its conditions.
    #[serde(deserialize_with = "nullable")]
    pub conditions: Vec<Condition>,
    /// The Topology that the pods were last created with.
    pub last_applied_topology: Option<TopologyRef>,
    /// The generation of the spec that the status is about.
    pub observed_generation: Option<i64>,
    /// How many pods are ready.
    pub ready_count: Option<i32>,
}

/// Which deleted rows are purged from the database, and when.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DbPurge {
    /// How many days ago they were deleted.
    pub age: Option<i64>,
    /// When, in the format of a CronJob.
    pub schedule: Option<String>,
}

/// Volumes that are mounted into pods in addition.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtraMounts {
    /// The volumes and their mounts.
    #[serde(deserialize_with = "nullable")]
    pub extra_vol: Vec<ExtraVolumes>,
    /// A name for the group.
    pub name: Option<String>,
    /// The region that the group is for.
    pub region: Option<String>,
}

/// Some volumes, their mounts, and which pods get them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtraVolumes {
    /// What they are for, such as `Ceph`.
    pub extra_vol_type: Option<String>,
    /// Mounts, passed through.
    #[serde(deserialize_with = "nullable")]
    pub mounts: Vec<Value>,
    /// The services and APIs that get them; none for all.
    pub propagation: Option<Vec<String>>,
    /// Volumes, passed through.
    #[serde(deserialize_with = "nullable")]
    pub volumes: Vec<Value>,
}

/// A cache of images on a claim of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageCache {
    /// When it is cleaned, in the format of a CronJob.
    pub cleaner_scheduler: Option<String>,
    /// When it is pruned, in the format of a CronJob.
    pub pruner_scheduler: Option<String>,
    /// The size of its claim; empty for no cache.
    pub size: Option<String>,
}

/// The keys under which a Secret has passwords.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PasswordSelectors {
    /// The key of the database password.
    pub database: Option<String>,
    /// The key of the password of Glance's user in Keystone.
    pub service: Option<String>,
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

/// The certificates of a GlanceAPI.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GlanceTls {
    /// Those of its endpoints.
    pub api: Option<EndpointTls>,
    /// The Secret with the certificates that are trusted.
    pub ca_bundle_secret_name: Option<String>,
}

/// The certificates of the endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndpointTls {
    /// Those of the internal endpoint.
    pub internal: Option<TlsSecret>,
    /// Those of the public endpoint.
    pub public: Option<TlsSecret>,
}

/// A certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TlsSecret {
    /// The Secret that it is in; none or empty for no TLS.
    pub secret_name: Option<String>,
}

/// Changes to the Services and probes of a GlanceAPI.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GlanceApiOverride {
    /// Times of the probes.
    pub probes: Option<ProbeOverrides>,
    /// Services, by endpoint.
    pub service: Option<BTreeMap<String, ServiceOverride>>,
}

/// Times of probes, passed through.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProbeOverrides {
    /// Of the liveness probe.
    pub liveness_probes: Option<Map<String, Value>>,
    /// Of the readiness probe.
    pub readiness_probes: Option<Map<String, Value>>,
    /// Of the startup probe.
    pub startup_probes: Option<Map<String, Value>>,
}

/// Changes to a Service.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServiceOverride {
    /// The address that clients use.
    #[serde(rename = "endpointURL")]
    pub endpoint_url: Option<String>,
    /// Labels and annotations.
    pub metadata: Option<MetadataOverride>,
    /// Fields of its spec, passed through.
    pub spec: Option<Map<String, Value>>,
}

/// Labels and annotations in addition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetadataOverride {
    /// Annotations.
    pub annotations: Option<BTreeMap<String, String>>,
    /// Labels.
    pub labels: Option<BTreeMap<String, String>>,
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
    /// Volumes that are mounted into the pods of all services.
    pub extra_mounts: Option<Vec<ExtraMounts>>,
    /// Its Glance.
    pub glance: Option<GlanceSection>,
    /// Labels that a node must have to run the pods of services without a selector of their own.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// The Secret with the passwords.
    pub secret: Option<String>,
    /// The storage class of services that name none.
    pub storage_class: Option<String>,
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

/// The conditions that an operator reports, whatever else it reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConditionedStatus {
    /// Its conditions.
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

/// The conditions in an object's status, whatever its kind; none where they are malformed.
pub fn reported_conditions(object: ObjectRef<'_>) -> Vec<Condition> {
    let conditions = object.raw().pointer("/status/conditions").unwrap_or(&Value::Null);
    parse(object.key(), conditions).unwrap_or_default()
}

macro_rules! typed {
    ($($type:ident $kind:literal)*) => {
        $(impl Typed for $type {
            const KIND: &'static str = $kind;

            fn from_json(key: &ObjectKey, json: ParsedJson<'_>) -> Result<Self, ModelError> {
                parse_json(key, json)
            }

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
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
