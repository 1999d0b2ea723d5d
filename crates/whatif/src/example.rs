//! The clusters that are part of Stead: those of the field reports, before anything runs on them.

use serde_json::{Value, json};

/// A cluster that is part of Stead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExampleCluster {
    /// The name in `cluster.example`.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
}

/// All of them.
pub const EXAMPLES: [ExampleCluster; 4] = [
    ExampleCluster { name: "single-node", about: "one OpenShift node without zones, volumes on its local disk" },
    ExampleCluster {
        name: "seven-nodes",
        about: "three masters and four workers of OpenShift, not labelled with zones yet, volumes on local disks",
    },
    ExampleCluster {
        name: "two-zones",
        about: "two masters and four nodes on OpenStack, in two availability zones, with Cinder volumes",
    },
    ExampleCluster { name: "aws", about: "five nodes on AWS, in one availability zone, with EBS volumes" },
];

/// The objects of an example; none if there is no such example.
pub(crate) fn example(name: &str) -> Option<Vec<Value>> {
    match name {
        "single-node" => Some(local_volumes(vec![openshift_node("crc", true)])),
        "seven-nodes" => {
            let masters = (0..3).map(|i| openshift_node(&format!("master-{i}"), true));
            let workers = (0..4).map(|i| openshift_node(&format!("worker-{i}"), false));
            Some(local_volumes(masters.chain(workers).collect()))
        }
        "two-zones" => Some(cinder()),
        "aws" => Some(aws()),
        _ => None,
    }
}

fn node(name: &str, labels: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels } })
}

fn openshift_node(name: &str, is_master: bool) -> Value {
    let mut labels = json!({ "node-role.kubernetes.io/worker": "", "topology.topolvm.io/node": name });
    if is_master {
        labels["node-role.kubernetes.io/control-plane"] = "".into();
        labels["node-role.kubernetes.io/master"] = "".into();
    }
    node(name, labels)
}

fn name_of(node: &Value) -> &str {
    node["metadata"]["name"].as_str().unwrap_or_default()
}

/// A driver on every node, and whether its volumes are attached.
fn with_driver(mut objects: Vec<Value>, driver: &str, attach: bool, topology: &str) -> Vec<Value> {
    let csi_node = |node: &Value| {
        let name = name_of(node);
        let entry = json!({ "name": driver, "nodeID": name, "topologyKeys": [topology] });
        json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": name },
            "spec": { "drivers": [entry] } })
    };
    let nodes: Vec<Value> = objects.iter().map(csi_node).collect();
    objects.extend(nodes);
    objects.push(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": driver },
        "spec": { "attachRequired": attach } }));
    objects
}

/// LVM volumes on the disks of the nodes.
fn local_volumes(nodes: Vec<Value>) -> Vec<Value> {
    let mut objects = with_driver(nodes, "topolvm.io", false, "topology.topolvm.io/node");
    objects.push(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": "lvms-local-storage",
            "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } },
        "provisioner": "topolvm.io", "reclaimPolicy": "Delete", "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": true }));
    objects
}

fn cinder() -> Vec<Value> {
    let region = "failure-domain.beta.kubernetes.io/region";
    let machine = |(name, zone): (&str, &str)| {
        let mut object = node(
            name,
            json!({ region: "de-nbg6-1", "topology.kubernetes.io/region": "de-nbg6-1",
                "topology.kubernetes.io/zone": zone, "topology.cinder.csi.openstack.org/zone": zone }),
        );
        let role = if name.starts_with("master") { "control-plane" } else { "node" };
        object["metadata"]["labels"][format!("node-role.kubernetes.io/{role}")] = "".into();
        if role == "control-plane" {
            let taint = json!({ "key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule" });
            object["spec"]["taints"] = json!([taint]);
        }
        object
    };
    let (a, b) = ("de-nbg6-1a", "de-nbg6-1b");
    let nodes = [
        ("master-1-nude", a),
        ("master-2-nude", b),
        ("node-1-nude", b),
        ("node-2-nude", b),
        ("node-3-nude", a),
        ("node-4-nude", a),
    ];
    let zone = "topology.cinder.csi.openstack.org/zone";
    let mut objects = with_driver(nodes.map(machine).to_vec(), "cinder.csi.openstack.org", true, zone);
    objects.push(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": { "name": "default-de-nbg6-1a" }, "provisioner": "cinder.csi.openstack.org",
        "parameters": { "availability": a }, "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{ "matchLabelExpressions": [{ "key": zone, "values": [a] }] }] }));
    objects
}

fn aws() -> Vec<Value> {
    let zone = "topology.ebs.csi.aws.com/zone";
    let machine = |address: &str| {
        let name = format!("ip-{}.ec2.internal", address.replace('.', "-"));
        let mut object = node(&name, json!({ "topology.kubernetes.io/zone": "us-east-1d", zone: "us-east-1d" }));
        object["status"]["addresses"] = json!([{ "type": "InternalIP", "address": address }]);
        object
    };
    let addresses = ["172.18.7.126", "172.18.6.186", "172.18.2.177", "172.18.3.111", "172.18.9.66"];
    let mut objects = with_driver(addresses.map(machine).to_vec(), "ebs.csi.aws.com", true, zone);
    objects.push(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "gp2" },
        "provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer" }));
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_has_objects() {
        for listed in EXAMPLES {
            let objects = example(listed.name).unwrap_or_default();
            assert!(objects.iter().any(|object| object["kind"] == "Node"), "{}", listed.name);
        }
        assert!(example("other").is_none());
    }
}
