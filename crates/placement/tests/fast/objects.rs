//! Random nodes and pods that cover all features of the fast path.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node as RawNode, Pod as RawPod};
use serde_json::{Map, Value, json};
use stead_placement::Snapshot;

use crate::rng::Rng;

const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const NAMESPACES: [&str; 3] = ["default", "blue", "green"];
const APPS: [&str; 4] = ["web", "db", "cache", "batch"];
const IMAGES: [(&str, i64); 3] = [("web:1", 300), ("db:2", 900), ("cache:latest", 40)];

pub(crate) struct Objects {
    pub(crate) rng: Rng,
    /// Whether pods have nominated nodes: then the reference path is used.
    pub(crate) promises: bool,
    /// For unique names.
    count: u64,
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of the API")
}

impl Objects {
    pub(crate) fn new(mut rng: Rng) -> Objects {
        Objects { promises: rng.chance(10), rng, count: 0 }
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Namespaces, services, owners and volumes.
    pub(crate) fn surroundings(&mut self) -> Snapshot {
        let mut services = Vec::new();
        for _ in 0..self.rng.below(3) {
            let selector = json!({"app": self.rng.pick(&APPS)});
            let meta = json!({"name": format!("s{}", self.number()), "namespace": self.namespace()});
            services.push(json!({"metadata": meta, "spec": {"selector": selector}}));
        }
        let replica_set = json!({
            "metadata": {"name": "rs", "namespace": "default"},
            "spec": {"selector": {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}]}},
        });
        let zones = json!([{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a", "b"]}]}]);
        let volume = json!({
            "metadata": {"name": "v"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                "claimRef": {"namespace": "default", "name": "data"}, "local": {"path": "/v"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": zones}},
            },
            "status": {"phase": "Bound"},
        });
        let claim = json!({
            "metadata": {
                "name": "data", "namespace": "default",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {
                "volumeName": "v", "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Bound"},
        });
        object(json!({
            "namespaces": [
                {"metadata": {"name": "default", "labels": {"team": "x"}}},
                {"metadata": {"name": "blue", "labels": {"team": "y"}}},
            ],
            "services": services,
            "replicaSets": [replica_set],
            "persistentVolumes": [volume],
            "persistentVolumeClaims": [claim],
        }))
    }

    fn namespace(&mut self) -> &'static str {
        self.rng.pick(&NAMESPACES)
    }

    // Nodes

    pub(crate) fn node(&mut self) -> RawNode {
        // Names are not in the order of creation, so that slots and names have different orders.
        let name = format!("n{}", self.rng.below(40));
        let mut node = object(json!({"metadata": {"name": name}, "spec": {}, "status": {}}));
        self.fill_node(&mut node);
        node
    }

    /// Changes one thing about a node, or nothing.
    pub(crate) fn change_node(&mut self, node: &mut RawNode) {
        let mut other = node.clone();
        self.fill_node(&mut other);
        match self.rng.below(6) {
            0 => node.metadata.labels = other.metadata.labels,
            1 => node.spec.get_or_insert_default().taints = other.spec.and_then(|s| s.taints),
            2 => {
                let spec = node.spec.get_or_insert_default();
                spec.unschedulable = Some(spec.unschedulable != Some(true));
            }
            3 => node.status.get_or_insert_default().images = other.status.and_then(|s| s.images),
            4 => node.status.get_or_insert_default().allocatable = other.status.and_then(|s| s.allocatable),
            _ => {}
        }
    }

    fn fill_node(&mut self, node: &mut RawNode) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let mut labels = Map::new();
        if self.rng.chance(90) {
            labels.insert(HOSTNAME.into(), name.clone().into());
        }
        if self.rng.chance(85) {
            labels.insert(ZONE.into(), (self.rng.pick(&["a", "b", "c", ""])).into());
        }
        if self.rng.chance(60) {
            labels.insert("disk".into(), (self.rng.pick(&["ssd", "hdd"])).into());
        }
        if self.rng.chance(50) {
            labels.insert("generation".into(), self.rng.below(5).to_string().into());
        }
        let mut taints = Vec::new();
        for (effect, percent) in [("NoSchedule", 15), ("PreferNoSchedule", 25), ("NoExecute", 5)] {
            if self.rng.chance(percent) {
                taints.push(json!({"key": self.rng.pick(&["dedicated", "old"]), "value": "x", "effect": effect}));
            }
        }
        let mut images = Vec::new();
        for (name, mb) in IMAGES {
            if self.rng.chance(40) {
                images.push(json!({"names": [name], "sizeBytes": mb * 1024 * 1024}));
            }
        }
        let mut allocatable = json!({
            "cpu": self.rng.pick(&["500m", "1", "2", "4", "8"]),
            "memory": self.rng.pick(&["512Mi", "1Gi", "4Gi", "8Gi"]),
            "pods": self.rng.between(2, 20).to_string(),
        });
        if self.rng.chance(40) {
            allocatable["ephemeral-storage"] = json!("10Gi");
        }
        if self.rng.chance(30) {
            allocatable["example.com/gpu"] = json!(self.rng.between(0, 3).to_string());
        }
        if self.rng.chance(3) {
            allocatable["memory"] = json!("0");
        }
        let features: &[&str] = if self.rng.chance(30) { &["UserNamespacesHostNetworkSupport"] } else { &[] };
        *node = object(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": self.rng.chance(8)},
            "status": {"allocatable": allocatable, "images": images, "declaredFeatures": features},
        }));
    }

    // Pods

    /// A pod to place.
    pub(crate) fn pod(&mut self) -> RawPod {
        let number = self.number();
        let mut spec = Map::new();
        let containers: Vec<Value> = (0..self.rng.between(1, 2)).map(|i| self.container(i)).collect();
        spec.insert("containers".into(), containers.into());
        if self.rng.chance(10) {
            spec.insert("initContainers".into(), json!([self.container(9)]));
        }
        if self.rng.chance(25) {
            spec.insert("tolerations".into(), self.tolerations());
        }
        if self.rng.chance(10) {
            spec.insert("nodeSelector".into(), json!({"disk": self.rng.pick(&["ssd", "hdd"])}));
        }
        if self.rng.chance(60) {
            spec.insert("affinity".into(), self.affinity());
        }
        if self.rng.chance(50) {
            let constraints: Vec<Value> = (0..self.rng.between(1, 3)).map(|_| self.spread_constraint()).collect();
            spec.insert("topologySpreadConstraints".into(), constraints.into());
        }
        if self.rng.chance(4) {
            spec.insert("hostNetwork".into(), true.into());
            spec.insert("hostUsers".into(), false.into());
        }
        if self.rng.chance(6) {
            let claim = if self.rng.chance(80) { "data" } else { "missing" };
            spec.insert("volumes".into(), json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]));
        }
        spec.insert("priority".into(), self.rng.below(3).into());
        let mut meta =
            json!({"name": format!("p{number}"), "namespace": self.namespace(), "labels": self.labels(number)});
        if self.rng.chance(30) {
            meta["ownerReferences"] =
                json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "u", "controller": true}]);
        }
        object(json!({"metadata": meta, "spec": spec}))
    }

    /// A pod on a node, which may not have enough room or may not exist.
    pub(crate) fn bound_pod(&mut self, nodes: &BTreeMap<String, RawNode>) -> RawPod {
        let mut pod = self.pod();
        let node = match self.rng.pick_from(nodes.keys()) {
            Some(name) if self.rng.chance(95) => name.clone(),
            _ => format!("n{}", self.rng.below(40)),
        };
        let spec = pod.spec.get_or_insert_default();
        spec.node_name = Some(node);
        // When one of two pods with the same port is removed, kube-scheduler regards the port as free, so the free
        // ports would depend on the order of events.
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            container.ports = None;
        }
        if self.rng.chance(10) {
            self.terminate(&mut pod);
        }
        pod
    }

    /// A pod without a node, but with a nominated node.
    pub(crate) fn nominated_pod(&mut self, nodes: &BTreeMap<String, RawNode>) -> RawPod {
        let mut pod = self.pod();
        pod.status.get_or_insert_default().nominated_node_name = self.rng.pick_from(nodes.keys()).cloned();
        pod
    }

    pub(crate) fn terminate(&mut self, pod: &mut RawPod) {
        let ended = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        pod.metadata.deletion_timestamp = object(ended["deletionTimestamp"].clone());
    }

    fn labels(&mut self, number: u64) -> Value {
        let mut labels = json!({"app": self.rng.pick(&APPS)});
        if self.rng.chance(60) {
            labels["tier"] = json!(self.rng.pick(&["a", "b", "c"]));
        }
        if self.rng.chance(33) {
            labels["pod"] = json!(number.to_string());
        }
        labels
    }

    fn container(&mut self, i: u64) -> Value {
        let mut requests = Map::new();
        if self.rng.chance(75) {
            requests.insert("cpu".into(), (self.rng.pick(&["50m", "100m", "250m", "700m", "1"])).into());
        }
        if self.rng.chance(70) {
            requests.insert("memory".into(), (self.rng.pick(&["64Mi", "128Mi", "300Mi", "1Gi"])).into());
        }
        if self.rng.chance(10) {
            requests.insert("example.com/gpu".into(), "1".into());
        }
        if self.rng.chance(10) {
            requests.insert("ephemeral-storage".into(), "2Gi".into());
        }
        let mut ports = Vec::new();
        if self.rng.chance(12) {
            let port = self.rng.between(8080, 8081);
            let ip = self.rng.pick(&["", "10.0.0.1", "10.0.0.2"]);
            ports.push(json!({"containerPort": port, "hostPort": port, "hostIP": ip}));
        }
        let image = self.rng.pick(&["web:1", "db:2", "cache", "other"]);
        json!({"name": format!("c{i}"), "image": image, "resources": {"requests": requests}, "ports": ports})
    }

    fn tolerations(&mut self) -> Value {
        match self.rng.below(5) {
            0 => json!([{"operator": "Exists"}]),
            1 => json!([{"key": "dedicated", "operator": "Equal", "value": "x"}]),
            2 => json!([{"key": "old", "operator": "Exists", "effect": "PreferNoSchedule"}]),
            3 => json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]),
            _ => json!([{"key": "old", "operator": "Exists"}, {"key": "dedicated", "value": "y"}]),
        }
    }

    fn node_term(&mut self) -> Value {
        let expression = match self.rng.below(5) {
            0 => json!({"key": "disk", "operator": "In", "values": ["ssd"]}),
            1 => json!({"key": ZONE, "operator": "NotIn", "values": ["c"]}),
            2 => json!({"key": "generation", "operator": "Gt", "values": ["1"]}),
            3 => json!({"key": "disk", "operator": "Exists"}),
            _ => json!({"key": "generation", "operator": "DoesNotExist"}),
        };
        json!({"matchExpressions": [expression]})
    }

    fn affinity(&mut self) -> Value {
        let mut node = Map::new();
        if self.rng.chance(15) {
            let name = |rng: &mut Rng| json!({"key": "metadata.name", "operator": "In", "values": [format!("n{}", rng.below(40))]});
            let terms = match self.rng.below(4) {
                0 => vec![json!({"matchFields": [name(&mut self.rng)]}), json!({"matchFields": [name(&mut self.rng)]})],
                1 => vec![self.node_term(), json!({"matchFields": [name(&mut self.rng)]})],
                _ => vec![self.node_term()],
            };
            node.insert("requiredDuringSchedulingIgnoredDuringExecution".into(), json!({"nodeSelectorTerms": terms}));
        }
        if self.rng.chance(20) {
            let terms: Vec<Value> = (0..self.rng.between(1, 2))
                .map(|_| json!({"weight": self.rng.between(1, 100), "preference": self.node_term()}))
                .collect();
            node.insert("preferredDuringSchedulingIgnoredDuringExecution".into(), terms.into());
        }
        json!({"nodeAffinity": node, "podAffinity": self.pod_terms(15), "podAntiAffinity": self.pod_terms(25)})
    }

    fn pod_terms(&mut self, percent: u64) -> Value {
        let mut out = Map::new();
        if self.rng.chance(percent) {
            let terms: Vec<Value> = (0..self.rng.between(1, 2)).map(|_| self.pod_term()).collect();
            out.insert("requiredDuringSchedulingIgnoredDuringExecution".into(), terms.into());
        }
        if self.rng.chance(percent) {
            let terms: Vec<Value> = (0..self.rng.between(1, 2))
                .map(|_| json!({"weight": self.rng.between(1, 100), "podAffinityTerm": self.pod_term()}))
                .collect();
            out.insert("preferredDuringSchedulingIgnoredDuringExecution".into(), terms.into());
        }
        out.into()
    }

    fn pod_term(&mut self) -> Value {
        let mut term = json!({"topologyKey": self.rng.pick(&[HOSTNAME, HOSTNAME, ZONE, "disk"])});
        if let Some(selector) = self.selector() {
            term["labelSelector"] = selector;
        }
        if self.rng.chance(20) {
            term["namespaces"] = json!([self.namespace()]);
        }
        if self.rng.chance(25) {
            term["namespaceSelector"] = match self.rng.below(4) {
                0 => json!({}),
                1 => json!({"matchLabels": {"team": "y"}}),
                2 => json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["x"]}]}),
                _ => json!({"matchLabels": {"team": "nobody"}}),
            };
        }
        term
    }

    fn selector(&mut self) -> Option<Value> {
        Some(match self.rng.below(12) {
            0 => return None,
            1 => json!({}),
            2 => json!({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
            3 => json!({"matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["a"]}]}),
            4 => json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db", "web"]}]}),
            5 => json!({"matchLabels": {"app": self.rng.pick(&APPS), "tier": "a"}}),
            6 => json!({"matchExpressions": [{"key": "pod", "operator": "DoesNotExist"}]}),
            _ => json!({"matchLabels": {"app": self.rng.pick(&APPS)}}),
        })
    }

    fn spread_constraint(&mut self) -> Value {
        let mut c = json!({
            "maxSkew": self.rng.between(1, 3),
            "topologyKey": self.rng.pick(&[HOSTNAME, ZONE, ZONE, "disk"]),
            "whenUnsatisfiable": self.rng.pick(&["DoNotSchedule", "ScheduleAnyway", "ScheduleAnyway"]),
        });
        if let Some(selector) = self.selector() {
            c["labelSelector"] = selector;
            if self.rng.chance(20) {
                c["matchLabelKeys"] = json!(["tier"]);
            }
        }
        if c["whenUnsatisfiable"] == "DoNotSchedule" && self.rng.chance(25) {
            c["minDomains"] = json!(self.rng.between(1, 5));
        }
        if self.rng.chance(30) {
            c["nodeAffinityPolicy"] = json!(self.rng.pick(&["Honor", "Ignore"]));
        }
        if self.rng.chance(30) {
            c["nodeTaintsPolicy"] = json!(self.rng.pick(&["Honor", "Ignore"]));
        }
        c
    }
}
