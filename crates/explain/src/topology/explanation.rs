//! The whole answer about one Topology.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use serde::Serialize;
use serde_json::Value;
use stead_semantics::{Labels, Selector};

use super::carries::carries;
use super::rules::{Rules, labelled};
use super::troubles::{Consumer, Trouble, troubles};
use super::words::says;
use crate::change::part;
use crate::explanation::some;
use crate::references::{Level, Reference, chosen, followers, references, titled};
use crate::workload_pods::{Observer, PodStanding, controlled};
use stead_model::{ModelError, ObjectKey, Objects};

/// What a Topology says, who uses it, and what it does to them.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TopologyExplanation {
    /// Namespace and name.
    pub topology: String,
    /// Whether there is such a Topology.
    pub exists: bool,
    /// How it stands, in a sentence.
    pub summary: String,
    /// What it says, a line for each rule.
    pub says: Vec<String>,
    /// What is wrong with it, the worst first.
    pub troubles: Vec<Trouble>,
    /// Who uses it.
    pub used_by: Vec<Use>,
    /// Every reference to it, those included that a more specific one overrides.
    pub references: Vec<Reference>,
    /// How the counts of its spread constraints stand.
    pub counts: Vec<Count>,
    /// What the answer depends on and was not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The label that pods are shown by.
    #[serde(skip)]
    pub(super) domain: Option<String>,
    #[serde(skip)]
    pub(super) namespace: String,
}

/// Somebody who uses a Topology.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Use {
    /// Kind and name.
    pub consumer: String,
    /// The reference that leads from it to the Topology.
    pub reference: Reference,
    /// Whose reference that is.
    pub level: Level,
    /// What is not as it is meant to be yet.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lags: Vec<String>,
    /// Its pods.
    pub pods: Vec<PodStanding>,
}

/// How a spread constraint's counts stand.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Count {
    /// The node label.
    pub key: String,
    /// Which pods are counted.
    pub of: String,
    /// The pods on the nodes of each value.
    pub domains: BTreeMap<String, usize>,
    /// How many more the fullest has than the emptiest.
    pub skew: usize,
    /// How many more it may have.
    pub max_skew: i32,
}

/// Explains a Topology, or who misses it where there is none. `kinds` are those that were read.
///
/// # Errors
/// Where an object that placement looks at cannot be understood.
pub fn explain(
    objects: &Objects,
    key: &ObjectKey,
    kinds: &BTreeSet<String>,
) -> Result<TopologyExplanation, ModelError> {
    let found = objects.raw(key);
    let topology = found.unwrap_or(&Value::Null);
    let rules = Rules::of(topology);
    let domain = rules.spread.iter().map(|c| c.topology_key.clone()).find(|k| k != "kubernetes.io/hostname");
    let domain = domain.or_else(|| {
        Some(rules.nodes.as_ref()?.node_selector_terms.first()?.match_expressions.as_ref()?.first()?.key.clone())
    });
    let mut observer = Observer::new(objects, kinds);
    let (mut used_by, mut consumers) = (Vec::new(), Vec::new());
    for (api_key, api) in followers(objects, key) {
        let set = stateful_set(objects, api_key);
        let template = set.as_ref().map_or(&Value::Null, |(_, set)| &set["spec"]["template"]);
        let choice = chosen(objects, api_key, api).filter(|c| c.topology.as_deref() == Some(&key.name));
        let (reference, level) = match choice {
            Some(choice) => (choice.reference, choice.level),
            None => (Reference { object: titled(api_key), field: "spec.topologyRef".into() }, Level::Api),
        };
        let pods = match &set {
            Some((set, _)) => observer.pods_of(set, domain.as_deref())?,
            None => Vec::new(),
        };
        let lags = lags(objects, key, found, api_key, api, set.as_ref());
        used_by.push(Use { consumer: titled(api_key), reference, level, lags, pods });
        if set.is_some() {
            consumers.push(Consumer {
                key: api_key.clone(),
                pod_labels: part(&template["metadata"]["labels"]).unwrap_or_default(),
                node_selector: part(&template["spec"]["nodeSelector"]).unwrap_or_default(),
            });
        }
    }
    let nodes = || objects.raw_of_kind("Node").map(|(_, node)| node);
    let mut out = TopologyExplanation {
        topology: format!("{}/{}", key.namespace, key.name),
        exists: found.is_some(),
        summary: String::new(),
        says: says(topology, &rules),
        troubles: if found.is_some() { troubles(topology, nodes(), &consumers) } else { Vec::new() },
        used_by,
        references: references(objects, key),
        counts: counts(objects, key, &rules, &consumers),
        notes: notes(kinds),
        domain,
        namespace: key.namespace.clone(),
    };
    out.summary = summary(&out, &there_are(objects, &key.namespace));
    Ok(out)
}

/// The StatefulSet of a GlanceAPI.
pub(crate) fn stateful_set<'a>(objects: &'a Objects, api: &ObjectKey) -> Option<(ObjectKey, &'a Value)> {
    let sets = objects.raw_of_kind("StatefulSet").filter(|(key, _)| key.namespace == api.namespace);
    let mut owned = sets.filter(|(_, set)| {
        let mut owners = set["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        owners.any(|o| o["controller"] == true && o["kind"] == "GlanceAPI" && o["name"] == *api.name)
    });
    owned.next().map(|(key, set)| (key.clone(), set))
}

/// What is not as it is meant to be yet, from the reference down to the pods.
fn lags(
    objects: &Objects,
    key: &ObjectKey,
    topology: Option<&Value>,
    api_key: &ObjectKey,
    api: &Value,
    set: Option<&(ObjectKey, &Value)>,
) -> Vec<String> {
    let mut out = Vec::new();
    let meant = chosen(objects, api_key, api);
    let own = api["spec"]["topologyRef"]["name"].as_str().filter(|n| !n.is_empty());
    if own != Some(&key.name) {
        out.push(format!("{} does not have the reference yet", titled(api_key)));
    }
    if let Some(meant) = meant.filter(|m| m.topology.as_deref() != Some(&key.name)) {
        let instead = meant.topology.map_or("no Topology".into(), |t| format!("Topology {t}"));
        out.push(format!("{} asks for {instead} instead, which is not handed on yet", meant.reference));
    }
    let Some((set_key, set)) = set else {
        out.push(format!("{} has no StatefulSet yet", titled(api_key)));
        return out;
    };
    let Some(topology) = topology else { return out };
    if !carries(&set["spec"]["template"]["spec"], topology) {
        out.push(format!("{} does not carry these rules yet", titled(set_key)));
        return out;
    }
    let older: Vec<String> = controlled(objects, set_key)
        .filter(|(_, pod)| !carries(&pod["spec"], topology))
        .map(|(key, _)| key.name.clone())
        .collect();
    if !older.is_empty() {
        let verb = if older.len() == 1 { "was" } else { "were" };
        out.push(format!("{} {verb} made before these rules and not replaced yet", older.join(", ")));
    }
    out
}

fn counts(objects: &Objects, key: &ObjectKey, rules: &Rules, consumers: &[Consumer]) -> Vec<Count> {
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
) -> Count {
    let honours = rule.node_affinity_policy.as_deref() != Some("Ignore");
    let nodes: BTreeMap<&str, String> = objects
        .raw_of_kind("Node")
        .map(|(_, node)| labelled(node))
        .filter(|(name, labels)| !honours || rules.allows(name, labels))
        .filter_map(|(name, mut labels)| Some((name, labels.remove(&rule.topology_key)?)))
        .collect();
    let mut domains: BTreeMap<String, usize> = nodes.values().map(|value| (value.clone(), 0)).collect();
    for (_, pod) in objects.raw_of_kind("Pod").filter(|(pod, _)| pod.namespace == key.namespace) {
        let labels: Labels = part(&pod["metadata"]["labels"]).unwrap_or_default();
        let gone = !pod["metadata"]["deletionTimestamp"].is_null()
            || matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let value = pod["spec"]["nodeName"].as_str().and_then(|n| nodes.get(n));
        if let Some(count) = value.filter(|_| !gone && selector.matches(&labels)).and_then(|v| domains.get_mut(v)) {
            *count += 1;
        }
    }
    let (least, most) = (domains.values().min().copied().unwrap_or(0), domains.values().max().copied().unwrap_or(0));
    Count { key: rule.topology_key.clone(), of, domains, skew: most - least, max_skew: rule.max_skew }
}

fn notes(kinds: &BTreeSet<String>) -> Vec<String> {
    let needs = ["Topology", "Glance", "GlanceAPI", "OpenStackControlPlane", "StatefulSet", "Pod"];
    let missing: Vec<&str> = needs.into_iter().filter(|k| !kinds.contains(*k)).collect();
    if missing.is_empty() {
        return Vec::new();
    }
    vec![format!("no {} were read: who uses it is told only as far as that goes", missing.join(", "))]
}

/// Which Topologies a namespace has: a name may have been mistyped.
pub(crate) fn there_are(objects: &Objects, namespace: &str) -> String {
    let there = objects.raw_of_kind("Topology").filter(|(key, _)| key.namespace == namespace);
    let names: Vec<String> = there.map(|(key, _)| key.name.clone()).collect();
    match names.as_slice() {
        [] => format!("namespace {namespace} has no Topology at all"),
        names => format!("namespace {namespace} has {}", some(names)),
    }
}

fn summary(e: &TopologyExplanation, there: &str) -> String {
    let users = match e.used_by.len() {
        0 if e.references.is_empty() => "nobody uses it".to_owned(),
        0 => "it is referred to, but no pods follow it".to_owned(),
        1 => format!("used by {}", e.used_by[0].consumer),
        n => format!("used by {n} GlanceAPIs"),
    };
    if !e.exists {
        let wait = if e.references.is_empty() { "nobody refers to it" } else { "whoever refers to it waits for it" };
        return format!("there is no such Topology; {wait}; {there}");
    }
    let pods = || e.used_by.iter().flat_map(|u| &u.pods);
    let (all, ready, stuck) =
        (pods().count(), pods().filter(|p| p.ready).count(), pods().filter(|p| p.waiting.is_some()).count());
    let pods = match all {
        0 => String::new(),
        1 if stuck > 0 => " with 1 pod, which no node takes".to_owned(),
        1 => format!(" with 1 pod: {ready} ready"),
        _ if stuck > 0 => format!(" with {all} pods: {ready} ready, {stuck} that no node takes"),
        _ => format!(" with {all} pods: {ready} ready"),
    };
    format!("{users}{pods}")
}
