//! What the node lifecycle controller remembers of a node's heartbeats.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stead_model::times::near;

use crate::api::whole_seconds;
use crate::grid::Grid;
use crate::machines::lease_key;
use crate::nodes::condition;
use crate::settings::ControllerTimers;
use crate::step::Context;

/// The conditions that turn Unknown when nothing is heard of a node.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// The heartbeats of a node (`nodeHealthData`). Only the time of the pass that has seen a change counts, not the times
/// that the kubelet writes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Health {
    /// The pass that has last seen a sign of life.
    seen: Timestamp,
    /// The Lease renewal that was last seen.
    renewal: Option<Timestamp>,
    /// The heartbeat of the condition Ready that was last seen; none without the condition.
    heartbeat: Option<Option<Time>>,
    /// When the node is due to be marked, if nothing is heard of it until then.
    pub(super) due: Option<Timestamp>,
}

impl Health {
    /// The health of a node in its first pass.
    pub(super) fn first(node: &Node, pass: Timestamp) -> Health {
        let created = node.metadata.creation_timestamp.as_ref().and_then(|time| near(time.0)).unwrap_or(pass);
        let heartbeat = heartbeat(node);
        let seen = if heartbeat.is_some() { pass } else { created };
        Health { seen, renewal: None, heartbeat, due: None }
    }

    /// The health of a node in a cluster that is running: the last sign of life in its objects.
    pub(super) fn restored(cx: &Context<'_>, node: &Node, name: &str, grid: Grid) -> Health {
        let renewal = cx.world.last_renewal(cx.store, cx.settings, name, cx.now);
        let reported = heartbeat(node).flatten().and_then(|time| near(time.0));
        let last = renewal.max(reported).filter(|at| *at <= cx.now).unwrap_or(cx.now);
        Health { seen: grid.at_or_after(last), renewal, heartbeat: heartbeat(node), due: None }
    }

    /// All nodes count as just seen, after a disruption of the whole cluster.
    pub(super) fn reset(&mut self, now: Timestamp) {
        self.seen = now;
    }

    /// Takes note of what the passes until now have seen; those without anything to do were left out. `touched` is when
    /// the condition Ready was last written.
    pub(super) fn observe(
        &mut self,
        cx: &Context<'_>,
        node: &Node,
        name: &str,
        touched: Option<Timestamp>,
        grid: Grid,
        pass: Timestamp,
    ) {
        let seen_by = |change: Timestamp| grid.at_or_after(change + cx.settings.timers.reaction);
        let found = heartbeat(node);
        if found != self.heartbeat && (found.is_some() || self.heartbeat.is_some()) {
            self.seen = self.seen.max(touched.map_or(pass, seen_by));
            self.heartbeat = found;
        }
        let renewal = cx.world.last_renewal(cx.store, cx.settings, name, cx.now);
        if renewal > self.renewal {
            self.seen = self.seen.max(renewal.map_or(pass, seen_by));
            self.renewal = renewal;
        }
    }

    /// When a node is marked if nothing is heard of it; none while its kubelet renews its Lease. A Node that has neither
    /// a machine nor a Lease was made by hand: nobody waits for its heartbeats.
    pub(super) fn deadline(&self, cx: &Context<'_>, node: &Node, name: &str, grid: Grid) -> Option<Timestamp> {
        let monitored = cx.world.machine(name).is_some() || cx.store.object(&lease_key(name)).is_some();
        if !monitored || cx.world.is_connected(name, cx.now) {
            return None;
        }
        Some(grid.at_or_after(self.seen + grace(node, &cx.settings.timers)))
    }
}

fn heartbeat(node: &Node) -> Option<Option<Time>> {
    condition(node, "Ready").map(|ready| ready.last_heartbeat_time.clone())
}

fn grace(node: &Node, timers: &ControllerTimers) -> jiff::SignedDuration {
    match condition(node, "Ready") {
        Some(_) => timers.node_monitor_grace,
        None => timers.node_startup_grace,
    }
}

/// Marks a node that nothing is heard of. Gives whether its condition Ready changed; only then it is written.
pub(super) fn mark_unknown(node: &mut Node, now: Timestamp) -> bool {
    let before = condition(node, "Ready").cloned();
    let created = node.metadata.creation_timestamp.clone();
    let conditions = node.status.get_or_insert_default().conditions.get_or_insert_default();
    for kind in CONDITIONS {
        match conditions.iter_mut().find(|condition| condition.type_ == kind) {
            None => conditions.push(NodeCondition {
                type_: kind.into(),
                status: "Unknown".into(),
                reason: Some("NodeStatusNeverUpdated".into()),
                message: Some("Kubelet never posted node status.".into()),
                last_heartbeat_time: created.clone(),
                last_transition_time: Some(whole_seconds(now)),
            }),
            Some(condition) if condition.status != "Unknown" => {
                condition.status = "Unknown".into();
                condition.reason = Some("NodeStatusUnknown".into());
                condition.message = Some("Kubelet stopped posting node status.".into());
                condition.last_transition_time = Some(whole_seconds(now));
            }
            Some(_) => {}
        }
    }
    condition(node, "Ready") != before.as_ref()
}
