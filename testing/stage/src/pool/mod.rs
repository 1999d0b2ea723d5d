//! A Gluster pool on a real control plane: the output of `stead gluster manifests` applied, real glusterd in pods that
//! are processes.
//!
//! Assertions about the pool use the output of each peer's own `gluster peer status`.

mod files;
mod friends;
mod measure;
mod random;
mod scenes;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_machines::{Image, Images, Machines, Setup};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, NodeSpec, Options};

use crate::until;

pub use files::Client;
pub use friends::Friend;
pub use measure::{Figures, measure};
pub use random::runs;
pub use scenes::{on_the_nodes_network, play};

/// The pool's name, as in the report.
pub const NAME: &str = "glusterfs";

/// The namespace, as in the report.
pub const NAMESPACE: &str = "default";

/// The container with glusterd.
const CONTAINER: &str = "gluster";

/// The image of the pods. No registry has it: it is this machine's own file system, with Gluster installed.
const IMAGE: &str = "gluster";

/// How long a pool may take to become whole: nodes have to be found dead, volumes detached, pods moved.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// A pool and the cluster that it is in.
pub struct PoolStage {
    /// The control plane.
    pub plane: ControlPlane,
    /// The nodes.
    pub machines: Machines,
    stead: PathBuf,
}

/// Whether pods can be processes here and Gluster is installed. If not, it is said aloud.
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
    /// Starts a control plane with fast timers, two nodes in each of three zones, and one for a client.
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

    /// Applies what `stead gluster manifests` prints for three pods with volumes of a zone.
    pub async fn install(&self, flags: &[&str]) -> Result<()> {
        let mut args = vec!["gluster", "manifests", "--image", IMAGE, "--stead-image", "stead"];
        args.extend(["--storage-class", "cinder", "--node-selector", "gluster=yes"]);
        args.extend(flags);
        let manifests = self.stead(&args).await?;
        self.kubectl_with(&["apply", "-f", "-"], &manifests).await.map(drop)
    }

    /// Runs `stead` against this cluster; what it prints.
    pub async fn stead(&self, args: &[&str]) -> Result<String> {
        crate::stead(&self.stead, &self.plane, args).await
    }

    /// Runs kubectl; what it prints, or an error with what it complained of.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with(args, "").await
    }

    /// Runs kubectl with something to read, for `-f -`.
    pub async fn kubectl_with(&self, args: &[&str], input: &str) -> Result<String> {
        let ran = self.plane.kubectl_with(args, input).await?;
        ran.ok().with_context(|| format!("kubectl {}", args.join(" ")))
    }

    /// Scales the pool as the report does.
    pub async fn scale(&self, replicas: u32) -> Result<()> {
        self.kubectl(&["scale", "statefulsets", NAME, &format!("--replicas={replicas}")]).await.map(drop)
    }

    /// A pod as the API server has it, if it has it.
    pub async fn pod(&self, ordinal: u32) -> Result<Option<Value>> {
        let text = self.kubectl(&["get", "pod", &pod(ordinal), "-o", "json", "--ignore-not-found"]).await?;
        Ok(if text.trim().is_empty() { None } else { Some(serde_json::from_str(&text)?) })
    }

    /// The node that a pod is on.
    pub async fn node_of(&self, ordinal: u32) -> Result<String> {
        let found = self.pod(ordinal).await?.with_context(|| format!("no pod {}", pod(ordinal)))?;
        Ok(found["spec"]["nodeName"]
            .as_str()
            .with_context(|| format!("pod {} is on no node", pod(ordinal)))?
            .to_owned())
    }

    /// What a command prints in a pod; an error if it fails.
    pub async fn inside(&self, ordinal: u32, command: &[&str]) -> Result<String> {
        let output = self.machines.exec(NAMESPACE, &pod(ordinal), CONTAINER, command).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        ensure!(output.status.success(), "{} in {}: {out}{err}", command.join(" "), pod(ordinal));
        Ok(out)
    }

    /// The others, as a peer's own `gluster peer status` prints them.
    pub async fn friends(&self, ordinal: u32) -> Result<Vec<Friend>> {
        friends::read(&self.inside(ordinal, &["gluster", "--mode=script", "peer", "status"]).await?)
    }

    /// The identities, as each peer has its own.
    pub async fn identities(&self, replicas: u32) -> Result<BTreeMap<u32, String>> {
        let mut identities = BTreeMap::new();
        for ordinal in 0..replicas {
            identities.insert(ordinal, self.identity(ordinal).await?);
        }
        Ok(identities)
    }

    async fn identity(&self, ordinal: u32) -> Result<String> {
        let info = self.inside(ordinal, &["cat", "/var/lib/glusterd/glusterd.info"]).await?;
        let uuid = info.lines().find_map(|line| line.strip_prefix("UUID="));
        Ok(uuid.with_context(|| format!("{} has no identity", pod(ordinal)))?.to_owned())
    }

    /// What keeps the pool from being whole: each of so many pods is Ready, and sees each of the others, by its name and
    /// its own identity, in the cluster and connected, and nobody else.
    pub async fn faults(&self, replicas: u32) -> Result<Vec<String>> {
        let mut faults = Vec::new();
        let mut identities = BTreeMap::new();
        for ordinal in 0..replicas {
            match self.identity(ordinal).await {
                Ok(identity) => drop(identities.insert(ordinal, identity)),
                Err(error) => faults.push(format!("{error:#}")),
            }
            match self.pod(ordinal).await? {
                Some(found) if is_ready(&found) => {}
                _ => faults.push(format!("{} is not ready", pod(ordinal))),
            }
        }
        for ordinal in identities.keys() {
            match self.friends(*ordinal).await {
                Ok(found) => faults.extend(friends::faults(*ordinal, &found, &identities, replicas)),
                Err(error) => faults.push(format!("{error:#}")),
            }
        }
        Ok(faults)
    }

    /// Waits until the pool is whole.
    pub async fn whole(&self, replicas: u32, limit: Duration) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            let faults = self.faults(replicas).await?;
            if faults.is_empty() {
                return Ok(());
            }
            let words = || self.last_words(replicas);
            ensure!(Instant::now() < end, "the pool is not whole:\n{}\n{}", faults.join("\n"), words());
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// What the agents said last.
    fn last_words(&self, replicas: u32) -> String {
        let mut words = String::new();
        for ordinal in 0..replicas {
            let log = self.machines.logs(NAMESPACE, &pod(ordinal), CONTAINER).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines[lines.len().saturating_sub(25)..].join("\n");
            words.push_str(&format!("── {}\n{tail}\n", pod(ordinal)));
        }
        words
    }

    /// Waits until a pod is another one than that of this uid, or is gone.
    pub async fn replaced(&self, ordinal: u32, uid: &str) -> Result<()> {
        until(&format!("{} is another pod", pod(ordinal)), PATIENCE, async || {
            Ok(self.pod(ordinal).await?.is_none_or(|found| found["metadata"]["uid"] != uid))
        })
        .await
    }

    /// A pod's uid.
    pub async fn uid(&self, ordinal: u32) -> Result<String> {
        let found = self.pod(ordinal).await?.with_context(|| format!("no pod {}", pod(ordinal)))?;
        Ok(found["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    /// The uids of those of these pods that exist: one in the middle of its replacement is missing for a moment.
    pub async fn uids(&self, ordinals: Range<u32>) -> Result<BTreeSet<String>> {
        let mut uids = BTreeSet::new();
        for ordinal in ordinals {
            let found = self.pod(ordinal).await?;
            uids.extend(found.and_then(|found| found["metadata"]["uid"].as_str().map(str::to_owned)));
        }
        Ok(uids)
    }
}

/// A pod's name.
pub fn pod(ordinal: u32) -> String {
    format!("{NAME}-{ordinal}")
}

/// The name by which the peers know a pod.
pub fn host(ordinal: u32) -> String {
    format!("{NAME}-{ordinal}.{NAME}.{NAMESPACE}.svc.cluster.local")
}

/// Whether a pod is Ready.
fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
}

/// Two nodes in each of three zones, and one for a client.
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
