//! The machines and storage of a cluster, as data.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The machines and the storage of a cluster, and how quick they are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClusterSpec {
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// The storage drivers, which run on every node.
    pub drivers: Vec<DriverSpec>,
    /// The cloud that the machines are of, such as `openstack`: nodes have a provider id, and a machine that is off or
    /// gone is told to Kubernetes. Without one nobody tells.
    pub cloud: Option<String>,
    /// The kubelets' version.
    pub version: String,
    /// From a pod whose volumes are there to one whose containers run.
    pub start_seconds: f64,
    /// From containers that run to containers that are ready.
    pub ready_seconds: f64,
    /// From a pod's deletion to its containers' end.
    pub stop_seconds: f64,
    /// How long the containers of a Job run.
    pub job_seconds: f64,
    /// How often a node renews its lease.
    pub heartbeat_seconds: f64,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeSpec {
    /// Its name.
    pub name: String,
    /// Its labels beside hostname, architecture and operating system.
    pub labels: BTreeMap<String, String>,
    /// What it has for pods; what is not said is 16 CPUs, 64Gi of memory and 110 pods.
    pub capacity: BTreeMap<String, String>,
}

/// A CSI driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DriverSpec {
    /// Its name.
    pub name: String,
    /// The node label whose value says where a volume can be used; none if it can be used everywhere.
    pub topology: Option<String>,
    /// Whether a volume has to be attached to a node, one at a time.
    pub attach: bool,
    /// Whether a volume that is detached is taken from whoever has it mounted, as a disk is, where pods are processes.
    /// Such a one has no extended attributes.
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
    /// Seven nodes in three zones with three kinds of storage, which are quick: `testdata/cluster/nodes.json`.
    pub fn seven() -> ClusterSpec {
        serde_json::from_str(include_str!("../../../testdata/cluster/nodes.json")).expect("a test reads this file")
    }

    pub(crate) fn driver(&self, name: &str) -> Option<&DriverSpec> {
        self.drivers.iter().find(|driver| driver.name == name)
    }
}

/// A number of seconds from a file. One that is no length of time is none.
pub(crate) fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seven_nodes_are_read() {
        let spec = ClusterSpec::seven();
        assert_eq!((spec.nodes.len(), spec.drivers.len()), (7, 3));
        assert_eq!(spec.nodes[4].labels["zone"], "zoneB");
        assert_eq!(spec.driver("topolvm.io").unwrap().topology.as_deref(), Some("kubernetes.io/hostname"));
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let spec: ClusterSpec = serde_json::from_str(r#"{"nodes": [{"name": "a"}], "drivers": []}"#).unwrap();
        assert_eq!(spec.nodes[0].name, "a");
        assert_eq!(spec.version, "v1.36.4");
        assert!(serde_json::from_str::<ClusterSpec>(r#"{"nods": []}"#).is_err());
    }
}
