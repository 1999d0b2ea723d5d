//! Version, timers and delays of the simulated cluster.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use stead_model::KubernetesVersion;

use crate::controllers::ControllerId;

/// What a cluster has besides its objects.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The version whose rules and wording apply.
    pub version: KubernetesVersion,
    /// The patch release, where wording depends on it.
    pub patch: u16,
    /// The components that run: all of them, as a rule.
    pub components: Vec<ControllerId>,
    /// The timers of the control plane.
    pub timers: ControllerTimers,
    /// The delays of kubelets.
    pub kubelet: KubeletDelays,
    /// How long the program in a container takes to start, to become ready and to stop.
    pub workload: WorkloadDelays,
    /// Storage drivers.
    pub storage: StorageSettings,
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
    /// How long pods tolerate a node that is not ready or unreachable if they say nothing else
    /// (`--default-not-ready-toleration-seconds` and `--default-unreachable-toleration-seconds` of kube-apiserver).
    pub default_toleration: SignedDuration,
    /// A moment at which the node lifecycle controller looks at the nodes; when the simulation starts, if none is known.
    pub node_monitor_run: Option<Timestamp>,
    /// The period of the pod garbage collector.
    pub pod_gc_period: SignedDuration,
    /// A moment at which the pod garbage collector runs; when the simulation starts, if none is known.
    pub pod_gc_run: Option<Timestamp>,
    /// How long a missing Node is in quarantine before its pods are deleted.
    pub orphan_quarantine: SignedDuration,
    /// The period of the attach-detach controller's loop.
    pub attach_detach_period: SignedDuration,
    /// After this time a volume is detached from a node that is not ready, mounted or not; none with
    /// `--disable-force-detach-on-timeout`.
    pub force_detach: Option<SignedDuration>,
    /// How often the attach-detach controller checks that attached volumes are still attached
    /// (`--attach-detach-reconcile-sync-period`).
    pub attachment_check: SignedDuration,
    /// How often the attach-detach controller looks for pods that are gone. It looks for pods that it has missed at every
    /// third time.
    pub attach_detach_populator: SignedDuration,
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

/// What plays the kubelets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KubeletForm {
    /// The kubelet of Kubernetes: admission, probes, restarts, terminal statuses.
    #[default]
    Kubernetes,
    /// The stand-ins of the testbed: containers that only change their status after the delays.
    StandIn,
}

/// How long a kubelet delays the shutdown of its machine for the pods (`shutdownGracePeriod` and
/// `shutdownGracePeriodCriticalPods` of its configuration).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownGrace {
    /// For all pods.
    pub total: SignedDuration,
    /// The part of it that is for critical pods.
    pub critical: SignedDuration,
}

/// The delays of a kubelet.
#[derive(Debug, Clone, PartialEq)]
pub struct KubeletDelays {
    /// What plays the kubelets.
    pub form: KubeletForm,
    /// Whether kubelets report events.
    pub events: bool,
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
    /// From the end of a pod's containers to the removal of its mounts.
    pub unmount: SignedDuration,
    /// How often it compares the statuses of its pods with those of the API server.
    pub pod_status_period: SignedDuration,
    /// The graceful shutdown of the machine; none if it is not configured.
    pub shutdown_grace: Option<ShutdownGrace>,
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

/// Storage drivers: their delays, and what they write.
///
/// The defaults are those of CSI drivers with their sidecars (external-provisioner, external-attacher).
#[derive(Debug, Clone, PartialEq)]
pub struct StorageSettings {
    /// How long the creation of a volume takes, and its deletion.
    pub provision: SignedDuration,
    /// How long attaching takes.
    pub attach: SignedDuration,
    /// How long detaching takes.
    pub detach: SignedDuration,
    /// The first delay after a call to a driver failed, doubled with each further failure (`--retry-interval-start`).
    pub retry: SignedDuration,
    /// The longest delay after a failed call (`--retry-interval-max`).
    pub retry_max: SignedDuration,
    /// Whether a failed call is repeated when objects or disks change, instead of after a delay.
    pub retry_on_change: bool,
    /// Whether drivers report events about claims and volumes.
    pub events: bool,
    /// Whether drivers have the CSI sidecars, which look up the node in CSINode and add annotations and finalizers.
    /// Without them a driver writes only what Kubernetes needs.
    pub sidecars: bool,
    /// Whether the finalizer of a VolumeAttachment is added only after the storage has accepted the request.
    pub finalizer_after_attach: bool,
    /// Whether a volume that is created without a selected node gets the topology of one (`--immediate-topology`).
    pub immediate_topology: bool,
    /// The drivers that differ from [`DriverSettings::default`], by name.
    pub drivers: BTreeMap<String, DriverSettings>,
}

/// A storage driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverSettings {
    /// Whether it works.
    pub state: DriverState,
    /// Whether a machine that a volume is detached from loses access to it.
    pub detach_revokes: bool,
    /// How long attaching takes, if not as long as usual.
    pub attach: Option<SignedDuration>,
}

/// Whether a storage driver works.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DriverState {
    /// It works.
    #[default]
    Working,
    /// Every call fails.
    Failing {
        /// The error.
        message: String,
        /// Whether the node is at fault (gRPC `ResourceExhausted`), so that the scheduler has to select another one.
        reschedule: bool,
    },
    /// It is not running: requests stay unanswered.
    Stopped,
}

impl Default for DriverSettings {
    fn default() -> DriverSettings {
        DriverSettings { state: DriverState::Working, detach_revokes: true, attach: None }
    }
}

impl Default for StorageSettings {
    fn default() -> StorageSettings {
        let (seconds, millis) = (SignedDuration::from_secs, SignedDuration::from_millis);
        StorageSettings {
            provision: millis(100),
            attach: millis(100),
            detach: millis(100),
            retry: seconds(1),
            retry_max: seconds(300),
            retry_on_change: false,
            events: true,
            sidecars: true,
            finalizer_after_attach: false,
            immediate_topology: true,
            drivers: BTreeMap::new(),
        }
    }
}

impl StorageSettings {
    /// The stand-in drivers of the testbed, which write only what Kubernetes needs and report no events.
    pub fn stand_in() -> StorageSettings {
        let instant = SignedDuration::ZERO;
        StorageSettings {
            provision: instant,
            attach: instant,
            detach: instant,
            retry_on_change: true,
            events: false,
            sidecars: false,
            immediate_topology: false,
            ..StorageSettings::default()
        }
    }

    /// The settings of a driver.
    pub fn driver(&self, name: &str) -> DriverSettings {
        self.drivers.get(name).cloned().unwrap_or_default()
    }

    /// The delay after this many failures in a row, at least one.
    pub(crate) fn retry_after(&self, failures: u32) -> SignedDuration {
        let factor = 1_i32.checked_shl(failures.saturating_sub(1)).filter(|factor| *factor > 0).unwrap_or(i32::MAX);
        self.retry.checked_mul(factor).unwrap_or(self.retry_max).min(self.retry_max)
    }
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
        let seconds = SignedDuration::from_secs;
        Settings {
            version,
            patch: 4,
            components: ControllerId::ALL.to_vec(),
            timers: ControllerTimers::of(version),
            kubelet: KubeletDelays {
                form: KubeletForm::Kubernetes,
                events: true,
                lease_period: seconds(10),
                status_period: seconds(10),
                resume: seconds(1),
                boot: seconds(30),
                sync: seconds(1),
                unmount: SignedDuration::from_millis(300),
                pod_status_period: seconds(10),
                shutdown_grace: None,
                crash_backoff: seconds(10),
                crash_backoff_max: seconds(300),
            },
            workload: WorkloadDelays { start: seconds(1), ready: seconds(1), stop: seconds(1), job: seconds(1) },
            storage: StorageSettings::default(),
            limits: Limits { steps: 100_000_000, objects: 2_000_000 },
        }
    }

    /// The same with the stand-in kubelets of the testbed: they report at once, renew their Leases each second and report
    /// no events.
    pub fn with_stand_ins(mut self) -> Settings {
        let (zero, second) = (SignedDuration::ZERO, SignedDuration::from_secs(1));
        self.kubelet = KubeletDelays {
            form: KubeletForm::StandIn,
            events: false,
            lease_period: second,
            status_period: zero,
            resume: zero,
            boot: zero,
            ..self.kubelet
        };
        self.workload =
            WorkloadDelays { start: second, ready: second, stop: second, job: SignedDuration::from_millis(500) };
        self
    }

    /// The same with these components only.
    pub fn with_components(self, components: &[ControllerId]) -> Settings {
        Settings { components: components.to_vec(), ..self }
    }

    /// The settings of a cluster in which only the components for volumes run.
    #[cfg(test)]
    pub(crate) fn only_storage(self) -> Settings {
        self.with_components(&[
            ControllerId::VolumeBinder,
            ControllerId::ClaimProtection,
            ControllerId::VolumeProtection,
            ControllerId::EphemeralVolumes,
            ControllerId::AttachDetach,
            ControllerId::Provisioner,
            ControllerId::Attacher,
        ])
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
            node_monitor_run: None,
            default_toleration: seconds(300),
            pod_gc_period: seconds(20),
            pod_gc_run: None,
            orphan_quarantine: seconds(40),
            attach_detach_period: millis(100),
            force_detach: Some(seconds(360)),
            attachment_check: seconds(60),
            attach_detach_populator: seconds(60),
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
