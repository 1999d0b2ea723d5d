//! Whether a cluster has come to rest: nothing that pods depend on changes any more, whatever is still going on.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use stead_sim::{Change, ObjectKind, Settings, Simulation};

/// Watches for the end of all changes that matter.
#[derive(Debug)]
pub(crate) struct RestWatch {
    /// No controller that looks again and again waits for longer.
    patience: SignedDuration,
    /// Since when nothing has changed.
    since: Timestamp,
    /// The times of what is done once, long after the last change; the latest first. None until that long has passed.
    far: Option<Vec<Timestamp>>,
}

impl RestWatch {
    pub(crate) fn new(settings: &Settings, now: Timestamp) -> RestWatch {
        let timers = &settings.timers;
        let longest = [
            timers.force_detach.unwrap_or_default(),
            timers.volume_bind_timeout,
            timers.unschedulable_timeout + timers.unschedulable_sweep,
            timers.orphan_quarantine + timers.pod_gc_period * 2,
            timers.job_backoff_max,
            settings.storage.retry_max,
            settings.kubelet.crash_backoff_max,
        ];
        RestWatch { patience: longest.into_iter().max().unwrap_or_default(), since: now, far: None }
    }

    /// Something has changed.
    pub(crate) fn changed(&mut self, now: Timestamp) {
        self.since = now;
        self.far = None;
    }

    /// Whether everything that was going to happen has happened, and changed nothing. Where only something that is far away
    /// may still change something, time passes until then.
    pub(crate) fn is_over(&mut self, simulation: &mut Simulation) -> bool {
        let Some(next) = simulation.next_at() else { return true };
        let later = |at: Timestamp| at.saturating_add(self.patience).unwrap_or(Timestamp::MAX);
        let watched = later(self.since);
        if next <= watched {
            return false;
        }
        // All that is done again and again has been done, and is due again before this.
        let end = later(watched);
        let far = self.far.get_or_insert_with(|| {
            let mut far: Vec<Timestamp> = simulation.pending().map(|(_, _, at)| at).filter(|at| *at > end).collect();
            far.sort_by(|one, other| other.cmp(one));
            far.dedup();
            far
        });
        if next <= end {
            return false;
        }
        let Some(at) = far.pop() else { return true };
        self.since = at;
        simulation.skip_until(at);
        false
    }
}

/// Whether a change is one that can help a pod of which one replacement after the other fails: another pod or a node is
/// different. That volumes come and go belongs to the failures.
pub(crate) fn may_help(change: &Change) -> bool {
    match change.key.kind {
        ObjectKind::Pod => true,
        ObjectKind::Node => {
            let (before, after) = change.of::<Node>();
            before.map(|node| placement_state(node)) != after.map(|node| placement_state(node))
        }
        _ => false,
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
    (placement_state(node), status.map(|status| (status.volumes_attached.clone(), status.volumes_in_use.clone())))
}

fn placement_state(node: &Node) -> impl PartialEq {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready =
        conditions.filter(|condition| condition.type_ == "Ready").map(|condition| condition.status.clone()).next();
    (node.spec.as_ref().map(|spec| (spec.taints.clone(), spec.unschedulable)), ready)
}
