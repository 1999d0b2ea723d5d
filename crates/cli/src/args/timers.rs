//! The waiting times of a cluster that changed them.

use clap::Args;
use jiff::{SignedDuration, Timestamp};
use stead_explain::outage::{CENTURY, Timers, is_near};

/// Waiting times that are not Kubernetes' own, as the cluster's programs were told them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Waiting times, where the cluster has other ones than Kubernetes 1.36")]
pub(crate) struct TimerArgs {
    /// kube-controller-manager's flag of that name, whose own default was 40s before Kubernetes 1.32 [default: 50s]
    #[arg(long, value_name = "TIME", value_parser = length)]
    node_monitor_grace_period: Option<SignedDuration>,

    /// kube-controller-manager's flag of that name [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = length)]
    node_monitor_period: Option<SignedDuration>,

    /// kube-controller-manager's flag of that name: nodes per second, none for 0 [default: 0.1]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    node_eviction_rate: Option<f64>,

    /// kube-controller-manager's flag of that name, for large zones of which most nodes are not ready [default: 0.01]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    secondary_node_eviction_rate: Option<f64>,

    /// kube-controller-manager's flag of that name [default: 0.55]
    #[arg(long, value_name = "PART")]
    unhealthy_zone_threshold: Option<f64>,

    /// kube-controller-manager's flag of that name [default: 50]
    #[arg(long, value_name = "NODES")]
    large_cluster_size_threshold: Option<usize>,

    /// How often the pod collector looks [default: 20s]
    #[arg(long, value_name = "TIME", value_parser = length)]
    pod_gc_period: Option<SignedDuration>,

    /// A moment at which it looked (the newest line of gc_controller.go in kube-controller-manager's log): with it, its
    /// next looks are known, and not only to be expected
    #[arg(long, value_name = "RFC3339", value_parser = moment)]
    pod_gc_seen: Option<Timestamp>,

    /// How long a volume that is still mounted stays on a node that is not ready [default: 6m]
    #[arg(long, value_name = "TIME", value_parser = length)]
    force_detach_after: Option<SignedDuration>,

    /// kube-controller-manager's flag of that name: it stays there for ever
    #[arg(long, conflicts_with = "force_detach_after")]
    disable_force_detach_on_timeout: bool,

    /// Since when kube-controller-manager runs: its timers began anew then [default: as its lease says]
    #[arg(long, value_name = "RFC3339", value_parser = moment)]
    controllers_since: Option<Timestamp>,

    /// kubelet's nodeStatusUpdateFrequency [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = length)]
    node_status_period: Option<SignedDuration>,

    /// What a kubelet needs to speak of its pods after its machine is back [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = length)]
    kubelet_return: Option<SignedDuration>,

    /// What a container needs to end [default: 1s]
    #[arg(long, value_name = "TIME", value_parser = length)]
    pod_stop: Option<SignedDuration>,

    /// What a pod needs from a node and its volumes to containers that run, where it has not started before [default:
    /// 2s]
    #[arg(long, value_name = "TIME", value_parser = length)]
    pod_start: Option<SignedDuration>,
}

impl TimerArgs {
    /// These, and Kubernetes' own where nothing is said.
    pub(crate) fn timers(&self) -> Timers {
        let own = Timers::default();
        let interval = |rate: f64| SignedDuration::try_from_secs_f64(1.0 / rate).ok().filter(|long| *long <= CENTURY);
        Timers {
            node_monitor_grace: self.node_monitor_grace_period.unwrap_or(own.node_monitor_grace),
            node_monitor_period: self.node_monitor_period.unwrap_or(own.node_monitor_period),
            eviction_interval: self.node_eviction_rate.map_or(own.eviction_interval, interval),
            unhealthy_zone_threshold: self.unhealthy_zone_threshold.unwrap_or(own.unhealthy_zone_threshold),
            large_zone: self.large_cluster_size_threshold.unwrap_or(own.large_zone),
            secondary_eviction_interval: self
                .secondary_node_eviction_rate
                .map_or(own.secondary_eviction_interval, interval),
            pod_gc_period: self.pod_gc_period.unwrap_or(own.pod_gc_period),
            pod_gc_seen: self.pod_gc_seen,
            force_detach: match self.disable_force_detach_on_timeout {
                true => None,
                false => self.force_detach_after.or(own.force_detach),
            },
            controllers_since: self.controllers_since,
            node_status_period: self.node_status_period.unwrap_or(own.node_status_period),
            kubelet_return: self.kubelet_return.unwrap_or(own.kubelet_return),
            stop: self.pod_stop.unwrap_or(own.stop),
            start: self.pod_start.unwrap_or(own.start),
            ..own
        }
    }
}

/// A waiting time that can be reckoned with.
fn length(text: &str) -> Result<SignedDuration, String> {
    let long: SignedDuration = text.parse().map_err(|e: jiff::Error| e.to_string())?;
    match long {
        _ if long.is_negative() => Err("a waiting time is not negative".into()),
        _ if long > CENTURY => Err("longer than a century".into()),
        _ => Ok(long),
    }
}

/// A moment that can be reckoned with.
pub(super) fn moment(text: &str) -> Result<Timestamp, String> {
    let at: Timestamp = text.parse().map_err(|e: jiff::Error| e.to_string())?;
    if is_near(at) { Ok(at) } else { Err("not between the years 1970 and 3000".into()) }
}

/// So many in a second.
fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if rate.is_finite() && rate >= 0.0 { Ok(rate) } else { Err("not a rate: 0 or more".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Told {
        #[command(flatten)]
        timers: TimerArgs,
    }

    fn told(flags: &[&str]) -> Result<Timers, String> {
        let told = Told::try_parse_from(["stead"].iter().chain(flags)).map_err(|e| e.to_string())?;
        Ok(told.timers.timers())
    }

    #[test]
    fn what_cannot_be_reckoned_with_is_refused_by_the_flags_name() {
        for (flag, value) in [
            ("--force-detach-after", "99999999h"),
            ("--pod-gc-period", "99999999h"),
            ("--node-monitor-grace-period", "-1s"),
            ("--pod-gc-seen", "9999-12-30T22:00:00Z"),
            ("--controllers-since", "-009999-01-02T01:59:59Z"),
            ("--node-eviction-rate", "-1"),
            ("--secondary-node-eviction-rate", "NaN"),
        ] {
            let said = told(&[&format!("{flag}={value}")]).expect_err(value);
            assert!(said.contains(flag) && said.contains(value), "{said}");
        }
    }

    #[test]
    fn a_rate_is_one_over_the_time_between_two() {
        let seconds = SignedDuration::from_secs;
        assert_eq!(told(&[]), Ok(Timers::default()));
        let both = |rate: &str| {
            let flags = [format!("--node-eviction-rate={rate}"), format!("--secondary-node-eviction-rate={rate}")];
            let timers = told(&flags.each_ref().map(String::as_str)).expect("rates");
            (timers.eviction_interval, timers.secondary_eviction_interval)
        };
        assert_eq!(both("0.5"), (Some(seconds(2)), Some(seconds(2))));
        for never in ["0", "1e-300"] {
            assert_eq!(both(never), (None, None), "{never}");
        }
    }
}
