//! The causes, by name and severity.

use serde::Serialize;

/// Why objects are stuck. The order is that of the report among causes of the same severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum StuckCause {
    /// The control plane does not hear from a node, or its Node object was deleted.
    NodeUnreachable,
    /// A kubelet reports that its node is not ready.
    NodeNotReady,
    /// A volume is attached to another node than the one that needs it, or is not detached.
    VolumeHeld,
    /// A storage driver fails to provision, attach, mount or detach.
    DriverFailing,
    /// A claim has no volume.
    ClaimUnbound,
    /// A Topology has rules that no pod or node can satisfy.
    TopologyUnsatisfiable,
    /// No node can run a pod.
    Unschedulable,
    /// A Secret, ConfigMap, claim, class or account does not exist.
    MissingReference,
    /// The kubelet cannot use the configuration of a container, such as an image that runs as root.
    ConfigInvalid,
    /// A ResourceQuota does not allow more pods.
    QuotaExceeded,
    /// The API server rejects the pods of a workload.
    CreateRejected,
    /// A container ends or fails to start again and again.
    CrashLoop,
    /// An image cannot be pulled.
    ImagePull,
    /// The kubelet cannot create the sandbox of a pod, such as its network.
    SandboxFailing,
    /// The kubelet has not started the containers of a pod, and no reason was reported.
    NotStarting,
    /// A probe fails.
    ProbeFailing,
    /// An init container has not finished.
    InitNotFinished,
    /// A pod is not ready, and no reason was reported.
    NotReady,
    /// A finalizer keeps a deleted object.
    FinalizerBlocks,
    /// A kubelet does not finish the termination of a pod.
    TerminationStuck,
    /// A budget allows no eviction, and a drain waits for one.
    BudgetBlocks,
    /// A workload has too few pods, and no reason was reported.
    ReplicasMissing,
    /// A pod has a scheduling gate.
    SchedulingGated,
}

/// How severe a cause is, the most severe first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Several objects, or data, are out of reach until somebody acts.
    Critical,
    /// A workload does not have what it needs.
    Warning,
    /// As configured: somebody has to know.
    Info,
}

impl Severity {
    /// The word in the report.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Critical => "critical",
            Severity::Warning => "warning",
            Severity::Info => "info",
        }
    }
}

impl StuckCause {
    /// Its severity.
    pub fn severity(self) -> Severity {
        match self {
            StuckCause::NodeUnreachable
            | StuckCause::NodeNotReady
            | StuckCause::VolumeHeld
            | StuckCause::DriverFailing => Severity::Critical,
            StuckCause::SchedulingGated => Severity::Info,
            _ => Severity::Warning,
        }
    }

    /// Whether the cause is found pod by pod, so that the pods of a workload are one cause.
    pub(super) fn is_of_pods(self) -> bool {
        matches!(
            self,
            StuckCause::Unschedulable
                | StuckCause::ConfigInvalid
                | StuckCause::CrashLoop
                | StuckCause::ImagePull
                | StuckCause::SandboxFailing
                | StuckCause::NotStarting
                | StuckCause::ProbeFailing
                | StuckCause::InitNotFinished
                | StuckCause::NotReady
                | StuckCause::TerminationStuck
                | StuckCause::SchedulingGated
        )
    }
}
