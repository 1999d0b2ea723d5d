//! From a node to Ready: a pod's volumes come, and its containers start.

use jiff::{SignedDuration, Timestamp};
use stead_model::times::CENTURY;
use stead_model::{PodView, PodVolume, VolumeAttachmentView, pod_volumes};

use super::course::Course;
use super::pod::{ready_in, runs, started_in};
use super::way::{Miss, Outcome};

/// A volume that is attached so long after it was asked for was refused meanwhile.
const LATE: SignedDuration = SignedDuration::from_secs(5);

/// What fails at first may come right, so long after it should have.
const SETBACK: SignedDuration = SignedDuration::from_secs(30);

impl Course<'_> {
    /// A pod that has a node since a moment, or the nodes that it may go to: its volumes come, and it starts.
    pub(super) fn started(&self, pod: PodView, begun: Timestamp, mut out: Outcome) -> Outcome {
        let now = self.now();
        if let Some(miss) = self.unread(pod) {
            return out.missed(miss);
        }
        let volumes = pod_volumes(self.objects, pod);
        let mut free: Option<Timestamp> = None;
        let goes = out.nodes.first().cloned();
        for volume in volumes.iter().filter(|v| v.is_exclusive()) {
            for held in volume.attachments.iter().filter(|a| Some(&a.node) != goes.as_ref()) {
                match self.detached(pod, volume, held) {
                    Ok(at) => {
                        out.step(format!("volume {} is detached from {}", volume.name(), held.node), at);
                        free = free.max(Some(at));
                    }
                    Err(why) => return out.never(why),
                }
            }
        }
        let waits = free.is_some();
        let is_there = |v: &PodVolume| v.attachments.iter().any(|a| a.attached && Some(&a.node) == goes.as_ref());
        let comes = waits || volumes.iter().any(|v| v.needs_attach && !is_there(v));
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
    fn stuck(&self, pod: PodView, volumes: &[PodVolume]) -> Option<Miss> {
        let refuses = |volume: &PodVolume| {
            let here = volume.attachments.iter().find(|a| Some(a.node.as_str()) == pod.node() && !a.attached)?;
            let (name, node, error) = (volume.name(), &here.node, here.attach_error.as_ref()?);
            Some(format!("volume {name} is not attached to {node}: its driver reports {error:?}"))
        };
        let never = refused(pod).or_else(|| volumes.iter().find_map(refuses)).map(Miss::Never);
        never.or_else(|| self.last_word(pod))
    }

    /// What was said last of a pod none of whose containers runs, where that is a failure: earlier ones are overcome.
    fn last_word(&self, pod: PodView) -> Option<Miss> {
        let name = pod.name();
        let said = self.objects.events_about(pod.key(), pod.uid());
        let last = said.last().filter(|s| s.is_warning && fails(s.reason) && !runs(pod))?;
        let (by, reason, message) = (last.reported_by, last.reason, last.message);
        if !message.contains("Volume is already") {
            return Some(Miss::Never(format!("pod {name} does not start: {by} reports {reason}: {message:?}")));
        }
        // That another node has its volume: as the attachments tell, that is over.
        let unread = self.objects.has_none("VolumeAttachment");
        unread
            .then(|| Miss::Unknown(format!("volumeattachments were not read, and {by} reports {reason}: {message:?}")))
    }

    /// From a node and free volumes to Ready; with the time that it takes to attach them, where they have to be.
    fn start_time(&self, pod: PodView, comes: bool) -> SignedDuration {
        let known = self.alike(pod).filter_map(|p| {
            let volumes = pod_volumes(self.objects, p);
            let there = volumes.iter().flat_map(|v| &v.attachments).filter(|a| Some(a.node.as_str()) == p.node());
            let from = |a: &VolumeAttachmentView| a.status_written.filter(|_| !comes).or(a.created);
            let asked = there.filter_map(from).max();
            let asked = self.attached_late(p, asked).or(asked);
            // A pod that waits for a volume long after it had a node tells nothing of how long it takes to start.
            started_in(p, asked).filter(|took| *took <= SignedDuration::from_secs(60))
        });
        known.min().unwrap_or(self.clock.timers.start) + self.ready_time(pod)
    }

    /// When a pod's last volume was attached, where that came long after it was asked for: its storage refused at first,
    /// which tells nothing of how long a pod takes to start.
    fn attached_late(&self, pod: PodView, asked: Option<Timestamp>) -> Option<Timestamp> {
        let said = self.objects.events_about(pod.key(), pod.uid());
        let attached = said.iter().filter(|s| s.reason == "SuccessfulAttachVolume").filter_map(|s| s.at).max()?;
        (attached.duration_since(asked?) > LATE).then_some(attached)
    }

    /// From containers that run to Ready: as long as it took before, or as its probes have it.
    fn ready_time(&self, pod: PodView) -> SignedDuration {
        let known = self.alike(pod).filter_map(ready_in).min();
        let containers = pod.spec().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let probed = containers.iter().filter_map(|c| {
            let first = i64::from(c.readiness_probe.as_ref()?.initial_delay_seconds.unwrap_or_default());
            Some(SignedDuration::from_secs(first.clamp(0, CENTURY.as_secs()) + 1))
        });
        known.or(probed.max()).unwrap_or(SignedDuration::from_secs(1))
    }

    /// The pod and those of the same controller.
    fn alike<'b>(&'b self, pod: PodView<'b>) -> impl Iterator<Item = PodView<'b>> {
        let same = self.objects.pod(pod.key()).ok().flatten();
        let others = self.objects.pods_of_same_workload(pod).filter(move |p| p.name() != pod.name());
        same.into_iter().chain(others)
    }
}

/// Why a container of a pod does not start, where its kubelet has a word for it.
pub(super) fn refused(pod: PodView) -> Option<String> {
    pod.container_statuses().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|r| !matches!(*r, "ContainerCreating" | "PodInitializing"))?;
        let message = waiting.message.as_ref().map(|m| format!(": {m:?}")).unwrap_or_default();
        let name = &container.name;
        Some(format!("container {name} of pod {} does not start: {reason}{message}", pod.name()))
    })
}

/// Whether an event's reason is that of a pod which does not start.
fn fails(reason: &str) -> bool {
    let volumes = ["FailedAttachVolume", "FailedMount", "FailedMapVolume"];
    let others = ["Failed", "FailedCreatePodSandBox", "FailedPostStartHook", "InspectFailed", "NetworkNotReady"];
    volumes.contains(&reason) || others.contains(&reason)
}
