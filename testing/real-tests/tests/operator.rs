//! The operator on a real API server, with a small control loop of this test. Skipped if the API server is not built.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stead_client::ClientConfig;
use stead_loops::{LoopSettings, LoopStep, ObjectKey, ObjectRef, Propagation, Store, Watched, World, Write};
use stead_operator::{LoopSet, Options, log, run};
use stead_testbed::{Binaries, ControlPlane, User};
use tokio::signal::unix::{SignalKind, signal};

/// A loop that gives each Topology a ConfigMap and a Secret of its name, unless `spec.none` is set.
const LOOPS: LoopSet = LoopSet {
    watched: &[Watched::all("Topology"), Watched::all("ConfigMap")],
    read_by_name: &[Watched::all("Secret")],
    references: |topology| vec![ObjectKey { kind: "Secret".into(), ..topology.key().clone() }],
    reconciled: &["Topology"],
    step,
    affected,
};

fn step(world: &World<'_>, key: &ObjectKey) -> LoopStep {
    let Some(topology) = world.store.raw(key) else { return LoopStep::default() };
    let meta = json!({"name": key.name, "namespace": key.namespace});
    let value = topology["spec"]["value"].as_str().unwrap_or_default();
    let mut writes = Vec::new();
    if topology["spec"]["none"] == true {
        let live = world.store.raw(&ObjectKey::namespaced("ConfigMap", &key.namespace, &key.name));
        writes.extend(live.and_then(|l| l["metadata"]["uid"].as_str()).map(|uid| Write::Delete {
            key: ObjectKey::new("ConfigMap", &key.namespace, &key.name),
            uid: uid.to_owned(),
            propagation: Propagation::Background,
        }));
    } else {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"value": value}});
        writes.push(Write::Apply { object: map, exclusive: vec!["/data"] });
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"value": "c2VjcmV0"}});
        writes.push(Write::Apply { object: secret, exclusive: vec![] });
    }
    let said = world.failures.values().next().map_or("fine", |f| f.reason.as_str());
    writes.push(Write::Status {
        object: json!({"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology", "metadata": meta,
            "status": {"value": value, "said": said}}),
    });
    LoopStep { writes, again: None, wants_cluster: false }
}

fn affected(_: &Store, before: Option<ObjectRef<'_>>, after: Option<ObjectRef<'_>>) -> Vec<ObjectKey> {
    let object = after.or(before).into_iter();
    object.map(|object| ObjectKey { kind: "Topology".into(), ..object.key().clone() }).collect()
}

/// The kubeconfig of an [`operator`] process.
const KUBECONFIG: &str = "STEAD_TEST_OPERATOR_KUBECONFIG";

/// Not a test: the process that the test starts, stops and kills.
#[test]
#[ignore = "a process of the other test"]
fn operator() {
    let Some(file) = std::env::var_os(KUBECONFIG) else { return };
    log::begin(log::LogFormat::Human, "info").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let config = ClientConfig::load(Some(Path::new(&file)), None).await.unwrap();
        let options = Options {
            settings: LoopSettings {
                replace_default_anti_affinity: false,
                glance_image: String::new(),
                cluster_domain: "cluster.local".into(),
            },
            namespace: "default".into(),
            namespaces: Vec::new(),
            leader_elect: true,
            listen: "127.0.0.1:0".parse().unwrap(),
            workers: 4,
            watch_timeout: Duration::from_secs(20),
            loops: LOOPS,
        };
        let mut term = signal(SignalKind::terminate()).unwrap();
        let stop = async move {
            term.recv().await;
        };
        run(config, options, Box::pin(stop)).await.unwrap();
    });
}

/// How long a process may take to stop, on a busy machine.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);

/// A process that is killed when the test ends.
struct Process(Child);

impl Process {
    fn start(kubeconfig: &Path) -> Process {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["operator", "--exact", "--ignored", "--nocapture"])
            .env(KUBECONFIG, kubeconfig)
            .stdout(Stdio::null())
            .spawn();
        Process(child.unwrap())
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    /// Sends SIGTERM and checks that it exits successfully.
    fn end(mut self) {
        assert!(Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap().success());
        let end = Instant::now() + STOP_TIMEOUT;
        let status = loop {
            match self.0.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < end, "the operator does not stop"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An ended process cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Scene {
    plane: ControlPlane,
}

impl Scene {
    async fn kubectl(&self, args: &[&str]) -> String {
        self.plane.kubectl(args).await.unwrap().ok().unwrap()
    }

    async fn apply(&self, object: &Value) {
        self.plane.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await.unwrap().ok().unwrap();
    }

    async fn topology(&self, spec: Value) {
        self.apply(&json!({"apiVersion": "topology.openstack.org/v1beta1", "kind": "Topology",
            "metadata": {"name": "a", "namespace": "default"}, "spec": spec}))
            .await;
    }

    /// Runs kubectl until it succeeds and prints this.
    async fn until(&self, seconds: u64, args: &[&str], expected: &str) {
        let end = Instant::now() + Duration::from_secs(seconds);
        loop {
            let output = self.plane.kubectl(args).await.unwrap();
            if output.code == Some(0) && output.stdout.trim() == expected {
                return;
            }
            assert!(Instant::now() < end, "{args:?} printed {output:?}, not {expected}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Checks that the operators have made exactly these writes. The audit log has them a moment after they are
    /// visible.
    async fn wrote(&self, expected: &[&str]) {
        let end = Instant::now() + Duration::from_secs(60);
        while self.writes().len() < expected.len() && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(self.writes(), expected);
    }

    /// Returns the number of the operators' requests so far.
    fn requests(&self) -> usize {
        self.plane.audit_events().unwrap().iter().filter(|e| e.user() == "operator").count()
    }

    /// Returns the operators' writes so far, without leader election.
    fn writes(&self) -> Vec<String> {
        let events = self.plane.audit_events().unwrap();
        let ours = events.iter().filter(|e| e.user() == "operator" && !["get", "list", "watch"].contains(&&*e.verb));
        let about = ours.filter_map(|e| Some((e, e.object_ref.as_ref()?))).filter(|(_, o)| o.resource != "leases");
        about
            .map(|(e, o)| format!("{} {}/{} {}", e.verb, o.resource, o.name, o.subresource).trim().to_owned())
            .collect()
    }
}

const DATA: &[&str] = &["get", "configmap", "a", "--ignore-not-found", "-o", "jsonpath={.data}"];

/// A minimal CRD.
fn definition() -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "topologies.topology.openstack.org", "labels": {"app.kubernetes.io/part-of": "stead"}},
        "spec": {
            "group": "topology.openstack.org",
            "scope": "Namespaced",
            "names": {"kind": "Topology", "plural": "topologies", "singular": "topology", "listKind": "TopologyList"},
            "versions": [{"name": "v1beta1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_lifecycle() {
    let Some(binaries) = Binaries::find_or_skip() else { return };
    let operator = User { name: "operator".into(), token: "operators".into(), groups: vec!["system:masters".into()] };
    let options =
        stead_testbed::Options { bare: true, audit: true, users: vec![operator], ..stead_testbed::Options::default() };
    let scene = Scene { plane: ControlPlane::start(&binaries, options).await.unwrap() };
    let kubeconfig = scene.plane.kubeconfig_for("operator", "operators").unwrap();

    // It waits for its CRD, then creates the objects once.
    let first = Process::start(&kubeconfig);
    tokio::time::sleep(Duration::from_secs(2)).await;
    scene.apply(&definition()).await;
    scene
        .kubectl(&["wait", "--for=condition=Established", "--timeout=300s", "crd/topologies.topology.openstack.org"])
        .await;
    // A CRD is Established a moment before its kind is served.
    scene.until(60, &["get", "topologies", "-o", "name"], "").await;
    scene.topology(json!({"value": "one"})).await;
    scene.until(60, DATA, r#"{"value":"one"}"#).await;
    scene.until(60, &["get", "topologies", "a", "-o", "jsonpath={.status}"], r#"{"said":"fine","value":"one"}"#).await;
    let mut expected = vec!["patch configmaps/a", "patch secrets/a", "patch topologies/a status"];
    scene.wrote(&expected).await;

    // Changes by others are reverted: a value, a field that belongs to the operator alone, a deletion.
    scene.kubectl(&["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"value":"two"}}"#]).await;
    scene.until(60, DATA, r#"{"value":"one"}"#).await;
    scene.kubectl(&["patch", "configmap", "a", "--type=merge", "-p", r#"{"data":{"more":"x"}}"#]).await;
    scene.until(60, DATA, r#"{"value":"one"}"#).await;
    scene.kubectl(&["delete", "configmap", "a"]).await;
    scene.until(60, DATA, r#"{"value":"one"}"#).await;
    expected.extend(["patch configmaps/a"; 3]);
    scene.wrote(&expected).await;

    // A second process is on standby, and takes over when the first is killed.
    let second = Process::start(&kubeconfig);
    tokio::time::sleep(Duration::from_secs(3)).await;
    first.kill();
    scene.topology(json!({"value": "three"})).await;
    scene.until(90, DATA, r#"{"value":"three"}"#).await;
    scene.until(60, &["get", "topologies", "a", "-o", "jsonpath={.status.value}"], "three").await;
    expected.extend(["patch configmaps/a", "patch topologies/a status"]);
    scene.wrote(&expected).await;

    // A process that stops releases the Lease, so that the next one leads at once; it finds nothing to write.
    second.end();
    let holder = ["get", "lease", "stead-operator", "-o", "jsonpath={.spec.holderIdentity}"];
    assert_eq!(scene.kubectl(&holder).await, "");
    let third = Process::start(&kubeconfig);
    let end = Instant::now() + Duration::from_secs(60);
    while scene.kubectl(&holder).await.is_empty() {
        assert!(Instant::now() < end, "no operator leads");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(scene.writes(), expected, "a restart writes nothing");

    // Objects that are not wanted any more are deleted.
    scene.topology(json!({"value": "three", "none": true})).await;
    scene.until(60, DATA, "").await;
    third.end();
    expected.extend(["delete configmaps/a"]);
    scene.wrote(&expected).await;

    // With a CRD of somebody else, nothing is written.
    scene.kubectl(&["label", "crd", "topologies.topology.openstack.org", "app.kubernetes.io/part-of-"]).await;
    let before = scene.requests();
    let fourth = Process::start(&kubeconfig);
    let end = Instant::now() + Duration::from_secs(60);
    while scene.requests() == before {
        assert!(Instant::now() < end, "it sends no request");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    scene.topology(json!({"value": "four", "none": false})).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    fourth.end();
    scene.wrote(&expected).await;
}
