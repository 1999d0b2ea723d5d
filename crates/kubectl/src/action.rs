//! What a command does.

use std::time::Duration;

use serde_json::Value;
use stead_semantics::labels::Selector;

use crate::changes::{KeyChange, TaintChange};
use crate::targets::Targets;

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cascade {
    /// They are deleted after it.
    Background,
    /// They are deleted before it.
    Foreground,
    /// They stay.
    Orphan,
}

/// How a patch is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchType {
    /// A JSON merge patch (RFC 7386).
    Merge,
    /// A JSON patch (RFC 6902).
    Json,
    /// A strategic merge patch.
    Strategic,
}

/// What `kubectl rollout` does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloutAction {
    /// Restarts the pods.
    Restart,
    /// Goes back to a revision; 0 for the one before.
    Undo(i64),
    /// Pauses the rollout.
    Pause,
    /// Resumes the rollout.
    Resume,
}

/// How a node is drained.
#[derive(Debug, Clone, PartialEq)]
pub struct DrainOptions {
    /// Leave pods of DaemonSets.
    pub ignore_daemonsets: bool,
    /// Also pods without a controller.
    pub force: bool,
    /// Also pods with emptyDir volumes.
    pub delete_emptydir_data: bool,
    /// Delete instead of evicting.
    pub disable_eviction: bool,
    /// The grace period in seconds; none for that of each pod.
    pub grace: Option<i64>,
    /// How long to try; none for ever.
    pub timeout: Option<Duration>,
    /// Only these pods.
    pub pod_selector: Option<Selector>,
    /// Do not wait for pods that have been Terminating for this many seconds.
    pub skip_wait_for_delete_timeout: Option<i64>,
}

/// What a command does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// `apply -f`.
    Apply {
        /// The files.
        files: Vec<String>,
        /// By the server instead of kubectl.
        server_side: bool,
    },
    /// `create -f`.
    Create {
        /// The files.
        files: Vec<String>,
    },
    /// `create namespace NAME`.
    CreateNamespace {
        /// The name.
        name: String,
    },
    /// `replace -f`.
    Replace {
        /// The files.
        files: Vec<String>,
        /// Deletes the objects first.
        force: bool,
    },
    /// `delete`.
    Delete {
        /// Which objects.
        targets: Targets,
        /// The grace period in seconds; none for that of the object.
        grace: Option<i64>,
        /// Removes the object without waiting for its kubelet.
        force: bool,
        /// What happens to dependents.
        cascade: Cascade,
        /// Whether a missing object is no error.
        ignore_not_found: bool,
        /// Whether to wait until the objects are gone.
        wait: bool,
        /// How long to wait; none for as long as it takes.
        timeout: Option<Duration>,
    },
    /// `scale`.
    Scale {
        /// Which workloads.
        targets: Targets,
        /// The new count.
        replicas: i32,
        /// Only if this is the present count.
        current_replicas: Option<i32>,
    },
    /// `label`.
    Label {
        /// Which objects.
        targets: Targets,
        /// The changes.
        changes: Vec<KeyChange>,
        /// Whether existing values may be replaced.
        overwrite: bool,
    },
    /// `annotate`.
    Annotate {
        /// Which objects.
        targets: Targets,
        /// The changes.
        changes: Vec<KeyChange>,
        /// Whether existing values may be replaced.
        overwrite: bool,
    },
    /// `taint`.
    Taint {
        /// Which nodes.
        targets: Targets,
        /// The changes.
        changes: Vec<TaintChange>,
        /// Whether existing taints may be replaced.
        overwrite: bool,
    },
    /// `cordon` or `uncordon`.
    Cordon {
        /// Which nodes.
        targets: Targets,
        /// Whether new pods are kept away.
        unschedulable: bool,
    },
    /// `drain`.
    Drain {
        /// Which nodes.
        targets: Targets,
        /// How.
        options: DrainOptions,
    },
    /// `patch`.
    Patch {
        /// Which objects.
        targets: Targets,
        /// The patch.
        patch: Value,
        /// How it is applied.
        patch_type: PatchType,
        /// The subresource, such as `status` or `scale`.
        subresource: Option<String>,
    },
    /// `set image`.
    SetImage {
        /// Which workloads.
        targets: Targets,
        /// Containers (`*` for all) and their images.
        images: Vec<(String, String)>,
    },
    /// `set resources`.
    SetResources {
        /// Which workloads.
        targets: Targets,
        /// The containers; `*` for all.
        containers: String,
        /// The limits.
        limits: Vec<(String, String)>,
        /// The requests.
        requests: Vec<(String, String)>,
    },
    /// `rollout`.
    Rollout {
        /// Which workloads.
        targets: Targets,
        /// What to do with the rollout.
        action: RolloutAction,
    },
}

impl Action {
    /// Which objects it is about; none if they are in files or named by itself.
    pub fn targets(&self) -> Option<&Targets> {
        match self {
            Action::Apply { .. } | Action::Create { .. } | Action::CreateNamespace { .. } | Action::Replace { .. } => {
                None
            }
            Action::Delete { targets, .. }
            | Action::Scale { targets, .. }
            | Action::Label { targets, .. }
            | Action::Annotate { targets, .. }
            | Action::Taint { targets, .. }
            | Action::Cordon { targets, .. }
            | Action::Drain { targets, .. }
            | Action::Patch { targets, .. }
            | Action::SetImage { targets, .. }
            | Action::SetResources { targets, .. }
            | Action::Rollout { targets, .. } => Some(targets),
        }
    }

    /// The files of `-f`.
    pub fn files(&self) -> &[String] {
        match self {
            Action::Apply { files, .. } | Action::Create { files } | Action::Replace { files, .. } => files,
            other => other.targets().map_or(&[], |targets| &targets.files),
        }
    }
}
