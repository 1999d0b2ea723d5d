//! Everything about one Topology.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde::Serialize;
use stead_model::{
    ALL_OPENSTACK_KINDS, ModelError, NodeView, ObjectKey, Objects, PodView, Topology, reported_conditions,
};
use stead_semantics::{Labels, Selector};

use super::describe::describe;
use super::problems::{TopologyConsumer, TopologyProblem, problems};
use super::rules::Rules;
use super::rules_in_pod::has_rules_of;
use super::upstream::{Examined, UpstreamFinding, drops_rules, of_holders, of_object};
use super::users::{TopologyHolder, TopologyUser, consumer, holders, pods_of_workload, users};
use crate::explanation::some;
use crate::references::{Reference, ReferenceLevel, references, titled};
use crate::suggested_command::{ClientAtHand, SuggestsCommands};
use crate::workload_pods::{Observer, WorkloadPod};

/// The rules of a Topology, who uses it, and its effect on them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyExplanation {
    /// Namespace and name.
    pub topology: String,
    /// Whether there is such a Topology.
    pub exists: bool,
    /// The verdict, in a sentence.
    pub summary: String,
    /// Its rules, a line for each.
    pub says: Vec<String>,
    /// What is wrong with it, the worst first.
    #[serde(rename = "troubles")]
    pub problems: Vec<TopologyProblem>,
    /// Who uses it.
    pub used_by: Vec<TopologyUse>,
    /// Every reference to it, those included that a more specific one overrides.
    pub references: Vec<Reference>,
    /// The pod counts of its spread constraints.
    pub counts: Vec<DomainCounts>,
    /// The finalizers by which its users hold it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<TopologyHolder>,
    /// Known defects of the OpenStack operators that apply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upstream: Vec<UpstreamFinding>,
    /// What the answer depends on and was not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The label that pods are shown by.
    #[serde(skip)]
    pub(super) domain: Option<String>,
}

impl SuggestsCommands for TopologyExplanation {
    fn use_client(&mut self, client: &ClientAtHand) {
        self.used_by.iter_mut().flat_map(|user| &mut user.pods).for_each(|pod| pod.use_client(client));
    }
}

/// A consumer of a Topology.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyUse {
    /// Kind and name.
    pub consumer: String,
    #[serde(skip)]
    kind: String,
    /// The reference that leads from it to the Topology.
    pub reference: Reference,
    /// Whose reference that is.
    pub level: ReferenceLevel,
    /// What does not follow the reference yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lags: Vec<String>,
    /// Its pods.
    pub pods: Vec<WorkloadPod>,
}

/// The pod counts of a spread constraint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainCounts {
    /// The node label.
    pub key: String,
    /// Which pods are counted.
    pub of: String,
    /// The pods on the nodes of each value.
    pub domains: BTreeMap<String, usize>,
    /// The difference between the highest and the lowest count.
    pub skew: usize,
    /// The difference that is allowed.
    pub max_skew: i32,
}

/// Explains a Topology, or who refers to it where it does not exist. `kinds` are those that were read.
///
/// # Errors
/// Where an object that placement looks at cannot be understood.
pub fn explain(
    objects: &Objects,
    key: &ObjectKey,
    kinds: &BTreeSet<String>,
) -> Result<TopologyExplanation, ModelError> {
    let found = objects.get::<Topology>(key)?;
    let none = Topology::default();
    let rules = Rules::of(found.unwrap_or(&none));
    let domain = rules.spread.iter().map(|c| c.topology_key.clone()).find(|k| k != "kubernetes.io/hostname");
    let domain = domain.or_else(|| {
        Some(rules.nodes.as_ref()?.node_selector_terms.first()?.match_expressions.as_ref()?.first()?.key.clone())
    });
    let mut observer = Observer::new(objects, kinds);
    let (mut used_by, mut consumers) = (Vec::new(), Vec::new());
    let held_by = found.map(|topology| holders(objects, topology, kinds)).unwrap_or_default();
    let mut upstream = of_holders(key, &held_by);
    for user in users(objects, key) {
        let named = user.chosen.as_ref().filter(|chosen| chosen.topology.as_deref() == Some(&key.name));
        let (reference, level) = match named {
            Some(chosen) => (chosen.reference.clone(), chosen.level.clone()),
            None => (Reference::new(&user.key, "spec.topologyRef"), ReferenceLevel::Own),
        };
        let mut pods = Vec::new();
        for workload in &user.workloads {
            pods.extend(observer.pods_of(workload, domain.as_deref())?);
            consumers.extend(consumer(objects, &user.key, workload));
        }
        if let Some(object) = objects.object(&user.key) {
            upstream.extend(of_object(&Examined { objects, object, topology: found, workloads: &user.workloads }));
        }
        let lags = lags(objects, key, found, &user);
        used_by.push(TopologyUse { consumer: titled(&user.key), kind: user.key.kind, reference, level, lags, pods });
    }
    let nodes: Vec<(&str, Labels)> = objects.nodes().map(labelled).collect();
    let mut out = TopologyExplanation {
        topology: format!("{}/{}", key.namespace, key.name),
        exists: found.is_some(),
        summary: String::new(),
        says: describe(&rules),
        problems: found.map(|topology| problems(topology, &nodes, &consumers)).unwrap_or_default(),
        used_by,
        references: references(objects, key),
        counts: counts(objects, key, &rules, &consumers),
        held_by,
        upstream,
        notes: notes(kinds),
        domain,
    };
    out.summary = summary(&out, &there_are(objects, &key.namespace));
    Ok(out)
}

/// The name and the labels of a node.
fn labelled(node: NodeView<'_>) -> (&str, Labels) {
    (node.name(), node.typed().metadata.labels.clone().unwrap_or_default())
}

/// What does not follow the reference yet, from the user down to the pods.
fn lags(objects: &Objects, key: &ObjectKey, topology: Option<&Topology>, user: &TopologyUser) -> Vec<String> {
    let mut out = Vec::new();
    let title = titled(&user.key);
    let meant = user.chosen.as_ref().filter(|meant| meant.topology.as_deref() != Some(&key.name));
    match (user.wants, meant.is_some() || user.chosen.is_none()) {
        (true, _) => {}
        (false, true) => out.push(format!("{title} does not refer to it any more, but its operator still applies it")),
        (false, false) => out.push(format!("{title} does not have the reference yet")),
    }
    if let Some(meant) = meant.filter(|_| user.wants) {
        let instead = meant.topology.as_ref().map_or("no Topology".into(), |t| format!("Topology {t}"));
        let kind = &user.key.kind;
        out.push(format!("{} refers to {instead} instead, which the {kind} does not have yet", meant.reference));
    }
    // That a Topology does not exist is said once, in the first line.
    out.extend(topology.and_then(|_| readiness(objects, &user.key)));
    if user.workloads.is_empty() {
        let workload = if user.key.kind == "GlanceAPI" { "StatefulSet" } else { "workload" };
        out.push(format!("{title} has no {workload} yet"));
    }
    let Some(topology) = topology.filter(|_| !drops_rules(&user.key.kind)) else { return out };
    for workload in &user.workloads {
        out.extend(late(objects, topology, workload));
    }
    out
}

/// What an operator reports about the Topology of an object that it cannot apply.
pub(crate) fn readiness(objects: &Objects, user: &ObjectKey) -> Option<String> {
    let conditions = reported_conditions(objects.object(user)?);
    let failed = conditions.into_iter().find(|c| c.r#type == "TopologyReady" && c.status == "False")?;
    let message = failed.message.unwrap_or_default();
    Some(format!("{} cannot apply it (TopologyReady is False): {message}", titled(user)))
}

/// Which part of a workload was created before the rules.
fn late(objects: &Objects, topology: &Topology, workload: &ObjectKey) -> Option<String> {
    let template = objects.workload(workload).ok().flatten().and_then(|workload| workload.template());
    if !has_rules_of(template.and_then(|template| template.spec.as_ref()), topology) {
        return Some(format!("{} does not have these rules yet", titled(workload)));
    }
    let pods = pods_of_workload(objects, workload).into_iter().filter(|pod| !has_rules_of(pod.spec(), topology));
    let older: Vec<String> = pods.map(|pod| pod.name().to_owned()).collect();
    let verb = if older.len() == 1 { "was" } else { "were" };
    (!older.is_empty()).then(|| format!("{} {verb} created before these rules and not replaced yet", older.join(", ")))
}

fn counts(objects: &Objects, key: &ObjectKey, rules: &Rules, consumers: &[TopologyConsumer]) -> Vec<DomainCounts> {
    let mut out = Vec::new();
    for rule in &rules.spread {
        match &rule.label_selector {
            Some(selector) => {
                let Ok(selector) = Selector::from_label_selector(Some(selector)) else { continue };
                let of = if selector.is_empty() { "all pods".into() } else { format!("pods with {selector}") };
                out.push(count(objects, key, rules, rule, &selector, of));
            }
            None => out.extend(consumers.iter().map(|c| {
                let selector = Selector::from_set(&c.pod_labels);
                count(objects, key, rules, rule, &selector, format!("pods of {}", titled(&c.key)))
            })),
        }
    }
    out
}

/// Counts as kube-scheduler does: pods that have a node and are not terminating, on nodes that have the label and
/// that the node affinity allows.
fn count(
    objects: &Objects,
    key: &ObjectKey,
    rules: &Rules,
    rule: &TopologySpreadConstraint,
    selector: &Selector,
    of: String,
) -> DomainCounts {
    let honours = rule.node_affinity_policy.as_deref() != Some("Ignore");
    let nodes: BTreeMap<&str, String> = objects
        .nodes()
        .map(labelled)
        .filter(|(name, labels)| !honours || rules.allows(name, labels))
        .filter_map(|(name, mut labels)| Some((name, labels.remove(&rule.topology_key)?)))
        .collect();
    let mut domains: BTreeMap<String, usize> = nodes.values().map(|value| (value.clone(), 0)).collect();
    let empty = Labels::default();
    let counts = |pod: &PodView| {
        let labels = pod.metadata().labels.as_ref().unwrap_or(&empty);
        !pod.is_terminating() && !pod.has_ended() && selector.matches(labels)
    };
    for pod in objects.pods_in(&key.namespace).filter(counts) {
        let value = pod.node().and_then(|node| nodes.get(node));
        if let Some(count) = value.and_then(|value| domains.get_mut(value)) {
            *count += 1;
        }
    }
    let (least, most) = (domains.values().min().copied().unwrap_or(0), domains.values().max().copied().unwrap_or(0));
    DomainCounts { key: rule.topology_key.clone(), of, domains, skew: most - least, max_skew: rule.max_skew }
}

fn notes(kinds: &BTreeSet<String>) -> Vec<String> {
    let needs = ["Topology", "Glance", "GlanceAPI", "OpenStackControlPlane", "StatefulSet", "Pod"];
    let all = kinds.contains(ALL_OPENSTACK_KINDS);
    let read = |kind: &str| kinds.contains(kind) || (all && matches!(kind, "Glance" | "GlanceAPI"));
    let missing: Vec<&str> = needs.into_iter().filter(|kind| !read(kind)).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    vec![format!("no {} were read: some consumers may be missing", missing.join(", "))]
}

/// Which Topologies a namespace has: a name may be misspelled.
pub(crate) fn there_are(objects: &Objects, namespace: &str) -> String {
    let there = objects.keys("Topology").filter(|key| key.namespace == namespace);
    let names: Vec<String> = there.map(|key| key.name.clone()).collect();
    match names.as_slice() {
        [] => format!("namespace {namespace} has no Topology"),
        names => format!("namespace {namespace} has {}", some(names)),
    }
}

fn summary(e: &TopologyExplanation, there: &str) -> String {
    let users = match e.used_by.len() {
        0 if e.references.is_empty() => "not used".to_owned(),
        0 => "referred to, but no pods follow it".to_owned(),
        1 => format!("used by {}", e.used_by[0].consumer),
        n if e.used_by.iter().all(|u| u.kind == e.used_by[0].kind) => format!("used by {n} {}s", e.used_by[0].kind),
        n => format!("used by {n} services"),
    };
    if !e.exists {
        let wait =
            if e.references.is_empty() { "nothing refers to it" } else { "everything that refers to it waits for it" };
        return format!("does not exist; {wait}; {there}");
    }
    let pods = || e.used_by.iter().flat_map(|u| &u.pods);
    let (all, ready, stuck) =
        (pods().count(), pods().filter(|p| p.ready).count(), pods().filter(|p| p.waiting.is_some()).count());
    let pods = match all {
        0 => String::new(),
        1 if stuck > 0 => " with 1 pod, which no node can run".to_owned(),
        1 => format!(" with 1 pod: {ready} ready"),
        _ if stuck > 0 => format!(" with {all} pods: {ready} ready, {stuck} that no node can run"),
        _ => format!(" with {all} pods: {ready} ready"),
    };
    format!("{users}{pods}")
}
