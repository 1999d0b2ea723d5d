//! The pods on the node when it fails: writers, and other pods that a recovery must not touch.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stead_machines::Machines;

use super::cluster::{Cluster, condition, text};
use super::run_spec::RunSpec;
use super::{AGENT, CLASS, HOST, ZONE, writer_lines};
use crate::{wait_for, wait_until};

/// The timeout for each wait.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The key of a taint that does not belong to Stead.
pub(super) const FOREIGN_TAINT: &str = "example.com/held";

/// A workload with one pod that writes to a disk.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    pub(super) app: &'static str,
    claim: String,
}

/// The pods of a run, in a separate namespace.
pub(super) struct RunWorkloads<'a> {
    pub(super) cluster: Cluster,
    machines: &'a Machines,
    pub(super) namespace: String,
    pub(super) node: String,
    pub(super) writers: Vec<Writer>,
    /// The uids by name of the pods that must be unchanged at the end: one that tolerates all taints, and the node's
    /// agent.
    pub(super) bystanders: BTreeMap<String, String>,
    /// The pod that can run only on this node, as it was at the start.
    pub(super) pinned_pod: Option<Value>,
}

impl<'a> RunWorkloads<'a> {
    /// Creates the workloads, and waits until all pods are Ready on this node.
    pub(super) async fn create(
        cluster: Cluster,
        machines: &'a Machines,
        zone: &str,
        node: &str,
        namespace: &str,
        spec: &RunSpec,
    ) -> Result<RunWorkloads<'a>> {
        let (namespace, node) = (namespace.to_owned(), node.to_owned());
        let (writers, bystanders) = (Vec::new(), BTreeMap::new());
        let mut workloads = RunWorkloads { cluster, machines, namespace, node, writers, bystanders, pinned_pod: None };
        let namespace = json!({ "metadata": { "name": workloads.namespace } });
        workloads.cluster.create("/api/v1/namespaces", &namespace).await?;
        let account = format!("/api/v1/namespaces/{}/serviceaccounts/default", workloads.namespace);
        wait_until("there is a service account", TIMEOUT, async || {
            Ok(!workloads.cluster.get(&account).await?.is_null())
        })
        .await?;
        workloads.create_writer("first", spec.stateful_set, zone, false).await?;
        if spec.second_writer {
            workloads.create_writer("second", !spec.stateful_set, zone, false).await?;
        }
        if spec.pinned_writer {
            workloads.create_writer("pinned", true, zone, true).await?;
        }
        let tolerating = json!({
            "metadata": { "name": "keeper" },
            "spec": {
                "nodeSelector": { HOST: workloads.node }, "tolerations": [{ "operator": "Exists" }],
                "terminationGracePeriodSeconds": 1, "containers": [{ "name": "keeper", "image": "sleeper" }],
            },
        });
        workloads.cluster.create(&workloads.path("pods"), &tolerating).await?;
        workloads.wait_until_ready().await?;
        let pods = workloads.pods().await?;
        let elsewhere = pods.iter().find(|pod| pod["spec"]["nodeName"] != *workloads.node);
        ensure!(
            elsewhere.is_none(),
            "not on {}: {}",
            workloads.node,
            elsewhere.map(|p| p["metadata"]["name"].to_string()).unwrap_or_default()
        );
        workloads.pinned_pod = pods.into_iter().find(|pod| pod["metadata"]["labels"]["app"] == "pinned");
        workloads.bystanders = wait_for("the agent and the keeper exist", TIMEOUT, async || {
            Ok(Some(workloads.list_bystanders().await?).filter(|found| found.len() == 2))
        })
        .await?;
        if spec.foreign_taint {
            workloads
                .set_foreign_taint(&[json!({ "key": FOREIGN_TAINT, "value": "by-others", "effect": "NoSchedule" })])
                .await?;
        }
        Ok(workloads)
    }

    fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    /// Creates a writer: a StatefulSet or a Deployment.
    async fn create_writer(&mut self, app: &'static str, stateful_set: bool, zone: &str, pinned: bool) -> Result<()> {
        let field =
            |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
        let preferred = json!([{ "weight": 100, "preference": {
            "matchExpressions": [{ "key": HOST, "operator": "In", "values": [self.node] }] } }]);
        let mut pod = json!({
            "nodeSelector": { ZONE: zone },
            "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": preferred } },
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "writer", "image": "writer", "command": ["sh", "-c", writer_lines::PROGRAM],
                "env": [field("POD_UID", "metadata.uid"), field("NODE_NAME", "spec.nodeName")],
                "readinessProbe": { "exec": { "command": ["test", "-s", "/data/lines"] }, "periodSeconds": 1 },
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
        });
        if pinned {
            pod["nodeSelector"] = json!({ HOST: self.node });
            // The replacement pod must be able to run there as well.
            pod["tolerations"] = json!([{ "key": FOREIGN_TAINT, "operator": "Exists" }]);
        }
        let (template, selector) = (json!({ "labels": { "app": app } }), json!({ "matchLabels": { "app": app } }));
        let claim = json!({ "storageClassName": CLASS, "accessModes": ["ReadWriteOnce"],
                            "resources": { "requests": { "storage": "1Gi" } } });
        let (kind, claim) = if stateful_set {
            let object = json!({
                "metadata": { "name": app },
                "spec": { "serviceName": app, "replicas": 1, "selector": selector,
                          "template": { "metadata": template, "spec": pod },
                          "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim }] },
            });
            (("statefulsets", object), format!("data-{app}-0"))
        } else {
            let object = json!({ "metadata": { "name": app }, "spec": claim });
            self.cluster.create(&self.path("persistentvolumeclaims"), &object).await?;
            pod["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": app } }]);
            let object = json!({
                "metadata": { "name": app },
                "spec": { "replicas": 1, "strategy": { "type": "Recreate" }, "selector": selector,
                          "template": { "metadata": template, "spec": pod } },
            });
            (("deployments", object), app.to_owned())
        };
        self.cluster.create(&format!("/apis/apps/v1/namespaces/{}/{}", self.namespace, kind.0), &kind.1).await?;
        self.writers.push(Writer { app, claim });
        Ok(())
    }

    /// Returns all pods of the namespace.
    pub(super) async fn pods(&self) -> Result<Vec<Value>> {
        self.cluster.list(&self.path("pods")).await
    }

    /// Returns the pods of a writer.
    pub(super) async fn pods_of(&self, writer: &Writer) -> Result<Vec<Value>> {
        let mut pods = self.pods().await?;
        pods.retain(|pod| belongs_to(writer, pod));
        Ok(pods)
    }

    /// Returns the uids by name of the pods on the node that must be unchanged at the end.
    pub(super) async fn list_bystanders(&self) -> Result<BTreeMap<String, String>> {
        let agents = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{AGENT}");
        let mut pods = self.cluster.list(&agents).await?;
        pods.extend(self.pods().await?.into_iter().filter(|pod| pod["metadata"]["name"] == "keeper"));
        pods.retain(|pod| pod["spec"]["nodeName"] == *self.node);
        Ok(pods.iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]))).collect())
    }

    /// Waits until each writer has exactly one pod, and all pods of the namespace are Ready.
    pub(super) async fn wait_until_ready(&self) -> Result<()> {
        let is_ready =
            |pod: &Value| condition(pod, "Ready") == "True" && pod["metadata"]["deletionTimestamp"].is_null();
        let ready = wait_until("all pods are ready", TIMEOUT, async || {
            let pods = self.pods().await?;
            let count = |writer: &Writer| pods.iter().filter(|pod| belongs_to(writer, pod)).count();
            let one_each = self.writers.iter().all(|writer| count(writer) == 1);
            Ok(one_each && pods.len() == self.writers.len() + 1 && pods.iter().all(is_ready))
        });
        let Err(error) = ready.await else { return Ok(()) };
        let describe = |pod: &Value| format!("\n{} {} {}", pod["metadata"], pod["spec"]["nodeName"], pod["status"]);
        let pods: String = self.pods().await?.iter().map(describe).collect();
        Err(error.context(format!("namespace {}: {pods}", self.namespace)))
    }

    /// Returns the complete lines on a writer's disk.
    pub(super) fn lines(&self, writer: &Writer) -> Result<String> {
        let path = self.machines.volume_dir(&self.namespace, &writer.claim)?.join("lines");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        Ok(text[..end].to_owned())
    }

    /// Returns the complete lines on all disks, in the order of the writers.
    pub(super) fn all_lines(&self) -> Result<Vec<String>> {
        self.writers.iter().map(|writer| self.lines(writer)).collect()
    }

    /// Returns the volume of a writer.
    pub(super) fn volume(&self, writer: &Writer) -> Result<String> {
        let path = self.machines.volume_dir(&self.namespace, &writer.claim)?;
        Ok(path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// Replaces the foreign taint of the node; removes it if `added` is empty.
    pub(super) async fn set_foreign_taint(&self, added: &[Value]) -> Result<()> {
        let mut taints = self.cluster.taints(&self.node).await?;
        taints.retain(|taint| taint["key"] != FOREIGN_TAINT);
        taints.extend_from_slice(added);
        self.cluster.patch(&format!("/api/v1/nodes/{}", self.node), &json!({ "spec": { "taints": taints } })).await
    }

    /// Deletes the workloads, and waits until no pod is left.
    pub(super) async fn delete(&self) -> Result<()> {
        self.set_foreign_taint(&[]).await?;
        self.cluster.delete(&format!("/api/v1/namespaces/{}", self.namespace)).await?;
        wait_until("no pod is left", TIMEOUT, async || Ok(self.pods().await?.is_empty())).await
    }
}

/// Whether a pod belongs to a writer.
fn belongs_to(writer: &Writer, pod: &Value) -> bool {
    pod["metadata"]["labels"]["app"] == writer.app
}
