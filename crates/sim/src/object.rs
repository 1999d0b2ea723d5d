//! Objects of any kind, as their Kubernetes types.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use stead_model::{KINDS, Kind, ModelError, ObjectKey, Typed};

/// An object that only our own loops look at: its metadata, and everything else as JSON.
#[derive(Debug, Clone, PartialEq)]
pub struct UntypedObject {
    /// The kind.
    pub kind: &'static Kind,
    /// Its metadata.
    pub metadata: ObjectMeta,
    /// All other fields, without apiVersion and kind.
    pub fields: Value,
}

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// The kind of an object. Kinds that the controllers work with have their Kubernetes type.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ObjectKind {
            $(#[doc = concat!("`", stringify!($kind), "`.")] $kind,)*
            /// Another kind of the model's table, by its index there.
            Untyped(u8),
        }

        /// An object. A copy shares its content.
        #[derive(Debug, Clone, PartialEq)]
        pub enum SimObject {
            $(#[doc = concat!("A ", stringify!($kind), ".")] $kind(Arc<$kind>),)*
            /// An object of another kind.
            Untyped(Arc<UntypedObject>),
        }

        impl ObjectKind {
            /// The kinds that have a type.
            pub const TYPED: &[ObjectKind] = &[$(ObjectKind::$kind,)*];

            /// Its name, such as `Pod`.
            pub fn name(self) -> &'static str {
                match self {
                    $(ObjectKind::$kind => stringify!($kind),)*
                    ObjectKind::Untyped(index) => KINDS[usize::from(index)].kind,
                }
            }
        }

        impl SimObject {
            /// Its kind.
            pub fn kind(&self) -> ObjectKind {
                match self {
                    $(SimObject::$kind(_) => ObjectKind::$kind,)*
                    SimObject::Untyped(object) => ObjectKind::untyped(object.kind),
                }
            }

            /// Its metadata.
            pub fn metadata(&self) -> &ObjectMeta {
                match self {
                    $(SimObject::$kind(object) => &object.metadata,)*
                    SimObject::Untyped(object) => &object.metadata,
                }
            }

            /// Its metadata, to change it.
            pub fn metadata_mut(&mut self) -> &mut ObjectMeta {
                match self {
                    $(SimObject::$kind(object) => &mut Arc::make_mut(object).metadata,)*
                    SimObject::Untyped(object) => &mut Arc::make_mut(object).metadata,
                }
            }

            /// Its JSON.
            pub fn to_json(&self) -> Value {
                match self {
                    $(SimObject::$kind(object) => serde_json::to_value(&**object),)*
                    SimObject::Untyped(object) => Ok(object.to_json()),
                }
                .expect("an object of a Kubernetes type is JSON")
            }

            /// The object of a JSON text of this kind.
            fn read(kind: &'static Kind, key: &ObjectKey, value: &Value) -> Result<SimObject, ModelError> {
                match kind.kind {
                    $(stringify!($kind) => <$kind as Typed>::from_raw(key, value).map(SimObject::from),)*
                    _ => UntypedObject::read(kind, key, value).map(|object| SimObject::Untyped(Arc::new(object))),
                }
            }
        }

        $(impl From<$kind> for SimObject {
            fn from(object: $kind) -> SimObject {
                SimObject::$kind(Arc::new(object))
            }
        }

        impl SimType for $kind {
            const OBJECT_KIND: ObjectKind = ObjectKind::$kind;

            fn of(object: &SimObject) -> Option<&Arc<$kind>> {
                match object {
                    SimObject::$kind(object) => Some(object),
                    _ => None,
                }
            }
        })*
    };
}

/// A Kubernetes type that objects of one kind have.
pub trait SimType: Typed {
    /// The kind.
    const OBJECT_KIND: ObjectKind;

    /// The object, if it is of this kind.
    fn of(object: &SimObject) -> Option<&Arc<Self>>;
}

kinds! {
    Namespace Node Pod PersistentVolume PersistentVolumeClaim Service ReplicationController
    StorageClass CSINode CSIDriver CSIStorageCapacity VolumeAttachment
    ReplicaSet StatefulSet Deployment DaemonSet ControllerRevision
    PodDisruptionBudget Job CronJob Lease PriorityClass EndpointSlice
}

impl ObjectKind {
    /// The kind of this entry of the model's table.
    pub fn of(kind: &'static Kind) -> ObjectKind {
        let typed = ObjectKind::TYPED.iter().find(|typed| typed.name() == kind.kind && typed.group() == kind.group());
        typed.copied().unwrap_or_else(|| ObjectKind::untyped(kind))
    }

    fn untyped(kind: &'static Kind) -> ObjectKind {
        let index = KINDS.iter().position(|other| other == kind).unwrap_or_default();
        ObjectKind::Untyped(u8::try_from(index).expect("the table has fewer than 256 kinds"))
    }

    /// Its entry in the model's table.
    pub fn entry(self) -> &'static Kind {
        match self {
            ObjectKind::Untyped(index) => &KINDS[usize::from(index)],
            typed => Kind::named(typed.name()).expect("a test looks up every kind"),
        }
    }

    fn group(self) -> &'static str {
        self.entry().group()
    }
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl UntypedObject {
    fn read(kind: &'static Kind, key: &ObjectKey, value: &Value) -> Result<UntypedObject, ModelError> {
        let metadata = stead_model::metadata_of(key, value)?;
        let mut fields = value.clone();
        if let Some(fields) = fields.as_object_mut() {
            for field in ["apiVersion", "kind", "metadata"] {
                fields.remove(field);
            }
        }
        Ok(UntypedObject { kind, metadata, fields })
    }

    fn to_json(&self) -> Value {
        let metadata = serde_json::to_value(&self.metadata).expect("metadata is JSON");
        let mut object = json!({ "apiVersion": self.kind.api_version, "kind": self.kind.kind, "metadata": metadata });
        if let (Some(object), Some(fields)) = (object.as_object_mut(), self.fields.as_object()) {
            object.extend(fields.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        object
    }
}

impl SimObject {
    /// Reads an object with apiVersion and kind. A namespaced object without a namespace is in `default`.
    pub fn from_json(value: &Value) -> Result<SimObject, ModelError> {
        let text = |field: &str| value[field].as_str().unwrap_or_default();
        let key = ObjectKey::of(value).ok_or_else(|| ModelError::malformed("object", "metadata.name", "missing"))?;
        let kind = Kind::find(text("apiVersion"), text("kind"))
            .ok_or_else(|| ModelError::malformed(&key, "kind", "not a kind that the simulation knows"))?;
        let mut object = SimObject::read(kind, &key, value)?;
        let namespace = kind.namespaced.then(|| key.namespace.clone());
        if object.metadata().namespace != namespace {
            object.metadata_mut().namespace = namespace;
        }
        Ok(object)
    }

    /// Its key.
    pub fn key(&self) -> SimKey {
        SimKey::of(self.kind(), self.metadata())
    }

    /// Its UID; empty before it was created.
    pub fn uid(&self) -> &str {
        self.metadata().uid.as_deref().unwrap_or_default()
    }

    /// Whether its deletion was requested.
    pub fn is_terminating(&self) -> bool {
        self.metadata().deletion_timestamp.is_some()
    }
}

/// Which object.
#[derive(Debug, Clone, Eq)]
pub struct SimKey {
    /// The kind.
    pub kind: ObjectKind,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// Keys of a store share their texts: most comparisons need not look at them.
fn compare(a: &Arc<str>, b: &Arc<str>) -> Ordering {
    if Arc::ptr_eq(a, b) { Ordering::Equal } else { a.cmp(b) }
}

impl Ord for SimKey {
    fn cmp(&self, other: &SimKey) -> Ordering {
        let namespaces = || compare(&self.namespace, &other.namespace);
        self.kind.cmp(&other.kind).then_with(namespaces).then_with(|| compare(&self.name, &other.name))
    }
}

impl PartialOrd for SimKey {
    fn partial_cmp(&self, other: &SimKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for SimKey {
    fn eq(&self, other: &SimKey) -> bool {
        self.cmp(other).is_eq()
    }
}

impl SimKey {
    /// The key of an object; `namespace` is empty for a cluster-scoped one.
    pub fn new(kind: ObjectKind, namespace: &str, name: &str) -> SimKey {
        SimKey { kind, namespace: namespace.into(), name: name.into() }
    }

    /// The key of an object that has these metadata.
    pub fn of(kind: ObjectKind, metadata: &ObjectMeta) -> SimKey {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        SimKey::new(kind, namespace, metadata.name.as_deref().unwrap_or_default())
    }

    /// The key of a pod.
    pub fn pod(namespace: &str, name: &str) -> SimKey {
        SimKey::new(ObjectKind::Pod, namespace, name)
    }

    /// The key of a node.
    pub fn node(name: &str) -> SimKey {
        SimKey::new(ObjectKind::Node, "", name)
    }

    /// The key in the model's form.
    pub fn to_model(&self) -> ObjectKey {
        ObjectKey::new(self.kind.name(), &self.namespace, &self.name)
    }
}

impl fmt::Display for SimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_model().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_in_the_models_table() {
        for kind in ObjectKind::TYPED {
            assert_eq!(ObjectKind::of(kind.entry()), *kind);
        }
        for kind in KINDS {
            assert_eq!(ObjectKind::of(kind).entry(), kind);
        }
    }

    #[test]
    fn objects_are_read_and_written() {
        let topology = json!({ "apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology",
            "metadata": { "name": "t" }, "spec": { "affinity": {} } });
        let object = SimObject::from_json(&topology).expect("a Topology");
        assert_eq!(object.key().to_string(), "topology default/t");
        assert_eq!(object.to_json()["spec"], topology["spec"]);
        let node =
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "a", "labels": { "zone": "b" } } });
        let object = SimObject::from_json(&node).expect("a Node");
        assert_eq!(
            (object.key().to_string(), object.to_json()["metadata"]["labels"]["zone"].as_str()),
            ("node a".into(), Some("b"))
        );
        let unknown = json!({ "apiVersion": "example.org/v1", "kind": "Widget", "metadata": { "name": "w" } });
        let error = SimObject::from_json(&unknown).expect_err("not known");
        assert_eq!(error.to_string(), "widget w: kind: not a kind that the simulation knows");
    }
}
