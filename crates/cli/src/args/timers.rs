//! The timing flags of `stead explain`, for clusters that do not use the defaults.

use anyhow::ensure;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use stead_explain::outage::{ClusterTimers, interval};
use stead_model::times::{CENTURY, is_near};

/// Timing of the cluster's components where it is neither the default nor visible in the cluster's objects.
#[derive(Debug, Args)]
#[command(next_help_heading = "Timing, where it is neither the default nor visible in the cluster")]
pub(crate) struct TimerArgs {
    /// Time without a heartbeat after which a node is marked unreachable (kube-controller-manager flag)
    /// [default: 50s, before Kubernetes 1.32 40s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    node_monitor_grace_period: Option<SignedDuration>,

    /// Time between two checks of the nodes' heartbeats (kube-controller-manager flag) [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    node_monitor_period: Option<SignedDuration>,

    /// Nodes per second whose pods are evicted; 0 means none (kube-controller-manager flag) [default: 0.1]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    node_eviction_rate: Option<f64>,

    /// The same in large zones where most nodes are not ready (kube-controller-manager flag) [default: 0.01]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    secondary_node_eviction_rate: Option<f64>,

    /// Fraction of nodes that are not ready from which a zone is unhealthy (kube-controller-manager flag) [default: 0.55]
    #[arg(long, value_name = "FRACTION")]
    unhealthy_zone_threshold: Option<f64>,

    /// Number of nodes above which a zone is large (kube-controller-manager flag) [default: 50]
    #[arg(long, value_name = "NODES")]
    large_cluster_size_threshold: Option<usize>,

    /// Time between two runs of the pod garbage collector [default: 20s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pod_gc_period: Option<SignedDuration>,

    /// Time of a run of the pod garbage collector (the newest line of gc_controller.go in kube-controller-manager's log);
    /// makes the times of its next runs exact
    #[arg(long, value_name = "RFC3339", value_parser = timestamp)]
    pod_gc_seen: Option<Timestamp>,

    /// Time after which a mounted volume is force-detached from a node that is not ready [default: 6m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    force_detach_after: Option<SignedDuration>,

    /// Volumes are never force-detached (kube-controller-manager flag)
    #[arg(long, conflicts_with = "force_detach_after")]
    disable_force_detach_on_timeout: bool,

    /// Start time of kube-controller-manager; its timers restart with it [default: from its Lease]
    #[arg(long, value_name = "RFC3339", value_parser = timestamp)]
    controllers_since: Option<Timestamp>,

    /// Time between two status updates of a node (kubelet's nodeStatusUpdateFrequency) [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    node_status_period: Option<SignedDuration>,

    /// Time that a kubelet needs to report its pods after its machine is back [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    kubelet_return: Option<SignedDuration>,

    /// Time that a container needs to stop [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pod_stop: Option<SignedDuration>,

    /// Time that a pod which has not started before needs to start its containers, once its volumes are attached
    /// [default: 2s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pod_start: Option<SignedDuration>,
}

impl TimerArgs {
    /// Replaces the timers that were found by those that the flags give.
    pub(crate) fn apply(&self, found: &mut ClusterTimers) {
        let mut flags: Vec<(&'static str, &'static str)> = Vec::new();
        let timers = &mut found.timers;
        let mut set = |name: &'static str, flag: &'static str, given: bool| {
            if given {
                flags.push((name, flag));
            }
        };
        set(
            "node-monitor-grace-period",
            "--node-monitor-grace-period",
            replace(&mut timers.node_monitor_grace, self.node_monitor_grace_period),
        );
        set(
            "node-monitor-period",
            "--node-monitor-period",
            replace(&mut timers.node_monitor_period, self.node_monitor_period),
        );
        set(
            "node-eviction-rate",
            "--node-eviction-rate",
            replace(&mut timers.eviction_interval, self.node_eviction_rate.map(interval)),
        );
        set(
            "secondary-node-eviction-rate",
            "--secondary-node-eviction-rate",
            replace(&mut timers.secondary_eviction_interval, self.secondary_node_eviction_rate.map(interval)),
        );
        set(
            "unhealthy-zone-threshold",
            "--unhealthy-zone-threshold",
            replace(&mut timers.unhealthy_zone_threshold, self.unhealthy_zone_threshold),
        );
        set(
            "large-cluster-size-threshold",
            "--large-cluster-size-threshold",
            replace(&mut timers.large_zone, self.large_cluster_size_threshold),
        );
        set("pod-gc-period", "--pod-gc-period", replace(&mut timers.pod_gc_period, self.pod_gc_period));
        set(
            "force-detach-after",
            "--force-detach-after",
            replace(&mut timers.force_detach, self.force_detach_after.map(Some)),
        );
        set(
            "force-detach-after",
            "--disable-force-detach-on-timeout",
            replace(&mut timers.force_detach, self.disable_force_detach_on_timeout.then_some(None)),
        );
        set(
            "node-status-update-frequency",
            "--node-status-period",
            replace(&mut timers.node_status_period, self.node_status_period),
        );
        set("pod-start", "--pod-start", replace(&mut timers.start, self.pod_start));
        set("pod-stop", "--pod-stop", replace(&mut timers.stop, self.pod_stop));
        replace(&mut timers.kubelet_return, self.kubelet_return);
        timers.pod_gc_seen = self.pod_gc_seen;
        timers.controllers_since = self.controllers_since;
        for (name, flag) in flags {
            found.set_by(name, flag);
        }
    }
}

/// Replaces a value by the one that was given; whether one was.
fn replace<T>(value: &mut T, given: Option<T>) -> bool {
    let is_given = given.is_some();
    if let Some(given) = given {
        *value = given;
    }
    is_given
}

/// Parses a duration that forecasts can compute with.
pub(super) fn duration(text: &str) -> anyhow::Result<SignedDuration> {
    let duration: SignedDuration = text.parse()?;
    ensure!(!duration.is_negative(), "a duration cannot be negative");
    ensure!(duration <= CENTURY, "longer than a century");
    Ok(duration)
}

/// Parses a time that forecasts can compute with.
pub(super) fn timestamp(text: &str) -> anyhow::Result<Timestamp> {
    let timestamp: Timestamp = text.parse()?;
    ensure!(is_near(timestamp), "not between the years 1970 and 3000");
    Ok(timestamp)
}

/// Parses a rate per second.
fn rate(text: &str) -> anyhow::Result<f64> {
    let rate: f64 = text.parse()?;
    ensure!(rate.is_finite() && rate >= 0.0, "a rate must be 0 or more");
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use stead_explain::outage::Timers;
    use stead_model::Objects;

    #[derive(Debug, Parser)]
    struct TestArgs {
        #[command(flatten)]
        timers: TimerArgs,
    }

    fn parse(flags: &[&str]) -> Result<Timers, clap::Error> {
        let mut found = ClusterTimers::of(&Objects::default());
        TestArgs::try_parse_from(["stead"].iter().chain(flags)).map(|args| args.timers.apply(&mut found))?;
        Ok(found.timers)
    }

    #[test]
    fn values_out_of_range_are_rejected_with_the_name_of_the_flag() {
        for (flag, value) in [
            ("--force-detach-after", "99999999h"),
            ("--pod-gc-period", "99999999h"),
            ("--node-monitor-grace-period", "-1s"),
            ("--pod-gc-seen", "9999-12-30T22:00:00Z"),
            ("--controllers-since", "-009999-01-02T01:59:59Z"),
            ("--node-eviction-rate", "-1"),
            ("--secondary-node-eviction-rate", "NaN"),
        ] {
            let error = parse(&[&format!("{flag}={value}")]).expect_err(value).to_string();
            assert!(error.contains(flag) && error.contains(value), "{error}");
        }
    }

    #[test]
    fn flags_are_named_as_the_source_of_their_values() {
        let mut found = ClusterTimers::of(&Objects::default());
        let flags = ["stead", "--node-monitor-grace-period=40s", "--node-monitor-period=5s", "--pod-start=9s"];
        let args = TestArgs::try_parse_from(flags).expect("flags");
        args.timers.apply(&mut found);
        let settings = found.settings();
        let told: Vec<(&str, &str, &str)> = settings.iter().map(|s| (s.name, &*s.value, &*s.source)).collect();
        let expected =
            [("node-monitor-grace-period", "40s", "--node-monitor-grace-period"), ("pod-start", "9s", "--pod-start")];
        assert_eq!(told, expected, "the default period is not told");
    }

    #[test]
    fn the_interval_between_evictions_is_one_over_the_rate() {
        let seconds = SignedDuration::from_secs;
        assert_eq!(parse(&[]).expect("no flags"), Timers::default());
        let intervals = |rate: &str| {
            let flags = [format!("--node-eviction-rate={rate}"), format!("--secondary-node-eviction-rate={rate}")];
            let timers = parse(&flags.each_ref().map(String::as_str)).expect("rates");
            (timers.eviction_interval, timers.secondary_eviction_interval)
        };
        assert_eq!(intervals("0.5"), (Some(seconds(2)), Some(seconds(2))));
        for no_eviction in ["0", "1e-300"] {
            assert_eq!(intervals(no_eviction), (None, None), "{no_eviction}");
        }
    }
}
