//! Version, timers and delays of the simulated cluster.

use jiff::SignedDuration;
use stead_model::KubernetesVersion;

/// What a cluster has besides its objects.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The version whose rules and wording apply.
    pub version: KubernetesVersion,
    /// The patch release, where wording depends on it.
    pub patch: u16,
    /// The timers of the control plane.
    pub timers: ControllerTimers,
    /// The delays of kubelets.
    pub kubelet: KubeletDelays,
    /// How long the program in a container takes to start, to become ready and to stop.
    pub workload: WorkloadDelays,
    /// The delays of storage drivers.
    pub storage: StorageDelays,
    /// What is too much.
    pub limits: Limits,
}

/// The timers of kube-controller-manager and kube-scheduler. The defaults are those of the version.
#[derive(Debug, Clone, PartialEq)]
pub struct ControllerTimers {
    /// From a change to the step of a controller that it concerns.
    pub reaction: SignedDuration,
    /// `--node-monitor-grace-period`.
    pub node_monitor_grace: SignedDuration,
    /// `--node-monitor-period`.
    pub node_monitor_period: SignedDuration,
    /// How long a node that never posted its status may be silent (`--node-startup-grace-period`).
    pub node_startup_grace: SignedDuration,
    /// `--node-eviction-rate`, in nodes per second.
    pub node_eviction_rate: f64,
    /// `--secondary-node-eviction-rate`, in nodes per second.
    pub secondary_node_eviction_rate: f64,
    /// `--unhealthy-zone-threshold`.
    pub unhealthy_zone_threshold: f64,
    /// `--large-cluster-size-threshold`.
    pub large_cluster_size: usize,
    /// How often the queue of nodes to taint is looked at.
    pub taint_queue_poll: SignedDuration,
    /// The period of the pod garbage collector.
    pub pod_gc_period: SignedDuration,
    /// How long a missing Node is in quarantine before its pods are deleted.
    pub orphan_quarantine: SignedDuration,
    /// The period of the attach-detach controller's loop.
    pub attach_detach_period: SignedDuration,
    /// After this time a volume is detached from a node that is not ready, mounted or not; none with
    /// `--disable-force-detach-on-timeout`.
    pub force_detach: Option<SignedDuration>,
    /// The resync period of the PersistentVolume binder.
    pub volume_resync: SignedDuration,
    /// How long a Job's pod changes are collected before the Job is looked at.
    pub job_sync_batch: SignedDuration,
    /// The first back-off of a failed Job pod.
    pub job_backoff: SignedDuration,
    /// The longest back-off of a failed Job pod.
    pub job_backoff_max: SignedDuration,
    /// How long an eviction that was allowed counts as a disruption.
    pub disruption_timeout: SignedDuration,
    /// From the deletion of a namespace to the first pass over its objects.
    pub namespace_deletion_delay: SignedDuration,
    /// How long the scheduler takes to decide about a pod.
    pub scheduler_attempt: SignedDuration,
    /// How long a request of the scheduler to the API server takes.
    pub scheduler_call: SignedDuration,
    /// The scheduler's first back-off.
    pub scheduler_backoff: SignedDuration,
    /// The scheduler's longest back-off.
    pub scheduler_backoff_max: SignedDuration,
    /// After this time an unschedulable pod is tried again without a reason.
    pub unschedulable_timeout: SignedDuration,
    /// How often the scheduler looks for such pods.
    pub unschedulable_sweep: SignedDuration,
    /// How long the scheduler waits for volumes to be bound.
    pub volume_bind_timeout: SignedDuration,
    /// The first delay after an error, doubled with each further one.
    pub retry: SignedDuration,
    /// The longest delay after an error.
    pub retry_max: SignedDuration,
    /// How long events are kept (`--event-ttl`).
    pub event_ttl: SignedDuration,
}

/// The delays of a kubelet.
#[derive(Debug, Clone, PartialEq)]
pub struct KubeletDelays {
    /// How often it renews its Lease.
    pub lease_period: SignedDuration,
    /// How often it reports its status, and with it the volumes in use. Zero: at once.
    pub status_period: SignedDuration,
    /// From the return of a suspended machine to the first status.
    pub resume: SignedDuration,
    /// From the start of a machine to the first status.
    pub boot: SignedDuration,
    /// How often it looks at volumes and containers.
    pub sync: SignedDuration,
    /// The first back-off of a crashing container.
    pub crash_backoff: SignedDuration,
    /// The longest back-off of a crashing container.
    pub crash_backoff_max: SignedDuration,
}

/// How long the program in a container takes.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkloadDelays {
    /// From available volumes to a running container.
    pub start: SignedDuration,
    /// From a running container to a ready one.
    pub ready: SignedDuration,
    /// From the signal to the end of a container.
    pub stop: SignedDuration,
    /// How long the containers of a Job run.
    pub job: SignedDuration,
}

/// The delays of storage drivers.
#[derive(Debug, Clone, PartialEq)]
pub struct StorageDelays {
    /// How long the creation of a volume takes.
    pub provision: SignedDuration,
    /// How long attaching takes.
    pub attach: SignedDuration,
    /// How long detaching takes.
    pub detach: SignedDuration,
}

/// What is too much: the simulation stops with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of steps of all controllers.
    pub steps: u64,
    /// The number of objects.
    pub objects: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::of(KubernetesVersion::default())
    }
}

impl Settings {
    /// The defaults of a version.
    pub fn of(version: KubernetesVersion) -> Settings {
        let (seconds, millis) = (SignedDuration::from_secs, SignedDuration::from_millis);
        Settings {
            version,
            patch: 4,
            timers: ControllerTimers::of(version),
            kubelet: KubeletDelays {
                lease_period: seconds(10),
                status_period: seconds(10),
                resume: seconds(1),
                boot: seconds(30),
                sync: seconds(1),
                crash_backoff: seconds(10),
                crash_backoff_max: seconds(300),
            },
            workload: WorkloadDelays { start: seconds(1), ready: seconds(1), stop: seconds(1), job: seconds(1) },
            storage: StorageDelays { provision: millis(100), attach: millis(100), detach: millis(100) },
            limits: Limits { steps: 100_000_000, objects: 2_000_000 },
        }
    }

    /// Whether the version is this minor version of Kubernetes 1, or newer.
    pub fn since(&self, minor: u16) -> bool {
        self.version >= KubernetesVersion::minor(minor)
    }
}

impl ControllerTimers {
    /// The defaults of a version.
    pub fn of(version: KubernetesVersion) -> ControllerTimers {
        let (seconds, millis) = (SignedDuration::from_secs, SignedDuration::from_millis);
        let grace = if version < KubernetesVersion::minor(32) { 40 } else { 50 };
        ControllerTimers {
            reaction: millis(2),
            node_monitor_grace: seconds(grace),
            node_monitor_period: seconds(5),
            node_startup_grace: seconds(60),
            node_eviction_rate: 0.1,
            secondary_node_eviction_rate: 0.01,
            unhealthy_zone_threshold: 0.55,
            large_cluster_size: 50,
            taint_queue_poll: millis(100),
            pod_gc_period: seconds(20),
            orphan_quarantine: seconds(40),
            attach_detach_period: millis(100),
            force_detach: Some(seconds(360)),
            volume_resync: seconds(15),
            job_sync_batch: seconds(1),
            job_backoff: seconds(10),
            job_backoff_max: seconds(600),
            disruption_timeout: seconds(120),
            namespace_deletion_delay: seconds(5),
            scheduler_attempt: millis(1),
            scheduler_call: millis(3),
            scheduler_backoff: seconds(1),
            scheduler_backoff_max: seconds(10),
            unschedulable_timeout: seconds(300),
            unschedulable_sweep: seconds(30),
            volume_bind_timeout: seconds(600),
            retry: millis(5),
            retry_max: seconds(1000),
            event_ttl: seconds(3600),
        }
    }
}
