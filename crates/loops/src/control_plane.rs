//! The loop of an OpenStackControlPlane: the Glance that it asks for, with what the control plane says for all.

use serde_json::{Value, json};
use stead_model::ObjectKey;

use crate::conditions::{Conditions, Severity, Standing, mirror, status};
use crate::glance::without_nulls;
use crate::layout::SERVICE;
use crate::object::{
    Texts, controls, deleting, fields, flag, items, name, namespace, observed, owned, present, set, text, uid,
};
use crate::ownership;
use crate::step::{Propagation, Step, World, Write};
use crate::topology_ref;

/// What belongs to the control plane itself; every other section is a service's.
const OWN_FIELDS: [&str; 6] = ["topologyRef", "storageClass", "secret", "nodeSelector", "glance", "extraMounts"];

const GLANCE_READY: &str = "OpenStackControlPlaneGlanceReady";

/// Whether the control plane has a Glance: its section is there, and does not say otherwise.
fn is_enabled(plane: &Value) -> bool {
    plane["spec"]["glance"]["enabled"].as_bool().unwrap_or(present(plane, "/spec/glance").is_some())
}

/// What a control plane's loop wants.
pub(crate) fn step(world: &World<'_>, plane: &Value) -> Step {
    if deleting(plane) {
        return Step::default();
    }
    let undecided = [(GLANCE_READY, "OpenStackControlPlane Glance not started")];
    let mut conditions = Conditions::new(if is_enabled(plane) { &undecided } else { &[] });
    let mut writes = Vec::new();
    if topology(world, plane, &mut conditions) || !is_enabled(plane) {
        glance(world, plane, &mut conditions, &mut writes);
    }
    left_alone(plane, &mut conditions);
    let ready = conditions.all_met();
    let conditions = conditions.into_json(ready, &plane["status"], world.now);
    let said = json!({"observedGeneration": plane["metadata"]["generation"], "conditions": conditions});
    writes.push(Write::Status { object: status(plane, said) });
    Step { writes, ..Step::default() }
}

/// Whether the Topology that is referred to is there, or none is.
fn topology(world: &World<'_>, plane: &Value, conditions: &mut Conditions) -> bool {
    let Some(wanted) = topology_ref::of(&plane["spec"]) else { return true };
    if world.store.find("Topology", namespace(plane), wanted).is_none() {
        let message =
            format!("Topology config create error occurred Topology.topology.openstack.org \"{wanted}\" not found");
        conditions.failed("TopologyReady", message);
        return false;
    }
    conditions.met("TopologyReady", "Topology config create completed");
    true
}

fn glance(world: &World<'_>, plane: &Value, conditions: &mut Conditions, writes: &mut Vec<Write>) {
    let space = namespace(plane);
    let enabled = is_enabled(plane);
    let short: String = uid(plane).chars().take(5).collect();
    let unique = flag(plane, "/spec/glance/uniquePodNames");
    let wanted = if unique { format!("{SERVICE}-{short}") } else { SERVICE.to_owned() };
    for other in world.store.list("Glance", space) {
        let unasked = !enabled || name(other) != wanted;
        if controls(plane, other) && unasked && !deleting(other) {
            let key = ObjectKey::new("Glance", space, name(other));
            writes.push(Write::Delete { key, uid: uid(other).into(), propagation: Propagation::Background });
        }
    }
    if !enabled {
        return;
    }
    let mut object = owned(plane, "glance.openstack.org/v1beta1", "Glance", &wanted, &Texts::new());
    object["spec"] = without_nulls(spec(plane));
    let live = world.store.find("Glance", space, &wanted);
    let conflict = live.and_then(|live| ownership::conflict(&object, live));
    let failure = world.failures.get(&ObjectKey::new("Glance", space, &wanted)).map(|f| f.message.clone());
    if conflict.is_none() {
        writes.push(Write::Apply { object, whole: vec!["/spec"] });
    }
    if let Some(problem) = conflict.or(failure) {
        conditions.failed(GLANCE_READY, format!("OpenStackControlPlane Glance error occurred {problem}"));
        return;
    }
    let done = live.is_some_and(|g| observed(g) && mirror(g).is_some_and(|m| m.standing == Standing::Met));
    if done {
        conditions.met(GLANCE_READY, "OpenStackControlPlane Glance completed");
    } else {
        conditions.waiting(GLANCE_READY, "OpenStackControlPlane Glance in progress");
    }
}

/// The Glance's spec: the template, with what the control plane says where the template says nothing.
fn spec(plane: &Value) -> Value {
    let from = &plane["spec"];
    let mut spec = present(from, "/glance/template").cloned().unwrap_or_else(|| json!({}));
    if present(&spec, "/nodeSelector").is_none()
        && let Some(selector) = present(from, "/nodeSelector")
    {
        set(&mut spec, "nodeSelector", selector.clone());
    }
    if present(&spec, "/topologyRef").is_none()
        && let Some(topology) = topology_ref::of(from)
    {
        set(&mut spec, "topologyRef", topology_ref::in_namespace(topology, namespace(plane)));
    }
    for (field, value) in [("secret", text(from, "/secret")), ("databaseInstance", "openstack")] {
        if text(&spec, &format!("/{field}")).is_empty() && !value.is_empty() {
            set(&mut spec, field, value.into());
        }
    }
    let shared: Vec<Value> = items(from, "/extraMounts").cloned().collect();
    if !shared.is_empty() {
        let own = items(&spec, "/extraMounts").cloned();
        let all: Vec<Value> = own.chain(shared).collect();
        set(&mut spec, "extraMounts", all.into());
    }
    let class = text(from, "/storageClass");
    if text(&spec, "/storage/storageClass").is_empty() && !class.is_empty() {
        let mut storage = present(&spec, "/storage").cloned().unwrap_or_else(|| json!({}));
        set(&mut storage, "storageClass", class.into());
        set(&mut spec, "storage", storage);
    }
    spec
}

/// Other services' sections are kept and not acted on; whoever wrote them should know.
fn left_alone(plane: &Value, conditions: &mut Conditions) {
    let others: Vec<&str> = fields(plane, "/spec")
        .filter(|(field, section)| {
            !OWN_FIELDS.contains(&field.as_str()) && section["enabled"].as_bool().unwrap_or(section.is_object())
        })
        .map(|(field, _)| field.as_str())
        .collect();
    if !others.is_empty() {
        let standing = Standing::NotMet { reason: "NotManaged", severity: Severity::Info };
        let message = format!("kept, but not acted on: {}. Stead looks after glance only", others.join(", "));
        conditions.told("OtherServicesManaged", standing, message);
    }
}
