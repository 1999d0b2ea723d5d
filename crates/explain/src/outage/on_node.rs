//! Everything that hangs on a node: its pods and volumes, and what each way out means for all of them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use jiff::Timestamp;
use serde::Serialize;

use super::course::Course;
use super::detaching::held_name;
use super::eviction;
use super::forecast::Scene;
use super::makers::Maker;
use super::node::{NodeStanding, Readiness};
use super::pod::PodSeen;
use super::risk::{commands, risk};
use super::timers::Clock;
use super::volumes::{unique_name, volumes_of};
use super::way::{Outcome, Way};
use super::why::Why;
use super::words::when;
use crate::explanation::{some, unread};
use crate::table::table;
use stead_model::{ModelError, ObjectKey, Objects};
use stead_placement::Cluster;

/// What hangs on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplanation {
    /// The node.
    pub node: String,
    /// Whether there is a Node object of that name.
    pub exists: bool,
    /// How it is, in a sentence.
    pub summary: String,
    /// How it stands, line by line.
    pub why: Vec<String>,
    /// Its pods, those that have ended left out.
    pub pods: Vec<PodOnNode>,
    /// The volumes that are attached to it.
    pub volumes: Vec<VolumeOnNode>,
    /// The moment that the forecast is made at.
    pub as_of: Timestamp,
    /// What each way out leads to; empty for a node that answers.
    pub forecast: Vec<NodeForecast>,
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
    /// How it is.
    pub state: String,
    /// How it would fare.
    pub fares: Fares,
    /// When its deletion begins, where its node answers but is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evicted_at: Option<Timestamp>,
}

/// How a pod fares without its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fares {
    /// Its node answers, and is ready.
    Well,
    /// Its node answers, but is not ready: it is sent elsewhere.
    Evicted,
    /// It comes back elsewhere without help.
    ByItself,
    /// It comes back elsewhere, if somebody helps.
    WithHelp,
    /// It comes back with its node only.
    WithNode,
    /// It belongs to the node, and goes and comes with it.
    NodesOwn,
    /// It does not come back.
    Never,
    /// Whether it comes back cannot be told.
    Unknown,
}

impl Fares {
    /// In a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            Fares::Well => "well",
            Fares::Evicted => "is evicted",
            Fares::ByItself => "comes back elsewhere by itself",
            Fares::WithHelp => "comes back elsewhere with help only",
            Fares::WithNode => "comes back with the node only",
            Fares::NodesOwn => "belongs to the node",
            Fares::Never => "does not come back",
            Fares::Unknown => "not known",
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
    /// Whether the node's kubelet says that it is mounted; none where there is no Node object.
    pub mounted: Option<bool>,
    /// What the driver says of detaching it, where that failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detach_error: Option<String>,
}

/// What a way means for all pods of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeForecast {
    /// The way.
    pub way: Way,
    /// When the last of the pods that do not belong to the node would be Ready: at once where there is none of them; none
    /// where one of them never is, or where that is not known.
    pub ready_at: Option<Timestamp>,
    /// Where they may go.
    pub nodes: Vec<String>,
    /// What can go wrong.
    pub risk: String,
    /// What to type.
    pub commands: Vec<String>,
    /// Each pod.
    pub pods: Vec<PodForecast>,
}

/// What a way means for one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodForecast {
    /// Namespace and name.
    pub pod: String,
    /// When it, or the one in its place, would be Ready; none for never.
    pub ready_at: Option<Timestamp>,
    /// Where it may go, the likeliest first.
    pub nodes: Vec<String>,
    /// Why it never is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub never: Option<String>,
    /// Why it cannot be told whether it ever is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// Explains what hangs on a node, as of a moment; none where neither the node is there nor anything that hangs on it.
pub fn explain_node(
    objects: &Objects,
    name: &str,
    kinds: &BTreeSet<String>,
    clock: &Clock,
) -> Result<Option<NodeExplanation>, ModelError> {
    let standing = NodeStanding::find(objects, name);
    let pods = pods_on(objects, name);
    let volumes = volumes_on(objects, name, standing.as_ref());
    if standing.is_none() && pods.is_empty() && volumes.is_empty() {
        return Ok(None);
    }
    let lost = standing.as_ref().is_none_or(|n| n.is_silent(clock.leases));
    let forecast = if lost { forecasts(objects, name, clock, &pods)? } else { Vec::new() };
    let claims = pods.iter().any(|p| !volumes_of(objects, p.namespace(), p.0).is_empty());
    let heard = standing.as_ref().and_then(NodeStanding::last_heard).map(|at| when(at, clock.now));
    Ok(Some(NodeExplanation {
        node: name.to_owned(),
        exists: standing.is_some(),
        summary: match (&standing, heard) {
            (None, _) => "there is no such Node object, but pods or volumes still hang on it".to_owned(),
            (Some(_), heard) if lost => format!("nothing is heard of it since {}", heard.unwrap_or("long".into())),
            (Some(node), _) if node.readiness == Readiness::Ready => "Ready, and its kubelet answers".to_owned(),
            (Some(_), _) => "not Ready, but its kubelet answers".to_owned(),
        },
        why: Why { objects, clock, kinds }.node(name),
        pods: pods
            .iter()
            .map(|pod| {
                let unwell = standing.as_ref().filter(|n| n.is_unwell(clock.leases));
                let evicted_at = unwell.and_then(|n| pod.deleted().or(eviction::evicted(objects, clock, n, *pod)));
                PodOnNode {
                    pod: full_name(*pod),
                    owner: pod.owner().map(|(kind, name)| format!("{kind}/{name}")),
                    state: state(*pod),
                    fares: match (unwell, evicted_at) {
                        _ if lost => fares(objects, *pod, &forecast),
                        (None, _) => Fares::Well,
                        _ if nodes_own(objects, *pod) => Fares::NodesOwn,
                        (Some(_), Some(_)) => Fares::Evicted,
                        (Some(_), None) => Fares::WithNode,
                    },
                    evicted_at,
                }
            })
            .collect(),
        volumes,
        as_of: clock.now,
        forecast,
        notes: unread(kinds, |kind| claims || !kind.starts_with("Persistent")),
    }))
}

/// The pods of a node that have not ended, or whose objects wait for it all the same: the most important first.
fn pods_on<'a>(objects: &'a Objects, node: &str) -> Vec<PodSeen<'a>> {
    let all = objects.raw_of_kind("Pod").map(|(_, p)| PodSeen(p));
    let mut out: Vec<PodSeen> = all.filter(|p| p.node() == Some(node) && (!p.ended() || p.due().is_some())).collect();
    out.sort_by_key(|p| Reverse(p.0["spec"]["priority"].as_i64().unwrap_or_default()));
    out
}

fn full_name(pod: PodSeen) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

fn state(pod: PodSeen) -> String {
    match pod.due() {
        Some(_) => "Terminating".to_owned(),
        None if pod.ready() => "Ready".to_owned(),
        None => format!("{}, not Ready", pod.phase()),
    }
}

fn volumes_on(objects: &Objects, node: &str, standing: Option<&NodeStanding>) -> Vec<VolumeOnNode> {
    let mut users: BTreeMap<String, (Vec<String>, Option<String>)> = BTreeMap::new();
    for pod in pods_on(objects, node) {
        for volume in volumes_of(objects, pod.namespace(), pod.0) {
            let entry = users.entry(held_name(&volume).to_owned()).or_default();
            entry.0.push(full_name(pod));
            entry.1 = volume.unique_name;
        }
    }
    let attachments = objects.raw_of_kind("VolumeAttachment").filter(|(_, a)| a["spec"]["nodeName"] == node);
    attachments
        .map(|(key, a)| {
            let volume = a["spec"]["source"]["persistentVolumeName"].as_str().unwrap_or_default().to_owned();
            let (pods, unique) = users.get(&volume).cloned().unwrap_or_default();
            let unique =
                unique.or_else(|| unique_name(objects.raw(&ObjectKey::new("PersistentVolume", "", &volume))?));
            VolumeOnNode {
                attachment: key.name.clone(),
                pods,
                mounted: standing.map(|n| unique.is_some_and(|u| n.volumes_in_use.contains(&u))),
                detach_error: a["status"]["detachError"]["message"].as_str().map(str::to_owned),
                volume,
            }
        })
        .collect()
}

/// What each way means for all the pods, one placed after the other.
fn forecasts(objects: &Objects, name: &str, clock: &Clock, pods: &[PodSeen]) -> Result<Vec<NodeForecast>, ModelError> {
    let lost: BTreeSet<ObjectKey> = pods.iter().filter(|p| !nodes_own(objects, **p)).map(|p| p.key()).collect();
    let scene = Scene { node: Some(name.to_owned()), lost, ..Scene::default() };
    let cluster = Cluster::from_objects(objects, None);
    let mut out = Vec::new();
    for way in scene.ways(objects, clock) {
        let targets = if way == Way::ForceDeletePod { scene.lost.clone() } else { BTreeSet::new() };
        let mut course = Course::new(objects, clock, &cluster, way, Some(name), targets)?;
        let (mut each, mut doubts) = (Vec::new(), String::new());
        let (mut last, mut whole, mut nodes, mut back) = (None, true, BTreeSet::new(), BTreeSet::new());
        for pod in pods {
            let Outcome { ready_at, nodes: its, steps, unknown, doubt } = course.outcome(*pod);
            doubts.extend(doubt.map(|doubt| format!("; {}: {doubt}", full_name(*pod))));
            if let Some(node) = its.first().filter(|n| ready_at.is_some() && *n != name) {
                course.occupy(*pod, node);
            }
            if !nodes_own(objects, *pod) {
                last = last.max(ready_at);
                whole &= ready_at.is_some();
                back.extend(ready_at.map(|_| pod.key()));
                nodes.extend(its.iter().cloned());
            }
            let never = steps.last().filter(|s| s.at.is_none()).map(|s| s.what.clone());
            each.push(PodForecast { pod: full_name(*pod), ready_at, nodes: its, never, unknown });
        }
        // Nobody should delete what does not come back by it.
        let helped = Scene { lost: back, ..scene.clone() };
        out.push(NodeForecast {
            way,
            ready_at: if scene.lost.is_empty() { Some(clock.now) } else { last.filter(|_| whole) },
            nodes: nodes.into_iter().collect(),
            risk: risk(&course, &helped, pods) + &doubts,
            commands: commands(way, &helped, ""),
            pods: each,
        });
    }
    Ok(out)
}

fn nodes_own(objects: &Objects, pod: PodSeen) -> bool {
    matches!(Maker::of(objects, pod), Maker::EachNode | Maker::Kubelet)
}

fn fares(objects: &Objects, pod: PodSeen, forecast: &[NodeForecast]) -> Fares {
    let name = full_name(pod);
    let its = |way: Way| forecast.iter().filter(move |f| f.way == way).flat_map(|f| &f.pods).find(|p| p.pod == name);
    let comes = |way: Way| its(way).is_some_and(|p| p.ready_at.is_some());
    let help = [Way::OutOfService, Way::ForceDeletePod, Way::DeleteNode];
    match () {
        () if nodes_own(objects, pod) => Fares::NodesOwn,
        () if comes(Way::DoNothing) => Fares::ByItself,
        () if help.into_iter().any(comes) => Fares::WithHelp,
        () if help.into_iter().any(|way| its(way).is_some_and(|p| p.unknown.is_some())) => Fares::Unknown,
        () if comes(Way::NodeReturns) => Fares::WithNode,
        () => Fares::Never,
    }
}

/// The explanation as people read it.
pub fn render_node(e: &NodeExplanation) -> String {
    let mut out = format!("node {}\n  {}\n\nHow it stands\n", e.node, e.summary);
    for line in &e.why {
        let _ = writeln!(out, "  - {line}");
    }
    let _ = writeln!(out, "\nWhat hangs on it");
    if e.pods.is_empty() {
        let _ = writeln!(out, "  no pods");
    } else {
        let row = |p: &PodOnNode| {
            let owner = p.owner.clone().unwrap_or_else(|| "<none>".into());
            let fares = match p.evicted_at.filter(|_| p.fares == Fares::Evicted) {
                Some(at) => format!("is evicted at {}", when(at, e.as_of)),
                None => p.fares.as_str().to_owned(),
            };
            vec![p.pod.clone(), owner, p.state.clone(), fares]
        };
        let rows: Vec<Vec<String>> = e.pods.iter().map(row).collect();
        for line in table(&["POD", "MADE BY", "STATE", "HOW IT FARES"], &rows).lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    for volume in &e.volumes {
        let by = if volume.pods.is_empty() {
            "no pod there uses it".into()
        } else {
            format!("used by {}", some(&volume.pods))
        };
        let mounted = match volume.mounted {
            Some(true) => ", mounted",
            Some(false) => ", not mounted",
            None => "",
        };
        let error = volume
            .detach_error
            .as_ref()
            .map(|m| format!("; detaching fails: its driver says {m:?}"))
            .unwrap_or_default();
        let _ = writeln!(out, "  volume {} is attached{mounted}; {by}{error}", volume.volume);
    }
    if !e.forecast.is_empty() {
        let _ = writeln!(out, "\nEvery way out, and when its pods would be Ready");
    }
    let own: BTreeSet<&str> = e.pods.iter().filter(|p| p.fares == Fares::NodesOwn).map(|p| p.pod.as_str()).collect();
    for f in &e.forecast {
        render_way(&mut out, f, &own, e.as_of);
    }
    for note in &e.notes {
        let _ = writeln!(out, "\nnote: {note}");
    }
    out
}

fn render_way(out: &mut String, f: &NodeForecast, own: &BTreeSet<&str>, now: Timestamp) {
    let pods: Vec<&PodForecast> = f.pods.iter().filter(|p| !own.contains(p.pod.as_str())).collect();
    let comes = pods.iter().filter(|p| p.ready_at.is_some()).count();
    let last = pods.iter().filter_map(|p| p.ready_at).max();
    let _ = match (comes, last) {
        _ if pods.is_empty() => writeln!(out, "  {}: no pod has to come back", f.way.as_str()),
        (_, None) if pods.iter().any(|p| p.unknown.is_some()) => writeln!(out, "  {}: not known", f.way.as_str()),
        (_, None) => writeln!(out, "  {}: no pod, ever", f.way.as_str()),
        (comes, Some(at)) => {
            writeln!(out, "  {}: {comes} of {} pods, the last at {}", f.way.as_str(), pods.len(), when(at, now))
        }
    };
    for pod in pods {
        let _ = match (pod.ready_at, pod.unknown.as_ref().or(pod.never.as_ref())) {
            (Some(at), _) => writeln!(out, "    {}: {}, on {}", pod.pod, when(at, now), some(&pod.nodes)),
            (None, Some(why)) if pod.unknown.is_some() => writeln!(out, "    {}: not known: {why}", pod.pod),
            (None, why) => writeln!(out, "    {}: never: {}", pod.pod, why.map_or("no way is known", String::as_str)),
        };
    }
    let _ = writeln!(out, "    risk: {}", f.risk);
    for command in &f.commands {
        let _ = writeln!(out, "      {command}");
    }
}
