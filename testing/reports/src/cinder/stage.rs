//! The cluster of the reports: two zones, Cinder-like storage, and the demo application as a process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use serde_json::Value;
use stead_machines::{Image, Images, Machines, Setup};
use stead_stage::{until, until_some};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, DriverSpec, NodeSpec, Options};

use super::Timers;

const ZONE: &str = "topology.cinder.csi.openstack.org/zone";
const REGION: &str = "failure-domain.beta.kubernetes.io/region";

/// The machines of the volume's zone.
pub(super) const ZONE_A: [&str; 2] = ["node-3-nude", "node-4-nude"];

/// The application's files.
pub(super) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cinder-demo")
}

pub(super) struct CinderStage {
    pub(super) plane: ControlPlane,
    pub(super) machines: Machines,
    /// How long something may take.
    patience: Duration,
}

/// A pod of the application.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) node: String,
    /// Since when it is as ready as it is.
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
        Ok(CinderStage { plane, machines, patience: timers.patience() })
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.plane.kubectl(args).await?.ok().with_context(|| format!("kubectl {}", args.join(" ")))
    }

    async fn all(&self, app: &str) -> Result<Vec<Value>> {
        let list = self.kubectl(&["get", "pods", "-l", &format!("app={app}"), "-o", "json"]).await?;
        let mut list: Value = serde_json::from_str(&list)?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    async fn find(&self, app: &str, is_it: impl Fn(&Value) -> bool) -> Result<Option<Pod>> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(self.all(app).await?.iter().find(|pod| is_it(pod)).map(|pod| Pod {
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            node: text(&pod["spec"]["nodeName"]),
            since: readiness(pod).and_then(|c| c["lastTransitionTime"].as_str()?.parse().ok()),
        }))
    }

    /// Waits for a pod.
    async fn awaits(&self, what: &str, app: &str, is_it: impl Fn(&Value) -> bool + Copy) -> Result<Pod> {
        until_some(&format!("{app}: {what}"), self.patience, async || self.find(app, is_it).await).await
    }

    /// The application's pod that is ready, and not that of this uid.
    pub(super) async fn pod(&self, app: &str, but: &str) -> Result<Pod> {
        let is_it = |pod: &Value| ready(pod) && !leaves(pod) && pod["metadata"]["uid"] != but;
        self.awaits("a pod is ready", app, is_it).await
    }

    /// The name of the pod that has a node and is not ready.
    pub(super) async fn waiting(&self, app: &str) -> Result<String> {
        let is_it = |pod: &Value| !ready(pod) && !leaves(pod) && pod["spec"]["nodeName"].is_string();
        Ok(self.awaits("a pod waits", app, is_it).await?.name)
    }

    /// Waits until a pod is Terminating.
    pub(super) async fn stuck(&self, pod: &Pod) -> Result<()> {
        until(&format!("{} is Terminating", pod.name), self.patience, async || {
            let path = format!("pod/{}", pod.name);
            let found = self.kubectl(&["get", &path, "-o", "json", "--ignore-not-found"]).await?;
            Ok(serde_json::from_str::<Value>(&found).is_ok_and(|found| leaves(&found)))
        })
        .await
    }

    /// Waits until a Node object is gone.
    pub(super) async fn gone(&self, node: &str) -> Result<()> {
        let gone = async || Ok(self.kubectl(&["get", "node", node, "--ignore-not-found"]).await?.is_empty());
        until(&format!("the Node object of {node} is gone"), self.patience, gone).await
    }

    /// Waits for an event about a pod.
    pub(super) async fn event(&self, reason: &str, pod: &str) -> Result<()> {
        let selector = format!("involvedObject.name={pod},reason={reason}");
        let told = async || {
            Ok(!self.kubectl(&["get", "events", "--field-selector", &selector, "-o", "name"]).await?.is_empty())
        };
        until(&format!("an event {reason} about {pod}"), self.patience, told).await
    }

    /// The volume of a claim.
    pub(super) async fn volume(&self, claim: &str) -> Result<String> {
        self.kubectl(&["get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}"]).await
    }

    /// An error if two could write at once, or a disk was taken from one who wrote.
    pub(super) fn nobody_was_hurt(&self) -> Result<()> {
        let violations = self.machines.violations();
        ensure!(violations.is_empty(), "the witness has seen: {violations:#?}");
        Ok(())
    }
}

fn readiness(pod: &Value) -> Option<&Value> {
    pod["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == "Ready")
}

fn ready(pod: &Value) -> bool {
    readiness(pod).is_some_and(|c| c["status"] == "True")
}

fn leaves(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}
