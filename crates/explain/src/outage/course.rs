//! What would happen if: the moments from a pod that is in the way to one that is Ready.
//!
//! Each moment is a time, or never: the old object is gone → its successor is made → it is scheduled (by placement, on
//! a fork of the cluster as it would then be) → its volumes are detached from where they were → attached, started, and
//! Ready. Nothing is simulated: each follows from those before it by Kubernetes' own rules and waiting times.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};
use stead_placement::{Cluster, evaluate};

use super::events;
use super::eviction::{self, Tolerance, tolerance};
use super::makers::{self, Maker};
use super::node::{NodeStanding, OUT_OF_SERVICE, Readiness, SHUTDOWN, UNREACHABLE, time};
use super::pod::PodSeen;
use super::timers::{Clock, LOST};
use super::volumes::{Attachment, HeldVolume, volumes_of};
use crate::objects::{self, ObjectError, ObjectKey, Objects};

/// What a person may do about a node that is silent, or about what hangs on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Nothing.
    DoNothing,
    /// Have the machine back, as it was.
    NodeReturns,
    /// Delete the pod that is in the way without waiting for its kubelet.
    ForceDeletePod,
    /// Delete the Node object.
    DeleteNode,
    /// Taint the node as out of service.
    OutOfService,
    /// Have the Deployment end its old pods before it starts new ones.
    RecreateStrategy,
}

impl Way {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Way::DoNothing => "do-nothing",
            Way::NodeReturns => "node-returns",
            Way::ForceDeletePod => "force-delete-pod",
            Way::DeleteNode => "delete-node",
            Way::OutOfService => "out-of-service",
            Way::RecreateStrategy => "recreate-strategy",
        }
    }
}

/// One of the moments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What happens; or, of what never does, why.
    pub what: String,
    /// When; none for never.
    pub at: Option<Timestamp>,
}

/// What becomes of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) ready_at: Option<Timestamp>,
    pub(crate) nodes: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

impl Outcome {
    fn step(&mut self, what: impl Into<String>, at: Timestamp) {
        self.steps.push(Step { what: what.into(), at: Some(at) });
    }

    fn never(mut self, why: impl Into<String>) -> Outcome {
        self.steps.push(Step { what: why.into(), at: None });
        Outcome { ready_at: None, ..self }
    }

    fn ready(mut self, at: Timestamp) -> Outcome {
        self.step("Ready", at);
        Outcome { ready_at: Some(at), ..self }
    }
}

/// What becomes of a pod's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fate {
    /// When its deletion begins, or began.
    pub(crate) deleted: Option<Timestamp>,
    /// When its volumes are needed no more in the eyes of the attach-detach controller.
    pub(crate) released: Option<Timestamp>,
    /// When the object is gone.
    pub(crate) gone: Option<Timestamp>,
}

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its kubelet answers.
    Alive,
    /// It does not.
    Silent,
    /// There is no Node object.
    Gone,
}

/// A pod that came to be in this many turns of others waiting for others waits for itself.
const DEPTH: usize = 16;

/// So long a kubelet may take to end a pod, or to let go of a volume, before something is wrong with it.
const PATIENCE: SignedDuration = SignedDuration::from_secs(120);

/// One way, and what follows from it.
pub(crate) struct Course<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) clock: &'a Clock,
    /// The cluster as it is while the way's first effects are felt.
    cluster: Cluster,
    /// The cluster later on, where a node that comes back takes pods again.
    later: Option<Cluster>,
    pub(crate) way: Way,
    /// The node that the way is about.
    pub(crate) node: Option<&'a str>,
    /// The pods that are deleted by it.
    targets: BTreeSet<ObjectKey>,
    /// When that node has the taint that evicts.
    tainted: Option<Timestamp>,
    /// When the objects of its pods are gone.
    gone: Vec<(ObjectKey, Timestamp)>,
}

impl<'a> Course<'a> {
    /// The course of a way. `cluster` is what the objects make, all pods in it.
    pub(crate) fn new(
        objects: &'a Objects,
        clock: &'a Clock,
        cluster: &Cluster,
        way: Way,
        node: Option<&'a str>,
        targets: BTreeSet<ObjectKey>,
    ) -> Result<Course<'a>, ObjectError> {
        let standing = node.and_then(|name| NodeStanding::find(objects, name));
        let tainted = standing.and_then(|node| eviction::tainted(objects, clock, &node));
        let (cluster, later, gone) = (cluster.clone(), None, Vec::new());
        let mut course = Course { objects, clock, cluster, later, way, node, targets, tainted, gone };
        for (key, value) in objects.of_kind("Node") {
            let ours = node == Some(key.name.as_str());
            if ours && way == Way::DeleteNode {
                objects::take(&mut course.cluster, key);
            } else if ours && way == Way::NodeReturns {
                let mut later = course.cluster.clone();
                objects::put(&mut later, key, &without_taints(value))?;
                course.later = Some(later);
            } else if course.life(&key.name) == Life::Silent {
                // Where the scheduler does not know it yet, it will in a moment.
                let taint = if ours && way == Way::OutOfService { OUT_OF_SERVICE } else { UNREACHABLE };
                objects::put(&mut course.cluster, key, &with_taint(value, taint))?;
            }
        }
        let there = objects.of_kind("Pod").filter(|(_, p)| node.is_some() && PodSeen(p).node() == node);
        course.gone = there.filter_map(|(key, p)| Some((key.clone(), course.fate(PodSeen(p)).gone?))).collect();
        Ok(course)
    }

    /// From now on, a node has the pod that is made in the place of another.
    pub(crate) fn occupy(&mut self, pod: PodSeen, node: &str) {
        let Ok(next) = objects::compile_pod(&template(pod.0, false)) else { return };
        for cluster in [Some(&mut self.cluster), self.later.as_mut()].into_iter().flatten() {
            // A node that the fork does not know takes no room in it.
            let _ = cluster.assume(&next, node);
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now
    }

    /// How a node is, on this way.
    pub(crate) fn life(&self, name: &str) -> Life {
        let ours = self.node == Some(name);
        match NodeStanding::find(self.objects, name) {
            None => Life::Gone,
            Some(_) if ours && self.way == Way::DeleteNode => Life::Gone,
            Some(_) if ours && self.way == Way::NodeReturns => Life::Alive,
            Some(node) if node.is_silent(self.now()) => Life::Silent,
            Some(_) => Life::Alive,
        }
    }

    /// Whether the out-of-service taint is on a node, on this way.
    fn out_of_service(&self, name: &str) -> bool {
        let found = NodeStanding::find(self.objects, name).is_some_and(|n| n.taint(OUT_OF_SERVICE).is_some());
        found || (self.way == Way::OutOfService && self.node == Some(name))
    }

    /// What becomes of a pod's object.
    pub(crate) fn fate(&self, pod: PodSeen) -> Fate {
        let (deleted, ended) = self.end(pod);
        let held = pod.finalizers().next().is_some();
        let by_force = self.way == Way::ForceDeletePod && self.targets.contains(&pod.key());
        // The pod collector and kubelets say that a pod has ended before they delete it; a person does not.
        let released = if held && by_force { None } else { ended };
        let idle = deleted.filter(|_| !running(pod));
        Fate { deleted, released: [released, idle].into_iter().flatten().min(), gone: ended.filter(|_| !held) }
    }

    /// When a pod's deletion begins, and when it has ended.
    fn end(&self, pod: PodSeen) -> (Option<Timestamp>, Option<Timestamp>) {
        let (now, timers, asked) = (self.now(), &self.clock.timers, pod.deleted());
        let Some(name) = pod.node() else { return (asked, asked) };
        if pod.ended() {
            // It counts for nothing; whoever made it, or the pod collector, deletes it some day.
            return (asked.or(Some(now)), Some(now));
        }
        if self.targets.contains(&pod.key()) {
            let end = if self.way == Way::ForceDeletePod { Some(now) } else { self.stopped(name, now, None) };
            return (asked.or(Some(now)), end);
        }
        let node = NodeStanding::find(self.objects, name);
        let evicted = || asked.or_else(|| self.evicted(node.as_ref()?, pod));
        match (self.life(name), &node) {
            (Life::Alive, _) => (asked, asked.and_then(|asked| self.stopped(name, asked, pod.due()))),
            (Life::Silent, Some(node)) if self.out_of_service(name) => {
                let taint = json!({ "key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute" });
                let by_taint = match tolerance(pod, [&taint]) {
                    Tolerance::None => Some(now),
                    Tolerance::For(time) => Some(now + time),
                    Tolerance::Forever => None,
                };
                let deleted = asked.or([by_taint, evicted()].into_iter().flatten().min());
                // The pod collector wants both the taint and a node that is not ready.
                let not_ready = eviction::unknown_from(self.clock, node).unwrap_or(now);
                (deleted, deleted.map(|at| timers.pod_gc(at.max(now).max(not_ready))))
            }
            (Life::Silent, _) => (evicted(), None),
            (Life::Gone, _) => {
                let since = if node.is_some() { now } else { self.gone_since(name) };
                let gone = timers.orphans_gone(since).max(now);
                (asked.or([evicted(), Some(gone)].into_iter().flatten().min()), Some(gone))
            }
        }
    }

    /// When a pod's deletion begins by taints.
    fn evicted(&self, node: &NodeStanding, pod: PodSeen) -> Option<Timestamp> {
        match self.node == Some(node.name.as_str()) {
            true => eviction::evicted_after(self.clock, node, self.tainted?, pod),
            false => eviction::evicted(self.objects, self.clock, node, pod),
        }
    }

    /// When a kubelet that answers has ended a pod; none where it fails to.
    fn stopped(&self, node: &str, asked: Timestamp, due: Option<Timestamp>) -> Option<Timestamp> {
        let (now, timers) = (self.now(), &self.clock.timers);
        if self.way == Way::NodeReturns && self.node == Some(node) {
            return Some(now + timers.kubelet_return + timers.stop);
        }
        let due = due.unwrap_or(asked + timers.stop);
        match now {
            _ if now <= asked + timers.stop => Some(asked + timers.stop),
            // It did not end when it was asked to, so it is ended when its time is over.
            _ if now <= due => Some(due + SignedDuration::from_secs(1)),
            _ if now <= due + PATIENCE => Some(now + timers.stop),
            _ => None,
        }
    }

    /// When a Node object went, as far as events tell.
    fn gone_since(&self, name: &str) -> Timestamp {
        let said = events::about(self.objects, "Node", "", name, None);
        let gone = said.iter().rev().find(|s| s.reason == "RemovingNode" || s.reason == "DeletingNode");
        gone.and_then(|s| s.at).unwrap_or(self.now())
    }

    /// What becomes of a pod: when it, or the one in its place, is Ready.
    pub(crate) fn outcome(&self, pod: PodSeen) -> Outcome {
        self.outcome_at(pod, 0)
    }

    fn outcome_at(&self, pod: PodSeen, depth: usize) -> Outcome {
        let out = Outcome::default();
        if depth > DEPTH {
            return out.never(format!("pod {} waits for what waits for it", pod.name()));
        }
        let lives = |node: &&str| pod.due().is_none() && !pod.ended() && self.life(node) == Life::Alive;
        match pod.node() {
            None if pod.due().is_none() => self.placed(pod, pod, self.now(), out),
            Some(node) if lives(&node) && !self.targets.contains(&pod.key()) => self.there(pod, node),
            _ => self.replaced(pod, depth),
        }
    }

    /// A pod on a node whose kubelet answers.
    fn there(&self, pod: PodSeen, node: &str) -> Outcome {
        let (now, timers) = (self.now(), &self.clock.timers);
        let mut out = Outcome { nodes: vec![node.to_owned()], ..Outcome::default() };
        let back = self.way == Way::NodeReturns && self.node == Some(node);
        if back && pod.containers().any(|c| c["state"].get("running").is_some()) {
            out.step(format!("the kubelet of {node} says that it goes on"), now + timers.kubelet_return);
            return out.ready(now + timers.kubelet_return);
        }
        if let Some(since) = pod.since("Ready").filter(|_| pod.ready()) {
            return out.ready(since);
        }
        let begun = pod.since("PodScheduled").unwrap_or(now);
        self.started(pod, if back { now + timers.kubelet_return } else { begun }, out)
    }

    /// A pod whose place somebody else has to take.
    fn replaced(&self, pod: PodSeen, depth: usize) -> Outcome {
        let mut out = Outcome::default();
        let fate = self.fate(pod);
        let name = pod.name();
        if let Some(next) = makers::successor(self.objects, pod) {
            out.step(format!("pod {} was made in its place", next.name()), next.created().unwrap_or(self.now()));
            let then = self.outcome_at(next, depth + 1);
            out.steps.extend(then.steps);
            return Outcome { steps: out.steps, ..then };
        }
        let maker = Maker::of(self.objects, pod);
        let made = match maker {
            Maker::Nobody => return out.never(format!("nobody makes pod {name} anew: it has no controller")),
            Maker::Kubelet => {
                return out.never(format!("pod {name} is made by the node's own kubelet, and there alone"));
            }
            Maker::EachNode if pod.node().is_none_or(|n| self.life(n) != Life::Alive) => {
                return out
                    .never(format!("a DaemonSet's pod is for its own node alone, and that is {}", self.word(pod)));
            }
            Maker::Replicas { set } if !self.wanted(pod, set) => {
                return out.never(format!("pod {name} is not made anew: its ReplicaSet wants no more pods"));
            }
            Maker::Replicas { .. } => [fate.deleted, fate.gone].into_iter().flatten().min(),
            Maker::Job(job) => {
                let failed = if makers::job_waits_for_end(job) { fate.released } else { fate.deleted };
                match failed.map(|at| makers::job_retry(job, pod, at.max(self.now()))) {
                    Some(None) => return out.never("its Job has failed too often and ends"),
                    made => made.flatten(),
                }
            }
            Maker::Identities { .. } | Maker::EachNode | Maker::Other(_) => fate.gone,
        };
        if let Some(at) = fate.deleted {
            out.step(format!("the deletion of pod {name} {}", if at <= self.now() { "began" } else { "begins" }), at);
        }
        let Some(made) = made.map(|at| at.max(self.now())) else {
            return out.never(self.why_it_stays(pod, fate, maker));
        };
        if fate.gone.is_some_and(|gone| gone <= made) {
            out.step(format!("the object of pod {name} is gone"), made);
        }
        let made = match maker {
            Maker::Identities { ordered: true } => match self.turn(pod, made, depth) {
                Ok(made) => made,
                Err(why) => return out.never(why),
            },
            _ => made,
        };
        out.step("its successor is made", made);
        self.placed(pod, pod, made, out)
    }

    /// When it is a StatefulSet's pod's turn: all before it have to be Ready.
    fn turn(&self, pod: PodSeen, made: Timestamp, depth: usize) -> Result<Timestamp, String> {
        let mut at = made;
        let before = self.objects.of_kind("Pod").map(|(_, p)| PodSeen(p)).filter(|p| p.is_sibling(pod));
        for other in before.filter(|p| p.ordinal() < pod.ordinal()) {
            match self.outcome_at(other, depth + 1).ready_at {
                Some(ready) => at = at.max(ready),
                None => {
                    let name = other.name();
                    return Err(format!("its StatefulSet makes it only when pod {name} is Ready, which it never is"));
                }
            }
        }
        Ok(at)
    }

    /// Whether a ReplicaSet makes another pod for this one.
    fn wanted(&self, pod: PodSeen, set: Option<&Value>) -> bool {
        let Some(replicas) = set.and_then(|s| s["spec"]["replicas"].as_u64()) else { return true };
        let others = self.objects.of_kind("Pod").map(|(_, p)| PodSeen(p));
        let others = others.filter(|p| p.is_sibling(pod) && p.name() != pod.name() && p.due().is_none() && !p.ended());
        (others.count() as u64) < replicas
    }

    /// Why a pod that is in the way stays there.
    fn why_it_stays(&self, pod: PodSeen, fate: Fate, maker: Maker) -> String {
        let (name, node) = (pod.name(), pod.node().unwrap_or_default());
        let held: Vec<&str> = pod.finalizers().collect();
        if !held.is_empty() && fate.released.is_some() {
            return format!("the object of pod {name} stays: finalizer {} is not taken away", held.join(", "));
        }
        if fate.deleted.is_none() {
            let standing = NodeStanding::find(self.objects, node);
            let brake = standing.and_then(|n| eviction::brake(self.objects, self.clock, &n));
            return match brake {
                _ if self.life(node) == Life::Alive => format!("pod {name} is not being deleted"),
                Some(eviction::Brake::AllDown) => "no node is ready, so Kubernetes evicts nobody: it takes the fault \
                                                   to be its own"
                    .to_owned(),
                Some(eviction::Brake::ZoneDisturbed) => {
                    format!("most nodes of the zone of {node} are not ready, so Kubernetes evicts nobody there")
                }
                None => format!("pod {name} tolerates the taints of {node} for ever"),
            };
        }
        let who = if self.life(node) == Life::Alive { "has not ended it" } else { "cannot confirm that it has ended" };
        let rule = match maker {
            Maker::Identities { .. } => ", and a StatefulSet never has two pods of one identity",
            _ => "",
        };
        format!("the object of pod {name} stays: the kubelet of {node} {who}{rule}")
    }

    /// How a pod's node is, in a word.
    fn word(&self, pod: PodSeen) -> &'static str {
        match pod.node().map(|n| self.life(n)) {
            Some(Life::Gone) => "gone",
            _ => "silent",
        }
    }

    /// A pod that has no node yet: it goes where placement says. `old` is the pod whose place it takes.
    fn placed(&self, pod: PodSeen, old: PodSeen, made: Timestamp, mut out: Outcome) -> Outcome {
        let own = old.node().is_none();
        let same_name = own || !matches!(Maker::of(self.objects, old), Maker::Replicas { .. } | Maker::Job(_));
        let template = template(pod.0, same_name);
        let mut tries: Vec<(&Cluster, Timestamp)> = vec![(&self.cluster, made)];
        // What the old pod takes, or a claim that one pod alone may use, is free when it is gone.
        tries.extend(self.fate(old).gone.filter(|gone| *gone > made && !own).map(|gone| (&self.cluster, gone)));
        if let Some(later) = &self.later {
            // The node controller looks, and takes its taints away.
            let back = self.now() + self.clock.timers.kubelet_return + self.clock.timers.node_monitor_period / 2;
            let last = tries.last().map_or(made, |(_, at)| *at);
            tries.push((later, last.max(back)));
        }
        let mut message = None;
        for (cluster, at) in tries {
            let mut cluster = cluster.clone();
            if same_name {
                objects::take(&mut cluster, &old.key());
            }
            for (gone, _) in self.gone.iter().filter(|(_, gone)| *gone <= at) {
                objects::take(&mut cluster, gone);
            }
            match self.fitting(&cluster, &template) {
                Ok(nodes) => {
                    out.step("it is scheduled", at);
                    return self.started(PodSeen(&template), at, Outcome { nodes, ..out });
                }
                Err(why) => message = message.or(Some(why)),
            }
        }
        out.never(message.unwrap_or_else(|| "no node takes it".into()))
    }

    /// The nodes that take a pod, the best first; or what the scheduler says.
    fn fitting(&self, cluster: &Cluster, template: &Value) -> Result<Vec<String>, String> {
        let pod = objects::compile_pod(template).map_err(|e| e.to_string())?;
        let verdict = evaluate(cluster, &pod).map_err(|e| e.to_string())?;
        if let Some(error) = verdict.error {
            return Err(error);
        }
        let mut fitting: Vec<(i64, String)> = verdict.scores.iter().map(|(n, s)| (-s.total, n.to_string())).collect();
        fitting.sort();
        if fitting.is_empty() {
            fitting.extend(verdict.nominees.iter().map(|n| (0, n.node.to_string())));
        }
        if fitting.is_empty() {
            return Err(format!("no node takes it: {}", verdict.message.unwrap_or_default()));
        }
        Ok(fitting.into_iter().map(|(_, node)| node).collect())
    }

    /// A pod that has a node since a moment, or the nodes that it may go to: its volumes come, and it starts.
    fn started(&self, pod: PodSeen, begun: Timestamp, mut out: Outcome) -> Outcome {
        let now = self.now();
        let volumes = volumes_of(self.objects, pod.namespace(), pod.0);
        let mut free: Option<Timestamp> = None;
        let goes = out.nodes.first().cloned();
        for volume in volumes.iter().filter(|v| v.attached && !v.shared) {
            for held in volume.attachments.iter().filter(|a| Some(&a.node) != goes.as_ref()) {
                match self.detached(pod, volume, held) {
                    Ok(at) => {
                        out.step(format!("volume {} is detached from {}", held_name(volume), held.node), at);
                        free = free.max(Some(at));
                    }
                    Err(why) => return out.never(why),
                }
            }
        }
        let waits = free.is_some();
        let takes = self.start_time(pod) + if waits { self.clock.timers.attach } else { SignedDuration::ZERO };
        let ready = begun.max(free.unwrap_or(begun)) + takes;
        // What should have been Ready by now will be in a moment, if it is well.
        out.ready(if ready < now { now + self.ready_time(pod) } else { ready })
    }

    /// When a volume is detached from where it is in the way; or why never.
    fn detached(&self, pod: PodSeen, volume: &HeldVolume, held: &Attachment) -> Result<Timestamp, String> {
        let (now, timers, node) = (self.now(), &self.clock.timers, held.node.as_str());
        let name = held_name(volume);
        if let Some(error) = &held.detach_error {
            return Err(format!("volume {name} is not detached from {node}: its driver says {error:?}"));
        }
        if held.leaving.is_some() {
            return Ok(now + timers.attach);
        }
        let mut released = None;
        for holder in holders(self.objects, volume, node).filter(|h| h.name() != pod.name() || h.node().is_some()) {
            match self.fate(holder).released {
                Some(at) => released = released.max(Some(at)),
                None => {
                    let why = self.why_it_stays(holder, self.fate(holder), Maker::Nobody);
                    return Err(format!(
                        "volume {name} stays attached to {node}, because pod {} holds it: {why}",
                        holder.name()
                    ));
                }
            }
        }
        let known = released.is_some();
        let released = released.unwrap_or_else(|| timers.begun(released_before(self.objects, now, pod)));
        let standing = NodeStanding::find(self.objects, node);
        let mounted = match (&standing, &volume.unique_name) {
            (Some(node), Some(unique)) => node.volumes_in_use.contains(unique),
            _ => true,
        };
        let life = self.life(node);
        let sick = standing.as_ref().is_none_or(|n| n.readiness != Readiness::Ready) || life != Life::Alive;
        let forced = timers.force_detach.map(|wait| timers.begun(released) + wait);
        match life {
            _ if self.out_of_service(node) || !mounted => Ok(released.max(now)),
            Life::Alive if known || now <= released + PATIENCE => Ok(released.max(now) + timers.node_status_period / 2),
            Life::Alive if !sick => {
                Err(format!("volume {name} stays attached to {node}: its kubelet has not said that it is unmounted"))
            }
            _ => forced.map(|at| at.max(now)).ok_or_else(|| {
                format!(
                    "volume {name} stays attached to {node}: it is still mounted there, and detaching by force is off"
                )
            }),
        }
    }

    /// From a node and free volumes to Ready.
    fn start_time(&self, pod: PodSeen) -> SignedDuration {
        let known = self.alike(pod).filter_map(|p| {
            let volumes = volumes_of(self.objects, p.namespace(), p.0);
            let there = volumes.iter().flat_map(|v| &v.attachments).filter(|a| Some(a.node.as_str()) == p.node());
            let asked = there.filter_map(|a| a.created.as_ref()?.parse().ok()).max();
            // A pod that waits for a volume long after it had a node tells nothing of how long it takes to start.
            p.started_in(asked).filter(|took| *took <= SignedDuration::from_secs(60))
        });
        known.min().unwrap_or(self.clock.timers.start) + self.ready_time(pod)
    }

    /// From containers that run to Ready: as long as it took before, or as its probes have it.
    fn ready_time(&self, pod: PodSeen) -> SignedDuration {
        let known = self.alike(pod).filter_map(PodSeen::ready_in).min();
        let containers = pod.0["spec"]["containers"].as_array().into_iter().flatten();
        let probed = containers.filter_map(|c| {
            let probe = c["readinessProbe"].as_object()?;
            let first = probe.get("initialDelaySeconds").and_then(Value::as_i64).unwrap_or_default();
            Some(SignedDuration::from_secs(first + 1))
        });
        known.or(probed.max()).unwrap_or(SignedDuration::from_secs(1))
    }

    /// The pod and those of the same controller.
    fn alike<'b>(&'b self, pod: PodSeen<'b>) -> impl Iterator<Item = PodSeen<'b>> {
        let all = self.objects.of_kind("Pod").map(|(_, p)| PodSeen(p));
        all.filter(move |p| {
            let same = p.name() == pod.name() && p.namespace() == pod.namespace();
            same || makers::same_workload(self.objects, *p, pod)
        })
    }
}

/// A volume's name for people.
pub(crate) fn held_name(volume: &HeldVolume) -> &str {
    volume.volume.as_deref().unwrap_or(&volume.claim)
}

/// The pods on a node that use a volume, those that have ended left out.
pub(crate) fn holders<'a>(
    objects: &'a Objects,
    volume: &'a HeldVolume,
    node: &'a str,
) -> impl Iterator<Item = PodSeen<'a>> {
    let there = objects.of_kind("Pod").map(|(_, p)| PodSeen(p)).filter(move |p| p.node() == Some(node) && !p.ended());
    there.filter(|p| {
        let theirs = volumes_of(objects, p.namespace(), p.0);
        theirs.iter().any(|v| v.volume.is_some() && v.volume == volume.volume)
    })
}

/// Since when a volume is needed no more on a node where no pod has it: since the pod that had it is gone. That is
/// when a StatefulSet made the one which waits now; with a ReplicaSet, that one may be older than the end of the other.
pub(crate) fn released_before(objects: &Objects, now: Timestamp, pod: PodSeen) -> Timestamp {
    let made = pod.created().map_or(now, |at| at + LOST);
    let uid = pod.0["metadata"]["uid"].as_str();
    let said = events::about(objects, "Pod", pod.namespace(), pod.name(), uid);
    let used = said.iter().rev().find(|s| s.reason == "FailedAttachVolume" && s.message.contains("used by pod"));
    let Some(seen) = used.and_then(|s| s.at) else { return made };
    // A ReplicaSet counts the pods that are being deleted: the last of them went when its status changed last.
    let set = pod.owner().and_then(|(kind, name)| objects.get(&ObjectKey::new(kind, pod.namespace(), name)));
    let fields = set.and_then(|s| s["metadata"]["managedFields"].as_array()).into_iter().flatten();
    let changed = fields.filter(|f| f["subresource"] == "status").filter_map(|f| time(&f["time"])).max();
    changed.unwrap_or(seen).max(seen) + LOST
}

/// Whether a container of a pod may run.
fn running(pod: PodSeen) -> bool {
    pod.containers().any(|c| c["state"].get("terminated").is_none() && c["state"].get("waiting").is_none())
}

/// A pod's object as its controller would make it anew.
fn template(pod: &Value, same_name: bool) -> Value {
    let mut out = pod.clone();
    for (part, field) in [
        ("metadata", "deletionTimestamp"),
        ("metadata", "deletionGracePeriodSeconds"),
        ("metadata", "finalizers"),
        ("metadata", "uid"),
        ("spec", "nodeName"),
    ] {
        if let Some(object) = out[part].as_object_mut() {
            object.remove(field);
        }
    }
    out["status"] = json!({ "phase": "Pending" });
    if !same_name {
        let name = format!("{}-next", pod["metadata"]["name"].as_str().unwrap_or_default());
        out["metadata"]["name"] = name.into();
        // Such a claim is made with the pod, and has no volume yet.
        if let Some(volumes) = out["spec"]["volumes"].as_array_mut() {
            volumes.retain(|v| v.get("ephemeral").is_none());
        }
    }
    out
}

fn with_taint(node: &Value, key: &str) -> Value {
    let mut out = node.clone();
    let taint = json!({ "key": key, "effect": if key == OUT_OF_SERVICE { "NoExecute" } else { "NoSchedule" } });
    match out["spec"]["taints"].as_array_mut() {
        Some(taints) => taints.push(taint),
        None => out["spec"]["taints"] = json!([taint]),
    }
    out
}

/// A node that is back: the node controller and the cloud take their taints away.
fn without_taints(node: &Value) -> Value {
    let mut out = node.clone();
    if let Some(taints) = out["spec"]["taints"].as_array_mut() {
        taints.retain(|t| {
            let key = t["key"].as_str().unwrap_or_default();
            key != UNREACHABLE && key != "node.kubernetes.io/not-ready" && key != SHUTDOWN
        });
    }
    out
}
