//! The taints of a node by which Kubernetes evicts its pods, and what keeps the node controller from setting them.
//!
//! When a pod is evicted is the simulation's part; this only says why.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use stead_model::times::near;
use stead_model::{
    NOT_READY, NodeHealth, Objects, PodView, Readiness, TolerationTime, UNREACHABLE, min_toleration_time,
};

use super::node::health;
use super::timers::Clock;

/// What keeps the node controller from putting the evicting taint on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brake {
    /// No node of the cluster is ready: the fault is taken to be elsewhere.
    AllDown,
    /// Most of the zone's nodes are not ready, and the zone is small.
    ZoneDisturbed,
    /// The cluster's rate of eviction is 0.
    NoRate,
}

/// How long a pod stays on a node with these taints.
pub(crate) fn tolerance<'a>(pod: PodView, taints: impl IntoIterator<Item = &'a Taint>) -> TolerationTime {
    min_toleration_time(pod.tolerations(), taints)
}

/// When a taint was added.
pub(crate) fn added(taint: &Taint) -> Option<Timestamp> {
    near(taint.time_added.as_ref()?.0)
}

/// The taint of the node controller that evicts the pods of a node: that which it has, or will have.
pub(crate) fn evicting(node: &NodeHealth) -> Taint {
    let key = if node.readiness == Readiness::NotReady { NOT_READY } else { UNREACHABLE };
    let found = node.taints().iter().find(|t| is_ours(t)).cloned();
    found.unwrap_or_else(|| Taint { key: key.into(), effect: "NoExecute".into(), ..Taint::default() })
}

/// Whether a taint is one of the node controller's that evict.
pub(crate) fn is_ours(taint: &Taint) -> bool {
    taint.effect == "NoExecute" && (taint.key == UNREACHABLE || taint.key == NOT_READY)
}

/// What keeps the node controller from evicting by taint in the node's zone.
pub(crate) fn brake(objects: &Objects, clock: &Clock, node: &NodeHealth) -> Option<Brake> {
    Zones::of(objects, clock, node).brake(clock, &node.zone_key())
}

/// How many nodes each zone has, and how many of them are not ready.
struct Zones(BTreeMap<String, (usize, usize)>);

impl Zones {
    /// The zones as the node controller will see them when it finds that this node is silent.
    fn of(objects: &Objects, clock: &Clock, node: &NodeHealth) -> Zones {
        let mut zones: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for other in objects.nodes().filter_map(|node| health(objects, node.name())) {
            if other.label("node.kubernetes.io/exclude-disruption").is_some() {
                continue;
            }
            let (all, down) = zones.entry(other.zone_key()).or_default();
            *all += 1;
            let silent = other.name() == node.name() || other.is_unreachable(clock.leases);
            *down += usize::from(other.readiness != Readiness::Ready || silent);
        }
        Zones(zones)
    }

    /// ComputeZoneState: at least three nodes, and so large a part.
    fn disturbed(&self, clock: &Clock, zone: &str) -> bool {
        let (all, down) = self.0.get(zone).copied().unwrap_or_default();
        #[expect(clippy::cast_precision_loss, reason = "a zone has far fewer nodes")]
        let part = down as f64 / all.max(1) as f64;
        down < all && down > 2 && part >= clock.timers.unhealthy_zone_threshold
    }

    fn brake(&self, clock: &Clock, zone: &str) -> Option<Brake> {
        if self.0.values().all(|(all, down)| all == down) {
            return Some(Brake::AllDown);
        }
        let small = self.0.get(zone).is_none_or(|(all, _)| *all <= clock.timers.large_zone);
        let interval = match self.disturbed(clock, zone) {
            true if small => return Some(Brake::ZoneDisturbed),
            true => clock.timers.secondary_eviction_interval,
            false => clock.timers.eviction_interval,
        };
        interval.is_none().then_some(Brake::NoRate)
    }
}
