//! The pods and volumes of a node, and what each option means for all of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use jiff::Timestamp;
use serde::Serialize;
use stead_forecast::{Forecaster, Intervention, TimerSetting};
use stead_model::{
    ModelError, NodeHealth, ObjectKey, Objects, PodController, PodView, Readiness, attachments_on, pod_volumes,
    unique_volume_name,
};
use stead_placement::Cluster;

use super::causes::OutageExplainer;
use super::cluster_timers::render_settings;
use super::forecast::{Attempt, Future, Scene};
use super::node::check_nodes;
use super::risk::{commands, risk};
use super::time_text::when;
use super::timers::Clock;
use super::way::{Outcome, Way};
use crate::explanation::{some, unread};
use crate::suggested_command::{ClientAtHand, SuggestedCommand, SuggestsCommands};
use crate::table::table;
use crate::wrap::{bullet, note, wrapped};

/// A node, its pods and its volumes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplanation {
    /// The node.
    pub node: String,
    /// Whether there is a Node object of that name.
    pub exists: bool,
    /// Its health, in a sentence.
    pub summary: String,
    /// The details of its health, line by line.
    pub why: Vec<String>,
    /// Its pods, those that have ended left out.
    pub pods: Vec<PodOnNode>,
    /// The volumes that are attached to it.
    pub volumes: Vec<VolumeOnNode>,
    /// The time that the forecast is made at.
    pub as_of: Timestamp,
    /// What each option leads to; empty for a node that is reachable.
    pub forecast: Vec<NodeForecast>,
    /// The timers of the forecast that are not the defaults of the cluster's version.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timing: Vec<TimerSetting>,
    /// What was not read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A pod of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodOnNode {
    /// Namespace and name.
    pub pod: String,
    /// Kind and name of its controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its state.
    pub state: String,
    /// Its outlook.
    pub fares: Fares,
    /// When it is evicted, where its node is reachable but not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicted_at: Option<Timestamp>,
}

/// What happens to a pod without its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fares {
    /// Nothing: its node is ready.
    Well,
    /// It is evicted: its node is reachable, but not ready.
    Evicted,
    /// It moves to another node by itself.
    ByItself,
    /// It moves to another node after manual action.
    WithHelp,
    /// It returns only with its node.
    WithNode,
    /// It belongs to the node.
    NodesOwn,
    /// It is not recreated.
    Never,
    /// Unknown.
    Unknown,
}

impl Fares {
    /// In a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            Fares::Well => "unaffected",
            Fares::Evicted => "will be evicted",
            Fares::ByItself => "moves by itself",
            Fares::WithHelp => "needs manual action to move",
            Fares::WithNode => "returns only with the node",
            Fares::NodesOwn => "belongs to the node",
            Fares::Never => "will not be recreated",
            Fares::Unknown => "unknown",
        }
    }
}

/// A volume that is attached to a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VolumeOnNode {
    /// The PersistentVolume.
    pub volume: String,
    /// The VolumeAttachment.
    pub attachment: String,
    /// The pods of the node that use it.
    pub pods: Vec<String>,
    /// Whether the kubelet reports it as mounted; none where there is no Node object.
    pub mounted: Option<bool>,
    /// Why detaching it failed, in the driver's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detach_error: Option<String>,
}

impl SuggestsCommands for NodeExplanation {
    fn use_client(&mut self, client: &ClientAtHand) {
        let commands = self.forecast.iter_mut().flat_map(|forecast| &mut forecast.commands);
        commands.for_each(|command| command.use_client(client));
    }
}

/// What an option means for all pods of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeForecast {
    /// The option.
    pub way: Way,
    /// When the last pod that does not belong to the node would be Ready: at once where there is none; none where one of
    /// them never is, or where that is unknown.
    pub ready_at: Option<Timestamp>,
    /// Where they may go.
    pub nodes: Vec<String>,
    /// What can go wrong.
    pub risk: String,
    /// The commands.
    pub commands: Vec<SuggestedCommand>,
    /// Each pod.
    pub pods: Vec<PodForecast>,
}

/// What an option means for one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodForecast {
    /// Namespace and name.
    pub pod: String,
    /// When it, or its replacement, would be Ready; none for never.
    pub ready_at: Option<Timestamp>,
    /// Where it may go, the likeliest first.
    pub nodes: Vec<String>,
    /// Why it never is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub never: Option<String>,
    /// Why this is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// Explains a node with its pods and volumes, as of a moment; none where there is neither the node nor anything on it.
pub fn explain_node(
    objects: &Objects,
    name: &str,
    kinds: &BTreeSet<String>,
    clock: &Clock,
) -> Result<Option<NodeExplanation>, ModelError> {
    check_nodes(objects)?;
    let health = objects.node_health(name)?;
    let pods = pods_on(objects, name);
    let volumes = volumes_on(objects, name, &pods, health.as_ref());
    if health.is_none() && pods.is_empty() && volumes.is_empty() {
        return Ok(None);
    }
    let lost = health.as_ref().is_none_or(|node| node.is_unreachable(clock.leases));
    let not_ready = health.as_ref().is_some_and(|node| node.is_reachable_but_not_ready(clock.leases));
    let future = match lost || not_ready {
        true => Some(Future::of(objects, clock, &Cluster::from_objects(objects, None), &pods)?),
        false => None,
    };
    let forecast = match future.as_ref().filter(|_| lost) {
        Some(future) => forecasts(objects, name, clock, &pods, future),
        None => Vec::new(),
    };
    let claims = pods.iter().any(|pod| !pod_volumes(objects, *pod).is_empty());
    let heard = health.as_ref().and_then(NodeHealth::last_heard).map(|at| when(at, clock.now));
    Ok(Some(NodeExplanation {
        node: name.to_owned(),
        exists: health.is_some(),
        summary: match (&health, heard) {
            (None, _) => "the Node object does not exist, but pods or volumes still refer to it".to_owned(),
            (Some(_), Some(heard)) if lost => format!("unreachable: no heartbeat since {heard}"),
            (Some(_), None) if lost => "unreachable: it has never sent a heartbeat".to_owned(),
            (Some(node), _) if node.readiness == Readiness::Ready => "Ready".to_owned(),
            (Some(_), _) => "reachable, but not Ready".to_owned(),
        },
        why: OutageExplainer { objects, clock, kinds, future: future.as_ref() }.node(name),
        pods: pods
            .iter()
            .map(|pod| {
                let evicted_at = future.as_ref().filter(|_| not_ready).and_then(|future| future.evicted(*pod));
                PodOnNode {
                    pod: pod.full_name(),
                    owner: pod.controller().map(|owner| format!("{}/{}", owner.kind, owner.name)),
                    state: state(*pod),
                    fares: match (not_ready, evicted_at) {
                        _ if lost => outlook(objects, *pod, &forecast),
                        (false, _) => Fares::Well,
                        _ if stays_on_node(objects, *pod) => Fares::NodesOwn,
                        (true, Some(_)) => Fares::Evicted,
                        (true, None) => Fares::WithNode,
                    },
                    evicted_at,
                }
            })
            .collect(),
        volumes,
        as_of: clock.now,
        forecast,
        timing: clock.settings.clone(),
        notes: unread(kinds, |kind| claims || !kind.starts_with("Persistent")),
    }))
}

/// When the replacements of a node's pods would be Ready if the node were tainted as out of service now, each on the node that
/// is given with its pod. A pod is left out if its replacement would never be Ready there, or if that is unknown.
pub fn forecast_release(
    objects: &Objects,
    node: &str,
    clock: &Clock,
    replacements: &[(ObjectKey, String)],
) -> Result<BTreeMap<ObjectKey, Timestamp>, ModelError> {
    check_nodes(objects)?;
    if !objects.node_health(node)?.is_some_and(|node| node.is_unreachable(clock.leases)) {
        return Ok(BTreeMap::new());
    }
    let (mut pods, mut chosen) = (Vec::new(), Vec::new());
    for (key, node) in replacements {
        if let Some(pod) = objects.pod(key)? {
            pods.push(pod);
            chosen.push(node);
        }
    }
    let cluster = Cluster::from_objects(objects, None);
    let run =
        Forecaster::new(objects, clock, &cluster, &pods)?.run(&Intervention::OutOfService(node.to_owned()), &pods);
    let ready = pods.iter().zip(chosen).zip(&run.outlooks).filter_map(|((pod, node), outlook)| match outlook.outcome {
        stead_forecast::Outcome::Ready(at) if outlook.nodes.contains(node) => Some((pod.key().clone(), at)),
        _ => None,
    });
    Ok(ready.collect())
}

/// The pods of a node that have not ended, or whose objects still wait for it: the highest priority first.
fn pods_on<'a>(objects: &'a Objects, node: &'a str) -> Vec<PodView<'a>> {
    let mut out: Vec<PodView> = objects.pods_on(node).filter(|p| !p.has_ended() || p.is_terminating()).collect();
    out.sort_by_key(|p| Reverse(p.priority()));
    out
}

fn state(pod: PodView) -> String {
    match pod.is_terminating() {
        true => "Terminating".to_owned(),
        false if pod.is_ready() => "Ready".to_owned(),
        false => format!("{}, not Ready", pod.phase()),
    }
}

fn volumes_on(objects: &Objects, node: &str, pods: &[PodView], health: Option<&NodeHealth>) -> Vec<VolumeOnNode> {
    let mut users: BTreeMap<String, (Vec<String>, Option<String>)> = BTreeMap::new();
    for pod in pods {
        for volume in pod_volumes(objects, *pod) {
            let entry = users.entry(volume.name().to_owned()).or_default();
            entry.0.push(pod.full_name());
            entry.1 = volume.unique_name;
        }
    }
    let attachments = attachments_on(objects, node).into_iter();
    attachments
        .map(|attachment| {
            let volume = attachment.volume.unwrap_or_default();
            let (pods, unique) = users.get(&volume).cloned().unwrap_or_default();
            let unique = unique.or_else(|| unique_volume_name(objects.volume(&volume)?));
            VolumeOnNode {
                attachment: attachment.name,
                pods,
                mounted: health.map(|node| unique.is_some_and(|unique| node.volumes_in_use().contains(&unique))),
                detach_error: attachment.detach_error,
                volume,
            }
        })
        .collect()
}

/// What each option means for all the pods.
fn forecasts(objects: &Objects, name: &str, clock: &Clock, pods: &[PodView], future: &Future) -> Vec<NodeForecast> {
    let lost: BTreeSet<ObjectKey> =
        pods.iter().filter(|p| !stays_on_node(objects, **p)).map(|p| p.key().clone()).collect();
    let scene = Scene { node: Some(name.to_owned()), lost, ..Scene::default() };
    let mut out = Vec::new();
    for way in scene.ways(objects, clock) {
        let attempt = Attempt { objects, clock, scene: &scene, way };
        let tried = (way != Way::DoNothing).then(|| future.with(&attempt.intervention(""), pods));
        let run = tried.as_ref().unwrap_or(&future.undisturbed);
        let (mut each, mut doubts) = (Vec::new(), String::new());
        let (mut last, mut whole, mut nodes, mut back) = (None, true, BTreeSet::new(), BTreeSet::new());
        for (pod, outlook) in pods.iter().zip(&run.outlooks) {
            let Outcome { ready_at, nodes: its, steps, unknown, doubt } = attempt.outcome(run, outlook, *pod);
            doubts.extend(doubt.map(|doubt| format!("; {}: {doubt}", pod.full_name())));
            if !stays_on_node(objects, *pod) {
                last = last.max(ready_at);
                whole &= ready_at.is_some();
                back.extend(ready_at.map(|_| pod.key().clone()));
                nodes.extend(its.iter().cloned());
            }
            let never = steps.last().filter(|s| s.at.is_none()).map(|s| s.what.clone());
            each.push(PodForecast { pod: pod.full_name(), ready_at, nodes: its, never, unknown });
        }
        // Do not suggest deleting pods that this would not bring back.
        let helped = Scene { lost: back, ..scene.clone() };
        out.push(NodeForecast {
            way,
            ready_at: if scene.lost.is_empty() { Some(clock.now) } else { last.filter(|_| whole) },
            nodes: nodes.into_iter().collect(),
            risk: risk(&Attempt { scene: &helped, ..attempt }, run, pods) + &doubts,
            commands: commands(way, &helped, ""),
            pods: each,
        });
    }
    out
}

fn stays_on_node(objects: &Objects, pod: PodView) -> bool {
    PodController::of(objects, pod).stays_on_node()
}

fn outlook(objects: &Objects, pod: PodView, forecast: &[NodeForecast]) -> Fares {
    let name = pod.full_name();
    let its = |way: Way| forecast.iter().filter(move |f| f.way == way).flat_map(|f| &f.pods).find(|p| p.pod == name);
    let returns = |way: Way| its(way).is_some_and(|p| p.ready_at.is_some());
    let manual = [Way::OutOfService, Way::ForceDeletePod, Way::DeleteNode];
    match () {
        () if stays_on_node(objects, pod) => Fares::NodesOwn,
        () if returns(Way::DoNothing) => Fares::ByItself,
        () if manual.into_iter().any(returns) => Fares::WithHelp,
        () if manual.into_iter().any(|way| its(way).is_some_and(|p| p.unknown.is_some())) => Fares::Unknown,
        () if returns(Way::NodeReturns) => Fares::WithNode,
        () => Fares::Never,
    }
}

/// The explanation as text.
pub fn render_node(e: &NodeExplanation) -> String {
    let mut out = format!("node {}: {}\n\nPods and volumes on this node\n", e.node, e.summary);
    if e.pods.is_empty() {
        let _ = writeln!(out, "  no pods");
    } else {
        let row = |p: &PodOnNode| {
            let owner = p.owner.clone().unwrap_or_else(|| "<none>".into());
            let outlook = match p.evicted_at.filter(|_| p.fares == Fares::Evicted) {
                Some(at) => format!("will be evicted at {}", when(at, e.as_of)),
                None => p.fares.as_str().to_owned(),
            };
            vec![p.pod.clone(), owner, p.state.clone(), outlook]
        };
        let rows: Vec<Vec<String>> = e.pods.iter().map(row).collect();
        for line in table(&["POD", "CONTROLLED BY", "STATE", "OUTLOOK"], &rows).lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    for volume in &e.volumes {
        let by = if volume.pods.is_empty() {
            "not used by a pod on this node".into()
        } else {
            format!("used by {}", some(&volume.pods))
        };
        let mounted = match volume.mounted {
            Some(true) => " and mounted",
            Some(false) => ", not mounted",
            None => "",
        };
        let error = volume.detach_error.as_ref().map(|m| format!("; detaching fails: {m:?}")).unwrap_or_default();
        wrapped(&mut out, "  ", &format!("volume {}: attached{mounted}; {by}{error}", volume.volume));
    }
    if !e.forecast.is_empty() {
        let _ = writeln!(out, "\nOutlook: what each option leads to, the safest first");
    }
    let own: BTreeSet<&str> = e.pods.iter().filter(|p| p.fares == Fares::NodesOwn).map(|p| p.pod.as_str()).collect();
    for f in &e.forecast {
        render_option(&mut out, f, &own, e.as_of);
    }
    let _ = writeln!(out, "\nDetails");
    for line in &e.why {
        bullet(&mut out, line);
    }
    for text in render_settings(&e.timing).iter().chain(&e.notes) {
        note(&mut out, text);
    }
    out
}

fn render_option(out: &mut String, f: &NodeForecast, own: &BTreeSet<&str>, now: Timestamp) {
    let pods: Vec<&PodForecast> = f.pods.iter().filter(|p| !own.contains(p.pod.as_str())).collect();
    let ready = pods.iter().filter(|p| p.ready_at.is_some()).count();
    let last = pods.iter().filter_map(|p| p.ready_at).max();
    let _ = match (ready, last) {
        _ if pods.is_empty() => writeln!(out, "  {}: no pod has to move", f.way.as_str()),
        (_, None) if pods.iter().any(|p| p.unknown.is_some()) => writeln!(out, "  {}: unknown", f.way.as_str()),
        (_, None) => writeln!(out, "  {}: no pod becomes Ready", f.way.as_str()),
        (ready, Some(at)) => {
            let (way, all) = (f.way.as_str(), pods.len());
            writeln!(out, "  {way}: {ready} of {all} pods become Ready, the last at {}", when(at, now))
        }
    };
    for pod in pods {
        let line = match (pod.ready_at, pod.unknown.as_ref().or(pod.never.as_ref())) {
            (Some(at), _) => format!("{}: {}, on {}", pod.pod, when(at, now), some(&pod.nodes)),
            (None, Some(why)) if pod.unknown.is_some() => format!("{}: unknown: {why}", pod.pod),
            (None, Some(why)) => format!("{}: never: {why}", pod.pod),
            (None, None) => format!("{}: never", pod.pod),
        };
        wrapped(out, "    ", &line);
    }
    wrapped(out, "    ", &format!("risk: {}", f.risk));
    for command in &f.commands {
        let _ = writeln!(out, "      {command}");
    }
}
