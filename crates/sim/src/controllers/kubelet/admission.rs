//! Whether a kubelet accepts a pod (`pkg/kubelet/lifecycle/predicate.go`). A pod that it rejects has failed.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Node, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as RawQuantity;
use stead_semantics::node_selector::RequiredNodeAffinity;
use stead_semantics::quantity::Quantity;
use stead_semantics::taints::find_untolerated;

use super::status::{init_containers, is_sidecar};
use crate::nodes::taints;

/// Amounts of resources: thousandths of a CPU, whole units of anything else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    cpu: i64,
    memory: i64,
    storage: i64,
    /// The others, by name.
    others: Vec<(String, i64)>,
}

impl Amounts {
    fn entry(&mut self, name: &str) -> &mut i64 {
        match name {
            "cpu" => &mut self.cpu,
            "memory" => &mut self.memory,
            "ephemeral-storage" => &mut self.storage,
            _ => {
                let at = self.others.binary_search_by(|(other, _)| other.as_str().cmp(name)).unwrap_or_else(|at| {
                    self.others.insert(at, (name.to_owned(), 0));
                    at
                });
                &mut self.others[at].1
            }
        }
    }

    fn get(&self, name: &str) -> Option<i64> {
        match name {
            "cpu" => Some(self.cpu),
            "memory" => Some(self.memory),
            "ephemeral-storage" => Some(self.storage),
            _ => self.others.iter().find(|(other, _)| other == name).map(|(_, amount)| *amount),
        }
    }

    /// The amounts that are not zero, in the order in which they are compared.
    fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        let known = [("cpu", self.cpu), ("memory", self.memory), ("ephemeral-storage", self.storage)];
        let others = self.others.iter().map(|(name, amount)| (name.as_str(), *amount));
        known.into_iter().chain(others).filter(|(_, amount)| *amount != 0)
    }

    fn add(&mut self, more: &Amounts, sign: i64) {
        for (name, amount) in more.iter() {
            *self.entry(name) += sign * amount;
        }
    }

    /// Takes the larger of each amount.
    fn raise(&mut self, other: &Amounts) {
        for (name, amount) in other.iter() {
            let own = self.entry(name);
            *own = (*own).max(amount);
        }
    }

    fn read(&mut self, list: Option<&BTreeMap<String, RawQuantity>>) {
        for (name, raw) in list.into_iter().flatten() {
            let Ok(quantity) = Quantity::parse(&raw.0) else { continue };
            *self.entry(name) = if name == "cpu" { quantity.milli_value() } else { quantity.value() };
        }
    }

    /// What a node has for pods.
    pub(super) fn of_node(node: &Node) -> Amounts {
        let mut all = Amounts::default();
        all.read(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
        all
    }

    fn of_container(container: &Container) -> Amounts {
        let resources = container.resources.as_ref();
        // A limit without a request is also the request.
        let mut all = Amounts::default();
        all.read(resources.and_then(|resources| resources.limits.as_ref()));
        all.read(resources.and_then(|resources| resources.requests.as_ref()));
        all
    }

    /// What a pod requests: the sum of its containers and sidecars, or an init container if that is larger.
    pub(super) fn of_pod(pod: &Pod) -> Amounts {
        let Some(spec) = pod.spec.as_ref() else { return Amounts::default() };
        let (mut total, mut sidecars, mut starting) = (Amounts::default(), Amounts::default(), Amounts::default());
        for container in &spec.containers {
            total.add(&Amounts::of_container(container), 1);
        }
        for container in init_containers(spec) {
            let mut own = Amounts::of_container(container);
            if is_sidecar(container) {
                total.add(&own, 1);
                sidecars.add(&own, 1);
                starting.raise(&sidecars);
            } else {
                own.add(&sidecars, 1);
                starting.raise(&own);
            }
        }
        total.raise(&starting);
        let mut overhead = Amounts::default();
        overhead.read(spec.overhead.as_ref());
        total.add(&overhead, 1);
        total
    }
}

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
    pub(super) fn add(&mut self, requests: &Amounts) {
        self.pods += 1;
        self.amounts.add(requests, 1);
    }

    /// Removes a pod.
    pub(super) fn remove(&mut self, requests: &Amounts) {
        self.pods -= 1;
        self.amounts.add(requests, -1);
    }

    /// What is missing for a pod.
    pub(super) fn missing(&self, requests: &Amounts, allocatable: &Amounts) -> Option<Rejection> {
        let missing = |event: &'static str, name: &str, requested: i64, used: i64, capacity: i64| {
            let message = format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            );
            Some(Rejection { reason: format!("OutOf{name}"), event, message })
        };
        if let Some(most) = allocatable.get("pods").filter(|most| self.pods + 1 > *most) {
            return missing("OutOfpods", "pods", 1, self.pods, most);
        }
        for (name, requested) in requests.iter() {
            let event = OUT_OF.iter().find(|(resource, _)| *resource == name).map(|(_, event)| *event);
            let taken = self.amounts.get(name).unwrap_or_default();
            // An extended resource that the node does not report belongs to the cluster.
            let Some(capacity) = allocatable.get(name) else { continue };
            if requested > capacity - taken {
                return missing(event.unwrap_or("OutOfextended-resource"), name, requested, taken, capacity);
            }
        }
        None
    }
}

/// The reasons for resources that are missing.
const OUT_OF: [(&str, &str); 3] =
    [("cpu", "OutOfcpu"), ("memory", "OutOfmemory"), ("ephemeral-storage", "OutOfephemeral-storage")];

/// Why a kubelet rejects a pod, resources aside; none if it accepts it. `others` are the other pods on the node.
pub(super) fn rejection<'a>(pod: &Pod, node: &Node, mut others: impl Iterator<Item = &'a Pod>) -> Option<Rejection> {
    let spec = pod.spec.as_ref()?;
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
        if others.any(taken) {
            return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
        }
    }
    let tolerations = spec.tolerations.as_deref().unwrap_or_default();
    if find_untolerated(taints(node), tolerations, |taint| taint.effect == "NoExecute").is_some() {
        return failed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
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
        used.add(&Amounts::of_pod(&other));
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
            let pod = pod(spec.clone());
            let missing = used.missing(&Amounts::of_pod(&pod), &Amounts::of_node(&node));
            let found = missing.or_else(|| rejection(&pod, &node, std::iter::once(&other)));
            assert_eq!(found.map(|rejection| (rejection.event, rejection.message)), expected, "{spec}");
        }
        used.add(&Amounts::of_pod(&other));
        let full = used.missing(&Amounts::default(), &Amounts::of_node(&node));
        assert_eq!(full.map(|rejection| rejection.event), Some("OutOfpods"));
        used.remove(&Amounts::of_pod(&other));
        assert_eq!(used.pods, 1);
    }
}
