//! One pass through the product on the real control plane: install, a Glance, an explanation, a recovery. It is part of
//! `cargo xtask ci`, so it must not depend on how busy the machine is: it waits for conditions, and gives up only if a
//! program ends or [`LIMIT`] has passed.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use stead_stage::{Operator, Stage};
use stead_testbed::{Binaries, ClusterSpec, DriverSpec, NodeSpec, Options};

/// The limit for all of it, far above the two minutes that it takes on an idle machine.
const LIMIT: Duration = Duration::from_secs(30 * 60);

/// The limit as an argument of commands that wait by themselves.
const TIMEOUT: [&str; 2] = ["--timeout", "30m"];

/// How long a node may be without a heartbeat. Nodes send one every five seconds, from a thread of their own.
const GRACE_PERIOD: &str = "--node-monitor-grace-period=40s";

const NAMESPACE: &str = "smoke";

/// The pod of the Glance.
const POD: &str = "pod/glance-default-single-0";

const STORAGE_CLASS: &str = r#"{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
  "metadata": {"name": "disks"}, "provisioner": "cinder.csi.openstack.org", "volumeBindingMode": "WaitForFirstConsumer"}"#;

struct Smoke {
    stage: Stage,
    operator: Option<Operator>,
    start: Instant,
}

impl Smoke {
    /// Prints the current step. Not with a macro: the test harness captures the output of macros.
    fn report(&self, what: &str) {
        let _ = writeln!(std::io::stdout(), "  {:>4} s  {what}", self.start.elapsed().as_secs());
    }

    /// Waits until `find` finds something. A request that fails is repeated: a busy API server may refuse one.
    async fn wait<T>(&mut self, what: &str, mut find: impl AsyncFnMut(&Stage) -> Result<Option<T>>) -> Result<T> {
        self.report(what);
        loop {
            let last = match find(&self.stage).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => "not yet".to_owned(),
                Err(error) => format!("{error:#}"),
            };
            self.stage.plane.check_running()?;
            if let Some(operator) = &mut self.operator {
                operator.check_running()?;
            }
            if self.start.elapsed() > LIMIT {
                bail!("gave up after {} minutes, waiting for: {what}: {last}", LIMIT.as_secs() / 60);
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Waits until an object meets a condition, and returns it.
    async fn object(&mut self, what: &str, name: &str, meets: impl Fn(&Value) -> bool) -> Result<Value> {
        self.wait(what, async |stage| Ok(stage.get(NAMESPACE, name).await?.filter(|object| meets(object)))).await
    }

    async fn apply(&self, object: &Value) -> Result<()> {
        let args = ["-n", NAMESPACE, "apply", "--server-side", "-f", "-"];
        self.stage.kubectl_with(&args, &object.to_string()).await.map(drop)
    }
}

/// Whether a condition has this status.
fn condition(object: &Value, kind: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|condition| condition["type"] == kind).any(|condition| condition["status"] == status)
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Three nodes in one zone, with storage that is attached to one node at a time.
fn cluster() -> ClusterSpec {
    let node = |name: &str| NodeSpec {
        name: name.to_owned(),
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
        ..NodeSpec::default()
    };
    let driver = DriverSpec { name: "cinder.csi.openstack.org".to_owned(), attach: true, ..DriverSpec::default() };
    ClusterSpec {
        nodes: ["node-1", "node-2", "node-3"].map(node).to_vec(),
        drivers: vec![driver],
        heartbeat_seconds: 5.0,
        ..ClusterSpec::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn install_glance_explain_recover() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let start = Instant::now();
    let stead = stead_stage::program("stead")?;
    let options = Options { controller_manager: vec![GRACE_PERIOD.to_owned()], ..Options::default() };
    let stage = Stage::open(&binaries, &stead, options, cluster()).await?;
    let mut smoke = Smoke { stage, operator: None, start };
    install(&mut smoke).await?;
    let pod = glance(&mut smoke).await?;
    explain(&mut smoke).await?;
    recover(&mut smoke, &pod).await?;
    smoke.report("done");
    Ok(())
}

/// Installs Stead, and runs its operator with the rights that were installed. The nodes only pretend to run its pods.
async fn install(smoke: &mut Smoke) -> Result<()> {
    smoke.report("stead install");
    smoke.stage.kubectl_with(&["apply", "-f", "-"], STORAGE_CLASS).await?;
    smoke.stage.stead(&[&["install", "--yes", "--image=registry.test/stead:1"], &TIMEOUT[..]].concat()).await?;
    smoke.report("stead operator");
    let plane = &smoke.stage.plane;
    let token = plane.service_account_token("stead-system", "stead-operator").await?;
    let kubeconfig = plane.kubeconfig_for("stead-operator", &token)?;
    let flags = ["--namespace=stead-system", "--leader-elect=false"];
    smoke.operator = Some(smoke.stage.start_operator(&kubeconfig, &flags).await?);
    Ok(())
}

/// Creates a Glance with one pod that has a volume, waits until it is ready, and returns the pod.
async fn glance(smoke: &mut Smoke) -> Result<Value> {
    smoke.stage.kubectl(&["create", "namespace", NAMESPACE]).await?;
    let password = "MTIzNDU2Nzg=";
    for object in [
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "osp-secret"},
            "data": {"GlancePassword": password, "GlanceDatabasePassword": password}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "openstack"},
            "spec": {"ports": [{"port": 3306}]}}),
        json!({"apiVersion": "glance.openstack.org/v1beta1", "kind": "Glance", "metadata": {"name": "glance"},
            "spec": {"databaseInstance": "openstack", "secret": "osp-secret",
                "storage": {"storageClass": "disks", "storageRequest": "1G"},
                "glanceAPIs": {"default": {"type": "single", "replicas": 1}}}}),
    ] {
        smoke.apply(&object).await?;
    }
    smoke.object("the Glance is ready", "glance/glance", |glance| condition(glance, "Ready", "True")).await?;
    smoke.object("its pod is ready", POD, |pod| condition(pod, "Ready", "True")).await
}

/// Explains a pod that no node can run: Stead prints kube-scheduler's message and offers fixes.
async fn explain(smoke: &mut Smoke) -> Result<()> {
    smoke
        .apply(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pending"},
            "spec": {"nodeSelector": {"zone": "b"}, "containers": [{"name": "c", "image": "i"}]}}))
        .await?;
    let rejected = |pod: &Value| condition(pod, "PodScheduled", "False");
    let pod = smoke.object("kube-scheduler finds no node for a pod", "pod/pending", rejected).await?;
    smoke.report("stead explain");
    let output = smoke.stage.stead(&["explain", "pod/pending", "-n", NAMESPACE, "-o", "json"]).await?;
    let explanation: Value = serde_json::from_str(&output).with_context(|| output.clone())?;
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let message = conditions.filter(|c| c["type"] == "PodScheduled").find_map(|c| c["message"].as_str());
    ensure!(message.is_some() && explanation["message"].as_str() == message, "{message:?}: {explanation:#}");
    ensure!(explanation["fixes"].as_array().is_some_and(|fixes| !fixes.is_empty()), "no fixes: {explanation:#}");
    Ok(())
}

/// Recovers the node of the Glance's pod: afterwards the pod runs on another node, with its volume.
async fn recover(smoke: &mut Smoke, pod: &Value) -> Result<()> {
    let (dead, uid) = (text(pod, "/spec/nodeName").to_owned(), text(pod, "/metadata/uid").to_owned());
    let target = format!("node/{dead}");
    smoke.stage.nodes.make_unreachable(&dead)?;
    smoke.object("a node is unreachable", &target, |node| condition(node, "Ready", "Unknown")).await?;
    smoke.report("stead recover");
    let command = ["recover", &target, "--yes", "--confirm-off", "smoke test", "-o", "json"];
    let output = smoke.stage.stead(&[&command, &TIMEOUT[..]].concat()).await?;
    let record: Value = serde_json::from_str(&output).with_context(|| output.clone())?;
    ensure!(record["status"]["phase"] == "Recovered", "{record:#}");
    let replaced = |pod: &Value| text(pod, "/metadata/uid") != uid && condition(pod, "Ready", "True");
    let replacement = smoke.object("the replacement pod is ready", POD, replaced).await?;
    let node = text(&replacement, "/spec/nodeName");
    ensure!(node != dead, "the replacement pod is on the dead node");
    let attachments = smoke.stage.list(NAMESPACE, "volumeattachments", "").await?;
    let nodes: Vec<&str> = attachments.iter().map(|attachment| text(attachment, "/spec/nodeName")).collect();
    ensure!(nodes == [node], "the volume is attached to {nodes:?}, not to {node}");
    Ok(())
}
