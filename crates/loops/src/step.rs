//! What a loop is given and what it gives back.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use stead_model::{ObjectKey, Objects};

use crate::store::Store;

/// The name under which Stead applies: what it owns of an object is what it applied under this name.
pub const MANAGER: &str = "stead";

/// What an owner of the operator decides for all of its loops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether a Topology takes the default anti-affinity away even where it brings no affinity of its own, as the
    /// released OpenStack operators do.
    pub replace_default_anti_affinity: bool,
    /// The image of a Glance that names none.
    pub glance_image: String,
    /// The domain of the cluster's own names.
    pub cluster_domain: String,
}

/// What a loop sees.
#[derive(Debug, Clone, Copy)]
pub struct World<'a> {
    /// The objects as they were last seen.
    pub store: &'a Store,
    /// The whole cluster, as placement needs it: only there after a step that asked for it.
    pub cluster: Option<&'a Objects>,
    /// What went wrong when this object's writes were last made.
    pub failures: &'a Failures,
    /// The time.
    pub now: Timestamp,
    /// What holds for all loops.
    pub settings: &'a Settings,
}

/// Writes that failed, by the object that was to be written. One is forgotten when that write succeeds.
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

/// What a loop wants.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// The writes, in their order. The first that fails ends the step; the loop is then asked once more, knowing of
    /// the failure, and of that step only the [`Write::Status`] and [`Write::Event`] are made.
    pub writes: Vec<Write>,
    /// When to look again though nothing changed.
    pub again: Option<Duration>,
    /// Whether the step could say more if it were given the whole cluster.
    pub wants_cluster: bool,
}

/// One write.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// An object as it should be, to be applied on the server under [`MANAGER`]. Made only where it differs.
    Apply {
        /// What Stead says about the object, with apiVersion, kind and metadata.
        object: Value,
        /// Paths under which nobody else has a say: what stands there and was not applied is taken away.
        whole: Vec<&'static str>,
    },
    /// The status of an object, to be applied to its status subresource. Made only where it differs.
    Status {
        /// apiVersion, kind, metadata (name, namespace, uid) and status.
        object: Value,
    },
    /// A merge patch of metadata, such as its finalizers; carries the uid and resourceVersion that it was decided for.
    Patch {
        /// Which object.
        key: ObjectKey,
        /// The patch, with metadata.uid and metadata.resourceVersion.
        body: Value,
    },
    /// The end of an object.
    Delete {
        /// Which object.
        key: ObjectKey,
        /// The identity that this was decided for.
        uid: String,
        /// What becomes of what it owns.
        propagation: Propagation,
    },
    /// A word to whoever looks at an object's events.
    Event(Event),
}

/// What becomes of what a deleted object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// It goes too, afterwards.
    Background,
    /// It goes first.
    Foreground,
}

/// A word to whoever looks at an object's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What it is about.
    pub about: ObjectKey,
    /// Whether something is wrong.
    pub warning: bool,
    /// One word in capitals and small letters, such as `StatefulSetRecreated`.
    pub reason: String,
    /// A sentence.
    pub message: String,
}
