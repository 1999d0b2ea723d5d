//! What a Topology does to a pod.

use serde_json::{Value, json};

use crate::layout::SERVICE;
use crate::object::{Texts, present, set};

/// The spread constraints of a Topology, under either spelling: the draft of the resource had it in the singular.
pub(crate) fn spread(topology: &Value) -> Option<&Value> {
    present(topology, "/spec/topologySpreadConstraints").or_else(|| present(topology, "/spec/topologySpreadConstraint"))
}

/// Puts placement into a pod's spec: what the Topology says, with the workload's own labels where a constraint selects
/// nothing, and the default anti-affinity unless the Topology brings an affinity of its own (or `replace` is set, and
/// any Topology takes it away).
pub(crate) fn place(pod: &mut Value, topology: Option<&Value>, labels: &Texts, replace: bool) {
    let affinity = topology.and_then(|t| present(t, "/spec/affinity"));
    match (affinity, topology) {
        (Some(affinity), _) => set(pod, "affinity", affinity.clone()),
        (None, Some(_)) if replace => {}
        (None, _) => set(pod, "affinity", apart()),
    }
    let spread = topology.and_then(spread).and_then(Value::as_array);
    if let Some(constraints) = spread.filter(|c| !c.is_empty()) {
        let selected = constraints.iter().map(|c| {
            let mut constraint = c.clone();
            if present(c, "/labelSelector").is_none() {
                set(&mut constraint, "labelSelector", json!({"matchLabels": labels}));
            }
            constraint
        });
        set(pod, "topologySpreadConstraints", selected.collect());
    }
}

/// Pods of the service keep away from each other's nodes, if they can.
fn apart() -> Value {
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {
            "labelSelector": {"matchExpressions": [{"key": "service", "operator": "In", "values": [SERVICE]}]},
            "topologyKey": "kubernetes.io/hostname",
        },
    }]}})
}
