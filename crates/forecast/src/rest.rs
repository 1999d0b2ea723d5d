//! Whether a cluster has come to rest: nothing that pods depend on changes any more, whatever is still going on.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use stead_sim::{Change, ObjectKind, Settings, Simulation};

/// Watches for the end of all changes that matter.
#[derive(Debug)]
pub(crate) struct RestWatch {
    /// The longest time that a controller waits without leaving a trace in its queue.
    patience: SignedDuration,
    /// If nothing changes until then, nothing will; none after a change.
    until: Option<Timestamp>,
}

impl RestWatch {
    pub(crate) fn new(settings: &Settings) -> RestWatch {
        let timers = &settings.timers;
        let longest = [
            timers.force_detach.unwrap_or_default(),
            timers.volume_bind_timeout,
            timers.unschedulable_timeout + timers.unschedulable_sweep,
            timers.orphan_quarantine + timers.pod_gc_period * 2,
            settings.storage.retry_max,
            settings.kubelet.crash_backoff_max,
        ];
        RestWatch { patience: longest.into_iter().max().unwrap_or_default() * 2, until: None }
    }

    /// Something has changed.
    pub(crate) fn changed(&mut self) {
        self.until = None;
    }

    /// Whether everything that was going to happen has happened, and changed nothing.
    pub(crate) fn is_over(&mut self, simulation: &mut Simulation) -> bool {
        let Some(next) = simulation.next_at() else { return true };
        let until = *self.until.get_or_insert_with(|| {
            let pending = simulation.pending().map(|(_, _, at)| at).max();
            simulation.now().saturating_add(self.patience).unwrap_or(Timestamp::MAX).max(pending.unwrap_or_default())
        });
        next > until
    }
}

/// Whether a change is one that the fate of a pod can depend on. Heartbeats, counters and the messages of conditions are
/// not.
pub(crate) fn matters(change: &Change) -> bool {
    match change.key.kind {
        ObjectKind::Pod => {
            let (before, after) = change.of::<Pod>();
            before.map(|pod| pod_state(pod)) != after.map(|pod| pod_state(pod))
        }
        ObjectKind::Node => {
            let (before, after) = change.of::<Node>();
            before.map(|node| node_state(node)) != after.map(|node| node_state(node))
        }
        ObjectKind::PersistentVolume => {
            let (before, after) = change.of::<PersistentVolume>();
            let state = |volume: &PersistentVolume| {
                let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.clone());
                (
                    claim,
                    volume.status.as_ref().and_then(|status| status.phase.clone()),
                    volume.metadata.finalizers.clone(),
                )
            };
            before.map(|volume| state(volume)) != after.map(|volume| state(volume))
        }
        ObjectKind::PersistentVolumeClaim => {
            let (before, after) = change.of::<PersistentVolumeClaim>();
            let state = |claim: &PersistentVolumeClaim| {
                let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
                (
                    volume,
                    claim.status.as_ref().and_then(|status| status.phase.clone()),
                    claim.metadata.finalizers.clone(),
                )
            };
            before.map(|claim| state(claim)) != after.map(|claim| state(claim))
        }
        ObjectKind::VolumeAttachment => {
            let (before, after) = change.of::<k8s_openapi::api::storage::v1::VolumeAttachment>();
            let state = |attachment: &k8s_openapi::api::storage::v1::VolumeAttachment| {
                let attached = attachment.status.as_ref().is_some_and(|status| status.attached);
                (attached, attachment.metadata.deletion_timestamp.is_some(), attachment.metadata.finalizers.clone())
            };
            before.map(|attachment| state(attachment)) != after.map(|attachment| state(attachment))
        }
        _ => change.before.is_none() || change.after.is_none(),
    }
}

fn pod_state(pod: &Pod) -> impl PartialEq {
    let status = pod.status.as_ref();
    let ready = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ready = ready.filter(|condition| condition.type_ == "Ready").map(|condition| condition.status.clone()).next();
    (
        pod.metadata.uid.clone(),
        pod.metadata.deletion_timestamp.clone(),
        pod.metadata.finalizers.clone(),
        pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        status.and_then(|status| status.phase.clone()),
        ready,
    )
}

fn node_state(node: &Node) -> impl PartialEq {
    let status = node.status.as_ref();
    let ready = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let ready = ready.filter(|condition| condition.type_ == "Ready").map(|condition| condition.status.clone()).next();
    (
        node.spec.as_ref().map(|spec| (spec.taints.clone(), spec.unschedulable)),
        status.map(|status| (status.volumes_attached.clone(), status.volumes_in_use.clone())),
        ready,
    )
}
