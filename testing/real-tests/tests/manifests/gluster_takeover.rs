//! The steps of docs/GLUSTER-MIGRATE.md on a real control plane: an existing pool moves to Stead and back.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use stead_manifests::gluster::{Pool, pool};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, Nodes, Options};

/// The StorageClasses of the stand-in nodes.
const STORAGE: &str = include_str!("../../../../testdata/cluster/storage.yaml");

/// A pool that was created by hand, with other names for claims and labels.
fn old() -> Value {
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local-storage",
            "resources": {"requests": {"storage": "1Gi"}},
        }})
    };
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "glusterfs"},
         "spec": {"clusterIP": "None", "selector": {"app": "glusterfs"}, "ports": [{"port": 24007}]}},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "glusterfs"}, "spec": {
            "serviceName": "glusterfs",
            "replicas": 3,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "glusterfs"}},
            "template": {"metadata": {"labels": {"app": "glusterfs"}}, "spec": {"containers": [{
                "name": "glusterfs",
                "image": "gluster/gluster-centos:latest",
                "volumeMounts": [mount("state", "/var/lib/glusterd"), mount("disk", "/mnt/bricks")],
            }]}},
            "volumeClaimTemplates": [claim("state"), claim("disk")],
        }},
    ]})
}

async fn get(plane: &ControlPlane, what: &str) -> Result<Vec<Value>> {
    let text = plane.kubectl(&["get", what, "-o", "json"]).await?.ok()?;
    let mut list: Value = serde_json::from_str(&text)?;
    Ok(serde_json::from_value(list["items"].take())?)
}

/// Waits until all three pods are ready and meet a condition.
async fn pods(plane: &ControlPlane, what: &str, meets: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
    for _ in 0..240 {
        let pods = get(plane, "pods").await?;
        let ready = |pod: &Value| {
            let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            conditions.clone().any(|c| c["type"] == "Ready" && c["status"] == "True")
        };
        if pods.len() == 3 && pods.iter().all(|pod| ready(pod) && meets(pod)) {
            return Ok(pods);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    bail!("after two minutes, not all pods are {what}: {}", plane.kubectl(&["get", "pods,sts,pvc"]).await?.stdout)
}

fn uids(objects: &[Value]) -> Vec<&Value> {
    objects.iter().map(|o| &o["metadata"]["uid"]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_existing_pool_is_taken_over_with_its_claims() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let plane = ControlPlane::start(&binaries, Options::default()).await?;
    let nodes = Nodes::start(&plane, ClusterSpec::seven()).await?;
    nodes.ready().await?;
    plane.kubectl_with(&["apply", "-f", "-"], STORAGE).await?.ok()?;
    plane.kubectl_with(&["apply", "-f", "-"], &old().to_string()).await?.ok()?;
    let before = pods(&plane, "ready", |_| true).await?;
    let claims = get(&plane, "pvc").await?;
    ensure!(claims.len() == 6, "{claims:?}");

    plane.kubectl(&["delete", "statefulset", "glusterfs", "--cascade=orphan"]).await?.ok()?;
    let labels =
        ["app.kubernetes.io/name=gluster", "app.kubernetes.io/instance=glusterfs", "app.kubernetes.io/part-of=stead"];
    let names = ["glusterfs-0", "glusterfs-1", "glusterfs-2"];
    plane.kubectl(&[&["label", "--overwrite", "pod"], &names[..], &labels[..]].concat()).await?.ok()?;
    ensure!(uids(&get(&plane, "pods").await?) == uids(&before), "no pod was deleted");
    plane.kubectl(&["delete", "service", "glusterfs"]).await?.ok()?;
    let new = Pool {
        state_claim: "state".to_owned(),
        brick_claim: "disk".to_owned(),
        brick_path: "/mnt/bricks".to_owned(),
        storage_class: Some("local-storage".to_owned()),
        image: "gluster:11.1".to_owned(),
        ..Pool::default()
    };
    let items: Vec<Value> = pool(&new).into_iter().map(|m| m.object).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    plane.kubectl_with(&["apply", "-f", "-"], &list).await?.ok()?;
    let agent = |pod: &Value| pod["spec"]["containers"][0]["command"][2] == "agent";
    let after = pods(&plane, "with an agent", agent).await?;
    ensure!(uids(&after).iter().all(|uid| !uids(&before).contains(uid)), "each pod was replaced");
    ensure!(uids(&get(&plane, "pvc").await?) == uids(&claims), "the claims are the same, and no others");

    // And back.
    plane.kubectl(&["delete", "statefulset", "glusterfs", "--cascade=orphan"]).await?.ok()?;
    let mut own = old()["items"][1].clone();
    let kept = json!({"app.kubernetes.io/name": "gluster", "app.kubernetes.io/instance": "glusterfs", "app.kubernetes.io/part-of": "stead"});
    own["spec"]["selector"]["matchLabels"] = kept.clone();
    own["spec"]["template"]["metadata"]["labels"] = kept;
    plane.kubectl_with(&["apply", "-f", "-"], &own.to_string()).await?.ok()?;
    pods(&plane, "without an agent", |pod| !agent(pod)).await?;
    ensure!(uids(&get(&plane, "pvc").await?) == uids(&claims), "the claims are the same, and no others");
    Ok(())
}
