//! The rules of a Topology in words.

use k8s_openapi::api::core::v1::TopologySpreadConstraint;
use stead_semantics::Selector;

use super::rules::{PodRule, Rules};
use crate::causes::term;

/// A line for each rule.
pub(super) fn describe(rules: &Rules) -> Vec<String> {
    let mut out: Vec<String> = rules.spread.iter().map(spread).collect();
    if let Some(required) = &rules.nodes {
        let terms: Vec<String> = required.node_selector_terms.iter().map(term).collect();
        out.push(format!("pods go only to nodes with {}", terms.join(" or ")));
    }
    for preferred in &rules.preferred_nodes {
        out.push(format!("pods prefer nodes with {} (weight {})", term(&preferred.preference), preferred.weight));
    }
    out.extend(rules.pods.iter().map(pods));
    out
}

fn spread(rule: &TopologySpreadConstraint) -> String {
    let key = &rule.topology_key;
    let pods = if rule.max_skew == 1 { "pod" } else { "pods" };
    let mut out = format!(
        "pods are spread over the values of the node label {key}: none may have more than {} {pods} more than the \
         value with the fewest (maxSkew)",
        rule.max_skew
    );
    out.push_str(match rule.when_unsatisfiable.as_str() {
        "ScheduleAnyway" => "; a pod that would violate this is scheduled anyway (ScheduleAnyway)",
        _ => "; a pod that would violate this stays Pending (DoNotSchedule)",
    });
    match (&rule.label_selector, Selector::from_label_selector(rule.label_selector.as_ref())) {
        (None, _) => out.push_str("; the pods of each consumer are counted separately (no labelSelector)"),
        (_, Ok(selector)) if selector.is_empty() => out.push_str("; all pods of the namespace are counted"),
        (_, Ok(selector)) => out.push_str(&format!("; pods with {selector} are counted")),
        (_, Err(_)) => {}
    }
    if let Some(keys) = rule.match_label_keys.as_ref().filter(|k| !k.is_empty()) {
        out.push_str(&format!(", and only those with the same {}", keys.join(", ")));
    }
    if let Some(domains) = rule.min_domains {
        out.push_str(&format!("; with fewer than {domains} values, the missing ones count as 0 pods (minDomains)"));
    }
    if rule.node_affinity_policy.as_deref() == Some("Ignore") {
        out.push_str("; nodes that the pod's node affinity excludes count too");
    }
    if rule.node_taints_policy.as_deref() == Some("Honor") {
        out.push_str("; nodes whose taints the pod does not tolerate do not count");
    }
    out
}

fn pods(rule: &PodRule) -> String {
    let verb = match (rule.required, rule.anti) {
        (true, false) => "must run with",
        (true, true) => "must not run with",
        (false, false) => "prefer to run with",
        (false, true) => "avoid",
    };
    let which = match Selector::from_label_selector(rule.term.label_selector.as_ref()) {
        Ok(s) if s.is_nothing() => "no pods (there is no selector)".to_owned(),
        Ok(s) if s.is_empty() => "any pods".to_owned(),
        Ok(s) => format!("pods with {s}"),
        Err(_) => "pods of a malformed selector".to_owned(),
    };
    format!("pods {verb} {which} in the same value of the node label {}", rule.term.topology_key)
}
