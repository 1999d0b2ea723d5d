//! Why a pod is Terminating, or on a node and not Ready: line by line, in Kubernetes' own words where it has some.

use jiff::SignedDuration;
use serde_json::Value;

use super::detaching::{held_name, holders, released_before};
use super::events::{self, Said};
use super::eviction::{self, Brake, Tolerance, tolerance};
use super::forecast::{Scene, is_lost};
use super::makers::{Maker, successor};
use super::node::{NodeStanding, OUT_OF_SERVICE, Readiness, SHUTDOWN, UNREACHABLE, time};
use super::pod::PodSeen;
use super::timers::Clock;
use super::volumes::{HeldVolume, volumes_of};
use super::words::{moment, span, when};
use crate::explanation::some;
use crate::objects::{ObjectKey, Objects};

/// What is said of the pods and nodes of an outage.
pub(crate) struct Why<'a> {
    pub(crate) objects: &'a Objects,
    pub(crate) clock: &'a Clock,
}

impl Why<'_> {
    /// How a node stands: since when it is silent, by what, and what was made of it.
    pub(crate) fn node(&self, name: &str) -> Vec<String> {
        let now = self.clock.now;
        let Some(node) = NodeStanding::find(self.objects, name) else {
            let said = events::about(self.objects, "Node", "", name, None);
            let gone = said.iter().rev().find(|s| s.reason == "RemovingNode" || s.reason == "DeletingNode");
            let since = gone.and_then(|s| s.at).map(|at| format!(" since {}", when(at, now))).unwrap_or_default();
            return vec![format!("node {name}: there is no Node object of that name{since}")];
        };
        let mut out = Vec::new();
        let ready = match node.readiness {
            Readiness::Ready => "Ready",
            Readiness::NotReady => "not Ready, as its kubelet says",
            Readiness::Unknown => "Unknown",
        };
        let since = node.since.map(|at| format!(" since {}", when(at, now))).unwrap_or_default();
        out.push(format!("node {name} is {ready}{since}"));
        if let Some(message) = self.ready_message(name) {
            out.push(format!("its condition says {message:?}"));
        }
        if node.is_silent(self.clock.leases) {
            let heard = node.last_heard().map_or("nobody knows when".into(), |at| when(at, now));
            let by = if node.lease.is_some() { "its Lease was renewed last" } else { "its kubelet spoke last" };
            out.push(format!("{by} at {heard}"));
            if node.readiness == Readiness::Ready {
                let at = eviction::unknown_from(self.clock, &node).unwrap_or(now);
                out.push(format!("the node controller will say so at about {}", when(at, now)));
            }
        }
        out.extend(self.taints(&node));
        out
    }

    fn ready_message(&self, name: &str) -> Option<String> {
        let node = self.objects.get(&ObjectKey::new("Node", "", name))?;
        let ready = node["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")?;
        ready["message"].as_str().filter(|m| !m.is_empty() && ready["status"] != "True").map(str::to_owned)
    }

    fn taints(&self, node: &NodeStanding) -> Vec<String> {
        let mut out = Vec::new();
        let evicting = node.taints.iter().find(|t| t["key"] == UNREACHABLE && t["effect"] == "NoExecute");
        if let Some(taint) = evicting {
            let since = time(&taint["timeAdded"]).map(|at| format!(" since {}", moment(at))).unwrap_or_default();
            out.push(format!("it has the taint {UNREACHABLE}:NoExecute{since}, which evicts its pods"));
        } else if node.is_silent(self.clock.leases) {
            match eviction::brake(self.objects, self.clock, node) {
                Some(Brake::AllDown) => out.push(
                    "no node is ready: Kubernetes evicts nobody then, and takes the fault to be its own".to_owned(),
                ),
                Some(Brake::ZoneDisturbed) => {
                    out.push("most nodes of its zone are not ready: Kubernetes evicts nobody there".to_owned());
                }
                None => {}
            }
        }
        if let Some(taint) = node.taint(OUT_OF_SERVICE) {
            let by = node.annotation("stead.dev/recovery").map(|_| ", by a recovery of Stead").unwrap_or_default();
            let hint = if node.readiness == Readiness::Ready {
                "; on a node that is Ready it lets volumes be detached while they are mounted: take it away"
            } else {
                ""
            };
            let effect = taint["effect"].as_str().unwrap_or_default();
            out.push(format!("it has the taint {OUT_OF_SERVICE}:{effect}{by}{hint}"));
        }
        if node.taint(SHUTDOWN).is_some() {
            out.push(format!("its cloud says that the machine is shut down (taint {SHUTDOWN})"));
        }
        out
    }

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
            out.push(if lost {
                format!(
                    "Kubernetes waits for the kubelet of {node} to confirm that the pod has ended; that never comes by \
                     itself: only its return, a forced deletion, the end of the Node object or the out-of-service \
                     taint ends the wait"
                )
            } else if pod.due().is_some_and(|due| due < now) {
                format!("its time to end is over since {}, and the kubelet of {node} answers: see its log for why it does not end", span(now.duration_since(pod.due().unwrap_or(now))))
            } else {
                format!("the kubelet of {node} is ending it; it has time until {}", pod.due().map(|d| when(d, now)).unwrap_or_default())
            });
        } else {
            out.push("it has no node: the pod collector removes it at its next look".to_owned());
        }
        out.extend(self.finalizers(pod));
        out.extend(self.evictions(pod));
        out.push(match Maker::of(self.objects, pod) {
            Maker::Identities { .. } => {
                format!(
                    "its StatefulSet makes {name} anew only when this object is gone: never two pods of one identity"
                )
            }
            Maker::Replicas { .. } | Maker::Job(_) => match successor(self.objects, pod) {
                Some(next) => format!("pod {} was made in its place: {}", next.name(), self.standing(next)),
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
        let said = events::about(self.objects, "Pod", pod.namespace(), pod.name(), None);
        let last =
            |text: &str| said.iter().rev().find(|s| s.reason == "TaintManagerEviction" && s.message.starts_with(text));
        let mut out = Vec::new();
        let at = |said: &Said| said.at.map(|at| when(at, self.clock.now)).unwrap_or_default();
        if let Some(marked) = last("Marking for deletion") {
            out.push(format!("{:?} ({}): the pod's time on the tainted node was over", marked.message, at(marked)));
        }
        if let Some(cancelled) = last("Cancelling deletion") {
            out.push(format!(
                "{:?} ({}) is no veto: the taint eviction controller stopped its own timer because the pod or the \
                 node's taints changed; the pod had its deletionTimestamp, and nothing takes that back",
                cancelled.message,
                at(cancelled)
            ));
        }
        out
    }

    /// How a pod is, in a few words.
    fn standing(&self, pod: PodSeen) -> String {
        let place = pod.node().map(|n| format!(" on {n}")).unwrap_or_default();
        let ready = if pod.ready() { "Ready" } else { "not Ready" };
        format!("{}{place}, {ready}", pod.phase())
    }

    /// A pod on a node that is lost, though nobody has deleted it yet.
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
                let taint = serde_json::json!({ "key": UNREACHABLE, "effect": "NoExecute" });
                let long = match tolerance(pod, [&taint]) {
                    Tolerance::For(time) => format!("it tolerates that for {}", span(time)),
                    _ => "it does not tolerate that".to_owned(),
                };
                format!(
                    "{long}: its deletion begins at about {}, and then waits for the kubelet of {name}",
                    when(at, now)
                )
            }
            None if eviction::brake(self.objects, self.clock, &node).is_some() => "it is not evicted".to_owned(),
            None => format!("it tolerates the taints of {name} for ever: it is not evicted"),
        });
        out.extend(self.out_of_reach(pod));
        out
    }

    /// Why a pod that has a node is not Ready.
    pub(crate) fn not_ready(&self, pod: PodSeen, scene: &Scene) -> Vec<String> {
        let mut out = Vec::new();
        for volume in volumes_of(self.objects, pod.namespace(), pod.0) {
            out.extend(self.volume(pod, &volume, scene));
        }
        out.extend(self.plain(pod));
        out
    }

    /// Volumes that can be used only where nobody answers.
    pub(crate) fn out_of_reach(&self, pod: PodSeen) -> Vec<String> {
        let mut out = Vec::new();
        for volume in volumes_of(self.objects, pod.namespace(), pod.0).iter().filter(|v| !v.only.is_empty()) {
            let nodes = self.objects.of_kind("Node").filter_map(|(key, _)| NodeStanding::find(self.objects, &key.name));
            let fits = |n: &NodeStanding| {
                let has =
                    |(key, values): &(String, Vec<String>)| n.label(key).is_some_and(|v| values.iter().any(|w| w == v));
                volume.only.iter().all(has)
            };
            let there: Vec<String> = nodes.filter(fits).map(|n| n.name).collect();
            if there.iter().all(|n| is_lost(self.objects, self.clock, n)) {
                let place: Vec<String> = volume.only.iter().map(|(k, v)| format!("{k}={}", v.join(" or "))).collect();
                let who = if there.is_empty() {
                    "there is no such node".to_owned()
                } else {
                    format!("nothing is heard of the nodes there: {}", some(&there))
                };
                let (name, place) = (held_name(volume), place.join(", "));
                out.push(format!("volume {name} can be used with {place} only, and {who}"));
            }
        }
        out
    }

    /// What is with a volume that a pod waits for.
    fn volume(&self, pod: PodSeen, volume: &HeldVolume, scene: &Scene) -> Vec<String> {
        let mut out = Vec::new();
        let claim = &volume.claim;
        let Some(name) = &volume.volume else {
            let key = ObjectKey::new("PersistentVolumeClaim", pod.namespace(), claim);
            out.push(match self.objects.get(&key) {
                None => format!("claim {claim} is not there"),
                Some(c) => {
                    let said = events::about(self.objects, "PersistentVolumeClaim", pod.namespace(), claim, None);
                    let said = said.last().map(|s| format!("; {} says {:?}", s.by, s.message)).unwrap_or_default();
                    let phase = c["status"]["phase"].as_str().unwrap_or("Pending");
                    format!("claim {claim} is {phase}, not bound to a volume{said}")
                }
            });
            return out;
        };
        let here = volume.attachments.iter().find(|a| Some(a.node.as_str()) == pod.node());
        if let Some(error) = here.and_then(|a| a.attach_error.as_ref()) {
            out.push(format!(
                "volume {name} (claim {claim}) cannot be attached to {}: its driver says {error:?}",
                pod.node().unwrap_or_default()
            ));
            if error.contains("attached to a different instance") && volume.attachments.len() == 1 {
                out.push(
                    "Kubernetes knows of no other attachment: the storage itself still has it elsewhere, and only \
                     there can it be taken away (Cinder: openstack server remove volume SERVER VOLUME)"
                        .to_owned(),
                );
            }
        }
        if !volume.attached || volume.shared || here.is_some_and(|a| a.attached) {
            return out;
        }
        for held in volume.attachments.iter().filter(|a| Some(a.node.as_str()) != pod.node()) {
            let node = held.node.as_str();
            out.push(format!("volume {name} (claim {claim}) is attached to {node}, and can be on one node at a time"));
            if let Some(error) = &held.detach_error {
                out.push(format!("detaching it from {node} fails: its driver says {error:?}"));
            }
            let by: Vec<PodSeen> = holders(self.objects, volume, node).filter(|h| h.key() != pod.key()).collect();
            for holder in &by {
                let state = if holder.due().is_some() { "Terminating".to_owned() } else { self.standing(*holder) };
                out.push(format!("pod {} holds it there ({state})", holder.name()));
            }
            if is_lost(self.objects, self.clock, node) {
                out.extend(self.node(node));
            }
            out.extend(self.timer(pod, volume, node, &by));
        }
        if !scene.locked.is_empty() {
            let deployment = scene.deployment.as_deref().unwrap_or_default();
            out.push(format!(
                "the rolling update of Deployment {deployment} has locked itself: the old pod is kept until this one is \
                 Ready, and this one waits for the old one's volume"
            ));
        }
        out
    }

    /// Whether the timer of the forced detach runs.
    fn timer(&self, pod: PodSeen, volume: &HeldVolume, node: &str, by: &[PodSeen]) -> Vec<String> {
        let (now, timers) = (self.clock.now, &self.clock.timers);
        let lost = is_lost(self.objects, self.clock, node);
        let Some(wait) = timers.force_detach else {
            return vec![
                "volumes are not detached by force in this cluster (--disable-force-detach-on-timeout)".into(),
            ];
        };
        let long = span(wait);
        if by.iter().any(|h| h.needs_volumes()) {
            if !lost {
                return Vec::new();
            }
            return vec![format!(
                "the {long} after which Kubernetes detaches by force do not run: they begin when the object of {} is \
                 gone, not before",
                by.iter().map(|h| h.name()).collect::<Vec<_>>().join(", ")
            )];
        }
        if !lost {
            return vec![format!("no pod holds it there any more: {node} has to say that it is unmounted")];
        }
        let mounted = NodeStanding::find(self.objects, node)
            .is_none_or(|n| volume.unique_name.as_ref().is_none_or(|u| n.volumes_in_use.contains(u)));
        if !mounted {
            return vec![format!("{node} did not say that it is mounted: it is detached as soon as that is seen")];
        }
        let since = timers.begun(released_before(self.objects, self.clock, pod));
        vec![format!(
            "no pod holds it there any more, so the {long} after which it is detached by force run since about {}, until \
             {}; the timer is in the memory of kube-controller-manager and begins anew with it",
            moment(since),
            when(since + wait, now)
        )]
    }

    /// The plain causes: image, configuration, crash, probe.
    pub(crate) fn plain(&self, pod: PodSeen) -> Vec<String> {
        let mut out = Vec::new();
        for container in pod.containers() {
            out.extend(self.container(container));
        }
        let uid = pod.0["metadata"]["uid"].as_str();
        let said = events::about(self.objects, "Pod", pod.namespace(), pod.name(), uid);
        let mut seen: Vec<&str> = Vec::new();
        for said in said.iter().rev().filter(|s| s.warning && tells(&s.reason)) {
            if !seen.contains(&said.reason.as_str()) {
                seen.push(&said.reason);
                let at = said.at.map(|at| format!(" ({})", when(at, self.clock.now))).unwrap_or_default();
                out.push(format!("{} says {}: {:?}{at}", said.by, said.reason, said.message));
            }
        }
        out
    }

    fn container(&self, container: &Value) -> Option<String> {
        let name = container["name"].as_str().unwrap_or_default();
        let text = |value: &Value| value.as_str().filter(|s| !s.is_empty()).map(str::to_owned);
        if let Some(waiting) = container["state"].get("waiting") {
            let reason = text(&waiting["reason"])?;
            if matches!(reason.as_str(), "ContainerCreating" | "PodInitializing") {
                return None;
            }
            let message = text(&waiting["message"]).map(|m| format!(": {m:?}")).unwrap_or_default();
            let what = match reason.as_str() {
                "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" => "its image cannot be had",
                "CreateContainerConfigError" => "something that it is configured from is missing",
                "CrashLoopBackOff" => "it starts and ends again and again",
                _ => "it does not start",
            };
            let last = &container["lastState"]["terminated"];
            let code = last["exitCode"].as_i64().map(|code| {
                let reason = text(&last["reason"]).map(|r| format!(", {r}")).unwrap_or_default();
                format!("; it ended with exit code {code}{reason}")
            });
            return Some(format!("container {name}: {what}: {reason}{message}{}", code.unwrap_or_default()));
        }
        let running = container["state"].get("running").and_then(|r| time(&r["startedAt"]))?;
        let old = self.clock.now.duration_since(running) > SignedDuration::from_secs(5);
        (container["ready"] == false && old)
            .then(|| format!("container {name} runs since {}, but is not ready", when(running, self.clock.now)))
    }
}

/// Whether an event's reason tells why a pod does not start.
fn tells(reason: &str) -> bool {
    matches!(
        reason,
        "FailedAttachVolume"
            | "FailedMount"
            | "FailedCreatePodSandBox"
            | "Failed"
            | "BackOff"
            | "Unhealthy"
            | "FailedPostStartHook"
            | "InspectFailed"
            | "NetworkNotReady"
            | "FailedMapVolume"
    )
}
