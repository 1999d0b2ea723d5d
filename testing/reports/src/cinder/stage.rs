//! The cluster of the reports: two zones, storage like Cinder, and the demo application as a process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use stead_machines::{Image, Images, Machines, Setup};
use stead_stage::{wait_for, wait_until};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, DriverSpec, NodeSpec, Options};

use super::Timers;

const ZONE: &str = "topology.cinder.csi.openstack.org/zone";
const REGION: &str = "failure-domain.beta.kubernetes.io/region";

/// The machines in the volume's zone.
pub(super) const ZONE_A: [&str; 2] = ["node-3-nude", "node-4-nude"];

/// The application's files.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cinder-demo")
}

pub(super) struct CinderStage {
    pub(super) plane: ControlPlane,
    pub(super) machines: Machines,
    /// Maximum time to wait for a change.
    max_wait: Duration,
}

/// A pod of the application.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) node: String,
    /// The last transition time of its Ready condition.
    pub(super) since: Option<Timestamp>,
}

impl CinderStage {
    pub(super) async fn open(binaries: &Binaries, demo: &Path, timers: Timers) -> Result<CinderStage> {
        let options = Options { fast: timers == Timers::Fast, egress: true, ..Options::default() };
        let plane = ControlPlane::start(binaries, options).await?;
        let node = |(name, zone): (&str, &str)| NodeSpec {
            name: name.to_owned(),
            labels: [(ZONE.to_owned(), zone.to_owned()), (REGION.to_owned(), "de-nbg6-1".to_owned())].into(),
            ..NodeSpec::default()
        };
        let others = [("master-1-nude", "master"), ("master-2-nude", "master")];
        let others = others.into_iter().chain([("node-1-nude", "de-nbg6-1b"), ("node-2-nude", "de-nbg6-1b")]);
        let name = "cinder.csi.openstack.org".to_owned();
        let cluster = ClusterSpec {
            nodes: others.chain(ZONE_A.map(|node| (node, "de-nbg6-1a"))).map(node).collect(),
            drivers: vec![DriverSpec { name, topology: Some(ZONE.to_owned()), attach: true, disk: true }],
            cloud: Some("openstack".to_owned()),
            ..ClusterSpec::default()
        };
        let image = Image::default().file("/cinder-demo", demo).entrypoint(["/cinder-demo"]);
        let images = Images::default().with("cinder-demo", image);
        let machines = Machines::start(&plane, Setup { cluster, images, ..Setup::default() }).await?;
        machines.ready().await?;
        Ok(CinderStage { plane, machines, max_wait: timers.max_wait() })
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.plane.kubectl(args).await?.ok().with_context(|| format!("kubectl {}", args.join(" ")))
    }

    async fn all(&self, app: &str) -> Result<Vec<Value>> {
        let list = self.kubectl(&["get", "pods", "-l", &format!("app={app}"), "-o", "json"]).await?;
        let mut list: Value = serde_json::from_str(&list)?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    async fn find(&self, app: &str, matches: impl Fn(&Value) -> bool) -> Result<Option<Pod>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(self.all(app).await?.iter().find(|pod| matches(pod)).map(|pod| Pod {
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            node: text(&pod["spec"]["nodeName"]),
            since: readiness(pod).and_then(|c| c["lastTransitionTime"].as_str()?.parse().ok()),
        }))
    }

    /// Waits for a pod that matches.
    async fn wait_for_pod(&self, what: &str, app: &str, matches: impl Fn(&Value) -> bool + Copy) -> Result<Pod> {
        wait_for(&format!("{app}: {what}"), self.max_wait, async || self.find(app, matches).await).await
    }

    /// Waits for a ready pod of the application whose uid is not `old_uid`.
    pub(super) async fn ready_pod(&self, app: &str, old_uid: &str) -> Result<Pod> {
        let matches = |pod: &Value| is_ready(pod) && !is_deleting(pod) && pod["metadata"]["uid"] != old_uid;
        self.wait_for_pod("a pod is ready", app, matches).await
    }

    /// Waits for a pod that has a node and is not ready, and returns its name.
    pub(super) async fn waiting_pod(&self, app: &str) -> Result<String> {
        let matches = |pod: &Value| !is_ready(pod) && !is_deleting(pod) && pod["spec"]["nodeName"].is_string();
        Ok(self.wait_for_pod("a pod waits", app, matches).await?.name)
    }

    /// Waits until a pod is Terminating.
    pub(super) async fn wait_until_terminating(&self, pod: &Pod) -> Result<()> {
        wait_until(&format!("{} is Terminating", pod.name), self.max_wait, async || {
            let path = format!("pod/{}", pod.name);
            let found = self.kubectl(&["get", &path, "-o", "json", "--ignore-not-found"]).await?;
            Ok(serde_json::from_str::<Value>(&found).is_ok_and(|found| is_deleting(&found)))
        })
        .await
    }

    /// Waits until a Node object is gone.
    pub(super) async fn wait_until_node_deleted(&self, node: &str) -> Result<()> {
        let gone = async || Ok(self.kubectl(&["get", "node", node, "--ignore-not-found"]).await?.is_empty());
        wait_until(&format!("the Node object of {node} is gone"), self.max_wait, gone).await
    }

    /// Waits for an event about a pod.
    pub(super) async fn wait_for_event(&self, reason: &str, pod: &str) -> Result<()> {
        let selector = format!("involvedObject.name={pod},reason={reason}");
        let reported = async || {
            Ok(!self.kubectl(&["get", "events", "--field-selector", &selector, "-o", "name"]).await?.is_empty())
        };
        wait_until(&format!("an event {reason} about {pod}"), self.max_wait, reported).await
    }

    /// Returns the volume of a claim.
    pub(super) async fn volume(&self, claim: &str) -> Result<String> {
        self.kubectl(&["get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}"]).await
    }

    /// Fails if two machines could write at the same time, or a disk was detached from a machine that was still
    /// writing.
    pub(super) fn check_violations(&self) -> Result<()> {
        let violations = self.machines.violations();
        ensure!(violations.is_empty(), "violations: {violations:#?}");
        Ok(())
    }
}

fn readiness(pod: &Value) -> Option<&Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")
}

fn is_ready(pod: &Value) -> bool {
    readiness(pod).is_some_and(|c| c["status"] == "True")
}

fn is_deleting(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}
