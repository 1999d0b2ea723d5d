//! A cluster as Kubernetes objects: the input of placement.

use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use serde::{Deserialize, Serialize};

/// All objects of a cluster that affect scheduling.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Snapshot {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The pods, assigned or not.
    pub pods: Vec<Pod>,
    /// The namespaces, for selectors of namespaces.
    pub namespaces: Vec<Namespace>,
    /// The volumes.
    pub persistent_volumes: Vec<PersistentVolume>,
    /// The claims.
    pub persistent_volume_claims: Vec<PersistentVolumeClaim>,
    /// The storage classes.
    pub storage_classes: Vec<StorageClass>,
    /// The CSINodes.
    pub csi_nodes: Vec<CSINode>,
    /// The CSI drivers.
    pub csi_drivers: Vec<CSIDriver>,
    /// The CSIStorageCapacities.
    pub csi_storage_capacities: Vec<CSIStorageCapacity>,
    /// The VolumeAttachments.
    pub volume_attachments: Vec<VolumeAttachment>,
    /// The services.
    pub services: Vec<Service>,
    /// The replication controllers.
    pub replication_controllers: Vec<ReplicationController>,
    /// The replica sets.
    pub replica_sets: Vec<ReplicaSet>,
    /// The stateful sets.
    pub stateful_sets: Vec<StatefulSet>,
    /// The disruption budgets.
    pub pod_disruption_budgets: Vec<PodDisruptionBudget>,
    /// The device classes, which can provide extended resources.
    pub device_classes: Vec<DeviceClass>,
}
