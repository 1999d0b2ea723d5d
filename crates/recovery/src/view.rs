//! What a step is made from.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;
use stead_model::{ObjectKey, Objects};

use crate::guard::Guards;
use crate::record::{KIND, NodeRecovery, Said};

/// What was read for a step, all of it just now.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The node in question.
    pub node: &'a str,
    /// Nodes, pods, volumes, claims, attachments, workloads, NodeRecoveries, and the node's Lease. The Node and its Lease
    /// are read last: what a pod was seen to be is then true of the life that the Node has, or of one before it.
    pub objects: &'a Objects,
    /// The uids of the pods that the node's kubelet really runs; read only where the step before has asked for it.
    pub running: Option<&'a BTreeSet<String>>,
    /// The time.
    pub now: Timestamp,
    /// The guards that hold: all of them, but in a test that switches one off.
    pub(crate) guards: Guards,
}

impl<'a> View<'a> {
    /// What was read at this time.
    pub fn new(node: &'a str, objects: &'a Objects, running: Option<&'a BTreeSet<String>>, now: Timestamp) -> View<'a> {
        View { node, objects, running, now, guards: Guards::default() }
    }

    /// The same with other guards.
    #[cfg(feature = "switchable-guards")]
    pub fn with_guards(self, guards: Guards) -> View<'a> {
        View { guards, ..self }
    }
}

/// What somebody wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Request {
    /// Who, as the API server knows them.
    pub who: String,
    /// Their word that the machine is off, and when they gave it.
    pub confirm_off: Option<Said>,
    /// Whether they state that the machine is powered off, and not only suspended.
    pub powered_off: bool,
    /// Their wish to end it before the point of no return.
    pub abort: Option<Said>,
}

/// The record that a node's recovery goes on with: the one that is not over, or else the last one.
pub fn record_of(objects: &Objects, node: &str) -> Option<NodeRecovery> {
    let ours = records(objects).filter(|r| r["spec"]["node"]["name"] == node);
    let read = ours.filter_map(|r| serde_json::from_value::<NodeRecovery>(r.clone()).ok());
    read.max_by_key(|r| (!r.status.phase.is_over(), r.last_step(), r.name().to_owned()))
}

/// Why a record of the node cannot be gone by: somebody has edited it, or it is of another version of Stead.
pub(crate) fn unreadable(objects: &Objects, node: &str) -> Option<String> {
    records(objects).filter(|r| r["spec"]["node"]["name"] == node).find_map(|record| {
        let error = serde_json::from_value::<NodeRecovery>(record.clone()).err()?;
        let name = record["metadata"]["name"].as_str().unwrap_or_default();
        Some(format!(
            "NodeRecovery {name}: it cannot be read ({error}): mend it, or delete it if its node has no taint of it"
        ))
    })
}

/// The record of this name.
pub(crate) fn record_named(objects: &Objects, name: &str) -> Option<NodeRecovery> {
    serde_json::from_value(objects.raw(&ObjectKey::new(KIND, "", name))?.clone()).ok()
}

/// All records.
pub(crate) fn records(objects: &Objects) -> impl Iterator<Item = &Value> {
    objects.raw_of_kind(KIND).map(|(_, value)| value)
}
