//! Where the pods go.

use serde_json::{Value, json};

use super::values::{Network, Pool, Spread};

const HOSTNAME: &str = "kubernetes.io/hostname";

/// The spread constraints of a Topology's spec, under either spelling: the draft of the resource had it in the singular.
pub(super) fn constraints(spec: &Value) -> Option<&Value> {
    ["topologySpreadConstraints", "topologySpreadConstraint"].into_iter().map(|key| &spec[key]).find(|c| !c.is_null())
}

/// Puts placement into a pod's spec.
///
/// As with the other services that refer to a Topology: a constraint that selects nothing counts the pool's pods, and an
/// affinity of its own takes the place of ours. What the host's network needs stays in any case.
pub(super) fn place(pod: &mut Value, pool: &Pool) {
    let labels = super::labels(pool);
    let mut affinity = match &pool.spread {
        Spread::Topology(spec) if spec["affinity"].is_object() => spec["affinity"].clone(),
        _ if pool.network == Network::Host => json!({}),
        _ => apart(&labels),
    };
    if pool.network == Network::Host {
        alone(&mut affinity);
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

/// Pods of the pool keep away from each other's nodes, if they can: a node's loss then is one peer's loss.
fn apart(labels: &Value) -> Value {
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {"labelSelector": {"matchLabels": labels}, "topologyKey": HOSTNAME},
    }]}})
}

/// On a node's network there is room for one glusterd, of whatever pool and namespace.
fn alone(affinity: &mut Value) {
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
