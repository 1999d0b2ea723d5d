//! The verdicts about workloads, claims, volumes, budgets and namespaces.

use std::collections::BTreeSet;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use stead_explain::outage::{Clock, Timers};
use stead_explain::{explain_object, render_object};
use stead_model::{KINDS, ObjectKey, Objects};

fn check(items: Vec<Value>, kind: &str, expected: &Expect) {
    let objects = Objects::from_items(items);
    let key = objects.keys(kind).next().expect("an object of the kind").clone();
    let clock = Clock::new(&objects, "2026-01-01T01:00:00Z".parse().expect("a time"), Timers::default());
    let explanation = explain_object(&objects, &key, &kinds(), &clock).expect("it is well-formed").expect("it exists");
    expected.assert_eq(&render_object(&explanation));
}

fn kinds() -> BTreeSet<String> {
    KINDS.iter().map(|kind| kind.kind.to_owned()).collect()
}

fn object(version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}});
    for (field, value) in rest.as_object().expect("an object") {
        match (field.as_str(), value) {
            ("metadata", Value::Object(more)) => {
                object["metadata"].as_object_mut().expect("metadata").extend(more.clone());
            }
            _ => object[field] = value.clone(),
        }
    }
    object
}

fn node(name: &str, zone: &str) -> Value {
    object("v1", "Node", name, &json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}))
}

fn pod(name: &str, node: Option<&str>, ready: &str, owner: (&str, &str)) -> Value {
    let owners = json!([{"apiVersion": "apps/v1", "kind": owner.0, "name": owner.1, "uid": "u", "controller": true}]);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    let spec = json!({"nodeName": node, "containers": [{"name": "c"}], "volumes": volumes});
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
    let metadata = json!({"ownerReferences": owners, "labels": {"app": "web"}});
    object("v1", "Pod", name, &json!({"metadata": metadata, "spec": spec, "status": status}))
}

#[test]
fn a_rollout_that_is_not_complete() {
    let set = object(
        "apps/v1",
        "StatefulSet",
        "web",
        &json!({
            "spec": {"replicas": 3},
            "status": {"replicas": 3, "readyReplicas": 1, "updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"},
        }),
    );
    let pods = [("web-0", Some("n1")), ("web-1", Some("gone")), ("web-2", None)];
    let pods = pods.map(|(name, node)| pod(name, node, "False", ("StatefulSet", "web")));
    check(
        [set, node("n1", "zoneA")].into_iter().chain(pods).collect(),
        "StatefulSet",
        &expect![[r#"
            statefulset shop/web: 1 of 3 pods ready; the rollout is not complete: 1 of 3 pods are updated;
              stuck: NodeUnreachable, MissingReference, NotReady

            Causes
              - critical NodeUnreachable: node gone was deleted, and objects still refer to it
                pods: web-1
                stead explain pod/web-1 -n shop
              - warning MissingReference: claim shop/data does not exist
                pods: web-2
                create claim shop/data, or correct the reference to it
              - warning NotReady: pod shop/web-0 is not ready
                pods: web-0
                stead explain pod/web-0 -n shop

            Details
              - pods: 1 in zoneA, 1 on deleted nodes, 1 without a node
        "#]],
    );
}

#[test]
fn a_deployment_that_cannot_create_pods() {
    let condition = json!({"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate",
                           "message": "exceeded quota: pods"});
    let status = json!({"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "conditions": [condition]});
    let deployment = object("apps/v1", "Deployment", "web", &json!({"spec": {"replicas": 2}, "status": status}));
    let set = object(
        "apps/v1",
        "ReplicaSet",
        "web-1",
        &json!({"metadata": {"ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u", "controller": true}]}}),
    );
    let pod = pod("web-1-x", Some("n1"), "True", ("ReplicaSet", "web-1"));
    check(
        vec![deployment, set, pod, node("n1", "zoneA")],
        "Deployment",
        &expect![[r#"
            deployment shop/web: 1 of 2 pods ready; the rollout is not complete: 1 of 2 pods are updated; stuck:
              QuotaExceeded (resourcequota/shop/pods)

            Causes
              - warning QuotaExceeded: quota shop/pods allows no more pods: exceeded quota: pods
                raise the quota or delete pods: kubectl -n shop describe resourcequota pods

            Details
              - pods: 1 in zoneA
              - condition ReplicaFailure=True: FailedCreate: exceeded quota: pods
        "#]],
    );
}

#[test]
fn jobs() {
    let failed = json!({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
                        "message": "Job has reached the specified backoff limit"});
    for (rest, expected) in [
        (
            json!({"spec": {"completions": 3}, "status": {"active": 1, "succeeded": 1, "failed": 2}}),
            expect![[r#"
                job shop/load: running; pods: 1 active, 1 of 3 succeeded, 2 failed
            "#]],
        ),
        (
            json!({"spec": {"suspend": true}}),
            expect![[r#"
            job shop/load: suspended
        "#]],
        ),
        (
            json!({"status": {"conditions": [failed], "failed": 7}}),
            expect![[r#"
            job shop/load: failed: BackoffLimitExceeded: Job has reached the specified backoff limit
        "#]],
        ),
    ] {
        check(vec![object("batch/v1", "Job", "load", &rest)], "Job", &expected);
    }
}

#[test]
fn a_claim_and_its_volume() {
    let claim = json!({"spec": {"storageClassName": "fast", "volumeName": "pv-1"}, "status": {"phase": "Bound"}});
    let items = || {
        vec![
            object("v1", "PersistentVolumeClaim", "data", &claim),
            object(
                "v1",
                "PersistentVolume",
                "pv-1",
                &json!({"spec": {"claimRef": {"namespace": "shop", "name": "data"}}, "status": {"phase": "Bound"}}),
            ),
            object(
                "storage.k8s.io/v1",
                "VolumeAttachment",
                "va",
                &json!({
                    "metadata": {"deletionTimestamp": "2026-01-01T00:30:00Z"},
                    "spec": {"attacher": "d", "nodeName": "n1", "source": {"persistentVolumeName": "pv-1"}},
                    "status": {"attached": true, "detachError": {"message": "timeout"}},
                }),
            ),
            pod("web-0", Some("n1"), "True", ("StatefulSet", "web")),
        ]
    };
    check(
        items(),
        "PersistentVolumeClaim",
        &expect![[r#"
        persistentvolumeclaim shop/data: Bound to volume pv-1

        Details
          - storage class: fast
          - used by pod web-0 (on node n1)
          - cannot be detached from node n1: timeout
    "#]],
    );
    check(
        items(),
        "PersistentVolume",
        &expect![[r#"
        persistentvolume pv-1: Bound to claim shop/data

        Details
          - used by pod web-0 (on node n1)
          - cannot be detached from node n1: timeout
    "#]],
    );
}

#[test]
fn a_budget_and_a_namespace() {
    let budget = object(
        "policy/v1",
        "PodDisruptionBudget",
        "web",
        &json!({
            "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2, "expectedPods": 2},
        }),
    );
    let pods = || {
        ["True", "False"]
            .map(|ready| pod(&format!("web-{ready}").to_lowercase(), Some("n1"), ready, ("StatefulSet", "web")))
    };
    check(
        [budget].into_iter().chain(pods()).collect(),
        "PodDisruptionBudget",
        &expect![[r#"
        poddisruptionbudget shop/web: 0 disruptions allowed: 1 of 2 pods healthy, 2 required (minAvailable
          2)

        Details
          - pods that are not Ready: web-false
    "#]],
    );
    let condition = json!({"type": "NamespaceFinalizersRemaining", "status": "True",
                           "message": "Some content in the namespace has finalizers remaining: x in 1 resource instances"});
    let mut namespace = object(
        "v1",
        "Namespace",
        "shop",
        &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:30:00Z"},
                "status": {"phase": "Terminating", "conditions": [condition]}}),
    );
    namespace["metadata"].as_object_mut().expect("metadata").remove("namespace");
    check(
        [namespace].into_iter().chain(pods()).collect(),
        "Namespace",
        &expect![[r#"
            namespace shop: Terminating since 2026-01-01T00:30:00Z, 30m ago; 1 of 2 pods ready; stuck:
              NodeUnreachable (node/n1)

            Causes
              - critical NodeUnreachable: node n1 was deleted, and objects still refer to it
                pods: web-false, web-true
                stead explain pod/web-false -n shop

            Details
              - condition NamespaceFinalizersRemaining: Some content in the namespace has finalizers remaining:
                x in 1 resource instances
        "#]],
    );
}

#[test]
fn an_object_that_does_not_exist() {
    let objects = Objects::default();
    let clock = Clock::new(&objects, "2026-01-01T01:00:00Z".parse().expect("a time"), Timers::default());
    let key = ObjectKey::namespaced("Job", "shop", "none");
    assert_eq!(explain_object(&objects, &key, &kinds(), &clock).expect("nothing is malformed"), None);
}
