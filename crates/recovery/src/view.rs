//! What a step is decided from.

use std::collections::BTreeSet;

use jiff::Timestamp;
use stead_model::Objects;

use crate::guard::Guards;
use crate::record::Statement;

/// What was read for a step, all of it just now.
#[derive(Debug, Clone)]
pub struct ClusterView<'a> {
    /// The node that is recovered.
    pub node: &'a str,
    /// Nodes, pods, volumes, claims, attachments, workloads, NodeRecoveries, and the node's Lease. The Node and its Lease
    /// are read last: every pod that was read then belongs to the boot that the Node reports, or to an earlier one.
    pub objects: &'a Objects,
    /// The UIDs of the pods that the node's kubelet runs; read only if the step before asked for it.
    pub running: Option<&'a BTreeSet<String>>,
    /// The time.
    pub now: Timestamp,
    /// The guards that are on: all of them, except in a test that switches one off.
    pub(crate) guards: Guards,
}

impl<'a> ClusterView<'a> {
    /// What was read at this time.
    pub fn new(
        node: &'a str,
        objects: &'a Objects,
        running: Option<&'a BTreeSet<String>>,
        now: Timestamp,
    ) -> ClusterView<'a> {
        ClusterView { node, objects, running, now, guards: Guards::default() }
    }

    /// The same with other guards.
    #[cfg(feature = "switchable-guards")]
    pub fn with_guards(self, guards: Guards) -> ClusterView<'a> {
        ClusterView { guards, ..self }
    }
}

/// What the caller asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryRequest {
    /// The user, by the API server's name for them.
    pub who: String,
    /// The confirmation that the machine is off.
    pub confirm_off: Option<Statement>,
    /// Whether the user states that the machine is powered off, not only suspended.
    pub powered_off: bool,
    /// The request to abort the recovery before the point of no return.
    pub abort: Option<Statement>,
}
