//! The settings of a simulation that goes on with a cluster.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use stead_model::{LeaseView, NODE_LEASES, NodeHealth, Objects, Readiness, Typed, VolumeAttachmentView};
use stead_sim::{ControllerId, Limits, Settings};

use crate::timers::{Clock, Timers};

/// The components that pods on failed nodes depend on. Others are left out: CronJobs and expired Jobs are unrelated
/// periodic work, and the garbage collector would take owners that were not read for deleted ones.
const COMPONENTS: [ControllerId; 17] = [
    ControllerId::Scheduler,
    ControllerId::Deployments,
    ControllerId::ReplicaSets,
    ControllerId::StatefulSets,
    ControllerId::DaemonSets,
    ControllerId::Jobs,
    ControllerId::NodeLifecycle,
    ControllerId::TaintEviction,
    ControllerId::PodGc,
    ControllerId::VolumeBinder,
    ControllerId::ClaimProtection,
    ControllerId::VolumeProtection,
    ControllerId::EphemeralVolumes,
    ControllerId::AttachDetach,
    ControllerId::Provisioner,
    ControllerId::Attacher,
    ControllerId::Kubelet,
];

/// Times are written down to the second.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// What took longer was refused at first.
const LONGEST_ATTACH: SignedDuration = SignedDuration::from_secs(60);

/// An outage takes some hundreds of steps for each pod of a node; what goes on for so long cannot be told in time.
const MAX_STEPS: u64 = 30_000;

/// So many pods are on a few nodes; whatever creates more does not stop.
pub(crate) const MAX_NEW_OBJECTS: usize = 2000;

/// The settings for a cluster at a time.
pub(crate) fn settings(objects: &Objects, clock: &Clock) -> Settings {
    let found = &clock.timers;
    let mut settings = Settings::of(objects.version()).with_components(&COMPONENTS);
    settings.limits = Limits { steps: MAX_STEPS, ..settings.limits };
    let timers = &mut settings.timers;
    timers.node_monitor_grace = found.node_monitor_grace;
    timers.node_monitor_period = found.node_monitor_period;
    timers.node_monitor_run = node_monitor_phase(objects, clock);
    timers.node_eviction_rate = rate(found.eviction_interval);
    timers.secondary_node_eviction_rate = rate(found.secondary_eviction_interval);
    timers.unhealthy_zone_threshold = found.unhealthy_zone_threshold;
    timers.large_cluster_size = found.large_zone;
    timers.pod_gc_period = found.pod_gc_period;
    timers.pod_gc_run = Some(found.pod_gc_phase(clock.now));
    timers.orphan_quarantine = found.orphan_quarantine;
    timers.force_detach = found.force_detach;
    let kubelet = &mut settings.kubelet;
    kubelet.status_period = found.node_status_period;
    // A kubelet that reports the status of its node at once does so for its pods.
    kubelet.pod_status_period = kubelet.pod_status_period.min(found.node_status_period);
    kubelet.resume = found.kubelet_return;
    kubelet.lease_period = lease_period(objects).unwrap_or(kubelet.lease_period);
    // The attacher looks up nodes in their CSINodes; where none was read, it is assumed to find them.
    settings.storage.sidecars = !objects.has_none("CSINode") && is_by_sidecars(objects);
    for (driver, takes) in attach_times(objects) {
        settings.storage.drivers.entry(driver).or_default().attach = Some(takes);
    }
    settings.workload.start = found.start;
    settings.workload.stop = found.stop;
    settings
}

/// The annotation with which the external-attacher saves the driver's name of a node before it attaches a volume there.
const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

/// Whether the external-attacher attaches volumes. Other attachers do not save the name of a node, and need no CSINode of a
/// node that is deleted.
fn is_by_sidecars(objects: &Objects) -> bool {
    let mut attached = objects.of_kind(VolumeAttachment::KIND).filter_map(|object| {
        let attachment = object.typed::<VolumeAttachment>().ok()?;
        attachment.status.as_ref()?.attached.then_some(attachment)
    });
    attached.all(|attachment| attachment.metadata.annotations.iter().flatten().any(|(name, _)| name == NODE_ID))
}

/// How long drivers take to attach a volume, where that is a second or more: the shortest time that any of their
/// attachments took.
fn attach_times(objects: &Objects) -> BTreeMap<String, SignedDuration> {
    let mut times: BTreeMap<String, SignedDuration> = BTreeMap::new();
    for object in objects.of_kind(VolumeAttachment::KIND) {
        let Ok(attachment) = object.typed::<VolumeAttachment>() else { continue };
        let found = VolumeAttachmentView::of(attachment);
        let (Some(created), Some(written), true) = (found.created, found.status_written, found.attached) else {
            continue;
        };
        let took = written.duration_since(created);
        let time = times.entry(attachment.spec.attacher.clone()).or_insert(took);
        *time = took.min(*time);
    }
    times.retain(|_, time| (SECOND..=LONGEST_ATTACH).contains(time));
    times
}

/// The rate per second of an interval; zero for none.
fn rate(interval: Option<SignedDuration>) -> f64 {
    interval.map_or(0.0, |interval| 1.0 / interval.as_secs_f64().max(0.001))
}

/// How often kubelets renew their Leases: a Lease is valid for four renewals.
fn lease_period(objects: &Objects) -> Option<SignedDuration> {
    let leases = objects.all_in::<Lease>(NODE_LEASES).filter_map(|(_, lease)| LeaseView::of(lease));
    leases.map(|lease| lease.duration / 4).filter(SignedDuration::is_positive).min()
}

/// When the node controller looks is not in the objects. On average half a period passes before it sees the last sign of
/// life of a node that has fallen silent.
fn node_monitor_phase(objects: &Objects, clock: &Clock) -> Option<Timestamp> {
    let health = |node: stead_model::NodeView<'_>| objects.node_health(node.name()).ok().flatten();
    let silent = |node: &NodeHealth<'_>| node.readiness == Readiness::Ready && node.is_unreachable(clock.leases);
    let heard = objects.nodes().filter_map(health).filter(silent).filter_map(|node| node.last_heard()).min();
    Some(heard.unwrap_or(clock.now) + clock.timers.node_monitor_period / 2)
}

impl Timers {
    /// A moment at which the pod garbage collector looks. Where none is known, half a period from now is expected.
    fn pod_gc_phase(&self, now: Timestamp) -> Timestamp {
        let started = self.controllers_since.filter(|since| now.duration_since(*since) < Timers::STEADY);
        self.pod_gc_seen.or(started).unwrap_or(now + self.pod_gc_period / 2)
    }
}
