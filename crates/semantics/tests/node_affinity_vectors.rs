//! Node affinity compared with recordings of the Go implementation.
//!
//! `data/node_affinity.jsonl` was printed by `k8s.io/component-helpers` v0.36.4 itself: a pod spec
//! and preferred terms, and for each of [`nodes`] what `RequiredNodeAffinity.Match` (`lazy`),
//! `NodeSelector.Match` (`eager`) and `PreferredSchedulingTerms.Score` (`scores`) return, or the
//! error instead.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use k8s_openapi::api::core::v1::{PodSpec, PreferredSchedulingTerm};
use serde_json::{Value, from_value, json};
use stead_semantics::{Labels, NodeSelector, PreferredNodeAffinity, RequiredNodeAffinity, SelectorError};

fn nodes() -> Vec<(&'static str, Labels)> {
    let nodes: [(&str, &[(&str, &str)]); 4] = [
        ("node-1", &[("zone", "a"), ("n", "5")]),
        ("node-2", &[("zone", "b"), ("disk", ""), ("n", "06")]),
        ("", &[("disk", "a"), ("n", "many")]),
        ("node-3", &[]),
    ];
    let owned = |(k, v): &(&str, &str)| ((*k).to_owned(), (*v).to_owned());
    nodes.iter().map(|(name, labels)| (*name, labels.iter().map(owned).collect())).collect()
}

fn lazy(spec: &PodSpec) -> Vec<String> {
    let required = RequiredNodeAffinity::of(spec).unwrap();
    let shown = |(name, labels): (&str, Labels)| {
        let verdict = required.try_matches(name, &labels);
        assert_eq!(
            required.matches(name, &labels),
            *verdict.as_ref().unwrap_or(&false),
            "the scheduler takes a fault for no match"
        );
        verdict.map_or_else(|e| e.to_string(), |matches| matches.to_string())
    };
    nodes().into_iter().map(shown).collect()
}

fn for_each_node(answer: impl Fn(&str, &Labels) -> String) -> String {
    let answers = nodes().into_iter();
    answers.map(|(name, labels)| answer(name, &labels) + " ").collect()
}

fn eager(spec: &PodSpec) -> Result<String, SelectorError> {
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let Some(required) = required else {
        return Ok(String::new());
    };
    let selector = NodeSelector::compile(required)?;
    Ok(for_each_node(|name, labels| selector.matches(name, labels).to_string()))
}

fn scores(terms: &[PreferredSchedulingTerm]) -> Result<String, SelectorError> {
    let preferred = PreferredNodeAffinity::of(terms)?;
    Ok(for_each_node(|name, labels| preferred.score(name, labels).to_string()))
}

fn replay(recording: &Value) -> Value {
    let spec: PodSpec = from_value(recording["spec"].clone()).unwrap();
    let preferred: Vec<PreferredSchedulingTerm> = from_value(recording["preferred"].clone()).unwrap();
    json!({
        "spec": recording["spec"],
        "lazy": lazy(&spec),
        "eager": eager(&spec).unwrap_or_else(|e| e.to_string()),
        "preferred": recording["preferred"],
        "scores": scores(&preferred).unwrap_or_else(|e| e.to_string()),
    })
}

#[test]
fn same_matches_scores_and_errors_as_go() {
    for line in include_str!("data/node_affinity.jsonl").lines() {
        let recording: Value = serde_json::from_str(line).unwrap();
        assert_eq!(replay(&recording), recording);
    }
}
