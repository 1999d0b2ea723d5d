//! Which loops have to run when an object changes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::{Glance, GlanceApi, ObjectKey, ObjectRef, OpenStackControlPlane, TopologyRef};

use crate::metadata::{controller, label};
use crate::references;
use crate::secret::DigestedSecret;
use crate::store::Store;
use crate::topology_ref::topology;

/// The objects whose loops have to run because this one changed: `before` is what was observed before it (none where it
/// is new), `after` is what it is now (none where it was deleted).
pub fn affected(store: &Store, before: Option<ObjectRef<'_>>, after: Option<ObjectRef<'_>>) -> Vec<ObjectKey> {
    let mut keys = BTreeSet::new();
    let change = Change { store, before, after };
    for object in [before, after].into_iter().flatten() {
        change.add(object, &mut keys);
    }
    keys.into_iter().collect()
}

struct Change<'a> {
    store: &'a Store,
    before: Option<ObjectRef<'a>>,
    after: Option<ObjectRef<'a>>,
}

impl<'a> Change<'a> {
    /// Adds the objects that are affected by what `object`, one of the two versions, refers to.
    fn add(&self, object: ObjectRef<'a>, keys: &mut BTreeSet<ObjectKey>) {
        let key = object.key();
        let space = key.namespace.as_str();
        let metadata = object.metadata().unwrap_or_default();
        match key.kind.as_str() {
            "Topology" => {
                keys.insert(key.clone());
                // Changes of labels and finalizers affect nobody else.
                if self.differs(generation) {
                    keys.extend(self.users_of_topology(space, &key.name));
                }
            }
            "OpenStackControlPlane" | "Glance" | "GlanceAPI" => {
                keys.insert(key.clone());
                keys.extend(controller(&metadata, "Glance"));
                keys.extend(controller(&metadata, "OpenStackControlPlane"));
                if key.kind == "Glance" && self.is_created_or_deleted() {
                    // The database is free or taken, and so is the name that a control plane wants for its Glance.
                    self.add_all(&["Glance", "OpenStackControlPlane"], space, keys);
                }
                let topologies = topologies(object).into_iter();
                keys.extend(topologies.map(|name| ObjectKey::namespaced("Topology", space, &name)));
            }
            "Pod" | "PersistentVolumeClaim" => {
                keys.extend(label(&metadata, "owner").map(|owner| ObjectKey::namespaced("GlanceAPI", space, owner)));
            }
            "Node" => {
                if self.differs(placement) {
                    keys.extend(self.store.keys("Topology").cloned());
                }
            }
            "NetworkAttachmentDefinition" => {
                let apis = self.store.of_kind_in("GlanceAPI", space);
                keys.extend(apis.filter(|api| is_attached(*api, &key.name)).map(|api| api.key().clone()));
            }
            _ => {
                keys.extend(controller(&metadata, "Glance"));
                keys.extend(controller(&metadata, "GlanceAPI"));
                if key.kind == "Secret" && self.differs(digests) {
                    for kind in ["Glance", "GlanceAPI"] {
                        let users = self.store.of_kind_in(kind, space);
                        keys.extend(users.filter(|o| references(*o).contains(key)).map(|o| o.key().clone()));
                    }
                }
                // A database, a cache or Keystone was created or deleted.
                let is_of_api = || controller(&metadata, "GlanceAPI").is_some();
                if key.kind == "Service" && self.is_created_or_deleted() && !is_of_api() {
                    self.add_all(&["Glance", "GlanceAPI"], space, keys);
                }
            }
        }
    }

    fn is_created_or_deleted(&self) -> bool {
        self.before.is_none() || self.after.is_none()
    }

    /// Whether a part of the object has changed.
    fn differs<T: PartialEq>(&self, part: impl Fn(ObjectRef<'a>) -> T) -> bool {
        self.before.map(&part) != self.after.map(&part)
    }

    fn add_all(&self, kinds: &[&str], namespace: &str, keys: &mut BTreeSet<ObjectKey>) {
        for kind in kinds {
            keys.extend(self.store.of_kind_in(kind, namespace).map(|object| object.key().clone()));
        }
    }

    fn users_of_topology(&self, namespace: &str, name: &str) -> Vec<ObjectKey> {
        let kinds = ["GlanceAPI", "OpenStackControlPlane"];
        let objects = kinds.into_iter().flat_map(|kind| self.store.of_kind_in(kind, namespace));
        objects.filter(|o| reference(*o).is_some_and(|r| r.topology() == Some(name))).map(|o| o.key().clone()).collect()
    }
}

fn generation(object: ObjectRef<'_>) -> (Option<String>, Option<i64>) {
    let ObjectMeta { uid, generation, .. } = object.metadata().unwrap_or_default();
    (uid, generation)
}

fn digests(secret: ObjectRef<'_>) -> Option<&BTreeMap<String, String>> {
    secret.typed::<DigestedSecret>().ok()?.data.as_ref()
}

/// What placement reads of a node that a Topology can be about.
type NodePlacement<'a> = (Option<&'a BTreeMap<String, String>>, Option<&'a Vec<Taint>>, Option<bool>);

fn placement(node: ObjectRef<'_>) -> Option<NodePlacement<'_>> {
    let node: &Node = node.typed().ok()?;
    let spec = node.spec.as_ref();
    let taints = spec.and_then(|spec| spec.taints.as_ref());
    Some((node.metadata.labels.as_ref(), taints, spec.and_then(|spec| spec.unschedulable)))
}

fn is_attached(api: ObjectRef<'_>, network: &str) -> bool {
    let Ok(api) = api.typed::<GlanceApi>() else { return false };
    api.spec.network_attachments.iter().flatten().any(|name| name == network)
}

/// The reference to a Topology in an object's spec.
fn reference(object: ObjectRef<'_>) -> Option<&TopologyRef> {
    match object.key().kind.as_str() {
        "Glance" => object.typed::<Glance>().ok()?.spec.topology_ref.as_ref(),
        "GlanceAPI" => object.typed::<GlanceApi>().ok()?.spec.topology_ref.as_ref(),
        "OpenStackControlPlane" => object.typed::<OpenStackControlPlane>().ok()?.spec.topology_ref.as_ref(),
        _ => None,
    }
}

/// The Topologies that an object refers to, or followed last.
fn topologies(object: ObjectRef<'_>) -> Vec<String> {
    let last = match object.key().kind.as_str() {
        "GlanceAPI" => object.typed::<GlanceApi>().ok().and_then(|api| topology(&api.status.last_applied_topology)),
        _ => None,
    };
    let wanted = reference(object).and_then(TopologyRef::topology);
    wanted.into_iter().chain(last).map(str::to_owned).collect()
}
