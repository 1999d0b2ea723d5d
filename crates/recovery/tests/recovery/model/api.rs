//! Reads from and writes to the simulated API server.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stead_model::{ObjectKey, Objects};
use stead_recovery::{ANNOTATION, RecoveryWrite};

use super::world::{NOT_REVOKING, Node, Pod, REVOKING, Ready, World, at};

/// The objects as read so far: only changes since then are converted again.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) objects: Objects,
    /// The turn and the tick in which everything except nodes was read.
    pub(crate) at: u64,
    tick: u32,
    nodes: Vec<(u64, i64, u32, bool, bool)>,
    pods: Vec<Pod>,
    attachments: Vec<(Option<usize>, bool)>,
    records: BTreeMap<String, Value>,
}

impl World {
    /// Reads everything that a step needs: nodes and Leases last; the other objects may be from an older read.
    pub(crate) fn refresh(&mut self) {
        let mut read = std::mem::take(&mut self.read);
        let fresh =
            read.at == 0 || self.faults_over || self.tick > read.tick + 3 || !self.chance.percent(self.setting.stale);
        if fresh {
            if read.at == 0 {
                self.fixed_objects().into_iter().for_each(|object| put(&mut read.objects, object));
            }
            self.read_rest(&mut read);
            (read.at, read.tick) = (self.turn, self.tick);
        }
        read.nodes.resize(self.nodes.len(), (0, 0, 0, false, false));
        for (node, known) in self.nodes.iter().zip(&mut read.nodes) {
            let now = (node.version, node.lease, node.lease_written, self.faults_over, node.gone.is_some());
            if *known == now {
                continue;
            }
            *known = now;
            if node.gone.is_some() {
                read.objects.remove(&ObjectKey::new("Node", "", &node.name));
                read.objects.remove(&ObjectKey::new("Lease", "kube-node-lease", &node.name));
            } else {
                put(&mut read.objects, self.node(node));
                put(&mut read.objects, lease(node));
            }
        }
        self.read = read;
    }

    fn driver(&self) -> &'static str {
        if self.setting.not_revoking { NOT_REVOKING } else { REVOKING }
    }

    /// Objects that never change.
    fn fixed_objects(&self) -> Vec<Value> {
        let volumes = (0..self.volumes.len()).flat_map(|v| {
            let volume = json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("v{v}") },
                "spec": {
                    "csi": { "driver": self.driver(), "volumeHandle": format!("v{v}") }, "accessModes": ["ReadWriteOnce"],
                    "claimRef": { "namespace": "x", "name": format!("c{v}") },
                },
            });
            let claim = json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": { "name": format!("c{v}"), "namespace": "x",
                              "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
                "spec": { "volumeName": format!("v{v}"), "accessModes": ["ReadWriteOnce"] },
                "status": { "phase": "Bound" },
            });
            [volume, claim]
        });
        let sets = self.sets.iter().map(|set| {
            json!({
                "apiVersion": "apps/v1", "kind": kind(set.stateful),
                "metadata": { "name": set.name, "namespace": "x", "uid": set.name },
                "spec": { "replicas": set.volumes.len(), "selector": { "matchLabels": { "app": set.name } } },
            })
        });
        volumes.chain(sets).collect()
    }

    /// Reads pods, attachments and records.
    fn read_rest(&self, read: &mut Read) {
        let objects = &mut read.objects;
        for pod in read.pods.iter().filter(|old| !self.pods.iter().any(|p| p.name == old.name)) {
            objects.remove(&ObjectKey::new("Pod", "x", &pod.name));
        }
        for pod in self.pods.iter().filter(|pod| !read.pods.contains(pod)) {
            put(objects, self.pod(pod));
        }
        read.pods.clone_from(&self.pods);
        read.attachments.resize(self.volumes.len(), (None, false));
        for (v, (volume, known)) in self.volumes.iter().zip(&mut read.attachments).enumerate() {
            if *known == (volume.at, volume.error) {
                continue;
            }
            *known = (volume.at, volume.error);
            let name = format!("va{v}");
            let Some(n) = volume.at else {
                objects.remove(&ObjectKey::new("VolumeAttachment", "", &name));
                continue;
            };
            let error = volume.error.then(|| json!({ "message": "disk is busy" }));
            put(
                objects,
                json!({
                    "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
                    "metadata": { "name": name, "uid": name },
                    "spec": { "attacher": self.driver(), "nodeName": format!("n{n}"),
                              "source": { "persistentVolumeName": format!("v{v}") } },
                    "status": { "attached": true, "detachError": error },
                }),
            );
        }
        for (name, record) in &self.records {
            let version = &record["metadata"]["resourceVersion"];
            if read.records.get(name) != Some(version) {
                read.records.insert(name.clone(), version.clone());
                put(objects, record.clone());
            }
        }
    }

    fn node(&self, node: &Node) -> Value {
        let ready = match node.ready {
            Ready::True => "True",
            Ready::False => "False",
            Ready::Unknown => "Unknown",
        };
        let slots = if self.faults_over { 10 } else { self.setting.slots };
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": node.name, "uid": format!("{}-{}", node.name, node.registered), "resourceVersion": node.version.to_string(),
                "labels": { "zone": node.zone, "kubernetes.io/hostname": node.name },
                "annotations": node.mark.as_ref().map(|mark| json!({ ANNOTATION: mark })),
                "managedFields": [{ "manager": node.taints_by.0, "operation": "Update",
                    "time": at(i64::from(node.taints_by.1) * 10).to_string(), "fieldsV1": { "f:spec": { "f:taints": {} } } }],
            },
            "spec": { "taints": node.taints, "providerID": format!("openstack:///{}", node.name) },
            "status": {
                "conditions": [{
                    "type": "Ready", "status": ready, "lastTransitionTime": at(i64::from(node.since) * 10).to_string(),
                    "lastHeartbeatTime": at(node.heartbeat).to_string(),
                }],
                "nodeInfo": { "bootID": format!("boot-{}", node.boot) },
                "allocatable": { "pods": slots.to_string() },
                "volumesInUse": node.in_use.iter().map(|v| format!("kubernetes.io/csi/{}^v{v}", self.driver())).collect::<Vec<_>>(),
            },
        })
    }

    fn pod(&self, pod: &Pod) -> Value {
        let set = &self.sets[pod.set];
        let volumes: Vec<Value> = pod
            .volume
            .map(|v| json!({ "name": "data", "persistentVolumeClaim": { "claimName": format!("c{v}") } }))
            .into_iter()
            .collect();
        let mut value = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": pod.name, "namespace": "x", "uid": pod.uid, "resourceVersion": pod.version.to_string(),
                "labels": { "app": set.name },
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": kind(set.stateful), "name": set.name, "uid": set.name, "controller": true }],
            },
            "spec": { "containers": [{ "name": "c", "image": "i" }], "tolerations": pod.tolerations, "volumes": volumes },
            "status": {
                "phase": if pod.failed { "Failed" } else { "Running" },
                "conditions": [{ "type": "Ready", "status": if pod.ready { "True" } else { "False" } }],
            },
        });
        if let Some(n) = pod.node {
            value["spec"]["nodeName"] = format!("n{n}").into();
        }
        if let Some(tick) = pod.deleted {
            value["metadata"]["deletionTimestamp"] = at(i64::from(tick) * 10).to_string().into();
        }
        if pod.finalizer {
            value["metadata"]["finalizers"] = json!(["example.com/keep"]);
        }
        value
    }

    /// Executes a write that was decided on data of the turn `read`. Returns whether the API server accepted it.
    pub(crate) fn write(&mut self, write: &RecoveryWrite, who: &str, read: u64) -> bool {
        match write {
            RecoveryWrite::Record(record) => {
                let name = record.name().to_owned();
                let has = |value: &Value| value["metadata"]["resourceVersion"].clone();
                let held = self.records.get(&name).map_or(Value::Null, has);
                if held != record.metadata.get("resourceVersion").cloned().unwrap_or_default() {
                    return false;
                }
                let mut value = serde_json::to_value(record).unwrap();
                value["metadata"]["resourceVersion"] = self.version().to_string().into();
                self.trace(|| format!("{who} writes {name}: {:?} {}", record.status.phase, record.status.message));
                self.check_record(record, read);
                self.records.insert(name, value);
            }
            RecoveryWrite::Node { name, patch, what } => {
                let n = self.nodes.iter().position(|n| n.name == *name).unwrap();
                if self.nodes[n].gone.is_some() || stale(&patch["metadata"], self.nodes[n].version) {
                    return false;
                }
                self.trace(|| format!("{who} patches {name}: {what}"));
                let mark = patch["metadata"]["annotations"][ANNOTATION].as_str().map(str::to_owned);
                self.check_patch(n, mark.as_deref(), read);
                let (version, tick) = (self.version(), self.tick);
                let node = &mut self.nodes[n];
                if let Some(taints) = patch["spec"]["taints"].as_array().filter(|taints| **taints != node.taints) {
                    node.taints.clone_from(taints);
                    node.taints_by = ("stead", tick);
                }
                node.mark = mark;
                node.version = version;
                self.check_limits();
            }
            RecoveryWrite::Pod { name, patch, what, .. } => {
                let (version, turn) = (self.version(), self.turn);
                let Some(pod) = self.pods.iter_mut().find(|p| p.name == *name) else { return false };
                if patch["metadata"]["uid"] != *pod.uid || stale(&patch["metadata"], pod.version) {
                    return false;
                }
                pod.tolerate(patch["spec"]["tolerations"].as_array().unwrap().clone());
                (pod.version, pod.patched) = (version, turn);
                self.trace(|| format!("{who} patches {name}: {what}"));
            }
            RecoveryWrite::DeletePod { name, uid, resource_version, .. } => {
                let (version, tick) = (self.version(), self.tick);
                let Some(pod) = self.pods.iter_mut().find(|p| p.name == *name) else { return false };
                let changed = !resource_version.is_empty() && *resource_version != pod.version.to_string();
                if (!uid.is_empty() && *uid != pod.uid) || changed {
                    return false;
                }
                pod.deleted.get_or_insert(tick);
                pod.deleted_by_recoverer = true;
                pod.version = version;
                let uid = pod.uid.clone();
                self.trace(|| format!("{who} deletes {name}, {uid}"));
                self.check_deleted(&uid);
            }
        }
        true
    }
}

fn put(objects: &mut Objects, object: Value) {
    let key = ObjectKey::of(&object).expect("it has kind and name");
    objects.insert(key, object);
}

fn lease(node: &Node) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "name": node.name, "namespace": "kube-node-lease", "managedFields": [
            { "manager": "kubelet", "time": at(i64::from(node.lease_written) * 10).to_string() }] },
        "spec": { "renewTime": at(node.lease).to_string(), "leaseDurationSeconds": 40 },
    })
}

fn stale(metadata: &Value, version: u64) -> bool {
    metadata["resourceVersion"].as_str().is_some_and(|v| v != version.to_string())
}

fn kind(stateful: bool) -> &'static str {
    if stateful { "StatefulSet" } else { "ReplicaSet" }
}
