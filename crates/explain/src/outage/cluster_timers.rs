//! The timers of one cluster: the defaults of its version, then its own settings where its objects show them, then what
//! the user says. Values other than the defaults are part of the answer, with where they come from.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use stead_forecast::TimerSetting;
use stead_model::times::CENTURY;
use stead_model::{Component, ComponentFlag, Objects, component_flags};

use super::time_text::span;
use super::timers::Timers;

/// The timers of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterTimers {
    /// The values to use.
    pub timers: Timers,
    defaults: Timers,
    sources: BTreeMap<&'static str, String>,
}

/// The name of a timer, and its value as text.
type NamedTimer = (&'static str, fn(&Timers) -> String);

/// The timers that can be set.
const NAMES: [NamedTimer; 11] = [
    ("node-monitor-grace-period", |t| span(t.node_monitor_grace)),
    ("node-monitor-period", |t| span(t.node_monitor_period)),
    ("node-eviction-rate", |t| rate(t.eviction_interval)),
    ("secondary-node-eviction-rate", |t| rate(t.secondary_eviction_interval)),
    ("unhealthy-zone-threshold", |t| t.unhealthy_zone_threshold.to_string()),
    ("large-cluster-size-threshold", |t| t.large_zone.to_string()),
    ("pod-gc-period", |t| span(t.pod_gc_period)),
    ("force-detach-after", |t| t.force_detach.map_or("never".to_owned(), span)),
    ("node-status-update-frequency", |t| span(t.node_status_period)),
    ("pod-start", |t| span(t.start)),
    ("pod-stop", |t| span(t.stop)),
];

fn rate(interval: Option<SignedDuration>) -> String {
    match interval {
        None => "0".to_owned(),
        // Three digits are as many as anybody sets.
        Some(interval) => {
            let rate = format!("{:.3}", 1.0 / interval.as_secs_f64());
            rate.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

/// The time between two nodes at a rate per second; none for a rate at which the next one never comes.
pub fn interval(rate: f64) -> Option<SignedDuration> {
    SignedDuration::try_from_secs_f64(1.0 / rate).ok().filter(|long| *long <= CENTURY)
}

impl ClusterTimers {
    /// The timers that the version of a cluster and its objects tell.
    pub fn of(objects: &Objects) -> ClusterTimers {
        let defaults = Timers::of(objects.version());
        let mut found = ClusterTimers { timers: defaults.clone(), defaults, sources: BTreeMap::new() };
        for flag in component_flags(objects) {
            found.apply(&flag);
        }
        found
    }

    /// Notes where the value of a timer comes from. The name is one that [`ClusterTimers::settings`] uses.
    pub fn set_by(&mut self, name: &'static str, source: impl Into<String>) {
        self.sources.insert(name, source.into());
    }

    /// Applies a flag of a component. Other flags, and values that the component would refuse, change nothing.
    fn apply(&mut self, flag: &ComponentFlag) -> Option<()> {
        let timers = &mut self.timers;
        let value = flag.value.as_str();
        let name = match (flag.component, flag.name.as_str()) {
            (Component::ControllerManager, "node-monitor-grace-period") => {
                timers.node_monitor_grace = duration(value)?;
                "node-monitor-grace-period"
            }
            (Component::ControllerManager, "node-monitor-period") => {
                timers.node_monitor_period = duration(value)?;
                "node-monitor-period"
            }
            (Component::ControllerManager, "node-eviction-rate") => {
                timers.eviction_interval = interval(number(value)?);
                "node-eviction-rate"
            }
            (Component::ControllerManager, "secondary-node-eviction-rate") => {
                timers.secondary_eviction_interval = interval(number(value)?);
                "secondary-node-eviction-rate"
            }
            (Component::ControllerManager, "unhealthy-zone-threshold") => {
                timers.unhealthy_zone_threshold = number(value)?;
                "unhealthy-zone-threshold"
            }
            (Component::ControllerManager, "large-cluster-size-threshold") => {
                timers.large_zone = value.parse().ok()?;
                "large-cluster-size-threshold"
            }
            (Component::ControllerManager, "disable-force-detach-on-timeout") if value == "true" => {
                timers.force_detach = None;
                "force-detach-after"
            }
            (Component::Kubelet, "node-status-update-frequency") => {
                timers.node_status_period = duration(value)?;
                "node-status-update-frequency"
            }
            _ => return None,
        };
        self.set_by(name, flag.source.clone());
        Some(())
    }

    /// The timers whose values are not the defaults of the cluster's version.
    pub fn settings(&self) -> Vec<TimerSetting> {
        let setting = |(name, text): (&'static str, fn(&Timers) -> String)| {
            let value = text(&self.timers);
            let source = self.sources.get(name).filter(|_| value != text(&self.defaults))?;
            Some(TimerSetting { name, value, source: source.clone() })
        };
        NAMES.into_iter().filter_map(setting).collect()
    }
}

/// A duration as Go prints it.
fn duration(text: &str) -> Option<SignedDuration> {
    text.parse().ok().filter(|long: &SignedDuration| !long.is_negative() && *long <= CENTURY)
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

/// The settings in one line of text; none where all timers have their defaults.
pub(crate) fn render_settings(settings: &[TimerSetting]) -> Option<String> {
    let values: Vec<String> = settings.iter().map(|s| format!("{} {} ({})", s.name, s.value, s.source)).collect();
    (!values.is_empty()).then(|| format!("timing of this cluster: {}", values.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use stead_model::KubernetesVersion;

    fn settings(version: u16, flags: Value) -> String {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "kcm", "namespace": "kube-system" },
            "spec": { "containers": [{ "name": "kube-controller-manager", "args": flags }] } });
        let mut objects = Objects::from_items([pod]);
        objects.set_version(KubernetesVersion::minor(version));
        render_settings(&ClusterTimers::of(&objects).settings()).unwrap_or_default()
    }

    #[test]
    fn only_what_differs_from_the_version_is_told() {
        for (version, flags, expected) in [
            (36, json!([]), ""),
            (31, json!(["--node-monitor-grace-period=40s"]), ""),
            (
                36,
                json!(["--node-monitor-grace-period=40s"]),
                "timing of this cluster: node-monitor-grace-period 40s (pod kube-system/kcm)",
            ),
            (
                31,
                json!(["--node-eviction-rate=0.5", "--disable-force-detach-on-timeout", "--node-monitor-period=2m0s"]),
                "timing of this cluster: node-monitor-period 2m (pod kube-system/kcm), node-eviction-rate 0.5 (pod \
                 kube-system/kcm), force-detach-after never (pod kube-system/kcm)",
            ),
            (31, json!(["--node-monitor-grace-period=-1s", "--node-eviction-rate=NaN", "--v=2"]), ""),
        ] {
            assert_eq!(settings(version, flags.clone()), expected, "1.{version} {flags}");
        }
    }

    #[test]
    fn the_grace_period_follows_the_version() {
        for (version, seconds) in [(29, 40), (31, 40), (32, 50), (36, 50)] {
            let timers = Timers::of(KubernetesVersion::minor(version));
            assert_eq!(timers.node_monitor_grace, SignedDuration::from_secs(seconds), "1.{version}");
        }
        assert_eq!(Timers::of(KubernetesVersion::NEWEST), Timers::default());
    }
}
