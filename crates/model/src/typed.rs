//! Reading an object into its Kubernetes type.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplateSpec, ReplicationController,
    ResourceQuota, Service,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ModelError;
use crate::json::JsonRef;
use crate::key::ObjectKey;
use crate::reader;

/// A Kubernetes type that the objects of one kind are read into. Each kind has one.
pub trait Typed: DeserializeOwned + Clone + Send + Sync + 'static {
    /// The kind.
    const KIND: &'static str;

    /// Parses an object. Each type implements it for itself, so that its parser is compiled once, in this crate.
    fn from_json(key: &ObjectKey, json: ParsedJson<'_>) -> Result<Self, ModelError>;

    /// Parses an object that is not among any objects.
    fn from_raw(key: &ObjectKey, raw: &Value) -> Result<Self, ModelError> {
        Self::from_json(key, ParsedJson(JsonRef::Value(raw)))
    }

    /// The object's metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// The object's metadata, to change it.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;
}

macro_rules! typed {
    ($($type:ident)*) => {
        $(impl Typed for $type {
            const KIND: &'static str = stringify!($type);

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
    CSIDriver CSINode CSIStorageCapacity ControllerRevision CronJob DaemonSet Deployment DeviceClass EndpointSlice Job Lease LimitRange Namespace Node
    PersistentVolume PersistentVolumeClaim Pod PodDisruptionBudget PriorityClass ReplicaSet ReplicationController
    ResourceQuota RuntimeClass Service StatefulSet StorageClass VolumeAttachment
}

/// JSON that was parsed and is read into a type.
#[derive(Debug, Clone, Copy)]
pub struct ParsedJson<'a>(pub(crate) JsonRef<'a>);

/// Parses a value, or a part of one. The error names the object and the field. A type of objects is read with
/// [`Typed::from_raw`], and a template with [`pod_template`]: this function compiles the parser again in each crate.
pub fn parse<T: DeserializeOwned>(object: impl ToString, value: &Value) -> Result<T, ModelError> {
    parse_json(object, ParsedJson(JsonRef::Value(value)))
}

/// The same for JSON that was parsed.
pub fn parse_json<T: DeserializeOwned>(object: impl ToString, json: ParsedJson<'_>) -> Result<T, ModelError> {
    reader::read(json.0).map_err(|error| ModelError::malformed(object, error.field(), error))
}

/// Parses the template of a workload's pods. The error names the object and the field.
pub fn pod_template(object: impl ToString, raw: &Value) -> Result<PodTemplateSpec, ModelError> {
    // Not generic, so that the parser is compiled here.
    fn read(raw: &Value) -> Result<PodTemplateSpec, reader::ReadError> {
        reader::read(JsonRef::Value(raw))
    }
    read(raw).map_err(|error| ModelError::malformed(object, error.field(), error))
}

/// The metadata of an object of any kind. The error names the object and the field.
pub fn metadata_of(object: impl ToString, raw: &Value) -> Result<ObjectMeta, ModelError> {
    parse(object, &raw["metadata"]).map_err(|error| error.below("metadata"))
}
