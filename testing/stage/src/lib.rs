//! A real control plane with Stead's CRDs and its operator, for tests and scenarios.
//!
//! [`Stage::open`] starts Kubernetes' own programs and stand-in nodes; [`Stage::install_definitions`] installs the CRDs
//! and policies that `stead manifests` prints; [`Stage::start_operator`] starts `stead operator` as a process, which
//! can be killed and started again. Tests check the results through kubectl, as a user would.
//!
//! [`walk`] is a walk-through of everything that the operator does. [`disturb`] plays it undisturbed, with the
//! operator killed at random moments, and behind a faulty proxy, and compares the final states. [`scale`] creates many
//! APIs at once. [`audit_log`] counts the operator's requests in the API server's audit log. [`pool`] is a stage for a
//! Gluster pool, with pods that are processes; [`disks`] and [`recoveries`] are about dead machines and the volumes
//! that they wrote to. [`forecasts`] compares the forecasts of `stead explain` with what happens.

pub mod audit_log;
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

/// A control plane with stand-in nodes, and the `stead` program to test on it.
pub struct Stage {
    /// The control plane.
    pub plane: ControlPlane,
    /// The nodes.
    pub nodes: Nodes,
    stead: PathBuf,
}

/// The image of every Glance on a stage. The nodes do not pull it.
pub const IMAGE: &str = "registry.test/glance-api:1";

impl Stage {
    /// Starts a control plane and nodes, and waits until they are ready. `stead` is the program to test.
    pub async fn open(binaries: &Binaries, stead: &Path, options: Options, nodes: ClusterSpec) -> Result<Stage> {
        let plane = ControlPlane::start(binaries, options).await?;
        let nodes = Nodes::start(&plane, nodes).await?;
        nodes.ready().await?;
        Ok(Stage { plane, nodes, stead: stead.to_owned() })
    }

    /// Installs the CRDs and policies, and waits until the API server serves the kinds and enforces the policies.
    pub async fn install_definitions(&self) -> Result<()> {
        let definitions = self.stead(&["manifests", "--only", "crds"]).await?;
        self.kubectl_with(&["apply", "--server-side", "-f", "-"], &definitions).await?;
        let ours = ["crd", "-l", "app.kubernetes.io/part-of=stead"];
        self.kubectl(&[&["wait", "--for=condition=Established", "--timeout=300s"][..], &ours].concat()).await?;
        // The API server serves a kind only a moment after its CRD is Established.
        let names = self.kubectl(&[&["get", "-o", "jsonpath={.items[*].metadata.name}"][..], &ours].concat()).await?;
        let kinds = names.trim().replace(' ', ",");
        wait_until("the kinds are served", Duration::from_secs(300), async || {
            Ok(self.plane.kubectl(&["get", &kinds, "-A"]).await?.code == Some(0))
        })
        .await?;
        self.wait_until("the policies are enforced", Duration::from_secs(300), || self.policies_are_enforced()).await
    }

    /// Whether the policies are enforced, which takes a moment after their creation: a reference to another namespace
    /// is refused, and a draft's field name causes a warning. Uses dry runs only.
    async fn policies_are_enforced(&self) -> Result<bool> {
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
        for (group, kind, spec, expected) in tries {
            let version = format!("{group}/v1beta1");
            let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": "policies"}, "spec": spec});
            let tried = ["create", "--dry-run=server", "-f", "-"];
            if !self.plane.kubectl_with(&tried, &object.to_string()).await?.stderr.contains(expected) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until Kubernetes' garbage collector knows the kinds. It discovers new kinds every 30 seconds; until then
    /// the objects that a Glance owns are not deleted with it.
    pub async fn wait_for_garbage_collector(&self) -> Result<()> {
        let owner =
            r#"{"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology", "metadata": {"name": "owner"}}"#;
        self.kubectl_with(&["apply", "-f", "-"], owner).await?;
        let uid = self.kubectl(&["get", "topology", "owner", "-o", "jsonpath={.metadata.uid}"]).await?;
        let owned = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [
            {"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology", "name": "owner", "uid": uid}]}});
        self.kubectl_with(&["apply", "-f", "-"], &owned.to_string()).await?;
        self.kubectl(&["delete", "topology", "owner"]).await?;
        let limit = Duration::from_secs(300);
        self.wait_until("the garbage collector knows the kinds", limit, async || {
            Ok(self.get("default", "configmap/owned").await?.is_none())
        })
        .await
    }

    /// Starts the operator as the user of the kubeconfig, and waits until it is ready.
    pub async fn start_operator(&self, kubeconfig: &Path, flags: &[&str]) -> Result<Operator> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            let mut operator = self.spawn_operator(kubeconfig, flags)?;
            match operator.wait_until_ready().await {
                // Another process has taken the port that was free a moment ago.
                Err(e) if attempt < 4 && format!("{e:#}").contains("Address already in use") => {}
                ready => return ready.map(|()| operator),
            }
        }
    }

    /// Starts the operator without waiting until it is ready.
    pub fn spawn_operator(&self, kubeconfig: &Path, flags: &[&str]) -> Result<Operator> {
        Operator::spawn(&self.stead, kubeconfig, self.plane.folder(), flags)
    }

    /// Returns access to the objects of a namespace, without kubectl.
    pub fn objects(&self, namespace: &str) -> Objects {
        Objects::new(self.plane.client(), namespace)
    }

    /// Runs `stead` against this cluster. Returns standard output, or an error with standard error.
    pub async fn stead(&self, args: &[&str]) -> Result<String> {
        stead(&self.stead, &self.plane, args).await
    }

    /// Runs `stead` against this cluster. Returns exit code, standard output and standard error.
    pub async fn run_stead(&self, args: &[&str]) -> Result<(Option<i32>, String, String)> {
        run_stead(&self.stead, &self.plane, args).await
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

    /// Returns an object as kubectl prints it; none if it does not exist.
    pub async fn get(&self, namespace: &str, what: &str) -> Result<Option<Value>> {
        let text = self.kubectl(&["-n", namespace, "get", what, "-o", "json", "--ignore-not-found"]).await?;
        Ok(if text.trim().is_empty() { None } else { Some(serde_json::from_str(&text)?) })
    }

    /// Lists the objects of a kind, such as `pods`, in a namespace by label selector, ordered by name.
    pub async fn list(&self, namespace: &str, kind: &str, selector: &str) -> Result<Vec<Value>> {
        let text = self.kubectl(&["-n", namespace, "get", kind, "-l", selector, "-o", "json"]).await?;
        let mut list: Value = serde_json::from_str(&text)?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Polls until `holds` returns true; fails with `what` after `limit`.
    pub async fn wait_until<F>(&self, what: &str, limit: Duration, holds: impl FnMut() -> F) -> Result<()>
    where
        F: Future<Output = Result<bool>>,
    {
        wait_until(what, limit, holds).await
    }
}

/// Polls until `holds` returns true; fails with `what` after `limit`.
pub async fn wait_until<F>(what: &str, limit: Duration, mut holds: impl FnMut() -> F) -> Result<()>
where
    F: Future<Output = Result<bool>>,
{
    wait_for(what, limit, || {
        let held = holds();
        async move { Ok(held.await?.then_some(())) }
    })
    .await
}

/// Polls until `look` returns a value, and returns it; fails with `what` after `limit`.
pub async fn wait_for<T, F>(what: &str, limit: Duration, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
{
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() > end {
            bail!("timed out after {} s waiting until {what}", limit.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

/// Returns the seconds that a step of a recovery took, from the summary that `stead recover` prints at the end.
pub fn recovery_step_seconds(output: &str, what: &str) -> Option<f64> {
    let line = output.lines().rev().find(|line| line.contains(what))?;
    line.trim_start().split_once(" s  ")?.0.parse().ok()
}

/// Runs `stead` against a cluster. Returns standard output, or an error with standard error.
async fn stead(program: &Path, plane: &ControlPlane, args: &[&str]) -> Result<String> {
    let (code, stdout, stderr) = run_stead(program, plane, args).await?;
    if code != Some(0) {
        bail!("stead {} exited with {code:?}: {}{}", args.join(" "), stdout, stderr.trim());
    }
    Ok(stdout)
}

/// The timeout of a command: longer than its own `--timeout` in any test.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(3600);

/// Runs `stead` against a cluster. Returns exit code, standard output and standard error.
async fn run_stead(program: &Path, plane: &ControlPlane, args: &[&str]) -> Result<(Option<i32>, String, String)> {
    let mut command = Command::new(program);
    command.args(args).env("KUBECONFIG", plane.kubeconfig()).env("NO_COLOR", "1").kill_on_drop(true);
    let output = tokio::time::timeout(COMMAND_TIMEOUT, command.output()).await;
    let output = output.with_context(|| format!("stead {} does not exit", args.join(" ")))?;
    let output = output.with_context(|| format!("running {}", program.display()))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok((output.status.code(), text(output.stdout), text(output.stderr)))
}
