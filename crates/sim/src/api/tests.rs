//! Tests of whole requests.

use super::*;
use crate::step::DeleteOptions;
use serde_json::{Value, json};

struct Server {
    server: ApiServer,
    settings: Settings,
    choices: Choices,
    now: Timestamp,
}

impl Server {
    fn new() -> Server {
        let now = Timestamp::from_second(1_800_000_000).expect("a time");
        let choices = Choices::enumerated();
        Server { server: ApiServer::default(), settings: Settings::default(), choices, now }
    }

    /// Makes a request. Gives the object that it left, or the message of the error.
    fn request(&mut self, mut write: Write) -> Result<Value, String> {
        let mut request = Request { now: self.now, settings: &self.settings, choices: &mut self.choices };
        let changes = self.server.execute(&mut request, &mut write).map_err(|error| error.to_string())?;
        let left = changes.last().and_then(|change| change.after.as_ref());
        Ok(left.map(SimObject::to_json).unwrap_or_default())
    }

    fn create(&mut self, value: Value) -> Value {
        self.request(Write::Create(object(value))).expect("created")
    }
}

fn object(value: Value) -> SimObject {
    SimObject::from_json(&value).expect("an object")
}

fn named(api: &str, kind: &str, rest: Value) -> Value {
    let mut value = json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "x", "namespace": "n" } });
    json_patch::merge(&mut value, &rest);
    value
}

fn template() -> Value {
    json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "containers": [{ "name": "c", "image": "i:1" }] } })
}

/// The defaults of a new object, in some of its fields. A status is not what the request says.
#[test]
fn new_objects() {
    let workload = json!({ "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template() },
        "status": { "replicas": 9, "readyReplicas": 9 } });
    let quarter = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } });
    let claims = json!({ "spec": { "serviceName": "s", "selector": {}, "template": template(),
        "volumeClaimTemplates": [{ "metadata": { "name": "d" }, "spec": {} }] } });
    let policy = json!({ "spec": { "template": template(), "podFailurePolicy": { "rules": [{ "action": "Ignore",
        "onPodConditions": [{ "type": "DisruptionTarget" }] }] } } });
    for (api, kind, rest, expected) in [
        (
            "apps/v1",
            "Deployment",
            workload.clone(),
            json!({ "/spec/replicas": 1, "/spec/strategy": quarter,
            "/spec/revisionHistoryLimit": 10, "/spec/progressDeadlineSeconds": 600, "/status": {},
            "/spec/template/spec/dnsPolicy": "ClusterFirst", "/spec/template/spec/enableServiceLinks": null,
            "/spec/template/spec/containers/0/imagePullPolicy": "IfNotPresent", "/metadata/generation": 1 }),
        ),
        ("apps/v1", "ReplicaSet", workload.clone(), json!({ "/spec/replicas": 1, "/status": { "replicas": 0 } })),
        (
            "apps/v1",
            "DaemonSet",
            workload.clone(),
            json!({ "/spec/updateStrategy": { "type": "RollingUpdate",
            "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } }, "/spec/revisionHistoryLimit": 10,
            "/metadata/annotations": { "deprecated.daemonset.template.generation": "1" } }),
        ),
        (
            "apps/v1",
            "StatefulSet",
            claims,
            json!({ "/spec/podManagementPolicy": "OrderedReady", "/spec/replicas": 1,
            "/spec/updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": 0 } },
            "/spec/persistentVolumeClaimRetentionPolicy": { "whenDeleted": "Retain", "whenScaled": "Retain" },
            "/spec/volumeClaimTemplates/0/spec/volumeMode": "Filesystem",
            "/spec/volumeClaimTemplates/0/status": { "phase": "Pending" },
            "/status": { "availableReplicas": 0, "replicas": 0 } }),
        ),
        (
            "apps/v1",
            "StatefulSet",
            json!({ "spec": { "serviceName": "s", "selector": {}, "template": template(),
            "updateStrategy": { "type": "RollingUpdate" } } }),
            json!({ "/spec/updateStrategy": { "type": "RollingUpdate" } }),
        ),
        (
            "v1",
            "ReplicationController",
            json!({ "spec": { "template": template() } }),
            json!({ "/spec/replicas": 1,
            "/spec/selector": { "a": "b" }, "/metadata/labels": { "a": "b" } }),
        ),
        (
            "batch/v1",
            "Job",
            json!({ "spec": { "template": template() } }),
            json!({ "/spec/completions": 1,
            "/spec/parallelism": 1, "/spec/backoffLimit": 6, "/spec/completionMode": "NonIndexed",
            "/spec/suspend": false, "/spec/podReplacementPolicy": "TerminatingOrFailed" }),
        ),
        (
            "batch/v1",
            "Job",
            policy,
            json!({ "/spec/podReplacementPolicy": "Failed",
            "/spec/podFailurePolicy/rules/0/onPodConditions/0/status": "True" }),
        ),
        (
            "batch/v1",
            "CronJob",
            json!({ "spec": { "schedule": "* * * * *",
            "jobTemplate": { "spec": { "template": template() } } } }),
            json!({ "/spec/concurrencyPolicy": "Allow",
            "/spec/suspend": false, "/spec/successfulJobsHistoryLimit": 3, "/spec/failedJobsHistoryLimit": 1,
            "/spec/jobTemplate/spec/backoffLimit": null,
            "/spec/jobTemplate/spec/template/spec/restartPolicy": "Always" }),
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            json!({ "spec": {}, "status": { "phase": "Bound" } }),
            json!({
            "/spec/volumeMode": "Filesystem", "/status": { "phase": "Pending" }, "/metadata/generation": null,
            "/metadata/finalizers": ["kubernetes.io/pvc-protection"] }),
        ),
        (
            "v1",
            "PersistentVolume",
            json!({ "spec": { "capacity": { "storage": "1024Mi" } } }),
            json!({
            "/spec/persistentVolumeReclaimPolicy": "Retain", "/spec/volumeMode": "Filesystem",
            "/spec/capacity": { "storage": "1Gi" }, "/metadata/finalizers": ["kubernetes.io/pv-protection"],
            "/status": { "phase": "Pending", "lastPhaseTransitionTime": "2027-01-15T08:00:00Z" } }),
        ),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            json!({ "provisioner": "p" }),
            json!({ "/reclaimPolicy": "Delete",
            "/volumeBindingMode": "Immediate" }),
        ),
        (
            "storage.k8s.io/v1",
            "CSIDriver",
            json!({ "spec": {} }),
            json!({ "/spec/attachRequired": true,
            "/spec/fsGroupPolicy": "ReadWriteOnceWithFSType", "/spec/volumeLifecycleModes": ["Persistent"] }),
        ),
        (
            "v1",
            "Namespace",
            json!({}),
            json!({ "/metadata/labels": { "kubernetes.io/metadata.name": "x" },
            "/spec/finalizers": ["kubernetes"], "/status": { "phase": "Active" } }),
        ),
        (
            "v1",
            "Node",
            json!({ "status": { "capacity": { "cpu": "4000m" } } }),
            json!({
            "/status/capacity": { "cpu": "4" }, "/status/allocatable": { "cpu": "4" },
            "/spec/taints": [{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }] }),
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            json!({ "spec": { "minAvailable": 1 } }),
            json!({
            "/spec/unhealthyPodEvictionPolicy": null, "/status": { "currentHealthy": 0, "desiredHealthy": 0,
            "disruptionsAllowed": 0, "expectedPods": 0 } }),
        ),
        (
            "v1",
            "Service",
            json!({ "spec": { "selector": { "a": "b" }, "ports": [{ "port": 80 }] } }),
            json!({
            "/spec/type": "ClusterIP", "/spec/clusterIP": "10.96.1.1", "/spec/clusterIPs": ["10.96.1.1"],
            "/spec/ipFamilies": ["IPv4"], "/spec/ipFamilyPolicy": "SingleStack", "/spec/sessionAffinity": "None",
            "/spec/internalTrafficPolicy": "Cluster",
            "/spec/ports": [{ "port": 80, "protocol": "TCP", "targetPort": 80 }] }),
        ),
        (
            "v1",
            "Service",
            json!({ "spec": { "clusterIP": "None", "selector": { "a": "b" } } }),
            json!({
            "/spec/clusterIPs": ["None"], "/spec/ipFamilies": ["IPv4"], "/spec/ipFamilyPolicy": "SingleStack" }),
        ),
        (
            "v1",
            "Service",
            json!({ "spec": { "type": "NodePort", "ports": [{ "port": 80 }, { "port": 81 }] } }),
            json!({
            "/spec/ports/0/nodePort": 30000, "/spec/ports/1/nodePort": 30001,
            "/spec/externalTrafficPolicy": "Cluster" }),
        ),
        (
            "v1",
            "Service",
            json!({ "spec": { "type": "ExternalName", "externalName": "x.y" } }),
            json!({
            "/spec/clusterIP": null, "/spec/internalTrafficPolicy": null }),
        ),
    ] {
        let mut value = named(api, kind, rest);
        if stead_model::Kind::find(api, kind).is_some_and(|kind| !kind.namespaced) {
            value["metadata"].as_object_mut().expect("metadata").remove("namespace");
        }
        let created = Server::new().create(value);
        for (pointer, expected) in expected.as_object().expect("fields") {
            let found = created.pointer(pointer).cloned().unwrap_or_default();
            assert_eq!(found, *expected, "{kind} {pointer}");
        }
    }
}

#[test]
fn spec_and_status_are_written_apart() {
    let mut server = Server::new();
    let deployment = json!({ "spec": { "replicas": 1, "selector": {}, "template": template() } });
    let created = server.create(named("apps/v1", "Deployment", deployment));
    let changed = |created: &Value, change: Value| {
        let mut value = created.clone();
        json_patch::merge(&mut value, &change);
        value["metadata"].as_object_mut().expect("metadata").remove("resourceVersion");
        object(value)
    };
    let both = json!({ "spec": { "replicas": 3 }, "status": { "readyReplicas": 2 } });
    let spec = server.request(Write::Replace(changed(&created, both.clone()))).expect("replaced");
    let seen = |value: &Value| {
        json!([value["spec"]["replicas"], value["status"]["readyReplicas"], value["metadata"]["generation"]])
    };
    assert_eq!(seen(&spec), json!([3, null, 2]));
    let status = server.request(Write::Status(changed(&created, both))).expect("written");
    assert_eq!(seen(&status), json!([3, 2, 2]));
    // An annotation of a Deployment is a new generation, a label is not.
    let annotated = changed(&status, json!({ "metadata": { "annotations": { "a": "b" } } }));
    assert_eq!(seen(&server.request(Write::Replace(annotated)).expect("replaced")), json!([3, 2, 3]));
    let labelled = changed(&status, json!({ "metadata": { "annotations": { "a": "b" }, "labels": { "a": "b" } } }));
    let labelled = server.request(Write::Replace(labelled)).expect("replaced");
    assert_eq!(seen(&labelled), json!([3, 2, 3]));
    // What changes nothing is no change.
    assert_eq!(server.request(Write::Replace(changed(&labelled, json!({})))), Ok(Value::Null));
}

#[test]
fn a_status_keeps_what_only_the_server_knows() {
    let mut server = Server::new();
    let pod = server.create(named(
        "v1",
        "Pod",
        json!({ "metadata": { "ownerReferences": [
        { "apiVersion": "v1", "kind": "X", "name": "x", "uid": "u" }] }, "spec": { "containers": [] } }),
    ));
    assert_eq!(pod["status"], json!({ "phase": "Pending", "qosClass": "BestEffort" }));
    let mut running = named(
        "v1",
        "Pod",
        json!({ "spec": { "nodeName": "other", "containers": [] },
        "status": { "phase": "Running", "observedGeneration": 1, "conditions": [
            { "type": "Ready", "status": "True", "observedGeneration": 1 }] } }),
    );
    server.request(Write::Status(object(running.clone()))).expect("written");
    running["status"] = json!({ "phase": "Failed", "conditions": [{ "type": "Ready", "status": "False" }] });
    let written = server.request(Write::Status(object(running))).expect("written");
    assert_eq!(
        written["status"],
        json!({ "phase": "Failed", "qosClass": "BestEffort", "observedGeneration": 1,
            "conditions": [{ "type": "Ready", "status": "False", "observedGeneration": 1 }] })
    );
    assert_eq!(
        (&written["spec"]["nodeName"], written["metadata"]["ownerReferences"].as_array().map(Vec::len)),
        (&Value::Null, Some(1))
    );
    // The time of a volume's phase.
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" }, "spec": {} });
    server.create(volume.clone());
    for (second, phase, since) in
        [(5, "Available", "08:00:05"), (9, "Available", "08:00:05"), (12, "Bound", "08:00:12")]
    {
        server.now = Timestamp::from_second(1_800_000_000 + second).expect("a time");
        let mut reported = volume.clone();
        reported["status"] = json!({ "phase": phase });
        server.request(Write::Status(object(reported))).expect("written");
        let found = server.server.store().object(&object(volume.clone()).key()).expect("it is there").to_json();
        assert_eq!(found["status"]["lastPhaseTransitionTime"], format!("2027-01-15T{since}Z"), "{second}");
    }
}

#[test]
fn a_new_template_of_a_daemon_set_is_counted() {
    let mut server = Server::new();
    let set = |image: &str, labels: Value| {
        named(
            "apps/v1",
            "DaemonSet",
            json!({ "metadata": { "labels": labels }, "spec": { "selector": {},
            "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } } }),
        )
    };
    server.create(set("i:1", json!({})));
    for (image, labels, expected) in
        [("i:1", json!({ "x": "y" }), "1"), ("i:2", json!({}), "2"), ("i:3", json!({}), "3")]
    {
        let replaced = server.request(Write::Replace(object(set(image, labels)))).expect("replaced");
        assert_eq!(replaced["metadata"]["annotations"]["deprecated.daemonset.template.generation"], expected);
    }
}

#[test]
fn names_and_errors() {
    let mut server = Server::new();
    let prefix = "a".repeat(60);
    let mut pod = object(named("v1", "Pod", json!({})));
    pod.metadata_mut().name = None;
    pod.metadata_mut().generate_name = Some(prefix);
    let created = server.request(Write::Create(pod.clone())).expect("created");
    let name = created["metadata"]["name"].as_str().expect("a name");
    assert!(name.len() == 63 && name.starts_with(&"a".repeat(58)), "{name}");

    server.create(named("v1", "ConfigMap", json!({})));
    assert_eq!(
        server.request(Write::Create(object(named("v1", "ConfigMap", json!({}))))),
        Err("configmaps \"x\" already exists".into())
    );
    let stale = named("v1", "ConfigMap", json!({ "metadata": { "resourceVersion": "999" } }));
    assert_eq!(
        server.request(Write::Replace(object(stale))),
        Err("Operation cannot be fulfilled on configmaps \"x\": the object has been modified; please apply your \
             changes to the latest version and try again"
            .into())
    );
    let uid = server
        .server
        .store()
        .object(&object(named("v1", "ConfigMap", json!({}))).key())
        .map(|found| found.uid().to_owned());
    let other = named("v1", "ConfigMap", json!({ "metadata": { "uid": "u" } }));
    assert_eq!(
        server.request(Write::Replace(object(other))),
        Err(format!(
            "Operation cannot be fulfilled on configmaps \"x\": StorageError: invalid object, Code: 4, Key: \
             /registry/configmaps/n/x, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
             precondition: u, UID in object meta: {}",
            uid.expect("it is there")
        ))
    );
    server.create(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "n" } }));
    let namespace = SimKey::new(crate::object::ObjectKind::Namespace, "", "n");
    server.request(Write::Delete(namespace, DeleteOptions::default())).expect("deleted");
    let message = server.request(Write::Create(pod)).expect_err("the namespace is being deleted");
    let expected = "is forbidden: unable to create new content in namespace n because it is being terminated";
    assert_eq!(message, format!("pods \"{}\" {expected}", "a".repeat(60)));
}

#[test]
fn binding() {
    let mut server = Server::new();
    server.create(json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": "a", "labels": { "topology.kubernetes.io/zone": "z" } } }));
    let bind = |uid: &str| Write::Bind { pod: SimKey::pod("n", "x"), uid: uid.into(), node: "a".into() };
    let gated = server.create(named(
        "v1",
        "Pod",
        json!({ "spec": { "containers": [],
        "schedulingGates": [{ "name": "g" }] } }),
    ));
    let condition = &gated["status"]["conditions"][0];
    assert_eq!((condition["reason"].as_str(), condition["status"].as_str()), (Some("SchedulingGated"), Some("False")));
    let uid = gated["metadata"]["uid"].as_str().expect("a UID");
    let refused = "Operation cannot be fulfilled on pods/binding \"x\": pod x";
    assert_eq!(server.request(bind(uid)), Err(format!("{refused} has non-empty .spec.schedulingGates")));
    let mut open = gated.clone();
    open["spec"]["schedulingGates"] = json!([]);
    server.request(Write::Replace(object(open))).expect("replaced");
    server.now = Timestamp::from_second(1_800_000_009).expect("a time");
    let bound = server.request(bind(uid)).expect("bound");
    assert_eq!(
        bound["status"]["conditions"],
        json!([{ "type": "PodScheduled", "status": "True",
        "lastTransitionTime": "2027-01-15T08:00:09Z" }])
    );
    assert_eq!(
        (&bound["metadata"]["labels"], &bound["metadata"]["generation"]),
        (&json!({ "topology.kubernetes.io/zone": "z" }), &json!(2))
    );
    assert_eq!(server.request(bind(uid)), Err(format!("{refused} is already assigned to node \"a\"")));
    server.request(Write::Delete(SimKey::pod("n", "x"), DeleteOptions::default())).expect("deleted");
    assert_eq!(server.request(bind(uid)), Err(format!("{refused} is being deleted, cannot be assigned to a host")));
}
