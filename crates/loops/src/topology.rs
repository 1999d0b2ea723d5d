//! The loop of a Topology: which objects use it, and whether the nodes can satisfy it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};
use stead_explain::topology::{ProblemEffect, ProblemReason, TopologyConsumer, named_holders, problems};
use stead_model::{Glance, GlanceApi, ObjectKey, OpenStackControlPlane, Topology, TopologyRef, Typed};

use crate::conditions::seconds;
use crate::layout::labels;
use crate::metadata::{is_deleting, name, namespace};
use crate::owner::Owner;
use crate::placement_rules::constraints;
use crate::step::{LoopStep, World};
use crate::topology_ref::topology as topology_name;

/// How many users are named at most: the maximum of the definition.
const MAX_USERS_NAMED: usize = 4096;

/// The step of a Topology: a status, and nothing else.
pub(crate) fn step(world: &World<'_>, topology: &Topology) -> LoopStep {
    let space = namespace(&topology.metadata);
    let follows = |reference: &Option<TopologyRef>| topology_name(reference) == Some(name(&topology.metadata));
    let apis: Vec<&GlanceApi> = world
        .store
        .all_in::<GlanceApi>(space)
        .filter(|api| !is_deleting(&api.metadata) && follows(&api.spec.topology_ref))
        .collect();
    let planes = world.store.all_in::<OpenStackControlPlane>(space);
    let mut used_by: Vec<Value> = planes.filter(|plane| follows(&plane.spec.topology_ref)).map(user).collect();
    let glances = world.store.all_in::<Glance>(space);
    let glances = glances.filter(|glance| !is_deleting(&glance.metadata) && follows(&glance.spec.topology_ref));
    used_by.extend(glances.map(user));
    used_by.extend(apis.iter().map(|api| user(*api)));
    // Other services are not watched: their operators say by a finalizer that they use the Topology.
    let others = named_holders(topology).into_iter().filter(|(kind, _)| kind != "GlanceAPI");
    used_by.extend(others.map(|(kind, name)| json!({"kind": kind, "name": name})));

    let conditions: Vec<Value> = conditions(world, topology, &apis)
        .into_iter()
        .map(|(kind, status, reason, message)| condition(topology, world, kind, status, reason, &message))
        .collect();
    let keys: Vec<&str> = constraints(Some(topology)).map(|c| c["topologyKey"].as_str().unwrap_or_default()).collect();
    let users = used_by.len();
    used_by.truncate(MAX_USERS_NAMED);
    let status = json!({
        "observedGeneration": topology.metadata.generation,
        "spreadBy": keys.join(","),
        "users": users,
        "usedBy": used_by,
        "conditions": conditions,
    });
    LoopStep { writes: vec![Owner::of(topology).status(status)], ..LoopStep::default() }
}

/// Type, status, reason and message of each condition.
fn conditions(
    world: &World<'_>,
    topology: &Topology,
    apis: &[&GlanceApi],
) -> Vec<(&'static str, &'static str, &'static str, String)> {
    let consumers: Vec<TopologyConsumer> = apis.iter().map(|api| consumer(api)).collect();
    let nodes: Vec<(&str, BTreeMap<String, String>)> = world
        .store
        .all::<Node>()
        .map(|node| (name(&node.metadata), node.metadata.labels.clone().unwrap_or_default()))
        .collect();
    let found = problems(topology, &nodes, &consumers);
    let (notes, unmet): (Vec<_>, Vec<_>) = found.iter().partition(|problem| problem.effect == ProblemEffect::Note);
    let messages: Vec<&str> = unmet.iter().map(|problem| problem.message.as_str()).collect();
    let mut conditions = vec![match unmet.first() {
        Some(worst) => ("Satisfiable", "False", worst.reason.as_str(), messages.join("; ")),
        None if nodes.is_empty() => ("Satisfiable", "Unknown", "NoNodes", "the cluster has no nodes".to_owned()),
        None => ("Satisfiable", "True", "Satisfiable", "the nodes can satisfy it".to_owned()),
    }];
    for note in notes {
        let kind = match note.reason {
            ProblemReason::DraftSpelling => "DraftSpelling",
            ProblemReason::BeingDeleted => "Terminating",
            _ => "Notice",
        };
        if !conditions.iter().any(|(k, ..)| *k == kind) {
            conditions.push((kind, "True", note.reason.as_str(), note.message.clone()));
        }
    }
    conditions
}

fn user<T: Typed>(object: &T) -> Value {
    json!({"kind": T::KIND, "name": object.metadata().name})
}

fn consumer(api: &GlanceApi) -> TopologyConsumer {
    TopologyConsumer {
        key: ObjectKey::namespaced("GlanceAPI", namespace(&api.metadata), name(&api.metadata)),
        pod_labels: labels(api),
        node_selector: api.spec.node_selector.clone().unwrap_or_default(),
    }
}

fn condition(topology: &Topology, world: &World<'_>, kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let before = topology.status.conditions.iter().find(|c| c.r#type == kind && c.status == status);
    let since = before.and_then(|c| c.last_transition_time.as_ref()).map_or(world.now, |time| time.0);
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": seconds(since),
    })
}
