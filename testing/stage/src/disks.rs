//! A stage for tests of volumes and their writers when a machine is off.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stead_machines::{Machines, Setup};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, DriverSpec, NodeSpec, Options};

use crate::{wait_for, wait_until};

/// The timeout for each wait: a node has to be marked unreachable, its pods evicted, its disks detached.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// The node label of the storage zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The storage class of the disks.
const CLASS: &str = "disks";

/// The program of the pods: writes a line every 0.1 s.
const WRITER_PROGRAM: &str = "while true; do echo \"$POD_NAME $NODE_NAME\" >> /data/lines || exit 1; sleep 0.1; done";

/// A cluster with disks that can each be attached to one machine at a time.
pub struct DiskStage {
    /// The control plane.
    pub plane: ControlPlane,
    /// The nodes: a-0, a-1 and a-2 in zone A, b-0 and b-1 in zone B.
    pub machines: Machines,
    stead: PathBuf,
}

/// A pod that writes to a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub uid: String,
    /// The pod's node.
    pub node: String,
}

impl DiskStage {
    /// Starts a control plane with fast timers, and the nodes.
    pub async fn open(binaries: &Binaries, stead: &Path) -> Result<DiskStage> {
        let options = Options { fast: true, egress: true, ..Options::default() };
        let plane = ControlPlane::start(binaries, options).await?;
        let node = |(name, zone): (&str, &str)| NodeSpec {
            name: name.to_owned(),
            labels: [(ZONE.to_owned(), zone.to_owned())].into(),
            ..NodeSpec::default()
        };
        let nodes = [("a-0", "A"), ("a-1", "A"), ("a-2", "A"), ("b-0", "B"), ("b-1", "B")];
        let driver = DriverSpec {
            name: "cinder.csi.openstack.org".to_owned(),
            topology: Some(ZONE.to_owned()),
            attach: true,
            disk: true,
        };
        let cluster =
            ClusterSpec { nodes: nodes.map(node).to_vec(), drivers: vec![driver.clone()], ..ClusterSpec::default() };
        let machines = Machines::start(&plane, Setup { cluster, ..Setup::default() }).await?;
        machines.ready().await?;
        let stage = DiskStage { plane, machines, stead: stead.to_owned() };
        stage
            .apply(&json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": CLASS },
                "provisioner": driver.name, "volumeBindingMode": "WaitForFirstConsumer",
            }))
            .await?;
        Ok(stage)
    }

    /// Runs kubectl. Returns standard output, or an error with standard error.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let ran = self.plane.kubectl(args).await?;
        ran.ok().with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// Runs `stead` against this cluster. Returns exit code, standard output and standard error.
    pub async fn stead(&self, args: &[&str]) -> Result<(Option<i32>, String, String)> {
        crate::run_stead(&self.stead, &self.plane, args).await
    }

    async fn apply(&self, object: &Value) -> Result<()> {
        let ran = self.plane.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await?;
        ran.ok().with_context(|| format!("applying {}", object["metadata"]["name"])).map(drop)
    }

    /// Creates a StatefulSet with one pod that writes to a disk, and waits until it writes.
    pub async fn start_writer(&self, name: &str) -> Result<Writer> {
        let field =
            |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
        let template = json!({
            "metadata": { "labels": { "app": name } },
            "spec": {
                "nodeSelector": { ZONE: "A" },
                "terminationGracePeriodSeconds": 2,
                "containers": [{
                    "name": "writer", "image": "writer", "command": ["sh", "-c", WRITER_PROGRAM],
                    "env": [field("POD_NAME", "metadata.name"), field("NODE_NAME", "spec.nodeName")],
                    "readinessProbe": { "exec": { "command": ["test", "-s", "/data/lines"] }, "periodSeconds": 1 },
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }],
            },
        });
        let claim = json!({
            "metadata": { "name": "data" },
            "spec": { "storageClassName": CLASS, "accessModes": ["ReadWriteOnce"],
                      "resources": { "requests": { "storage": "1Gi" } } },
        });
        self.apply(&json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name },
            "spec": { "serviceName": name, "replicas": 1, "selector": { "matchLabels": { "app": name } },
                      "template": template, "volumeClaimTemplates": [claim] },
        }))
        .await?;
        self.ready_writer(name, "").await
    }

    /// Waits for a Ready pod of an application whose uid is not `old_uid`.
    pub async fn ready_writer(&self, app: &str, old_uid: &str) -> Result<Writer> {
        wait_for(&format!("a pod of {app} is ready"), TIMEOUT, async || self.find_ready(app, old_uid).await).await
    }

    async fn find_ready(&self, app: &str, old_uid: &str) -> Result<Option<Writer>> {
        let list = self.kubectl(&["get", "pods", "-l", &format!("app={app}"), "-o", "json"]).await?;
        let list: Value = serde_json::from_str(&list)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = list["items"].as_array().into_iter().flatten().filter(|pod| {
            let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            let ready = conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
            ready && pod["metadata"]["deletionTimestamp"].is_null() && pod["metadata"]["uid"] != old_uid
        });
        let writer = |pod: &Value| Writer {
            pod: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            node: text(&pod["spec"]["nodeName"]),
        };
        Ok(pods.map(writer).next())
    }

    /// Returns the lines written so far.
    pub async fn lines(&self, writer: &Writer) -> Result<Vec<String>> {
        let read = self.machines.exec("default", &writer.pod, "writer", &["cat", "/data/lines"]).await?;
        ensure!(read.status.success(), "{}: {}", writer.pod, String::from_utf8_lossy(&read.stderr));
        Ok(String::from_utf8_lossy(&read.stdout).lines().map(str::to_owned).collect())
    }

    /// Waits until Kubernetes has marked a node unreachable, and its Lease has expired.
    pub async fn wait_until_unreachable(&self, node: &str) -> Result<()> {
        wait_until(&format!("{node} is unreachable"), TIMEOUT, async || {
            let ready = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
            let (code, _, stderr) = self.stead(&["recover", &format!("node/{node}"), "--dry-run"]).await?;
            // Refused, because there is no evidence that the machine is off.
            ensure!(code == Some(1) && !stderr.contains("panicked"), "a dry run exited with {code:?}: {stderr}");
            Ok(self.kubectl(&["get", "node", node, "-o", ready]).await? == "Unknown"
                && self.lease_is_expired(node).await?)
        })
        .await
    }

    async fn lease_is_expired(&self, node: &str) -> Result<bool> {
        let path = format!("lease/{node}");
        let lease = self.kubectl(&["get", "-n", "kube-node-lease", &path, "-o", "json"]).await?;
        let lease: Value = serde_json::from_str(&lease)?;
        let renewed: jiff::Timestamp = lease["spec"]["renewTime"].as_str().context("no renewTime")?.parse()?;
        let duration = lease["spec"]["leaseDurationSeconds"].as_i64().context("no leaseDurationSeconds")?;
        Ok(jiff::Timestamp::now().duration_since(renewed).as_secs() > duration)
    }

    /// Whether a node has neither taint nor annotation of a recovery.
    pub async fn has_no_recovery(&self, node: &str) -> Result<bool> {
        let node = self.kubectl(&["get", "node", node, "-o", "json"]).await?;
        Ok(!node.contains("node.kubernetes.io/out-of-service") && !node.contains("stead.dev/recovery"))
    }

    /// Fails if two machines could write at the same time, or a disk was detached from a machine that was still
    /// writing.
    pub fn check_violations(&self) -> Result<()> {
        let violations = self.machines.violations();
        ensure!(violations.is_empty(), "violations: {violations:#?}");
        Ok(())
    }
}
