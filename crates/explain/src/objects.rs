//! A cluster's objects as they were found, by kind, namespace and name.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use stead_placement::{Cluster, InputError, Node, Pod, PodKey};

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The kind, such as `Node`.
    pub kind: String,
    /// The namespace; empty for what has none.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object of this kind, namespace and name.
    pub fn new(kind: &str, namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { kind: kind.into(), namespace: namespace.into(), name: name.into() }
    }

    /// The key that an object carries in itself.
    pub fn of(value: &Value) -> Option<ObjectKey> {
        ObjectKey::of_kind(value["kind"].as_str()?, value)
    }

    /// The key of an object whose kind is known from where it stands, such as a list of a recorded case.
    pub(crate) fn of_kind(kind: &str, item: &Value) -> Option<ObjectKey> {
        let meta = &item["metadata"];
        let name = meta["name"].as_str().filter(|n| !n.is_empty())?;
        Some(ObjectKey::in_namespace(kind, meta["namespace"].as_str().unwrap_or_default(), name))
    }

    /// Like `new`, with the namespace that the kind makes of an empty one.
    fn in_namespace(kind: &str, namespace: &str, name: &str) -> ObjectKey {
        let cluster_wide = KINDS.iter().any(|k| k.kind == kind && !k.namespaced);
        let namespace = match (cluster_wide, namespace) {
            (true, _) => "",
            (false, "") if KINDS.iter().any(|k| k.kind == kind) => "default",
            (false, namespace) => namespace,
        };
        ObjectKey::new(kind, namespace, name)
    }
}

impl std::fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.kind.to_lowercase();
        if self.namespace.is_empty() {
            write!(f, "{kind} {}", self.name)
        } else {
            write!(f, "{kind} {}/{}", self.namespace, self.name)
        }
    }
}

/// A kind that placement looks at.
pub struct Kind {
    /// The kind's name.
    pub kind: &'static str,
    /// The API group and version that it is read as.
    pub api_version: &'static str,
    /// The list that a recorded case has them in.
    pub list: &'static str,
    /// What `kubectl get` calls them.
    pub resource: &'static str,
    /// Whether they live in a namespace.
    pub namespaced: bool,
}

macro_rules! kinds {
    ($($api_version:literal { $($kind:literal $list:literal $resource:literal $namespaced:literal;)* })*) => {
        &[$($(Kind {
            kind: $kind,
            api_version: $api_version,
            list: $list,
            resource: $resource,
            namespaced: $namespaced,
        },)*)*]
    };
}

/// The kinds that placement looks at.
pub const KINDS: &[Kind] = kinds! {
    "v1" {
        "Node" "nodes" "nodes" false;
        "Pod" "pods" "pods" true;
        "Namespace" "namespaces" "namespaces" false;
        "PersistentVolume" "persistentVolumes" "pv" false;
        "PersistentVolumeClaim" "persistentVolumeClaims" "pvc" true;
        "Service" "services" "services" true;
        "ReplicationController" "replicationControllers" "replicationcontrollers" true;
    }
    "storage.k8s.io/v1" {
        "StorageClass" "storageClasses" "sc" false;
        "CSINode" "csiNodes" "csinodes" false;
        "CSIDriver" "csiDrivers" "csidrivers" false;
        "CSIStorageCapacity" "csiStorageCapacities" "csistoragecapacities" true;
        "VolumeAttachment" "volumeAttachments" "volumeattachments" false;
    }
    "apps/v1" {
        "ReplicaSet" "replicaSets" "replicasets" true;
        "StatefulSet" "statefulSets" "statefulsets" true;
    }
    "policy/v1" {
        "PodDisruptionBudget" "podDisruptionBudgets" "poddisruptionbudgets" true;
    }
    "resource.k8s.io/v1" {
        "DeviceClass" "deviceClasses" "deviceclasses" false;
    }
};

impl Kind {
    /// The kind of that name and API group, whatever the version: older ones read the same.
    pub fn find(api_version: &str, kind: &str) -> Option<&'static Kind> {
        let group = |v: &str| v.rsplit_once('/').map_or(String::new(), |(group, _)| group.to_owned());
        KINDS.iter().find(|k| k.kind == kind && group(k.api_version) == group(api_version))
    }
}

/// Input that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// A value that Kubernetes would refuse.
    #[error(transparent)]
    Input(#[from] InputError),
    /// A field of the wrong type, or a list that is none.
    #[error("{object}: {field}: {reason}")]
    Shape {
        /// Which object.
        object: String,
        /// The path to the field.
        field: String,
        /// What is wrong.
        reason: String,
    },
    /// A pod that is asked about but not there.
    #[error("pod {0} not found")]
    NoSuchPod(PodKey),
}

/// The objects of a cluster, as found. A fork shares them, and keeps what it changes beside them.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    found: Arc<BTreeMap<ObjectKey, Value>>,
    /// What is otherwise than it was found; none for what is gone.
    changed: BTreeMap<ObjectKey, Option<Value>>,
}

impl Objects {
    /// From objects that say what they are. One that only shares its kind's name with another group's is left out.
    pub fn from_items(items: impl IntoIterator<Item = Value>) -> Objects {
        let mut by_key = BTreeMap::new();
        for mut item in items {
            let Some(key) = ObjectKey::of(&item) else { continue };
            if KINDS.iter().any(|k| k.kind == key.kind) {
                let version = item["apiVersion"].as_str().unwrap_or("v1");
                let Some(kind) = Kind::find(version, &key.kind) else { continue };
                item["apiVersion"] = kind.api_version.into();
            }
            by_key.insert(key, item);
        }
        Objects::new(by_key)
    }

    /// From a recorded case, whose lists say what their items are. Gives the key of the pod to place beside them.
    pub fn from_case(mut given: Map<String, Value>) -> Result<(Objects, ObjectKey), ObjectError> {
        let shape = |object: &str, field: &str, reason: &str| ObjectError::Shape {
            object: object.into(),
            field: field.into(),
            reason: reason.into(),
        };
        let mut by_key = BTreeMap::new();
        for kind in KINDS {
            let items = match given.remove(kind.list) {
                None | Some(Value::Null) => continue,
                Some(Value::Array(items)) => items,
                Some(_) => return Err(shape("case", kind.list, "not a list")),
            };
            for (i, item) in items.into_iter().enumerate() {
                let key = ObjectKey::of_kind(kind.kind, &item)
                    .ok_or_else(|| shape("case", &format!("{}[{i}].metadata.name", kind.list), "missing"))?;
                by_key.insert(key, item);
            }
        }
        let pod = given.remove("pod").ok_or_else(|| shape("case", "pod", "missing"))?;
        let key = ObjectKey::of_kind("Pod", &pod).ok_or_else(|| shape("case", "pod.metadata.name", "missing"))?;
        by_key.insert(key.clone(), pod);
        Ok((Objects::new(by_key), key))
    }

    fn new(found: BTreeMap<ObjectKey, Value>) -> Objects {
        Objects { found: Arc::new(found), changed: BTreeMap::new() }
    }

    /// The objects from a key on, in their order.
    fn iter_from(&self, from: ObjectKey) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        let kept = self.found.range(from.clone()..).filter(|(key, _)| !self.changed.contains_key(*key));
        let changed = self.changed.range(from..).filter_map(|(key, value)| Some((key, value.as_ref()?)));
        Merged { left: kept.peekable(), right: changed.peekable() }
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<&Value> {
        self.changed.get(key).map_or_else(|| self.found.get(key), Option::as_ref)
    }

    /// The objects of a kind.
    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a ObjectKey, &'a Value)> {
        self.iter_from(ObjectKey::new(kind, "", "")).take_while(move |(k, _)| k.kind == kind)
    }

    /// Has this object from now on.
    pub fn insert(&mut self, key: ObjectKey, value: Value) {
        self.changed.insert(key, Some(value));
    }

    /// Has no such object any more.
    pub fn remove(&mut self, key: &ObjectKey) {
        self.changed.insert(key.clone(), None);
    }

    /// The cluster that they make, without one pod: the one to place.
    pub fn cluster(&self, without: &ObjectKey) -> Result<Cluster, ObjectError> {
        let mut cluster = Cluster::new();
        for (key, value) in self.iter_from(ObjectKey::new("", "", "")).filter(|(key, _)| *key != without) {
            put(&mut cluster, key, value)?;
        }
        Ok(cluster)
    }

    /// A pod, compiled for placing: whatever node it is on, it is asked about as if it had none.
    pub fn pod(&self, key: &ObjectKey) -> Result<Pod, ObjectError> {
        let value = self.get(key).ok_or_else(|| ObjectError::NoSuchPod(PodKey::new(&key.namespace, &key.name)))?;
        let pod = Pod::compile(&decode(key, value)?)?;
        Ok(Pod { node: None, ..pod })
    }
}

/// Two sorted lists as one.
struct Merged<L: Iterator, R: Iterator> {
    left: Peekable<L>,
    right: Peekable<R>,
}

impl<'a, L, R> Iterator for Merged<L, R>
where
    L: Iterator<Item = (&'a ObjectKey, &'a Value)>,
    R: Iterator<Item = (&'a ObjectKey, &'a Value)>,
{
    type Item = (&'a ObjectKey, &'a Value);

    fn next(&mut self) -> Option<Self::Item> {
        match (self.left.peek(), self.right.peek()) {
            (Some((l, _)), Some((r, _))) if r < l => self.right.next(),
            (Some(_), _) => self.left.next(),
            (None, _) => self.right.next(),
        }
    }
}

pub(crate) fn decode<T: DeserializeOwned>(key: &ObjectKey, value: &Value) -> Result<T, ObjectError> {
    serde_path_to_error::deserialize(value).map_err(|e| ObjectError::Shape {
        object: key.to_string(),
        field: e.path().to_string(),
        reason: e.inner().to_string(),
    })
}

/// A pod's object, compiled for placing, whether or not it is among the objects.
pub(crate) fn compile_pod(value: &Value) -> Result<Pod, ObjectError> {
    let key = ObjectKey::of_kind("Pod", value).unwrap_or_else(|| ObjectKey::new("Pod", "", ""));
    Ok(Pod { node: None, ..Pod::compile(&decode(&key, value)?)? })
}

/// Tells a cluster about an object. Kinds that placement does not look at are passed over.
pub(crate) fn put(cluster: &mut Cluster, key: &ObjectKey, value: &Value) -> Result<(), ObjectError> {
    match key.kind.as_str() {
        "Node" => cluster.set_node(Node::compile(&decode(key, value)?)?),
        "Pod" => cluster.set_pod(Pod::compile(&decode(key, value)?)?),
        "Namespace" => cluster.set_namespace(&decode(key, value)?),
        "PersistentVolume" => cluster.set_volume(&decode(key, value)?)?,
        "PersistentVolumeClaim" => cluster.set_claim(&decode(key, value)?)?,
        "StorageClass" => cluster.set_class(&decode(key, value)?)?,
        "CSINode" => cluster.set_csi_node(&decode(key, value)?),
        "CSIDriver" => cluster.set_csi_driver(&decode(key, value)?),
        "CSIStorageCapacity" => cluster.set_capacity(&decode(key, value)?)?,
        "VolumeAttachment" => cluster.set_attachment(&decode(key, value)?),
        "Service" => cluster.set_service(&decode(key, value)?),
        "ReplicationController" => cluster.set_replication_controller(&decode(key, value)?),
        "ReplicaSet" => cluster.set_replica_set(&decode(key, value)?)?,
        "StatefulSet" => cluster.set_stateful_set(&decode(key, value)?)?,
        "PodDisruptionBudget" => cluster.set_budget(&decode(key, value)?)?,
        "DeviceClass" => cluster.set_device_class(&decode(key, value)?),
        _ => {}
    }
    Ok(())
}

/// Tells a cluster that an object is gone; gives back whether that means anything to it.
pub(crate) fn take(cluster: &mut Cluster, key: &ObjectKey) -> bool {
    match key.kind.as_str() {
        "Node" => cluster.remove_node(&key.name).is_ok(),
        "Pod" => cluster.remove_pod(&PodKey::new(&key.namespace, &key.name)).is_some(),
        "PersistentVolumeClaim" => {
            cluster.remove_claim(&key.namespace, &key.name);
            true
        }
        "PersistentVolume" => {
            cluster.remove_volume(&key.name);
            true
        }
        _ => false,
    }
}

/// Reads any part of an object into its Kubernetes type; none where it is not there or not that.
pub(crate) fn part<'a, T: Deserialize<'a>>(value: &'a Value) -> Option<T> {
    T::deserialize(value).ok()
}
