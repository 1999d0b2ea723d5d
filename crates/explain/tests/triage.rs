//! What is stuck, as tables: objects, expected causes with their objects.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use stead_explain::outage::Clock;
use stead_explain::triage::{Thresholds, TriageScope, render, triage};
use stead_model::{KINDS, Objects};

const OLD: &str = "2026-01-01T00:00:00Z";
const NOW: &str = "2026-01-01T12:00:00Z";

fn node(name: &str, ready: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name } },
        "status": { "conditions": [{ "type": "Ready", "status": ready, "lastTransitionTime": OLD, "lastHeartbeatTime": OLD }] } })
}

fn pod(name: &str, spec: Value, status: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": "n", "uid": name, "creationTimestamp": OLD }, "spec": spec, "status": status })
}

fn running(name: &str, node: &str, ready: &str) -> Value {
    pod(
        name,
        json!({ "nodeName": node, "containers": [{ "name": "c" }] }),
        json!({ "phase": "Running", "conditions": [
        { "type": "Ready", "status": ready, "lastTransitionTime": OLD }] }),
    )
}

fn waiting(name: &str, reason: &str, message: &str) -> Value {
    pod(
        name,
        json!({ "nodeName": "a", "containers": [{ "name": "c" }] }),
        json!({ "phase": "Pending",
        "conditions": [{ "type": "Ready", "status": "False", "lastTransitionTime": OLD }],
        "containerStatuses": [{ "name": "c", "ready": false, "restartCount": 0, "image": "i", "imageID": "",
            "state": { "waiting": { "reason": reason, "message": message } } }] }),
    )
}

fn unscheduled(name: &str, spec: Value, message: &str) -> Value {
    pod(
        name,
        spec,
        json!({ "phase": "Pending", "conditions": [
        { "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message, "lastTransitionTime": OLD }] }),
    )
}

fn event(kind: &str, name: &str, reason: &str, message: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Event", "metadata": { "name": format!("{name}.{reason}"), "namespace": "n" },
        "involvedObject": { "kind": kind, "namespace": "n", "name": name }, "reason": reason, "message": message,
        "type": "Warning", "lastTimestamp": NOW })
}

fn claim(name: &str, class: &str, volume: Option<&str>) -> Value {
    json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "n", "creationTimestamp": OLD },
        "spec": { "storageClassName": class, "volumeName": volume },
        "status": { "phase": if volume.is_some() { "Bound" } else { "Pending" } } })
}

fn class(name: &str, mode: &str) -> Value {
    json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": name },
        "provisioner": "d", "volumeBindingMode": mode })
}

fn with_claim(node: Option<&str>, claim: &str) -> Value {
    json!({ "nodeName": node, "containers": [{ "name": "c" }],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }] })
}

fn found(items: Vec<Value>) -> Vec<String> {
    let objects = Objects::from_items(items);
    let kinds: BTreeSet<String> = KINDS.iter().map(|kind| kind.kind.to_owned()).collect();
    let now: Timestamp = NOW.parse().expect("a time");
    let found = triage(&objects, &kinds, &Clock::at(now), &Thresholds::default(), &TriageScope::default());
    assert_eq!(found.stuck, !found.causes.is_empty());
    assert!(render(&found).lines().count() <= 24);
    let line = |c: &stead_explain::triage::RootCause| format!("{:?} {}: {}", c.cause, c.about, c.objects.join(" "));
    found.causes.iter().map(line).collect()
}

#[test]
fn a_healthy_cluster_has_nothing_stuck() {
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "zero", "namespace": "n",
        "creationTimestamp": OLD }, "spec": { "replicas": 0, "selector": {}, "template": {} } });
    let mut fresh = waiting("fresh", "ContainerCreating", "");
    fresh["metadata"]["creationTimestamp"] = "2026-01-01T11:59:30Z".into();
    assert_eq!(
        found(vec![
            node("a", "True"),
            running("p", "a", "True"),
            deployment,
            fresh,
            claim("waits", "wffc", None),
            class("wffc", "WaitForFirstConsumer"),
            pod("done", json!({ "nodeName": "gone", "containers": [] }), json!({ "phase": "Succeeded" })),
        ]),
        [""; 0]
    );
}

#[test]
fn a_dead_node_explains_its_pods_and_those_that_wait_for_its_volumes() {
    let volume = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "v" },
        "spec": { "csi": { "driver": "d", "volumeHandle": "h" }, "accessModes": ["ReadWriteOnce"] } });
    let attachment = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "at" },
        "spec": { "attacher": "d", "nodeName": "dead", "source": { "persistentVolumeName": "v" } }, "status": { "attached": true } });
    let mut waits = waiting("new", "ContainerCreating", "");
    waits["spec"] = with_claim(Some("a"), "data");
    assert_eq!(
        found(vec![
            node("a", "True"),
            node("dead", "Unknown"),
            running("old", "dead", "False"),
            running("p", "a", "True"),
            volume,
            attachment,
            claim("data", "c", Some("v")),
            waits,
        ]),
        ["NodeUnreachable node/dead: node/dead persistentvolume/v pod/n/new pod/n/old"]
    );
}

#[test]
fn each_pod_has_its_cause() {
    let gated = json!({ "containers": [], "schedulingGates": [{ "name": "example.org/wait" }] });
    for (items, expected) in [
        (vec![waiting("p", "ImagePullBackOff", "Back-off pulling image")], "ImagePull pod/n/p: pod/n/p"),
        (vec![waiting("p", "CrashLoopBackOff", "back-off 5m0s")], "CrashLoop pod/n/p: pod/n/p"),
        (
            vec![waiting("p", "CreateContainerConfigError", "secret \"db\" not found")],
            "MissingReference secret/n/db: pod/n/p",
        ),
        (
            vec![
                waiting("p", "ContainerCreating", ""),
                event(
                    "Pod",
                    "p",
                    "FailedMount",
                    "MountVolume.SetUp failed for volume \"c\" : configmap \"conf\" not found",
                ),
            ],
            "MissingReference configmap/n/conf: pod/n/p",
        ),
        (vec![unscheduled("p", gated, "")], "SchedulingGated pod/n/p: pod/n/p"),
        (
            vec![unscheduled("p", json!({ "containers": [] }), "0/1 nodes are available: 1 Insufficient cpu.")],
            "Unschedulable pod/n/p: pod/n/p",
        ),
        (
            vec![unscheduled("p", with_claim(None, "no"), "persistentvolumeclaim \"no\" not found")],
            "MissingReference persistentvolumeclaim/n/no: pod/n/p",
        ),
        (
            vec![
                unscheduled("p", with_claim(None, "data"), "pod has unbound immediate PersistentVolumeClaims"),
                claim("data", "now", None),
                class("now", "Immediate"),
            ],
            "ClaimUnbound persistentvolumeclaim/n/data: persistentvolumeclaim/n/data pod/n/p",
        ),
        (
            vec![running("p", "a", "False"), event("Pod", "p", "Unhealthy", "Readiness probe failed: 503")],
            "ProbeFailing pod/n/p: pod/n/p",
        ),
    ] {
        let items = items.into_iter().chain([node("a", "True")]).collect();
        assert_eq!(found(items), [expected]);
    }
}

#[test]
fn a_quota_explains_a_workload_without_pods() {
    let deployment = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web", "namespace": "n",
        "creationTimestamp": OLD }, "spec": { "replicas": 1, "selector": {}, "template": {} }, "status": { "conditions": [
        { "type": "ReplicaFailure", "status": "True", "message":
            "pods \"web-1\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2" }] } });
    assert_eq!(found(vec![node("a", "True"), deployment]), ["QuotaExceeded resourcequota/n/small: deployment/n/web"]);
}

/// Objects with as little as possible in them, and no events.
#[test]
fn minimal_objects_are_enough() {
    let gone = "2026-01-01T06:00:00Z";
    let deleted = |mut object: Value, finalizer: &str| {
        object["metadata"]["deletionTimestamp"] = gone.into();
        object["metadata"]["finalizers"] = json!([finalizer]);
        object
    };
    let bare = |kind: &str, version: &str, name: &str, rest: Value| {
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name, "namespace": "n" } });
        for (field, value) in rest.as_object().expect("an object") {
            object[field] = value.clone();
        }
        object
    };
    let unknown = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "dead" },
        "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    let tainted = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "dead" },
        "spec": { "taints": [{ "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" }] } });
    let on_dead = bare(
        "Pod",
        "v1",
        "p",
        json!({ "spec": { "nodeName": "dead", "containers": [] }, "status": { "phase": "Running" } }),
    );
    let cordoned =
        json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "c" }, "spec": { "unschedulable": true } });
    let mut guarded = running("g", "c", "True");
    guarded["metadata"]["labels"] = json!({ "app": "g" });
    let budget = bare(
        "PodDisruptionBudget",
        "policy/v1",
        "b",
        json!({ "spec": { "selector": { "matchLabels": { "app": "g" } } },
        "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1 } }),
    );
    let quota = bare(
        "ResourceQuota",
        "v1",
        "q",
        json!({ "spec": { "hard": { "pods": "1" } },
        "status": { "hard": { "pods": "1" }, "used": { "pods": "1" } } }),
    );
    let failure = bare(
        "Deployment",
        "apps/v1",
        "d",
        json!({ "spec": { "replicas": 1, "selector": {}, "template": { "spec": { "containers": [] } } },
        "status": { "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate" }] } }),
    );
    let mut attaching = waiting("p", "ContainerCreating", "");
    attaching["spec"] = with_claim(Some("a"), "data");
    let attachment = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "at" },
        "spec": { "attacher": "d", "nodeName": "a", "source": { "persistentVolumeName": "v" } },
        "status": { "attached": false, "attachError": { "message": "no" } } });
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "gone", "deletionTimestamp": gone } });
    let lone = json!({ "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "at" },
        "spec": { "attacher": "d", "nodeName": "a", "source": { "persistentVolumeName": "v" } },
        "status": { "attached": true, "detachError": { "message": "no" } } });
    let mut crashing = running("p", "a", "True");
    crashing["status"]["containerStatuses"] =
        waiting("p", "CrashLoopBackOff", "")["status"]["containerStatuses"].clone();
    let mut gated = unscheduled("p", json!({ "containers": [] }), "");
    gated["status"]["conditions"][0]["reason"] = "SchedulingGated".into();
    let owner =
        json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "unread", "uid": "u", "controller": true }]);
    let mut set = bare(
        "ReplicaSet",
        "apps/v1",
        "r",
        json!({ "spec": { "replicas": 1, "selector": {} }, "status": { "replicas": 0,
        "conditions": [{ "type": "ReplicaFailure", "status": "True", "message": "denied by a webhook" }] } }),
    );
    set["metadata"]["ownerReferences"] = owner;
    let rule = |selector: Value| json!([{ "maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector }]);
    let topology = bare(
        "Topology",
        "topology.openstack.org/v1beta1",
        "t",
        json!({ "spec": { "topologySpreadConstraints": rule(json!({ "matchLabels": { "a": "b" } })) } }),
    );
    let spread = unscheduled(
        "p",
        json!({ "containers": [], "topologySpreadConstraints": rule(json!({ "matchLabels": { "c": "d" } })) }),
        "no",
    );
    for (items, expected) in [
        (vec![unknown, on_dead.clone()], "NodeUnreachable node/dead: node/dead pod/n/p"),
        (vec![tainted, on_dead], "NodeUnreachable node/dead: node/dead pod/n/p"),
        (vec![cordoned, guarded, budget], "BudgetBlocks poddisruptionbudget/n/b: poddisruptionbudget/n/b"),
        (vec![quota, failure], "QuotaExceeded resourcequota/n/q: deployment/n/d"),
        (vec![attaching, claim("data", "c", Some("v")), attachment], "DriverFailing csidriver/d: pod/n/p"),
        (vec![lone], "DriverFailing csidriver/d: volumeattachment/at"),
        (vec![crashing], "CrashLoop pod/n/p: pod/n/p"),
        (vec![gated], "SchedulingGated pod/n/p: pod/n/p"),
        (vec![set], "CreateRejected replicaset/n/r: replicaset/n/r"),
        (vec![topology, spread], "TopologyUnsatisfiable topology/n/t: pod/n/p topology/n/t"),
        (vec![namespace], "FinalizerBlocks namespace/gone: namespace/gone"),
        (vec![deleted(running("p", "a", "True"), "example.org/x")], "FinalizerBlocks pod/n/p: pod/n/p"),
        (
            vec![deleted(claim("c", "now", Some("v")), "kubernetes.io/pvc-protection")],
            "FinalizerBlocks persistentvolumeclaim/n/c: persistentvolumeclaim/n/c",
        ),
        (vec![claim("c", "none", None)], "MissingReference storageclass/none: persistentvolumeclaim/n/c"),
        (vec![waiting("p", "RunContainerError", "")], "CrashLoop pod/n/p: pod/n/p"),
        (vec![waiting("p", "CreateContainerConfigError", "")], "MissingReference pod/n/p: pod/n/p"),
        (
            vec![waiting("p", "CreateContainerConfigError", "container has runAsNonRoot and image will run as root")],
            "ConfigInvalid pod/n/p: pod/n/p",
        ),
        (vec![pod("p", json!({ "containers": [] }), json!({ "phase": "Pending" }))], "Unschedulable pod/n/p: pod/n/p"),
        (
            vec![bare("StatefulSet", "apps/v1", "s", json!({ "spec": { "replicas": 2 } }))],
            "ReplicasMissing statefulset/n/s: statefulset/n/s",
        ),
    ] {
        let items = items.into_iter().chain([node("a", "True")]).collect();
        assert_eq!(found(items), [expected]);
    }
}

/// The event is of 12:00.
#[test]
fn a_cron_job_whose_jobs_are_rejected_is_stuck_until_one_is_created() {
    let cron = |spec: Value, scheduled: &str| {
        json!({ "apiVersion": "batch/v1", "kind": "CronJob",
            "metadata": { "name": "backup", "namespace": "n", "uid": "u", "creationTimestamp": OLD }, "spec": spec,
            "status": { "lastScheduleTime": scheduled } })
    };
    let runs = |scheduled: &str| cron(json!({ "schedule": "0 * * * *", "jobTemplate": {} }), scheduled);
    let suspended = cron(json!({ "schedule": "0 * * * *", "jobTemplate": {}, "suspend": true }), OLD);
    let job = |owner: &str, created: &str| {
        json!({ "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": "backup-1", "namespace": "n", "creationTimestamp": created, "ownerReferences": [
                { "apiVersion": "batch/v1", "kind": "CronJob", "name": owner, "uid": "u", "controller": true }] },
            "status": { "conditions": [{ "type": "Complete", "status": "True" }] } })
    };
    let failed = |message: &str| event("CronJob", "backup", "FailedCreate", &format!("Error creating job: {message}"));
    let quota = failed(
        "jobs.batch \"backup-1\" is forbidden: exceeded quota: few, requested: count/jobs.batch=1, used: \
         count/jobs.batch=2, limited: count/jobs.batch=2",
    );
    let denied = failed("admission webhook \"policy.example.org\" denied the request: no owner label");
    let other = event("CronJob", "backup", "UnexpectedJob", "Saw a job that the controller did not create: x");
    for (items, expected) in [
        (vec![runs(OLD), quota.clone()], vec!["QuotaExceeded resourcequota/n/few: cronjob/n/backup"]),
        (vec![runs(OLD), denied.clone()], vec!["CreateRejected cronjob/n/backup: cronjob/n/backup"]),
        (
            vec![runs(OLD), denied.clone(), job("backup", OLD)],
            vec!["CreateRejected cronjob/n/backup: cronjob/n/backup"],
        ),
        (vec![runs(OLD), denied.clone(), job("other", NOW)], vec!["CreateRejected cronjob/n/backup: cronjob/n/backup"]),
        // A later attempt succeeded.
        (vec![runs(OLD), denied.clone(), job("backup", NOW)], vec![]),
        (vec![runs("2026-01-01T12:00:01Z"), denied.clone()], vec![]),
        (vec![suspended, denied], vec![]),
        (vec![runs(OLD), other], vec![]),
    ] {
        assert_eq!(found(items), expected);
    }
    let summary = |items: Vec<Value>| {
        let kinds: BTreeSet<String> = KINDS.iter().map(|kind| kind.kind.to_owned()).collect();
        let clock = Clock::at(NOW.parse().expect("a time"));
        let found =
            triage(&Objects::from_items(items), &kinds, &clock, &Thresholds::default(), &TriageScope::default());
        found.causes.iter().map(|cause| cause.summary.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        summary(vec![runs(OLD), quota]),
        ["quota n/few allows no more Jobs: requested: count/jobs.batch=1, used: count/jobs.batch=2, limited: \
          count/jobs.batch=2"]
    );
    assert_eq!(
        summary(vec![runs(OLD), failed("admission webhook \"w\" denied the request: no")]),
        ["the API server rejects the Jobs of cronjob n/backup: admission webhook \"w\" denied the request: no"]
    );
}

#[test]
fn thresholds_are_honoured() {
    let mut leaving = running("leaving", "a", "True");
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:00Z".into();
    let at = |mut pod: Value, created: &str| {
        pod["metadata"]["creationTimestamp"] = created.into();
        pod["status"]["conditions"][0]["lastTransitionTime"] = created.into();
        pod
    };
    let young = vec![
        node("a", "True"),
        leaving.clone(),
        at(waiting("creating", "ContainerCreating", ""), "2026-01-01T11:58:00Z"),
        at(running("unready", "a", "False"), "2026-01-01T11:55:00Z"),
    ];
    assert_eq!(found(young), [""; 0]);
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T11:58:59Z".into();
    let old = vec![
        node("a", "True"),
        leaving,
        at(waiting("creating", "ContainerCreating", ""), "2026-01-01T11:57:59Z"),
        at(running("unready", "a", "False"), "2026-01-01T11:54:59Z"),
    ];
    assert_eq!(
        found(old),
        [
            "NotStarting pod/n/creating: pod/n/creating",
            "NotReady pod/n/unready: pod/n/unready",
            "TerminationStuck pod/n/leaving: pod/n/leaving",
        ]
    );
}

#[test]
fn a_node_that_renews_its_lease_is_not_unreachable() {
    let lease = json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "a", "namespace": "kube-node-lease" },
        "spec": { "renewTime": "2026-01-01T11:59:55.000000Z", "leaseDurationSeconds": 40 } });
    assert_eq!(found(vec![node("a", "Unknown"), lease]), ["NodeNotReady node/a: node/a"]);
}
