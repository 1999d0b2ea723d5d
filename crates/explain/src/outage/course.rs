//! What would happen if: the moments from a pod that is in the way to one that is Ready.
//!
//! Each moment is a time, or never: the old object is gone → its successor is made → it is scheduled (by placement, on
//! a fork of the cluster as it would then be) → its volumes are detached from where they were → attached, started, and
//! Ready. Nothing is simulated: each follows from those before it by Kubernetes' own rules and waiting times.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use stead_placement::{Cluster, Pod};

use super::eviction;
use super::makers::{self, Maker};
use super::node::{NodeStanding, OUT_OF_SERVICE, UNREACHABLE};
use super::placing::{template, with_taint, without_taints};
use super::pod::PodSeen;
use super::stages::Stages;
use super::starting::refused;
use super::timers::Clock;
use super::times::{is_near, seconds};
use super::way::{Miss, Outcome, Way};
use stead_model::{ModelError, ObjectKey, Objects};

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

/// So long a kubelet may take to end a pod, or to let go of a volume, before something is wrong with it.
pub(super) const PATIENCE: SignedDuration = SignedDuration::from_secs(120);

/// One way, and what follows from it.
pub(crate) struct Course<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) clock: &'a Clock,
    /// The cluster as the scheduler sees it.
    pub(super) stages: Stages,
    pub(crate) way: Way,
    /// The node that the way is about.
    pub(crate) node: Option<&'a str>,
    /// The pods that are deleted by it.
    pub(super) targets: BTreeSet<ObjectKey>,
    /// When that node has the taint that evicts.
    pub(super) tainted: Option<Timestamp>,
    /// When the objects of pods are gone: of those of that node and of nodes that are not there, and of all others that
    /// are being deleted.
    pub(super) gone: Vec<(ObjectKey, Timestamp)>,
    /// The nodes whose kubelets answer.
    pub(super) alive: BTreeSet<&'a str>,
    /// What was foreseen of pods, so that those which wait for others need not ask again and again; none while it is being
    /// reckoned.
    foreseen: RefCell<BTreeMap<ObjectKey, Option<Outcome>>>,
    /// The pods whose place is taken.
    settled: BTreeSet<ObjectKey>,
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
    ) -> Result<Course<'a>, ModelError> {
        let standing = node.and_then(|name| NodeStanding::find(objects, name));
        let tainted = standing.and_then(|node| eviction::tainted(objects, clock, &node));
        let (stages, gone, alive) = (Stages::new(cluster.clone()), Vec::new(), BTreeSet::new());
        let (foreseen, settled) = (RefCell::default(), BTreeSet::new());
        let mut course = Course { objects, clock, stages, way, node, targets, tainted, gone, alive, foreseen, settled };
        for (key, value) in objects.raw_of_kind("Node") {
            let ours = node == Some(key.name.as_str());
            let life = course.life(&key.name);
            course.alive.extend((life == Life::Alive).then_some(key.name.as_str()));
            if ours && way == Way::DeleteNode {
                course.stages.remove(key);
            } else if ours && way == Way::NodeReturns {
                // The node controller looks, and takes its taints away.
                let looks = clock.now + clock.timers.kubelet_return + clock.timers.node_monitor_period / 2;
                course.stages.set_from(looks, key, &without_taints(value))?;
            } else if ours && way == Way::OutOfService && life == Life::Silent {
                course.stages.set(key, &with_taint(value, OUT_OF_SERVICE))?;
            } else if life == Life::Silent {
                // Until the node controller finds it silent it has no taint, and the scheduler takes it for well.
                let tainted = with_taint(value, UNREACHABLE);
                match course.found(&key.name).filter(|found| *found > clock.now) {
                    Some(found) => course.stages.set_from(found, key, &tainted)?,
                    None => course.stages.set(key, &tainted)?,
                }
            }
        }
        let nodes: BTreeSet<&str> = objects.raw_of_kind("Node").map(|(key, _)| key.name.as_str()).collect();
        let goes = |key: &ObjectKey, pod: PodSeen| {
            let elsewhere = pod.node().is_none_or(|n| nodes.contains(n) && node != Some(n));
            !elsewhere || pod.due().is_some() || course.targets.contains(key)
        };
        let going = objects.raw_of_kind("Pod").filter(|(key, p)| goes(key, PodSeen(p)));
        course.gone = going.filter_map(|(key, p)| Some((key.clone(), course.fate(PodSeen(p)).gone?))).collect();
        Ok(course)
    }

    /// From now on, a node has the pod that is made in the place of another. What was foreseen of that stands; all others may
    /// have to go elsewhere.
    pub(crate) fn occupy(&mut self, pod: PodSeen, node: &str) {
        self.settled.insert(pod.key());
        self.foreseen.get_mut().retain(|key, _| self.settled.contains(key));
        let Ok(next) = Pod::from_raw(&template(pod.0, false)) else { return };
        self.stages.occupy(&next, node);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now
    }

    /// How a node is, on this way.
    pub(crate) fn life(&self, name: &str) -> Life {
        let ours = self.node == Some(name);
        match NodeStanding::find(self.objects, name) {
            None => Life::Gone,
            Some(_) if ours && self.way == Way::DeleteNode => Life::Gone,
            Some(_) if ours && self.way == Way::NodeReturns => Life::Alive,
            Some(node) if node.is_silent(self.clock.leases) => Life::Silent,
            Some(_) => Life::Alive,
        }
    }

    /// From when on a node is not ready for all others.
    pub(super) fn found(&self, name: &str) -> Option<Timestamp> {
        eviction::unknown_from(self.clock, &NodeStanding::find(self.objects, name)?)
    }

    /// Whether the out-of-service taint is on a node, on this way. It goes with the Node object.
    pub(super) fn out_of_service(&self, name: &str) -> bool {
        let found = NodeStanding::find(self.objects, name).is_some_and(|n| n.taint(OUT_OF_SERVICE).is_some());
        self.life(name) != Life::Gone && (found || (self.way == Way::OutOfService && self.node == Some(name)))
    }

    /// What becomes of a pod: when it, or the one in its place, is Ready.
    pub(crate) fn outcome(&self, pod: PodSeen) -> Outcome {
        match self.foreseen.borrow().get(&pod.key()) {
            Some(Some(outcome)) => return outcome.clone(),
            Some(None) => {
                return Outcome::default().never(format!("pod {} waits for what waits for it", pod.name()));
            }
            None => {}
        }
        self.foreseen.borrow_mut().insert(pod.key(), None);
        let outcome = self.reckoned(pod);
        self.foreseen.borrow_mut().insert(pod.key(), Some(outcome.clone()));
        outcome
    }

    fn reckoned(&self, pod: PodSeen) -> Outcome {
        let lives = |node: &&str| pod.due().is_none() && !pod.ended() && self.life(node) == Life::Alive;
        match pod.node() {
            None if pod.due().is_none() => self.placed(pod, pod, self.now(), Outcome::default()),
            Some(node) if lives(&node) && !self.targets.contains(&pod.key()) => self.there(pod, node),
            _ => self.replaced(pod),
        }
    }

    /// A pod on a node whose kubelet answers.
    fn there(&self, pod: PodSeen, node: &str) -> Outcome {
        let (now, timers) = (self.now(), &self.clock.timers);
        let mut out = Outcome { nodes: vec![node.to_owned()], ..Outcome::default() };
        let back = self.way == Way::NodeReturns && self.node == Some(node);
        if let Some(why) = refused(pod).filter(|_| back) {
            return out.never(why);
        }
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
    fn replaced(&self, pod: PodSeen) -> Outcome {
        let mut out = Outcome::default();
        let fate = self.fate(pod);
        let name = pod.name();
        if let Some(next) = makers::successor(self.objects, pod) {
            out.step(format!("pod {} was made in its place", next.name()), next.created().unwrap_or(self.now()));
            let then = self.outcome(next);
            out.steps.extend(then.steps);
            return Outcome { steps: out.steps, ..then };
        }
        if let Some(why) = makers::retired(self.objects, pod) {
            return out.never(format!("pod {name} is not made anew: {why}"));
        }
        let maker = Maker::of(self.objects, pod);
        let mut next = None;
        let made = match maker {
            Maker::Nobody => return out.never(format!("nobody makes pod {name} anew: it has no controller")),
            Maker::Kubelet => {
                return out.never(format!("pod {name} is made by the node's own kubelet, and there alone"));
            }
            Maker::EachNode if pod.node().is_none_or(|n| self.life(n) != Life::Alive) => {
                return out
                    .never(format!("a DaemonSet's pod is for its own node alone, and that is {}", self.word(pod)));
            }
            Maker::Identities { set: Some(set), .. } if !makers::in_range(set, pod) => {
                return out.never(format!("pod {name} is not made anew: its StatefulSet wants fewer pods"));
            }
            Maker::Replicas { set } if !self.wanted(pod, set) => match self.rolled_out(pod) {
                Ok((made, other)) => {
                    next = Some(other);
                    Some(made)
                }
                Err(why) => return out.never(why),
            },
            Maker::Replicas { .. } => [fate.deleted, fate.gone].into_iter().flatten().min(),
            Maker::Job(job) => match self.retried(job, pod, fate) {
                Ok(made) => made,
                Err(why) => return out.never(why),
            },
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
            Maker::Identities { ordered: true, set } => match self.turn(pod, set, made) {
                Ok(made) => made,
                Err(miss) => return out.missed(miss),
            },
            _ => made,
        };
        out.step("its successor is made", made);
        self.placed(next.as_ref().map_or(pod, PodSeen), pod, made, out)
    }

    /// When it is a StatefulSet's pod's turn: all before it have to be Ready, and for long enough (isRunningAndAvailable in
    /// pkg/controller/statefulset).
    fn turn(&self, pod: PodSeen, set: Option<&Value>, made: Timestamp) -> Result<Timestamp, Miss> {
        let mut at = made;
        let long = set.and_then(|s| seconds(&s["spec"]["minReadySeconds"])).unwrap_or_default();
        let before = self.objects.raw_of_kind("Pod").map(|(_, p)| PodSeen(p)).filter(|p| p.is_sibling(pod));
        for other in before.filter(|p| p.ordinal() < pod.ordinal() && !self.passes_for_ready(*p, made)) {
            let (then, name) = (self.outcome(other), other.name());
            let rule = format!("its StatefulSet makes it only when pod {name} is Ready");
            let available = then.ready_at.and_then(|ready| ready.checked_add(long).ok()).filter(|at| is_near(*at));
            at = match (available, then.unknown) {
                (Some(available), _) => at.max(available),
                (None, Some(why)) => return Err(Miss::Unknown(format!("{rule}, of which that is not known: {why}"))),
                (None, None) => return Err(Miss::Never(format!("{rule}, which it never is"))),
            };
        }
        Ok(at)
    }

    /// Whether a pod is Ready in the eyes of controllers at a moment, though its node is silent: nobody has found out yet.
    fn passes_for_ready(&self, pod: PodSeen, at: Timestamp) -> bool {
        pod.ready()
            && pod.node().and_then(|node| self.found(node)).is_some_and(|found| at < found)
            && self.fate(pod).deleted.is_none_or(|deleted| at < deleted)
    }

    /// Whether a ReplicaSet makes another pod for this one.
    fn wanted(&self, pod: PodSeen, set: Option<&Value>) -> bool {
        let Some(replicas) = set.and_then(|s| s["spec"]["replicas"].as_u64()) else { return true };
        let others = self.objects.raw_of_kind("Pod").map(|(_, p)| PodSeen(p));
        let others = others.filter(|p| p.is_sibling(pod) && p.name() != pod.name() && p.due().is_none() && !p.ended());
        (others.count() as u64) < replicas
    }
}
