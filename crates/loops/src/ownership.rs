//! Which existing objects a loop may write.
//!
//! A loop creates objects under names that follow from the names in a spec, and somebody may have an object of that
//! name already. It is written only if it is controlled by the object that asks for it, or if Stead applied it before
//! and it has lost its controller since (`kubectl delete --cascade=orphan`).

use serde_json::Value;

use crate::object::{flag, items, name, namespace, text};
use crate::step::MANAGER;

/// Why `wanted` must not be applied over `live`, an object of the same kind and name; none if it may be. `wanted` names
/// its controller in its owner references.
pub fn conflict(wanted: &Value, live: &Value) -> Option<String> {
    let object = format!("{} {}/{}", text(live, "/kind"), namespace(live), name(live));
    match (controlled_by(live), controlled_by(wanted)) {
        (Some(live), Some(wanted)) if text(live, "/uid") == text(wanted, "/uid") => None,
        (Some(other), _) => {
            let (kind, name) = (text(other, "/kind"), text(other, "/name"));
            Some(format!("{object} is already controlled by {kind} {name}"))
        }
        (None, _) if was_applied(live) => None,
        (None, _) => Some(format!(
            "{object} already exists, has no controller and was not created by Stead; delete or rename it to let \
             Stead create its own"
        )),
    }
}

/// The owner reference of the object that controls this one.
fn controlled_by(object: &Value) -> Option<&Value> {
    items(object, "/metadata/ownerReferences").find(|r| flag(r, "/controller"))
}

/// Whether Stead has applied this object, and not only its status.
fn was_applied(object: &Value) -> bool {
    items(object, "/metadata/managedFields").any(|entry| {
        let main = text(entry, "/subresource").is_empty();
        main && text(entry, "/manager") == MANAGER && text(entry, "/operation") == "Apply"
    })
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
