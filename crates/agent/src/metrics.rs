//! Prometheus metrics.

use std::collections::BTreeMap;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use stead_pool::{Daemon, Report};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeersBy {
    state: &'static str,
    connected: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ActBy {
    act: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RepairBy {
    repair: &'static str,
}

/// All metrics of the agent.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    peers: Family<PeersBy, Gauge>,
    heals: Gauge,
    heals_known: Gauge,
    running: Gauge,
    ready: Gauge,
    leader: Gauge,
    age: Gauge,
    notes: Gauge,
    rounds: Counter,
    acts: Family<ActBy, Counter>,
    repairs: Family<RepairBy, Counter>,
    unreachable: Gauge,
}

/// The values at the time of a scrape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MetricsInput<'a> {
    pub(crate) report: &'a Report,
    pub(crate) ready: bool,
    pub(crate) leads: bool,
    pub(crate) age: u64,
    pub(crate) warnings: usize,
}

impl Metrics {
    /// Returns metrics that start at zero.
    pub(crate) fn new() -> Metrics {
        let mut metrics = Metrics {
            registry: Registry::with_prefix("stead_gluster"),
            peers: Family::default(),
            heals: Gauge::default(),
            heals_known: Gauge::default(),
            running: Gauge::default(),
            ready: Gauge::default(),
            leader: Gauge::default(),
            age: Gauge::default(),
            notes: Gauge::default(),
            rounds: Counter::default(),
            acts: Family::default(),
            repairs: Family::default(),
            unreachable: Gauge::default(),
        };
        let r = &mut metrics.registry;
        r.register("peers", "The other peers as this glusterd sees them", metrics.peers.clone());
        r.register("heals_pending", "Pending heals on this pod's bricks or from them", metrics.heals.clone());
        r.register("heals_known", "Whether the number of pending heals is known", metrics.heals_known.clone());
        r.register("running", "Whether glusterd answers", metrics.running.clone());
        r.register("ready", "Whether this pod is ready", metrics.ready.clone());
        r.register("leader", "Whether this agent decides for the pool", metrics.leader.clone());
        r.register("seconds_since_last_look", "Age of the last observation of this pod", metrics.age.clone());
        r.register("warnings", "Warnings of this agent's last decision", metrics.notes.clone());
        r.register("rounds", "Decisions that this agent made for the pool", metrics.rounds.clone());
        r.register("acts", "Peer commands that this agent ran for the pool", metrics.acts.clone());
        r.register("repairs", "Repairs of this pod's own state", metrics.repairs.clone());
        r.register("unreachable", "Agents that did not answer the leader", metrics.unreachable.clone());
        r.register("build", "Version of the agent", Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));
        metrics
    }

    /// Counts a decision.
    pub(crate) fn decided(&self, unreachable: usize) {
        self.rounds.inc();
        self.unreachable.set(unreachable.try_into().unwrap_or(i64::MAX));
    }

    /// Counts a peer command.
    pub(crate) fn acted(&self, act: &'static str, done: bool) {
        let result = if done { "done" } else { "failed" };
        self.acts.get_or_create(&ActBy { act, result }).inc();
    }

    /// Counts a repair of this pod's state.
    pub(crate) fn repaired(&self, repair: &'static str) {
        self.repairs.get_or_create(&RepairBy { repair }).inc();
    }

    /// Renders all metrics as text.
    pub(crate) fn text(&self, now: MetricsInput<'_>) -> String {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let mut peers: BTreeMap<(&'static str, bool), i64> = BTreeMap::new();
        for peer in &now.report.peers {
            *peers.entry((peer.state.words(), peer.connected)).or_default() += 1;
        }
        self.peers.clear();
        for ((state, connected), count) in peers {
            let connected = if connected { "true" } else { "false" };
            self.peers.get_or_create(&PeersBy { state, connected }).set(count);
        }
        self.heals.set(number(now.report.heals.unwrap_or(0)));
        self.heals_known.set(now.report.heals.is_some().into());
        self.running.set((now.report.daemon == Daemon::Running).into());
        self.ready.set(now.ready.into());
        self.leader.set(now.leads.into());
        self.age.set(number(now.age));
        self.notes.set(now.warnings.try_into().unwrap_or(i64::MAX));
        let mut out = String::new();
        match text::encode(&mut out, &self.registry) {
            Ok(()) => out,
            Err(std::fmt::Error) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use stead_pool::{Peer, PeerState};

    use crate::test_agent::name;

    use super::*;

    #[test]
    fn metrics_have_their_documented_names() {
        let metrics = Metrics::new();
        metrics.acted("probe", true);
        metrics.repaired("forget");
        metrics.decided(1);
        let peer = Peer { uuid: None, hosts: Vec::new(), state: PeerState::Befriended, connected: true };
        let report = Report {
            ordinal: 0,
            pod: "p".into(),
            address: name("10.0.0.1"),
            daemon: Daemon::Running,
            uuid: None,
            operating_version: None,
            peers: vec![peer.clone(), peer],
            volumes: Vec::new(),
            heals: Some(3),
            stuck_bricks: Vec::new(),
            done: None,
            doing: None,
        };
        let text = metrics.text(MetricsInput { report: &report, ready: true, leads: true, age: 2, warnings: 1 });
        for line in [
            "stead_gluster_peers{state=\"Peer in Cluster\",connected=\"true\"} 2",
            "stead_gluster_heals_pending 3",
            "stead_gluster_leader 1",
            "stead_gluster_seconds_since_last_look 2",
            "stead_gluster_acts_total{act=\"probe\",result=\"done\"} 1",
            "stead_gluster_repairs_total{repair=\"forget\"} 1",
            "stead_gluster_rounds_total 1",
            "stead_gluster_unreachable 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
    }
}
