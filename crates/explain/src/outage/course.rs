//! What would happen if: the moments from a pod that is in the way to one that is Ready.
//!
//! Each moment is a time, or never: the old object is gone → its successor is made → it is scheduled (by placement, on
//! a fork of the cluster as it would then be) → its volumes are detached from where they were → attached, started, and
//! Ready. Nothing is simulated: each follows from those before it by Kubernetes' own rules and waiting times.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::StatefulSet;
use stead_model::times::{is_near, seconds};
use stead_model::{
    ModelError, OUT_OF_SERVICE, ObjectKey, Objects, PodController, PodOutline, PodView, UNREACHABLE, WorkloadView,
    not_recreated, replacement_of,
};
use stead_placement::{Cluster, Pod};

use super::eviction;
use super::node::health;
use super::placing::{template, with_taint, without_taints};
use super::pod::runs;
use super::stages::Stages;
use super::starting::refused;
use super::timers::Clock;
use super::way::{Miss, Outcome, Way};

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
    /// The nodes that a plan has chosen for the replacements of pods.
    pub(super) chosen: BTreeMap<ObjectKey, String>,
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
        let standing = node.and_then(|name| health(objects, name));
        let tainted = standing.and_then(|node| eviction::tainted(objects, clock, &node));
        let (stages, gone, alive) = (Stages::new(cluster.clone()), Vec::new(), BTreeSet::new());
        let (foreseen, settled, chosen) = (RefCell::default(), BTreeSet::new(), BTreeMap::new());
        let mut course =
            Course { objects, clock, stages, way, node, targets, tainted, gone, alive, foreseen, settled, chosen };
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
        // Most pods of a large cluster stay where they are: only the others are parsed.
        let goes = |pod: &PodOutline| {
            let elsewhere = pod.node().is_none_or(|n| nodes.contains(n) && node != Some(n));
            !elsewhere || pod.is_terminating()
        };
        let targets = course.targets.iter().filter_map(|key| objects.pod(key).ok().flatten());
        let going: BTreeMap<&ObjectKey, PodView> =
            objects.pods_with(goes).chain(targets).map(|pod| (pod.key(), pod)).collect();
        course.gone = going.into_iter().filter_map(|(key, p)| Some((key.clone(), course.fate(p).gone?))).collect();
        Ok(course)
    }

    /// A plan has chosen this node for the replacement of a pod.
    pub(crate) fn choose(&mut self, pod: PodView, node: &str) {
        let waiting = replacement_of(self.objects, pod).unwrap_or(pod);
        self.chosen.insert(waiting.key().clone(), node.to_owned());
    }

    /// From now on, a node has the pod that is made in the place of another. What was foreseen of that stands; all others may
    /// have to go elsewhere.
    pub(crate) fn occupy(&mut self, pod: PodView, node: &str) {
        self.settled.insert(pod.key().clone());
        self.foreseen.get_mut().retain(|key, _| self.settled.contains(key));
        let Ok(next) = Pod::from_raw(&template(pod.raw(), false), self.objects.version()) else { return };
        self.stages.occupy(&next, node);
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now
    }

    /// How a node is, on this way.
    pub(crate) fn life(&self, name: &str) -> Life {
        let ours = self.node == Some(name);
        match health(self.objects, name) {
            None => Life::Gone,
            Some(_) if ours && self.way == Way::DeleteNode => Life::Gone,
            Some(_) if ours && self.way == Way::NodeReturns => Life::Alive,
            Some(node) if node.is_unreachable(self.clock.leases) => Life::Silent,
            Some(_) => Life::Alive,
        }
    }

    /// From when on a node is not ready for all others.
    pub(super) fn found(&self, name: &str) -> Option<Timestamp> {
        eviction::unknown_from(self.clock, &health(self.objects, name)?)
    }

    /// Whether the out-of-service taint is on a node, on this way. It goes with the Node object.
    pub(super) fn out_of_service(&self, name: &str) -> bool {
        let found = health(self.objects, name).is_some_and(|n| n.taint(OUT_OF_SERVICE).is_some());
        self.life(name) != Life::Gone && (found || (self.way == Way::OutOfService && self.node == Some(name)))
    }

    /// What becomes of a pod: when it, or the one in its place, is Ready.
    pub(crate) fn outcome(&self, pod: PodView) -> Outcome {
        match self.foreseen.borrow().get(pod.key()) {
            Some(Some(outcome)) => return outcome.clone(),
            Some(None) => {
                return Outcome::default().never(format!("pod {} is in a circular wait", pod.name()));
            }
            None => {}
        }
        self.foreseen.borrow_mut().insert(pod.key().clone(), None);
        let outcome = self.reckoned(pod);
        self.foreseen.borrow_mut().insert(pod.key().clone(), Some(outcome.clone()));
        outcome
    }

    fn reckoned(&self, pod: PodView) -> Outcome {
        let lives = |node: &&str| !pod.is_terminating() && !pod.has_ended() && self.life(node) == Life::Alive;
        match pod.node() {
            None if !pod.is_terminating() => self.placed(pod, pod, self.now(), Outcome::default()),
            Some(node) if lives(&node) && !self.targets.contains(pod.key()) => self.there(pod, node),
            _ => self.replaced(pod),
        }
    }

    /// A pod on a node whose kubelet answers.
    fn there(&self, pod: PodView, node: &str) -> Outcome {
        let (now, timers) = (self.now(), &self.clock.timers);
        let mut out = Outcome { nodes: vec![node.to_owned()], ..Outcome::default() };
        let back = self.way == Way::NodeReturns && self.node == Some(node);
        if let Some(why) = refused(pod).filter(|_| back) {
            return out.never(why);
        }
        if back && runs(pod) {
            out.step(format!("the kubelet of {node} reports that it still runs"), now + timers.kubelet_return);
            return out.ready(now + timers.kubelet_return);
        }
        if let Some(since) = pod.condition_since("Ready", "True").filter(|_| pod.is_ready()) {
            return out.ready(since);
        }
        let begun = pod.condition_since("PodScheduled", "True").unwrap_or(now);
        self.started(pod, if back { now + timers.kubelet_return } else { begun }, out)
    }

    /// A pod whose place somebody else has to take.
    fn replaced(&self, pod: PodView) -> Outcome {
        let mut out = Outcome::default();
        let fate = self.fate(pod);
        let name = pod.name();
        if let Some(next) = replacement_of(self.objects, pod) {
            out.step(format!("pod {} was created in its place", next.name()), next.created().unwrap_or(self.now()));
            let then = self.outcome(next);
            out.steps.extend(then.steps);
            return Outcome { steps: out.steps, ..then };
        }
        if let Some(why) = not_recreated(self.objects, pod) {
            return out.never(format!("pod {name} will not be recreated: {why}"));
        }
        let maker = PodController::of(self.objects, pod);
        let mut next = None;
        let made = match maker {
            PodController::None => return out.never(format!("pod {name} will not be recreated (no controller)")),
            PodController::Kubelet => {
                return out.never(format!("pod {name} is a static pod: it runs on its own node only"));
            }
            PodController::DaemonSet if pod.node().is_none_or(|n| self.life(n) != Life::Alive) => {
                return out
                    .never(format!("a DaemonSet's pod runs on its own node only, and that is {}", self.word(pod)));
            }
            PodController::ReplicaSet { set } if !self.wanted(pod, set) => match self.rolled_out(pod) {
                Ok((made, other)) => {
                    next = Some(other);
                    Some(made)
                }
                Err(why) => return out.never(why),
            },
            PodController::ReplicaSet { .. } => [fate.deleted, fate.gone].into_iter().flatten().min(),
            PodController::Job { job } => match self.retried(job, pod, fate) {
                Ok(made) => made,
                Err(why) => return out.never(why),
            },
            PodController::StatefulSet { .. } | PodController::DaemonSet | PodController::Other { .. } => fate.gone,
        };
        if let Some(at) = fate.deleted {
            out.step(
                format!(
                    "the deletion of pod {name} {}",
                    if at <= self.now() { "was requested" } else { "is requested" }
                ),
                at,
            );
        }
        let Some(made) = made.map(|at| at.max(self.now())) else {
            return out.never(self.why_it_stays(pod, fate, maker));
        };
        if fate.gone.is_some_and(|gone| gone <= made) {
            out.step(format!("the object of pod {name} is gone"), made);
        }
        let made = match maker {
            PodController::StatefulSet { set } if maker.is_ordered() => match self.turn(pod, set, made) {
                Ok(made) => made,
                Err(miss) => return out.missed(miss),
            },
            _ => made,
        };
        out.step("its replacement is created", made);
        self.placed(next.as_ref().and_then(|next| next.pods().next()).unwrap_or(pod), pod, made, out)
    }

    /// When it is a StatefulSet's pod's turn: all before it have to be Ready, and for long enough (isRunningAndAvailable in
    /// pkg/controller/statefulset).
    fn turn(&self, pod: PodView, set: Option<&StatefulSet>, made: Timestamp) -> Result<Timestamp, Miss> {
        let mut at = made;
        let long =
            set.and_then(|s| s.spec.as_ref()?.min_ready_seconds).map(|s| seconds(i64::from(s))).unwrap_or_default();
        let before = self.objects.pods_of_same_workload(pod).filter(|p| p.is_sibling(pod));
        for other in before.filter(|p| p.ordinal() < pod.ordinal() && !self.passes_for_ready(*p, made)) {
            let (then, name) = (self.outcome(other), other.name());
            let rule = format!("its StatefulSet creates it only when pod {name} is Ready");
            let available = then.ready_at.and_then(|ready| ready.checked_add(long).ok()).filter(|at| is_near(*at));
            at = match (available, then.unknown) {
                (Some(available), _) => at.max(available),
                (None, Some(why)) => return Err(Miss::Unknown(format!("{rule}, which is unknown: {why}"))),
                (None, None) => return Err(Miss::Never(format!("{rule}, which never happens"))),
            };
        }
        Ok(at)
    }

    /// Whether a pod is Ready in the eyes of controllers at a moment, though its node is silent: nobody has found out yet.
    fn passes_for_ready(&self, pod: PodView, at: Timestamp) -> bool {
        pod.is_ready()
            && pod.node().and_then(|node| self.found(node)).is_some_and(|found| at < found)
            && self.fate(pod).deleted.is_none_or(|deleted| at < deleted)
    }

    /// Whether a ReplicaSet makes another pod for this one.
    fn wanted(&self, pod: PodView, set: Option<WorkloadView>) -> bool {
        let Some(replicas) = set.and_then(|s| u64::try_from(s.replicas()?).ok()) else { return true };
        let others = self.objects.pods_of_same_workload(pod);
        let others =
            others.filter(|p| p.is_sibling(pod) && p.name() != pod.name() && !p.is_terminating() && !p.has_ended());
        (others.count() as u64) < replicas
    }
}
