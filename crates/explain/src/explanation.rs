//! Everything about one pod.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use stead_model::{KINDS, ModelError, ObjectKey, Objects, PodView, pod_volumes};
use stead_placement::{Attempt, AttemptFault, DEFAULT_SCHEDULER, NodeInfo, Pod, PodSpec, Profiles, evaluate};

use crate::causes::{causes, causes_for_all};
use crate::change::{Change, ChangeAction, Trial};
use crate::commands::{also_used, commands, unescaped, value_of};
use crate::managers::managers_of;
use crate::outage::{self, Clock, Forecast, Future, OutageExplainer, Scene, TimerSetting, check_nodes};
use crate::remedies::{self, Harm};
use crate::search::{self, Fix};
use crate::suggested_command::{ClientAtHand, SuggestedCommand, SuggestsCommands};

/// Why a pod is in its state, and what can be done.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// Namespace and name.
    pub pod: String,
    /// Its state.
    pub state: PodState,
    /// The verdict, in a sentence.
    pub summary: String,
    /// The version of Kubernetes whose rules and wording are used.
    pub kubernetes: String,
    /// What kube-scheduler of this version says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The message in the pod's status, where it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
    /// The reasons, with the nodes of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<Reason>,
    /// Possible fixes, the least harmful first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<OfferedFix>,
    /// Why a pod is Terminating, or has a node and is not Ready: line by line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub why: Vec<String>,
    /// The time of the forecast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Timestamp>,
    /// What each option in an outage leads to.
    pub forecast: Vec<Forecast>,
    /// The timers of the forecast that are not the defaults of the version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timing: Vec<TimerSetting>,
    /// What the answer depends on and was not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The state of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodState {
    /// No node can run it.
    Unschedulable,
    /// A node can run it now.
    Schedulable,
    /// It has a scheduling gate.
    Gated,
    /// It has a node, and nothing is known to be wrong.
    Placed,
    /// It has a node, and is not Ready.
    NotReady,
    /// Its deletion was requested.
    Terminating,
    /// It has succeeded or failed.
    Finished,
    /// It requests something that is not modelled, or uses another scheduler.
    Unknown,
}

/// A reason for a rejection, the nodes that give it, and its causes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    /// The reason, as kube-scheduler prints it.
    pub reason: String,
    /// The nodes.
    pub nodes: Vec<NodeAndZone>,
    /// Its causes, and the nodes of each.
    pub because: Vec<Cause>,
    /// How many of the nodes, from the first on, were examined for causes.
    pub looked_at: usize,
}

/// A node and its zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeAndZone {
    /// The name.
    pub name: String,
    /// Its zone, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// The cause of a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The nodes that it applies to.
    pub nodes: Vec<String>,
    /// The cause.
    pub text: String,
}

/// A possible fix with its commands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OfferedFix {
    /// What to do.
    pub text: String,
    /// What it costs.
    pub harm: Harm,
    /// The nodes that the pod would go to.
    pub nodes: Vec<String>,
    /// The changes that were verified.
    pub changes: Vec<Change>,
    /// What else it affects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<String>,
    /// The commands.
    pub commands: Vec<SuggestedCommand>,
}

impl SuggestsCommands for Explanation {
    fn use_client(&mut self, client: &ClientAtHand) {
        let fixes = self.fixes.iter_mut().flat_map(|fix| &mut fix.commands);
        let forecast = self.forecast.iter_mut().flat_map(|forecast| &mut forecast.commands);
        fixes.chain(forecast).for_each(|command| command.use_client(client));
    }
}

/// Explains a pod, as of a moment. `kinds` are the kinds that were read, even those without objects.
pub fn explain(
    objects: &Objects,
    key: &ObjectKey,
    kinds: &BTreeSet<String>,
    clock: &Clock,
) -> Result<Explanation, ModelError> {
    let trial = Trial::new(objects, key)?;
    let mut out = explain_trial(&trial, kinds)?;
    let Some(pod) = objects.pod(key)? else { return Ok(out) };
    if !matches!(out.state, PodState::Placed | PodState::Terminating | PodState::Unschedulable) {
        return Ok(out);
    }
    check_nodes(objects)?;
    let scene = Scene::of(objects, clock, pod);
    let lost = scene.lost.contains(key) && scene.node.is_some();
    let mut troubled = scene.node.is_some() || scene.deployment.is_some() || out.state == PodState::Terminating;
    let future = match troubled || (scene.held && is_waiting(pod)) || outage::is_on_not_ready_node(objects, clock, pod)
    {
        true => {
            // The cluster includes the pod.
            let mut cluster = trial.cluster;
            if let Some(object) = objects.object(key) {
                cluster.put_object(object)?;
            }
            Some(Future::of(objects, clock, &cluster, &[pod])?)
        }
        false => None,
    };
    let why = OutageExplainer { objects, clock, kinds, future: future.as_ref() };
    match out.state {
        PodState::Terminating => {
            out.why = why.terminating(pod, &scene);
            let place = pod.node().map(|n| format!(" on node {n}")).unwrap_or_default();
            let since = pod.deletion_requested().map(|at| outage::when(at, clock.now)).unwrap_or_default();
            out.summary = format!("Terminating{place} since {since}");
        }
        PodState::Placed if lost => {
            out.state = PodState::NotReady;
            out.why = why.left_behind(pod);
            out.summary = format!("{} on node {}, which is unreachable", pod.phase(), pod.node().unwrap_or_default());
        }
        PodState::Placed if is_waiting(pod) => {
            out.state = PodState::NotReady;
            out.why = why.not_ready(pod, &scene);
            out.summary = format!("{} on node {}, not Ready", status(pod), pod.node().unwrap_or_default());
            troubled |= scene.held;
        }
        PodState::Placed => out.why = why.on_not_ready_node(pod),
        PodState::Unschedulable => out.why = why.out_of_reach(pod),
        _ => {}
    }
    if troubled || out.state == PodState::NotReady {
        let claims = !pod_volumes(objects, pod).is_empty();
        out.notes.extend(unread(kinds, |kind| claims || matches!(kind, "Lease" | "Event")));
        out.as_of = Some(clock.now);
    }
    if troubled {
        out.timing.clone_from(&clock.settings);
        out.forecast = future.map(|future| outage::forecasts(objects, clock, &future, pod, &scene)).unwrap_or_default();
    }
    Ok(out)
}

/// Whether a pod that has a node is not Ready. A running pod without a Ready condition has reported nothing yet.
fn is_waiting(pod: PodView) -> bool {
    !pod.is_ready() && (pod.phase() == "Pending" || pod.condition("Ready").is_some())
}

/// The status of a pod that is not Ready, as kubectl shows it.
fn status(pod: PodView) -> String {
    let waiting = pod.container_statuses().filter_map(|c| c.state.as_ref()?.waiting.as_ref()?.reason.as_deref());
    match waiting.max_by_key(|r| !matches!(*r, "ContainerCreating" | "PodInitializing")) {
        Some(reason) => reason.to_owned(),
        None if pod.phase() == "Pending" => "ContainerCreating".to_owned(),
        None => pod.phase().to_owned(),
    }
}

/// Kinds that were not read although the answer depends on them.
pub(crate) fn unread(kinds: &BTreeSet<String>, matters: impl Fn(&str) -> bool) -> Vec<String> {
    let table = [
        ("Lease", "leases", "the time of a node's last heartbeat is known from its conditions only"),
        ("Event", "events", "what controllers and kubelets reported is missing"),
        (
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            "which volumes are used is unknown, and waits for them are not predicted",
        ),
        (
            "PersistentVolume",
            "persistentvolumes",
            "whether and where volumes have to be attached is unknown, and waits for them are not predicted",
        ),
        (
            "VolumeAttachment",
            "volumeattachments",
            "where volumes are attached is unknown, and waits for them are not predicted",
        ),
    ];
    let missing = table.into_iter().filter(|(kind, _, _)| matters(kind) && !kinds.contains(*kind));
    missing.map(|(_, plural, lost)| format!("{plural} were not read: {lost}")).collect()
}

/// Explains why a pod waits for a node, if it does. This needs no clock.
pub fn explain_placement(
    objects: &Objects,
    key: &ObjectKey,
    kinds: &BTreeSet<String>,
) -> Result<Explanation, ModelError> {
    explain_trial(&Trial::new(objects, key)?, kinds)
}

fn explain_trial(trial: &Trial, kinds: &BTreeSet<String>) -> Result<Explanation, ModelError> {
    let (objects, key) = (&trial.objects, &trial.key);
    let pod = objects.pod(key)?.ok_or_else(|| ModelError::NotFound(key.clone()))?;
    let mut out = Explanation {
        pod: format!("{}/{}", key.namespace, key.name),
        state: PodState::Unknown,
        summary: String::new(),
        kubernetes: objects.version().to_string(),
        message: None,
        status_message: None,
        reasons: Vec::new(),
        fixes: Vec::new(),
        why: Vec::new(),
        as_of: None,
        forecast: Vec::new(),
        timing: Vec::new(),
        notes: Vec::new(),
    };
    if let Some((state, summary)) = not_waiting(objects, pod) {
        return Ok(Explanation { state, summary, ..out });
    }
    out.notes = missing(kinds, &trial.pod.spec);
    let verdict = match evaluate(&trial.cluster, &trial.pod) {
        Ok(verdict) => verdict,
        Err(unmodelled) => return Ok(Explanation { summary: unmodelled.to_string(), ..out }),
    };
    if let Some(error) = verdict.error {
        out.summary = format!("kube-scheduler cannot decide: {error}");
        return Ok(out);
    }
    if verdict.fits() {
        out.state = PodState::Schedulable;
        let best: Vec<String> = verdict.best.iter().map(ToString::to_string).collect();
        out.summary = format!(
            "Pending, but {} of {} nodes can run it now, best {}: the scheduler has not tried again yet, or these objects \
             are newer than its last attempt",
            verdict.feasible().count(),
            trial.cluster.node_count(),
            some(&best)
        );
        return Ok(out);
    }
    out.state = PodState::Unschedulable;
    out.summary = format!("Pending: 0 of {} nodes can run this pod", trial.cluster.node_count());
    out.message.clone_from(&verdict.message);
    out.status_message = pod
        .condition("PodScheduled")
        .and_then(|condition| condition.message.clone())
        .filter(|message| Some(message) != verdict.message.as_ref());
    out.reasons = reasons(trial, &verdict);
    out.fixes = search::fixes(trial, &verdict)
        .into_iter()
        .map(|f| OfferedFix {
            also: also_used(trial, &f.changes),
            commands: if f.by_itself { Vec::new() } else { commands(trial, &f.changes) },
            text: [f.text.clone()].into_iter().chain(moves(trial, &f)).collect::<Vec<_>>().join("; "),
            harm: f.harm,
            nodes: f.nodes,
            changes: f.changes,
        })
        .collect();
    Ok(out)
}

/// Where the pods that have to leave would go once the pod has their place, one after the other.
fn moves(trial: &Trial, fix: &Fix) -> Vec<String> {
    let leaving: Vec<&Change> =
        fix.changes.iter().filter(|c| c.kind == "Pod" && c.action == ChangeAction::Delete(true)).collect();
    let (Some(after), Some(node)) = (trial.with(&fix.changes), fix.nodes.first()) else { return Vec::new() };
    let mut cluster = after.cluster.clone();
    if leaving.is_empty() || cluster.assume(&after.pod, node).is_err() {
        return Vec::new();
    }
    let (mut gone, mut homeless, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for key in leaving.iter().map(|c| c.key()) {
        let Ok(pod) = Pod::from_objects(&trial.objects, &key) else { continue };
        let name = pod.key.to_string();
        if pod.spec.controller.is_none() {
            gone.push(name);
            continue;
        }
        let Ok(verdict) = evaluate(&cluster, &pod) else { continue };
        let was = trial.cluster.pod(&pod.key).and_then(|p| p.node.clone());
        let best: Vec<String> = verdict.best.iter().map(ToString::to_string).collect();
        match best.as_slice() {
            [] => homeless.push(name),
            [node] if was.as_deref() == Some(node) => out.push(format!("{name} would return to {node} afterwards")),
            _ => out.push(format!("{name} would go to {}", some(&best))),
        }
        if let Some(node) = best.first()
            && cluster.assume(&pod, node).is_err()
        {
            return Vec::new();
        }
    }
    if !homeless.is_empty() {
        out.push(format!("no node could run {} then", some(&homeless)));
    }
    if !gone.is_empty() {
        out.push(format!("will not be recreated (no controller): {}", some(&gone)));
    }
    out
}

/// The first names, and how many more there are.
pub(crate) fn some(names: &[String]) -> String {
    if names.len() <= LOOK_AT {
        return names.join(", ");
    }
    format!("{} and {} more", names[..LOOK_AT].join(", "), names.len() - LOOK_AT)
}

/// State and summary of a pod that does not wait for kube-scheduler.
fn not_waiting(objects: &Objects, pod: PodView) -> Option<(PodState, String)> {
    let (node, phase) = (pod.node(), pod.phase());
    if let Some(due) = &pod.metadata().deletion_timestamp {
        let place = node.map(|n| format!(" on node {n}")).unwrap_or_default();
        return Some((PodState::Terminating, format!("Terminating{place}: its grace period ends at {}", due.0)));
    }
    if pod.has_ended() {
        return Some((PodState::Finished, format!("it has ended: {phase}")));
    }
    if let Some(node) = node {
        return Some((PodState::Placed, format!("{phase} on node {node}: already scheduled")));
    }
    let spec = pod.spec()?;
    let gates: Vec<String> = spec.scheduling_gates.iter().flatten().map(|gate| gate.name.clone()).collect();
    if !gates.is_empty() {
        return Some((PodState::Gated, gated(pod, &gates)));
    }
    let scheduler = spec.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER);
    let is_known = Profiles::of(objects).is_ok_and(|profiles| profiles.get(scheduler).is_some());
    (!is_known).then(|| (PodState::Unknown, format!("Pending: it uses the scheduler {scheduler}, not kube-scheduler")))
}

/// A scheduling gate is removed by the component that set it, which the managed fields may name.
fn gated(pod: PodView, gates: &[String]) -> String {
    let managers: Vec<String> = managers_of(pod, &["spec", "schedulingGates"], None).into_iter().collect();
    let noun = if gates.len() == 1 { "gate" } else { "gates" };
    let owner = match managers.as_slice() {
        [] => "its owner (see the prefix of its name)".to_owned(),
        managers => format!("its owner, which is {} by the pod's managed fields", managers.join(", ")),
    };
    format!(
        "Pending and gated: the scheduler ignores it until the scheduling {noun} {} is removed by {owner}",
        remedies::join(gates)
    )
}

/// Kinds that were not read although the answer about this pod depends on them.
fn missing(kinds: &BTreeSet<String>, pod: &PodSpec) -> Vec<String> {
    let claims = pod.volumes.iter().any(|v| v.claim().is_some());
    let terms = pod.affinity.iter().chain(&pod.anti_affinity);
    let selects_namespaces = terms.into_iter().any(|t| !t.namespace_selector.is_nothing());
    let depends: [(bool, &[&str], &str); 6] = [
        (claims, &["PersistentVolumeClaim", "PersistentVolume", "StorageClass"], "what claims and volumes allow"),
        (claims, &["CSINode", "VolumeAttachment"], "how many volumes a node can have attached"),
        (claims, &["CSIDriver", "CSIStorageCapacity"], "whether there is room for a new volume"),
        (selects_namespaces, &["Namespace"], "affinity to pods of selected namespaces"),
        (pod.priority > 0, &["PodDisruptionBudget"], "which pods preemption would choose"),
        (
            pod.resources.requests.scalars.iter().any(|(_, n)| *n > 0),
            &["DeviceClass"],
            "whether extended resources come from device claims",
        ),
    ];
    let mut out = Vec::new();
    for (_, needs, what) in depends.into_iter().filter(|(matters, _, _)| *matters) {
        let gone = KINDS.iter().filter(|k| needs.contains(&k.kind) && !kinds.contains(k.kind));
        let names: Vec<&str> = gone.map(|k| k.kubectl).collect();
        if !names.is_empty() {
            out.push(format!("{} were not read: {what} is judged as if there were none", names.join(", ")));
        }
    }
    out
}

/// How many nodes of each reason are examined, and shown by name.
const LOOK_AT: usize = 12;

fn reasons(trial: &Trial, verdict: &stead_placement::Verdict) -> Vec<Reason> {
    let mut by_reason: BTreeMap<&stead_placement::RejectionReason, Vec<&NodeInfo>> = BTreeMap::new();
    for (node, rejection) in &verdict.rejected {
        for reason in &rejection.reasons {
            by_reason.entry(reason).or_default().extend(trial.cluster.node(node));
        }
    }
    let before_nodes = Attempt::new(&trial.cluster, &trial.pod).is_err();
    let zone_key = trial.pod.spec.spread.iter().map(|c| &*c.topology_key).find(|k| *k != "kubernetes.io/hostname");
    let mut out: Vec<Reason> = by_reason
        .into_iter()
        .map(|(reason, nodes)| {
            let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for info in nodes.iter().take(LOOK_AT) {
                let rejection = &verdict.rejected[&info.node.name];
                let said = if before_nodes {
                    causes_for_all(trial, rejection)
                } else {
                    causes(trial, info, rejection.plugin, reason)
                };
                for line in said.into_iter().chain(afterwards(trial, info)) {
                    lines.entry(line).or_default().push(info.node.name.to_string());
                }
            }
            let mut because: Vec<Cause> = lines.into_iter().map(|(text, nodes)| Cause { nodes, text }).collect();
            // What applies to most nodes comes first.
            because.sort_by_key(|b| Reverse(b.nodes.len()));
            let note = |info: &&NodeInfo| NodeAndZone { name: info.node.name.to_string(), zone: zone(info, zone_key) };
            Reason {
                reason: reason.to_string(),
                nodes: nodes.iter().map(note).collect(),
                because,
                looked_at: nodes.len().min(LOOK_AT),
            }
        })
        .collect();
    out.sort_by(|a, b| (b.nodes.len(), &a.reason).cmp(&(a.nodes.len(), &b.reason)));
    out
}

fn zone(info: &NodeInfo, key: Option<&str>) -> Option<String> {
    let keys = key.into_iter().chain(["topology.kubernetes.io/zone", "zone"]);
    keys.into_iter().find_map(|k| info.node.label(k)).map(str::to_owned)
}

/// What a node would report next, once its present reason is fixed on the node itself.
fn afterwards(trial: &Trial, info: &NodeInfo) -> Vec<String> {
    let Ok(attempt) = Attempt::new(&trial.cluster, &trial.pod) else { return Vec::new() };
    let Err(AttemptFault::Rejected(rejection)) = attempt.node(info) else { return Vec::new() };
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let node_side = remedies::for_rejection(trial, Some(info), &rejection)
        .into_iter()
        .filter(|r| r.harm <= Harm::Trusts && r.changes.iter().all(|c| c.kind == "Node"));
    for remedy in node_side {
        let Some(next) = trial.with(&remedy.changes) else { continue };
        let Some(there) = next.cluster.node(&info.node.name) else { continue };
        let then = match Attempt::new(&next.cluster, &next.pod).and_then(|a| a.node(there)) {
            Ok(()) => "the pod would fit".to_owned(),
            Err(AttemptFault::Error(error)) => error.to_string(),
            Err(AttemptFault::Rejected(r)) => {
                let why: Vec<String> =
                    r.reasons.iter().flat_map(|reason| causes(&next, there, r.plugin, reason)).collect();
                let reasons: Vec<String> = r.reasons.iter().map(ToString::to_string).collect();
                let why = why.join("; ");
                format!(
                    "the pod would still not fit: {}{}{why}",
                    reasons.join(", "),
                    if why.is_empty() { "" } else { ": " }
                )
            }
        };
        out.entry(then).or_default().push(short(&remedy.changes));
    }
    out.into_iter().map(|(then, with)| format!("with {} {then}", with.join(" or "))).collect()
}

/// A change to a node in a few words.
fn short(changes: &[Change]) -> String {
    let ChangeAction::Patch(patch) = &changes[0].action else { return "that".into() };
    let last = patch.0.iter().rev().find_map(|op| {
        let key = unescaped(op.path().as_str().strip_prefix("/metadata/labels/")?);
        Some(match value_of(op).and_then(Value::as_str) {
            Some(value) => format!("{key}={value}"),
            None => format!("no {key}"),
        })
    });
    last.unwrap_or_else(|| "that fixed".into())
}
