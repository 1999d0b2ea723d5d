//! Which nodes cannot run pods, by their conditions, taints and leases.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use stead_model::times::created;
use stead_model::{LeaseView, NOT_READY, NodeHealth, NodeView, Objects, UNREACHABLE};

use crate::outage::Clock;

/// Why a node cannot run pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeFault {
    /// No heartbeat.
    Unreachable(Option<Timestamp>),
    /// Its kubelet reports that it is not ready, or reports nothing but its lease.
    NotReady(Option<Timestamp>),
    /// There is no Node of the name.
    Deleted,
}

/// The nodes with a fault.
pub(super) fn node_faults(objects: &Objects, clock: &Clock, patience: SignedDuration) -> BTreeMap<String, NodeFault> {
    let unwatched = is_unwatched(objects, clock);
    let fault = |node: NodeView<'_>| {
        let health = objects.node_health(node.name()).ok().flatten()?;
        by_condition(&health, clock).or_else(|| {
            let silent = health.lease.is_some_and(|lease| clock.leases.now.duration_since(lease.renewed) > patience);
            let behind = health.clock_is_behind(clock.leases);
            (unwatched && silent && behind).then_some(NodeFault::Unreachable(health.last_heard()))
        })
    };
    objects.nodes().filter_map(|node| Some((node.name().to_owned(), fault(node)?))).collect()
}

fn by_condition(health: &NodeHealth<'_>, clock: &Clock) -> Option<NodeFault> {
    let unreachable = || Some(NodeFault::Unreachable(health.last_heard().or(health.since)));
    match health.condition("Ready").map(|condition| condition.status.as_str()) {
        // The kubelet has renewed its lease since, so it runs.
        Some("Unknown") if health.lease_is_fresh(clock.leases.now) && !health.is_unreachable(clock.leases) => {
            Some(NodeFault::NotReady(health.since))
        }
        Some("Unknown") => unreachable(),
        _ if health.is_unreachable(clock.leases) => unreachable(),
        Some("False") => Some(NodeFault::NotReady(health.since)),
        Some(_) => None,
        // A node without the condition has never reported anything: it is starting, unless a taint says more.
        None if health.taint(UNREACHABLE).is_some() => unreachable(),
        None => health.taint(NOT_READY).map(|_| NodeFault::NotReady(created(&health.typed().metadata))),
    }
}

/// Whether the node controller may not run, so that an expired lease counts although the node is shown as Ready. While
/// the controller manager renews its own lease, such a node only has a clock that is behind. Where its lease was not read,
/// other nodes have to show that leases are renewed.
fn is_unwatched(objects: &Objects, clock: &Clock) -> bool {
    let own = objects.find::<Lease>("kube-system", "kube-controller-manager").and_then(LeaseView::of);
    match own {
        Some(lease) => !lease.is_fresh(clock.leases.now),
        None => objects.nodes().any(|node| {
            let lease = objects.node_lease(node.name());
            lease.is_some_and(|lease| lease.is_fresh(clock.leases.now))
        }),
    }
}
