//! When a volume leaves the node where it is in the way.
//!
//! Mirrors the reconciler of kube-controller-manager's attach-detach-controller.

use jiff::Timestamp;
use stead_model::times::near;
use stead_model::{Objects, PodController, PodView, PodVolume, Readiness, VolumeAttachmentView, pod_volumes};

use super::course::{Course, Life, PATIENCE};
use super::node::health;
use super::pod::ended_at;
use super::timers::{Clock, LOST};
use super::way::Way;

impl Course<'_> {
    /// When a volume is detached from where it is in the way; or why never.
    pub(super) fn detached(
        &self,
        pod: PodView,
        volume: &PodVolume,
        held: &VolumeAttachmentView,
    ) -> Result<Timestamp, String> {
        let (now, timers, node) = (self.now(), &self.clock.timers, held.node.as_str());
        let name = volume.name();
        if let Some(error) = &held.detach_error {
            return Err(format!("volume {name} is not detached from {node}: its driver reports {error:?}"));
        }
        if held.detaching_since.is_some() {
            return Ok(now + timers.attach);
        }
        let mut released = None;
        for holder in holders(self.objects, volume, node) {
            match self.fate(holder).released {
                Some(at) => released = released.max(Some(at)),
                None => {
                    let why = self.why_it_stays(holder, self.fate(holder), PodController::None);
                    return Err(format!(
                        "volume {name} stays attached to {node}, because pod {} uses it: {why}",
                        holder.name()
                    ));
                }
            }
        }
        let known = released.is_some();
        let ended = || users(self.objects, volume, node).filter_map(ended_at).max();
        let before = || ended().unwrap_or_else(|| released_before(self.objects, self.clock, pod));
        let released = released.unwrap_or_else(|| timers.begun(before()));
        let standing = health(self.objects, node);
        let mounted = match (&standing, &volume.unique_name) {
            (Some(node), Some(unique)) => node.volumes_in_use().contains(unique),
            _ => true,
        };
        let life = self.life(node);
        let ready = standing.as_ref().is_some_and(|n| n.readiness == Readiness::Ready);
        let back = self.way == Way::NodeReturns && self.node == Some(node);
        let forced = timers.force_detach.map(|wait| timers.begun(released) + wait);
        match life {
            _ if self.out_of_service(node) || !mounted => Ok(released.max(now)),
            Life::Alive if back => Ok(released.max(now + timers.kubelet_return) + timers.node_status_period / 2),
            Life::Alive if known || now <= released + PATIENCE => Ok(released.max(now) + timers.node_status_period / 2),
            Life::Alive if ready => Err(format!(
                "volume {name} stays attached to {node}: its kubelet has not reported that it is unmounted"
            )),
            _ => forced.map(|at| at.max(now)).ok_or_else(|| {
                format!(
                    "volume {name} stays attached to {node}: it is still mounted there, and force-detach is disabled"
                )
            }),
        }
    }
}

/// The pods on a node that use a volume, those that have ended left out.
pub(crate) fn holders<'a>(
    objects: &'a Objects,
    volume: &'a PodVolume,
    node: &'a str,
) -> impl Iterator<Item = PodView<'a>> {
    users(objects, volume, node).filter(|p| !p.has_ended())
}

/// The pods on a node that use a volume or did.
fn users<'a>(objects: &'a Objects, volume: &'a PodVolume, node: &'a str) -> impl Iterator<Item = PodView<'a>> {
    objects.pods_on(node).filter(|p| {
        let theirs = pod_volumes(objects, *p);
        theirs.iter().any(|v| v.volume.is_some() && v.volume == volume.volume)
    })
}

/// Since when a volume is needed no more on a node where no pod has it: since the pod that had it is gone. That is
/// when a StatefulSet made the one which waits now; with a ReplicaSet, that one may be older than the end of the other.
pub(crate) fn released_before(objects: &Objects, clock: &Clock, pod: PodView) -> Timestamp {
    let made = pod.created().map_or(clock.now, |at| at + LOST);
    let said = objects.events_about(pod.key(), pod.uid());
    let used = said.iter().rev().find(|s| s.reason == "FailedAttachVolume" && s.message.contains("used by pod"));
    let Some(seen) = used.and_then(|s| s.at) else { return made };
    // A ReplicaSet counts the pods that are being deleted: the last of them went when its status changed last.
    let set = pod.controller().and_then(|owner| objects.workload_of(pod.namespace(), owner));
    let fields = set.and_then(|set| set.metadata().managed_fields.as_ref()).into_iter().flatten();
    let by_status = fields.filter(|entry| entry.subresource.as_deref() == Some("status"));
    let changed = by_status.filter_map(|entry| near(entry.time.as_ref()?.0)).max();
    match changed.filter(|at| *at > seen) {
        Some(at) => at + LOST,
        // At some time since then, and not so long ago that the volume would be gone: half of that is expected.
        None => {
            let first = clock.timers.force_detach.map_or(seen, |wait| seen.max(clock.now - wait));
            first + clock.now.duration_since(first) / 2
        }
    }
}
