//! Pods as processes on the real control plane. Skipped where that is not built, or pods cannot be processes.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::Api as KubeApi;
use serde_json::{Value, json};
use stead_machines::{Api, Image, Images, Machines, Setup};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, DriverSpec, NodeSpec, Options};

const NS: &str = "default";
const MINUTE: Duration = Duration::from_secs(60);

/// A web server that answers `/` with what is in its volume, and is ready while the file `/data/ready` is there.
const WEB: &str = r#"
import http.server, os, signal, sys, time
class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ok = self.path != '/ready' or os.path.exists('/data/ready')
        self.send_response(200 if ok else 503)
        self.end_headers()
        try: self.wfile.write(open('/data/text').read().encode())
        except OSError: pass
    def log_message(self, *args): pass
def leave(*args):
    print('leaving', flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
open('/data/starts', 'a').write('x')
print('here', flush=True)
http.server.ThreadingHTTPServer(('', 8080), Web).serve_forever()
"#;

struct Cluster {
    plane: ControlPlane,
    machines: Machines,
}

async fn cluster() -> Option<Cluster> {
    let binaries = Binaries::find_or_skip()?;
    if !Machines::can_run_or_skip() {
        return None;
    }
    let plane = ControlPlane::start(&binaries, Options { fast: true, ..Options::default() }).await.unwrap();
    let node = |name: &str| NodeSpec { name: name.to_owned(), ..NodeSpec::default() };
    let driver = DriverSpec { name: "disk.test".to_owned(), topology: None, attach: true };
    let cluster = ClusterSpec { nodes: vec![node("n0"), node("n1")], drivers: vec![driver], ..ClusterSpec::default() };
    let images = Images::default().with("web", Image::default().entrypoint(["python3", "-c", WEB]).env("MADE", "here"));
    let machines = Machines::start(&plane, Setup { cluster, images, ..Setup::default() }).await.unwrap();
    machines.ready().await.unwrap();
    let cluster = Cluster { plane, machines };
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "disk" },
        "provisioner": "disk.test", "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.apply(class).await;
    Some(cluster)
}

impl Cluster {
    async fn apply(&self, object: Value) {
        self.plane.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.unwrap().ok().unwrap();
    }

    async fn get(&self, what: &str, path: &str) -> String {
        let path = format!("jsonpath={path}");
        self.plane.kubectl(&["get", what, "-o", &path]).await.unwrap().stdout
    }

    /// Asks kubectl until it says this.
    async fn until(&self, what: &str, path: &str, expected: &str) {
        let end = Instant::now() + MINUTE;
        loop {
            let said = self.get(what, path).await;
            if said == expected {
                return;
            }
            assert!(Instant::now() < end, "{what} {path} says {said}, not {expected}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// What a shell in a pod prints, or that it failed.
    async fn sh(&self, pod: &str, line: &str) -> Result<String, String> {
        let output = self.machines.exec(NS, pod, "web", &["sh", "-c", line]).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    async fn ready(&self, pod: &str) -> Pod {
        self.machines.wait_ready(NS, pod, MINUTE).await.unwrap()
    }

    /// The headless Service and a StatefulSet of two web servers on a node each, with a volume each.
    async fn web(&self) {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
            "spec": {
                "clusterIP": "None", "publishNotReadyAddresses": true, "selector": { "app": "web" },
                "ports": [{ "port": 8080 }],
            },
        }))
        .await;
        let probe =
            json!({ "httpGet": { "path": "/ready", "port": "http" }, "periodSeconds": 1, "failureThreshold": 1 });
        let env = json!([
            { "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            { "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
            { "name": "FULL", "value": "$(POD).web" },
        ]);
        let container = json!({
            "name": "web", "image": "web", "env": env, "ports": [{ "name": "http", "containerPort": 8080 }],
            "readinessProbe": probe, "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        });
        let init = json!({
            "name": "first", "image": "web", "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            "command": ["sh", "-c", "test -e /data/text || hostname > /data/text; touch /data/ready"],
        });
        let claim = json!({
            "metadata": { "name": "data" },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "disk",
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        let spread = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "labelSelector": { "matchLabels": { "app": "web" } }, "topologyKey": "kubernetes.io/hostname" },
        ] } });
        self.apply(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "web" },
            "spec": {
                "serviceName": "web", "replicas": 2, "podManagementPolicy": "Parallel",
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "affinity": spread, "initContainers": [init], "containers": [container] },
                },
                "volumeClaimTemplates": [claim],
            },
        }))
        .await;
        self.ready("web-0").await;
        self.ready("web-1").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_lives() {
    let Some(cluster) = cluster().await else { return };
    cluster.web().await;
    let curl = "curl -sS -m 3 http://web-1.web:8080/";
    assert_eq!(cluster.sh("web-0", curl).await, Ok("web-1".to_owned()));
}
