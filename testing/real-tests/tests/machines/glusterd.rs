//! Real glusterd in pods, with a replicated volume that a client mounts. Skipped if it is not installed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stead_machines::{Image, Images};
use stead_testbed::{ClusterSpec, DriverSpec, NodeSpec, Options, skip};

use crate::cluster::{Cluster, MINUTE, NS, binaries_or_skip};

/// An affinity that excludes the node for clients.
fn off_clients() -> Value {
    let name = json!({ "key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["n3"] });
    let terms = json!({ "nodeSelectorTerms": [{ "matchExpressions": [name] }] });
    json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": terms } })
}

fn pool() -> Value {
    let claim = |name: &str| {
        json!({
            "metadata": { "name": name },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "disk",
                "resources": { "requests": { "storage": "1Gi" } },
            },
        })
    };
    let container = json!({
        "name": "glusterd", "image": "gluster", "command": ["glusterd", "-N"],
        "readinessProbe": { "tcpSocket": { "port": 24007 }, "periodSeconds": 1 },
        "volumeMounts": [
            { "name": "state", "mountPath": "/var/lib/glusterd" }, { "name": "brick", "mountPath": "/brick" },
        ],
    });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "pool" },
        "spec": {
            "serviceName": "pool", "replicas": 3, "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { "app": "pool" } },
            "template": {
                "metadata": { "labels": { "app": "pool" } },
                "spec": { "terminationGracePeriodSeconds": 5, "containers": [container], "affinity": off_clients() },
            },
            "volumeClaimTemplates": [claim("state"), claim("brick")],
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_with_a_replicated_volume() {
    let Some(binaries) = binaries_or_skip() else { return };
    if std::process::Command::new("glusterd").arg("--version").output().is_err() {
        return skip("glusterd is not installed");
    }
    let nodes = ["n0", "n1", "n2", "n3"].map(|name| NodeSpec { name: name.to_owned(), ..NodeSpec::default() });
    let drivers = vec![DriverSpec { name: "disk.test".to_owned(), topology: None, attach: false, disk: false }];
    let cluster = ClusterSpec { nodes: nodes.to_vec(), drivers, ..ClusterSpec::default() };
    let images = Images::default().with("gluster", Image::default().empty("/var/log/glusterfs"));
    let cluster = Cluster::start(&binaries, Options::default(), cluster, images).await;
    cluster
        .apply(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "disk" },
            "provisioner": "disk.test",
        }))
        .await;
    cluster
        .apply(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "pool" },
            "spec": { "clusterIP": "None", "publishNotReadyAddresses": true, "selector": { "app": "pool" } },
        }))
        .await;
    cluster.apply(pool()).await;
    let client = json!({ "name": "client", "image": "gluster", "command": ["sleep", "infinity"] });
    let spec = json!({ "terminationGracePeriodSeconds": 1, "nodeName": "n3", "containers": [client] });
    let client = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "client" }, "spec": spec });
    cluster.apply(client).await;
    let Cluster { plane, machines } = cluster;
    for pod in ["pool-0", "pool-1", "pool-2", "client"] {
        machines.wait_ready(NS, pod, MINUTE).await.unwrap();
    }
    // Runs a command until it prints the expected text: peers need time to connect.
    let sh = async |pod: &str, container: &str, line: &str, expected: &str| {
        let end = Instant::now() + MINUTE;
        loop {
            let output = machines.exec(NS, pod, container, &["sh", "-c", line]).await.unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success() && said.contains(expected) {
                return;
            }
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(Instant::now() < end, "{pod}: {line}: {said}{error}");
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    let full = |index: u32| format!("pool-{index}.pool.default.svc.cluster.local");
    for other in [1, 2] {
        sh("pool-0", "glusterd", &format!("gluster peer probe {}", full(other)), "success").await;
    }
    for pod in ["pool-0", "pool-1", "pool-2"] {
        let count = "gluster peer status | grep -c 'Peer in Cluster (Connected)'";
        sh(pod, "glusterd", count, "2").await;
    }
    let bricks = [0, 1, 2].map(|index| format!("{}:/brick/v", full(index))).join(" ");
    // An attempt may succeed although it reports a failure; the next one detects that.
    let once = |line: &str| {
        format!("said=$({line} 2>&1); echo \"$said\"; echo \"$said\" | grep -qE 'success|already (exists|started)'")
    };
    let create = format!("gluster --mode=script volume create v replica 3 {bricks} force");
    sh("pool-0", "glusterd", &once(&create), "").await;
    sh("pool-0", "glusterd", &once("gluster volume start v"), "").await;
    let mount = format!("mkdir -p /mnt/v && {{ mountpoint -q /mnt/v || mount -t glusterfs {}:/v /mnt/v; }}", full(0));
    sh("client", "client", &mount, "").await;
    // Two bricks are enough for a write.
    sh("client", "client", "cat /mnt/v/.meta/graphs/active/v-client-*/private | grep -c 'connected = 1'", "3").await;
    sh("client", "client", "echo hello > /mnt/v/f && cat /mnt/v/f", "hello").await;
    // Each brick has the file, in its own volume; and it can be read while one of them is down.
    for index in [0, 1, 2] {
        let brick = machines.volume_dir(NS, &format!("brick-pool-{index}")).unwrap();
        assert_eq!(std::fs::read_to_string(brick.join("v/f")).unwrap(), "hello\n");
    }
    plane.kubectl(&["delete", "pod", "pool-1", "--wait=false"]).await.unwrap().ok().unwrap();
    sh("client", "client", "cat /mnt/v/f", "hello").await;
    let count = "gluster peer status | grep -c 'Peer in Cluster (Connected)'";
    for pod in ["pool-0", "pool-1", "pool-2"] {
        machines.wait_ready(NS, pod, MINUTE).await.unwrap();
        sh(pod, "glusterd", count, "2").await;
    }
    // With suspended machines the mount hangs; the client's processes are removed with the rest anyway.
    for node in ["n0", "n1", "n2"] {
        machines.suspend(node).await.unwrap();
    }
    let (group, folder) = (machines.control_group(), machines.folder());
    let waits = machines.exec(NS, "client", "client", &["cat", "/mnt/v/f"]);
    assert!(
        tokio::time::timeout(Duration::from_secs(2), waits).await.is_err(),
        "the volume can be read without its bricks"
    );
    let begun = Instant::now();
    drop(machines);
    assert!(!group.exists() && !folder.exists());
    // Less than the 42 s after which a client gives up on its bricks.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}
