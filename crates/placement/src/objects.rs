//! Model objects, compiled into a [`Cluster`].

use std::borrow::Cow;

use serde_json::Value;
use stead_model::{KubernetesVersion, ModelError, ObjectKey, ObjectRef, Objects, Typed};

use crate::cluster::Cluster;
use crate::error::InputError;
use crate::node::Node;
use crate::pod::{Pod, PodKey};
use crate::profile::Profiles;

impl From<InputError> for ModelError {
    fn from(error: InputError) -> ModelError {
        ModelError::Malformed { object: error.object, field: error.field, reason: error.reason }
    }
}

/// An object that can be read into its Kubernetes type.
trait ObjectSource {
    fn read<T: Typed>(&self) -> Result<Cow<'_, T>, ModelError>;
}

impl ObjectSource for ObjectRef<'_> {
    fn read<T: Typed>(&self) -> Result<Cow<'_, T>, ModelError> {
        ObjectRef::read(*self)
    }
}

impl ObjectSource for (&ObjectKey, &Value) {
    fn read<T: Typed>(&self) -> Result<Cow<'_, T>, ModelError> {
        T::from_raw(self.0, self.1).map(Cow::Owned)
    }
}

impl Cluster {
    /// The cluster of the objects' version that they make up, without one pod: the one to place. A malformed object is left out and becomes one
    /// of the objects' warnings.
    pub fn from_objects(objects: &Objects, without: Option<&ObjectKey>) -> Cluster {
        let mut cluster = Cluster::with_version(objects.version());
        // Whoever shows the answer has reported what is wrong with them.
        cluster.set_profiles(Profiles::of(objects).unwrap_or_default());
        for object in objects.iter().filter(|object| Some(object.key()) != without) {
            if let Err(error) = cluster.put_source(object.key(), &object) {
                object.report(error);
            }
        }
        cluster
    }

    /// Adds an object, or replaces it. Kinds that placement does not look at are ignored.
    pub fn put_object(&mut self, object: ObjectRef<'_>) -> Result<(), ModelError> {
        self.put_source(object.key(), &object)
    }

    /// Adds an object that is not among any objects, or replaces it.
    pub fn put_raw(&mut self, key: &ObjectKey, value: &Value) -> Result<(), ModelError> {
        self.put_source(key, &(key, value))
    }

    fn put_source(&mut self, key: &ObjectKey, object: &impl ObjectSource) -> Result<(), ModelError> {
        match key.kind.as_str() {
            "Node" => self.set_node(Node::compile(&*object.read()?)?),
            "Pod" => self.set_pod(Pod::compile(&*object.read()?, self.version())?),
            "Namespace" => self.set_namespace(&*object.read()?),
            "PersistentVolume" => self.set_volume(&*object.read()?)?,
            "PersistentVolumeClaim" => self.set_claim(&*object.read()?)?,
            "StorageClass" => self.set_class(&*object.read()?)?,
            "CSINode" => self.set_csi_node(&*object.read()?),
            "CSIDriver" => self.set_csi_driver(&*object.read()?),
            "CSIStorageCapacity" => self.set_capacity(&*object.read()?)?,
            "VolumeAttachment" => self.set_attachment(&*object.read()?),
            "Service" => self.set_service(&*object.read()?),
            "ReplicationController" => self.set_replication_controller(&*object.read()?),
            "ReplicaSet" => self.set_replica_set(&*object.read()?)?,
            "StatefulSet" => self.set_stateful_set(&*object.read()?)?,
            "PodDisruptionBudget" => self.set_budget(&*object.read()?)?,
            "DeviceClass" => self.set_device_class(&*object.read()?),
            _ => {}
        }
        Ok(())
    }

    /// Removes an object; whether that means anything to placement.
    pub fn take_object(&mut self, key: &ObjectKey) -> bool {
        match key.kind.as_str() {
            "Node" => self.remove_node(&key.name).is_ok(),
            "Pod" => self.remove_pod(&PodKey::new(&key.namespace, &key.name)).is_some(),
            "PersistentVolumeClaim" => {
                self.remove_claim(&key.namespace, &key.name);
                true
            }
            "PersistentVolume" => {
                self.remove_volume(&key.name);
                true
            }
            _ => false,
        }
    }
}

impl Pod {
    /// A pod to place: the node that it may have is ignored.
    pub fn from_objects(objects: &Objects, key: &ObjectKey) -> Result<Pod, ModelError> {
        let object = objects.object(key).ok_or_else(|| ModelError::NotFound(key.clone()))?;
        Pod::to_place(&object, objects.version())
    }

    /// A pod to place that is not among any objects: the node that it may have is ignored.
    pub fn from_raw(value: &Value, version: KubernetesVersion) -> Result<Pod, ModelError> {
        let key =
            ObjectKey::of_kind("Pod", value).ok_or_else(|| ModelError::malformed("pod", "metadata.name", "missing"))?;
        Pod::to_place(&(&key, value), version)
    }

    fn to_place(object: &impl ObjectSource, version: KubernetesVersion) -> Result<Pod, ModelError> {
        Ok(Pod { node: None, ..Pod::compile(&*object.read()?, version)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_malformed_object_is_left_out_and_becomes_a_warning() {
        let node = |name: &str, cpu: Value| {
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name },
                "status": { "allocatable": { "cpu": cpu } } })
        };
        let objects = Objects::from_items([node("a", json!("4")), node("b", json!("four")), node("c", json!([]))]);
        let cluster = Cluster::from_objects(&objects, None);
        assert_eq!(cluster.nodes().map(|info| info.node.name.to_string()).collect::<Vec<_>>(), ["a"]);
        let warnings: Vec<String> = objects.warnings().iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert!(warnings[0].starts_with("node b: status.allocatable"), "{warnings:?}");
        assert!(warnings[1].starts_with("node c: status.allocatable"), "{warnings:?}");
    }
}
