//! Flags about the cluster's control plane, for what cannot be read from the cluster or the dump.

use std::path::PathBuf;

use clap::Args;
use stead_model::ClusterVersion;

/// What the user says about the control plane.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ControlPlaneArgs {
    /// Kubernetes version whose rules, wording and timers are used, such as 1.31 [default: that of the server; of a dump, the
    /// recorded one or that of its newest kubelet]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes: Option<ClusterVersion>,

    /// File with the KubeSchedulerConfiguration of the cluster: weights, and plugins that are disabled [default:
    /// kube-scheduler's own, or the profile of OpenShift's Scheduler]
    #[arg(long, value_name = "FILE")]
    pub(crate) scheduler_config: Option<PathBuf>,
}
