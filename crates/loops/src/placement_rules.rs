//! How a Topology changes the placement of a pod.

use serde_json::{Map, Value, json};
use stead_model::Topology;

use crate::layout::SERVICE;
use crate::metadata::Texts;

/// The fields of a pod's spec that place it: those of the Topology, with the workload's own labels where a constraint has
/// no selector, and the default anti-affinity unless the Topology has an affinity of its own (or `replace` is set, and
/// any Topology replaces it).
pub(crate) fn placement(topology: Option<&Topology>, labels: &Texts, replace: bool) -> Map<String, Value> {
    let mut fields = Map::new();
    let affinity = topology.and_then(|topology| topology.spec.affinity.clone());
    let default = || (topology.is_none() || !replace).then(default_anti_affinity);
    fields.extend(affinity.or_else(default).map(|affinity| ("affinity".into(), affinity)));
    let constraints: Vec<Value> = constraints(topology).map(|constraint| with_selector(constraint, labels)).collect();
    if !constraints.is_empty() {
        fields.insert("topologySpreadConstraints".into(), constraints.into());
    }
    fields
}

/// The spread constraints of a Topology.
pub(crate) fn constraints(topology: Option<&Topology>) -> impl Iterator<Item = &Value> {
    topology.and_then(|topology| topology.spec.spread().1?.as_array()).into_iter().flatten()
}

fn with_selector(constraint: &Value, labels: &Texts) -> Value {
    let mut constraint = constraint.clone();
    if let Value::Object(fields) = &mut constraint
        && fields.get("labelSelector").is_none_or(Value::is_null)
    {
        fields.insert("labelSelector".into(), json!({"matchLabels": labels}));
    }
    constraint
}

/// Pods of the service prefer nodes without another pod of the service.
fn default_anti_affinity() -> Value {
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {
            "labelSelector": {"matchExpressions": [{"key": "service", "operator": "In", "values": [SERVICE]}]},
            "topologyKey": "kubernetes.io/hostname",
        },
    }]}})
}
