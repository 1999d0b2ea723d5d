//! Which object controls another.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::key::ObjectKey;
use crate::objects::Objects;

/// The owner that controls an object (`GetControllerOf` in `k8s.io/apimachinery/pkg/apis/meta/v1`).
pub fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    metadata.owner_references.as_ref()?.iter().find(|owner| owner.controller == Some(true))
}

/// Whether an object is controlled by another of its namespace.
pub fn is_controlled_by(metadata: &ObjectMeta, owner: &ObjectKey) -> bool {
    let named = |controller: &OwnerReference| controller.kind == owner.kind && controller.name == owner.name;
    metadata.namespace.as_deref().unwrap_or("default") == owner.namespace && controller_of(metadata).is_some_and(named)
}

/// Whether two objects have the same controller.
pub fn same_controller(a: &ObjectMeta, b: &ObjectMeta) -> bool {
    let identity = |metadata| controller_of(metadata).map(|owner| (&owner.kind, &owner.name));
    a.namespace == b.namespace && identity(a).is_some() && identity(a) == identity(b)
}

impl Objects {
    /// The controller of an object, that controller's own, and so on: whatever their kinds. The last may not exist.
    pub fn controllers(&self, object: &ObjectKey) -> Vec<ObjectKey> {
        let mut out: Vec<ObjectKey> = Vec::new();
        let of = |key: &ObjectKey| {
            let metadata = self.object(key)?.metadata().ok()?;
            let owner = controller_of(&metadata)?;
            Some(ObjectKey::new(&owner.kind, &object.namespace, &owner.name))
        };
        while let Some(next) = of(out.last().unwrap_or(object)).filter(|next| !out.contains(next)) {
            out.push(next);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn metadata(owners: Value) -> ObjectMeta {
        serde_json::from_value(json!({ "namespace": "n", "ownerReferences": owners })).expect("metadata")
    }

    #[test]
    fn get_controller_of() {
        let owner = |name: &str, controller: Value| json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": controller });
        for (owners, expected) in [
            (json!(null), None),
            (json!([]), None),
            (json!([owner("a", json!(false)), owner("b", json!(true))]), Some("b")),
            (json!([owner("a", json!(null))]), None),
        ] {
            let metadata = metadata(owners);
            assert_eq!(controller_of(&metadata).map(|owner| owner.name.as_str()), expected);
            for name in ["a", "b"] {
                let controlled = is_controlled_by(&metadata, &ObjectKey::namespaced("ReplicaSet", "n", name));
                assert_eq!(controlled, expected == Some(name));
            }
        }
        let objects = Objects::from_items([("Pod", "p", "Widget", "w"), ("Widget", "w", "Gadget", "g")].map(
            |(kind, name, owner_kind, owner)| {
                json!({ "kind": kind, "metadata": { "name": name, "namespace": "n", "ownerReferences": [
                    { "apiVersion": "x/v1", "kind": owner_kind, "name": owner, "uid": "u", "controller": true }] } })
            },
        ));
        let chain = objects.controllers(&ObjectKey::pod("n", "p"));
        assert_eq!(chain.iter().map(ToString::to_string).collect::<Vec<_>>(), ["widget n/w", "gadget n/g"]);
        let (a, b) = (metadata(json!([owner("a", json!(true))])), metadata(json!([owner("b", json!(true))])));
        assert!(same_controller(&a, &a.clone()) && !same_controller(&a, &b));
        assert!(
            !same_controller(&metadata(json!([])), &metadata(json!([]))),
            "no controller is not the same controller"
        );
    }
}
