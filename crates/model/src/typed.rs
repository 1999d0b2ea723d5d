//! Reading an object into its Kubernetes type.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    LimitRange, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota,
    Service,
};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::ModelError;
use crate::key::ObjectKey;
use crate::reader;

/// A Kubernetes type that the objects of one kind are read into. Each kind has one.
pub trait Typed: DeserializeOwned + Clone + Send + Sync + 'static {
    /// The kind.
    const KIND: &'static str;

    /// Parses an object. Each type implements it for itself, so that its parser is compiled once, in this crate.
    fn from_raw(key: &ObjectKey, raw: &Value) -> Result<Self, ModelError>;

    /// The object's metadata.
    fn metadata(&self) -> &ObjectMeta;

    /// The object's metadata, to change it.
    fn metadata_mut(&mut self) -> &mut ObjectMeta;
}

macro_rules! typed {
    ($($type:ident)*) => {
        $(impl Typed for $type {
            const KIND: &'static str = stringify!($type);

            fn from_raw(key: &ObjectKey, raw: &Value) -> Result<Self, ModelError> {
                parse(key, raw)
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
    CSIDriver CSINode CSIStorageCapacity CronJob DaemonSet Deployment DeviceClass Job Lease LimitRange Namespace Node
    PersistentVolume PersistentVolumeClaim Pod PodDisruptionBudget PriorityClass ReplicaSet ReplicationController
    ResourceQuota RuntimeClass Service StatefulSet StorageClass VolumeAttachment
}

/// Parses a value, or a part of one. The error names the object and the field.
pub fn parse<T: DeserializeOwned>(object: impl ToString, value: &Value) -> Result<T, ModelError> {
    reader::read(value).map_err(|error| ModelError::malformed(object, error.field(), error))
}

/// The metadata of an object of any kind. The error names the object and the field.
pub fn metadata_of(object: impl ToString, raw: &Value) -> Result<ObjectMeta, ModelError> {
    parse(object, &raw["metadata"]).map_err(|error| error.below("metadata"))
}
