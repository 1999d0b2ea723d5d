//! Cordons, taints and node affinity: the node can change, or the pod can.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, Taint};
use serde_json::json;
use stead_placement::NodeInfo;
use stead_semantics::node_selector::NodeSelectorTerm as CompiledTerm;
use stead_semantics::taints;

use super::{Harm, Remedy, node_key, raw_node};
use crate::change::{Change, Trial, set, set_in, unset};

const CORDON: &str = "node.kubernetes.io/unschedulable";
const HOSTNAME: &str = "kubernetes.io/hostname";

pub(super) fn uncordon(trial: &Trial, info: &NodeInfo) -> Vec<Remedy> {
    let mut operations = vec![unset(&["spec", "unschedulable"])];
    // The node controller takes the cordon's taint away with it.
    operations.extend(without_taints(trial, info, |t| t.key == CORDON));
    let text = format!("uncordon node {}", info.node.name);
    vec![Remedy::one(Harm::Looser, text, Change::patch(&node_key(info), operations))]
}

fn without_taints(trial: &Trial, info: &NodeInfo, which: impl Fn(&Taint) -> bool) -> Vec<json_patch::PatchOperation> {
    let taints = trial.objects.node(&info.node.name).ok().flatten().map(|node| node.taints()).unwrap_or_default();
    // From the last to the first, so that the indexes hold.
    let hit = taints.iter().enumerate().rev().filter(|(_, t)| which(t));
    hit.map(|(i, _)| unset(&["spec", "taints", &i.to_string()])).collect()
}

fn written(t: &Taint) -> String {
    match t.value.as_deref() {
        Some(value) if !value.is_empty() => format!("{}={value}:{}", t.key, t.effect),
        _ => format!("{}:{}", t.key, t.effect),
    }
}

/// Whether Kubernetes adds and removes a taint by a node's state, so that people should not remove it.
pub(crate) fn by_kubernetes(key: &str) -> bool {
    const BY_HAND: &str = "node.kubernetes.io/out-of-service";
    (key.starts_with("node.kubernetes.io/") && key != BY_HAND) || key.starts_with("node.cloudprovider.kubernetes.io/")
}

pub(super) fn taints(trial: &Trial, info: &NodeInfo) -> Vec<Remedy> {
    let tolerations = &trial.pod.spec.tolerations.0;
    let in_the_way = |t: &Taint| {
        matches!(t.effect.as_str(), "NoSchedule" | "NoExecute") && !tolerations.iter().any(|x| taints::tolerates(x, t))
    };
    let hit: Vec<&Taint> = info.node.taints.iter().filter(|t| in_the_way(t)).collect();
    let names = super::join(&hit.iter().map(|t| written(t)).collect::<Vec<_>>());
    let noun = if hit.len() == 1 { "taint" } else { "taints" };
    let (theirs, ours): (Vec<&Taint>, Vec<&Taint>) = hit.iter().partition(|t| by_kubernetes(&t.key));
    let name = &info.node.name;
    let list = |taints: &[&Taint]| {
        let noun = if taints.len() == 1 { "taint" } else { "taints" };
        format!("{noun} {}", super::join(&taints.iter().map(|t| written(t)).collect::<Vec<_>>()))
    };
    let remove = match (theirs.as_slice(), ours.as_slice()) {
        ([], ours) => format!("remove the {} from node {name}", list(ours)),
        (theirs, []) => format!("bring node {name} back: Kubernetes then removes its {}", list(theirs)),
        (theirs, ours) => {
            format!(
                "bring node {name} back: Kubernetes then removes its {}; and remove the {}",
                list(theirs),
                list(ours)
            )
        }
    };
    let operations = without_taints(trial, info, in_the_way);
    let mut out = vec![Remedy::one(Harm::Looser, remove, Change::patch(&node_key(info), operations))];
    if theirs.is_empty() {
        let more = hit.iter().map(|t| match t.value.as_deref() {
            Some(value) if !value.is_empty() => {
                json!({"key": t.key, "operator": "Equal", "value": value, "effect": t.effect})
            }
            _ => json!({"key": t.key, "operator": "Exists", "effect": t.effect}),
        });
        // Each at the end, so that the same can be done to the template that the pod was made from.
        let mut operations = Vec::new();
        if trial.view().is_none_or(|pod| pod.spec().is_none_or(|spec| spec.tolerations.is_none())) {
            operations.push(set(&["spec", "tolerations"], json!([])));
        }
        operations.extend(more.map(|t| set(&["spec", "tolerations", "-"], t)));
        let change = Change::patch(&trial.key, operations);
        out.push(Remedy::one(Harm::Looser, format!("let the pod tolerate the {noun} {names}"), change));
    }
    out
}

/// What of a term does not hold for a node.
struct Misses {
    at: usize,
    expressions: Vec<(usize, NodeSelectorRequirement)>,
    fields: usize,
    total: usize,
}

pub(super) fn affinity(trial: &Trial, info: Option<&NodeInfo>) -> Vec<Remedy> {
    let spec = trial.view().and_then(|pod| pod.spec());
    let affinity = spec.and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    let drop_required = unset(&["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"]);
    let Some(info) = info else {
        let text = "remove the pod's required node affinity, whose terms contradict each other";
        return vec![Remedy::one(Harm::Looser, text, Change::patch(&trial.key, vec![drop_required]))];
    };
    let terms = required.map(|required| required.node_selector_terms.as_slice()).unwrap_or_default();
    let selector = spec.and_then(|spec| spec.node_selector.as_ref()).into_iter().flatten();
    let selector: Vec<(&String, &str)> =
        selector.map(|(k, v)| (k, v.as_str())).filter(|(k, v)| info.node.label(k) != Some(v)).collect();
    let matched = required.is_none() || terms.iter().any(|t| holds(t, info));
    let nearest = (!matched)
        .then(|| {
            terms.iter().enumerate().map(|(at, t)| misses(at, t, info)).min_by_key(|m| (m.fields, m.expressions.len()))
        })
        .flatten();
    let mut out = Vec::new();
    out.extend(label_node(trial, info, &selector, nearest.as_ref(), matched));
    let mut operations: Vec<_> = selector.iter().map(|(k, _)| unset(&["spec", "nodeSelector", k])).collect();
    let mut what: Vec<String> = selector.iter().map(|(k, v)| format!("nodeSelector {k}={v}")).collect();
    match nearest {
        _ if matched => {}
        // Expressions of labels can go one by one, as long as something of the term is left.
        Some(m) if m.fields == 0 && m.expressions.len() < m.total => {
            let term = m.at.to_string();
            for (i, e) in m.expressions.iter().rev() {
                let path = ["spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
                let mut path = path.to_vec();
                let i = i.to_string();
                path.extend(["nodeSelectorTerms", &term, "matchExpressions", &i]);
                operations.push(unset(&path));
                what.push(format!("the requirement {}", expression(e)));
            }
        }
        _ => {
            operations.push(drop_required);
            what.push("the required node affinity".into());
        }
    }
    if !operations.is_empty() {
        let text = format!("remove {} from the pod", super::join(&what));
        out.push(Remedy::one(Harm::Looser, text, Change::patch(&trial.key, operations)));
    }
    out
}

pub(crate) fn holds(term: &NodeSelectorTerm, info: &NodeInfo) -> bool {
    CompiledTerm::compile(term).is_ok_and(|t| t.matches(&info.node.name, &info.node.labels))
}

fn misses(at: usize, term: &NodeSelectorTerm, info: &NodeInfo) -> Misses {
    let alone = |expressions, fields| NodeSelectorTerm { match_expressions: expressions, match_fields: fields };
    let expressions = term.match_expressions.iter().flatten().enumerate();
    let missing = expressions.filter(|(_, e)| !holds(&alone(Some(vec![(*e).clone()]), None), info));
    let fields = term.match_fields.iter().flatten();
    Misses {
        at,
        expressions: missing.map(|(i, e)| (i, e.clone())).collect(),
        fields: fields.filter(|f| !holds(&alone(None, Some(vec![(*f).clone()])), info)).count(),
        total: term.match_expressions.iter().flatten().count() + term.match_fields.iter().flatten().count(),
    }
}

pub(crate) fn expression(e: &NodeSelectorRequirement) -> String {
    let values = e.values.clone().unwrap_or_default();
    if values.is_empty() {
        format!("{} {}", e.key, e.operator)
    } else {
        format!("{} {} [{}]", e.key, e.operator, values.join(", "))
    }
}

/// The node gets the labels that the pod asks for.
fn label_node(
    trial: &Trial,
    info: &NodeInfo,
    selector: &[(&String, &str)],
    nearest: Option<&Misses>,
    matched: bool,
) -> Option<Remedy> {
    let mut wanted: Vec<(String, Option<String>)> =
        selector.iter().map(|(k, v)| ((*k).clone(), Some((*v).to_owned()))).collect();
    if !matched {
        let nearest = nearest.filter(|m| m.fields == 0 && m.total > 0)?;
        for (_, e) in &nearest.expressions {
            let first = e.values.as_ref().and_then(|v| v.first());
            let number = || first.and_then(|v| v.parse::<i64>().ok());
            let value = match e.operator.as_str() {
                "In" => Some(first?.clone()),
                "Exists" => Some("true".into()),
                "Gt" => Some((number()?.checked_add(1)?).to_string()),
                "Lt" => Some((number()?.checked_sub(1)?).to_string()),
                _ => None,
            };
            wanted.push((e.key.clone(), value));
        }
    }
    // A host's name is not a label to play with.
    if wanted.is_empty() || wanted.iter().any(|(k, _)| k == HOSTNAME) {
        return None;
    }
    let raw = raw_node(trial, info);
    let mut operations = Vec::new();
    let mut what = Vec::new();
    let mut harm = Harm::None;
    for (key, value) in &wanted {
        if info.node.labels.contains_key(key) {
            harm = Harm::Looser;
        }
        match value {
            Some(value) => {
                operations.extend(set_in(raw, &["metadata", "labels"], key, value.as_str()));
                what.push(format!("{key}={value}"));
            }
            None => {
                operations.push(unset(&["metadata", "labels", key]));
                what.push(format!("{key}-"));
            }
        }
    }
    let text = format!("label node {} {}", info.node.name, what.join(" "));
    Some(Remedy::one(harm, text, Change::patch(&node_key(info), operations)))
}
