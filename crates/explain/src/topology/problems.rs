//! The problems of a Topology, in sentences for people who do not know the resource.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, TopologySpreadConstraint};
use serde::Serialize;
use stead_model::{ObjectKey, Topology};
use stead_semantics::{Labels, Selector};

use super::rules::{DRAFT, PodRule, Rules, SPREAD};
use crate::causes::term;
use crate::explanation::some;
use crate::references::titled;
use crate::remedies::join;

/// Something that follows a Topology, such as a GlanceAPI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyConsumer {
    /// Which object it is.
    pub key: ObjectKey,
    /// The labels that its pods carry.
    pub pod_labels: Labels,
    /// The node labels that its pods ask for beside the Topology (`nodeSelector`).
    pub node_selector: Labels,
}

/// A problem of a Topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopologyProblem {
    /// One word that stays the same from release to release.
    pub reason: ProblemReason,
    /// Its effect.
    pub effect: ProblemEffect,
    /// A sentence.
    pub message: String,
}

/// The kind of a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum ProblemReason {
    /// Kubernetes rejects a pod with such a rule.
    InvalidRule,
    /// No node matches the required node affinity.
    NoNodeMatches,
    /// No node has the label that a rule uses.
    NoNodeHasKey,
    /// A selector matches no pod of a consumer.
    SelectorMatchesNothing,
    /// A rule about other pods has no selector, and so is about none.
    SelectorMissing,
    /// The spec has no rules.
    SaysNothing,
    /// Some nodes do not have the label that a rule uses.
    NodesWithoutKey,
    /// The list of constraints is spelled as in the draft of the resource.
    DraftSpelling,
    /// It is being deleted, and remains until it is no longer used.
    BeingDeleted,
}

impl ProblemReason {
    /// The word, as in a condition's reason.
    pub fn as_str(self) -> &'static str {
        match self {
            ProblemReason::InvalidRule => "InvalidRule",
            ProblemReason::NoNodeMatches => "NoNodeMatches",
            ProblemReason::NoNodeHasKey => "NoNodeHasKey",
            ProblemReason::SelectorMatchesNothing => "SelectorMatchesNothing",
            ProblemReason::SelectorMissing => "SelectorMissing",
            ProblemReason::SaysNothing => "SaysNothing",
            ProblemReason::NodesWithoutKey => "NodesWithoutKey",
            ProblemReason::DraftSpelling => "DraftSpelling",
            ProblemReason::BeingDeleted => "BeingDeleted",
        }
    }
}

/// The effect of a problem, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProblemEffect {
    /// New pods cannot be created, or stay Pending.
    Blocks,
    /// A rule has no effect.
    Idle,
    /// None, but users should know.
    Note,
}

/// The problems of a Topology, the worst first. Nodes are given by name and labels; without any, nothing is said about them.
///
/// A Topology is satisfiable where no problem has another effect than [`ProblemEffect::Note`].
pub fn problems(topology: &Topology, nodes: &[(&str, Labels)], consumers: &[TopologyConsumer]) -> Vec<TopologyProblem> {
    let rules = Rules::of(topology);
    let mut out = Vec::new();
    for fault in &rules.faults {
        out.push(problem(
            ProblemReason::InvalidRule,
            ProblemEffect::Blocks,
            format!("Kubernetes rejects a pod with this rule: {fault}"),
        ));
    }
    if !nodes.is_empty() {
        out.extend(no_node_matches(&rules, nodes, consumers));
        out.extend(rules.spread.iter().flat_map(|rule| spread_keys(&rules, rule, nodes)));
        out.extend(rules.pods.iter().filter_map(|rule| pod_key(rule, nodes)));
    }
    out.extend(rules.spread.iter().filter_map(|rule| selector(rule, consumers)));
    out.extend(rules.pods.iter().filter_map(selector_missing));
    if rules.empty {
        let message = "the spec has neither topologySpreadConstraints nor affinity: pods are placed as if there were \
                       no Topology";
        out.push(problem(ProblemReason::SaysNothing, ProblemEffect::Idle, message.into()));
    }
    out.extend(spelling(topology, &rules));
    out.extend(being_deleted(topology));
    out.sort_by_key(|t| t.effect);
    out
}

fn problem(reason: ProblemReason, effect: ProblemEffect, message: String) -> TopologyProblem {
    TopologyProblem { reason, effect, message }
}

/// The names of the first nodes, and how many more there are.
fn named(nodes: &[&(&str, Labels)]) -> String {
    some(&nodes.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>())
}

fn no_node_matches(rules: &Rules, nodes: &[(&str, Labels)], consumers: &[TopologyConsumer]) -> Vec<TopologyProblem> {
    let allowed: Vec<&(&str, Labels)> = nodes.iter().filter(|(name, labels)| rules.allows(name, labels)).collect();
    let Some(selector) = rules.nodes.as_ref().filter(|s| !s.node_selector_terms.is_empty()) else { return Vec::new() };
    let written: Vec<String> = selector.node_selector_terms.iter().map(term).collect();
    let written = written.join(" or ");
    if allowed.is_empty() {
        let seen: Vec<String> = nearest(&selector.node_selector_terms, nodes);
        let message = format!(
            "no node matches the required node affinity ({written}), so no node can run a pod that follows it: {}",
            join(&seen)
        );
        return vec![problem(ProblemReason::NoNodeMatches, ProblemEffect::Blocks, message)];
    }
    // The affinity alone can be satisfied, but a consumer asks for more.
    let stuck = consumers.iter().filter(|c| {
        !c.node_selector.is_empty()
            && !allowed.iter().any(|(_, labels)| c.node_selector.iter().all(|(k, v)| labels.get(k) == Some(v)))
    });
    stuck
        .map(|c| {
            let message = format!(
                "no node matches both the required node affinity ({written}) and the nodeSelector {} of {}: the \
                 affinity allows {}",
                pairs(&c.node_selector),
                titled(&c.key),
                named(&allowed)
            );
            problem(ProblemReason::NoNodeMatches, ProblemEffect::Blocks, message)
        })
        .collect()
}

/// What the nodes have of the labels that are asked for.
fn nearest(terms: &[NodeSelectorTerm], nodes: &[(&str, Labels)]) -> Vec<String> {
    let keys: BTreeSet<&str> =
        terms.iter().flat_map(|t| t.match_expressions.iter().flatten()).map(|e| e.key.as_str()).collect();
    let fields = terms.iter().any(|t| t.match_fields.iter().flatten().next().is_some());
    let mut out: Vec<String> = keys.into_iter().map(|key| values(key, nodes)).collect();
    if fields || out.is_empty() {
        out.push(format!("the nodes are {}", named(&nodes.iter().collect::<Vec<_>>())));
    }
    out
}

/// The values that a label has on the nodes, or what it may have been meant to be.
fn values(key: &str, nodes: &[(&str, Labels)]) -> String {
    let values: BTreeSet<&String> = nodes.iter().filter_map(|(_, labels)| labels.get(key)).collect();
    if values.is_empty() {
        return format!("no node has the label {key}{}", likely(key, nodes));
    }
    let values: Vec<String> = values.into_iter().cloned().collect();
    format!("the nodes' label {key} is {}", some(&values))
}

/// Labels that may have been meant, where no node has the requested one.
fn likely(key: &str, nodes: &[(&str, Labels)]) -> String {
    let last = |k: &str| k.rsplit('/').next().unwrap_or_default().to_lowercase();
    let labels = || nodes.iter().flat_map(|(_, labels)| labels);
    let alike: BTreeSet<&str> = labels().map(|(k, _)| k.as_str()).filter(|k| last(k) == last(key)).collect();
    if !alike.is_empty() {
        let alike: Vec<String> = alike.into_iter().map(str::to_owned).collect();
        return format!(" (they have {})", join(&alike));
    }
    let of: BTreeSet<&str> = labels().filter(|(_, v)| v.as_str() == key).map(|(k, _)| k.as_str()).collect();
    match of.first() {
        Some(of) => format!(" ({key} is a value of the label {of}, not a label)"),
        None => String::new(),
    }
}

fn spread_keys(rules: &Rules, rule: &TopologySpreadConstraint, nodes: &[(&str, Labels)]) -> Option<TopologyProblem> {
    let key = rule.topology_key.as_str();
    let hard = rule.when_unsatisfiable == "DoNotSchedule";
    let honours = rule.node_affinity_policy.as_deref() != Some("Ignore");
    let allowed: Vec<&(&str, Labels)> = nodes.iter().filter(|(name, labels)| rules.allows(name, labels)).collect();
    // Where the affinity allows no node at all, that is what is said about it.
    let bounded = honours && !allowed.is_empty() && allowed.len() < nodes.len();
    let counted: Vec<&(&str, Labels)> = if bounded { allowed } else { nodes.iter().collect() };
    let without: Vec<&(&str, Labels)> =
        counted.iter().filter(|(_, labels)| !labels.contains_key(key)).copied().collect();
    if key.is_empty() || without.is_empty() {
        return None;
    }
    let (effect, so) = if hard {
        (ProblemEffect::Blocks, "no node can run a pod that follows it")
    } else {
        (ProblemEffect::Idle, "the pods are not spread")
    };
    if without.len() == counted.len() {
        let none = if bounded && nodes.iter().any(|(_, labels)| labels.contains_key(key)) {
            format!("none of the nodes that the node affinity allows ({}) has the label {key}", named(&counted))
        } else {
            format!("no node has the label {key}{}", likely(key, nodes))
        };
        let message = format!("pods are to be spread by the node label {key}, but {none}: {so}");
        return Some(problem(ProblemReason::NoNodeHasKey, effect, message));
    }
    let verb = if without.len() == 1 { "has" } else { "have" };
    let message = format!(
        "pods are spread by the node label {key}, but {} of {} nodes {verb} no such label: no pod that follows it can \
         run on {}",
        without.len(),
        counted.len(),
        named(&without)
    );
    hard.then(|| problem(ProblemReason::NodesWithoutKey, ProblemEffect::Note, message))
}

fn sort(rule: &PodRule) -> String {
    let strength = if rule.required { "required" } else { "preferred" };
    format!("{strength} pod {}", if rule.anti { "anti-affinity" } else { "affinity" })
}

fn pod_key(rule: &PodRule, nodes: &[(&str, Labels)]) -> Option<TopologyProblem> {
    let key = rule.term.topology_key.as_str();
    if key.is_empty() || nodes.iter().any(|(_, labels)| labels.contains_key(key)) {
        return None;
    }
    let (effect, so) = if rule.required && !rule.anti {
        (ProblemEffect::Blocks, "no node can run a pod that follows it")
    } else {
        (ProblemEffect::Idle, "the rule has no effect")
    };
    let message =
        format!("the {} uses the node label {key}, but no node has it{}: {so}", sort(rule), likely(key, nodes));
    Some(problem(ProblemReason::NoNodeHasKey, effect, message))
}

/// A constraint without a selector gets the labels of its consumer, so that it always matches.
fn selector(rule: &TopologySpreadConstraint, consumers: &[TopologyConsumer]) -> Option<TopologyProblem> {
    let selector = Selector::from_label_selector(Some(rule.label_selector.as_ref()?)).ok()?;
    let missed: Vec<&TopologyConsumer> = consumers.iter().filter(|c| !selector.matches(&c.pod_labels)).collect();
    let first = missed.first()?;
    let names: Vec<String> = missed.iter().map(|c| titled(&c.key)).collect();
    let whose = if missed.len() == 1 { "they".into() } else { format!("those of {}", titled(&first.key)) };
    let message = format!(
        "the spread by the node label {} counts pods with {selector}, but no pod of {} has these labels, so they are \
         not spread: {whose} have {}",
        rule.topology_key,
        join(&names),
        if first.pod_labels.is_empty() { "no labels".into() } else { pairs(&first.pod_labels) }
    );
    Some(problem(ProblemReason::SelectorMatchesNothing, ProblemEffect::Idle, message))
}

fn selector_missing(rule: &PodRule) -> Option<TopologyProblem> {
    if rule.term.label_selector.is_some() {
        return None;
    }
    let (effect, so) = if rule.required && !rule.anti {
        (ProblemEffect::Blocks, "no node can run a pod that follows it")
    } else {
        (ProblemEffect::Idle, "the rule has no effect")
    };
    let message = format!(
        "the {} by the node label {} has no labelSelector, which selects no pods: {so}",
        sort(rule),
        rule.term.topology_key
    );
    Some(problem(ProblemReason::SelectorMissing, effect, message))
}

fn spelling(topology: &Topology, rules: &Rules) -> Option<TopologyProblem> {
    topology.spec.topology_spread_constraint.as_ref()?;
    let then = if rules.draft {
        "Stead accepts it, the released OpenStack operators do not".to_owned()
    } else {
        format!("only {SPREAD} counts")
    };
    let message = format!("spec.{DRAFT} is the draft's spelling of {SPREAD}: {then}");
    Some(problem(ProblemReason::DraftSpelling, ProblemEffect::Note, message))
}

fn being_deleted(topology: &Topology) -> Option<TopologyProblem> {
    let since = topology.metadata.deletion_timestamp.as_ref()?.0;
    let holders: Vec<String> = holders(topology);
    let message = format!(
        "it was deleted at {since} and is kept until nobody uses it any more; it is used by {}",
        if holders.is_empty() { "nobody".into() } else { join(&holders) }
    );
    Some(problem(ProblemReason::BeingDeleted, ProblemEffect::Note, message))
}

/// Who holds a Topology by a finalizer, in words. The OpenStack operators call theirs `openstack.org/KIND-NAME`.
pub(crate) fn holders(topology: &Topology) -> Vec<String> {
    let finalizers = topology.metadata.finalizers.iter().flatten();
    finalizers
        .map(|f| match f.strip_prefix("openstack.org/").and_then(|f| f.split_once('-')) {
            Some(("glanceapi", api)) => format!("Glance API {api} (finalizer {f})"),
            Some((kind, name)) => format!("{kind} {name} (finalizer {f})"),
            None => format!("finalizer {f}"),
        })
        .collect()
}

/// Labels as one types them.
pub(crate) fn pairs(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.join(",")
}
