//! The pods on a node when it is lost: writers, and others that a recovery must leave alone.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stead_machines::Machines;

use super::cluster::{Cluster, condition, text};
use super::draw::Draw;
use super::{AGENT, CLASS, HOST, ZONE, lines};
use crate::{until, until_some};

/// How long it may take until all is as it should be.
const PATIENCE: Duration = Duration::from_secs(300);

/// The taint of somebody else.
pub(super) const FOREIGN: &str = "example.com/held";

/// A workload of one pod that writes to a disk.
#[derive(Debug, Clone)]
pub(super) struct Writer {
    pub(super) app: &'static str,
    claim: String,
}

/// All that is there.
pub(super) struct Scene<'a> {
    pub(super) cluster: Cluster,
    machines: &'a Machines,
    pub(super) namespace: String,
    pub(super) node: String,
    pub(super) writers: Vec<Writer>,
    /// By name, those that have to be there in the end as they were: one that tolerates everything, and the node's agent.
    pub(super) keepers: BTreeMap<String, String>,
    /// The pod that is bound to the node, as it was.
    pub(super) pinned: Option<Value>,
}

impl<'a> Scene<'a> {
    /// Makes it and waits until all of it is ready, on this node.
    pub(super) async fn set(
        cluster: Cluster,
        machines: &'a Machines,
        zone: &str,
        node: &str,
        namespace: &str,
        draw: &Draw,
    ) -> Result<Scene<'a>> {
        let (namespace, node) = (namespace.to_owned(), node.to_owned());
        let (writers, keepers) = (Vec::new(), BTreeMap::new());
        let mut scene = Scene { cluster, machines, namespace, node, writers, keepers, pinned: None };
        let namespace = json!({ "metadata": { "name": scene.namespace } });
        scene.cluster.make("/api/v1/namespaces", &namespace).await?;
        let account = format!("/api/v1/namespaces/{}/serviceaccounts/default", scene.namespace);
        until("a service account", PATIENCE, async || Ok(!scene.cluster.get(&account).await?.is_null())).await?;
        scene.writes("first", draw.set, zone, false).await?;
        if draw.second {
            scene.writes("second", !draw.set, zone, false).await?;
        }
        if draw.pinned {
            scene.writes("pinned", true, zone, true).await?;
        }
        let keeper = json!({
            "metadata": { "name": "keeper" },
            "spec": {
                "nodeSelector": { HOST: scene.node }, "tolerations": [{ "operator": "Exists" }],
                "terminationGracePeriodSeconds": 1, "containers": [{ "name": "keeper", "image": "sleeper" }],
            },
        });
        scene.cluster.make(&scene.path("pods"), &keeper).await?;
        scene.is_ready().await?;
        let pods = scene.pods().await?;
        let away = pods.iter().find(|pod| pod["spec"]["nodeName"] != *scene.node);
        ensure!(
            away.is_none(),
            "not on {}: {}",
            scene.node,
            away.map(|p| p["metadata"]["name"].to_string()).unwrap_or_default()
        );
        scene.pinned = pods.into_iter().find(|pod| pod["metadata"]["labels"]["app"] == "pinned");
        scene.keepers = until_some("the agent and the keeper are there", PATIENCE, async || {
            Ok(Some(scene.kept().await?).filter(|kept| kept.len() == 2))
        })
        .await?;
        if draw.foreign {
            scene.taint(&[json!({ "key": FOREIGN, "value": "by-others", "effect": "NoSchedule" })]).await?;
        }
        Ok(scene)
    }

    fn path(&self, resource: &str) -> String {
        format!("/api/v1/namespaces/{}/{resource}", self.namespace)
    }

    /// Makes a writer.
    async fn writes(&mut self, app: &'static str, set: bool, zone: &str, pinned: bool) -> Result<()> {
        let field =
            |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
        let first = json!([{ "weight": 100, "preference": {
            "matchExpressions": [{ "key": HOST, "operator": "In", "values": [self.node] }] } }]);
        let mut pod = json!({
            "nodeSelector": { ZONE: zone },
            "affinity": { "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": first } },
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "writer", "image": "writer", "command": ["sh", "-c", lines::PROGRAM],
                "env": [field("POD_UID", "metadata.uid"), field("NODE_NAME", "spec.nodeName")],
                "readinessProbe": { "exec": { "command": ["test", "-s", "/data/lines"] }, "periodSeconds": 1 },
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
        });
        if pinned {
            pod["nodeSelector"] = json!({ HOST: self.node });
            // Its successor has to find a place there too.
            pod["tolerations"] = json!([{ "key": FOREIGN, "operator": "Exists" }]);
        }
        let (template, selector) = (json!({ "labels": { "app": app } }), json!({ "matchLabels": { "app": app } }));
        let claim = json!({ "storageClassName": CLASS, "accessModes": ["ReadWriteOnce"],
                            "resources": { "requests": { "storage": "1Gi" } } });
        let (kind, claim) = if set {
            let object = json!({
                "metadata": { "name": app },
                "spec": { "serviceName": app, "replicas": 1, "selector": selector,
                          "template": { "metadata": template, "spec": pod },
                          "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": claim }] },
            });
            (("statefulsets", object), format!("data-{app}-0"))
        } else {
            let object = json!({ "metadata": { "name": app }, "spec": claim });
            self.cluster.make(&self.path("persistentvolumeclaims"), &object).await?;
            pod["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": app } }]);
            let object = json!({
                "metadata": { "name": app },
                "spec": { "replicas": 1, "strategy": { "type": "Recreate" }, "selector": selector,
                          "template": { "metadata": template, "spec": pod } },
            });
            (("deployments", object), app.to_owned())
        };
        self.cluster.make(&format!("/apis/apps/v1/namespaces/{}/{}", self.namespace, kind.0), &kind.1).await?;
        self.writers.push(Writer { app, claim });
        Ok(())
    }

    /// All pods of the namespace.
    pub(super) async fn pods(&self) -> Result<Vec<Value>> {
        self.cluster.list(&self.path("pods")).await
    }

    /// The pods of a writer.
    pub(super) async fn pods_of(&self, writer: &Writer) -> Result<Vec<Value>> {
        let mut pods = self.pods().await?;
        pods.retain(|pod| is_of(writer, pod));
        Ok(pods)
    }

    /// Those that have to be there in the end as they were, by name, with their uid.
    pub(super) async fn kept(&self) -> Result<BTreeMap<String, String>> {
        let agents = format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{AGENT}");
        let mut pods = self.cluster.list(&agents).await?;
        pods.extend(self.pods().await?.into_iter().filter(|pod| pod["metadata"]["name"] == "keeper"));
        pods.retain(|pod| pod["spec"]["nodeName"] == *self.node);
        Ok(pods.iter().map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]))).collect())
    }

    /// Waits until each writer has one pod, which is ready, and so is the one that tolerates everything.
    pub(super) async fn is_ready(&self) -> Result<()> {
        let good = |pod: &Value| condition(pod, "Ready") == "True" && pod["metadata"]["deletionTimestamp"].is_null();
        let ready = until("all pods are ready", PATIENCE, async || {
            let pods = self.pods().await?;
            let count = |writer: &Writer| pods.iter().filter(|pod| is_of(writer, pod)).count();
            let one_each = self.writers.iter().all(|writer| count(writer) == 1);
            Ok(one_each && pods.len() == self.writers.len() + 1 && pods.iter().all(good))
        });
        let Err(error) = ready.await else { return Ok(()) };
        let how = |pod: &Value| format!("\n{} {} {}", pod["metadata"], pod["spec"]["nodeName"], pod["status"]);
        let pods: String = self.pods().await?.iter().map(how).collect();
        Err(error.context(format!("namespace {}: {pods}", self.namespace)))
    }

    /// What a writer's disk holds: whole lines.
    pub(super) fn lines(&self, writer: &Writer) -> Result<String> {
        let path = self.machines.volume_dir(&self.namespace, &writer.claim)?.join("lines");
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        Ok(text[..end].to_owned())
    }

    /// What all disks hold, in the order of the writers.
    pub(super) fn all_lines(&self) -> Result<Vec<String>> {
        self.writers.iter().map(|writer| self.lines(writer)).collect()
    }

    /// The volume of a writer.
    pub(super) fn volume(&self, writer: &Writer) -> Result<String> {
        let path = self.machines.volume_dir(&self.namespace, &writer.claim)?;
        Ok(path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
    }

    /// Adds taints to the node; with none, takes that of somebody else away.
    pub(super) async fn taint(&self, added: &[Value]) -> Result<()> {
        let mut taints = self.cluster.taints(&self.node).await?;
        taints.retain(|taint| taint["key"] != FOREIGN);
        taints.extend_from_slice(added);
        self.cluster.patch(&format!("/api/v1/nodes/{}", self.node), &json!({ "spec": { "taints": taints } })).await
    }

    /// Takes all of it away, and waits until no pod is left.
    pub(super) async fn strike(&self) -> Result<()> {
        self.taint(&[]).await?;
        self.cluster.delete(&format!("/api/v1/namespaces/{}", self.namespace)).await?;
        until("no pod is left", PATIENCE, async || Ok(self.pods().await?.is_empty())).await
    }
}

/// Whether a pod is a writer's.
fn is_of(writer: &Writer, pod: &Value) -> bool {
    pod["metadata"]["labels"]["app"] == writer.app
}
