//! The output of `stead recover`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;
use stead_explain::table;
use stead_model::{NodeHealth, Readiness};
use stead_recovery::{
    LeftAlone, NextStep, NodeRecovery, PlannedPod, RecordedStep, RecoveryEnd, RecoveryPhase, RecoveryPlan,
    RecoveryWrite, ReplacementTarget, Statement, Wait,
};

use super::when_ready::ReadyTimes;
use crate::output;

/// The plan, before anything is done: the verdict first.
pub(super) fn plan(
    node: &NodeHealth<'_>,
    record: Option<&NodeRecovery>,
    plan: &RecoveryPlan,
    ready: &ReadyTimes,
    now: Timestamp,
) -> String {
    if let Some(record) = record.filter(|record| record.status.phase > RecoveryPhase::Held) {
        let (name, phase) = (record.name(), record.status.phase);
        return format!("node {}: recovery {name} is in progress: {phase:?}\n{}", node.name(), health(node, now));
    }
    let mut out = format!("node {}: {}\n{}", node.name(), verdict(plan, ready, now), health(node, now));
    if let Some(record) = record {
        let _ = writeln!(out, "  recovery {} is recorded: {:?}", record.name(), record.status.phase);
    }
    if !plan.pods.is_empty() {
        out.push_str("\nPods to release, in this order\n");
    }
    for pod in plan.pods.iter().filter(|pod| !pod.released_earlier) {
        let _ = write!(out, "  - {}", pod.full_name());
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
            ReplacementTarget::Nodes(nodes) => {
                let ready = ready.of(pod).map(|at| format!("; Ready at {}", ahead(now, at)));
                let nodes = first(nodes, pod.feasible_nodes());
                writeln!(out, "      replacement pod on {nodes}{}", ready.unwrap_or_default())
            }
            ReplacementTarget::NoNode(why) => writeln!(out, "      replacement pod stays Pending: {why}"),
            ReplacementTarget::NotRecreated => writeln!(out, "      will not be recreated"),
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

/// What a recovery would release, and when the pods are Ready again if it starts now.
fn verdict(plan: &RecoveryPlan, ready: &ReadyTimes, now: Timestamp) -> String {
    let pods: Vec<&PlannedPod> = plan.pods.iter().filter(|pod| !pod.released_earlier).collect();
    let volumes = plan.released_volumes().count();
    if pods.is_empty() && volumes == 0 {
        return "nothing to release".to_owned();
    }
    let mut out = format!("{} and {} to release", count(pods.len(), "pod"), count(volumes, "volume"));
    let ready: Vec<Timestamp> = pods.iter().filter_map(|pod| ready.of(pod)).collect();
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
pub(super) fn abort(node: &NodeHealth<'_>, record: Option<&NodeRecovery>, now: Timestamp) -> String {
    match record {
        None => format!("node {}: no recovery to undo\n{}", node.name(), health(node, now)),
        Some(record) => format!(
            "node {}: recovery {} ({:?}) would be undone: its taint, its annotation and the added tolerations are removed\n{}",
            node.name(),
            record.name(),
            record.status.phase,
            health(node, now)
        ),
    }
}

/// The plan for programs: as in the record, with the time at which each pod will be Ready again.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShownPlan<'a> {
    pods: Vec<ShownPod<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    left_alone: &'a [LeftAlone],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    volumes: &'a [String],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownPod<'a> {
    #[serde(flatten)]
    pod: &'a PlannedPod,
    /// Null if it will not be Ready, or if that is unknown.
    ready_at: Option<Timestamp>,
}

impl<'a> ShownPlan<'a> {
    pub(super) fn new(plan: &'a RecoveryPlan, ready: &ReadyTimes) -> ShownPlan<'a> {
        ShownPlan {
            pods: plan.pods.iter().map(|pod| ShownPod { pod, ready_at: ready.of(pod) }).collect(),
            left_alone: &plan.left_alone,
            volumes: &plan.volumes,
        }
    }
}

/// A time in the future, and how far away it is.
fn ahead(now: Timestamp, then: Timestamp) -> String {
    format!("{then:.0}, in {}", age(then, now))
}

/// The node's health, as a line.
fn health(node: &NodeHealth<'_>, now: Timestamp) -> String {
    let readiness = match node.readiness {
        Readiness::Ready => "Ready",
        Readiness::NotReady => "NotReady, reported by its kubelet",
        Readiness::Unknown => "unreachable",
    };
    let mut out = format!("  {readiness}");
    if let Some(heard) = node.last_heard() {
        let _ = write!(out, ", last heartbeat {} ago ({heard:.0})", age(now, heard));
    }
    if let Some(zone) = node.zone() {
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

/// The best node, and how many others there are.
fn first(nodes: &[String], feasible: usize) -> String {
    match nodes {
        [] => "no node".to_owned(),
        [one] => one.clone(),
        [best, other] => format!("{best} or {other}"),
        [best, ..] => format!("{best}, or one of {} others", feasible.saturating_sub(1)),
    }
}

/// All recoveries, one per line.
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
            evidence.map(|e| e.statement.by.clone()).unwrap_or_default(),
            begun.unwrap_or_default(),
            record.status.message.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = records.iter().map(row).collect();
    table(&["NAME", "NODE", "PHASE", "EVIDENCE", "BY", "AGE", "MESSAGE"], &rows)
}

/// One recovery, with everything that was recorded.
pub(super) fn status(record: &NodeRecovery) -> String {
    let (spec, status) = (&record.spec, &record.status);
    let mut out = format!("recovery {} of node {}: {:?}\n", record.name(), spec.node.name, status.phase);
    let by = |statement: &Statement| match statement.words.as_str() {
        "" => format!("{} at {:.0}", statement.by, statement.at),
        words => format!("{} at {:.0}: {words}", statement.by, statement.at),
    };
    for evidence in &spec.evidence {
        let _ = writeln!(out, "  evidence {:?}: {}", evidence.kind, by(&evidence.statement));
    }
    if let Some(abort) = &spec.abort {
        let _ = writeln!(out, "  aborted by {}", by(abort));
    }
    for pod in &spec.plan.pods {
        let _ = writeln!(out, "  pod {} (UID {})", pod.full_name(), pod.uid);
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

/// The last line; an error if the recovery was refused.
pub(super) fn end(node: &str, end: &RecoveryEnd, record: Option<&NodeRecovery>) -> anyhow::Result<String> {
    Ok(match end {
        RecoveryEnd::Recovered => format!(
            "node {node}: recovered. The taint stays until the node is back: run stead recover node/{node} again then\n{}",
            record.map(still_there).unwrap_or_default()
        ),
        RecoveryEnd::Returned => format!("node {node}: back in service, the taint is removed\n"),
        RecoveryEnd::Undone => format!("node {node}: undone, the taint is removed\n"),
        RecoveryEnd::Refused(refusal) => return Err(refusal.clone().into()),
    })
}

/// The pods that a recovery has left alone, and how they can be released later.
fn still_there(record: &NodeRecovery) -> String {
    let pods = record.spec.plan.left_alone.iter().filter(|left| left.uid.is_some() && !left.expendable);
    let names: Vec<&str> = pods.map(|left| left.what.as_str()).collect();
    match names.as_slice() {
        [] => String::new(),
        names => format!(
            "left alone: {}\nIf you delete one of them while the taint is there, it is removed at once and its volumes are detached\n",
            names.join(", ")
        ),
    }
}

/// Shows the progress on standard error, each line once.
pub(super) struct Progress {
    begun: Instant,
    shown: Vec<String>,
    phases: Vec<(RecoveryPhase, Duration)>,
    /// When the taint was applied: Stead's own part.
    tainted: Duration,
    /// The last step that was shown.
    last_step: Option<RecordedStep>,
}

impl Progress {
    pub(super) fn new(begun: Instant) -> Progress {
        Progress { begun, shown: Vec::new(), phases: Vec::new(), tainted: Duration::ZERO, last_step: None }
    }

    /// What the recovery waits for.
    pub(super) fn waits(&self) -> String {
        self.shown.join("; ")
    }

    pub(super) fn show(&mut self, step: &NextStep, record: Option<&NodeRecovery>) {
        if let Some(record) = record
            && self.phases.last().is_none_or(|(phase, _)| *phase != record.status.phase)
        {
            self.phases.push((record.status.phase, self.begun.elapsed()));
        }
        let waits: Vec<String> = step.waits.iter().map(Wait::to_string).collect();
        for wait in waits.iter().filter(|w| !self.shown.contains(w)) {
            self.line(&format!("waiting for {wait}"));
        }
        if step.write.is_none() || !waits.is_empty() {
            self.shown = waits;
        }
    }

    pub(super) fn done(&mut self, write: &RecoveryWrite) {
        let what = match write {
            RecoveryWrite::Record(record) => match record.status.steps.last() {
                Some(step) if self.last_step.as_ref() != Some(step) => {
                    self.last_step = Some(step.clone());
                    step.what.clone()
                }
                _ => return,
            },
            RecoveryWrite::Node { name, what, .. } => format!("node {name}: {what}"),
            RecoveryWrite::Pod { namespace, name, what, .. } => format!("pod {namespace}/{name}: {what}"),
            RecoveryWrite::DeletePod { namespace, name, .. } => format!("pod {namespace}/{name}: deleted"),
        };
        if matches!(write, RecoveryWrite::Node { .. }) && self.tainted == Duration::ZERO {
            self.tainted = self.begun.elapsed();
        }
        self.line(&what);
    }

    fn line(&self, text: &str) {
        // The recovery continues even if nobody can read this.
        let _ = writeln!(io::stderr(), "{:7.1} s  {text}", self.begun.elapsed().as_secs_f64());
    }

    /// How long each part took.
    pub(super) fn summary(&self, node: &str, record: Option<&NodeRecovery>, end: &RecoveryEnd) -> anyhow::Result<()> {
        if *end != RecoveryEnd::Recovered || self.phases.len() < 2 {
            return Ok(());
        }
        let pods = match record.map_or(0, |r| r.spec.plan.pods.len()) {
            1 => "1 pod".to_owned(),
            pods => format!("{pods} pods"),
        };
        let mut out = format!("node {node}: {pods} recovered; seconds since the call\n");
        let at = |phase: RecoveryPhase| self.phases.iter().find(|(p, _)| *p == phase).map(|(_, at)| at.as_secs_f64());
        if self.tainted > Duration::ZERO {
            let _ = writeln!(out, "{:7.1} s  planned, recorded and tainted by Stead", self.tainted.as_secs_f64());
        }
        if let Some(at) = at(RecoveryPhase::Released) {
            let _ = writeln!(out, "{at:7.1} s  pods removed and volumes detached by Kubernetes");
        }
        if let Some(at) = at(RecoveryPhase::Recovered) {
            let _ = writeln!(out, "{at:7.1} s  replacement pods Ready");
        }
        output::text(&out)
    }
}
