//! The pods of a workload as they stand: where each is, whether it is ready, and what it waits for.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use crate::explanation::{Offer, State, explain_placement};
use crate::remedies::join;
use stead_model::{ModelError, ObjectKey, Objects};

/// A pod as it stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodStanding {
    /// Its name.
    pub name: String,
    /// Its node, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The node's value of the label that matters: the one that pods are spread by, or the zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Whether it is ready.
    pub ready: bool,
    /// How it is, in a few words.
    pub state: String,
    /// What it waits for, where no node takes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
}

/// Why no node takes a pod, in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// The reasons, with the number of nodes of each.
    pub reasons: Vec<String>,
    /// The best way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<Offer>,
    /// How many other ways out there are.
    pub others: usize,
}

/// So many waiting pods are looked into: the rest wait for the same as a rule, and each costs a search.
const LOOK_INTO: usize = 12;

/// Looks at pods one after the other.
pub(crate) struct Observer<'a> {
    objects: &'a Objects,
    kinds: &'a BTreeSet<String>,
    left: usize,
}

impl<'a> Observer<'a> {
    pub(crate) fn new(objects: &'a Objects, kinds: &'a BTreeSet<String>) -> Observer<'a> {
        Observer { objects, kinds, left: LOOK_INTO }
    }

    /// The pods that a StatefulSet controls.
    pub(crate) fn pods_of(&mut self, set: &ObjectKey, domain: Option<&str>) -> Result<Vec<PodStanding>, ModelError> {
        let objects = self.objects;
        let mut out = Vec::new();
        for (key, pod) in controlled(objects, set) {
            out.push(self.pod(key, pod, domain)?);
        }
        Ok(out)
    }

    fn pod(&mut self, key: &ObjectKey, pod: &Value, domain: Option<&str>) -> Result<PodStanding, ModelError> {
        let name = pod["spec"]["nodeName"].as_str().filter(|n| !n.is_empty());
        let node = name.and_then(|n| self.objects.raw(&ObjectKey::new("Node", "", n)));
        let ready = condition(pod, "Ready") && pod["metadata"]["deletionTimestamp"].is_null();
        let mut standing = PodStanding {
            name: key.name.clone(),
            node: name.map(str::to_owned),
            domain: node.and_then(|n| zone(n, domain)),
            ready,
            state: state(pod, ready),
            waiting: None,
        };
        if let Some(node) = node.filter(|n| !condition(n, "Ready")) {
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            let _ = write!(standing.state, "; node {name} is not ready");
        }
        let waits = standing.state == "Pending" && name.is_none();
        if waits && self.left > 0 {
            self.left -= 1;
            self.look_into(key, &mut standing)?;
        }
        Ok(standing)
    }

    fn look_into(&self, key: &ObjectKey, standing: &mut PodStanding) -> Result<(), ModelError> {
        let explained = explain_placement(self.objects, key, self.kinds)?;
        if explained.state != State::Unschedulable {
            standing.state = explained.summary;
            return Ok(());
        }
        let others = explained.fixes.len().saturating_sub(1);
        let reasons = explained.reasons.iter().map(|r| format!("{} x {}", r.nodes.len(), r.reason)).collect();
        standing.waiting = Some(Waiting { reasons, best: explained.fixes.into_iter().next(), others });
        Ok(())
    }
}

/// The pods that a workload controls, in the order of their names.
pub(crate) fn controlled<'a>(
    objects: &'a Objects,
    owner: &'a ObjectKey,
) -> impl Iterator<Item = (&'a ObjectKey, &'a Value)> {
    objects.raw_of_kind("Pod").filter(move |(key, pod)| {
        let mut owners = pod["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        key.namespace == owner.namespace
            && owners.any(|o| o["controller"] == true && o["kind"] == *owner.kind && o["name"] == *owner.name)
    })
}

fn condition(object: &Value, sort: &str) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == sort && c["status"] == "True")
}

/// The value of a label, or else of the usual labels of zones.
fn zone(node: &Value, key: Option<&str>) -> Option<String> {
    let keys = key.into_iter().chain(["topology.kubernetes.io/zone", "zone"]);
    keys.into_iter().find_map(|k| node["metadata"]["labels"][k].as_str()).map(str::to_owned)
}

/// How a pod is, in a few words.
fn state(pod: &Value, ready: bool) -> String {
    let phase = pod["status"]["phase"].as_str().unwrap_or("Pending");
    if let Some(since) = pod["metadata"]["deletionTimestamp"].as_str() {
        return format!("Terminating since {since}");
    }
    if ready {
        return "Ready".into();
    }
    let containers: Vec<&Value> = ["initContainerStatuses", "containerStatuses"]
        .into_iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
        .collect();
    let waiting: BTreeSet<String> = containers
        .iter()
        .filter_map(|c| {
            let reason = c["state"]["waiting"]["reason"].as_str()?;
            Some(match c["state"]["waiting"]["message"].as_str() {
                Some(message) => format!("{reason}: {message}"),
                None => reason.to_owned(),
            })
        })
        .collect();
    let waiting: Vec<String> = waiting.into_iter().collect();
    match (phase, waiting.is_empty()) {
        ("Pending" | "Running", false) => join(&waiting),
        ("Running", true) => {
            let count = containers.iter().filter(|c| c["ready"] == true).count();
            format!("Running, not ready ({count} of {} containers are)", containers.len())
        }
        _ => phase.to_owned(),
    }
}

/// What a pod waits for, as lines below it.
pub(crate) fn render_waiting(out: &mut String, namespace: &str, pod: &PodStanding) {
    let Some(waiting) = &pod.waiting else { return };
    let _ = writeln!(out, "  {}: none of the nodes takes it", pod.name);
    for reason in &waiting.reasons {
        let _ = writeln!(out, "    {reason}");
    }
    match &waiting.best {
        Some(best) => {
            let _ = writeln!(out, "    best way out: {}; {}", best.text, best.harm.as_str());
            for line in best.also.iter().chain(&best.commands).flat_map(|c| c.lines()) {
                let _ = writeln!(out, "      {line}");
            }
        }
        None => out.push_str("    no way out was found in up to three changes\n"),
    }
    let others = match waiting.others {
        0 => "node by node".to_owned(),
        1 => "node by node, and another way out".to_owned(),
        n => format!("node by node, and {n} other ways out"),
    };
    let _ = writeln!(out, "    {others}: stead explain pod/{} -n {namespace}", pod.name);
}
