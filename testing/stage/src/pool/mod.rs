//! A Gluster pool on a real control plane, created with `stead gluster manifests`: real glusterd in pods that are
//! processes.
//!
//! The checks use the output of `gluster peer status` on every peer.

mod files;
mod measure;
mod membership;
mod peer_status;
mod random;
mod scenes;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_machines::{Image, Images, Machines, Setup};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, NodeSpec, Options};

use crate::wait_until;

pub use files::Client;
pub use measure::{Measurements, measure};
pub use peer_status::PeerStatusEntry;
pub use random::play_random;
pub use scenes::{play, play_on_host_network};

/// The pool's name, as in the field report.
pub const NAME: &str = "glusterfs";

/// The namespace, as in the field report.
pub const NAMESPACE: &str = "default";

/// The container with glusterd.
const CONTAINER: &str = "gluster";

/// The image of the pods: the file system of the local machine, with Gluster installed.
const IMAGE: &str = "gluster";

/// The timeout until a pool is healthy: nodes have to be marked unreachable, volumes detached, pods moved.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// A pool and its cluster.
pub struct PoolStage {
    /// The control plane.
    pub plane: ControlPlane,
    /// The nodes.
    pub machines: Machines,
    stead: PathBuf,
}

/// Whether pods can run as processes and Gluster is installed. Prints what is missing.
pub fn can_run_or_skip() -> bool {
    if !Machines::can_run_or_skip() {
        return false;
    }
    let installed = Command::new("glusterd").arg("--version").output().is_ok_and(|output| output.status.success());
    if !installed {
        stead_testbed::skip("glusterd is not installed (Debian's glusterfs-server)");
    }
    installed
}

impl PoolStage {
    /// Starts a control plane with fast timers, two nodes in each of three zones, and a node for a client.
    pub async fn open(binaries: &Binaries, stead: &Path) -> Result<PoolStage> {
        let plane = ControlPlane::start(binaries, Options { fast: true, egress: true, ..Options::default() }).await?;
        let images =
            Images::default().with("stead", Image::default().file("/stead", stead)).with(IMAGE, Image::default());
        let setup = Setup { cluster: cluster(), images, ..Setup::default() };
        let machines = Machines::start(&plane, setup).await?;
        machines.ready().await?;
        let stage = PoolStage { plane, machines, stead: stead.to_owned() };
        stage.kubectl_with(&["apply", "-f", "-"], include_str!("../../../../testdata/cluster/storage.yaml")).await?;
        Ok(stage)
    }

    /// Applies the output of `stead gluster manifests`: three pods with zonal volumes, unless `flags` say otherwise.
    pub async fn install(&self, flags: &[&str]) -> Result<()> {
        let mut args = vec!["gluster", "manifests", "--image", IMAGE, "--stead-image", "stead"];
        args.extend(["--storage-class", "cinder", "--node-selector", "gluster=yes"]);
        args.extend(flags);
        let manifests = self.stead(&args).await?;
        self.kubectl_with(&["apply", "-f", "-"], &manifests).await.map(drop)
    }

    /// Runs `stead` against this cluster. Returns standard output.
    pub async fn stead(&self, args: &[&str]) -> Result<String> {
        crate::stead(&self.stead, &self.plane, args).await
    }

    /// Runs kubectl. Returns standard output, or an error with standard error.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(args, "").await
    }

    /// Runs kubectl with standard input, for `-f -`.
    pub async fn kubectl_with(&self, args: &[&str], input: &str) -> Result<String> {
        let ran = self.plane.kubectl_with(args, input).await?;
        ran.ok().with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// Scales the StatefulSet of the pool.
    pub async fn scale(&self, replicas: u32) -> Result<()> {
        self.kubectl(&["scale", "statefulsets", NAME, &format!("--replicas={replicas}")]).await.map(drop)
    }

    /// Returns a pod; none if it does not exist.
    pub async fn pod(&self, ordinal: u32) -> Result<Option<Value>> {
        let text = self.kubectl(&["get", "pod", &pod(ordinal), "-o", "json", "--ignore-not-found"]).await?;
        Ok(if text.trim().is_empty() { None } else { Some(serde_json::from_str(&text)?) })
    }

    /// Returns the node of a pod.
    pub async fn node_of(&self, ordinal: u32) -> Result<String> {
        let found = self.pod(ordinal).await?.with_context(|| format!("no pod {}", pod(ordinal)))?;
        Ok(found["spec"]["nodeName"].as_str().with_context(|| format!("pod {} has no node", pod(ordinal)))?.to_owned())
    }

    /// Runs a command in a pod. Returns standard output, or an error if it fails.
    pub async fn exec(&self, ordinal: u32, command: &[&str]) -> Result<String> {
        let output = self.machines.exec(NAMESPACE, &pod(ordinal), CONTAINER, command).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        ensure!(output.status.success(), "{} in {}: {out}{err}", command.join(" "), pod(ordinal));
        Ok(out)
    }

    /// Returns the other peers according to `gluster peer status` in a pod.
    pub async fn peers(&self, ordinal: u32) -> Result<Vec<PeerStatusEntry>> {
        peer_status::parse(&self.exec(ordinal, &["gluster", "--mode=script", "peer", "status"]).await?)
    }

    /// Returns the UUID of each peer, as stored by the peer itself.
    pub async fn identities(&self, replicas: u32) -> Result<BTreeMap<u32, String>> {
        let mut identities = BTreeMap::new();
        for ordinal in 0..replicas {
            identities.insert(ordinal, self.identity(ordinal).await?);
        }
        Ok(identities)
    }

    async fn identity(&self, ordinal: u32) -> Result<String> {
        let info = self.exec(ordinal, &["cat", "/var/lib/glusterd/glusterd.info"]).await?;
        let uuid = info.lines().find_map(|line| line.strip_prefix("UUID="));
        Ok(uuid.with_context(|| format!("{} has no UUID", pod(ordinal)))?.to_owned())
    }

    /// Returns why the pool is not healthy. It is healthy if all pods are Ready, and each peer lists exactly the other
    /// peers, with their host names and UUIDs, as connected.
    pub async fn problems(&self, replicas: u32) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        let mut identities = BTreeMap::new();
        for ordinal in 0..replicas {
            match self.identity(ordinal).await {
                Ok(identity) => drop(identities.insert(ordinal, identity)),
                Err(error) => problems.push(format!("{error:#}")),
            }
            match self.pod(ordinal).await? {
                Some(found) if is_ready(&found) => {}
                _ => problems.push(format!("{} is not ready", pod(ordinal))),
            }
        }
        for ordinal in identities.keys() {
            match self.peers(*ordinal).await {
                Ok(found) => problems.extend(peer_status::problems(*ordinal, &found, &identities, replicas)),
                Err(error) => problems.push(format!("{error:#}")),
            }
        }
        Ok(problems)
    }

    /// Waits until the pool is healthy.
    pub async fn wait_until_healthy(&self, replicas: u32, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            let problems = self.problems(replicas).await?;
            if problems.is_empty() {
                return Ok(());
            }
            let logs = || self.log_tails(replicas);
            ensure!(Instant::now() < end, "the pool is not healthy:\n{}\n{}", problems.join("\n"), logs());
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// Returns the last lines of the agents' logs.
    fn log_tails(&self, replicas: u32) -> String {
        let mut text = String::new();
        for ordinal in 0..replicas {
            let log = self.machines.logs(NAMESPACE, &pod(ordinal), CONTAINER).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(25)..].join("\n");
            text.push_str(&format!("── {}\n{tail}\n", pod(ordinal)));
        }
        text
    }

    /// Waits until a pod no longer has this uid, or does not exist.
    pub async fn wait_until_replaced(&self, ordinal: u32, uid: &str) -> Result<()> {
        wait_until(&format!("{} is replaced", pod(ordinal)), TIMEOUT, async || {
            Ok(self.pod(ordinal).await?.is_none_or(|found| found["metadata"]["uid"] != uid))
        })
        .await
    }

    /// Returns a pod's uid.
    pub async fn uid(&self, ordinal: u32) -> Result<String> {
        let found = self.pod(ordinal).await?.with_context(|| format!("no pod {}", pod(ordinal)))?;
        Ok(found["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns the uids of these pods. A pod that is being replaced is missing for a moment.
    pub async fn uids(&self, ordinals: Range<u32>) -> Result<BTreeSet<String>> {
        let mut uids = BTreeSet::new();
        for ordinal in ordinals {
            let found = self.pod(ordinal).await?;
            uids.extend(found.and_then(|found| found["metadata"]["uid"].as_str().map(str::to_owned)));
        }
        Ok(uids)
    }
}

/// Returns the name of a pod.
pub fn pod(ordinal: u32) -> String {
    format!("{NAME}-{ordinal}")
}

/// Returns the host name of a peer.
pub fn host(ordinal: u32) -> String {
    format!("{NAME}-{ordinal}.{NAME}.{NAMESPACE}.svc.cluster.local")
}

/// Whether a pod is Ready and not Terminating.
fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// Returns two nodes in each of three zones, and a node for a client.
fn cluster() -> ClusterSpec {
    let node = |name: String, labels: &[(&str, &str)]| NodeSpec {
        name,
        labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        ..NodeSpec::default()
    };
    let zones = ["zoneA", "zoneB", "zoneC"];
    let mut nodes: Vec<NodeSpec> = (0..6)
        .map(|i| {
            let zone = zones[i % 3];
            node(format!("node-{i}"), &[("zone", zone), ("topology.kubernetes.io/zone", zone), ("gluster", "yes")])
        })
        .collect();
    nodes.push(node("outside".to_owned(), &[("zone", "zoneD"), ("client", "yes")]));
    ClusterSpec { nodes, ..ClusterSpec::seven() }
}
