//! What people see of a recovery.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::Value;
use stead_explain::outage::{NodeStanding, Readiness};
use stead_explain::table;
use stead_recovery::{CondemnedPod, Deed, End, NodeRecovery, Phase, Plan, Said, Step, Target, Took};

use crate::output;

/// The plan, before anything is done: the verdict first. `foreseen` says when each pod, by namespace and name, would be
/// Ready again.
pub(super) fn plan(
    node: &NodeStanding,
    record: Option<&NodeRecovery>,
    plan: &Plan,
    foreseen: &BTreeMap<String, Timestamp>,
    now: Timestamp,
) -> String {
    if let Some(record) = record.filter(|record| record.status.phase > Phase::Held) {
        let (name, phase) = (record.name(), record.status.phase);
        return format!("node {}: recovery {name} is in progress: {phase:?}\n{}", node.name, health(node, now));
    }
    let mut out = format!("node {}: {}\n{}", node.name, verdict(plan, foreseen, now), health(node, now));
    if let Some(record) = record {
        let _ = writeln!(out, "  recovery {} is recorded: {:?}", record.name(), record.status.phase);
    }
    if !plan.pods.is_empty() {
        out.push_str("\nPods to release, in this order\n");
    }
    // What was released before is not released again.
    for pod in plan.pods.iter().filter(|pod| !pod.taken) {
        let _ = write!(out, "  - {}/{}", pod.namespace, pod.name);
        if let Some(owner) = &pod.owner {
            let _ = write!(out, " of {owner}");
        }
        if pod.terminating {
            out.push_str(", Terminating");
        }
        if pod.tolerates {
            out.push_str(", tolerates the taint");
        }
        out.push('\n');
        for volume in &pod.volumes {
            let _ = writeln!(out, "      volume {volume} is detached");
        }
        let _ = match &pod.target {
            Target::Nodes(nodes) => {
                let ready = ready_at(pod, foreseen).map(|at| format!("; Ready at {}", ahead(now, at)));
                let nodes = first(nodes, pod.feasible_nodes());
                writeln!(out, "      replacement pod on {nodes}{}", ready.unwrap_or_default())
            }
            Target::Nowhere(why) => writeln!(out, "      replacement pod stays Pending: {why}"),
            Target::Gone => writeln!(out, "      will not be recreated"),
        };
    }
    if !plan.volumes.is_empty() {
        out.push_str("\nVolumes to detach that no pod on this node uses\n");
    }
    for volume in &plan.volumes {
        let _ = writeln!(out, "  - {volume}");
    }
    if !plan.left_alone.is_empty() {
        out.push_str("\nLeft alone\n");
    }
    for left in &plan.left_alone {
        let _ = writeln!(out, "  - {}: {}", left.what, left.why);
    }
    if !plan.is_empty() {
        out.push_str(
            "\nStead applies the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute. Kubernetes then\n\
             removes the pods (its pod garbage collector runs every 20 s), detaches the volumes and recreates\n\
             the pods. Stead removes the taint when the node is back.\n",
        );
    }
    out
}

/// What a recovery would release, and when all of it is Ready again if it starts now.
fn verdict(plan: &Plan, foreseen: &BTreeMap<String, Timestamp>, now: Timestamp) -> String {
    let pods: Vec<&CondemnedPod> = plan.pods.iter().filter(|pod| !pod.taken).collect();
    let volumes = plan.freed().count();
    if pods.is_empty() && volumes == 0 {
        return "nothing to release".to_owned();
    }
    let mut out = format!("{} and {} to release", count(pods.len(), "pod"), count(volumes, "volume"));
    let ready: Vec<Timestamp> = pods.iter().filter_map(|pod| ready_at(pod, foreseen)).collect();
    if let Some(last) = ready.iter().max() {
        let which =
            if ready.len() == pods.len() { "Ready again".into() } else { format!("{} Ready again", ready.len()) };
        let _ = write!(out, "; {which} in about {}", age(*last, now));
    }
    out
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// What `--abort` would do.
pub(super) fn abort(node: &NodeStanding, record: Option<&NodeRecovery>, now: Timestamp) -> String {
    match record {
        None => format!("node {}: no recovery to undo\n{}", node.name, health(node, now)),
        Some(record) => format!(
            "node {}: recovery {} ({:?}) would be undone: its taint, its annotation and added tolerations go\n{}",
            node.name,
            record.name(),
            record.status.phase,
            health(node, now)
        ),
    }
}

/// The same for programs: the plan as the record has it, and when each pod would be Ready again (null if it would not).
pub(super) fn plan_value(plan: &Plan, foreseen: &BTreeMap<String, Timestamp>) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(plan)?;
    let shown = value["pods"].as_array_mut().into_iter().flatten();
    for (shown, pod) in shown.zip(&plan.pods) {
        shown["readyAt"] = serde_json::to_value(ready_at(pod, foreseen))?;
    }
    Ok(value)
}

/// When the pod in a pod's place would be Ready.
fn ready_at(pod: &CondemnedPod, foreseen: &BTreeMap<String, Timestamp>) -> Option<Timestamp> {
    let goes = matches!(pod.target, Target::Nodes(_));
    foreseen.get(&format!("{}/{}", pod.namespace, pod.name)).copied().filter(|_| goes)
}

/// A moment to come, and how far away it is.
fn ahead(now: Timestamp, then: Timestamp) -> String {
    format!("{then:.0}, in {}", age(then, now))
}

/// The node's health, as a line.
fn health(node: &NodeStanding, now: Timestamp) -> String {
    let readiness = match node.readiness {
        Readiness::Ready => "Ready",
        Readiness::NotReady => "NotReady, reported by its kubelet",
        Readiness::Unknown => "unreachable",
    };
    let mut out = format!("  {readiness}");
    if let Some(heard) = node.last_heard() {
        let _ = write!(out, ", last heartbeat {} ago ({heard:.0})", age(now, heard));
    }
    if let Some(zone) = &node.zone {
        let _ = write!(out, ", zone {zone}");
    }
    out.push('\n');
    out
}

fn age(now: Timestamp, then: Timestamp) -> String {
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m{}s", seconds / 60, seconds % 60),
        7200..=172_799 => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d{}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// The best of several, and how many others there are.
fn first(nodes: &[String], feasible: usize) -> String {
    match nodes {
        [] => "no node".to_owned(),
        [one] => one.clone(),
        [best, other] => format!("{best} or {other}"),
        [best, ..] => format!("{best}, or one of {} others", feasible.saturating_sub(1)),
    }
}

/// All recoveries, one a line.
pub(super) fn list(records: &[NodeRecovery], now: Timestamp) -> String {
    if records.is_empty() {
        return "no recoveries\n".to_owned();
    }
    let row = |record: &NodeRecovery| {
        let evidence = record.spec.evidence.last();
        let begun = record.status.steps.first().map(|s| age(now, s.at));
        vec![
            record.name().to_owned(),
            record.spec.node.name.clone(),
            format!("{:?}", record.status.phase),
            evidence.map(|e| format!("{:?}", e.kind)).unwrap_or_default(),
            evidence.map(|e| e.said.by.clone()).unwrap_or_default(),
            begun.unwrap_or_default(),
            record.status.message.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = records.iter().map(row).collect();
    table(&["NAME", "NODE", "PHASE", "EVIDENCE", "BY", "AGE", "MESSAGE"], &rows)
}

/// One recovery, with all that was written down.
pub(super) fn status(record: &NodeRecovery) -> String {
    let (spec, status) = (&record.spec, &record.status);
    let mut out = format!("recovery {} of node {}: {:?}\n", record.name(), spec.node.name, status.phase);
    let said = |said: &Said| match said.words.as_str() {
        "" => format!("{} at {:.0}", said.by, said.at),
        words => format!("{} at {:.0}: {words}", said.by, said.at),
    };
    for evidence in &spec.evidence {
        let _ = writeln!(out, "  evidence {:?}: {}", evidence.kind, said(&evidence.said));
    }
    if let Some(abort) = &spec.abort {
        let _ = writeln!(out, "  aborted by {}", said(abort));
    }
    for pod in &spec.plan.pods {
        let _ = writeln!(out, "  pod {}/{} (uid {})", pod.namespace, pod.name, pod.uid);
    }
    for left in &spec.plan.left_alone {
        let _ = writeln!(out, "  left alone: {}: {}", left.what, left.why);
    }
    out.push_str("steps\n");
    for step in &status.steps {
        let _ = writeln!(out, "  {:.3}  {}", step.at, step.what);
    }
    if !status.message.is_empty() {
        let _ = writeln!(out, "{}", status.message);
    }
    out
}

/// The end, as the last line and the exit code.
pub(super) fn end(node: &str, end: &End, record: Option<&NodeRecovery>) -> anyhow::Result<String> {
    Ok(match end {
        End::Recovered => format!(
            "node {node}: recovered. The taint stays until the node is back: run stead recover node/{node} again then\n{}",
            record.map(still_there).unwrap_or_default()
        ),
        End::Returned => format!("node {node}: back in service, the taint is removed\n"),
        End::Undone => format!("node {node}: undone, the taint is removed\n"),
        End::Refused(_) | End::PowerOffNotStated { .. } => {
            anyhow::bail!("{}", end.refusal().unwrap_or_default());
        }
    })
}

/// What a recovery has left alone, and how it can be freed later, when there is room for it or nobody needs it.
fn still_there(record: &NodeRecovery) -> String {
    let pods = record.spec.plan.left_alone.iter().filter(|left| left.uid.is_some() && !left.passing);
    let names: Vec<&str> = pods.map(|left| left.what.trim_start_matches("pod ")).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(
            "left alone: {}\nIf you delete one of them while the taint is there, it is removed at once and its volumes are detached\n",
            names.join(", ")
        ),
    }
}

/// Tells how far it is, on standard error, each thing once.
pub(super) struct Progress {
    begun: Instant,
    shown: Vec<String>,
    phases: Vec<(Phase, Duration)>,
    /// When the taint was there, which all others wait for.
    own: Duration,
    /// The last step that was told.
    told: Option<Took>,
}

impl Progress {
    pub(super) fn new(begun: Instant) -> Progress {
        Progress { begun, shown: Vec::new(), phases: Vec::new(), own: Duration::ZERO, told: None }
    }

    /// What is waited for.
    pub(super) fn waits(&self) -> String {
        self.shown.join("; ")
    }

    pub(super) fn tell(&mut self, step: &Step, record: Option<&NodeRecovery>) {
        if let Some(record) = record
            && self.phases.last().is_none_or(|(phase, _)| *phase != record.status.phase)
        {
            self.phases.push((record.status.phase, self.begun.elapsed()));
        }
        let waits: Vec<String> = step.waits.iter().map(|w| format!("{}: {}", w.what, w.how)).collect();
        for wait in waits.iter().filter(|w| !self.shown.contains(w)) {
            self.line(&format!("waiting for {wait}"));
        }
        if step.deed.is_none() || !waits.is_empty() {
            self.shown = waits;
        }
    }

    pub(super) fn done(&mut self, deed: &Deed) {
        let what = match deed {
            Deed::Record(record) => match record.status.steps.last() {
                Some(took) if self.told.as_ref() != Some(took) => {
                    self.told = Some(took.clone());
                    took.what.clone()
                }
                _ => return,
            },
            Deed::Node { name, what, .. } => format!("node {name}: {what}"),
            Deed::Pod { namespace, name, what, .. } => format!("pod {namespace}/{name}: {what}"),
            Deed::DeletePod { namespace, name, .. } => format!("pod {namespace}/{name}: deleted"),
        };
        if matches!(deed, Deed::Node { .. }) && self.own == Duration::ZERO {
            self.own = self.begun.elapsed();
        }
        self.line(&what);
    }

    fn line(&self, text: &str) {
        // Whether somebody sees it is of no matter to what is done.
        let _ = writeln!(io::stderr(), "{:7.1} s  {text}", self.begun.elapsed().as_secs_f64());
    }

    /// How long each part took.
    pub(super) fn summary(&self, node: &str, record: Option<&NodeRecovery>, end: &End) -> anyhow::Result<()> {
        if *end != End::Recovered || self.phases.len() < 2 {
            return Ok(());
        }
        let pods = match record.map_or(0, |r| r.spec.plan.pods.len()) {
            1 => "1 pod".to_owned(),
            pods => format!("{pods} pods"),
        };
        let mut out = format!("node {node}: {pods} recovered; seconds since the call\n");
        let at = |phase: Phase| self.phases.iter().find(|(p, _)| *p == phase).map(|(_, at)| at.as_secs_f64());
        if self.own > Duration::ZERO {
            let _ = writeln!(out, "{:7.1} s  planned, recorded and tainted by Stead", self.own.as_secs_f64());
        }
        if let Some(at) = at(Phase::Released) {
            let _ = writeln!(out, "{at:7.1} s  pods removed and volumes detached by Kubernetes");
        }
        if let Some(at) = at(Phase::Recovered) {
            let _ = writeln!(out, "{at:7.1} s  replacement pods Ready");
        }
        output::text(&out)
    }
}
