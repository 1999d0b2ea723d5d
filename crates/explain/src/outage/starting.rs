//! From a node to Ready: a pod's volumes come, and its containers start.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::course::Course;
use super::detaching::held_name;
use super::events;
use super::makers;
use super::pod::PodSeen;
use super::times::CENTURY;
use super::volumes::{Attachment, HeldVolume, volumes_of};
use super::way::{Miss, Outcome};

/// A volume that is attached so long after it was asked for was refused meanwhile.
const LATE: SignedDuration = SignedDuration::from_secs(5);

/// What fails at first may come right, so long after it should have.
const SETBACK: SignedDuration = SignedDuration::from_secs(30);

impl Course<'_> {
    /// A pod that has a node since a moment, or the nodes that it may go to: its volumes come, and it starts.
    pub(super) fn started(&self, pod: PodSeen, begun: Timestamp, mut out: Outcome) -> Outcome {
        let now = self.now();
        if let Some(miss) = self.unread(pod) {
            return out.missed(miss);
        }
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
        let is_there = |v: &HeldVolume| v.attachments.iter().any(|a| a.attached && Some(&a.node) == goes.as_ref());
        let comes = waits || volumes.iter().any(|v| v.attached && !is_there(v));
        let takes = self.start_time(pod, comes) + if waits { self.clock.timers.attach } else { SignedDuration::ZERO };
        let ready = begun.max(free.unwrap_or(begun)) + takes;
        if ready >= now {
            return out.ready(ready);
        }
        // What should have been Ready by now will be in a moment, if it is well.
        match self.stuck(pod, &volumes).filter(|_| now.duration_since(ready) > SETBACK) {
            Some(miss) => out.missed(miss),
            None => out.ready(now + self.ready_time(pod)),
        }
    }

    /// What keeps a pod from being Ready that should be, and has no volume to wait for.
    fn stuck(&self, pod: PodSeen, volumes: &[HeldVolume]) -> Option<Miss> {
        let refuses = |volume: &HeldVolume| {
            let here = volume.attachments.iter().find(|a| Some(a.node.as_str()) == pod.node() && !a.attached)?;
            let (name, node, error) = (held_name(volume), &here.node, here.attach_error.as_ref()?);
            Some(format!("volume {name} is not attached to {node}: its driver says {error:?}"))
        };
        let never = refused(pod).or_else(|| volumes.iter().find_map(refuses)).map(Miss::Never);
        never.or_else(|| self.last_word(pod))
    }

    /// What was said last of a pod none of whose containers runs, where that is a failure: earlier ones are overcome.
    fn last_word(&self, pod: PodSeen) -> Option<Miss> {
        let name = pod.name();
        let said = events::about(self.objects, "Pod", pod.namespace(), name, pod.0["metadata"]["uid"].as_str());
        let runs = pod.containers().any(|c| c["state"].get("running").is_some());
        let last = said.last().filter(|s| s.warning && fails(&s.reason) && !runs)?;
        let (by, reason, message) = (&last.by, &last.reason, &last.message);
        if !message.contains("Volume is already") {
            return Some(Miss::Never(format!("pod {name} does not start: {by} says {reason}: {message:?}")));
        }
        // That another node has its volume: as the attachments tell, that is over.
        let unread = self.objects.raw_of_kind("VolumeAttachment").next().is_none();
        unread.then(|| Miss::Unknown(format!("volumeattachments were not read, and {by} says {reason}: {message:?}")))
    }

    /// From a node and free volumes to Ready; with the time that it takes to attach them, where they have to be.
    fn start_time(&self, pod: PodSeen, comes: bool) -> SignedDuration {
        let known = self.alike(pod).filter_map(|p| {
            let volumes = volumes_of(self.objects, p.namespace(), p.0);
            let there = volumes.iter().flat_map(|v| &v.attachments).filter(|a| Some(a.node.as_str()) == p.node());
            let from = |a: &Attachment| {
                let attached = a.said.as_ref().filter(|_| !comes);
                attached.or(a.created.as_ref())?.parse().ok()
            };
            let asked = there.filter_map(from).max();
            let asked = self.attached_late(p, asked).or(asked);
            // A pod that waits for a volume long after it had a node tells nothing of how long it takes to start.
            p.started_in(asked).filter(|took| *took <= SignedDuration::from_secs(60))
        });
        known.min().unwrap_or(self.clock.timers.start) + self.ready_time(pod)
    }

    /// When a pod's last volume was attached, where that came long after it was asked for: its storage refused at first,
    /// which tells nothing of how long a pod takes to start.
    fn attached_late(&self, pod: PodSeen, asked: Option<Timestamp>) -> Option<Timestamp> {
        let said = events::about(self.objects, "Pod", pod.namespace(), pod.name(), pod.0["metadata"]["uid"].as_str());
        let attached = said.iter().filter(|s| s.reason == "SuccessfulAttachVolume").filter_map(|s| s.at).max()?;
        (attached.duration_since(asked?) > LATE).then_some(attached)
    }

    /// From containers that run to Ready: as long as it took before, or as its probes have it.
    fn ready_time(&self, pod: PodSeen) -> SignedDuration {
        let known = self.alike(pod).filter_map(PodSeen::ready_in).min();
        let containers = pod.0["spec"]["containers"].as_array().into_iter().flatten();
        let probed = containers.filter_map(|c| {
            let probe = c["readinessProbe"].as_object()?;
            let first = probe.get("initialDelaySeconds").and_then(Value::as_i64).unwrap_or_default();
            Some(SignedDuration::from_secs(first.clamp(0, CENTURY.as_secs()) + 1))
        });
        known.or(probed.max()).unwrap_or(SignedDuration::from_secs(1))
    }

    /// The pod and those of the same controller.
    fn alike<'b>(&'b self, pod: PodSeen<'b>) -> impl Iterator<Item = PodSeen<'b>> {
        let all = self.objects.raw_of_kind("Pod").map(|(_, p)| PodSeen(p));
        all.filter(move |p| {
            let same = p.name() == pod.name() && p.namespace() == pod.namespace();
            same || makers::same_workload(self.objects, *p, pod)
        })
    }
}

/// Why a container of a pod does not start, where its kubelet has a word for it.
pub(super) fn refused(pod: PodSeen) -> Option<String> {
    pod.containers().find_map(|container| {
        let waiting = &container["state"]["waiting"];
        let reason = waiting["reason"].as_str().filter(|r| !matches!(*r, "ContainerCreating" | "PodInitializing"))?;
        let message = waiting["message"].as_str().map(|m| format!(": {m:?}")).unwrap_or_default();
        let name = container["name"].as_str().unwrap_or_default();
        Some(format!("container {name} of pod {} does not start: {reason}{message}", pod.name()))
    })
}

/// Whether an event's reason is that of a pod which does not start.
fn fails(reason: &str) -> bool {
    let volumes = ["FailedAttachVolume", "FailedMount", "FailedMapVolume"];
    let others = ["Failed", "FailedCreatePodSandBox", "FailedPostStartHook", "InspectFailed", "NetworkNotReady"];
    volumes.contains(&reason) || others.contains(&reason)
}
