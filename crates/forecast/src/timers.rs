//! How long Kubernetes waits for what, and how often it looks.

use jiff::{SignedDuration, Timestamp};

use k8s_openapi::api::coordination::v1::Lease;
use serde::Serialize;
use stead_model::{HeartbeatClock, KubernetesVersion, LeaseView, NODE_LEASES, Objects};

/// The waiting times of a control plane and of its kubelets. The defaults are those of the newest version of Kubernetes.
#[derive(Debug, Clone, PartialEq)]
pub struct Timers {
    /// `--node-monitor-grace-period`: so long a node may be silent before it is said to be Unknown.
    pub node_monitor_grace: SignedDuration,
    /// `--node-monitor-period`: so often the node controller looks.
    pub node_monitor_period: SignedDuration,
    /// The time between two nodes of a zone that get the taint which evicts: one over `--node-eviction-rate`; none for a
    /// rate of 0, which evicts nobody.
    pub eviction_interval: Option<SignedDuration>,
    /// `--unhealthy-zone-threshold`: from this part of silent nodes on (and three of them), a zone is disturbed.
    pub unhealthy_zone_threshold: f64,
    /// `--large-cluster-size-threshold`: a disturbed zone of no more nodes than these evicts nobody.
    pub large_zone: usize,
    /// The time between two nodes of a disturbed zone that is larger: one over `--secondary-node-eviction-rate`.
    pub secondary_eviction_interval: Option<SignedDuration>,
    /// So often the pod collector looks.
    pub pod_gc_period: SignedDuration,
    /// A moment at which it looked: the others are so many periods from it. It looks first when the controllers start;
    /// where neither is known, half a period is expected.
    pub pod_gc_seen: Option<Timestamp>,
    /// So long the pod collector waits before it takes a node that is not there for deleted.
    pub orphan_quarantine: SignedDuration,
    /// So long a volume that is still mounted on a node which is not ready is kept there; none with
    /// `--disable-force-detach-on-timeout`.
    pub force_detach: Option<SignedDuration>,
    /// Since when the controllers run: their timers are in memory and begin anew with them.
    pub controllers_since: Option<Timestamp>,
    /// So often a kubelet reports its status, and with it which volumes it has mounted no more.
    pub node_status_period: SignedDuration,
    /// What a kubelet that is back needs until it has said how its pods are.
    pub kubelet_return: SignedDuration,
    /// What a container needs to end.
    pub stop: SignedDuration,
    /// From there to containers that run, where nothing is known of how long it took before.
    pub start: SignedDuration,
}

/// The first version in which a node may be silent for 50 seconds; before, it was 40.
const LONGER_GRACE: KubernetesVersion = KubernetesVersion::minor(32);

impl Default for Timers {
    fn default() -> Timers {
        Timers::of(KubernetesVersion::default())
    }
}

impl Timers {
    /// So long after its start the pod collector still looks in step: each look takes a few milliseconds more than its
    /// period.
    pub(crate) const STEADY: SignedDuration = SignedDuration::from_hours(1);

    /// The defaults of a version of Kubernetes. From 1.29 to 1.36, only the grace period of nodes has changed.
    pub fn of(version: KubernetesVersion) -> Timers {
        let seconds = SignedDuration::from_secs;
        Timers {
            node_monitor_grace: seconds(if version < LONGER_GRACE { 40 } else { 50 }),
            node_monitor_period: seconds(5),
            eviction_interval: Some(seconds(10)),
            unhealthy_zone_threshold: 0.55,
            large_zone: 50,
            secondary_eviction_interval: Some(seconds(100)),
            pod_gc_period: seconds(20),
            pod_gc_seen: None,
            orphan_quarantine: seconds(40),
            force_detach: Some(seconds(360)),
            controllers_since: None,
            node_status_period: seconds(10),
            kubelet_return: seconds(1),
            stop: seconds(1),
            start: seconds(2),
        }
    }
}

/// Kubernetes writes most times down to the second, and so loses half of one as a rule.
pub(crate) const LOST: SignedDuration = SignedDuration::from_millis(500);

/// A timer whose value is not the default of the cluster's version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TimerSetting {
    /// The name: that of the flag that sets it.
    pub name: &'static str,
    /// The value.
    pub value: String,
    /// Where the value comes from.
    pub source: String,
}

/// The time that an answer is given for.
#[derive(Debug, Clone, PartialEq)]
pub struct Clock {
    /// The moment of which the objects tell.
    pub now: Timestamp,
    /// What leases are held against: what was read one after the other is not all of one moment.
    pub leases: HeartbeatClock,
    /// The cluster's waiting times.
    pub timers: Timers,
    /// Those that are not the defaults of its version: they are part of the answer.
    pub settings: Vec<TimerSetting>,
}

impl Clock {
    /// That moment, in a cluster with these objects and waiting times.
    pub fn new(objects: &Objects, now: Timestamp, timers: Timers) -> Clock {
        let leases = objects.all_in::<Lease>(NODE_LEASES).filter_map(|(_, lease)| LeaseView::of(lease));
        let newest = leases.map(|lease| lease.renewed).max();
        let found = timers.node_monitor_grace + timers.node_monitor_period * 2;
        Clock {
            now,
            leases: HeartbeatClock { now: newest.unwrap_or(now).min(now), marked_unknown_after: found },
            timers,
            settings: Vec::new(),
        }
    }

    /// That moment, in a cluster with Kubernetes' own waiting times.
    pub fn at(now: Timestamp) -> Clock {
        Clock::new(&Objects::default(), now, Timers::default())
    }
}
