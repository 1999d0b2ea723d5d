//! The pods of a workload: where each runs, whether it is ready, and what it waits for.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde::Serialize;
use stead_model::{ModelError, NodeView, ObjectKey, Objects, PodView};

use crate::explanation::{OfferedFix, PodState, explain_placement};
use crate::remedies::join;
use crate::suggested_command::{ClientAtHand, SuggestedCommand};
use crate::topology::pods_of_workload;
use crate::wrap::{hanging, wrapped};

/// A pod of a workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPod {
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
    /// Its state, in a few words.
    pub state: String,
    /// Why no node can run it, where that is so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<WaitingForNode>,
}

impl WorkloadPod {
    /// Writes the commands of its fix for this client.
    pub(crate) fn use_client(&mut self, client: &ClientAtHand) {
        let Some(waiting) = &mut self.waiting else { return };
        let fix = waiting.best.iter_mut().flat_map(|fix| &mut fix.commands);
        fix.chain([&mut waiting.details]).for_each(|command| command.use_client(client));
    }
}

/// Whether nothing is wrong with a workload.
pub(crate) fn is_well(faults: &[String], ready: usize, wanted: u64) -> bool {
    faults.is_empty() && u64::try_from(ready).is_ok_and(|ready| ready >= wanted)
}

/// Why no node can run a pod, in short.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingForNode {
    /// The reasons, with the number of nodes of each.
    pub reasons: Vec<String>,
    /// The best fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best: Option<OfferedFix>,
    /// How many other fixes there are.
    pub others: usize,
    /// The command that shows all of it.
    #[serde(skip)]
    details: SuggestedCommand,
}

/// How many waiting pods are explained: the others wait for the same reason as a rule, and each costs a search.
const LOOK_INTO: usize = 12;

/// Describes pods one after the other.
pub(crate) struct Observer<'a> {
    objects: &'a Objects,
    kinds: &'a BTreeSet<String>,
    left: usize,
}

impl<'a> Observer<'a> {
    pub(crate) fn new(objects: &'a Objects, kinds: &'a BTreeSet<String>) -> Observer<'a> {
        Observer { objects, kinds, left: LOOK_INTO }
    }

    /// The pods of a StatefulSet, Deployment or DaemonSet.
    pub(crate) fn pods_of(
        &mut self,
        workload: &ObjectKey,
        domain: Option<&str>,
    ) -> Result<Vec<WorkloadPod>, ModelError> {
        let objects = self.objects;
        let mut out = Vec::new();
        for pod in pods_of_workload(objects, workload) {
            out.push(self.pod(pod, domain)?);
        }
        Ok(out)
    }

    fn pod(&mut self, pod: PodView, domain: Option<&str>) -> Result<WorkloadPod, ModelError> {
        let node = pod.node().and_then(|name| self.objects.node(name).ok().flatten());
        let ready = pod.is_ready() && !pod.is_terminating();
        let waits = pod.phase() == "Pending" && pod.node().is_none() && !pod.is_terminating();
        let mut described = WorkloadPod {
            name: pod.name().to_owned(),
            node: pod.node().map(str::to_owned),
            domain: node.and_then(|n| zone(n, domain)),
            ready,
            state: state(pod, ready),
            waiting: None,
        };
        if let Some(node) = node.filter(|n| n.condition("Ready").is_none_or(|ready| ready.status != "True")) {
            let _ = write!(described.state, "; node {} is not ready", node.name());
        }
        if waits && self.left > 0 {
            self.left -= 1;
            self.explain(pod.key(), &mut described)?;
        }
        Ok(described)
    }

    fn explain(&self, key: &ObjectKey, described: &mut WorkloadPod) -> Result<(), ModelError> {
        let explained = explain_placement(self.objects, key, self.kinds)?;
        if explained.state != PodState::Unschedulable {
            described.state = explained.summary;
            return Ok(());
        }
        let others = explained.fixes.len().saturating_sub(1);
        let reasons = explained.reasons.iter().map(|r| format!("{} x {}", r.nodes.len(), r.reason)).collect();
        let best = explained.fixes.into_iter().next();
        let details = SuggestedCommand::stead(format!("explain pod/{} -n {}", key.name, key.namespace));
        described.waiting = Some(WaitingForNode { reasons, best, others, details });
        Ok(())
    }
}

/// The value of a label of a node, or else of the usual labels of zones.
pub(crate) fn zone(node: NodeView, key: Option<&str>) -> Option<String> {
    let keys = key.into_iter().chain(["topology.kubernetes.io/zone", "zone"]);
    keys.into_iter().find_map(|key| node.label(key)).map(str::to_owned)
}

/// The state of a pod, in a few words.
fn state(pod: PodView, ready: bool) -> String {
    if let Some(due) = &pod.metadata().deletion_timestamp {
        return format!("Terminating since {}", due.0);
    }
    if ready {
        return "Ready".into();
    }
    let waiting: BTreeSet<String> = pod
        .container_statuses()
        .filter_map(|container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            let reason = waiting.reason.as_ref()?;
            Some(waiting.message.as_ref().map_or_else(|| reason.clone(), |message| format!("{reason}: {message}")))
        })
        .collect();
    let waiting: Vec<String> = waiting.into_iter().collect();
    match (pod.phase(), waiting.is_empty()) {
        ("Pending" | "Running", false) => join(&waiting),
        ("Running", true) => {
            let (all, ready) = (pod.container_statuses().count(), pod.container_statuses().filter(|c| c.ready).count());
            format!("Running, not ready ({ready} of {all} containers are)")
        }
        (phase, _) => phase.to_owned(),
    }
}

/// Writes why no node can run a pod, below it.
pub(crate) fn render_waiting(out: &mut String, pod: &WorkloadPod) {
    let Some(waiting) = &pod.waiting else { return };
    let _ = writeln!(out, "  {}: no node can run it", pod.name);
    match &waiting.best {
        Some(best) => {
            hanging(out, "    best fix: ", "      ", &format!("{}; {}", best.text, best.harm.as_str()));
            for line in &best.also {
                hanging(out, "      ", "      ", line);
            }
            for line in best.commands.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n").lines() {
                let _ = writeln!(out, "      {line}");
            }
        }
        None => out.push_str("    no fix was found in up to three changes\n"),
    }
    for reason in &waiting.reasons {
        wrapped(out, "    ", reason);
    }
    let more = match waiting.others {
        0 => "details by node".to_owned(),
        1 => "details by node, and 1 other fix".to_owned(),
        n => format!("details by node, and {n} other fixes"),
    };
    let _ = writeln!(out, "    {more}: {}", waiting.details);
}
