//! Whose loops should look again when an object changes.

use std::collections::BTreeSet;

use serde_json::Value;
use stead_model::ObjectKey;

use crate::object::{controller, name, namespace, text, texts};
use crate::store::Store;
use crate::{references, topology_ref};

/// The objects whose loops should look again because this one changed: `before` is what was seen before it (none when
/// it is new), `after` what is there now (none when it is gone).
pub fn concerned(store: &Store, before: Option<&Value>, after: Option<&Value>) -> Vec<ObjectKey> {
    let mut keys = BTreeSet::new();
    for object in [before, after].into_iter().flatten() {
        of(store, object, before, after, &mut keys);
    }
    keys.into_iter().collect()
}

fn of(store: &Store, object: &Value, before: Option<&Value>, after: Option<&Value>, keys: &mut BTreeSet<ObjectKey>) {
    let space = namespace(object);
    let kind = text(object, "/kind");
    match kind {
        "Topology" => {
            keys.extend(ObjectKey::of(object));
            // Labels and finalizers are nobody's concern; what it says is.
            if generation(before) != generation(after) {
                for kind in ["GlanceAPI", "OpenStackControlPlane"] {
                    let users = store.list(kind, space).filter(|o| topology_ref::of(&o["spec"]) == Some(name(object)));
                    keys.extend(users.filter_map(ObjectKey::of));
                }
            }
        }
        "OpenStackControlPlane" | "Glance" | "GlanceAPI" => {
            keys.extend(ObjectKey::of(object));
            keys.extend(controller(object, "Glance"));
            keys.extend(controller(object, "OpenStackControlPlane"));
            if kind == "Glance" && (before.is_none() || after.is_none()) {
                // The database is free, or taken; so is the name that a control plane wants for its Glance.
                for kind in ["Glance", "OpenStackControlPlane"] {
                    keys.extend(store.list(kind, space).filter_map(ObjectKey::of));
                }
            }
            let last = text(object, "/status/lastAppliedTopology/name");
            for topology in topology_ref::of(&object["spec"]).into_iter().chain([last]).filter(|t| !t.is_empty()) {
                keys.insert(ObjectKey::new("Topology", space, topology));
            }
        }
        "Pod" | "PersistentVolumeClaim" => {
            let owner = text(object, "/metadata/labels/owner");
            keys.insert(ObjectKey::new("GlanceAPI", space, owner));
        }
        "Node" => {
            if before.map(placed_by) != after.map(placed_by) {
                keys.extend(store.keys("Topology").cloned());
            }
        }
        "NetworkAttachmentDefinition" => {
            let asks = |api: &&Value| texts(api, "/spec/networkAttachments").any(|n| n == name(object));
            keys.extend(store.list("GlanceAPI", space).filter(asks).filter_map(ObjectKey::of));
        }
        _ => {
            keys.extend(controller(object, "Glance"));
            keys.extend(controller(object, "GlanceAPI"));
            if kind == "Secret" && data(before) != data(after) {
                let refers = |o: &&Value| references(o).iter().any(|key| key.name == name(object));
                for kind in ["Glance", "GlanceAPI"] {
                    keys.extend(store.list(kind, space).filter(refers).filter_map(ObjectKey::of));
                }
            }
            // A database, a cache or Keystone has come or gone.
            if kind == "Service" && (before.is_none() || after.is_none()) && controller(object, "GlanceAPI").is_none() {
                for kind in ["Glance", "GlanceAPI"] {
                    keys.extend(store.list(kind, space).filter_map(ObjectKey::of));
                }
            }
        }
    }
}

fn generation(object: Option<&Value>) -> Option<(&Value, &Value)> {
    object.map(|o| (&o["metadata"]["uid"], &o["metadata"]["generation"]))
}

fn data(secret: Option<&Value>) -> Option<&Value> {
    secret.map(|s| &s["data"])
}

/// What placement looks at in a node that a Topology can be about.
fn placed_by(node: &Value) -> (&Value, &Value, &Value) {
    (&node["metadata"]["labels"], &node["spec"]["taints"], &node["spec"]["unschedulable"])
}
