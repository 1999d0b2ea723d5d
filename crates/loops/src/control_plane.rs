//! The loop of an OpenStackControlPlane: the Glance that it asks for, with the settings that it has for all services.

use serde_json::{Value, json};
use stead_model::{Glance, GlanceSpec, ObjectKey, ObjectRef, OpenStackControlPlane, TopologyRef};

use crate::conditions::{ConditionState, Conditions, ReadyCondition, Severity};
use crate::glance::without_nulls;
use crate::layout::SERVICE;
use crate::metadata::{Texts, controls, is_deleting, name, uid};
use crate::optional::{non_empty, set_default};
use crate::owner::{Owner, named};
use crate::ownership;
use crate::step::{LoopStep, Propagation, World, Write};
use crate::topology_ref::{other_namespace, topology};

/// The fields of the control plane itself; every other field is the section of a service.
const OWN_FIELDS: [&str; 6] = ["topologyRef", "storageClass", "secret", "nodeSelector", "glance", "extraMounts"];

const GLANCE_READY: &str = "OpenStackControlPlaneGlanceReady";

/// Whether the control plane has a Glance: its section exists, and is not disabled.
fn is_enabled(plane: &OpenStackControlPlane) -> bool {
    plane.spec.glance.as_ref().is_some_and(|glance| glance.enabled.unwrap_or(true))
}

/// The step of a control plane.
pub(crate) fn step(world: &World<'_>, object: ObjectRef<'_>, plane: &OpenStackControlPlane) -> LoopStep {
    if is_deleting(&plane.metadata) {
        return LoopStep::default();
    }
    let undecided = [(GLANCE_READY, "OpenStackControlPlane Glance not started")];
    let mut conditions = Conditions::new(if is_enabled(plane) { &undecided } else { &[] });
    let mut writes = Vec::new();
    if topology_exists(world, plane, &mut conditions) || !is_enabled(plane) {
        glance(world, plane, &mut conditions, &mut writes);
    }
    other_services(object.raw(), &mut conditions);
    let ready = conditions.all_met();
    let conditions = conditions.into_json(ready, &plane.status.conditions, world.now);
    let status = json!({"observedGeneration": plane.metadata.generation, "conditions": conditions});
    writes.push(Owner::of(plane).status(status));
    LoopStep { writes, ..LoopStep::default() }
}

/// Whether the Topology that is referred to exists, or none is referred to.
fn topology_exists(world: &World<'_>, plane: &OpenStackControlPlane, conditions: &mut Conditions) -> bool {
    let Some(wanted) = topology(&plane.spec.topology_ref) else { return true };
    let owner = Owner::of(plane);
    let fault = other_namespace(&plane.spec.topology_ref, owner.namespace()).or_else(|| {
        let exists = world.store.contains(&owner.neighbour("Topology", wanted));
        (!exists).then(|| format!("Topology.topology.openstack.org \"{wanted}\" not found"))
    });
    if let Some(fault) = fault {
        conditions.failed("TopologyReady", format!("Topology config create error occurred {fault}"));
        return false;
    }
    conditions.met("TopologyReady", "Topology config create completed");
    true
}

fn glance(world: &World<'_>, plane: &OpenStackControlPlane, conditions: &mut Conditions, writes: &mut Vec<Write>) {
    let owner = Owner::of(plane);
    let enabled = is_enabled(plane);
    let short: String = uid(&plane.metadata).chars().take(5).collect();
    let unique = plane.spec.glance.as_ref().and_then(|glance| glance.unique_pod_names) == Some(true);
    let wanted = if unique { format!("{SERVICE}-{short}") } else { SERVICE.to_owned() };
    for other in world.store.all_in::<Glance>(owner.namespace()) {
        let metadata = &other.metadata;
        let is_unwanted = !enabled || name(metadata) != wanted;
        if controls(&plane.metadata, metadata) && is_unwanted && !is_deleting(metadata) {
            let key = owner.neighbour("Glance", name(metadata));
            writes.push(Write::Delete { key, uid: uid(metadata).into(), propagation: Propagation::Background });
        }
    }
    if !enabled {
        return;
    }
    let spec = without_nulls(json!(spec(plane)));
    let object = owner.create("Glance", named(&wanted, Texts::new()), json!({"spec": spec}));
    let key: ObjectKey = object.key;
    let conflict = world.store.raw(&key).and_then(|live| ownership::conflict(&object.object, live));
    let failure = world.failures.get(&key).map(|failure| failure.message.clone());
    if conflict.is_none() {
        writes.push(Write::Apply { object: object.object, exclusive: vec!["/spec"] });
    }
    if let Some(problem) = conflict.or(failure) {
        conditions.failed(GLANCE_READY, format!("OpenStackControlPlane Glance error occurred {problem}"));
        return;
    }
    let live: Option<&Glance> = world.store.find(owner.namespace(), &wanted);
    let is_ready = live.is_some_and(|glance| {
        let ready = ReadyCondition::of(&glance.status.conditions);
        glance.metadata.generation == glance.status.observed_generation
            && ready.is_some_and(|ready| ready.state == ConditionState::Met)
    });
    if is_ready {
        conditions.met(GLANCE_READY, "OpenStackControlPlane Glance completed");
    } else {
        conditions.waiting(GLANCE_READY, "OpenStackControlPlane Glance in progress");
    }
}

/// The Glance's spec: the template, with the control plane's settings where the template has none.
fn spec(plane: &OpenStackControlPlane) -> GlanceSpec {
    let from = &plane.spec;
    let mut spec = from.glance.as_ref().and_then(|glance| glance.template.clone()).unwrap_or_default();
    spec.node_selector = spec.node_selector.or_else(|| from.node_selector.clone());
    spec.topology_ref = spec.topology_ref.or_else(|| {
        let name = Some(topology(&from.topology_ref)?.to_owned());
        Some(TopologyRef { name, namespace: plane.metadata.namespace.clone() })
    });
    if let Some(secret) = non_empty(&from.secret) {
        set_default(&mut spec.secret, secret);
    }
    set_default(&mut spec.database_instance, "openstack");
    if let Some(shared) = from.extra_mounts.as_ref().filter(|shared| !shared.is_empty()) {
        spec.extra_mounts.get_or_insert_default().extend(shared.iter().cloned());
    }
    if let Some(class) = non_empty(&from.storage_class) {
        set_default(&mut spec.storage.get_or_insert_default().storage_class, class);
    }
    spec
}

/// Sections of other services are kept and not acted on: a condition says so.
fn other_services(plane: &Value, conditions: &mut Conditions) {
    let sections = plane["spec"].as_object().into_iter().flatten();
    let is_enabled = |section: &Value| section["enabled"].as_bool().unwrap_or(section.is_object());
    let others: Vec<&str> = sections
        .filter(|(field, section)| !OWN_FIELDS.contains(&field.as_str()) && is_enabled(section))
        .map(|(field, _)| field.as_str())
        .collect();
    if !others.is_empty() {
        let state = ConditionState::NotMet { reason: "NotManaged", severity: Severity::Info };
        let message = format!("not managed: {}. Stead manages only glance", others.join(", "));
        conditions.report("OtherServicesManaged", state, message);
    }
}
