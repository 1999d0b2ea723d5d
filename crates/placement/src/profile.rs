//! kube-scheduler's configuration: which plugins filter and score for the pods of a scheduler name, and with which weights.
//!
//! Modelled is what changes weights and what disables default plugins. Any other setting that changes a decision is an
//! error that names its field; what does not change one (timeouts, ports, `percentageOfNodesToScore`) is ignored.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Value, json};
use stead_model::{ModelError, ObjectKey, Objects, SchedulerConfig, parse};

use crate::status::Plugin;

/// The scheduler name of pods that name none.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// The profiles of a kube-scheduler by scheduler name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profiles(BTreeMap<String, Arc<Profile>>);

impl Default for Profiles {
    fn default() -> Profiles {
        Profiles([(DEFAULT_SCHEDULER.to_owned(), Arc::default())].into())
    }
}

/// Which plugins run, and with which weights. The default is kube-scheduler's default profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Profile {
    /// Plugins that do not run at an extension point. Most profiles change little, so what is missing is kept.
    without: Vec<(Point, Plugin)>,
    /// Weights other than the defaults.
    weights: BTreeMap<Plugin, i64>,
    pub(crate) fit: FitStrategy,
}

/// How NodeResourcesFit scores a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum FitStrategy {
    /// The more is left, the better.
    #[default]
    LeastAllocated,
    /// The less is left, the better.
    MostAllocated,
}

/// An extension point whose plugins can be disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    PreFilter,
    Filter,
    PreScore,
    Score,
}

impl Point {
    const ALL: [Point; 4] = [Point::PreFilter, Point::Filter, Point::PreScore, Point::Score];

    /// The field in `plugins`.
    fn field(self) -> &'static str {
        match self {
            Point::PreFilter => "preFilter",
            Point::Filter => "filter",
            Point::PreScore => "preScore",
            Point::Score => "score",
        }
    }
}

/// A default plugin with an effect on a decision, in the order of the default profile, and where it runs.
const DEFAULTS: &[(Plugin, &[Point])] = {
    use Point::{Filter, PreFilter, PreScore, Score};
    &[
        (Plugin::NodeUnschedulable, &[Filter]),
        (Plugin::TaintToleration, &[Filter, PreScore, Score]),
        (Plugin::NodeAffinity, &[PreFilter, Filter, PreScore, Score]),
        (Plugin::NodePorts, &[PreFilter, Filter]),
        (Plugin::NodeResourcesFit, &[PreFilter, Filter, PreScore, Score]),
        (Plugin::VolumeRestrictions, &[PreFilter, Filter]),
        (Plugin::NodeVolumeLimits, &[PreFilter, Filter]),
        (Plugin::VolumeBinding, &[PreFilter, Filter, PreScore, Score]),
        (Plugin::VolumeZone, &[PreFilter, Filter]),
        (Plugin::PodTopologySpread, &[PreFilter, Filter, PreScore, Score]),
        (Plugin::InterPodAffinity, &[PreFilter, Filter, PreScore, Score]),
        (Plugin::DynamicResources, &[PreFilter, Filter, Score]),
        (Plugin::NodeResourcesBalancedAllocation, &[PreScore, Score]),
        (Plugin::ImageLocality, &[Score]),
        (Plugin::NodeDeclaredFeatures, &[PreFilter, Filter]),
    ]
};

/// Default plugins that cannot be disabled here: preemption, queue and binding are modelled as they are.
const FIXED: [&str; 6] =
    ["SchedulingGates", "PrioritySort", "NodeName", "DefaultPreemption", "DefaultBinder", "GangScheduling"];

impl Profile {
    /// Whether a plugin runs at an extension point.
    pub(crate) fn runs(&self, point: Point, plugin: Plugin) -> bool {
        !self.without.contains(&(point, plugin))
    }

    /// The weight of a plugin's score.
    pub(crate) fn weight(&self, plugin: Plugin) -> i64 {
        self.weights.get(&plugin).copied().unwrap_or_else(|| plugin.weight())
    }

    /// Whether it is kube-scheduler's default profile.
    pub(crate) fn is_default(&self) -> bool {
        *self == Profile::default()
    }
}

impl Profiles {
    /// The kind under which objects have the configuration that a user gives.
    pub const KIND: &str = "KubeSchedulerConfiguration";

    /// The key of the configuration among a cluster's objects.
    pub fn key() -> ObjectKey {
        ObjectKey::cluster(Profiles::KIND, "config")
    }

    /// The profiles of a cluster: of the configuration among its objects ([`Profiles::key`]), or of OpenShift's Scheduler.
    ///
    /// # Errors
    /// The field that is not modelled, and why.
    pub fn of(objects: &Objects) -> Result<Profiles, ModelError> {
        if let Some(config) = objects.object(&Profiles::key()) {
            return Profiles::read(config.raw());
        }
        let scheduler = objects.object(&ObjectKey::cluster("Scheduler", "cluster"));
        match scheduler.filter(|object| object.raw()["apiVersion"] == "config.openshift.io/v1") {
            Some(object) => Profiles::of_openshift(&SchedulerConfig::read(object.raw())?),
            None => Ok(Profiles::default()),
        }
    }

    /// The profile of a scheduler name; none where this scheduler leaves such pods alone.
    pub fn get(&self, scheduler: &str) -> Option<&Arc<Profile>> {
        self.0.get(scheduler)
    }

    /// Reads a KubeSchedulerConfiguration.
    ///
    /// # Errors
    /// The field that is wrong or not modelled, and why.
    pub fn read(config: &Value) -> Result<Profiles, ModelError> {
        const NAME: &str = "scheduler configuration";
        let config: Configuration = parse(NAME, config)?;
        let fault = |field: String, reason: String| ModelError::malformed(NAME, field, reason);
        if config.api_version != "kubescheduler.config.k8s.io/v1" || config.kind != Profiles::KIND {
            let found = format!("{} {}", config.api_version, config.kind);
            let wanted = "expected kubescheduler.config.k8s.io/v1 KubeSchedulerConfiguration";
            return Err(fault("kind".into(), format!("{wanted}, found {}", found.trim())));
        }
        if config.extenders.is_some_and(|extenders| !extenders.is_empty()) {
            return Err(fault("extenders".into(), "extenders are not supported: their decisions are not known".into()));
        }
        let mut profiles = BTreeMap::new();
        for (i, raw) in config.profiles.into_iter().flatten().enumerate() {
            let name = raw.scheduler_name.clone().unwrap_or_else(|| DEFAULT_SCHEDULER.to_owned());
            let profile = raw.read().map_err(|(field, why)| fault(format!("profiles[{i}].{field}"), why))?;
            if profiles.insert(name, Arc::new(profile)).is_some() {
                return Err(fault(format!("profiles[{i}].schedulerName"), "two profiles have the same name".into()));
            }
        }
        Ok(if profiles.is_empty() { Profiles::default() } else { Profiles(profiles) })
    }

    /// The profiles that OpenShift 4.16 to 4.21 configures.
    fn of_openshift(scheduler: &SchedulerConfig) -> Result<Profiles, ModelError> {
        let profile = |plugins: Value, args: Value| {
            Profiles::read(&json!({
                "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": Profiles::KIND,
                "profiles": [{ "schedulerName": DEFAULT_SCHEDULER, "plugins": plugins, "pluginConfig": args }],
            }))
        };
        match scheduler.spec.profile.as_deref() {
            None | Some("" | "LowNodeUtilization") => Ok(Profiles::default()),
            Some("HighNodeUtilization") => profile(
                json!({ "score": { "disabled": [{ "name": "NodeResourcesBalancedAllocation" }],
                    "enabled": [{ "name": "NodeResourcesFit", "weight": 5 }] } }),
                json!([{ "name": "NodeResourcesFit", "args": { "scoringStrategy": { "type": "MostAllocated" } } }]),
            ),
            Some("NoScoring") => profile(
                json!({ "preScore": { "disabled": [{ "name": "*" }] }, "score": { "disabled": [{ "name": "*" }] } }),
                json!([]),
            ),
            Some(other) => {
                let reason = format!("the profile {other:?} is not known");
                Err(ModelError::malformed("schedulers.config.openshift.io cluster", "spec.profile", reason))
            }
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "known fields that change no decision are accepted")]
struct Configuration {
    api_version: String,
    kind: String,
    metadata: Option<Value>,
    profiles: Option<Vec<RawProfile>>,
    extenders: Option<Vec<Value>>,
    parallelism: Option<Value>,
    leader_election: Option<Value>,
    client_connection: Option<Value>,
    healthz_bind_address: Option<Value>,
    metrics_bind_address: Option<Value>,
    enable_profiling: Option<Value>,
    enable_contention_profiling: Option<Value>,
    percentage_of_nodes_to_score: Option<Value>,
    pod_initial_backoff_seconds: Option<Value>,
    pod_max_backoff_seconds: Option<Value>,
    delay_cache_until_active: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[expect(dead_code, reason = "known fields that change no decision are accepted")]
struct RawProfile {
    scheduler_name: Option<String>,
    percentage_of_nodes_to_score: Option<Value>,
    plugins: Option<RawPlugins>,
    plugin_config: Option<Vec<PluginConfig>>,
}

/// The plugins by extension point. Only those of `Point` and `multiPoint` can be changed.
type RawPlugins = BTreeMap<String, PluginSet>;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PluginSet {
    enabled: Option<Vec<PluginRef>>,
    disabled: Option<Vec<PluginRef>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginRef {
    name: String,
    weight: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PluginConfig {
    name: String,
    #[serde(default)]
    args: Value,
}

/// The field that is not modelled, and why.
type Fault = (String, String);

impl PluginSet {
    fn enabled(&self) -> impl Iterator<Item = &PluginRef> {
        self.enabled.iter().flatten()
    }

    fn disables(&self, name: &str) -> bool {
        self.disabled.iter().flatten().any(|plugin| plugin.name == name || plugin.name == "*")
    }

    fn is_empty(&self) -> bool {
        self.enabled().next().is_none() && self.disabled.iter().flatten().next().is_none()
    }

    /// Checks the names of plugins.
    fn check(&self, field: &str) -> Result<(), Fault> {
        let lists = [("enabled", &self.enabled), ("disabled", &self.disabled)];
        for (list, plugins) in lists {
            for (i, plugin) in plugins.iter().flatten().enumerate() {
                let name = plugin.name.as_str();
                let fixed = FIXED.contains(&name) && list == "enabled";
                if !fixed && plugin_named(name).is_none() && !(name == "*" && list == "disabled") {
                    let why = format!("the plugin {name} is not supported here");
                    return Err((format!("plugins.{field}.{list}[{i}].name"), why));
                }
            }
        }
        Ok(())
    }
}

fn plugin_named(name: &str) -> Option<Plugin> {
    DEFAULTS.iter().map(|(plugin, _)| *plugin).find(|plugin| plugin.name() == name)
}

impl RawProfile {
    fn read(self) -> Result<Profile, Fault> {
        let mut profile = Profile::default();
        let plugins = self.plugins.unwrap_or_default();
        for (field, set) in &plugins {
            let known = field == "multiPoint" || Point::ALL.iter().any(|point| point.field() == field);
            if !known && !set.is_empty() {
                let why = "only multiPoint, preFilter, filter, preScore and score are supported".to_owned();
                return Err((format!("plugins.{field}"), why));
            }
            if known {
                set.check(field)?;
            }
        }
        let multi = MultiPoint::new(plugins.get("multiPoint"));
        for point in Point::ALL {
            let set = plugins.get(point.field()).cloned().unwrap_or_default();
            let running = multi.at(point, &set)?;
            if point == Point::Filter && !is_in_default_order(&running) {
                let why = "another order of the filters than the default one is not supported".to_owned();
                return Err((format!("plugins.{}.enabled", point.field()), why));
            }
            let all = DEFAULTS.iter().filter(|(_, points)| points.contains(&point));
            let missing = all.filter(|(plugin, _)| !running.iter().any(|(running, _)| running == plugin));
            profile.without.extend(missing.map(|(plugin, _)| (point, *plugin)));
            if point == Point::Score {
                let changed = running.into_iter().filter(|(plugin, weight)| plugin.weight() != *weight);
                profile.weights = changed.collect();
            }
        }
        profile.check_states()?;
        for (i, config) in self.plugin_config.into_iter().flatten().enumerate() {
            config.apply(&mut profile).map_err(|(field, why)| (format!("pluginConfig[{i}].{field}"), why))?;
        }
        Ok(profile)
    }
}

impl Profile {
    /// A plugin that filters or scores without its preparation fails in kube-scheduler.
    fn check_states(&self) -> Result<(), Fault> {
        for (before, after) in [(Point::PreFilter, Point::Filter), (Point::PreScore, Point::Score)] {
            for (plugin, points) in DEFAULTS {
                if points.contains(&before) && !self.runs(before, *plugin) && self.runs(after, *plugin) {
                    let why = format!("{} needs it for {}", plugin.name(), after.field());
                    return Err((format!("plugins.{}.disabled", before.field()), why));
                }
            }
        }
        // Without it, preemption reports something else.
        if !self.runs(Point::PreFilter, Plugin::DynamicResources) {
            return Err(("plugins".into(), "disabling preFilter of DynamicResources is not supported".into()));
        }
        Ok(())
    }
}

/// The plugins of `multiPoint`, which run at every extension point that they implement, with their weights.
struct MultiPoint(Vec<(Plugin, i64)>);

impl MultiPoint {
    /// The defaults with the changes of a profile (`mergePluginSet`).
    fn new(custom: Option<&PluginSet>) -> MultiPoint {
        let custom = custom.cloned().unwrap_or_default();
        let enabled = |plugin: Plugin| custom.enabled().find(|enabled| enabled.name == plugin.name());
        let kept = DEFAULTS.iter().map(|(plugin, _)| *plugin).filter(|plugin| !custom.disables(plugin.name()));
        let mut plugins: Vec<(Plugin, i64)> =
            kept.map(|plugin| (plugin, enabled(plugin).map_or(plugin.weight(), weight))).collect();
        for added in custom.enabled() {
            if let Some(plugin) = plugin_named(&added.name).filter(|new| !plugins.iter().any(|(old, _)| old == new)) {
                plugins.push((plugin, weight(added)));
            }
        }
        MultiPoint(plugins)
    }

    /// The plugins that run at an extension point: those that it enables itself come first (`expandMultiPointPlugins`).
    fn at(&self, point: Point, set: &PluginSet) -> Result<Vec<(Plugin, i64)>, Fault> {
        let implements = |plugin: Plugin| DEFAULTS.iter().any(|(p, points)| *p == plugin && points.contains(&point));
        let mut own = Vec::new();
        for (i, enabled) in set.enabled().enumerate() {
            let Some(plugin) = plugin_named(&enabled.name) else { continue };
            if !implements(plugin) {
                let why = format!("the plugin {} does not implement {}", plugin.name(), point.field());
                return Err((format!("plugins.{}.enabled[{i}].name", point.field()), why));
            }
            own.push((plugin, weight(enabled)));
        }
        let is_own = |plugin: Plugin| own.iter().any(|(own, _)| *own == plugin);
        let is_multi = |plugin: Plugin| self.0.iter().any(|(multi, _)| *multi == plugin);
        let rest = self.0.iter().copied();
        let rest = rest.filter(|(plugin, _)| implements(*plugin) && !is_own(*plugin) && !set.disables(plugin.name()));
        let (first, last): (Vec<_>, Vec<_>) = own.iter().copied().partition(|(plugin, _)| is_multi(*plugin));
        Ok(first.into_iter().chain(rest).chain(last).collect())
    }
}

/// A weight of 0 or none is 1.
fn weight(plugin: &PluginRef) -> i64 {
    plugin.weight.filter(|weight| *weight != 0).unwrap_or(1)
}

fn is_in_default_order(plugins: &[(Plugin, i64)]) -> bool {
    let place = |plugin: &Plugin| DEFAULTS.iter().position(|(default, _)| default == plugin);
    plugins.is_sorted_by_key(|(plugin, _)| place(plugin))
}

impl PluginConfig {
    fn apply(self, profile: &mut Profile) -> Result<(), Fault> {
        let fields = match self.args {
            Value::Null => return Ok(()),
            Value::Object(fields) => fields,
            _ => return Err(("args".into(), "not an object".into())),
        };
        for (field, value) in fields {
            let at = format!("args.{field}");
            match (self.name.as_str(), field.as_str()) {
                (_, "apiVersion" | "kind") => {}
                ("NodeResourcesFit", "scoringStrategy") => {
                    profile.fit = fit_strategy(&value).map_err(|(below, why)| (format!("{at}.{below}"), why))?;
                }
                // These say how long something may take.
                ("VolumeBinding", "bindTimeoutSeconds") | ("DynamicResources", "filterTimeout") => {}
                (name, field) => match default_argument(name, field) {
                    Some(default) if default == value || value.is_null() => {}
                    Some(default) => return Err((at, format!("only the default {default} is supported"))),
                    None => return Err((at, format!("not a supported argument of {name}"))),
                },
            }
        }
        Ok(())
    }
}

/// The default of an argument that is modelled with its default only.
fn default_argument(plugin: &str, field: &str) -> Option<Value> {
    Some(match (plugin, field) {
        ("NodeResourcesFit", "ignoredResources" | "ignoredResourceGroups") => json!([]),
        ("NodeResourcesBalancedAllocation", "resources") => cpu_and_memory(),
        ("InterPodAffinity", "hardPodAffinityWeight") => json!(1),
        ("InterPodAffinity", "ignorePreferredTermsOfExistingPods") => json!(false),
        ("PodTopologySpread", "defaultingType") => json!("System"),
        ("PodTopologySpread", "defaultConstraints") => json!([]),
        ("NodeAffinity", "addedAffinity") | ("VolumeBinding", "shape") => Value::Null,
        ("DefaultPreemption", "minCandidateNodesPercentage") => json!(10),
        ("DefaultPreemption", "minCandidateNodesAbsolute") => json!(100),
        _ => return None,
    })
}

fn cpu_and_memory() -> Value {
    json!([{ "name": "cpu", "weight": 1 }, { "name": "memory", "weight": 1 }])
}

fn fit_strategy(value: &Value) -> Result<FitStrategy, Fault> {
    let fields = value.as_object().ok_or_else(|| ("type".to_owned(), "missing".to_owned()))?;
    let mut strategy = FitStrategy::LeastAllocated;
    for (field, value) in fields {
        match (field.as_str(), value.as_str()) {
            ("type", Some("LeastAllocated")) => {}
            ("type", Some("MostAllocated")) => strategy = FitStrategy::MostAllocated,
            ("resources", _) if *value == cpu_and_memory() || *value == json!([]) || value.is_null() => {}
            ("requestedToCapacityRatio", _) if value.is_null() => {}
            ("type", _) => return Err((field.clone(), "only LeastAllocated and MostAllocated are supported".into())),
            ("resources", _) => {
                return Err((field.clone(), "only cpu and memory, with weight 1 each, are supported".into()));
            }
            _ => return Err((field.clone(), "not supported".into())),
        }
    }
    Ok(strategy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(profile: Value) -> Result<Profile, String> {
        let config = json!({ "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "profiles": [profile] });
        let profiles = Profiles::read(&config).map_err(|error| error.to_string())?;
        Ok((**profiles.get(DEFAULT_SCHEDULER).expect("a default profile")).clone())
    }

    #[test]
    fn an_empty_configuration_is_the_default() {
        for profile in [json!({}), json!({ "plugins": {} }), json!({ "percentageOfNodesToScore": 5 })] {
            assert_eq!(read(profile.clone()), Ok(Profile::default()), "{profile}");
        }
        let config = json!({ "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "leaderElection": { "leaderElect": true } });
        assert_eq!(Profiles::read(&config), Ok(Profiles::default()));
    }

    #[test]
    fn plugins_are_disabled_and_weighted() {
        let profile = read(json!({ "plugins": {
            "multiPoint": { "disabled": [{ "name": "InterPodAffinity" }],
                "enabled": [{ "name": "NodeAffinity", "weight": 7 }, { "name": "TaintToleration" }] },
            "score": { "disabled": [{ "name": "ImageLocality" }], "enabled": [{ "name": "PodTopologySpread", "weight": 9 }] },
        } }))
        .expect("a profile");
        for point in [Point::PreFilter, Point::Filter, Point::PreScore, Point::Score] {
            assert!(!profile.runs(point, Plugin::InterPodAffinity), "{point:?}");
            assert!(profile.runs(point, Plugin::NodeAffinity), "{point:?}");
        }
        assert!(!profile.runs(Point::Score, Plugin::ImageLocality));
        let weights =
            [Plugin::NodeAffinity, Plugin::TaintToleration, Plugin::PodTopologySpread, Plugin::NodeResourcesFit];
        assert_eq!(weights.map(|plugin| profile.weight(plugin)), [7, 1, 9, 1], "no weight means 1");
    }

    #[test]
    fn profiles_of_openshift() {
        let profile = |name: &str| {
            let config = SchedulerConfig { spec: stead_model::SchedulerConfigSpec { profile: Some(name.into()) } };
            Profiles::of_openshift(&config).map(|profiles| (**profiles.get(DEFAULT_SCHEDULER).expect("it")).clone())
        };
        assert_eq!(profile("LowNodeUtilization"), Ok(Profile::default()));
        let high = profile("HighNodeUtilization").expect("known");
        assert_eq!((high.fit, high.weight(Plugin::NodeResourcesFit)), (FitStrategy::MostAllocated, 5));
        assert!(!high.runs(Point::Score, Plugin::NodeResourcesBalancedAllocation));
        let none = profile("NoScoring").expect("known");
        assert!(
            DEFAULTS
                .iter()
                .all(|(plugin, points)| !points.contains(&Point::Score) || !none.runs(Point::Score, *plugin))
        );
        let error = profile("DevPreview").expect_err("unknown").to_string();
        assert_eq!(
            error,
            "schedulers.config.openshift.io cluster: spec.profile: the profile \"DevPreview\" is not known"
        );
    }

    #[test]
    fn what_is_not_modelled_is_an_error_with_its_field() {
        for (profile, expected) in [
            (
                json!({ "plugins": { "score": { "enabled": [{ "name": "Coscheduling" }] } } }),
                "plugins.score.enabled[0].name: the plugin Coscheduling is not supported here",
            ),
            (
                json!({ "plugins": { "multiPoint": { "disabled": [{ "name": "DefaultPreemption" }] } } }),
                "plugins.multiPoint.disabled[0].name: the plugin DefaultPreemption is not supported here",
            ),
            (
                json!({ "plugins": { "bind": { "disabled": [{ "name": "*" }] } } }),
                "plugins.bind: only multiPoint, preFilter, filter, preScore and score are supported",
            ),
            (
                json!({ "plugins": { "filter": { "enabled": [{ "name": "VolumeZone" }] } } }),
                "plugins.filter.enabled: another order of the filters than the default one is not supported",
            ),
            (
                json!({ "plugins": { "preFilter": { "disabled": [{ "name": "PodTopologySpread" }] } } }),
                "plugins.preFilter.disabled: PodTopologySpread needs it for filter",
            ),
            (
                json!({ "plugins": { "score": { "enabled": [{ "name": "NodePorts" }] } } }),
                "plugins.score.enabled[0].name: the plugin NodePorts does not implement score",
            ),
            (
                json!({ "pluginConfig": [{ "name": "InterPodAffinity", "args": { "hardPodAffinityWeight": 50 } }] }),
                "pluginConfig[0].args.hardPodAffinityWeight: only the default 1 is supported",
            ),
            (
                json!({ "pluginConfig": [{ "name": "NodeResourcesFit",
                    "args": { "scoringStrategy": { "type": "RequestedToCapacityRatio" } } }] }),
                "pluginConfig[0].args.scoringStrategy.type: only LeastAllocated and MostAllocated are supported",
            ),
            (
                json!({ "pluginConfig": [{ "name": "NodeResourcesFit", "args": { "weights": 1 } }] }),
                "pluginConfig[0].args.weights: not a supported argument of NodeResourcesFit",
            ),
        ] {
            let error = read(profile.clone()).expect_err("an error");
            assert_eq!(error, format!("scheduler configuration: profiles[0].{expected}"), "{profile}");
        }
    }
}
