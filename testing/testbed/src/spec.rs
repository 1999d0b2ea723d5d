//! The specification of a cluster's machines and storage.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The machines and the storage of a cluster, and the simulated delays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterSpec {
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// The CSI drivers, which run on every node.
    pub drivers: Vec<DriverSpec>,
    /// The cloud provider of the machines, such as `openstack`: nodes have a provider id, and the cloud reports
    /// machines that are off or deleted to Kubernetes.
    pub cloud: Option<String>,
    /// The kubelets' version.
    pub version: String,
    /// Delay between available volumes and running containers.
    pub start_seconds: f64,
    /// Delay between running and ready containers.
    pub ready_seconds: f64,
    /// Delay between the deletion of a pod and the termination of its containers.
    pub stop_seconds: f64,
    /// How long the containers of a Job run.
    pub job_seconds: f64,
    /// How often a node renews its lease.
    pub heartbeat_seconds: f64,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Its labels in addition to host name, architecture and operating system.
    pub labels: BTreeMap<String, String>,
    /// Its capacity; the default is 16 CPUs, 64Gi of memory and 110 pods.
    pub capacity: BTreeMap<String, String>,
    /// Its address; none for one of the testbed's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
}

/// A CSI driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DriverSpec {
    /// Its name.
    pub name: String,
    /// The node label whose value determines where a volume can be used; none if it can be used everywhere.
    pub topology: Option<String>,
    /// Whether a volume has to be attached, to one node at a time.
    pub attach: bool,
    /// Whether processes lose access to a volume when it is detached, like a disk. Only for pods that run as processes;
    /// such a volume has no extended attributes.
    pub disk: bool,
}

impl Default for ClusterSpec {
    fn default() -> ClusterSpec {
        ClusterSpec {
            nodes: Vec::new(),
            drivers: Vec::new(),
            cloud: None,
            version: "v1.36.4".to_owned(),
            start_seconds: 1.0,
            ready_seconds: 1.0,
            stop_seconds: 1.0,
            job_seconds: 0.5,
            heartbeat_seconds: 1.0,
        }
    }
}

impl ClusterSpec {
    /// Seven nodes in three zones with three kinds of storage and short delays: `testdata/cluster/nodes.json`.
    pub fn seven() -> ClusterSpec {
        serde_json::from_str(include_str!("../../../testdata/cluster/nodes.json")).expect("a test reads this file")
    }

    pub(crate) fn driver(&self, name: &str) -> Option<&DriverSpec> {
        self.drivers.iter().find(|driver| driver.name == name)
    }
}

/// Converts a number of seconds; zero if it is not a valid duration.
pub(crate) fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_file_is_valid() {
        let spec = ClusterSpec::seven();
        assert_eq!((spec.nodes.len(), spec.drivers.len()), (7, 3));
        assert_eq!(spec.nodes[4].labels["zone"], "zoneB");
        assert_eq!(spec.driver("topolvm.io").unwrap().topology.as_deref(), Some("kubernetes.io/hostname"));
    }

    #[test]
    fn missing_fields_have_defaults() {
        let spec: ClusterSpec = serde_json::from_str(r#"{"nodes": [{"name": "a"}], "drivers": []}"#).unwrap();
        assert_eq!(spec.nodes[0].name, "a");
        assert_eq!(spec.version, "v1.36.4");
        assert!(serde_json::from_str::<ClusterSpec>(r#"{"nods": []}"#).is_err());
    }
}
