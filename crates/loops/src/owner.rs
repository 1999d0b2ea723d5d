//! The object that a loop works on, as the controller of the objects that the loop creates.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use stead_model::{Kind, ObjectKey, Typed};

use crate::metadata::{Texts, name, namespace, uid};
use crate::step::Write;

/// The object that a loop works on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner<'a> {
    kind: &'static Kind,
    pub(crate) metadata: &'a ObjectMeta,
}

/// An object as a loop wants it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WantedObject {
    pub(crate) key: ObjectKey,
    pub(crate) object: Value,
}

impl<'a> Owner<'a> {
    /// The owner that this object is.
    pub(crate) fn of<T: Typed>(object: &'a T) -> Owner<'a> {
        Owner::new(T::KIND, object.metadata())
    }

    /// The owner of this kind and metadata.
    pub(crate) fn new(kind: &str, metadata: &'a ObjectMeta) -> Owner<'a> {
        Owner { kind: Kind::known(kind), metadata }
    }

    pub(crate) fn name(self) -> &'a str {
        name(self.metadata)
    }

    pub(crate) fn namespace(self) -> &'a str {
        namespace(self.metadata)
    }

    /// Its key.
    pub(crate) fn key(self) -> ObjectKey {
        self.neighbour(self.kind.kind, self.name())
    }

    /// The key of an object in its namespace.
    pub(crate) fn neighbour(self, kind: &str, name: &str) -> ObjectKey {
        ObjectKey::namespaced(kind, self.namespace(), name)
    }

    /// An object in its namespace that it controls: one that is deleted with it. `fields` is what the object has besides
    /// apiVersion, kind and metadata.
    pub(crate) fn create(self, kind: &str, metadata: ObjectMeta, fields: Value) -> WantedObject {
        let key = self.neighbour(kind, name(&metadata));
        let metadata = ObjectMeta {
            namespace: self.metadata.namespace.clone(),
            owner_references: Some(vec![self.reference()]),
            ..metadata
        };
        let mut object = json!({"apiVersion": Kind::known(kind).api_version, "kind": kind, "metadata": metadata});
        if let (Value::Object(object), Value::Object(fields)) = (&mut object, fields) {
            object.extend(fields);
        }
        WantedObject { key, object }
    }

    fn reference(self) -> OwnerReference {
        OwnerReference {
            api_version: self.kind.api_version.to_owned(),
            kind: self.kind.kind.to_owned(),
            name: self.name().to_owned(),
            uid: uid(self.metadata).to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    /// Its status, to be written.
    pub(crate) fn status(self, status: Value) -> Write {
        let ObjectMeta { name, namespace, uid, .. } = self.metadata;
        let object = json!({
            "apiVersion": self.kind.api_version,
            "kind": self.kind.kind,
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": status,
        });
        Write::Status { object }
    }
}

/// Metadata with a name and labels.
pub(crate) fn named(name: &str, labels: Texts) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels).filter(|labels| !labels.is_empty()),
        ..ObjectMeta::default()
    }
}
