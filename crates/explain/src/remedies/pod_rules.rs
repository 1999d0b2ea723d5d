//! Host ports, affinity to pods and declared features.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, PodAffinity, PodAffinityTerm, PodAntiAffinity, WeightedPodAffinityTerm};
use serde_json::{Value, json};
use stead_placement::{AffinityTerm, NodeInfo, Pod, RejectionReason};
use stead_semantics::labels::Labels;

use super::{Harm, Remedy, leave, node_key, pod_key, raw_node};
use crate::change::{Change, Trial, set, set_in, unset};

pub(super) fn ports(trial: &Trial, info: &NodeInfo) -> Vec<Remedy> {
    let want = &trial.pod.spec.host_ports;
    let conflict = |p: &Pod| {
        p.spec.host_ports.iter().any(|a| {
            want.iter().any(|b| {
                a.port == b.port
                    && a.protocol == b.protocol
                    && (*a.ip == *"0.0.0.0" || *b.ip == *"0.0.0.0" || a.ip == b.ip)
            })
        })
    };
    let others: Vec<&Arc<Pod>> = info.pods.iter().filter(|p| conflict(p)).collect();
    let mut out: Vec<Remedy> = leave(trial, &others).into_iter().collect();
    if trial.view().is_some_and(|pod| pod.spec().is_some_and(|spec| spec.host_network == Some(true))) {
        return out;
    }
    let mut operations = Vec::new();
    let mut what = Vec::new();
    for (list, c, container) in containers(trial) {
        for (p, port) in container.ports.iter().flatten().enumerate() {
            if let Some(n) = port.host_port.filter(|n| want.iter().any(|w| w.port == *n)) {
                operations.push(unset(&["spec", list, &c.to_string(), "ports", &p.to_string(), "hostPort"]));
                what.push(n.to_string());
            }
        }
    }
    if !operations.is_empty() {
        let text = format!("give up the host port {}; a Service reaches the pod too", super::join(&what));
        out.push(Remedy::one(Harm::Looser, text, Change::patch(&trial.key, operations)));
    }
    out
}

/// The pod's containers, with the name of their list and their place in it.
fn containers(trial: &Trial) -> impl Iterator<Item = (&'static str, usize, &Container)> {
    let spec = trial.view().and_then(|pod| pod.spec());
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let main = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let lists = [("initContainers", init), ("containers", main)];
    lists.into_iter().flat_map(|(name, list)| list.iter().enumerate().map(move |(i, c)| (name, i, c)))
}

pub(super) fn features(trial: &Trial) -> Vec<Remedy> {
    let mut operations = Vec::new();
    for (list, c, container) in containers(trial) {
        if container.restart_policy_rules.iter().flatten().any(|rule| rule.action == "RestartAllContainers") {
            operations.push(unset(&["spec", list, &c.to_string(), "restartPolicyRules"]));
        }
    }
    let mut what = "the rules that restart all containers";
    if operations.is_empty() {
        operations.push(unset(&["spec", "hostUsers"]));
        what = "hostUsers: false";
    }
    let text = format!("drop {what} from the pod: the kubelets do not declare that they can do it");
    vec![Remedy::one(Harm::Looser, text, Change::patch(&trial.key, operations))]
}

/// Whether a term selects a pod.
pub(crate) fn selects(trial: &Trial, term: &AffinityTerm, other: &Pod) -> bool {
    let empty = Labels::new();
    let labels = trial.cluster.namespaces().get(&*other.key.namespace).unwrap_or(&empty);
    (term.namespaces.contains(&*other.key.namespace) || term.namespace_selector.matches(labels))
        && term.selector.matches(other.labels())
}

/// The pods in a node's domain.
pub(crate) fn in_domain<'a>(trial: &'a Trial, info: &'a NodeInfo, key: &'a str) -> impl Iterator<Item = &'a Arc<Pod>> {
    let value = info.node.label(key);
    let nodes = trial.cluster.nodes().filter(move |i| value.is_some() && i.node.label(key) == value);
    nodes.flat_map(|i| &i.pods)
}

pub(super) fn affinity(trial: &Trial, info: &NodeInfo, reasons: &[RejectionReason]) -> Vec<Remedy> {
    let spec = &trial.pod.spec;
    let mut out = Vec::new();
    // A term that no pod meets may be met all the same, by the first pod of a series: only the reason tells.
    if reasons.contains(&RejectionReason::PodAffinity) {
        out.extend(prefer_affinity(trial));
        out.extend(spec.affinity.iter().filter_map(|t| join_domain(trial, info, t)));
        return out;
    }
    let against: Vec<&Arc<Pod>> = unique(
        spec.anti_affinity
            .iter()
            .flat_map(|t| in_domain(trial, info, &t.topology_key).filter(|p| selects(trial, t, p))),
    );
    if !against.is_empty() {
        out.extend(prefer_anti_affinity(trial));
        out.extend(leave(trial, &against));
        return out;
    }
    let keeps_away = |p: &Pod| {
        let node = p.node.as_deref().and_then(|n| trial.cluster.node(n));
        p.spec.anti_affinity.iter().any(|t| {
            selects(trial, t, &trial.pod)
                && node.is_some_and(|n| {
                    n.node.label(&t.topology_key).is_some()
                        && n.node.label(&t.topology_key) == info.node.label(&t.topology_key)
                })
        })
    };
    let existing: Vec<&Arc<Pod>> = trial.cluster.nodes().flat_map(|i| &i.pods).filter(|p| keeps_away(p)).collect();
    out.extend(relax_others(trial, &existing));
    out.extend(leave(trial, &existing));
    out
}

fn unique<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> Vec<&'a Arc<Pod>> {
    let mut out: Vec<&Arc<Pod>> = pods.collect();
    out.sort_by(|a, b| a.key.cmp(&b.key));
    out.dedup_by(|a, b| a.key == b.key);
    out
}

/// Adds required terms to the preferred ones, with the highest weight.
fn prefer(preferred: &mut Option<Vec<WeightedPodAffinityTerm>>, required: Option<Vec<PodAffinityTerm>>) {
    let terms = required.into_iter().flatten();
    let terms = terms.map(|term| WeightedPodAffinityTerm { weight: 100, pod_affinity_term: term });
    preferred.get_or_insert_default().extend(terms);
}

/// The same rules with nothing required.
fn preferred_affinity(mut rules: PodAffinity) -> PodAffinity {
    let required = rules.required_during_scheduling_ignored_during_execution.take();
    prefer(&mut rules.preferred_during_scheduling_ignored_during_execution, required);
    rules
}

/// The same rules with nothing required.
fn preferred_anti_affinity(mut rules: PodAntiAffinity) -> PodAntiAffinity {
    let required = rules.required_during_scheduling_ignored_during_execution.take();
    prefer(&mut rules.preferred_during_scheduling_ignored_during_execution, required);
    rules
}

fn prefer_affinity(trial: &Trial) -> Option<Remedy> {
    let rules = trial.view()?.spec()?.affinity.as_ref()?.pod_affinity.as_ref()?;
    rules.required_during_scheduling_ignored_during_execution.as_ref()?;
    Some(make_preference(trial, "podAffinity", "affinity to pods", json!(preferred_affinity(rules.clone()))))
}

fn prefer_anti_affinity(trial: &Trial) -> Option<Remedy> {
    let rules = trial.view()?.spec()?.affinity.as_ref()?.pod_anti_affinity.as_ref()?;
    rules.required_during_scheduling_ignored_during_execution.as_ref()?;
    let preferred = json!(preferred_anti_affinity(rules.clone()));
    Some(make_preference(trial, "podAntiAffinity", "anti-affinity to pods", preferred))
}

fn make_preference(trial: &Trial, rules: &str, what: &str, preferred: Value) -> Remedy {
    let change = Change::patch(&trial.key, vec![set(&["spec", "affinity", rules], preferred)]);
    Remedy::one(Harm::Looser, format!("make the pod's required {what} a preference"), change)
}

fn relax_others(trial: &Trial, pods: &[&Arc<Pod>]) -> Option<Remedy> {
    if pods.is_empty() || pods.len() > super::MOST_LEAVING {
        return None;
    }
    let mut changes = Vec::new();
    for pod in pods {
        let key = pod_key(pod);
        let rules = trial.objects.pod(&key).ok()??.spec()?.affinity.as_ref()?.pod_anti_affinity.clone()?;
        let preferred = json!(preferred_anti_affinity(rules));
        changes.push(Change::patch(&key, vec![set(&["spec", "affinity", "podAntiAffinity"], preferred)]));
    }
    let names: Vec<String> = pods.iter().map(|p| p.key.to_string()).collect();
    let text = format!("make the required anti-affinity of {} a preference", super::join(&names));
    Some(Remedy::new(Harm::Looser, text, changes))
}

/// A node that is in no domain joins one where the pods are.
fn join_domain(trial: &Trial, info: &NodeInfo, term: &AffinityTerm) -> Option<Remedy> {
    let key = &*term.topology_key;
    if info.node.label(key).is_some() || key == "kubernetes.io/hostname" {
        return None;
    }
    let node = trial
        .cluster
        .nodes()
        .find(|i| i.node.label(key).is_some() && i.pods.iter().any(|p| selects(trial, term, p)))?;
    let value = node.node.label(key)?;
    let operations = set_in(raw_node(trial, info), &["metadata", "labels"], key, value);
    let text = format!("label node {} {key}={value}, if that is where it is", info.node.name);
    Some(Remedy::one(Harm::Trusts, text, Change::patch(&node_key(info), operations)))
}
