//! The demo application in pods on the real control plane: its rows move with it. Skipped if the control plane is not
//! built, or pods cannot run as processes.

use std::time::{Duration, Instant};

use serde_json::Value;
use stead_machines::{Image, Images};
use stead_testbed::{ClusterSpec, DriverSpec, NodeSpec, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::cluster::{Cluster, MINUTE, NS, binaries_or_skip};

const STORAGE: &str = include_str!("../../../../examples/cinder-demo/storage.yaml");
const DEPLOYMENT: &str = include_str!("../../../../examples/cinder-demo/deployment.yaml");
const STATEFUL_SET: &str = include_str!("../../../../examples/cinder-demo/statefulset.yaml");
const ZONE: &str = "topology.cinder.csi.openstack.org/zone";
const REGION: &str = "failure-domain.beta.kubernetes.io/region";

async fn cluster() -> Option<Cluster> {
    let binaries = binaries_or_skip()?;
    let node = |(name, zone): (&str, &str)| NodeSpec {
        name: name.to_owned(),
        labels: [(ZONE.to_owned(), zone.to_owned()), (REGION.to_owned(), "de-nbg6-1".to_owned())].into(),
        ..NodeSpec::default()
    };
    let nodes = [("node-1-nude", "de-nbg6-1b"), ("node-3-nude", "de-nbg6-1a"), ("node-4-nude", "de-nbg6-1a")];
    let name = "cinder.csi.openstack.org".to_owned();
    let cluster = ClusterSpec {
        nodes: nodes.map(node).to_vec(),
        drivers: vec![DriverSpec { name, topology: Some(ZONE.to_owned()), attach: true, disk: true }],
        ..ClusterSpec::default()
    };
    let image = Image::default()
        .file("/cinder-demo", stead_stage::program("cinder-demo").unwrap())
        .entrypoint(["/cinder-demo"]);
    let images = Images::default().with("cinder-demo", image);
    let cluster = Cluster::start(&binaries, Options { fast: true, ..Options::default() }, cluster, images).await;
    cluster.kubectl("cordon node-4-nude").await;
    for file in [STORAGE, DEPLOYMENT, STATEFUL_SET] {
        cluster.plane.kubectl_with(&["apply", "-f", "-"], file).await.unwrap().ok().unwrap();
    }
    Some(cluster)
}

impl Cluster {
    /// Waits until an application has a ready pod that is not one of these, and returns its name, uid and node.
    async fn pod(&self, app: &str, but: &[&str]) -> [String; 3] {
        let end = Instant::now() + MINUTE * 2;
        loop {
            let list: Value =
                serde_json::from_str(&self.kubectl(&format!("get pods -l app={app} -o json")).await).unwrap();
            for pod in list["items"].as_array().unwrap() {
                let [name, uid] = [&pod["metadata"]["name"], &pod["metadata"]["uid"]].map(|v| v.as_str().unwrap());
                if but.contains(&uid) || !pod["metadata"]["deletionTimestamp"].is_null() {
                    continue;
                }
                let Ok(ready) = self.machines.wait_ready(NS, name, Duration::from_secs(1)).await else { continue };
                // It may be another pod of the same name by now.
                let uid = ready.metadata.uid.unwrap();
                if !but.contains(&uid.as_str()) {
                    return [name.to_owned(), uid, ready.spec.unwrap().node_name.unwrap()];
                }
            }
            assert!(Instant::now() < end, "{app}: {list:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Sends a request to a pod over the cluster's network, and returns status and body of the answer.
    async fn send(&self, pod: &str, method: &str, path: &str, form: &str) -> (u16, String) {
        let address = format!("{}:8080", self.machines.pod_address(NS, pod).unwrap()).parse().unwrap();
        let mut stream = self.machines.connect(address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: demo\r\nAccept: text/plain\r\nConnection: close\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    async fn page(&self, pod: &str) -> (u16, String) {
        self.send(pod, "GET", "/", "").await
    }
}

fn page(rows: &str, pod: &str, node: &str) -> (u16, String) {
    (200, format!("{rows}My pod name: {pod}\nMy node name {node}\n"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_survive_moves_between_nodes() {
    let Some(cluster) = cluster().await else { return };
    let apps = ["test-cinder", "test-cinder-set"];
    let mut uids = Vec::new();
    for app in apps {
        let [pod, uid, node] = cluster.pod(app, &[]).await;
        assert_eq!(node, "node-3-nude", "in the zone of the StorageClass, and not cordoned");
        assert_eq!(cluster.page(&pod).await, page("", &pod, &node));
        assert_eq!(cluster.send(&pod, "POST", "/", &format!("name=foo&email={app}%40example.com")).await.0, 303);
        assert_eq!(cluster.send(&pod, "POST", "/", "name=a%7Cb&email=x").await.0, 400);
        assert_eq!(cluster.page(&pod).await, page(&format!("foo|{app}@example.com\n"), &pod, &node));
        uids.push(uid);
    }

    // A deleted pod is recreated on another node.
    cluster.kubectl("uncordon node-4-nude").await;
    cluster.kubectl("cordon node-3-nude").await;
    for (app, old) in apps.into_iter().zip(&mut uids) {
        cluster.kubectl(&format!("delete pod -l app={app}")).await;
        let [pod, uid, node] = cluster.pod(app, &[old]).await;
        assert_eq!(node, "node-4-nude");
        assert_eq!(cluster.page(&pod).await, page(&format!("foo|{app}@example.com\n"), &pod, &node));
        assert_eq!(cluster.send(&pod, "POST", "/", "name=bar&email=bar%40example.com").await.0, 303);
        *old = uid;
    }

    // The machine is shut down, and the node is tainted out of service.
    cluster.kubectl("uncordon node-3-nude").await;
    cluster.machines.kill("node-4-nude").await.unwrap();
    cluster.kubectl("wait --for=condition=Ready=Unknown node/node-4-nude --timeout=60s").await;
    cluster.kubectl("taint node node-4-nude node.kubernetes.io/out-of-service=nodeshutdown:NoExecute").await;
    for (app, old) in apps.into_iter().zip(&uids) {
        let [pod, _, node] = cluster.pod(app, &[old]).await;
        assert_eq!(node, "node-3-nude");
        let rows = format!("foo|{app}@example.com\nbar|bar@example.com\n");
        assert_eq!(cluster.page(&pod).await, page(&rows, &pod, &node));
    }
    assert_eq!(cluster.machines.violations(), []);

    // The disk is removed: the application reports it and keeps running.
    let [pod, ..] = cluster.pod("test-cinder", &[]).await;
    let volume = cluster.kubectl("get pvc test-cinder-volume -o jsonpath={.spec.volumeName}").await;
    assert!(cluster.machines.disks().remove(&volume, "node-3-nude"));
    let (status, body) = cluster.page(&pod).await;
    assert!(status == 500 && body.starts_with("the volume at /data is gone: Input/output error"), "{status} {body}");
    let (status, body) = cluster.send(&pod, "POST", "/", "name=late&email=late%40example.com").await;
    assert!(status == 500 && body.contains("adding a row to /data/test.db: "), "{status} {body}");
    assert_eq!(cluster.send(&pod, "GET", "/healthz", "").await, (200, "ok\n".to_owned()));
    assert_eq!(cluster.machines.violations().len(), 1);
}
