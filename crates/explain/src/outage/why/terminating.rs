//! Why a pod is Terminating, or will be.

use super::Why;
use crate::outage::detaching::held_name;
use crate::outage::events::{self, Said};
use crate::outage::eviction::{self, Tolerance, tolerance};
use crate::outage::forecast::Scene;
use crate::outage::makers::{Maker, in_range, retired, successor};
use crate::outage::node::{NodeStanding, OUT_OF_SERVICE};
use crate::outage::pod::PodSeen;
use crate::outage::volumes::volumes_of;
use crate::outage::words::{span, when};

impl Why<'_> {
    /// Why a pod is Terminating.
    pub(crate) fn terminating(&self, pod: PodSeen, scene: &Scene) -> Vec<String> {
        let (now, name) = (self.clock.now, pod.name());
        let mut out = Vec::new();
        let asked = pod.deleted().map(|at| when(at, now)).unwrap_or_default();
        let by = pod.condition("DisruptionTarget").and_then(|c| c["message"].as_str());
        let by = by.map(|m| format!("; Kubernetes says {m:?}")).unwrap_or_default();
        out.push(format!("its deletion was asked for at {asked}{by}"));
        let lost = scene.node.is_some();
        if let Some(node) = pod.node() {
            out.extend(self.node(node));
            match pod.due() {
                _ if lost => out.push(self.waits(node)),
                Some(due) if due < now => {
                    out.push(format!(
                        "its time to end is over since {}, and the kubelet of {node} answers: see its log for why it does \
                         not end",
                        span(now.duration_since(due))
                    ));
                    out.extend(self.plain(pod));
                }
                due => {
                    let until = due.map(|due| when(due, now)).unwrap_or_default();
                    out.push(format!("the kubelet of {node} is ending it; it has time until {until}"));
                }
            }
        } else {
            out.push("it has no node: the pod collector removes it at its next look".to_owned());
        }
        out.extend(self.finalizers(pod));
        out.extend(self.evictions(pod));
        out.push(match Maker::of(self.objects, pod) {
            _ if retired(self.objects, pod).is_some() => {
                format!("nobody makes it anew: {}", retired(self.objects, pod).unwrap_or_default())
            }
            Maker::Identities { set: Some(set), .. } if !in_range(set, pod) => {
                "its StatefulSet wants fewer pods by now: nobody makes it anew".to_owned()
            }
            Maker::Identities { .. } => {
                format!(
                    "its StatefulSet makes {name} anew only when this object is gone: never two pods of one identity"
                )
            }
            Maker::Replicas { .. } | Maker::Job(_) => match successor(self.objects, pod) {
                Some(next) => format!("pod {} was made in its place: {}", next.name(), self.standing(next)),
                None if matches!(Maker::of(self.objects, pod), Maker::Replicas { set: Some(set) } if set["spec"]["replicas"] == 0) => {
                    "its ReplicaSet wants no more pods; what its Deployment makes instead is foreseen below".to_owned()
                }
                None => "a pod that is being deleted does not count any more: its controller makes another".to_owned(),
            },
            Maker::EachNode => "its DaemonSet makes another on the same node, and nowhere else".to_owned(),
            Maker::Kubelet => "it is the node's own pod: its kubelet makes it from a file".to_owned(),
            Maker::Other(kind) => format!("its {kind} may make another when this object is gone"),
            Maker::Nobody => "it has no controller: nobody makes it anew".to_owned(),
        });
        for volume in volumes_of(self.objects, pod.namespace(), pod.0) {
            let there = volume.attachments.iter().filter(|a| Some(a.node.as_str()) == pod.node());
            out.extend(there.map(|a| format!("volume {} stays attached to {} meanwhile", held_name(&volume), a.node)));
        }
        out.extend(self.out_of_reach(pod));
        out
    }

    /// What ends a pod on a node of which nothing is heard.
    fn waits(&self, node: &str) -> String {
        match NodeStanding::find(self.objects, node) {
            None => format!(
                "there is no kubelet of {node} to wait for: the pod collector ends the pods of a node that is not there"
            ),
            Some(n) if n.taint(OUT_OF_SERVICE).is_some() => {
                format!(
                    "Kubernetes does not wait for the kubelet of {node}: it is out of service, and the pod collector ends the pod at its next look"
                )
            }
            Some(_) => format!(
                "Kubernetes waits for the kubelet of {node} to confirm that the pod has ended; that never comes by \
                 itself: only its return, a forced deletion, the end of the Node object or the out-of-service \
                 taint ends the wait"
            ),
        }
    }

    /// Finalizers, with those whose they are.
    fn finalizers(&self, pod: PodSeen) -> Vec<String> {
        let managers = pod.0["metadata"]["managedFields"].as_array();
        pod.finalizers()
            .map(|finalizer| {
                let key = format!("v:{finalizer:?}");
                let mut wrote = managers.into_iter().flatten().filter(|m| {
                    m["fieldsV1"]["f:metadata"]["f:finalizers"].get(&key).is_some()
                });
                let owner = wrote.next().and_then(|m| m["manager"].as_str()).map(str::to_owned);
                let owner = owner.or_else(|| finalizer.split_once('/').map(|(domain, _)| format!("whoever owns {domain}")));
                let owner = owner.unwrap_or_else(|| "whoever put it there".to_owned());
                format!("finalizer {finalizer} keeps the object until {owner} takes it away; it is not to be taken away by hand without knowing what for it is there")
            })
            .collect()
    }

    /// What the taint eviction controller said, read aright.
    fn evictions(&self, pod: PodSeen) -> Vec<String> {
        // These events carry no identity: those from before the pod are about another of its name.
        let mut said = events::about(self.objects, "Pod", pod.namespace(), pod.name(), None);
        said.retain(|s| s.reason == "TaintManagerEviction" && s.at >= pod.created());
        let last = |text: &str| said.iter().rev().find(|s| s.message.starts_with(text));
        let mut out = Vec::new();
        let at = |said: &Said| said.at.map(|at| when(at, self.clock.now)).unwrap_or_default();
        if let Some(marked) = last("Marking for deletion") {
            out.push(format!("{:?} ({}): the pod's time on the tainted node was over", marked.message, at(marked)));
        }
        if let Some(cancelled) = last("Cancelling deletion") {
            let meant = if cancelled.at < pod.deleted() {
                "was one: the node's taints went before the pod's time was over; its deletion was asked for later"
            } else {
                "is no veto: the taint eviction controller stopped its own timer because the pod or the node's taints \
                 changed; the pod had its deletionTimestamp, and nothing takes that back"
            };
            out.push(format!("{:?} ({}) {meant}", cancelled.message, at(cancelled)));
        }
        out
    }

    /// A pod on a node that answers, but is not ready.
    pub(crate) fn unwell(&self, pod: PodSeen) -> Vec<String> {
        let node = pod.node().and_then(|name| NodeStanding::find(self.objects, name));
        let unwell = node.is_some_and(|n| n.is_unwell(self.clock.leases));
        if unwell { self.left_behind(pod) } else { Vec::new() }
    }

    /// A pod on a node that is lost or not ready, though nobody has deleted it yet.
    pub(crate) fn left_behind(&self, pod: PodSeen) -> Vec<String> {
        let now = self.clock.now;
        let Some(name) = pod.node() else { return Vec::new() };
        let mut out = self.node(name);
        let Some(node) = NodeStanding::find(self.objects, name) else {
            out.push("the pod collector ends the pods of a node that is not there".to_owned());
            return out;
        };
        out.push(match eviction::evicted(self.objects, self.clock, &node, pod) {
            Some(at) => {
                let others = node.taints.iter().filter(|t| t["effect"] == "NoExecute");
                let long = match tolerance(pod, others.chain([&eviction::evicting(&node)])) {
                    Tolerance::For(time) => format!("it tolerates that for {}", span(time)),
                    _ => "it does not tolerate that".to_owned(),
                };
                let after = match (node.is_silent(self.clock.leases), node.taint(OUT_OF_SERVICE)) {
                    (true, Some(_)) => "the pod collector ends it at its next look".to_owned(),
                    (true, None) => format!("then waits for the kubelet of {name}"),
                    (false, _) => format!("the kubelet of {name} ends it"),
                };
                format!("{long}: its deletion begins at about {}, and {after}", when(at, now))
            }
            None if eviction::brake(self.objects, self.clock, &node).is_some() => "it is not evicted".to_owned(),
            None => format!("it tolerates the taints of {name} for ever: it is not evicted"),
        });
        out.extend(self.out_of_reach(pod));
        out
    }
}
