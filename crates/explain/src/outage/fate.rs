//! What becomes of a pod's object: when its deletion begins, when its volumes are let go, when it is gone.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::course::{Course, Life, PATIENCE};
use super::events;
use super::eviction::{self, Tolerance, tolerance};
use super::jobs;
use super::makers::Maker;
use super::node::{NodeStanding, OUT_OF_SERVICE};
use super::pod::PodSeen;
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
    pub(crate) fn fate(&self, pod: PodSeen) -> Fate {
        let (deleted, confirmed) = self.end(pod);
        let by_force = self.by_force(pod);
        let held = pod.finalizers().next().is_some() || (by_force && jobs::keeps(self.objects, pod));
        let gone = confirmed.filter(|_| !held);
        let ended = match (pod.ended(), by_force) {
            (true, _) => Some(self.now()),
            // The pod collector and kubelets say that a pod has ended before they delete it; a person does not.
            (false, true) => gone,
            (false, false) => confirmed,
        };
        let idle = deleted.filter(|_| !running(pod));
        Fate { deleted, ended, released: [ended, idle].into_iter().flatten().min(), gone }
    }

    /// Whether a person deletes a pod by force.
    fn by_force(&self, pod: PodSeen) -> bool {
        self.way == Way::ForceDeletePod && self.targets.contains(&pod.key())
    }

    /// When a pod's deletion begins, and when somebody confirms that it has ended.
    fn end(&self, pod: PodSeen) -> (Option<Timestamp>, Option<Timestamp>) {
        let (now, timers, asked) = (self.now(), &self.clock.timers, pod.deleted());
        let Some(name) = pod.node() else { return (asked, asked) };
        if pod.ended() && asked.is_none() {
            // It counts for nothing: whoever made it deletes it, and the API server lets it go at once. One whose deletion
            // began before it had ended still waits for its kubelet.
            return (Some(now), Some(now));
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
                    Tolerance::For(time) => Some(now.checked_add(time).unwrap_or(Timestamp::MAX)),
                    Tolerance::Forever => None,
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
                    Some(node) => evicted().filter(|_| node.taints.iter().any(eviction::is_ours)),
                    None => eviction::evicted_without_node(self.clock, pod),
                };
                (asked.or([evicted, Some(gone)].into_iter().flatten().min()), Some(gone))
            }
        }
    }

    /// When a pod's deletion begins by taints.
    pub(super) fn evicted(&self, node: &NodeStanding, pod: PodSeen) -> Option<Timestamp> {
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

    /// Why a pod that is in the way stays there.
    pub(super) fn why_it_stays(&self, pod: PodSeen, fate: Fate, maker: Maker) -> String {
        let (name, node) = (pod.name(), pod.node().unwrap_or_default());
        let held: Vec<&str> = pod.finalizers().collect();
        let by_force = self.by_force(pod);
        if by_force && jobs::keeps(self.objects, pod) {
            return format!(
                "the object of pod {name} stays: its Job replaces only pods that have failed, and nobody says that this one \
                 has"
            );
        }
        if !held.is_empty() && (by_force || fate.released.is_some()) {
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
                Some(eviction::Brake::NoRate) => {
                    "the cluster's rate of eviction is 0, so Kubernetes evicts nobody".to_owned()
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
    pub(super) fn word(&self, pod: PodSeen) -> &'static str {
        match pod.node().map(|n| self.life(n)) {
            Some(Life::Gone) => "gone",
            _ => "silent",
        }
    }
}

/// Whether a container of a pod may run.
fn running(pod: PodSeen) -> bool {
    pod.containers().any(|c| c["state"].get("terminated").is_none() && c["state"].get("waiting").is_none())
}
