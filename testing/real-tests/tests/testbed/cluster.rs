//! The stand-in nodes on the real control plane. Skipped if the control plane is not built.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{PersistentVolume, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, JobEnd, Nodes, Options, User};

async fn cluster(options: Options) -> Option<(ControlPlane, Nodes)> {
    let binaries = Binaries::find_or_skip()?;
    let plane = ControlPlane::start(&binaries, options).await.unwrap();
    let storage = include_str!("../../../../testdata/cluster/storage.yaml");
    plane.kubectl_with(&["apply", "-f", "-"], storage).await.unwrap().ok().unwrap();
    let nodes = Nodes::start(&plane, ClusterSpec::seven()).await.unwrap();
    nodes.ready().await.unwrap();
    Some((plane, nodes))
}

async fn apply(plane: &ControlPlane, object: Value) {
    plane.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.unwrap().ok().unwrap();
}

fn stateful_set(name: &str, replicas: u32, class: &str) -> Value {
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class,
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name },
        "spec": {
            "serviceName": name, "replicas": replicas, "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "a", "image": "x" }, { "name": "b", "image": "x" }] },
            },
            "volumeClaimTemplates": [claim],
        },
    })
}

/// Runs kubectl until it prints this.
async fn until(plane: &ControlPlane, seconds: u64, args: &[&str], expected: &str) {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        let output = plane.kubectl(args).await.unwrap();
        if output.stdout.trim() == expected {
            return;
        }
        assert!(Instant::now() < end, "{args:?} printed {output:?}, not {expected}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn until_ready(plane: &ControlPlane, name: &str, replicas: &str) {
    until(plane, 60, &["get", "sts", name, "-o", "jsonpath={.status.readyReplicas}"], replicas).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stateful_sets_with_each_kind_of_storage_start_and_stop() {
    let Some((plane, _nodes)) = cluster(Options::default()).await else { return };
    for class in ["lvms-local-storage", "cinder", "local-storage"] {
        apply(&plane, stateful_set(class, 3, class)).await;
    }
    for class in ["lvms-local-storage", "cinder", "local-storage"] {
        until_ready(&plane, class, "3").await;
    }
    let volumes: Api<PersistentVolume> = Api::all(plane.client());
    let mut where_usable: Vec<String> = Vec::new();
    for volume in volumes.list(&ListParams::default()).await.unwrap() {
        let spec = serde_json::to_value(&volume.spec).unwrap();
        let key = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["key"];
        where_usable.push(format!("{} {key}", spec["csi"]["driver"].as_str().unwrap()));
    }
    where_usable.sort();
    where_usable.dedup();
    let expected = ["cinder.csi.openstack.org \"zone\"", "net.csi.test null", "topolvm.io \"kubernetes.io/hostname\""];
    assert_eq!(where_usable, expected);
    let attached = ["get", "volumeattachments", "-o", "jsonpath={.items[*].status.attached}"];
    assert_eq!(plane.kubectl(&attached).await.unwrap().stdout, "true true true");
    plane.kubectl(&["delete", "sts", "--all"]).await.unwrap().ok().unwrap();
    until(&plane, 60, &["get", "pods", "-o", "name"], "").await;
    until(&plane, 60, &["get", "volumeattachments", "-o", "name"], "").await;
    plane.kubectl(&["delete", "pvc", "--all"]).await.unwrap().ok().unwrap();
    until(&plane, 60, &["get", "pv", "-o", "name"], "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_node_loses_its_pods_and_comes_back() {
    let Some((plane, nodes)) = cluster(Options { fast: true, ..Options::default() }).await else { return };
    apply(&plane, stateful_set("db", 1, "local-storage")).await;
    until_ready(&plane, "db", "1").await;
    let pods: Api<Pod> = Api::default_namespaced(plane.client());
    let first = pods.get("db-0").await.unwrap();
    let node = first.spec.clone().unwrap().node_name.unwrap();
    nodes.make_unreachable(&node).unwrap();
    let ready = ["get", "node", &node, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"];
    until(&plane, 30, &ready, "Unknown").await;
    let leaving = ["get", "pod", "db-0", "-o", "jsonpath={.metadata.deletionGracePeriodSeconds}"];
    until(&plane, 60, &leaving, "30").await;
    nodes.resume(&node).unwrap();
    until(&plane, 30, &ready, "True").await;
    until_ready(&plane, "db", "1").await;
    assert_ne!(pods.get("db-0").await.unwrap().uid(), first.uid());
    nodes.ready().await.unwrap();
    assert!(nodes.make_unreachable("no-such-node").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_end_as_configured() {
    let Some((plane, nodes)) = cluster(Options::default()).await else { return };
    let job = |name: &str| {
        let spec = json!({ "restartPolicy": "Never", "containers": [{ "name": "a", "image": "x" }] });
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": name },
            "spec": { "backoffLimit": 0, "template": { "spec": spec } },
        })
    };
    apply(&plane, job("good")).await;
    until(&plane, 60, &["get", "job", "good", "-o", "jsonpath={.status.succeeded}"], "1").await;
    nodes.end_jobs(JobEnd::KeepRunning);
    apply(&plane, job("bad")).await;
    until(&plane, 60, &["get", "job", "bad", "-o", "jsonpath={.status.ready}"], "1").await;
    nodes.end_jobs(JobEnd::Fail);
    until(&plane, 60, &["get", "job", "bad", "-o", "jsonpath={.status.failed}"], "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_service_accounts_and_the_audit_log() {
    let Some(binaries) = Binaries::find_or_skip() else { return };
    let eve = User { name: "eve".into(), token: "evetoken".into(), groups: vec!["visitors".into()] };
    let admission = vec!["OwnerReferencesPermissionEnforcement".to_owned()];
    let options = Options { bare: true, audit: true, admission, users: vec![eve], ..Options::default() };
    let plane = ControlPlane::start(&binaries, options).await.unwrap();
    plane.kubectl(&["create", "serviceaccount", "robot"]).await.unwrap().ok().unwrap();
    let robot = plane.service_account_token("default", "robot").await.unwrap();
    // (The role `view` is empty here: no controller aggregates it.)
    let role = ["create", "clusterrole", "see", "--verb=list", "--resource=pods"];
    plane.kubectl(&role).await.unwrap().ok().unwrap();
    let grant = ["create", "clusterrolebinding", "see", "--clusterrole=see", "--serviceaccount=default:robot"];
    plane.kubectl(&grant).await.unwrap().ok().unwrap();
    let pods = |client| Api::<Pod>::namespaced(client, "default");
    let robot = plane.client_for("robot", &robot).await.unwrap();
    // RBAC uses a binding a moment later, by a watch.
    let end = Instant::now() + Duration::from_secs(60);
    while pods(robot.clone()).list(&ListParams::default()).await.is_err() {
        assert!(Instant::now() < end, "the binding has no effect");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let eve = plane.client_for("eve", "evetoken").await.unwrap();
    let refused = pods(eve).list(&ListParams::default()).await.unwrap_err();
    assert!(refused.to_string().contains("User \"eve\" cannot list resource \"pods\""), "{refused}");
    let events = plane.audit_events().unwrap();
    let asked = |user: &str| -> Vec<(String, String, u16)> {
        let of_user = events.iter().filter(|event| event.user() == user);
        let row = |e: &stead_testbed::AuditEvent| (e.verb.clone(), e.object_ref.clone().unwrap().resource, e.code());
        let mut rows: Vec<_> = of_user.map(row).collect();
        rows.dedup();
        rows
    };
    let row = |code| ("list".to_owned(), "pods".to_owned(), code);
    assert_eq!(asked("eve"), [row(403)]);
    assert_eq!(asked("system:serviceaccount:default:robot").last(), Some(&row(200)));
    let folder = plane.folder().to_owned();
    plane.stop();
    assert!(!folder.exists());
}
