//! The oldest supported version of Kubernetes: install, a Glance, a Gluster pool, an explanation.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use stead_testbed::skip;
use stead_testbed::{Binaries, ControlPlane, Options};

/// The time limit for an expected result, on a busy machine.
const RESULT_TIMEOUT: Duration = Duration::from_secs(180);

const GLANCE: &str = r#"
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "osp-secret"},
   "data": {"GlancePassword": "MTIzNDU2Nzg=", "GlanceDatabasePassword": "MTIzNDU2Nzg="}},
  {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "openstack"}, "spec": {"ports": [{"port": 3306}]}},
  {"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology", "metadata": {"name": "zones"},
   "spec": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
     "labelSelector": {"matchLabels": {"service": "glance"}}}]}},
  {"apiVersion": "glance.openstack.org/v1beta1", "kind": "Glance", "metadata": {"name": "glance"},
   "spec": {"secret": "osp-secret", "databaseInstance": "openstack", "storage": {"storageRequest": "1G"},
     "containerImage": "registry.test/glance:1", "topologyRef": {"name": "zones"},
     "glanceAPIs": {"default": {"type": "single", "replicas": 1}}}}
]}"#;

/// A pod that no node can run: there are no nodes.
const POD: &str = r#"
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits"},
 "spec": {"containers": [{"name": "c", "image": "registry.test/c:1"}]}}"#;

const NODE: &str = r#"
{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-0"},
 "spec": {"taints": [{"key": "only", "value": "storage", "effect": "NoSchedule"}]}}"#;

/// The operator as a process, which ends with this value.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(kubeconfig: &Path, args: &[&str]) -> Result<Command> {
    let mut command = Command::new(crate::stead()?);
    command.args(args).arg("--kubeconfig").arg(kubeconfig).stdin(Stdio::null());
    Ok(command)
}

/// Runs stead; returns its output, and what it says on standard error.
fn stead(plane: &ControlPlane, args: &[&str]) -> Result<(String, String)> {
    let output = command(&plane.kubeconfig(), args)?.output().context("running stead")?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (out, err) = (text(output.stdout), text(output.stderr));
    ensure!(output.status.success(), "stead {}: {err}{out}", args.join(" "));
    Ok((out, err))
}

/// Waits until kubectl prints something that is expected.
async fn wait_for(plane: &ControlPlane, args: &[&str], expected: &str) -> Result<()> {
    let end = Instant::now() + RESULT_TIMEOUT;
    loop {
        let found = plane.kubectl(args).await?;
        if found.stdout.contains(expected) {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "kubectl {}: {expected:?} is not in {}{}",
            args.join(" "),
            found.stdout,
            found.stderr
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operator_gluster_and_explain_on_1_29() -> Result<()> {
    let Some(binaries) = Binaries::directory().map(|all| all.join("1.29")).and_then(Binaries::within) else {
        skip("Kubernetes 1.29 is not built (run `cargo xtask kubernetes --kubernetes 1.29`)");
        return Ok(());
    };
    let plane = ControlPlane::start(&binaries, Options::default()).await?;
    let install = ["install", "--yes", "--no-wait", "--image=registry.test/stead:1"];
    let (out, err) = stead(&plane, &install)?;
    assert!(out.contains("(Kubernetes 1.29)"), "{out}");
    assert!(err.contains("note: Kubernetes 1.29 has no ValidatingAdmissionPolicy"), "{err}");
    let (again, _) = stead(&plane, &install)?;
    assert!(again.contains("nothing to change."), "{again}");

    let operator = ["operator", "--leader-elect=false", "--listen=127.0.0.1:0", "-n", "stead-system"];
    let operator = command(&plane.kubeconfig(), &operator)?.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _operator = Operator(operator.context("running the operator")?);
    plane.kubectl_with(&["apply", "-f", "-"], GLANCE).await?.ok()?;
    wait_for(&plane, &["get", "jobs", "-o", "name"], "job.batch/glance-db-sync").await?;
    let satisfiable =
        ["get", "topology", "zones", "-o", "jsonpath={.status.conditions[?(@.type=='Satisfiable')].status}"];
    wait_for(&plane, &satisfiable, "Unknown").await?;

    // A reference to another namespace is not refused by admission, but by the operator.
    let plane_object = r#"{"apiVersion": "core.openstack.org/v1beta1", "kind": "OpenStackControlPlane",
        "metadata": {"name": "plane"}, "spec": {"secret": "osp-secret",
            "topologyRef": {"name": "zones", "namespace": "other"}}}"#;
    plane.kubectl_with(&["apply", "-f", "-"], plane_object).await?.ok()?;
    let ready = ["get", "oscp", "plane", "-o", "jsonpath={.status.conditions[?(@.type=='TopologyReady')].message}"];
    wait_for(&plane, &ready, "Customizing namespace field is not supported").await?;

    let class = r#"{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "bricks"},
        "provisioner": "csi.test"}"#;
    plane.kubectl_with(&["apply", "-f", "-"], class).await?.ok()?;
    let pool = ["gluster", "manifests", "--check", "--image=registry.test/gluster:11", "--storage-class=bricks"];
    let (manifests, err) = stead(&plane, &pool)?;
    assert!(err.contains("a scale-down that would strand bricks is not denied"), "{err}");
    assert!(!manifests.contains("ValidatingAdmissionPolicy"), "{manifests}");
    plane.kubectl_with(&["apply", "--server-side", "-f", "-"], &manifests).await?.ok()?;
    wait_for(&plane, &["get", "sts", "-o", "name"], "statefulset.apps/glusterfs").await?;

    plane.kubectl_with(&["apply", "-f", "-"], NODE).await?.ok()?;
    plane.kubectl_with(&["apply", "-f", "-"], POD).await?.ok()?;
    let message = ["get", "pod", "waits", "-o", "jsonpath={.status.conditions[?(@.type=='PodScheduled')].message}"];
    wait_for(&plane, &message, "untolerated taint {only: storage}").await?;
    let (explained, _) = stead(&plane, &["explain", "pod", "waits"])?;
    assert!(explained.contains("kube-scheduler 1.29 says:"), "{explained}");
    let said = plane.kubectl(&message).await?.ok()?;
    let one_line = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(one_line.contains(said.trim()), "kube-scheduler says {said}\n{explained}");

    let (gone, _) = stead(&plane, &["uninstall", "--yes", "--timeout", "300s"])?;
    assert!(gone.contains("glance") || !gone.is_empty(), "{gone}");
    Ok(())
}
