//! Small clusters in trouble, built in code.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use stead_explain::outage::{Clock, Forecast, Way};
use stead_explain::{Explanation, explain};
use stead_model::{ObjectKey, Objects, UNREACHABLE};

use crate::complete::complete;

/// Everything is some seconds from here.
pub(crate) const BEGIN: &str = "2026-01-01T00:00:00Z";

/// A moment, in seconds from the beginning.
pub(crate) fn at(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "tests are no longer than that")]
    let length = SignedDuration::from_millis((seconds * 1000.0) as i64);
    BEGIN.parse::<Timestamp>().expect("a time") + length
}

/// The same as Kubernetes writes it.
pub(crate) fn text(seconds: f64) -> String {
    at(seconds.floor()).to_string()
}

/// A cluster.
#[derive(Clone)]
pub(crate) struct Situation {
    pub(crate) items: Vec<Value>,
    pub(crate) clock: Clock,
}

impl Situation {
    /// These nodes, each `name:zone`, all of them well.
    pub(crate) fn new(nodes: &[&str]) -> Situation {
        let mut out = Situation { items: Vec::new(), clock: Clock::at(at(0.0)) };
        for (name, zone) in nodes.iter().filter_map(|n| n.split_once(':')) {
            out.items.push(json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": { "name": name, "uid": format!("uid-{name}"),
                              "labels": { "zone": zone, "kubernetes.io/hostname": name } },
                "spec": {},
                "status": { "allocatable": { "cpu": "16", "memory": "64Gi", "pods": "110" },
                            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady",
                                             "lastHeartbeatTime": text(0.0), "lastTransitionTime": text(0.0) }] },
            }));
        }
        out
    }

    pub(crate) fn put(mut self, item: Value) -> Situation {
        self.items.push(item);
        self
    }

    /// The object of that kind and name, to be changed.
    pub(crate) fn of(&mut self, kind: &str, name: &str) -> &mut Value {
        let found = self.items.iter_mut().find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    pub(crate) fn change(mut self, kind: &str, name: &str, change: impl FnOnce(&mut Value)) -> Situation {
        change(self.of(kind, name));
        self
    }

    pub(crate) fn remove(mut self, kind: &str, name: &str) -> Situation {
        self.items.retain(|o| !(o["kind"] == kind && o["metadata"]["name"] == name));
        self
    }

    /// It is so late.
    pub(crate) fn now(mut self, seconds: f64) -> Situation {
        self.clock.now = at(seconds);
        self
    }

    /// A node was last heard of then, was found Unknown then, and its pods are being evicted since.
    pub(crate) fn silent(self, name: &str, heard: f64, unknown: f64) -> Situation {
        let message = "Kubelet stopped posting node status.";
        let mut out = self.change("Node", name, |node| {
            node["status"]["conditions"] = json!([{ "type": "Ready", "status": "Unknown", "message": message,
                "reason": "NodeStatusUnknown", "lastHeartbeatTime": text(heard), "lastTransitionTime": text(unknown) }]);
            node["spec"]["taints"] = json!([
                { "key": UNREACHABLE, "effect": "NoSchedule", "timeAdded": text(unknown) },
                { "key": UNREACHABLE, "effect": "NoExecute", "timeAdded": text(unknown) },
            ]);
        });
        // The node controller takes readiness from its pods.
        for pod in out.items.iter_mut().filter(|o| o["kind"] == "Pod" && o["spec"]["nodeName"] == name) {
            let conditions = pod["status"]["conditions"].as_array_mut().into_iter().flatten();
            for ready in conditions.filter(|c| c["type"] == "Ready" && c["status"] == "True") {
                ready["status"] = "False".into();
                ready["lastTransitionTime"] = text(unknown).into();
            }
        }
        out.put(lease(name, heard))
    }

    /// A controller, and the Deployment above it where it is a ReplicaSet.
    pub(crate) fn workload(self, kind: &str, name: &str) -> Situation {
        let version = if kind == "Job" { "batch/v1" } else { "apps/v1" };
        let replicas = if kind == "StatefulSet" { 3 } else { 1 };
        let mut object = json!({
            "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": "default" },
            "spec": { "replicas": replicas, "serviceName": name, "selector": { "matchLabels": { "app": name } },
                      "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [] } } },
        });
        if kind != "ReplicaSet" {
            return self.put(object);
        }
        object["metadata"]["ownerReferences"] = json!([owner("Deployment", "web")]);
        self.put(object)
    }

    pub(crate) fn deployment(self, strategy: &str) -> Situation {
        self.put(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "default" },
            "spec": { "replicas": 1, "strategy": { "type": strategy } },
        }))
    }

    /// A claim that is bound to a volume of a driver: in a zone and attached, on one node, or everywhere.
    pub(crate) fn claim(self, name: &str, sort: Storage, mode: &str) -> Situation {
        let (driver, attach, key) = match sort {
            Storage::Zone(_) => ("cinder.csi.openstack.org", true, "zone"),
            Storage::Node(_) => ("topolvm.io", false, "kubernetes.io/hostname"),
            Storage::Everywhere => ("net.csi.test", false, ""),
        };
        let value = match sort {
            Storage::Zone(v) | Storage::Node(v) => v,
            Storage::Everywhere => "",
        };
        let volume = format!("pv-{name}");
        let mut spec = json!({ "accessModes": [mode], "capacity": { "storage": "3Gi" },
            "claimRef": { "namespace": "default", "name": name },
            "csi": { "driver": driver, "volumeHandle": format!("disk-{name}") } });
        if !key.is_empty() {
            spec["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": key, "operator": "In", "values": [value] }] }] } });
        }
        let known = self.items.iter().any(|o| o["kind"] == "CSIDriver" && o["metadata"]["name"] == driver);
        let out = self
            .put(json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume },
                         "spec": spec, "status": { "phase": "Bound" } }))
            .put(json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
                         "metadata": { "name": name, "namespace": "default",
                                       "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
                         "spec": { "accessModes": [mode], "volumeName": volume,
                                   "resources": { "requests": { "storage": "3Gi" } } },
                         "status": { "phase": "Bound" } }));
        if known {
            return out;
        }
        out.put(json!({ "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": driver },
                        "spec": { "attachRequired": attach } }))
    }

    /// The volume of a claim is attached to a node since then, and mounted there.
    pub(crate) fn attached_at(self, claim: &str, node: &str, since: f64) -> Situation {
        let name = format!("csi-{claim}-{node}");
        let since = text(since);
        self.attached(claim, node)
            .change("VolumeAttachment", &name, |a| a["metadata"]["creationTimestamp"] = since.into())
    }

    /// The volume of a claim is attached to a node, and mounted there.
    pub(crate) fn attached(self, claim: &str, node: &str) -> Situation {
        let volume = format!("pv-{claim}");
        let unique = format!("kubernetes.io/csi/cinder.csi.openstack.org^disk-{claim}");
        self.change("Node", node, |n| n["status"]["volumesInUse"] = json!([unique])).put(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": { "name": format!("csi-{claim}-{node}") },
            "spec": { "attacher": "cinder.csi.openstack.org", "nodeName": node,
                      "source": { "persistentVolumeName": volume } },
            "status": { "attached": true },
        }))
    }

    /// An event about a pod.
    pub(crate) fn said(self, by: &str, pod: &str, reason: &str, message: &str, seconds: f64) -> Situation {
        let name = format!("{pod}.{:x}", self.items.len());
        let normal = matches!(reason, "TaintManagerEviction" | "Pulling");
        self.put(json!({
            "apiVersion": "v1", "kind": "Event", "metadata": { "name": name, "namespace": "default" },
            "involvedObject": { "kind": "Pod", "namespace": "default", "name": pod },
            "reason": reason, "message": message, "source": { "component": by },
            "type": if normal { "Normal" } else { "Warning" },
            "firstTimestamp": text(seconds), "lastTimestamp": text(seconds), "count": 1,
        }))
    }

    /// Its objects, with all that an API server and the controllers add.
    pub(crate) fn objects(&self) -> Objects {
        Objects::from_items(complete(self.items.clone()))
    }

    /// The kinds that were read: all.
    pub(crate) fn kinds() -> BTreeSet<String> {
        let kinds = [
            "Node",
            "Pod",
            "Lease",
            "Event",
            "PersistentVolume",
            "PersistentVolumeClaim",
            "StorageClass",
            "CSINode",
            "VolumeAttachment",
            "CSIDriver",
            "CSIStorageCapacity",
            "Namespace",
        ];
        kinds.into_iter().map(str::to_owned).collect()
    }

    /// Its time.
    pub(crate) fn clock(&self) -> Clock {
        Clock::new(&self.objects(), self.clock.now, self.clock.timers.clone())
    }

    pub(crate) fn explain(&self, pod: &str) -> Explanation {
        self.explain_without(pod, &[])
    }

    /// The same, where some kinds were not read.
    pub(crate) fn explain_without(&self, pod: &str, unread: &[&str]) -> Explanation {
        let key = ObjectKey::new("Pod", "default", pod);
        let kinds = Situation::kinds().into_iter().filter(|k| !unread.contains(&k.as_str())).collect();
        explain(&self.objects(), &key, &kinds, &self.clock()).expect("it can be explained")
    }

    pub(crate) fn forecast(&self, pod: &str, way: Way) -> Forecast {
        let explained = self.explain(pod);
        let found = explained.forecast.iter().find(|f| f.way == way).cloned();
        found.unwrap_or_else(|| panic!("{way:?} is not foreseen for {pod}: {explained:#?}"))
    }

    /// When the pod would be Ready on a way, in seconds from the beginning.
    pub(crate) fn ready(&self, pod: &str, way: Way) -> Option<f64> {
        self.forecast(pod, way).ready_at.map(|t| t.duration_since(at(0.0)).as_secs_f64())
    }
}

/// Where a volume can be used.
#[derive(Clone, Copy)]
pub(crate) enum Storage {
    /// In a zone, attached to one node at a time.
    Zone(&'static str),
    /// On one node.
    Node(&'static str),
    /// Everywhere, without being attached.
    Everywhere,
}

fn owner(kind: &str, name: &str) -> Value {
    let version = match kind {
        "Job" => "batch/v1",
        "Node" => "v1",
        _ => "apps/v1",
    };
    json!({ "apiVersion": version, "kind": kind, "name": name, "uid": format!("uid-{name}"), "controller": true })
}

/// A node's lease.
pub(crate) fn lease(node: &str, renewed: f64) -> Value {
    let renewed = at(renewed).strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": node, "namespace": "kube-node-lease" },
            "spec": { "leaseDurationSeconds": 40, "renewTime": renewed } })
}

/// A pod, by its parts.
#[derive(Clone)]
pub(crate) struct Pod(pub(crate) Value);

impl Pod {
    /// A pod of a controller (`Kind/name`, or nothing) that was made then.
    pub(crate) fn new(name: &str, of: &str, created: f64) -> Pod {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"),
                          "creationTimestamp": text(created), "labels": { "app": "x" } },
            "spec": { "containers": [{ "name": "c", "image": "i" }], "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                  "tolerationSeconds": 300 },
                { "key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            ] },
            "status": { "phase": "Pending", "conditions": [] },
        });
        if let Some((kind, name)) = of.split_once('/') {
            pod["metadata"]["ownerReferences"] = json!([owner(kind, name)]);
        }
        Pod(pod)
    }

    pub(crate) fn claim(mut self, claim: &str) -> Pod {
        self.0["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": claim } }]);
        self
    }

    /// It is on a node since then, and its containers are being made.
    pub(crate) fn on(mut self, node: &str, since: f64) -> Pod {
        self.0["spec"]["nodeName"] = node.into();
        self.0["status"]["startTime"] = text(since).into();
        self.0["status"]["conditions"] = json!([
            { "type": "PodScheduled", "status": "True", "lastTransitionTime": text(since) },
            { "type": "Ready", "status": "False", "lastTransitionTime": text(since) },
        ]);
        self.0["status"]["containerStatuses"] =
            json!([{ "name": "c", "ready": false, "state": { "waiting": { "reason": "ContainerCreating" } } }]);
        self
    }

    /// It runs since then and was ready so much later.
    pub(crate) fn ready(mut self, started: f64, ready: f64) -> Pod {
        self.0["status"]["phase"] = "Running".into();
        self.0["status"]["containerStatuses"] =
            json!([{ "name": "c", "ready": true, "state": { "running": { "startedAt": text(started) } } }]);
        let began = self.0["status"]["startTime"].clone();
        self.0["status"]["conditions"] = json!([
            { "type": "PodScheduled", "status": "True", "lastTransitionTime": began },
            { "type": "ContainersReady", "status": "True", "lastTransitionTime": text(ready) },
            { "type": "Ready", "status": "True", "lastTransitionTime": text(ready) },
        ]);
        self
    }

    /// Its deletion was asked for then, and it has 30 seconds.
    pub(crate) fn deleted(mut self, seconds: f64) -> Pod {
        self.0["metadata"]["deletionTimestamp"] = text(seconds + 30.0).into();
        self.0["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Value)) -> Pod {
        change(&mut self.0);
        self
    }
}
