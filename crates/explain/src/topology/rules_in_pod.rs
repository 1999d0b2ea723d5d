//! Whether a pod, or the template of one, has the rules of a Topology.

use k8s_openapi::api::core::v1::{Affinity, NodeAffinity, PodSpec, TopologySpreadConstraint};
use serde::de::DeserializeOwned;
use serde_json::Value;
use stead_model::Topology;

/// The spread constraints of a Topology, and the name of their field; none where they are malformed.
pub(crate) fn constraints(topology: &Topology) -> (&'static str, Option<Vec<TopologySpreadConstraint>>) {
    let (list, rules) = topology.spec.spread();
    (list, rules.and_then(read))
}

/// The node affinity of a Topology.
pub(crate) fn node_affinity(topology: &Topology) -> Option<NodeAffinity> {
    read(topology.spec.affinity.as_ref()?.get("nodeAffinity")?)
}

fn read<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

/// Whether a rule of a pod is that of a Topology: a rule without a selector gets the workload's own.
pub(crate) fn same_rule(in_topology: &TopologySpreadConstraint, in_pod: &TopologySpreadConstraint) -> bool {
    in_topology == in_pod
        || (in_topology.label_selector.is_none()
            && *in_topology == TopologySpreadConstraint { label_selector: None, ..in_pod.clone() })
}

/// Whether a pod has all rules of a Topology.
pub(crate) fn has_rules_of(pod: Option<&PodSpec>, topology: &Topology) -> bool {
    let own = pod.and_then(|pod| pod.topology_spread_constraints.as_deref()).unwrap_or_default();
    let spread = match constraints(topology) {
        (_, Some(rules)) => rules.iter().all(|rule| own.iter().any(|o| same_rule(rule, o))),
        // Kubernetes creates no pod with a malformed rule.
        (_, None) => topology.spec.spread().1.is_none_or(Value::is_null),
    };
    let affinity = match &topology.spec.affinity {
        None => Some(Affinity::default()),
        Some(affinity) => read::<Affinity>(affinity),
    };
    let has = |affinity: Affinity| {
        let own = pod.and_then(|pod| pod.affinity.clone()).unwrap_or_default();
        (affinity.node_affinity.is_none() || affinity.node_affinity == own.node_affinity)
            && (affinity.pod_affinity.is_none() || affinity.pod_affinity == own.pod_affinity)
            && (affinity.pod_anti_affinity.is_none() || affinity.pod_anti_affinity == own.pod_anti_affinity)
    };
    spread && affinity.is_some_and(has)
}
