//! The waiting times of a cluster that changed them.

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use stead_explain::outage::Timers;

/// Waiting times that are not Kubernetes' own, as the cluster's programs were told them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Waiting times, where the cluster has other ones than Kubernetes 1.36")]
pub(crate) struct TimerArgs {
    /// kube-controller-manager's flag of that name [default: 50s; 40s before Kubernetes 1.32]
    #[arg(long, value_name = "TIME")]
    node_monitor_grace_period: Option<SignedDuration>,

    /// kube-controller-manager's flag of that name [default: 5s]
    #[arg(long, value_name = "TIME")]
    node_monitor_period: Option<SignedDuration>,

    /// kube-controller-manager's flag of that name: nodes per second [default: 0.1]
    #[arg(long, value_name = "RATE")]
    node_eviction_rate: Option<f64>,

    /// kube-controller-manager's flag of that name [default: 0.55]
    #[arg(long, value_name = "PART")]
    unhealthy_zone_threshold: Option<f64>,

    /// kube-controller-manager's flag of that name [default: 50]
    #[arg(long, value_name = "NODES")]
    large_cluster_size_threshold: Option<usize>,

    /// How often the pod collector looks [default: 20s]
    #[arg(long, value_name = "TIME")]
    pod_gc_period: Option<SignedDuration>,

    /// A moment at which it looked (the newest line of gc_controller.go in kube-controller-manager's log): with it, its
    /// next looks are known, and not only to be expected
    #[arg(long, value_name = "RFC3339")]
    pod_gc_seen: Option<Timestamp>,

    /// How long a volume that is still mounted stays on a node that is not ready [default: 6m]
    #[arg(long, value_name = "TIME")]
    force_detach_after: Option<SignedDuration>,

    /// kube-controller-manager's flag of that name: it stays there for ever
    #[arg(long, conflicts_with = "force_detach_after")]
    disable_force_detach_on_timeout: bool,

    /// Since when kube-controller-manager runs: its timers began anew then [default: as its lease says]
    #[arg(long, value_name = "RFC3339")]
    controllers_since: Option<Timestamp>,

    /// kubelet's nodeStatusUpdateFrequency [default: 10s]
    #[arg(long, value_name = "TIME")]
    node_status_period: Option<SignedDuration>,

    /// What a kubelet needs to speak of its pods after its machine is back [default: 1s]
    #[arg(long, value_name = "TIME")]
    kubelet_return: Option<SignedDuration>,

    /// What a container needs to end [default: 1s]
    #[arg(long, value_name = "TIME")]
    pod_stop: Option<SignedDuration>,

    /// What a pod needs from a node and its volumes to containers that run, where it has not started before [default:
    /// 2s]
    #[arg(long, value_name = "TIME")]
    pod_start: Option<SignedDuration>,
}

impl TimerArgs {
    /// These, and Kubernetes' own where nothing is said.
    pub(crate) fn timers(&self) -> Timers {
        let own = Timers::default();
        let interval = |rate: f64| SignedDuration::try_from_secs_f64(1.0 / rate).unwrap_or(SignedDuration::MAX);
        Timers {
            node_monitor_grace: self.node_monitor_grace_period.unwrap_or(own.node_monitor_grace),
            node_monitor_period: self.node_monitor_period.unwrap_or(own.node_monitor_period),
            eviction_interval: self.node_eviction_rate.map_or(own.eviction_interval, interval),
            unhealthy_zone_threshold: self.unhealthy_zone_threshold.unwrap_or(own.unhealthy_zone_threshold),
            large_zone: self.large_cluster_size_threshold.unwrap_or(own.large_zone),
            pod_gc_period: self.pod_gc_period.unwrap_or(own.pod_gc_period),
            pod_gc_seen: self.pod_gc_seen,
            force_detach: match self.disable_force_detach_on_timeout {
                true => None,
                false => self.force_detach_after.or(own.force_detach),
            },
            controllers_since: self.controllers_since,
            node_status_period: self.node_status_period.unwrap_or(own.node_status_period),
            kubelet_return: self.kubelet_return.unwrap_or(own.kubelet_return),
            stop: self.pod_stop.unwrap_or(own.stop),
            start: self.pod_start.unwrap_or(own.start),
            ..own
        }
    }
}
