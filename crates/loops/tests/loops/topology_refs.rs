//! References to a Topology that admission would refuse. In clusters without admission policies the loops see them.

use serde_json::{Value, json};

use crate::fake::Cluster;

fn topology_ready(cluster: &Cluster, kind: &str, name: &str) -> Value {
    let object = cluster.find(kind, name).unwrap_or_else(|| panic!("{kind} {name} is there"));
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|c| c["type"] == "TopologyReady").cloned().unwrap_or_default()
}

#[test]
fn a_topology_of_another_namespace_is_reported_and_not_applied() {
    let invalid = "Topology config create error occurred spec.topologyRef.namespace: Invalid value: \"other\": \
                   Customizing namespace field is not supported";
    for (namespace, status, message) in [
        (json!("other"), "False", invalid),
        (json!("case"), "True", "Topology config create completed"),
        (json!(""), "True", "Topology config create completed"),
    ] {
        let mut cluster = Cluster::new();
        cluster.create(
            "Topology",
            json!({"apiVersion": "topology.openstack.org/v1beta1", "metadata": {"name": "zones"}, "spec": {}}),
        );
        let reference = json!({"name": "zones", "namespace": namespace});
        cluster.create(
            "OpenStackControlPlane",
            json!({"apiVersion": "core.openstack.org/v1beta1", "metadata": {"name": "plane"},
                "spec": {"secret": "osp-secret", "topologyRef": reference,
                    "glance": {"template": {"secret": "osp-secret", "databaseInstance": "openstack",
                        "storage": {"storageRequest": "1G"},
                        "glanceAPIs": {"default": {"type": "single", "replicas": 1}}}}}}),
        );
        cluster.settle(&json!({}));
        let told = topology_ready(&cluster, "OpenStackControlPlane", "plane");
        assert_eq!((&told["status"], &told["message"]), (&json!(status), &json!(message)), "{namespace}");
        assert_eq!(cluster.find("Glance", "glance").is_some(), status == "True", "{namespace}: a Glance");
    }
}
