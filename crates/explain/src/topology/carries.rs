//! Whether a pod, or the template of one, carries what a Topology says.

use serde_json::Value;

use super::rules::{DRAFT, SPREAD};

/// The spread constraints of a Topology, whichever way they are spelled.
pub(crate) fn constraints(topology: &Value) -> (&'static str, &Value) {
    let spec = &topology["spec"];
    if spec[SPREAD].is_null() && !spec[DRAFT].is_null() { (DRAFT, &spec[DRAFT]) } else { (SPREAD, &spec[SPREAD]) }
}

/// Whether a rule of a pod is that of a Topology: one without a selector gets the workload's own.
pub(crate) fn same_rule(in_topology: &Value, in_pod: &Value) -> bool {
    if in_topology == in_pod {
        return true;
    }
    let mut bare = in_pod.clone();
    let given = bare.as_object_mut().and_then(|rule| rule.remove("labelSelector"));
    given.is_some() && in_topology.get("labelSelector").is_none_or(Value::is_null) && {
        let mut there = in_topology.clone();
        there.as_object_mut().map(|rule| rule.remove("labelSelector"));
        bare == there
    }
}

/// Whether a pod's spec has all the rules of a Topology.
pub(crate) fn carries(pod_spec: &Value, topology: &Value) -> bool {
    let own: Vec<&Value> = pod_spec[SPREAD].as_array().into_iter().flatten().collect();
    let spread = constraints(topology).1.as_array().into_iter().flatten();
    let affinity = topology["spec"]["affinity"].as_object().into_iter().flatten();
    spread.into_iter().all(|rule| own.iter().any(|o| same_rule(rule, o)))
        && affinity.filter(|(_, part)| !part.is_null()).all(|(part, rule)| pod_spec["affinity"][part] == *rule)
}
