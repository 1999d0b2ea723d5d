//! The configuration resources of OpenShift that Stead reads: the fields that are read, and no others.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::error::ModelError;
use crate::typed::parse;

/// The kind under which [`crate::Objects`] keeps `nodes.config.openshift.io`, whose kind is `Node` as well.
pub const NODE_CONFIG: &str = "Node.config.openshift.io";

/// The kind under which an object of OpenShift is kept whose kind has the name of a Kubernetes kind; none for any other.
pub(crate) fn renamed_kind(api_version: &str, kind: &str) -> Option<&'static str> {
    (kind == "Node" && api_version.starts_with("config.openshift.io/")).then_some(NODE_CONFIG)
}

/// Whether this is a kind that says how OpenShift's control plane is configured.
pub fn is_openshift_setting(api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    matches!((group, kind), ("config.openshift.io", "Node" | "Scheduler"))
        || (group, kind) == ("operator.openshift.io", "KubeControllerManager")
}

/// The paths of the objects that say how OpenShift's control plane is configured.
pub const OPENSHIFT_SETTINGS: [&str; 3] = [
    "/apis/operator.openshift.io/v1/kubecontrollermanagers/cluster",
    "/apis/config.openshift.io/v1/nodes/cluster",
    "/apis/config.openshift.io/v1/schedulers/cluster",
];

/// `kubecontrollermanagers.operator.openshift.io`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct KubeControllerManagerConfig {
    spec: ControllerManagerSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ControllerManagerSpec {
    /// What the operator set, from the rest of the cluster's configuration.
    observed_config: Option<ExtendedConfig>,
    /// What somebody set by hand; it takes precedence.
    unsupported_config_overrides: Option<ExtendedConfig>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExtendedConfig {
    extended_arguments: Option<BTreeMap<String, Vec<String>>>,
}

impl KubeControllerManagerConfig {
    /// Reads the resource.
    pub(crate) fn read(raw: &Value) -> Result<KubeControllerManagerConfig, ModelError> {
        parse("kubecontrollermanagers.operator.openshift.io", raw)
    }

    /// The arguments of kube-controller-manager; a later one takes precedence.
    pub(crate) fn arguments(&self) -> impl Iterator<Item = (&str, &str)> {
        let configs = self.spec.observed_config.iter().chain(&self.spec.unsupported_config_overrides);
        let arguments = configs.flat_map(|config| config.extended_arguments.iter().flatten());
        arguments.filter_map(|(name, values)| Some((name.as_str(), values.last()?.as_str())))
    }
}

/// `nodes.config.openshift.io`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeConfig {
    spec: NodeConfigSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeConfigSpec {
    worker_latency_profile: Option<String>,
}

/// What a worker latency profile of OpenShift sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WorkerLatencyProfile {
    /// Its name.
    pub(crate) name: &'static str,
    /// The flag of kube-controller-manager.
    pub(crate) node_monitor_grace_period: &'static str,
    /// The setting of the kubelets.
    pub(crate) node_status_update_frequency: &'static str,
}

/// The profiles of OpenShift 4.16 to 4.21. Without a profile, the components have their own defaults.
const LATENCY_PROFILES: [WorkerLatencyProfile; 3] = [
    WorkerLatencyProfile { name: "Default", node_monitor_grace_period: "40s", node_status_update_frequency: "10s" },
    WorkerLatencyProfile {
        name: "MediumUpdateAverageReaction",
        node_monitor_grace_period: "2m",
        node_status_update_frequency: "20s",
    },
    WorkerLatencyProfile {
        name: "LowUpdateSlowReaction",
        node_monitor_grace_period: "5m",
        node_status_update_frequency: "1m",
    },
];

impl NodeConfig {
    /// Reads the resource.
    pub(crate) fn read(raw: &Value) -> Result<NodeConfig, ModelError> {
        parse("nodes.config.openshift.io", raw)
    }

    /// The profile; none where it is not set or not known.
    pub(crate) fn worker_latency_profile(&self) -> Option<WorkerLatencyProfile> {
        let name = self.spec.worker_latency_profile.as_deref()?;
        LATENCY_PROFILES.into_iter().find(|profile| profile.name == name)
    }
}

/// `schedulers.config.openshift.io`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SchedulerConfig {
    /// Its spec.
    pub spec: SchedulerConfigSpec,
}

/// What is configured for kube-scheduler.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SchedulerConfigSpec {
    /// `LowNodeUtilization` (the default), `HighNodeUtilization` or `NoScoring`.
    pub profile: Option<String>,
}

impl SchedulerConfig {
    /// Reads the resource.
    pub fn read(raw: &Value) -> Result<SchedulerConfig, ModelError> {
        parse("schedulers.config.openshift.io", raw)
    }
}
