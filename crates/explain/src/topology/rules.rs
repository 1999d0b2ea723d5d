//! The rules of a Topology, read into Kubernetes' own types.

use k8s_openapi::api::core::v1::{NodeSelector, PodAffinityTerm, PreferredSchedulingTerm, TopologySpreadConstraint};
use serde::de::DeserializeOwned;
use serde_json::Value;
use stead_model::{ModelError, Topology};
use stead_semantics::node_selector::{NodeSelectorTerm, validate, validate_preferred};
use stead_semantics::{Labels, Selector};

/// The names of the field of spread constraints: the released one, and that of a draft of the resource.
pub(crate) const SPREAD: &str = "topologySpreadConstraints";
pub(crate) const DRAFT: &str = "topologySpreadConstraint";

/// The rules of a Topology, as far as they can be read.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) spread: Vec<TopologySpreadConstraint>,
    /// The node affinity that is required; none where nothing is.
    pub(crate) nodes: Option<NodeSelector>,
    pub(crate) preferred_nodes: Vec<PreferredSchedulingTerm>,
    pub(crate) pods: Vec<PodRule>,
    /// What Kubernetes would reject in a pod, with the field.
    pub(crate) faults: Vec<String>,
    /// Whether the field of the draft was read.
    pub(crate) draft: bool,
    /// Whether the spec has no rules.
    pub(crate) empty: bool,
}

/// A rule about other pods.
#[derive(Debug)]
pub(crate) struct PodRule {
    pub(crate) term: PodAffinityTerm,
    pub(crate) anti: bool,
    pub(crate) required: bool,
}

impl Rules {
    pub(crate) fn of(topology: &Topology) -> Rules {
        let mut out = Rules::default();
        let (list, spread) = topology.spec.spread();
        out.draft = list == DRAFT;
        out.spread = spread.and_then(|spread| out.read(&format!("spec.{list}"), spread)).unwrap_or_default();
        for (i, rule) in out.spread.clone().iter().enumerate() {
            out.faults.extend(spread_faults(rule).into_iter().map(|f| format!("spec.{list}[{i}].{f}")));
        }
        let affinity = topology.spec.affinity.as_ref().unwrap_or(&Value::Null);
        let node = &affinity["nodeAffinity"];
        let (required, preferred) =
            ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution");
        out.nodes = out.read(&format!("spec.affinity.nodeAffinity.{required}"), &node[required]);
        if let Some(Err(faults)) = out.nodes.as_ref().map(validate) {
            out.faults.push(format!("spec.affinity.nodeAffinity.{required}: {faults}"));
        }
        let preferred_nodes: Vec<PreferredSchedulingTerm> =
            out.read(&format!("spec.affinity.nodeAffinity.{preferred}"), &node[preferred]).unwrap_or_default();
        if let Err(faults) = validate_preferred(&preferred_nodes) {
            out.faults.push(format!("spec.affinity.nodeAffinity.{preferred}: {faults}"));
        }
        for (field, anti) in [("podAffinity", false), ("podAntiAffinity", true)] {
            let terms = &affinity[field];
            let path = format!("spec.affinity.{field}");
            let hard: Vec<PodAffinityTerm> =
                out.read(&format!("{path}.{required}"), &terms[required]).unwrap_or_default();
            out.pods.extend(hard.into_iter().map(|term| PodRule { term, anti, required: true }));
            for (i, wish) in terms[preferred].as_array().into_iter().flatten().enumerate() {
                let path = format!("{path}.{preferred}[{i}]");
                if !wish["weight"].as_i64().is_some_and(|w| (1..=100).contains(&w)) {
                    out.faults.push(format!("{path}.weight: must be in the range 1-100"));
                }
                let term = out.read(&format!("{path}.podAffinityTerm"), &wish["podAffinityTerm"]);
                out.pods.extend(term.map(|term| PodRule { term, anti, required: false }));
            }
        }
        for rule in &out.pods {
            if rule.term.topology_key.is_empty() {
                let field = if rule.anti { "podAntiAffinity" } else { "podAffinity" };
                out.faults.push(format!("spec.affinity.{field}: topologyKey: can not be empty"));
            }
        }
        out.preferred_nodes = preferred_nodes;
        out.empty = out.faults.is_empty() && out.spread.is_empty() && !affinity.as_object().is_some_and(says);
        out
    }

    /// Reads a part of the spec; a malformed one is a fault.
    fn read<T: DeserializeOwned>(&mut self, path: &str, value: &Value) -> Option<T> {
        if value.is_null() {
            return None;
        }
        let (inner, reason) = match stead_model::parse(path, value) {
            Ok(read) => return Some(read),
            Err(ModelError::Malformed { field, reason, .. }) => (field, reason),
            Err(other) => (".".to_owned(), other.to_string()),
        };
        self.faults.push(match inner.as_str() {
            "." => format!("{path}: {reason}"),
            inner if inner.starts_with('[') => format!("{path}{inner}: {reason}"),
            inner => format!("{path}.{inner}: {reason}"),
        });
        None
    }

    /// Whether a node is one that the required node affinity allows.
    pub(crate) fn allows(&self, name: &str, labels: &Labels) -> bool {
        let Some(selector) = &self.nodes else { return true };
        let mut terms = selector.node_selector_terms.iter().filter_map(|t| NodeSelectorTerm::compile(t).ok());
        terms.any(|t| t.matches(name, labels))
    }
}

fn says(affinity: &serde_json::Map<String, Value>) -> bool {
    affinity.values().any(|v| v.as_object().is_some_and(|o| !o.is_empty()))
}

/// What kube-apiserver's validation of a pod says about a spread constraint.
fn spread_faults(rule: &TopologySpreadConstraint) -> Vec<String> {
    let mut out = Vec::new();
    if rule.max_skew < 1 {
        out.push("maxSkew: must be greater than zero".to_owned());
    }
    if rule.topology_key.is_empty() {
        out.push("topologyKey: can not be empty".to_owned());
    }
    if !matches!(rule.when_unsatisfiable.as_str(), "DoNotSchedule" | "ScheduleAnyway") {
        out.push(format!(
            "whenUnsatisfiable: {:?} is neither DoNotSchedule nor ScheduleAnyway",
            rule.when_unsatisfiable
        ));
    }
    match rule.min_domains {
        Some(n) if n < 1 => out.push("minDomains: must be greater than zero".to_owned()),
        Some(_) if rule.when_unsatisfiable == "ScheduleAnyway" => {
            out.push("minDomains: can only be used with whenUnsatisfiable: DoNotSchedule".to_owned());
        }
        _ => {}
    }
    for (field, policy) in
        [("nodeAffinityPolicy", &rule.node_affinity_policy), ("nodeTaintsPolicy", &rule.node_taints_policy)]
    {
        if let Some(policy) = policy.as_deref().filter(|p| !matches!(*p, "Honor" | "Ignore")) {
            out.push(format!("{field}: {policy:?} is neither Honor nor Ignore"));
        }
    }
    if let Err(error) = Selector::from_label_selector(rule.label_selector.as_ref()) {
        out.push(format!("labelSelector: {error}"));
    }
    out
}
