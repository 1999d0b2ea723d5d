//! Spread constraints: the node can get its label, the constraint can be relaxed, pods can be deleted.

use std::sync::Arc;

use serde_json::json;
use stead_placement::{Attempt, NodeInfo, Pod, SpreadCounts};

use super::in_domain;
use super::{Harm, Remedy, known_value, leave, node_key, raw_node};
use crate::change::{Change, Trial, set, set_in, unset};

pub(super) fn remedies(trial: &Trial, info: &NodeInfo) -> Vec<Remedy> {
    let Ok(attempt) = Attempt::new(&trial.cluster, &trial.pod) else { return Vec::new() };
    // The constraints that filter, with their places in the pod.
    let hard = trial.pod.spec.spread.iter().enumerate().filter(|(_, c)| c.hard).map(|(i, _)| i);
    let spread_counts: Vec<(usize, SpreadCounts)> = hard.zip(attempt.spread_counts()).collect();
    for (at, spread) in &spread_counts {
        match info.node.label(&spread.constraint.topology_key) {
            None => return missing_label(trial, info, *at, spread),
            Some(value) => {
                let skew = skew(trial, spread, value);
                if skew > i64::from(spread.constraint.max_skew) {
                    return too_full(trial, info, *at, spread, skew);
                }
            }
        }
    }
    Vec::new()
}

/// How far ahead a domain would be with the pod in it.
pub(crate) fn skew(trial: &Trial, spread: &SpreadCounts, value: &str) -> i64 {
    let own = i64::from(spread.constraint.selector.matches(trial.pod.labels()));
    spread.counts.get(value).copied().unwrap_or(0) + own - spread.least
}

fn schedule_anyway(trial: &Trial, at: usize, spread: &SpreadCounts) -> Remedy {
    let index = at.to_string();
    let path = |field| ["spec", "topologySpreadConstraints", &index, field];
    let mut operations = vec![set(&path("whenUnsatisfiable"), "ScheduleAnyway")];
    // Only a constraint that filters may have it.
    let own = trial.view().and_then(|pod| pod.spec()?.topology_spread_constraints.as_ref()?.get(at));
    if own.is_some_and(|own| own.min_domains.is_some()) {
        operations.push(unset(&path("minDomains")));
    }
    let key = &spread.constraint.topology_key;
    let text = format!("make the spread by {key} a preference (whenUnsatisfiable: ScheduleAnyway)");
    Remedy::one(Harm::Looser, text, Change::patch(&trial.key, operations))
}

fn missing_label(trial: &Trial, info: &NodeInfo, at: usize, spread: &SpreadCounts) -> Vec<Remedy> {
    let key = &*spread.constraint.topology_key;
    let mut out = Vec::new();
    let label = |value: &str| {
        let operations = set_in(raw_node(trial, info), &["metadata", "labels"], key, value);
        Change::patch(&node_key(info), operations)
    };
    let name = &info.node.name;
    if key == "kubernetes.io/hostname" {
        out.push(Remedy::one(Harm::None, format!("label node {name} {key}={name}"), label(name)));
    } else if let Some(value) = known_value(&trial.cluster, &info.node, key) {
        out.push(Remedy::one(Harm::None, format!("label node {name} {key}={value}"), label(&value)));
    } else {
        // The domain of the node is unknown: each one is tried.
        let mut values: Vec<(&str, i64)> = spread.counts.iter().map(|(v, n)| (&**v, *n)).collect();
        values.sort_by_key(|(value, n)| (*n, *value));
        for (value, _) in values.into_iter().take(4) {
            let text = format!("label node {name} {key}={value}, if that is where it is");
            out.push(Remedy::one(Harm::Trusts, text, label(value)));
        }
        if spread.counts.is_empty() {
            let text = format!("label node {name} {key}={name}: no node has that label yet");
            out.push(Remedy::one(Harm::Trusts, text, label(name)));
        }
    }
    out.push(schedule_anyway(trial, at, spread));
    out
}

fn too_full(trial: &Trial, info: &NodeInfo, at: usize, spread: &SpreadCounts, skew: i64) -> Vec<Remedy> {
    let index = at.to_string();
    let path = |field| ["spec", "topologySpreadConstraints", &index, field];
    let c = &spread.constraint;
    let key = &*c.topology_key;
    let mut out = Vec::new();
    let domains = spread.counts.len();
    if i64::from(c.min_domains) > domains as i64 && domains > 0 {
        let text = format!("lower minDomains of the spread by {key} from {} to {domains}", c.min_domains);
        let change = Change::patch(&trial.key, vec![set(&path("minDomains"), domains)]);
        out.push(Remedy::one(Harm::Looser, text, change));
    }
    let text = format!("raise maxSkew of the spread by {key} from {} to {skew}", c.max_skew);
    let change = Change::patch(&trial.key, vec![set(&path("maxSkew"), json!(skew))]);
    out.push(Remedy::one(Harm::Looser, text, change));
    out.push(schedule_anyway(trial, at, spread));
    let too_many = usize::try_from(skew - i64::from(c.max_skew)).unwrap_or(usize::MAX);
    let counted =
        |p: &&Arc<Pod>| !p.terminating && p.key.namespace == trial.pod.key.namespace && c.selector.matches(p.labels());
    let mut pods: Vec<&Arc<Pod>> = in_domain(trial, info, key).filter(counted).collect();
    pods.sort_by_key(|p| (p.spec.priority, p.key.clone()));
    if pods.len() >= too_many {
        out.extend(leave(trial, &pods[..too_many.min(pods.len())]));
    }
    out
}
