//! Objects as the API server, the controllers, the kubelet and storage drivers write them.
//!
//! The shapes follow recordings of the control plane of Kubernetes 1.36.4 and of its kubelet.

use serde_json::{Value, json};

use crate::cluster::FaultyCluster;

/// Seconds of a day: the age of what has been there for long.
pub(crate) const DAY: i64 = 86_400;

/// Who controls an object.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    uid: String,
}

impl Owner {
    pub(crate) fn of(kind: &'static str, object: &Value) -> Owner {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        Owner { kind, name: text("name"), uid: text("uid") }
    }

    fn reference(&self) -> Value {
        let version = match self.kind {
            "Job" | "CronJob" => "batch/v1",
            "Node" => "v1",
            _ => "apps/v1",
        };
        json!([{ "apiVersion": version, "kind": self.kind, "name": self.name, "uid": self.uid, "controller": true,
            "blockOwnerDeletion": true }])
    }
}

/// `kind/NAMESPACE/NAME`, as triage reports it.
pub(crate) fn reference(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text(&object["kind"]).to_lowercase(), text(&object["metadata"]["name"]));
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{kind}/{namespace}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

impl FaultyCluster {
    /// An object with the metadata that the API server sets. The namespace is empty for a cluster-scoped object.
    pub(crate) fn object(&mut self, version: &str, kind: &str, namespace: &str, name: &str, age: i64) -> Value {
        let serial = self.serial();
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": {
            "name": name, "uid": format!("{serial:08x}-0000-4000-8000-{serial:012x}"),
            "resourceVersion": format!("{}", 1000 + serial), "creationTimestamp": self.ago(age) } });
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        object
    }

    /// A healthy node, its lease and its CSINode.
    pub(crate) fn add_node(&mut self, name: &str, zone: &str) -> Value {
        let mut node = self.object("v1", "Node", "", name, 30 * DAY);
        node["metadata"]["labels"] = json!({ "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": zone });
        let sizes = json!({ "cpu": "16", "memory": "64Gi", "pods": "250", "ephemeral-storage": "100Gi" });
        let condition = |kind: &str, status: &str, reason: &str, message: &str| {
            json!({ "type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": self.ago(100), "lastTransitionTime": self.ago(20 * DAY) })
        };
        node["spec"] = json!({ "providerID": format!("sim://{name}") });
        node["status"] = json!({ "capacity": sizes, "allocatable": sizes,
            "addresses": [{ "type": "Hostname", "address": name }],
            "nodeInfo": { "kubeletVersion": "v1.36.4", "architecture": "amd64", "operatingSystem": "linux",
                "bootID": format!("boot-{name}"), "machineID": "", "systemUUID": "", "kernelVersion": "6.12",
                "osImage": "", "containerRuntimeVersion": "containerd://2.1", "kubeProxyVersion": "" },
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ] });
        node
    }

    /// A kubelet's lease.
    pub(crate) fn add_lease(&mut self, node: &str, renewed_ago: i64) {
        let mut lease = self.object("coordination.k8s.io/v1", "Lease", "kube-node-lease", node, 30 * DAY);
        let renewed = self.ago(renewed_ago).replace('Z', ".250000Z");
        lease["spec"] = json!({ "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": renewed });
        self.add(lease);
    }

    /// The drivers that are registered on a node.
    pub(crate) fn add_csi_node(&mut self, node: &str, drivers: &[&str]) {
        let mut object = self.object("storage.k8s.io/v1", "CSINode", "", node, 30 * DAY);
        let drivers: Vec<Value> =
            drivers.iter().map(|name| json!({ "name": name, "nodeID": node, "topologyKeys": [] })).collect();
        object["spec"] = json!({ "drivers": drivers });
        self.add(object);
    }

    /// The spec of a pod as admission leaves it.
    pub(crate) fn pod_spec(&mut self) -> Value {
        let token = format!("kube-api-access-{}", self.suffix(5));
        json!({ "containers": [{ "name": "app", "image": "registry.example/app:1", "imagePullPolicy": "IfNotPresent",
                "resources": { "requests": { "cpu": "10m", "memory": "16Mi" } },
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                "volumeMounts": [{ "name": token, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true }] }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0, "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
            "serviceAccount": "default", "serviceAccountName": "default", "terminationGracePeriodSeconds": 30,
            "tolerations": [
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }],
            "volumes": [{ "name": token, "projected": { "defaultMode": 420, "sources": [
                { "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } }] } }] })
    }

    /// A pod that was just created: Pending, without a node.
    pub(crate) fn pod(&mut self, namespace: &str, name: &str, owner: Option<&Owner>, spec: Value, age: i64) -> Value {
        let mut pod = self.object("v1", "Pod", namespace, name, age);
        pod["metadata"]["labels"] = json!({ "app": name.rsplit_once('-').map_or(name, |(app, _)| app) });
        if let Some(owner) = owner {
            pod["metadata"]["ownerReferences"] = owner.reference();
            pod["metadata"]["labels"]["app"] = owner.name.as_str().into();
        }
        pod["spec"] = spec;
        pod["status"] = json!({ "phase": "Pending", "qosClass": "Burstable" });
        pod
    }

    /// A condition of a pod.
    pub(crate) fn condition(&self, kind: &str, status: &str, since: i64) -> Value {
        json!({ "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": self.ago(since) })
    }

    /// kube-scheduler could not place a pod.
    pub(crate) fn unschedulable(&mut self, pod: &mut Value, message: &str, since: i64) {
        let mut condition = self.condition("PodScheduled", "False", since);
        condition["reason"] = "Unschedulable".into();
        condition["message"] = message.into();
        pod["status"]["conditions"] = json!([condition]);
        self.event_of_scheduler(pod, message);
    }

    /// kube-scheduler has placed a pod, and the kubelet has not started it.
    pub(crate) fn creating(&self, pod: &mut Value, node: &str, since: i64) {
        pod["spec"]["nodeName"] = node.into();
        let mut unready = self.condition("Ready", "False", since);
        unready["reason"] = "ContainersNotReady".into();
        unready["message"] = "containers with unready status: [app]".into();
        let mut containers = unready.clone();
        containers["type"] = "ContainersReady".into();
        pod["status"]["conditions"] = json!([
            self.condition("PodReadyToStartContainers", "False", since),
            self.condition("Initialized", "True", since),
            unready,
            containers,
            self.condition("PodScheduled", "True", since)
        ]);
        pod["status"]["containerStatuses"] = json!([{ "name": "app", "image": "registry.example/app:1", "imageID": "",
            "ready": false, "restartCount": 0, "started": false, "lastState": {},
            "state": { "waiting": { "reason": "ContainerCreating" } } }]);
        pod["status"]["startTime"] = self.ago(since).into();
    }

    /// The kubelet has started a pod; it is ready.
    pub(crate) fn running(&self, pod: &mut Value, node: &str, since: i64) {
        self.creating(pod, node, since);
        pod["status"]["phase"] = "Running".into();
        pod["status"]["podIP"] = "10.2.0.7".into();
        for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
            *condition = self.condition(condition["type"].as_str().unwrap_or_default(), "True", since);
        }
        let container = &mut pod["status"]["containerStatuses"][0];
        container["ready"] = true.into();
        container["started"] = true.into();
        container["imageID"] = "registry.example/app@sha256:0".into();
        container["state"] = json!({ "running": { "startedAt": self.ago(since) } });
    }

    /// The container of a pod waits for a reason, and the pod is not ready.
    pub(crate) fn waiting(&self, pod: &mut Value, reason: &str, message: &str) {
        let waiting = match message {
            "" => json!({ "reason": reason }),
            message => json!({ "reason": reason, "message": message }),
        };
        let container = &mut pod["status"]["containerStatuses"][0];
        container["ready"] = false.into();
        container["started"] = false.into();
        container["state"] = json!({ "waiting": waiting });
    }

    /// A running pod that is not ready.
    pub(crate) fn unready(&self, pod: &mut Value, since: i64) {
        for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
            if condition["type"] == "Ready" || condition["type"] == "ContainersReady" {
                *condition = self.condition(condition["type"].as_str().unwrap_or_default(), "False", since);
                condition["reason"] = "ContainersNotReady".into();
                condition["message"] = "containers with unready status: [app]".into();
            }
        }
        pod["status"]["containerStatuses"][0]["ready"] = false.into();
    }

    /// Somebody has deleted an object: its grace period ended so many seconds ago.
    pub(crate) fn deleted(&self, object: &mut Value, grace: i64, overdue: i64) {
        object["metadata"]["deletionTimestamp"] = self.ago(overdue).into();
        object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    }

    /// A pod has ended.
    pub(crate) fn ended(&self, pod: &mut Value, node: &str, phase: &str) {
        self.running(pod, node, DAY);
        pod["status"]["phase"] = phase.into();
        self.unready(pod, 3600);
        let code = if phase == "Succeeded" { 0 } else { 1 };
        pod["status"]["containerStatuses"][0]["state"] = json!({ "terminated": { "exitCode": code,
            "reason": if code == 0 { "Completed" } else { "Error" }, "finishedAt": self.ago(3600), "startedAt": self.ago(7200) } });
    }

    /// A warning about an object in core/v1, as controllers and kubelets write them. It is lost if events have expired.
    pub(crate) fn warning(&mut self, about: &Value, reason: &str, message: &str, component: &str) {
        if !self.has_events {
            return;
        }
        let name = format!("{}.{:x}", about["metadata"]["name"].as_str().unwrap_or_default(), self.serial());
        let namespace = about["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
        let mut event = self.object("v1", "Event", &namespace, &name, 1800);
        event["involvedObject"] = json!({ "apiVersion": about["apiVersion"], "kind": about["kind"],
            "namespace": about["metadata"]["namespace"], "name": about["metadata"]["name"], "uid": about["metadata"]["uid"] });
        event["reason"] = reason.into();
        event["message"] = message.into();
        event["type"] = "Warning".into();
        event["source"] = json!({ "component": component });
        event["reportingComponent"] = component.into();
        event["count"] = 9.into();
        event["firstTimestamp"] = self.ago(1800).into();
        event["lastTimestamp"] = self.ago(20).into();
        event["eventTime"] = Value::Null;
        self.add(event);
    }

    /// kube-scheduler's event, of the newer API.
    fn event_of_scheduler(&mut self, pod: &Value, message: &str) {
        if !self.has_events {
            return;
        }
        let name = format!("{}.{:x}", pod["metadata"]["name"].as_str().unwrap_or_default(), self.serial());
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        let mut event = self.object("v1", "Event", &namespace, &name, 1800);
        event["involvedObject"] = json!({ "apiVersion": "v1", "kind": "Pod", "namespace": namespace,
            "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"] });
        event["reason"] = "FailedScheduling".into();
        event["message"] = message.into();
        event["type"] = "Warning".into();
        event["source"] = json!({});
        event["reportingComponent"] = "default-scheduler".into();
        event["eventTime"] = self.ago(1800).replace('Z', ".000000Z").into();
        event["series"] = json!({ "count": 4, "lastObservedTime": self.ago(60).replace('Z', ".000000Z") });
        self.add(event);
    }

    /// A Deployment with its ReplicaSet, and an older one that was scaled to zero. `ready` of its pods are available.
    /// Returns the Deployment and the owner of its pods; the caller adds the Deployment.
    pub(crate) fn deployment(
        &mut self,
        namespace: &str,
        name: &str,
        replicas: i64,
        ready: i64,
        spec: &Value,
    ) -> (Value, Owner) {
        let mut deployment = self.object("apps/v1", "Deployment", namespace, name, 10 * DAY);
        let hash = self.suffix(9);
        let labels = json!({ "app": name });
        deployment["metadata"]["generation"] = 2.into();
        deployment["metadata"]["annotations"] = json!({ "deployment.kubernetes.io/revision": "2" });
        deployment["spec"] = json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10, "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } },
            "template": { "metadata": { "labels": labels }, "spec": spec } });
        let available = if ready >= replicas - replicas / 4 {
            json!({ "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability." })
        } else {
            json!({ "type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "Deployment does not have minimum availability." })
        };
        let progressing = json!({ "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable",
            "message": format!("ReplicaSet \"{name}-{hash}\" has successfully progressed."), "lastUpdateTime": self.ago(9 * DAY), "lastTransitionTime": self.ago(9 * DAY) });
        deployment["status"] = json!({ "observedGeneration": 2, "replicas": replicas, "updatedReplicas": replicas,
            "readyReplicas": ready, "availableReplicas": ready, "unavailableReplicas": replicas - ready, "conditions": [available, progressing] });
        // Counts of zero are left out.
        for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"] {
            if deployment["status"][field] == 0 {
                deployment["status"].as_object_mut().map(|status| status.remove(field));
            }
        }
        let owner = Owner::of("Deployment", &deployment);
        let old = self.suffix(9);
        let mut current = None;
        for (hash, replicas, ready) in [(old, 0, 0), (hash, replicas, ready)] {
            let mut set = self.object("apps/v1", "ReplicaSet", namespace, &format!("{name}-{hash}"), 9 * DAY);
            set["metadata"]["ownerReferences"] = owner.reference();
            let labels = json!({ "app": name, "pod-template-hash": hash });
            set["metadata"]["labels"] = labels.clone();
            set["spec"] = json!({ "replicas": replicas, "selector": { "matchLabels": labels }, "template": { "metadata": { "labels": labels }, "spec": spec } });
            set["status"] = json!({ "observedGeneration": 1, "replicas": replicas, "readyReplicas": ready, "availableReplicas": ready, "fullyLabeledReplicas": replicas });
            current = Some(Owner::of("ReplicaSet", &set));
            self.add(set);
        }
        (deployment, current.unwrap_or(owner))
    }

    /// A pod of a Deployment, without a node.
    pub(crate) fn replica(&mut self, namespace: &str, owner: &Owner, spec: &Value, age: i64) -> Value {
        let name = format!("{}-{}", owner.name, self.suffix(5));
        let (app, hash) = owner.name.rsplit_once('-').unwrap_or((&owner.name, ""));
        let labels = json!({ "app": app, "pod-template-hash": hash });
        let mut pod = self.pod(namespace, &name, Some(owner), spec.clone(), age);
        pod["metadata"]["labels"] = labels;
        pod["metadata"]["generateName"] = format!("{}-", owner.name).into();
        pod
    }

    /// A StatefulSet of which `ready` pods are ready.
    pub(crate) fn stateful_set(
        &mut self,
        namespace: &str,
        name: &str,
        replicas: i64,
        ready: i64,
        spec: &Value,
    ) -> (Value, Owner) {
        let mut set = self.object("apps/v1", "StatefulSet", namespace, name, 10 * DAY);
        let labels = json!({ "app": name });
        set["spec"] = json!({ "replicas": replicas, "serviceName": name, "selector": { "matchLabels": labels },
            "podManagementPolicy": "OrderedReady", "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } },
            "template": { "metadata": { "labels": labels }, "spec": spec } });
        set["status"] = json!({ "observedGeneration": 1, "replicas": replicas, "currentReplicas": replicas, "updatedReplicas": replicas,
            "availableReplicas": ready, "collisionCount": 0, "currentRevision": format!("{name}-1"), "updateRevision": format!("{name}-1") });
        if ready > 0 {
            set["status"]["readyReplicas"] = ready.into();
        }
        let owner = Owner::of("StatefulSet", &set);
        (set, owner)
    }

    /// A pod of a StatefulSet, without a node.
    pub(crate) fn ordinal(&mut self, namespace: &str, owner: &Owner, ordinal: i64, spec: &Value, age: i64) -> Value {
        let name = format!("{}-{ordinal}", owner.name);
        let mut pod = self.pod(namespace, &name, Some(owner), spec.clone(), age);
        pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name.into();
        pod
    }

    /// Adds a claim that is bound to a volume of a driver, and returns the names of both.
    pub(crate) fn add_bound_claim(
        &mut self,
        namespace: &str,
        name: &str,
        class: &str,
        driver: &str,
        modes: &[&str],
    ) -> String {
        let mut claim = self.claim(namespace, name, Some(class), 10 * DAY);
        let volume_name = format!("pvc-{}", claim["metadata"]["uid"].as_str().unwrap_or_default());
        claim["spec"]["volumeName"] = volume_name.as_str().into();
        claim["spec"]["accessModes"] = json!(modes);
        claim["metadata"]["annotations"] = json!({ "pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
            "volume.kubernetes.io/storage-provisioner": driver });
        claim["status"] = json!({ "phase": "Bound", "accessModes": modes, "capacity": { "storage": "1Gi" } });
        let mut volume = self.object("v1", "PersistentVolume", "", &volume_name, 10 * DAY);
        volume["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]);
        volume["metadata"]["annotations"] = json!({ "pv.kubernetes.io/provisioned-by": driver });
        volume["spec"] = json!({ "capacity": { "storage": "1Gi" }, "accessModes": modes, "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": class, "volumeMode": "Filesystem", "csi": { "driver": driver, "volumeHandle": volume_name },
            "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": claim["metadata"]["uid"] } });
        volume["status"] = json!({ "phase": "Bound" });
        self.add(claim);
        self.add(volume);
        volume_name
    }

    /// A claim that is not bound.
    pub(crate) fn claim(&mut self, namespace: &str, name: &str, class: Option<&str>, age: i64) -> Value {
        let mut claim = self.object("v1", "PersistentVolumeClaim", namespace, name, age);
        claim["metadata"]["finalizers"] = json!(["kubernetes.io/pvc-protection"]);
        claim["spec"] = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } }, "volumeMode": "Filesystem" });
        if let Some(class) = class {
            claim["spec"]["storageClassName"] = class.into();
        }
        claim["status"] = json!({ "phase": "Pending" });
        claim
    }

    /// A volume attached to a node.
    pub(crate) fn attachment(&mut self, volume: &str, node: &str, driver: &str) -> Value {
        let name = format!("csi-{:064x}", self.serial());
        let mut attachment = self.object("storage.k8s.io/v1", "VolumeAttachment", "", &name, 5 * DAY);
        attachment["metadata"]["finalizers"] = json!([format!("external-attacher/{}", driver.replace('.', "-"))]);
        attachment["spec"] =
            json!({ "attacher": driver, "nodeName": node, "source": { "persistentVolumeName": volume } });
        attachment["status"] = json!({ "attached": true });
        attachment
    }
}

/// Gives a pod spec a volume of a claim.
pub(crate) fn with_claim(mut spec: Value, claim: &str) -> Value {
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(json!({ "name": "data", "persistentVolumeClaim": { "claimName": claim } }));
    }
    if let Some(mounts) = spec["containers"][0]["volumeMounts"].as_array_mut() {
        mounts.push(json!({ "name": "data", "mountPath": "/data" }));
    }
    spec
}
