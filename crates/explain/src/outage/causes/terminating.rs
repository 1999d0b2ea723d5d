//! Why a pod is Terminating, or will be.

use stead_model::{
    EventView, NotRecreated, OUT_OF_SERVICE, PodController, PodView, TolerationTime, not_recreated, pod_volumes,
    replacement_of,
};

use super::OutageExplainer;
use crate::managers::managers_of;
use crate::outage::eviction::{self, tolerance};
use crate::outage::forecast::Scene;
use crate::outage::node::{health, is_on_not_ready_node};
use crate::outage::time_text::{span, when};

impl OutageExplainer<'_> {
    /// Why a pod is Terminating.
    pub(crate) fn terminating(&self, pod: PodView, scene: &Scene) -> Vec<String> {
        let now = self.clock.now;
        let mut out = Vec::new();
        let requested = pod.deletion_requested().map(|at| when(at, now)).unwrap_or_default();
        let by = pod.condition("DisruptionTarget").and_then(|condition| condition.message.as_ref());
        let by = by.map(|message| format!("; Kubernetes says {message:?}")).unwrap_or_default();
        out.push(format!("its deletion was requested at {requested}{by}"));
        let lost = scene.node.is_some();
        if let Some(node) = pod.node() {
            out.extend(self.node(node));
            match pod.deletion_due() {
                _ if lost => out.push(self.waits(node)),
                Some(due) if due < now => {
                    out.push(format!(
                        "its grace period ended {} ago, and the kubelet of {node} is reachable: see the kubelet's log \
                         for why the pod does not end",
                        span(now.duration_since(due))
                    ));
                    out.extend(self.containers(pod));
                }
                due => {
                    let until = due.map(|due| when(due, now)).unwrap_or_default();
                    out.push(format!("the kubelet of {node} is stopping it; its grace period ends at {until}"));
                }
            }
        } else {
            out.push("it has no node: the pod garbage collector deletes it on its next run".to_owned());
        }
        out.extend(self.finalizers(pod));
        out.extend(self.evictions(pod));
        out.push(self.recreation(pod));
        for volume in pod_volumes(self.objects, pod) {
            let there = volume.attachments.iter().filter(|a| Some(a.node.as_str()) == pod.node());
            out.extend(there.map(|a| format!("volume {} stays attached to {} meanwhile", volume.name(), a.node)));
        }
        out.extend(self.out_of_reach(pod));
        out
    }

    /// Who recreates a pod that is being deleted.
    fn recreation(&self, pod: PodView) -> String {
        match not_recreated(self.objects, pod) {
            Some(NotRecreated::ScaledDown(_)) => {
                return "it will not be recreated: its StatefulSet is scaled down".to_owned();
            }
            Some(why) => return format!("it will not be recreated: {why}"),
            None => {}
        }
        match PodController::of(self.objects, pod) {
            PodController::StatefulSet { .. } => format!(
                "its StatefulSet recreates {} only when this object is gone: there are never two pods of one name",
                pod.name()
            ),
            PodController::ReplicaSet { set } => match replacement_of(self.objects, pod) {
                Some(next) => format!("its replacement is pod {}: {}", next.name(), self.state(next)),
                None if set.is_some_and(|set| set.replicas() == Some(0)) => {
                    "its ReplicaSet is scaled to 0; the outlook shows what its Deployment creates instead".to_owned()
                }
                None => "a pod that is being deleted no longer counts: its controller creates another".to_owned(),
            },
            PodController::Job { .. } => match replacement_of(self.objects, pod) {
                Some(next) => format!("its replacement is pod {}: {}", next.name(), self.state(next)),
                None => "a pod that is being deleted no longer counts: its controller creates another".to_owned(),
            },
            PodController::DaemonSet => "its DaemonSet recreates it on the same node only".to_owned(),
            PodController::Kubelet => "it is a static pod: the kubelet of its node runs it from a file".to_owned(),
            PodController::Other { kind } => format!("its {kind} may create another when this object is gone"),
            PodController::None => "it will not be recreated (no controller)".to_owned(),
        }
    }

    /// What ends a pod on an unreachable node.
    fn waits(&self, node: &str) -> String {
        match health(self.objects, node) {
            None => format!(
                "node {node} does not exist: the pod garbage collector deletes the pods of a node that does not exist"
            ),
            Some(n) if n.taint(OUT_OF_SERVICE).is_some() => format!(
                "node {node} is out of service: Kubernetes does not wait for its kubelet, and the pod garbage collector \
                 deletes the pod on its next run"
            ),
            Some(_) => format!(
                "Kubernetes waits until the kubelet of {node} confirms that the pod has ended. This does not happen by \
                 itself: the wait ends when the node returns, the pod is force-deleted, the Node object is deleted, or \
                 the node gets the out-of-service taint"
            ),
        }
    }

    /// The finalizers of a pod, with who set them.
    fn finalizers(&self, pod: PodView) -> Vec<String> {
        pod.blocking_finalizers()
            .map(|finalizer| {
                let managers = managers_of(pod, &["metadata", "finalizers"], Some(&format!("v:{finalizer:?}")));
                let owner = managers.into_iter().next();
                let owner = owner.or_else(|| Some(format!("the owner of {}", finalizer.split_once('/')?.0)));
                let owner = owner.unwrap_or_else(|| "its owner".to_owned());
                format!(
                    "finalizer {finalizer} keeps the object until {owner} removes it; do not remove it by hand without \
                     knowing its purpose"
                )
            })
            .collect()
    }

    /// What the events of the taint eviction controller mean.
    fn evictions(&self, pod: PodView) -> Vec<String> {
        // These events have no UID: those from before the pod are about another one of its name.
        let mut events = self.objects.events_about(pod.key(), None);
        events.retain(|event| event.reason == "TaintManagerEviction" && event.at >= pod.created());
        let last = |text: &str| events.iter().rev().find(|event| event.message.starts_with(text));
        let at = |event: &EventView| event.at.map(|at| when(at, self.clock.now)).unwrap_or_default();
        let mut out = Vec::new();
        if let Some(marked) = last("Marking for deletion") {
            out.push(format!("{:?} ({}): the pod's toleration of the taint expired", marked.message, at(marked)));
        }
        if let Some(cancelled) = last("Cancelling deletion") {
            let meaning = if cancelled.at < pod.deletion_requested() {
                "took effect: the node lost its taints before the toleration expired; the deletion was requested later"
            } else {
                "has no effect: the controller only stopped its own timer, because the pod or the node's taints changed. \
                 The pod already had its deletionTimestamp, which cannot be removed"
            };
            out.push(format!("{:?} ({}) {meaning}", cancelled.message, at(cancelled)));
        }
        out
    }

    /// About a pod on a node that is reachable, but not ready.
    pub(crate) fn on_not_ready_node(&self, pod: PodView) -> Vec<String> {
        if is_on_not_ready_node(self.objects, self.clock, pod) { self.left_behind(pod) } else { Vec::new() }
    }

    /// About a pod on a node that is unreachable or not ready, whose deletion has not been requested yet.
    pub(crate) fn left_behind(&self, pod: PodView) -> Vec<String> {
        let now = self.clock.now;
        let Some(name) = pod.node() else { return Vec::new() };
        let mut out = self.node(name);
        let Some(node) = health(self.objects, name) else {
            out.push("the pod garbage collector deletes the pods of a node that does not exist".to_owned());
            return out;
        };
        out.push(match self.future.and_then(|future| future.evicted(pod)) {
            Some(at) => {
                let others = node.taints().iter().filter(|t| t.effect == "NoExecute");
                let tolerates = match tolerance(pod, others.chain([&eviction::evicting(&node)])) {
                    TolerationTime::For(time) => format!("it tolerates that for {}", span(time)),
                    _ => "it does not tolerate that".to_owned(),
                };
                let after = match (node.is_unreachable(self.clock.leases), node.taint(OUT_OF_SERVICE)) {
                    (true, Some(_)) => "then the pod garbage collector deletes it on its next run".to_owned(),
                    (true, None) => format!("then it waits for the kubelet of {name}"),
                    (false, _) => format!("then the kubelet of {name} stops it"),
                };
                format!("{tolerates}: it is evicted at about {}; {after}", when(at, now))
            }
            None if eviction::brake(self.objects, self.clock, &node).is_some() => "it is not evicted".to_owned(),
            None => format!("it tolerates the taints of {name} forever: it is not evicted"),
        });
        out.extend(self.out_of_reach(pod));
        out
    }
}
