//! The zones of the node lifecycle controller: how many nodes are down, and how fast nodes get their NoExecute taint.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use stead_model::times::CENTURY;

use crate::settings::ControllerTimers;

/// The label of nodes that do not count in the state of their zone.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// The state of a zone (`ZoneState`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum ZoneState {
    /// Not computed yet.
    #[default]
    Initial,
    Normal,
    /// No node is Ready.
    Full,
    /// Many nodes are not Ready.
    Partial,
}

/// A limit of one node at a time and a rate (`RateLimitedTimedQueue`). With rate zero nothing is accepted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limiter {
    rate: f64,
    /// When the next node is accepted.
    next: Timestamp,
}

impl Limiter {
    pub(super) fn new(rate: f64, now: Timestamp) -> Limiter {
        Limiter { rate, next: now }
    }

    /// When a node is accepted; none at rate zero.
    pub(super) fn accepts_at(&self) -> Option<Timestamp> {
        (self.rate > 0.0).then_some(self.next)
    }

    /// A node was accepted.
    pub(super) fn take(&mut self, now: Timestamp) {
        self.next = now + interval(self.rate);
    }

    /// `SwapLimiter`: a limiter that replaces one without a free token has none either.
    fn swap(&mut self, rate: f64, now: Timestamp) {
        if self.rate == rate {
            return;
        }
        let drained = self.accepts_at().is_none_or(|next| next > now);
        *self = Limiter::new(rate, now);
        if drained && rate > 0.0 {
            self.take(now);
        }
    }
}

/// The time between two nodes.
fn interval(rate: f64) -> SignedDuration {
    SignedDuration::try_from_secs_f64(1.0 / rate).unwrap_or(CENTURY).min(CENTURY)
}

/// A zone.
#[derive(Debug, Clone)]
pub(super) struct Zone {
    pub(super) state: ZoneState,
    pub(super) limiter: Limiter,
    /// The nodes that wait for their NoExecute taint.
    pub(super) waiting: BTreeSet<Arc<str>>,
    /// The number of nodes that count, and how many of them are not Ready.
    nodes: usize,
    not_ready: usize,
}

/// A node as it was counted in its zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counted {
    zone: Arc<str>,
    /// None for a node that does not count.
    ready: Option<bool>,
}

/// What a new state of the zones demands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disruption {
    /// Nothing.
    None,
    /// No node is Ready any more: no node keeps a NoExecute taint.
    Entered,
    /// A node is Ready again: all nodes count as just seen.
    Left,
}

/// All zones.
#[derive(Debug, Clone, Default)]
pub(super) struct Zones {
    pub(super) zones: BTreeMap<Arc<str>, Zone>,
}

/// The zone of a node (`GetZoneKey`).
pub(super) fn zone_key(node: &Node) -> Arc<str> {
    let label = |keys: [&str; 2]| {
        let labels = node.metadata.labels.as_ref();
        keys.into_iter().find_map(|key| labels?.get(key)).map(String::as_str).unwrap_or_default()
    };
    let region = label(["topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"]);
    let zone = label(["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"]);
    if region.is_empty() && zone.is_empty() { "".into() } else { format!("{region}:\0:{zone}").into() }
}

impl Counted {
    /// How a node counts, given whether it is Ready.
    pub(super) fn of(node: &Node, ready: bool) -> Counted {
        let excluded = node.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(EXCLUDED));
        Counted { zone: zone_key(node), ready: (!excluded).then_some(ready) }
    }
}

impl Zones {
    /// The zone of a node, added if it is new (`addPodEvictorForNewZone`).
    pub(super) fn ensure(&mut self, zone: &Arc<str>, timers: &ControllerTimers, now: Timestamp) -> &mut Zone {
        self.zones.entry(Arc::clone(zone)).or_insert_with(|| Zone {
            state: ZoneState::Initial,
            limiter: Limiter::new(timers.node_eviction_rate, now),
            waiting: BTreeSet::new(),
            nodes: 0,
            not_ready: 0,
        })
    }

    /// Counts a node, in place of how it was counted before.
    pub(super) fn count(
        &mut self,
        before: Option<&Counted>,
        after: Option<&Counted>,
        timers: &ControllerTimers,
        now: Timestamp,
    ) {
        for (counted, add) in [(before, false), (after, true)] {
            let Some((Counted { zone, .. }, ready)) = counted.and_then(|counted| Some((counted, counted.ready?))) else {
                continue;
            };
            let zone = self.ensure(zone, timers, now);
            let change = |number: usize, by: usize| if add { number + by } else { number.saturating_sub(by) };
            zone.nodes = change(zone.nodes, 1);
            zone.not_ready = change(zone.not_ready, usize::from(!ready));
        }
    }

    /// A node does not wait any more.
    pub(super) fn forget(&mut self, node: &str) {
        for zone in self.zones.values_mut() {
            zone.waiting.remove(node);
        }
    }

    /// `handleDisruption`: computes the states of the zones and with them the rates. A zone without nodes that count has
    /// no state, and each pass makes it anew.
    pub(super) fn update(&mut self, timers: &ControllerTimers, now: Timestamp) -> Disruption {
        self.zones.retain(|_, zone| zone.nodes > 0 || !zone.waiting.is_empty());
        for zone in self.zones.values_mut().filter(|zone| zone.nodes == 0) {
            zone.limiter = Limiter::new(timers.node_eviction_rate, now);
        }
        let counted = || self.zones.values().filter(|zone| zone.nodes > 0);
        let all_full = counted().all(|zone| zone.computed(timers) == ZoneState::Full);
        let all_were_full = counted().all(|zone| zone.state == ZoneState::Full);
        if all_full && all_were_full {
            return Disruption::None;
        }
        for zone in self.zones.values_mut().filter(|zone| zone.nodes > 0) {
            let state = zone.computed(timers);
            let rate = if all_full { 0.0 } else { zone.rate(state, timers) };
            if all_full || all_were_full || state != zone.state {
                zone.limiter.swap(rate, now);
                zone.state = state;
            }
        }
        match (all_full, all_were_full) {
            (true, _) => Disruption::Entered,
            (_, true) => Disruption::Left,
            _ => Disruption::None,
        }
    }

    /// The zones that the next update stops, in which a node could be tainted before it.
    pub(super) fn stopping(&self, timers: &ControllerTimers, now: Timestamp) -> Vec<Arc<str>> {
        let all_full = self.zones.values().all(|zone| zone.nodes == 0 || zone.computed(timers) == ZoneState::Full);
        let stops =
            |zone: &Zone| zone.nodes > 0 && (all_full || zone.rate(zone.computed(timers), timers) <= 0.0);
        let could = |zone: &Zone| {
            !zone.waiting.is_empty() && zone.limiter.accepts_at().is_some_and(|at| at <= now) && stops(zone)
        };
        self.zones.iter().filter(|(_, zone)| could(zone)).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// Takes over the states of a cluster that is running: the newest NoExecute taint of a zone took its last token.
    pub(super) fn restore(&mut self, last_taint: &BTreeMap<Arc<str>, Timestamp>, timers: &ControllerTimers) {
        let all_full = self.zones.values().all(|zone| zone.computed(timers) == ZoneState::Full);
        for (name, zone) in &mut self.zones {
            zone.state = zone.computed(timers);
            zone.limiter.rate = if all_full { 0.0 } else { zone.rate(zone.state, timers) };
            if let Some(last) = last_taint.get(name).filter(|_| zone.limiter.rate > 0.0) {
                zone.limiter.next = *last + interval(zone.limiter.rate);
            }
        }
    }
}

impl Zone {
    /// `ComputeZoneState`.
    fn computed(&self, timers: &ControllerTimers) -> ZoneState {
        let share = self.not_ready as f64 / self.nodes as f64;
        if self.not_ready == self.nodes && self.nodes > 0 {
            ZoneState::Full
        } else if self.not_ready > 2 && share >= timers.unhealthy_zone_threshold {
            ZoneState::Partial
        } else {
            ZoneState::Normal
        }
    }

    /// The rate of a zone in this state (`setLimiterInZone`).
    fn rate(&self, state: ZoneState, timers: &ControllerTimers) -> f64 {
        match state {
            ZoneState::Initial | ZoneState::Normal | ZoneState::Full => timers.node_eviction_rate,
            ZoneState::Partial if self.nodes > timers.large_cluster_size => timers.secondary_node_eviction_rate,
            ZoneState::Partial => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn zone(nodes: usize, not_ready: usize) -> Zone {
        let limiter = Limiter::new(0.1, at(0));
        Zone { state: ZoneState::Initial, limiter, waiting: BTreeSet::new(), nodes, not_ready }
    }

    /// Go's `TestMonitorNodeHealthEvictPodsWithDisruption`, as states and rates.
    #[test]
    fn zone_states_and_rates() {
        let timers = Settings::default().timers;
        for (nodes, not_ready, state, rate) in [
            (3, 0, ZoneState::Normal, 0.1),
            (3, 2, ZoneState::Normal, 0.1),
            (3, 3, ZoneState::Full, 0.1),
            (5, 3, ZoneState::Partial, 0.0),
            (6, 3, ZoneState::Normal, 0.1),
            (1, 1, ZoneState::Full, 0.1),
            (100, 54, ZoneState::Normal, 0.1),
            (100, 55, ZoneState::Partial, 0.01),
        ] {
            let zone = zone(nodes, not_ready);
            let computed = zone.computed(&timers);
            assert_eq!((computed, zone.rate(computed, &timers)), (state, rate), "{not_ready} of {nodes}");
        }
    }

    #[test]
    fn a_zone_in_full_disruption_is_an_exception_only_if_all_are() {
        let timers = Settings::default().timers;
        let mut zones = Zones::default();
        zones.zones.insert("a".into(), zone(3, 3));
        zones.zones.insert("b".into(), zone(3, 0));
        let rates = |zones: &Zones| zones.zones.values().map(|zone| zone.limiter.rate).collect::<Vec<f64>>();
        assert_eq!((zones.update(&timers, at(0)), rates(&zones)), (Disruption::None, vec![0.1, 0.1]));
        let set = |zones: &mut Zones, name: &str, not_ready: usize| {
            zones.zones.get_mut(name).expect("a zone").not_ready = not_ready;
        };
        set(&mut zones, "b", 3);
        assert_eq!((zones.update(&timers, at(5)), rates(&zones)), (Disruption::Entered, vec![0.0, 0.0]));
        assert_eq!((zones.update(&timers, at(10)), rates(&zones)), (Disruption::None, vec![0.0, 0.0]));
        set(&mut zones, "b", 2);
        assert_eq!((zones.update(&timers, at(15)), rates(&zones)), (Disruption::Left, vec![0.1, 0.1]));
        // The limiter before had no token, so the new one has none either.
        assert_eq!(zones.zones["a"].limiter.accepts_at(), Some(at(25)));
    }

    #[test]
    fn one_node_at_once_and_then_one_each_ten_seconds() {
        let mut limiter = Limiter::new(0.1, at(0));
        limiter.take(at(3));
        assert_eq!(limiter.accepts_at(), Some(at(13)));
        limiter.swap(0.1, at(5));
        assert_eq!(limiter.accepts_at(), Some(at(13)), "the same rate changes nothing");
        limiter.swap(0.01, at(5));
        assert_eq!(limiter.accepts_at(), Some(at(105)));
        limiter.swap(0.0, at(200));
        assert_eq!(limiter.accepts_at(), None);
    }
}
