//! The loop of a Topology: who uses it, and whether the nodes can satisfy it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stead_explain::topology::{ProblemEffect, ProblemReason, TopologyConsumer, problems};
use stead_model::{ObjectKey, Topology, parse};

use crate::conditions::{seconds, status};
use crate::layout::labels;
use crate::object::{deleting, fields, items, name, namespace, text};
use crate::placement_rules::spread;
use crate::step::{Step, World, Write};
use crate::topology_ref;

/// So many users are named; the definition allows no more.
const MOST_NAMED: usize = 4096;

/// What a Topology's loop wants: a status, and nothing else.
pub(crate) fn step(world: &World<'_>, topology: &Value) -> Step {
    let space = namespace(topology);
    let follows = |api: &&Value| !deleting(api) && topology_ref::of(&api["spec"]) == Some(name(topology));
    let consumers: Vec<TopologyConsumer> = world.store.list("GlanceAPI", space).filter(follows).map(consumer).collect();
    let planes = world.store.list("OpenStackControlPlane", space);
    let mut used_by: Vec<Value> =
        planes.filter(|p| topology_ref::of(&p["spec"]) == Some(name(topology))).map(user).collect();
    used_by.extend(world.store.list("Glance", space).filter(follows).map(user));
    used_by.extend(world.store.list("GlanceAPI", space).filter(follows).map(user));
    let nodes: Vec<(&str, BTreeMap<String, String>)> =
        world.store.of_kind("Node").map(|node| (name(node), texts_at(node, "/metadata/labels"))).collect();
    // The API server has accepted it: what could be malformed are its rules, and these are read one by one.
    let read: Topology = parse(name(topology), topology).unwrap_or_default();
    let found = problems(&read, &nodes, &consumers);
    let mut conditions = Vec::new();
    let worst = found.iter().find(|t| t.effect != ProblemEffect::Note);
    let all: Vec<&str> = found.iter().filter(|t| t.effect != ProblemEffect::Note).map(|t| t.message.as_str()).collect();
    conditions.push(match worst {
        Some(worst) => ("Satisfiable", "False", worst.reason.as_str(), all.join("; ")),
        None if world.store.keys("Node").next().is_none() => {
            ("Satisfiable", "Unknown", "NoNodes", "there are no nodes to judge it by".to_owned())
        }
        None => ("Satisfiable", "True", "Satisfiable", "the nodes can satisfy it".to_owned()),
    });
    for note in found.iter().filter(|t| t.effect == ProblemEffect::Note) {
        let kind = match note.reason {
            ProblemReason::DraftSpelling => "DraftSpelling",
            ProblemReason::BeingDeleted => "Terminating",
            _ => "Notice",
        };
        if !conditions.iter().any(|(k, ..)| *k == kind) {
            conditions.push((kind, "True", note.reason.as_str(), note.message.clone()));
        }
    }
    let conditions: Vec<Value> = conditions
        .into_iter()
        .map(|(kind, is, reason, message)| condition(topology, world, kind, is, reason, &message))
        .collect();
    let keys: Vec<&str> =
        spread(topology).and_then(Value::as_array).into_iter().flatten().map(|c| text(c, "/topologyKey")).collect();
    let users = used_by.len();
    used_by.truncate(MOST_NAMED);
    let said = json!({
        "observedGeneration": topology["metadata"]["generation"],
        "spreadBy": keys.join(","),
        "users": users,
        "usedBy": used_by,
        "conditions": conditions,
    });
    Step { writes: vec![Write::Status { object: status(topology, said) }], ..Step::default() }
}

fn user(object: &Value) -> Value {
    json!({"kind": object["kind"], "name": object["metadata"]["name"]})
}

/// The map of texts at a JSON pointer.
fn texts_at(object: &Value, pointer: &str) -> BTreeMap<String, String> {
    let fields = fields(object, pointer);
    fields.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

fn consumer(api: &Value) -> TopologyConsumer {
    TopologyConsumer {
        key: ObjectKey::new("GlanceAPI", namespace(api), name(api)),
        pod_labels: labels(api),
        node_selector: texts_at(api, "/spec/nodeSelector"),
    }
}

fn condition(topology: &Value, world: &World<'_>, kind: &str, is: &str, reason: &str, message: &str) -> Value {
    let before = items(topology, "/status/conditions").find(|c| c["type"] == kind && c["status"] == is);
    let since = before.map(|c| text(c, "/lastTransitionTime").to_owned());
    json!({
        "type": kind,
        "status": is,
        "reason": reason,
        "message": message,
        "lastTransitionTime": since.unwrap_or_else(|| seconds(world.now)),
    })
}
