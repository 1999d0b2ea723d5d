//! Affinity, spread constraints and node selector of the pods.

use serde_json::{Value, json};

use super::values::{Network, Pool, Spread};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The spread constraints of a Topology's spec, in either spelling: the draft of the resource had it in the singular.
pub(super) fn constraints(spec: &Value) -> Option<&Value> {
    ["topologySpreadConstraints", "topologySpreadConstraint"].into_iter().map(|key| &spec[key]).find(|c| !c.is_null())
}

/// Adds the placement to a pod's spec.
///
/// As for other services that refer to a Topology: a constraint without a selector counts the pool's pods, and the
/// Topology's affinity replaces the default one. The anti-affinity for the node's network is always added.
pub(super) fn place(pod: &mut Value, pool: &Pool) {
    let labels = super::labels(pool);
    let mut affinity = match &pool.spread {
        Spread::Topology(spec) if spec["affinity"].is_object() => spec["affinity"].clone(),
        _ if pool.network == Network::Host => json!({}),
        _ => prefer_different_nodes(&labels),
    };
    if pool.network == Network::Host {
        require_one_per_node(&mut affinity);
    }
    pod["affinity"] = affinity;
    let constraints = match &pool.spread {
        Spread::Nodes => Vec::new(),
        Spread::Label(key) => vec![json!({
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
        })],
        Spread::Topology(spec) => constraints(spec).and_then(Value::as_array).cloned().unwrap_or_default(),
    };
    let selected = constraints.into_iter().map(|mut constraint| {
        if constraint["labelSelector"].is_null() {
            constraint["labelSelector"] = json!({"matchLabels": labels});
        }
        constraint
    });
    let selected: Vec<Value> = selected.collect();
    if !selected.is_empty() {
        pod["topologySpreadConstraints"] = selected.into();
    }
    if !pool.node_selector.is_empty() {
        pod["nodeSelector"] = json!(pool.node_selector);
    }
}

/// Anti-affinity: pods of the pool prefer different nodes, so that the loss of a node is the loss of one peer.
fn prefer_different_nodes(labels: &Value) -> Value {
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME},
    }]}})
}

/// On the node's network, only one glusterd can run per node, of any pool and namespace.
fn require_one_per_node(affinity: &mut Value) {
    let term = json!({
        "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "gluster", "app.kubernetes.io/part-of": "stead"}},
        "namespaceSelector": {},
        "topologyKey": HOSTNAME,
    });
    let required = &mut affinity["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    match required.as_array_mut() {
        Some(terms) => terms.push(term),
        None => *required = json!([term]),
    }
}
