//! Which existing objects a loop may write.
//!
//! A loop creates objects under names that follow from the names in a spec, and somebody may have an object of that
//! name already. It is written only if it is controlled by the object that asks for it, or if Stead applied it before
//! and it has lost its controller since (`kubectl delete --cascade=orphan`).

use serde_json::Value;
use stead_model::{ObjectKey, controller_of, metadata_of};

use crate::managed_fields::{is_applied_by_stead, managed_fields};

/// Why `wanted` must not be applied over `live`, an object of the same kind and name; none if it may be. `wanted` names
/// its controller in its owner references.
pub fn conflict(wanted: &Value, live: &Value) -> Option<String> {
    let key = ObjectKey::of(live)?;
    let object = format!("{} {}/{}", key.kind, key.namespace, key.name);
    let (wanted, metadata) = match (metadata_of(&key, wanted), metadata_of(&key, live)) {
        (Ok(wanted), Ok(live)) => (wanted, live),
        (Err(error), _) | (_, Err(error)) => return Some(error.to_string()),
    };
    match (controller_of(&metadata), controller_of(&wanted)) {
        (Some(live), Some(wanted)) if live.uid == wanted.uid => None,
        (Some(other), _) => Some(format!("{object} is already controlled by {} {}", other.kind, other.name)),
        (None, _) if managed_fields(live).iter().any(is_applied_by_stead) => None,
        (None, _) => Some(format!(
            "{object} already exists, has no controller and was not created by Stead; delete or rename it to let \
             Stead create its own"
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_our_own_objects_are_written() {
        let owner = |uid: &str| json!([{"kind": "Glance", "name": "glance", "uid": uid, "controller": true}]);
        let plain = json!([{"kind": "ConfigMap", "name": "a", "uid": "1"}]);
        let applied = json!([{"manager": "stead", "operation": "Apply"}]);
        let status = json!([{"manager": "stead", "operation": "Apply", "subresource": "status"}]);
        let updated = json!([{"manager": "stead", "operation": "Update"}]);
        let by_hand = json!([{"manager": "kubectl", "operation": "Apply"}]);
        let none = json!([]);
        for (what, owners, fields, allowed) in [
            ("controlled by the same object", owner("1"), &none, true),
            ("controlled by the same object, applied by somebody else", owner("1"), &by_hand, true),
            ("controlled by another object", owner("2"), &none, false),
            ("controlled by another object, applied by Stead", owner("2"), &applied, false),
            ("without a controller, applied by Stead", none.clone(), &applied, true),
            ("without a controller, applied by somebody else", none.clone(), &by_hand, false),
            ("without a controller, only its status applied by Stead", none.clone(), &status, false),
            ("without a controller, only patched by Stead", none.clone(), &updated, false),
            ("with an owner that does not control it", plain, &none, false),
        ] {
            let live = json!({"kind": "Secret", "metadata": {"name": "a", "namespace": "n", "ownerReferences": owners,
                "managedFields": fields}});
            let wanted = json!({"kind": "Secret", "metadata": {"name": "a", "namespace": "n",
                "ownerReferences": owner("1")}});
            assert_eq!(conflict(&wanted, &live).is_none(), allowed, "{what}");
        }
    }
}
