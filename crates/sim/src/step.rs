//! The shape of every control loop: it reads a view, is told the time, and returns writes and when to look again.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::choices::Choices;
use crate::error::ApiError;
use crate::event_log::EventNote;
use crate::object::{SimKey, SimObject};
use crate::settings::Settings;
use crate::store::{Change, Store};
use crate::world::World;

/// What a controller works on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// Everything: a periodic pass.
    Pass,
    /// One object.
    Object(SimKey),
}

impl From<SimKey> for Item {
    fn from(key: SimKey) -> Item {
        Item::Object(key)
    }
}

/// What a controller reads.
pub struct Context<'a> {
    /// The objects.
    pub store: &'a Store,
    /// The time.
    pub now: Timestamp,
    /// When the simulation started or was resumed: the passes of periodic loops are whole periods from it.
    pub started: Timestamp,
    /// Version, timers and delays.
    pub settings: &'a Settings,
    /// The source of chance.
    pub choices: &'a mut Choices,
    /// Machines, disks and processes: only kubelets and storage drivers look at them.
    pub world: &'a mut World,
}

/// When the dependents of a deleted object are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeletePropagation {
    /// As a finalizer of the object says, else as the default of its kind says: ReplicationControllers and Jobs orphan
    /// their dependents, all others delete them after it.
    #[default]
    Unspecified,
    /// After it.
    Background,
    /// Before it.
    Foreground,
    /// Not at all.
    Orphan,
}

/// How an object is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeleteOptions {
    /// Refuse if the object has another UID.
    pub uid: Option<String>,
    /// Refuse if the object has another version.
    pub resource_version: Option<String>,
    /// The grace period in seconds; that of the pod if none is given.
    pub grace: Option<i64>,
    /// What happens to dependents.
    pub propagation: DeletePropagation,
}

/// Which part of an object a request may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ObjectPart {
    /// Everything but the status.
    #[default]
    Spec,
    /// The status (the subresource `status`).
    Status,
}

/// How an object is changed.
#[derive(Debug, Clone, PartialEq)]
pub enum Patch {
    /// A JSON merge patch (RFC 7386).
    Merge(Value),
    /// A strategic merge patch: a merge patch in which items of some lists have a key.
    Strategic(Value),
    /// A JSON patch (RFC 6902).
    Json(Value),
}

/// One request to the API server.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Creates an object. With `generateName` and without a name, the name is chosen.
    Create(SimObject),
    /// Replaces metadata and spec. Refused if the object has a resourceVersion that is not the current one.
    Replace(SimObject),
    /// Replaces the status. Refused if the object has a resourceVersion that is not the current one.
    Status(SimObject),
    /// Changes an object by a patch. What it makes of the object is written like a Replace or a Status.
    Patch {
        /// The object.
        key: SimKey,
        /// The patch.
        patch: Patch,
        /// Which part of the object it may change.
        part: ObjectPart,
    },
    /// Server-side apply, forced: creates the object, or sets these fields of it and removes those that the manager
    /// applied before and does not any more.
    Apply {
        /// The fields, with apiVersion, kind and metadata.
        object: Value,
        /// The field manager.
        manager: String,
        /// Which part of the object it may change.
        part: ObjectPart,
    },
    /// Deletes an object.
    Delete(SimKey, DeleteOptions),
    /// Binds a pod to a node.
    Bind {
        /// The pod.
        pod: SimKey,
        /// Its UID.
        uid: String,
        /// The node.
        node: String,
    },
    /// Evicts a pod, if its disruption budget allows that.
    Evict(SimKey, DeleteOptions),
    /// Reports an event.
    Event(EventNote),
}

impl Write {
    /// The plain deletion of this object and no successor of the same name.
    pub fn delete(object: &SimObject) -> Write {
        let uid = Some(object.uid().to_owned());
        Write::Delete(object.key(), DeleteOptions { uid, ..DeleteOptions::default() })
    }
}

/// The result of a loop.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Step {
    /// The writes, in order. The first that fails ends the step; the item is then tried again with back-off.
    pub writes: Vec<Write>,
    /// When to look at the item again if nothing changes.
    pub again: Option<SignedDuration>,
}

impl Step {
    /// Nothing to do.
    pub fn none() -> Step {
        Step::default()
    }

    /// These writes.
    pub fn writes(writes: Vec<Write>) -> Step {
        Step { writes, again: None }
    }

    /// Nothing to do now, but after a while.
    pub fn again(after: SignedDuration) -> Step {
        Step { writes: Vec::new(), again: Some(after) }
    }

    /// The same, and look again after a while if that is given.
    pub fn and_again(self, after: Option<SignedDuration>) -> Step {
        Step { again: after, ..self }
    }
}

/// Items that a controller has to look at, each at the earliest time that was asked for.
#[derive(Debug, Clone, Default)]
pub struct Wakes {
    pub(crate) wanted: Vec<(Item, SignedDuration)>,
}

impl Wakes {
    /// Look at an item as soon as the change has arrived.
    pub fn now(&mut self, item: impl Into<Item>) {
        self.after(item, SignedDuration::ZERO);
    }

    /// Look at an item this long after the change has arrived.
    pub fn after(&mut self, item: impl Into<Item>, delay: SignedDuration) {
        self.wanted.push((item.into(), delay));
    }
}

/// A controller of the simulated cluster. What it keeps in memory is part of a fork.
pub trait Controller {
    /// The name of the component in events.
    const COMPONENT: &'static str;

    /// Which items a change concerns. The change has been made.
    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes);

    /// What to do about an item.
    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step;

    /// What to write after a write of the item's step was refused: events, as a rule.
    fn refused(&mut self, _cx: &mut Context<'_>, _item: &Item, _write: &Write, _error: &ApiError) -> Vec<Write> {
        Vec::new()
    }

    /// Further items that the last step wants to look at, and after which time; none for items that it no longer wants to
    /// look at.
    fn follow_up(&mut self) -> Vec<(Item, Option<SignedDuration>)> {
        Vec::new()
    }

    /// Rebuilds what the controller would have in memory, from the objects of a cluster that is running. By default
    /// every object is a change.
    fn resume(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        let store = cx.store;
        for (key, object) in store.iter() {
            let change = Change { key: key.clone(), before: None, after: Some(object.clone()) };
            self.affected(cx, &change, wakes);
        }
    }
}

/// A control loop that is not part of Kubernetes, in the shape of a [`Controller`]. What it keeps in memory is part of a
/// fork.
pub trait Operator: fmt::Debug + Send + Sync {
    /// Which items a change concerns. The change has been made.
    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes);

    /// What to do about an item.
    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step;

    /// What to write after a write of the item's step was refused.
    fn refused(&mut self, _cx: &mut Context<'_>, _item: &Item, _write: &Write, _error: &ApiError) -> Vec<Write> {
        Vec::new()
    }

    /// A copy for a fork.
    fn fork(&self) -> Box<dyn Operator>;
}

impl Clone for Box<dyn Operator> {
    fn clone(&self) -> Box<dyn Operator> {
        self.fork()
    }
}
