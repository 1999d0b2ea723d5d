//! Whether a kubelet accepts a pod (`pkg/kubelet/lifecycle/predicate.go`). A pod that it rejects has failed.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use stead_semantics::node_selector::RequiredNodeAffinity;
use stead_semantics::quantity::Quantity;
use stead_semantics::taints::find_untolerated;

use super::status::{init_containers, is_sidecar};
use crate::nodes::taints;

/// Amounts by resource: thousandths of a CPU, whole units of anything else.
pub(super) type Amounts = BTreeMap<String, i64>;

/// Why a pod was rejected: the reason of its status and its event, and the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reason: String,
    /// The reason of the event: the same, but all extended resources share one.
    pub(super) event: &'static str,
    pub(super) message: String,
}

/// What the pods that a kubelet has accepted use.
#[derive(Debug, Clone, Default)]
pub(super) struct Used {
    pods: i64,
    amounts: Amounts,
}

impl Used {
    /// Adds a pod.
    pub(super) fn add(&mut self, pod: &Pod) {
        self.pods += 1;
        for (name, amount) in requests(pod) {
            *self.amounts.entry(name).or_default() += amount;
        }
    }

    /// Removes a pod.
    pub(super) fn remove(&mut self, pod: &Pod) {
        self.pods -= 1;
        for (name, amount) in requests(pod) {
            *self.amounts.entry(name).or_default() -= amount;
        }
    }
}

fn amounts(list: Option<&BTreeMap<String, RawQuantity>>) -> Amounts {
    let of = |(name, raw): (&String, &RawQuantity)| {
        let quantity = Quantity::parse(&raw.0).ok()?;
        let amount = if name == "cpu" { quantity.milli_value() } else { quantity.value() };
        Some((name.clone(), amount))
    };
    list.into_iter().flatten().filter_map(of).collect()
}

fn of_container(container: &Container) -> Amounts {
    let resources = container.resources.as_ref();
    // A limit without a request is also the request.
    let mut all = amounts(resources.and_then(|resources| resources.limits.as_ref()));
    all.extend(amounts(resources.and_then(|resources| resources.requests.as_ref())));
    all
}

/// What a pod requests: the sum of its containers and sidecars, or an init container if that is larger.
fn requests(pod: &Pod) -> Amounts {
    let Some(spec) = pod.spec.as_ref() else { return Amounts::new() };
    let add = |total: &mut Amounts, more: &Amounts| {
        for (name, amount) in more {
            *total.entry(name.clone()).or_default() += amount;
        }
    };
    let (mut total, mut sidecars, mut starting) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in &spec.containers {
        add(&mut total, &of_container(container));
    }
    for container in init_containers(spec) {
        let mut own = of_container(container);
        if is_sidecar(container) {
            add(&mut total, &own);
            add(&mut sidecars, &own);
            own = sidecars.clone();
        } else {
            add(&mut own, &sidecars);
        }
        for (name, amount) in own {
            let most = starting.entry(name).or_default();
            *most = (*most).max(amount);
        }
    }
    for (name, amount) in starting {
        let most = total.entry(name).or_default();
        *most = (*most).max(amount);
    }
    add(&mut total, &amounts(spec.overhead.as_ref()));
    total
}

/// The reasons for resources that are missing.
const OUT_OF: [(&str, &str); 3] =
    [("cpu", "OutOfcpu"), ("memory", "OutOfmemory"), ("ephemeral-storage", "OutOfephemeral-storage")];

/// Why a kubelet rejects a pod; none if it accepts it. `others` are the pods on the node that need ports of the host.
pub(super) fn rejection<'a>(
    pod: &Pod,
    node: &Node,
    used: &Used,
    others: impl Iterator<Item = &'a Pod>,
) -> Option<Rejection> {
    let spec = pod.spec.as_ref()?;
    if let Some(rejection) = missing_resource(pod, node, used) {
        return Some(rejection);
    }
    let failed = |reason: &'static str, message: &str| {
        let message = format!("Predicate {reason} failed: {message}");
        Some(Rejection { reason: reason.to_owned(), event: reason, message })
    };
    let (name, none) = (node.metadata.name.as_deref().unwrap_or_default(), BTreeMap::new());
    let labels = node.metadata.labels.as_ref().unwrap_or(&none);
    let needs_labels = spec.node_selector.is_some() || spec.affinity.is_some();
    if needs_labels && !RequiredNodeAffinity::of(spec).is_ok_and(|affinity| affinity.matches(name, labels)) {
        return failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
    let ports = host_ports(spec);
    if !ports.is_empty() {
        let taken = |other: &Pod| {
            other.spec.as_ref().is_some_and(|spec| host_ports(spec).iter().any(|port| ports.contains(port)))
        };
        if others.into_iter().any(taken) {
            return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
        }
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if find_untolerated(taints(node), tolerations, |taint| taint.effect == "NoExecute").is_some() {
        return failed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    None
}

fn missing_resource(pod: &Pod, node: &Node, used: &Used) -> Option<Rejection> {
    let allocatable = amounts(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
    let of = |name: &str| allocatable.get(name).copied().unwrap_or_default();
    let missing = |event: &'static str, name: &str, requested: i64, used: i64| {
        let capacity = of(name);
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        Some(Rejection { reason: format!("OutOf{name}"), event, message })
    };
    if allocatable.get("pods").is_some_and(|most| used.pods + 1 > *most) {
        return missing("OutOfpods", "pods", 1, used.pods);
    }
    let requests = requests(pod);
    for (name, requested) in requests.iter().filter(|(_, requested)| **requested > 0) {
        let taken = used.amounts.get(name).copied().unwrap_or_default();
        let known = OUT_OF.iter().find(|(resource, _)| resource == name);
        // An extended resource that the node does not report belongs to the cluster.
        if known.is_none() && !allocatable.contains_key(name) {
            continue;
        }
        if *requested > of(name) - taken {
            return missing(known.map_or("OutOfextended-resource", |(_, reason)| reason), name, *requested, taken);
        }
    }
    None
}

fn host_ports(spec: &PodSpec) -> Vec<(i32, String)> {
    let sidecars = init_containers(spec).iter().filter(|container| is_sidecar(container));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some((port.host_port.filter(|port| *port > 0)?, port.protocol.clone().unwrap_or("TCP".into())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn pods_that_do_not_fit_are_rejected() {
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": "a", "labels": { "zone": "a" } },
            "spec": { "taints": [{ "key": "t", "effect": "NoExecute" }, { "key": "s", "effect": "NoSchedule" }] },
            "status": { "allocatable": { "cpu": "2", "memory": "1Gi", "pods": "2" } },
        }))
        .expect("a node");
        let tolerate = json!([{ "key": "t", "operator": "Exists" }]);
        let pod = |spec: Value| -> Pod { serde_json::from_value(json!({ "spec": spec })).expect("a pod") };
        let requests = |cpu: &str| json!([{ "name": "c", "resources": { "requests": { "cpu": cpu } } }]);
        let port = json!([{ "name": "c", "ports": [{ "containerPort": 80, "hostPort": 80 }] }]);
        let mut used = Used::default();
        let other = pod(json!({ "containers": port, "tolerations": tolerate }));
        used.add(&other);
        for (spec, expected) in [
            (json!({ "containers": requests("2"), "tolerations": tolerate }), None),
            (
                json!({ "containers": requests("2001m"), "tolerations": tolerate }),
                Some((
                    "OutOfcpu",
                    "Node didn't have enough resource: cpu, requested: 2001, used: 0, capacity: 2000".to_owned(),
                )),
            ),
            (
                json!({ "containers": [], "tolerations": tolerate, "nodeSelector": { "zone": "b" } }),
                Some((
                    "NodeAffinity",
                    "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned(),
                )),
            ),
            (
                json!({ "containers": port, "tolerations": tolerate }),
                Some((
                    "NodePorts",
                    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".to_owned(),
                )),
            ),
            (
                json!({ "containers": [] }),
                Some((
                    "TaintToleration",
                    "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate".to_owned(),
                )),
            ),
        ] {
            let found = rejection(&pod(spec.clone()), &node, &used, std::iter::once(&other));
            assert_eq!(found.map(|rejection| (rejection.event, rejection.message)), expected, "{spec}");
        }
        used.add(&other);
        let full = rejection(&pod(json!({ "containers": [], "tolerations": tolerate })), &node, &used, [].into_iter());
        assert_eq!(full.map(|rejection| rejection.event), Some("OutOfpods"));
        used.remove(&other);
        assert_eq!(used.pods, 1);
    }
}
