//! Candidate fixes for a rejection: one file for each part of a pod or a cluster that can change.
//!
//! Whether a candidate helps is decided by trying it on a fork.

mod labels;
mod node_rules;
mod pod_rules;
mod resources;
mod spread;
mod volumes;

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use stead_placement::{NodeInfo, Plugin, Pod, Rejection};

use crate::change::{Change, Trial};
use stead_model::ObjectKey;

/// What a fix costs, from nothing to data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Harm {
    /// Nothing is given up.
    None,
    /// A rule is relaxed.
    Looser,
    /// It depends on a fact that only a person knows.
    Trusts,
    /// The pod gets less than it requested.
    Smaller,
    /// Other pods are deleted.
    Disrupts,
    /// It needs another machine.
    Buys,
    /// Data is left behind, where the pod no longer has it.
    Data,
    /// Data is deleted.
    Loses,
}

impl Harm {
    /// In a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            Harm::None => "nothing is given up",
            Harm::Looser => "a rule is relaxed",
            Harm::Trusts => "only if that is true",
            Harm::Smaller => "the pod gets fewer resources",
            Harm::Disrupts => "other pods are deleted",
            Harm::Buys => "needs another machine",
            Harm::Data => "DATA STAYS BEHIND",
            Harm::Loses => "DATA IS DELETED",
        }
    }
}

/// A candidate fix: its text, what it costs, and its changes.
#[derive(Debug, Clone)]
pub(crate) struct Remedy {
    pub(crate) text: String,
    pub(crate) harm: Harm,
    pub(crate) changes: Vec<Change>,
}

impl Remedy {
    fn new(harm: Harm, text: impl Into<String>, changes: Vec<Change>) -> Remedy {
        Remedy { text: text.into(), harm, changes }
    }

    fn one(harm: Harm, text: impl Into<String>, change: Change) -> Remedy {
        Remedy::new(harm, text, vec![change])
    }
}

/// Candidate fixes for a rejection by a node, or by all nodes at once where none is given.
pub(crate) fn for_rejection(trial: &Trial, info: Option<&NodeInfo>, rejection: &Rejection) -> Vec<Remedy> {
    match (rejection.plugin, info) {
        (Plugin::NodeUnschedulable, Some(info)) => node_rules::uncordon(trial, info),
        (Plugin::TaintToleration, Some(info)) => node_rules::taints(trial, info),
        (Plugin::NodeAffinity, info) => node_rules::affinity(trial, info),
        (Plugin::NodePorts, Some(info)) => pod_rules::ports(trial, info),
        (Plugin::NodeResourcesFit, Some(info)) => resources::remedies(trial, info),
        (Plugin::VolumeRestrictions | Plugin::NodeVolumeLimits | Plugin::VolumeBinding | Plugin::VolumeZone, info) => {
            volumes::remedies(trial, info, rejection.plugin)
        }
        (Plugin::PodTopologySpread, Some(info)) => spread::remedies(trial, info),
        (Plugin::InterPodAffinity, Some(info)) => pod_rules::affinity(trial, info, &rejection.reasons),
        (Plugin::NodeDeclaredFeatures, _) => pod_rules::features(trial),
        _ => Vec::new(),
    }
}

pub(crate) use labels::known_value;
pub(crate) use node_rules::{by_kubernetes, expression, holds};
pub(crate) use pod_rules::{in_domain, selects};
pub(crate) use resources::{make_room, new_nodes, shown};
pub(crate) use spread::skew;
pub(crate) use volumes::{held_once, same_disk};

fn node_key(info: &NodeInfo) -> ObjectKey {
    ObjectKey::node(&info.node.name)
}

fn pod_key(pod: &Pod) -> ObjectKey {
    ObjectKey::pod(&pod.key.namespace, &pod.key.name)
}

/// The node as it was found.
fn raw_node<'a>(trial: &'a Trial, info: &NodeInfo) -> &'a Value {
    trial.objects.raw(&node_key(info)).unwrap_or(&Value::Null)
}

/// The highest number of pods that one fix deletes.
const MOST_LEAVING: usize = 3;

/// Deletes these pods, if they are not too many and none of them belongs to its node.
fn leave(trial: &Trial, pods: &[&Arc<Pod>]) -> Option<Remedy> {
    if pods.is_empty() || pods.len() > MOST_LEAVING || pods.iter().any(|p| stays(trial, p)) {
        return None;
    }
    let names: Vec<String> = pods.iter().map(|p| p.key.to_string()).collect();
    let noun = if pods.len() == 1 { "pod" } else { "pods" };
    let text = format!("delete {noun} {}", join(&names));
    let changes = pods.iter().map(|p| Change::delete(&pod_key(p))).collect();
    Some(Remedy::new(Harm::Disrupts, text, changes))
}

/// Whether a pod belongs to its node: a DaemonSet's, or a static pod.
fn stays(trial: &Trial, pod: &Pod) -> bool {
    let daemon = pod.spec.controller.as_ref().is_some_and(|o| matches!(&*o.kind, "DaemonSet" | "Node"));
    let mirror = || trial.objects.pod(&pod_key(pod)).ok().flatten().is_some_and(|pod| pod.is_mirror());
    daemon || mirror()
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn join(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}
