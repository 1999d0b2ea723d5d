//! When the taints of a node have its pods deleted.
//!
//! Mirrors kube-controller-manager's node-lifecycle-controller (who gets a taint, and how fast) and
//! taint-eviction-controller (what a taint does to a pod).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Taint;
use stead_model::times::{is_near, near};
use stead_model::{
    NOT_READY, NodeHealth, Objects, PodView, Readiness, TolerationTime, UNREACHABLE, min_toleration_time,
};

use super::node::health;
use super::timers::{Clock, LOST};

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

/// A taint with the effect NoExecute.
pub(crate) fn no_execute(key: &str) -> Taint {
    Taint { key: key.into(), effect: "NoExecute".into(), ..Taint::default() }
}

/// How long a pod stays on a node with these taints.
pub(crate) fn tolerance<'a>(pod: PodView, taints: impl IntoIterator<Item = &'a Taint>) -> TolerationTime {
    min_toleration_time(pod.tolerations(), taints)
}

/// When a taint was added.
pub(crate) fn added(taint: &Taint) -> Option<Timestamp> {
    near(taint.time_added.as_ref()?.0)
}

/// When the deletion of a pod on a node begins by taints, as things are; none for never.
pub(crate) fn evicted(objects: &Objects, clock: &Clock, node: &NodeHealth, pod: PodView) -> Option<Timestamp> {
    evicted_after(clock, node, tainted(objects, clock, node)?, pod)
}

/// When a node got, or gets, the taint of the node controller that evicts its pods; none for never.
pub(crate) fn tainted(objects: &Objects, clock: &Clock, node: &NodeHealth) -> Option<Timestamp> {
    match node.taints().iter().find(|t| is_ours(t)) {
        Some(taint) => added(taint).or(node.since).map(|at| at + LOST).or(Some(clock.now)),
        None => taint_comes(objects, clock, node),
    }
}

/// When a pod's deletion begins on a node that is tainted by the node controller at a moment.
pub(crate) fn evicted_after(clock: &Clock, node: &NodeHealth, tainted: Timestamp, pod: PodView) -> Option<Timestamp> {
    let (now, timers) = (clock.now, &clock.timers);
    let ours = evicting(node);
    // Those of others were there before the pod, or took it at once: they have no beginning of their own.
    let others = node.taints().iter().filter(|t| t.effect == "NoExecute" && !is_ours(t));
    match tolerance(pod, others.chain([&ours])) {
        TolerationTime::None => Some(tainted.max(now)),
        TolerationTime::For(time) => Some((timers.begun(tainted) + time).max(now)),
        TolerationTime::Forever => None,
    }
}

/// When a pod's deletion begins by the taint that its node had before it was deleted; none where none is foreseen. When the
/// node controller finds a node silent it takes readiness from its pods (MarkPodsNotReady), and the taint follows as a rule.
pub(crate) fn evicted_without_node(clock: &Clock, pod: PodView) -> Option<Timestamp> {
    pod.condition_since("ContainersReady", "True")?;
    let tainted = pod.condition_since("Ready", "False")? + LOST;
    // The timer began with the taint, in the memory of controllers that have not begun anew.
    match tolerance(pod, [&no_execute(UNREACHABLE)]) {
        TolerationTime::For(time) if clock.timers.begun(tainted) == tainted => {
            tainted.checked_add(time).ok().filter(|at| *at > clock.now)
        }
        _ => None,
    }
}

/// The taint of the node controller that evicts the pods of a node: that which it has, or will have.
pub(crate) fn evicting(node: &NodeHealth) -> Taint {
    let key = if node.readiness == Readiness::NotReady { NOT_READY } else { UNREACHABLE };
    let found = node.taints().iter().find(|t| is_ours(t)).cloned();
    found.unwrap_or_else(|| no_execute(key))
}

/// Whether a taint is one of the node controller's that evict.
pub(crate) fn is_ours(taint: &Taint) -> bool {
    taint.effect == "NoExecute" && (taint.key == UNREACHABLE || taint.key == NOT_READY)
}

/// When the node controller puts its evicting taint on a node that has none yet; none where it never does.
fn taint_comes(objects: &Objects, clock: &Clock, node: &NodeHealth) -> Option<Timestamp> {
    let now = clock.now;
    let unknown = unknown_from(clock, node)?;
    let zones = Zones::of(objects, clock, node);
    if zones.brake(clock, &node.zone_key()).is_some() {
        return None;
    }
    let interval = zones.interval(clock, &node.zone_key())?;
    let others = objects.nodes().filter_map(|node| health(objects, node.name()));
    let others: Vec<NodeHealth> =
        others.filter(|n| n.name() != node.name() && n.zone_key() == node.zone_key()).collect();
    let last = others.iter().flat_map(|n| n.taints()).filter(|t| is_ours(t)).filter_map(added).max();
    let waiting = others.iter().filter(|n| n.since.is_some() && !n.taints().iter().any(is_ours));
    let mut waiting: Vec<Timestamp> = waiting.filter_map(|n| unknown_from(clock, n)).collect();
    waiting.sort();
    // One node of a zone at a time, the longest found first (RateLimitedTimedQueue of pkg/controller/nodelifecycle).
    let look = clock.timers.node_monitor_period / 2;
    let (mut free, mut beside) = (last.map_or(now, |last| now.max(last + interval)), 0);
    for found in waiting {
        match unknown.duration_since(found) {
            ahead if ahead > look => free = free.max(found).checked_add(interval).ok()?,
            // Found in the same look: which of them comes first is chance, and half of the wait is expected.
            ahead if ahead >= -look => beside += 1,
            _ => break,
        }
    }
    free.max(unknown).checked_add(interval / 2 * beside).ok().filter(|at| is_near(*at))
}

/// From when on a node is not ready; none where its kubelet is alive and well.
pub(crate) fn unknown_from(clock: &Clock, node: &NodeHealth) -> Option<Timestamp> {
    match node.readiness {
        Readiness::Ready if node.is_unreachable(clock.leases) => {
            Some(node.last_heard().map_or(clock.now, |heard| clock.timers.unknown(heard)).max(clock.now))
        }
        Readiness::Ready => None,
        _ => Some(node.since.unwrap_or(clock.now)),
    }
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

    /// The time between two nodes of a zone that get the taint; none where none gets it.
    fn interval(&self, clock: &Clock, zone: &str) -> Option<SignedDuration> {
        match self.disturbed(clock, zone) {
            true => clock.timers.secondary_eviction_interval,
            false => clock.timers.eviction_interval,
        }
    }

    fn brake(&self, clock: &Clock, zone: &str) -> Option<Brake> {
        if self.0.values().all(|(all, down)| all == down) {
            return Some(Brake::AllDown);
        }
        let small = self.0.get(zone).is_none_or(|(all, _)| *all <= clock.timers.large_zone);
        match self.disturbed(clock, zone) {
            true if small => Some(Brake::ZoneDisturbed),
            _ => self.interval(clock, zone).is_none().then_some(Brake::NoRate),
        }
    }
}
