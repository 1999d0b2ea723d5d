//! A real control plane with Stead's CRDs and its operator, for tests and scenarios.
//!
//! [`Stage::open`] starts Kubernetes' own programs and stand-in nodes; [`Stage::define`] installs what `stead
//! manifests` prints; [`Stage::operate`] starts `stead operator` as a process, which can be killed and started again.
//! Tests look at the results through kubectl, as a user would.
//!
//! [`walk`] is a walk-through of everything that the operator does. [`disturb`] plays it undisturbed, with the
//! operator killed at random moments, and behind a faulty proxy, and compares the final states. [`scale`] creates many
//! APIs at once. [`audited`] reads from the API server's audit log what the operator did. [`pool`] is a stage for a
//! Gluster pool, with pods that are processes; [`disks`] and [`recoveries`] are about dead machines and the volumes
//! that they wrote to. [`forecasts`] compares the forecasts of `stead explain` with what then happens.

pub mod audited;
pub mod disks;
pub mod disturb;
mod end_state;
pub mod forecasts;
mod objects;
mod operator;
pub mod pool;
mod program;
pub mod recoveries;
pub mod scale;
pub mod walk;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use stead_testbed::{Binaries, ClusterSpec, ControlPlane, Nodes, Options};
use tokio::process::Command;

pub use end_state::{EndState, differences};
pub use objects::Objects;
pub use operator::Operator;
pub use program::program;

/// A cluster to play on.
pub struct Stage {
    /// The control plane.
    pub plane: ControlPlane,
    /// The nodes.
    pub nodes: Nodes,
    /// The program `stead`.
    stead: PathBuf,
}

/// The image of every Glance on a stage. No node here looks at it.
pub const IMAGE: &str = "registry.test/glance-api:1";

impl Stage {
    /// Starts a control plane and nodes, and waits until they are ready. `stead` is the program to test.
    pub async fn open(binaries: &Binaries, stead: &Path, options: Options, nodes: ClusterSpec) -> Result<Stage> {
        let plane = ControlPlane::start(binaries, options).await?;
        let nodes = Nodes::start(&plane, nodes).await?;
        nodes.ready().await?;
        Ok(Stage { plane, nodes, stead: stead.to_owned() })
    }

    /// Installs the definitions and policies, and waits until the API server knows the kinds and goes by the policies.
    pub async fn define(&self) -> Result<()> {
        let definitions = self.stead(&["manifests", "--only", "crds"]).await?;
        self.kubectl_with(&["apply", "--server-side", "-f", "-"], &definitions).await?;
        let ours = ["crd", "-l", "app.kubernetes.io/part-of=stead"];
        self.kubectl(&[&["wait", "--for=condition=Established", "--timeout=300s"][..], &ours].concat()).await?;
        // A definition is established a moment before its kind is known.
        let names = self.kubectl(&[&["get", "-o", "jsonpath={.items[*].metadata.name}"][..], &ours].concat()).await?;
        let kinds = names.trim().replace(' ', ",");
        until("the kinds are known", Duration::from_secs(300), async || {
            Ok(self.plane.kubectl(&["get", &kinds, "-A"]).await?.code == Some(0))
        })
        .await?;
        self.until("the policies act", Duration::from_secs(300), || self.admits()).await
    }

    /// Whether the policies act, which is a moment after they were made: a reference to elsewhere is refused, and the
    /// draft's spelling is warned of. Nothing is kept.
    async fn admits(&self) -> Result<bool> {
        let elsewhere = json!({"name": "t", "namespace": "elsewhere"});
        let apis = json!({"default": {"type": "single"}});
        let spread = json!([{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]);
        let tries = [
            ("core.openstack.org", "OpenStackControlPlane", json!({"topologyRef": elsewhere}), "Customizing namespace"),
            (
                "glance.openstack.org",
                "Glance",
                json!({"databaseInstance": "d", "secret": "s", "glanceAPIs": apis, "topologyRef": elsewhere}),
                "Customizing namespace",
            ),
            ("topology.openstack.org", "Topology", json!({"topologySpreadConstraint": spread}), "Warning: "),
        ];
        for (group, kind, spec, word) in tries {
            let version = format!("{group}/v1beta1");
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "policies"}, "spec": spec});
            let tried = ["create", "--dry-run=server", "-f", "-"];
            if !self.plane.kubectl_with(&tried, &object.to_string()).await?.stderr.contains(word) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until Kubernetes' garbage collector knows the kinds: it looks for new ones every half minute, and until then
    /// what a Glance owns stays behind when it goes.
    pub async fn collects(&self) -> Result<()> {
        let owner =
            r#"{"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology", "metadata": {"name": "owner"}}"#;
        self.kubectl_with(&["apply", "-f", "-"], owner).await?;
        let uid = self.kubectl(&["get", "topology", "owner", "-o", "jsonpath={.metadata.uid}"]).await?;
        let owned = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [
            {"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology", "name": "owner", "uid": uid}]}});
        self.kubectl_with(&["apply", "-f", "-"], &owned.to_string()).await?;
        self.kubectl(&["delete", "topology", "owner"]).await?;
        let limit = Duration::from_secs(300);
        self.until("the garbage collector knows the kinds", limit, async || {
            Ok(self.get("default", "configmap/owned").await?.is_none())
        })
        .await
    }

    /// Starts the operator as whoever the kubeconfig is of, and waits until it is ready.
    pub async fn operate(&self, kubeconfig: &Path, flags: &[&str]) -> Result<Operator> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut operator = self.launch(kubeconfig, flags)?;
            match operator.ready().await {
                // A port that was free a moment ago was taken by somebody else.
                Err(e) if attempt < 4 && format!("{e:#}").contains("Address already in use") => {}
                ready => return ready.map(|()| operator),
            }
        }
    }

    /// Starts the operator, and does not wait for it.
    pub fn launch(&self, kubeconfig: &Path, flags: &[&str]) -> Result<Operator> {
        Operator::begin(&self.stead, kubeconfig, self.plane.folder(), flags)
    }

    /// The objects of a namespace, without kubectl.
    pub fn objects(&self, namespace: &str) -> Objects {
        Objects::new(self.plane.client(), namespace)
    }

    /// Runs `stead` against this cluster; what it prints, or an error with what it complained of.
    pub async fn stead(&self, args: &[&str]) -> Result<String> {
        stead(&self.stead, &self.plane, args).await
    }

    /// Runs `stead` against this cluster: exit code, what it printed, what it complained of.
    pub async fn stead_ran(&self, args: &[&str]) -> Result<(Option<i32>, String, String)> {
        stead_ran(&self.stead, &self.plane, args).await
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

    /// An object as kubectl gives it; none where there is none.
    pub async fn get(&self, namespace: &str, what: &str) -> Result<Option<Value>> {
        let text = self.kubectl(&["-n", namespace, "get", what, "-o", "json", "--ignore-not-found"]).await?;
        Ok(if text.trim().is_empty() { None } else { Some(serde_json::from_str(&text)?) })
    }

    /// The objects of a kind in a namespace, such as `pods`, by a label selector, in the order of their names.
    pub async fn list(&self, namespace: &str, kind: &str, selector: &str) -> Result<Vec<Value>> {
        let text = self.kubectl(&["-n", namespace, "get", kind, "-l", selector, "-o", "json"]).await?;
        let mut list: Value = serde_json::from_str(&text)?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Waits until something holds, looking again and again; fails with `what` if it takes too long.
    pub async fn until<F>(&self, what: &str, limit: Duration, holds: impl FnMut() -> F) -> Result<()>
    where
        F: Future<Output = Result<bool>>,
    {
        until(what, limit, holds).await
    }
}

/// Waits until something holds, looking again and again; fails with `what` if it takes too long.
pub async fn until<F>(what: &str, limit: Duration, mut holds: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    until_some(what, limit, || {
        let held = holds();
        async move { Ok(held.await?.then_some(())) }
    })
    .await
}

/// Waits until something is found, looking again and again, and gives just that; fails with `what` if it takes too long.
pub async fn until_some<T, F>(what: &str, limit: Duration, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() > end {
            bail!("{what}: not within {} s", limit.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

/// How many seconds it took until something was done, by a line of what `stead recover` says at last.
pub fn took(said: &str, what: &str) -> Option<f64> {
    let line = said.lines().rev().find(|line| line.contains(what))?;
    line.trim_start().split_once(" s  ")?.0.parse().ok()
}

/// Runs `stead` against a cluster; what it prints, or an error with what it complained of.
async fn stead(program: &Path, plane: &ControlPlane, args: &[&str]) -> Result<String> {
    let (code, stdout, stderr) = stead_ran(program, plane, args).await?;
    if code != Some(0) {
        bail!("stead {} ended with {code:?}: {}{}", args.join(" "), stdout, stderr.trim());
    }
    Ok(stdout)
}

/// How long a command may take: longer than its own --timeout in any test.
const MOST: Duration = Duration::from_secs(3600);

/// Runs `stead` against a cluster: exit code, what it printed, what it complained of.
async fn stead_ran(program: &Path, plane: &ControlPlane, args: &[&str]) -> Result<(Option<i32>, String, String)> {
    let mut command = Command::new(program);
    command.args(args).env("KUBECONFIG", plane.kubeconfig()).env("NO_COLOR", "1").kill_on_drop(true);
    let output = tokio::time::timeout(MOST, command.output()).await;
    let output = output.with_context(|| format!("stead {} does not end", args.join(" ")))?;
    let output = output.with_context(|| format!("running {}", program.display()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((output.status.code(), text(output.stdout), text(output.stderr)))
}
