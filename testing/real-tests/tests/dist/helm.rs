//! Releases of the chart on a real control plane. There is no kubelet: the pod of the hook is played by its command.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_manifests::{Options, manifests};
use stead_real::go_tool::{GoTool, HELM_3, HELM_4};
use stead_stage::wait_for;
use stead_testbed::{Binaries, ControlPlane};

use crate::{CommandOutput, chart, run};

const NAMESPACE: &str = "stead-system";
const TOPOLOGIES: &str = "topologies.topology.openstack.org";
const LIMIT: Duration = Duration::from_secs(600);

/// A control plane, Helm, and the program `stead`.
struct Scene {
    plane: ControlPlane,
    helm: PathBuf,
    stead: PathBuf,
}

impl Scene {
    async fn open(tool: &GoTool) -> Result<Option<Scene>> {
        let (Some(binaries), Some(helm)) = (Binaries::find_or_skip(), tool.find_or_skip()) else { return Ok(None) };
        let stead = stead_stage::program("stead")?;
        let plane = ControlPlane::start(&binaries, stead_testbed::Options::default()).await?;
        Ok(Some(Scene { plane, helm, stead }))
    }

    fn command(&self, args: &[&str]) -> Command {
        let home = self.plane.folder().join("helm");
        let mut command = Command::new(&self.helm);
        command.args(args).args(["-n", NAMESPACE]).arg("--kubeconfig").arg(self.plane.kubeconfig());
        for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(variable, &home);
        }
        command
    }

    /// Installs or upgrades a chart, with more flags.
    fn release(&self, verb: &str, chart: &Path, flags: &[&str]) -> Result<CommandOutput> {
        let mut command = self.command(&[verb, "stead"]);
        command.arg(chart).args(["--set", "image.repository=registry.test/stead"]).args(flags);
        if verb == "install" {
            command.arg("--create-namespace");
        }
        run(&mut command)
    }

    fn stead(&self, kubeconfig: &Path, args: &[&str]) -> Result<CommandOutput> {
        run(Command::new(&self.stead).args(args).arg("--kubeconfig").arg(kubeconfig))
    }

    /// Runs stead as the administrator.
    fn admin(&self, args: &[&str]) -> Result<CommandOutput> {
        self.stead(&self.plane.kubeconfig(), args)
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.plane.kubectl(args).await?.ok()
    }

    async fn get(&self, kind: &str, name: &str) -> Result<Option<Value>> {
        let text = self.kubectl(&["get", kind, name, "-n", NAMESPACE, "-o", "json", "--ignore-not-found"]).await?;
        if text.is_empty() { Ok(None) } else { Ok(Some(serde_json::from_str(&text)?)) }
    }

    /// Every object of an installation is in the cluster, as it should be.
    async fn check_installed(&self) -> Result<()> {
        let image = format!("registry.test/stead:{}", env!("CARGO_PKG_VERSION"));
        for mut manifest in manifests(&Options { image, ..Options::default() }) {
            if manifest.kind() == "Namespace" {
                continue;
            }
            manifest.object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm".into();
            let kind = format!("{}.{}", manifest.plural, manifest.group());
            let live = self.get(kind.trim_end_matches('.'), manifest.name()).await?;
            let live = live.with_context(|| format!("{manifest} does not exist"))?;
            let missing = missing(&manifest.object, &live, "");
            ensure!(missing.is_empty(), "{manifest}: {missing:?}");
        }
        Ok(())
    }

    /// Runs `helm uninstall`, and plays the pod of its hook: the command of the container, as its service account.
    async fn uninstall(&self) -> Result<String> {
        let mut command = self.command(&["uninstall", "stead", "--timeout", "10m"]);
        let helm = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let pod = wait_for("the pod of the hook", LIMIT, async || {
            let selector = "batch.kubernetes.io/job-name=stead-uninstall";
            let pods = self.kubectl(&["get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json"]).await?;
            Ok(serde_json::from_str::<Value>(&pods)?["items"].get(0).cloned())
        })
        .await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let args: Vec<String> =
            pod["spec"]["containers"][0]["args"].as_array().into_iter().flatten().map(text).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let account = text(&pod["spec"]["serviceAccountName"]);
        let token = self.plane.service_account_token(NAMESPACE, &account).await?;
        let kubeconfig = self.plane.kubeconfig_for(&account, &token)?;
        let played = self.stead(&kubeconfig, &args)?;
        let said = format!("{}{}", played.out, played.err);
        played.ok()?;
        let name = text(&pod["metadata"]["name"]);
        let ended = r#"{"status": {"phase": "Succeeded"}}"#;
        self.kubectl(&["patch", "pod", &name, "-n", NAMESPACE, "--subresource=status", "--type=merge", "-p", ended])
            .await?;
        let output = tokio::task::spawn_blocking(move || helm.wait_with_output()).await??;
        ensure!(output.status.success(), "helm uninstall: {}", String::from_utf8_lossy(&output.stderr));
        Ok(said)
    }

    async fn revision(&self, definition: &str) -> Result<String> {
        let form = "jsonpath={.metadata.uid} {.metadata.generation} {.metadata.labels} {.metadata.annotations}";
        self.kubectl(&["get", "crd", definition, "-o", form]).await
    }
}

/// The fields of an object that another one does not have.
fn missing(wanted: &Value, live: &Value, at: &str) -> Vec<String> {
    match (wanted, live) {
        (Value::Object(wanted), Value::Object(live)) => {
            let none = Value::Null;
            wanted.iter().flat_map(|(k, v)| missing(v, live.get(k).unwrap_or(&none), &format!("{at}.{k}"))).collect()
        }
        (Value::Array(wanted), Value::Array(live)) if wanted.len() == live.len() => {
            let pairs = wanted.iter().zip(live).enumerate();
            pairs.flat_map(|(i, (wanted, live))| missing(wanted, live, &format!("{at}[{i}]"))).collect()
        }
        (wanted, live) if wanted != live => vec![format!("{at}: {wanted}, found {live}")],
        _ => Vec::new(),
    }
}

/// A chart of an earlier version: its Topology had no short name.
fn earlier_chart(folder: &Path) -> Result<PathBuf> {
    let copy = folder.join("earlier");
    run(Command::new("cp").arg("-r").arg(chart()).arg(&copy))?.ok()?;
    let file = copy.join(format!("templates/crds/{TOPOLOGIES}.yaml"));
    let text = std::fs::read_to_string(&file)?;
    let earlier = text.replace("    shortNames:\n    - topo\n", "");
    let version = format!("stead.dev/version: \"{}\"", env!("CARGO_PKG_VERSION"));
    ensure!(earlier != text && text.contains(&version), "the CRD of Topologies has changed");
    std::fs::write(&file, earlier.replace(&version, "stead.dev/version: 0.0.1"))?;
    Ok(copy)
}

const OBJECTS: &str = r#"
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology",
   "metadata": {"name": "t", "finalizers": ["openstack.org/glanceapi-default", "openstack.org/memcached-m"]}},
  {"apiVersion": "core.openstack.org/v1beta1", "kind": "OpenStackControlPlane",
   "metadata": {"name": "p", "finalizers": ["openstack.org/openstackcontrolplane"]}, "spec": {}},
  {"apiVersion": "glance.openstack.org/v1beta1", "kind": "GlanceAPI",
   "metadata": {"name": "a", "finalizers": ["openstack.org/glanceapi"]}, "spec": {}}
]}"#;

const FOREIGN: &str = r#"
{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
 "metadata": {"name": "topologies.topology.openstack.org"},
 "spec": {
   "group": "topology.openstack.org", "scope": "Namespaced",
   "names": {"kind": "Topology", "plural": "topologies"},
   "versions": [{"name": "v1beta1", "served": true, "storage": true,
     "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}"#;

/// Install, upgrade, uninstall and install again.
async fn life(tool: &GoTool) -> Result<()> {
    let Some(scene) = Scene::open(tool).await? else { return Ok(()) };
    let none = scene.admin(&["version", "--check"])?;
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.out.starts_with("The operator's CRDs are not installed"), "{}", none.out);

    let earlier = earlier_chart(scene.plane.folder())?;
    let notes = scene.release("install", &earlier, &[])?.ok()?;
    assert!(notes.contains("is installed in namespace stead-system"), "{notes}");
    let differs = scene.admin(&["version", "--check", "-o", "json"])?;
    assert_eq!(differs.code, Some(1), "{differs:?}");
    assert!(differs.out.contains("spec.names.shortNames"), "{}", differs.out);

    scene.release("upgrade", &chart(), &[])?.ok()?;
    scene.check_installed().await?;
    let same = scene.admin(&["version", "--check"])?;
    assert_eq!(same.code, Some(0), "{same:?}");
    for command in [&["install", "--yes", "--image=registry.test/stead:2"][..], &["uninstall", "--yes"]] {
        let refused = scene.admin(command)?;
        assert_eq!(refused.code, Some(1), "{command:?}");
        assert!(refused.err.contains("belongs to the Helm release stead"), "{}", refused.err);
    }

    scene.plane.kubectl_with(&["apply", "-f", "-"], OBJECTS).await?.ok()?;
    let said = scene.uninstall().await?;
    assert!(said.contains("removed the finalizers of topology/t in default"), "{said}");
    let kinds = "topologies,openstackcontrolplanes,glanceapis";
    let form = "jsonpath={range .items[*]}{.metadata.name}={.metadata.finalizers} {end}";
    let left = scene.kubectl(&["get", kinds, "-o", form]).await?;
    assert_eq!(left.trim(), "t=[\"openstack.org/memcached-m\"] p= a=", "objects are kept, other finalizers too");
    let stead = "app.kubernetes.io/part-of=stead";
    let gone = "deployments,roles,serviceaccounts,jobs,clusterroles,clusterrolebindings,validatingadmissionpolicies";
    assert_eq!(scene.kubectl(&["get", gone, "-A", "-l", stead, "-o", "name"]).await?, "");
    let crds = scene.kubectl(&["get", "crds", "-l", stead, "-o", "name"]).await?;
    assert_eq!(crds.lines().count(), 4, "{crds}");

    scene.release("install", &chart(), &[])?.ok()?;
    scene.check_installed().await?;
    run(&mut scene.command(&["uninstall", "stead", "--no-hooks"]))?.ok()?;
    // The CRDs that Helm kept do not stop `stead install`.
    scene.admin(&["install", "--yes", "--no-wait", "--image=registry.test/stead:2"])?.ok()?;
    Ok(())
}

/// CRDs of the OpenStack operators are never taken over, not even with the flags that tell Helm to.
async fn neighbours(tool: &GoTool, flags: &[&str]) -> Result<()> {
    let Some(scene) = Scene::open(tool).await? else { return Ok(()) };
    scene.plane.kubectl_with(&["create", "-f", "-"], FOREIGN).await?.ok()?;
    scene.kubectl(&["wait", "--for=condition=Established", "crd", TOPOLOGIES, "--timeout=300s"]).await?;
    let before = scene.revision(TOPOLOGIES).await?;
    let refused = scene.release("install", &chart(), &["--set", "crds.openstack=install"])?;
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("belongs to someone else"), "{}", refused.err);

    let notes = scene.release("install", &chart(), flags)?.ok()?;
    assert!(notes.contains("another installation manages topologies.topology.openstack.org"), "{notes}");
    scene.release("upgrade", &chart(), flags)?.ok()?;
    assert_eq!(scene.revision(TOPOLOGIES).await?, before);
    assert!(scene.get("validatingadmissionpolicy", &format!("stead.{TOPOLOGIES}")).await?.is_none());
    assert!(scene.get("crd", "glances.glance.openstack.org").await?.is_some());
    let check = scene.admin(&["version", "--check"])?;
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(check.out.contains("foreign  topologies.topology.openstack.org"), "{}", check.out);
    run(&mut scene.command(&["uninstall", "stead", "--no-hooks"]))?.ok()?;
    assert_eq!(scene.revision(TOPOLOGIES).await?, before);
    Ok(())
}

/// Helm manages what `stead install` created only if it is told to.
async fn takeover(tool: &GoTool, flags: &[&str]) -> Result<()> {
    let Some(scene) = Scene::open(tool).await? else { return Ok(()) };
    scene.admin(&["install", "--yes", "--no-wait", "--image=registry.test/stead:1"])?.ok()?;
    let before = scene.revision(TOPOLOGIES).await?;
    let refused = scene.release("install", &chart(), &[])?;
    assert_ne!(refused.code, Some(0));
    assert!(refused.err.contains("ownership"), "{}", refused.err);
    assert_eq!(scene.revision(TOPOLOGIES).await?, before, "nothing was changed");
    scene.release("install", &chart(), flags)?.ok()?;
    scene.check_installed().await?;
    scene.release("upgrade", &chart(), &["--set", "replicas=1"])?.ok()?;
    let deployment = scene.get("deployment", "stead-operator").await?.context("the Deployment")?;
    assert_eq!(deployment["spec"]["replicas"], 1);
    scene.uninstall().await?;
    assert!(scene.get("deployment", "stead-operator").await?.is_none());
    assert!(scene.get("crd", TOPOLOGIES).await?.is_some(), "CRDs are kept");
    Ok(())
}

/// The hook works with Roles in some namespaces only.
async fn some_namespaces(tool: &GoTool) -> Result<()> {
    let Some(scene) = Scene::open(tool).await? else { return Ok(()) };
    scene.release("install", &chart(), &["--set", "namespaces={default}"])?.ok()?;
    scene.plane.kubectl_with(&["apply", "-f", "-"], OBJECTS).await?.ok()?;
    let said = scene.uninstall().await?;
    assert!(said.contains("removed the finalizers of glanceapi/a in default"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life_with_helm_3() -> Result<()> {
    life(&HELM_3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn life_with_helm_4() -> Result<()> {
    life(&HELM_4).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_with_helm_3() -> Result<()> {
    neighbours(&HELM_3, &["--take-ownership"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_with_helm_4() -> Result<()> {
    neighbours(&HELM_4, &["--take-ownership", "--force-conflicts"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_with_helm_3() -> Result<()> {
    takeover(&HELM_3, &["--take-ownership"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn takeover_with_helm_4() -> Result<()> {
    takeover(&HELM_4, &["--take-ownership", "--server-side=false"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn some_namespaces_with_helm_4() -> Result<()> {
    some_namespaces(&HELM_4).await
}
