//! When the taints of a node have its pods deleted.
//!
//! Mirrors kube-controller-manager's node-lifecycle-controller (who gets a taint, and how fast) and
//! taint-eviction-controller (what a taint does to a pod).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint, Toleration};
use serde_json::{Value, json};
use stead_semantics::taints::tolerates;

use super::node::{NodeStanding, Readiness, UNREACHABLE, time};
use super::pod::PodSeen;
use super::timers::Clock;
use crate::objects::{Objects, part};

/// The taint of a node whose kubelet says that it is not ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// What keeps the node controller from putting the evicting taint on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brake {
    /// No node of the cluster is ready: the fault is taken to be elsewhere.
    AllDown,
    /// Most of the zone's nodes are not ready, and the zone is small.
    ZoneDisturbed,
}

/// How long a pod stays on a node with a taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tolerance {
    /// Not at all.
    None,
    /// So long.
    For(SignedDuration),
    /// As long as it likes.
    Forever,
}

/// How long a pod stays on a node with these taints (getMinTolerationTime in pkg/controller/tainteviction).
pub(crate) fn tolerance<'a>(pod: PodSeen, taints: impl IntoIterator<Item = &'a Value>) -> Tolerance {
    let tolerations: Vec<Toleration> = part(&pod.0["spec"]["tolerations"]).unwrap_or_default();
    let mut least = None;
    for taint in taints {
        let taint = Taint {
            key: taint["key"].as_str().unwrap_or_default().to_owned(),
            value: taint["value"].as_str().map(str::to_owned),
            effect: taint["effect"].as_str().unwrap_or_default().to_owned(),
            time_added: None,
        };
        // The first that matches counts, as in GetMatchingTolerations.
        let Some(by) = tolerations.iter().find(|t| tolerates(t, &taint)) else { return Tolerance::None };
        least = [least, by.toleration_seconds].into_iter().flatten().min();
    }
    match least {
        None => Tolerance::Forever,
        Some(seconds) if seconds <= 0 => Tolerance::None,
        Some(seconds) => Tolerance::For(SignedDuration::from_secs(seconds)),
    }
}

/// When the deletion of a pod on a node begins by taints, as things are; none for never.
pub(crate) fn evicted(objects: &Objects, clock: &Clock, node: &NodeStanding, pod: PodSeen) -> Option<Timestamp> {
    let (now, timers) = (clock.now, &clock.timers);
    let evicting: Vec<&Value> = node.taints.iter().filter(|t| t["effect"] == "NoExecute").collect();
    let by_hand = evicting.iter().filter(|t| t["key"] != UNREACHABLE && t["key"] != NOT_READY);
    let ours = evicting.iter().find(|t| t["key"] == UNREACHABLE || t["key"] == NOT_READY);
    let tainted = match ours {
        // Written down to the second: half of one is expected to be lost.
        Some(taint) => time(&taint["timeAdded"]).or(node.since).unwrap_or(now),
        None => taint_comes(objects, clock, node)?,
    };
    // The node controller's taints alone have a beginning; the others were there before the pod, or took it at once.
    let coming = json!({ "key": UNREACHABLE, "effect": "NoExecute" });
    let taints = by_hand.copied().chain([ours.copied().unwrap_or(&coming)]);
    match tolerance(pod, taints) {
        Tolerance::None => Some(tainted.max(now)),
        Tolerance::For(time) => Some((timers.begun(tainted) + time).max(now)),
        Tolerance::Forever => None,
    }
}

/// When the node controller puts its evicting taint on a node that has none yet; none where it never does.
fn taint_comes(objects: &Objects, clock: &Clock, node: &NodeStanding) -> Option<Timestamp> {
    let (now, timers) = (clock.now, &clock.timers);
    let unknown = unknown_from(clock, node)?;
    let zones = Zones::of(objects, clock, node);
    if zones.brake(clock, &node.zone_key()).is_some() {
        return None;
    }
    // One node of a zone at a time.
    let interval = if zones.disturbed(clock, &node.zone_key()) {
        timers.secondary_eviction_interval
    } else {
        timers.eviction_interval
    };
    let last = objects
        .of_kind("Node")
        .map(|(_, n)| NodeStanding::of(n, None))
        .filter(|other| other.zone_key() == node.zone_key())
        .flat_map(|other| other.taints)
        .filter(|t| t["effect"] == "NoExecute" && (t["key"] == UNREACHABLE || t["key"] == NOT_READY))
        .filter_map(|t| time(&t["timeAdded"]))
        .max();
    Some(last.map_or(unknown, |last| unknown.max(last + interval)).max(now))
}

/// From when on a node is not ready; none where its kubelet is alive and well.
pub(crate) fn unknown_from(clock: &Clock, node: &NodeStanding) -> Option<Timestamp> {
    match node.readiness {
        Readiness::Ready if node.is_silent(clock.now) => {
            Some(node.last_heard().map_or(clock.now, |heard| clock.timers.unknown(heard)).max(clock.now))
        }
        Readiness::Ready => None,
        _ => Some(node.since.unwrap_or(clock.now)),
    }
}

/// What keeps the node controller from evicting by taint in the node's zone.
pub(crate) fn brake(objects: &Objects, clock: &Clock, node: &NodeStanding) -> Option<Brake> {
    Zones::of(objects, clock, node).brake(clock, &node.zone_key())
}

/// How many nodes each zone has, and how many of them are not ready.
struct Zones(BTreeMap<String, (usize, usize)>);

impl Zones {
    /// The zones as the node controller will see them when it finds that this node is silent.
    fn of(objects: &Objects, clock: &Clock, node: &NodeStanding) -> Zones {
        let mut zones: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for (key, _) in objects.of_kind("Node") {
            let Some(other) = NodeStanding::find(objects, &key.name) else { continue };
            if other.label("node.kubernetes.io/exclude-disruption").is_some() {
                continue;
            }
            let (all, down) = zones.entry(other.zone_key()).or_default();
            *all += 1;
            let silent = other.name == node.name || other.is_silent(clock.now);
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
        (small && self.disturbed(clock, zone)).then_some(Brake::ZoneDisturbed)
    }
}
