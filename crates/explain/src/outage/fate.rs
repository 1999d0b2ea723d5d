//! What becomes of a pod's object: when its deletion begins, when its volumes are let go, when it is gone.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use stead_model::{NodeHealth, OUT_OF_SERVICE, PodController, PodView, TolerationTime};

use super::course::{Course, Life, PATIENCE};
use super::events;
use super::eviction::{self, no_execute, tolerance};
use super::jobs;
use super::node::health;
use super::way::Way;

/// What becomes of a pod's object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fate {
    /// When its deletion begins, or began.
    pub(crate) deleted: Option<Timestamp>,
    /// When its phase says that it has ended, or it is gone.
    pub(crate) ended: Option<Timestamp>,
    /// When its volumes are needed no more in the eyes of the attach-detach controller.
    pub(crate) released: Option<Timestamp>,
    /// When the object is gone.
    pub(crate) gone: Option<Timestamp>,
}

impl Course<'_> {
    /// What becomes of a pod's object.
    pub(crate) fn fate(&self, pod: PodView) -> Fate {
        let (deleted, confirmed) = self.end(pod);
        let by_force = self.by_force(pod);
        let held = pod.blocking_finalizers().next().is_some() || (by_force && jobs::keeps(self.objects, pod));
        let gone = confirmed.filter(|_| !held);
        let ended = match (pod.has_ended(), by_force) {
            (true, _) => Some(self.now()),
            // The pod collector and kubelets say that a pod has ended before they delete it; a person does not.
            (false, true) => gone,
            (false, false) => confirmed,
        };
        let idle = deleted.filter(|_| !pod.has_running_container());
        Fate { deleted, ended, released: [ended, idle].into_iter().flatten().min(), gone }
    }

    /// Whether a person deletes a pod by force.
    fn by_force(&self, pod: PodView) -> bool {
        self.way == Way::ForceDeletePod && self.targets.contains(pod.key())
    }

    /// When a pod's deletion begins, and when somebody confirms that it has ended.
    fn end(&self, pod: PodView) -> (Option<Timestamp>, Option<Timestamp>) {
        let (now, timers, asked) = (self.now(), &self.clock.timers, pod.deletion_requested());
        let Some(name) = pod.node() else { return (asked, asked) };
        if pod.has_ended() && asked.is_none() {
            // It counts for nothing: whoever made it deletes it, and the API server lets it go at once. One whose deletion
            // began before it had ended still waits for its kubelet.
            return (Some(now), Some(now));
        }
        if self.targets.contains(pod.key()) {
            let end = if self.way == Way::ForceDeletePod { Some(now) } else { self.stopped(name, now, None) };
            return (asked.or(Some(now)), end);
        }
        let node = health(self.objects, name);
        let evicted = || asked.or_else(|| self.evicted(node.as_ref()?, pod));
        match (self.life(name), &node) {
            (Life::Alive, _) => (asked, asked.and_then(|asked| self.stopped(name, asked, pod.deletion_due()))),
            (Life::Silent, Some(node)) if self.out_of_service(name) => {
                let taint = Taint { value: Some("nodeshutdown".into()), ..no_execute(OUT_OF_SERVICE) };
                let by_taint = match tolerance(pod, [&taint]) {
                    TolerationTime::None => Some(now),
                    TolerationTime::For(time) => Some(now.checked_add(time).unwrap_or(Timestamp::MAX)),
                    TolerationTime::Forever => None,
                };
                let deleted = asked.or([by_taint, evicted()].into_iter().flatten().min());
                // The pod collector wants both the taint and a node that is not ready.
                let not_ready = eviction::unknown_from(self.clock, node).unwrap_or(now);
                (deleted, deleted.map(|at| timers.pod_gc(at.max(now).max(not_ready))))
            }
            (Life::Silent, _) => (evicted(), None),
            (Life::Gone, node) => {
                let since = if node.is_some() { now } else { events::node_gone(self.objects, name).unwrap_or(now) };
                let gone = timers.orphans_gone(since).max(now);
                // The timers of the taint eviction controller go on without the Node object (handleNodeUpdate), but one that
                // is not there gets no taint any more (doNoExecuteTaintingPass).
                let evicted = match node {
                    Some(node) => evicted().filter(|_| node.taints().iter().any(eviction::is_ours)),
                    None => eviction::evicted_without_node(self.clock, pod),
                };
                (asked.or([evicted, Some(gone)].into_iter().flatten().min()), Some(gone))
            }
        }
    }

    /// When a pod's deletion begins by taints.
    pub(super) fn evicted(&self, node: &NodeHealth, pod: PodView) -> Option<Timestamp> {
        match self.node == Some(node.name()) {
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

    /// Why a pod that is in the way stays there.
    pub(super) fn why_it_stays(&self, pod: PodView, fate: Fate, maker: PodController) -> String {
        let (name, node) = (pod.name(), pod.node().unwrap_or_default());
        let held: Vec<&str> = pod.blocking_finalizers().collect();
        let by_force = self.by_force(pod);
        if by_force && jobs::keeps(self.objects, pod) {
            return format!(
                "the object of pod {name} stays: its Job replaces only failed pods, and this one is not reported as failed"
            );
        }
        if !held.is_empty() && (by_force || fate.released.is_some()) {
            return format!("the object of pod {name} stays: finalizer {} is not removed", held.join(", "));
        }
        if fate.deleted.is_none() {
            let standing = health(self.objects, node);
            let brake = standing.and_then(|n| eviction::brake(self.objects, self.clock, &n));
            return match brake {
                _ if self.life(node) == Life::Alive => format!("pod {name} is not being deleted"),
                Some(eviction::Brake::AllDown) => {
                    "no node is ready, so Kubernetes evicts no pods: it assumes that the control plane is at fault"
                        .to_owned()
                }
                Some(eviction::Brake::ZoneDisturbed) => {
                    format!("most nodes of the zone of {node} are not ready, so Kubernetes evicts no pods there")
                }
                Some(eviction::Brake::NoRate) => {
                    "the eviction rate of the cluster is 0, so Kubernetes evicts no pods".to_owned()
                }
                None => format!("pod {name} tolerates the taints of {node} forever"),
            };
        }
        let who = if self.life(node) == Life::Alive { "has not ended it" } else { "cannot confirm that it has ended" };
        let rule = match maker {
            PodController::StatefulSet { .. } => ", and a StatefulSet never has two pods of one name",
            _ => "",
        };
        format!("the object of pod {name} stays: the kubelet of {node} {who}{rule}")
    }

    /// How a pod's node is, in a word.
    pub(super) fn word(&self, pod: PodView) -> &'static str {
        match pod.node().map(|n| self.life(n)) {
            Some(Life::Gone) => "gone",
            _ => "unreachable",
        }
    }
}
