//! The input and output of a loop.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use stead_model::{ObjectKey, Objects};

use crate::store::Store;

/// The field manager: Stead owns the fields of an object that it applied under this name.
pub const MANAGER: &str = "stead";

/// LoopSettings for all loops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopSettings {
    /// Whether a Topology replaces the default anti-affinity even if it has no affinity of its own, as in the released
    /// OpenStack operators.
    pub replace_default_anti_affinity: bool,
    /// The image of a Glance that does not name one.
    pub glance_image: String,
    /// The cluster's DNS domain.
    pub cluster_domain: String,
}

/// What a loop reads.
#[derive(Debug, Clone, Copy)]
pub struct World<'a> {
    /// The objects as they were last observed.
    pub store: &'a Store,
    /// The whole cluster, as placement needs it: only after a step that asked for it.
    pub cluster: Option<&'a Objects>,
    /// Which of this object's writes failed when they were last tried.
    pub failures: &'a Failures,
    /// The time.
    pub now: Timestamp,
    /// The settings of all loops.
    pub settings: &'a LoopSettings,
}

/// Writes that failed, by the object that was to be written. One is removed when that write succeeds.
pub type Failures = BTreeMap<ObjectKey, Failure>;

/// Why a write failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The HTTP status code of the answer; 0 where there was none.
    pub code: u16,
    /// The reason of the answer's Status, such as `Invalid`.
    pub reason: String,
    /// The answer's whole message.
    pub message: String,
}

/// The result of a loop.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoopStep {
    /// The writes, in order. The first that fails ends the step. The loop then runs once more with that failure in
    /// [`World::failures`], and of the new step only [`Write::Status`] and [`Write::Event`] are executed.
    pub writes: Vec<Write>,
    /// When to run again if nothing changes.
    pub again: Option<Duration>,
    /// Whether the step could report more if it were given the whole cluster.
    pub wants_cluster: bool,
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Server-side apply under [`MANAGER`]. Executed only if it changes something.
    Apply {
        /// The fields that Stead sets, with apiVersion, kind and metadata.
        object: Value,
        /// Paths that Stead owns exclusively: fields below them that others set and Stead does not want are removed.
        exclusive: Vec<&'static str>,
    },
    /// Server-side apply of an object's status subresource. Executed only if it changes something.
    Status {
        /// apiVersion, kind, metadata (name, namespace, uid) and status.
        object: Value,
    },
    /// A merge patch of metadata, such as finalizers, with the UID and resourceVersion that it was decided for.
    Patch {
        /// Which object.
        key: ObjectKey,
        /// The patch, with metadata.uid and metadata.resourceVersion.
        body: Value,
    },
    /// Deletes an object.
    Delete {
        /// Which object.
        key: ObjectKey,
        /// The UID that it was decided for.
        uid: String,
        /// When its dependents are deleted.
        propagation: Propagation,
    },
    /// Creates an event.
    Event(LoopEvent),
}

/// When the dependents of a deleted object are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// After it.
    Background,
    /// Before it.
    Foreground,
}

/// An event about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopEvent {
    /// The object.
    pub about: ObjectKey,
    /// Whether its type is Warning.
    pub warning: bool,
    /// The reason, such as `StatefulSetRecreated`.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}
