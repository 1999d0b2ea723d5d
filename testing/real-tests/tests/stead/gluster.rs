//! `stead gluster` on a real API server.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stead_pool::{Daemon, HostName, Member, Peer, PeerId, PeerState, Record, Report, config_map};
use stead_testbed::{Binaries, ControlPlane, Options, skip};

/// The result of a command.
struct CommandOutput {
    out: String,
    err: String,
    code: Option<i32>,
}

fn stead(args: &[&str], plane: &ControlPlane) -> Result<CommandOutput> {
    let mut command = Command::new(crate::stead()?);
    command.arg("gluster").args(args).env("KUBECONFIG", "/nonexistent").env_remove("KUBERNETES_SERVICE_HOST");
    command.arg("--kubeconfig").arg(plane.kubeconfig());
    let output = command.stdin(std::process::Stdio::null()).output().context("running stead")?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(CommandOutput { out: text(output.stdout), err: text(output.stderr), code: output.status.code() })
}

const CLASS: &str = r#"{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner": "x.example/y",
  "metadata": {"name": "disks"}}"#;

const FOREIGN: &str = r#"{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"},
  "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifests_are_checked_against_the_cluster() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let plane = ControlPlane::start(&binaries, Options { bare: true, ..Options::default() }).await?;
    let check = |args: &[&str]| stead(&[&["manifests", "--image=gluster:11.1", "--check"], args].concat(), &plane);
    let refused = |args: &[&str], expected: &str| -> Result<()> {
        let run = check(args)?;
        ensure!((run.code, run.out.as_str()) == (Some(1), ""), "{args:?}: {:?} {}", run.code, run.err);
        ensure!(run.err.contains(expected), "{args:?}: {}", run.err);
        Ok(())
    };
    refused(&[], "error: --storage-class: the cluster has no default StorageClass: name one")?;
    plane.kubectl_with(&["apply", "-f", "-"], CLASS).await?.ok()?;
    refused(
        &["--storage-class", "disk"],
        "error: --storage-class: the cluster has no StorageClass disk\nhint: it has: disks;",
    )?;
    refused(&["--storage-class=disks", "-n", "nowhere"], "error: --namespace: namespace nowhere does not exist")?;
    plane.kubectl_with(&["apply", "-f", "-"], FOREIGN).await?.ok()?;
    refused(&["--storage-class=disks", "--name=taken"], "Service taken exists and does not belong to pool taken")?;
    plane.kubectl(&["create", "configmap", "mine-pool"]).await?.ok()?;
    refused(&["--storage-class=disks", "--name=mine"], "ConfigMap mine-pool exists and does not belong to pool mine")?;
    plane.kubectl(&["create", "namespace", "strict"]).await?.ok()?;
    plane.kubectl(&["label", "ns", "strict", "pod-security.kubernetes.io/enforce=restricted"]).await?.ok()?;
    refused(&["--storage-class=disks", "-n", "strict"], "error: --namespace: strict admits only restricted pods")?;

    let fine = check(&["--storage-class=disks"])?;
    ensure!((fine.code, fine.err.as_str()) == (Some(0), ""), "{}", fine.err);
    plane.kubectl_with(&["apply", "-f", "-"], &fine.out).await?.ok()?;
    let again = check(&["--storage-class=disks", "--replicas=5"])?;
    ensure!(again.code == Some(0), "the pool itself may exist: {}", again.err);
    refused(&["--storage-class=disks", "--brick-size=20Gi"], "error: the API server rejects statefulset/glusterfs: ")?;

    // A record that still exists after its pool was deleted.
    plane.kubectl(&["delete", "statefulset", "glusterfs"]).await?.ok()?;
    plane.kubectl_with(&["apply", "-f", "-"], &record(&[0]).to_string()).await?.ok()?;
    let leftover = check(&["--storage-class=disks"])?;
    ensure!(leftover.code == Some(0) && leftover.err.contains("is the record of an earlier pool"), "{}", leftover.err);
    Ok(())
}

fn name<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("a valid name")
}

fn uuid(ordinal: u32) -> PeerId {
    name(&format!("{ordinal}0000000-0000-4000-8000-00000000000{}", ordinal + 1))
}

fn host(ordinal: u32) -> HostName {
    name(&format!("glusterfs-{ordinal}.glusterfs.default.svc.cluster.local"))
}

fn record(ordinals: &[u32]) -> Value {
    let member = |ordinal: u32| Member::joined(host(ordinal), uuid(ordinal), 100_000);
    let record = Record { members: ordinals.iter().map(|o| (*o, member(*o))).collect(), order: None, orders: 0 };
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": config_map::name("glusterfs"), "labels": config_map::labels("glusterfs")},
        "data": config_map::data(&record, 0),
    })
}

/// The report of an agent in a pool of three.
fn report(ordinal: u32) -> Report {
    let peer =
        |o: u32| Peer { uuid: Some(uuid(o)), hosts: vec![host(o)], state: PeerState::Befriended, connected: true };
    Report {
        ordinal,
        pod: "uid".to_owned(),
        address: name("10.0.0.1"),
        daemon: Daemon::Running,
        uuid: Some(uuid(ordinal)),
        operating_version: Some(100_000),
        peers: (0..3).filter(|o| *o != ordinal).map(peer).collect(),
        volumes: Vec::new(),
        heals: Some(0),
        stuck_bricks: Vec::new(),
        done: None,
        doing: None,
    }
}

/// Answers like an agent until the process ends; returns the port.
fn agent(pages: BTreeMap<&'static str, Value>) -> Result<u16> {
    let listener = TcpListener::bind("0.0.0.0:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap_or(0);
            let line = String::from_utf8_lossy(&request[..read]).into_owned();
            let path = line.split(' ').nth(1).unwrap_or_default();
            let (code, body) = match pages.get(path) {
                Some(page) => ("200 OK", page.to_string()),
                None => ("404 Not Found", "{}".to_owned()),
            };
            let head = format!("HTTP/1.1 {code}\r\ncontent-type: application/json\r\nconnection: close\r\n");
            let _ = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
        }
    });
    Ok(port)
}

/// Returns an address of this machine at which the API server may reach pods: it refuses loopback.
fn address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: this only consults the routing table.
    socket.connect("192.0.2.1:9").ok()?;
    socket.local_addr().ok().map(|a| a.ip()).filter(|ip| !ip.is_loopback())
}

async fn run_pod(plane: &ControlPlane, ordinal: u32, ip: IpAddr, port: u16) -> Result<()> {
    let name = format!("glusterfs-{ordinal}");
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": config_map::labels("glusterfs")},
        "spec": {
            "nodeName": format!("worker-{ordinal}"),
            "automountServiceAccountToken": false,
            "serviceAccountName": "glusterfs",
            "containers": [{"name": "gluster", "image": "x", "ports": [{"name": "agent", "containerPort": port}]}],
        },
    });
    plane.kubectl_with(&["apply", "-f", "-"], &pod.to_string()).await?.ok()?;
    let status = json!({"status": {
        "phase": "Running",
        "podIP": ip.to_string(),
        "podIPs": [{"ip": ip.to_string()}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let patch = ["patch", "pod", &name, "--subresource=status", "--type=merge", "-p", &status.to_string()];
    plane.kubectl(&patch).await?.ok().map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_of_a_pool() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let Some(ip) = address() else {
        skip("this machine has no address but loopback");
        return Ok(());
    };
    let plane = ControlPlane::start(&binaries, Options { bare: true, ..Options::default() }).await?;
    let status = |args: &[&str]| stead(&[&["status"], args].concat(), &plane);
    let none = status(&[])?;
    ensure!(
        none.code == Some(1) && none.err.starts_with("error: namespace default has no Gluster pool\n"),
        "{}",
        none.err
    );
    let none = status(&["glusterfs"])?;
    ensure!(none.err == "error: namespace default has no StatefulSet glusterfs\n", "{}", none.err);

    plane
        .kubectl_with(
            &["apply", "-f", "-"],
            &stead(&["manifests", "--image=gluster:11.1", "--storage-class=x"], &plane)?.out,
        )
        .await?
        .ok()?;
    plane.kubectl_with(&["apply", "-f", "-"], &record(&[0, 1, 2]).to_string()).await?.ok()?;
    for ordinal in 0..3 {
        let notes = json!([{"ordinal": 2, "reason": "Waiting", "text": "a word", "severity": "Normal"}]);
        let pages = BTreeMap::from([
            ("/state", serde_json::to_value(report(ordinal))?),
            ("/pool", json!({"notes": notes, "unready": null})),
        ]);
        run_pod(&plane, ordinal, ip, agent(pages)?).await?;
    }
    let healthy = status(&[])?;
    ensure!(healthy.code == Some(0), "{}{}", healthy.out, healthy.err);
    ensure!(
        healthy.out.starts_with("pool default/glusterfs is healthy\n  3 peers wanted, 3 recorded, 3 answering\n"),
        "{}",
        healthy.out
    );
    ensure!(healthy.out.contains("  glusterfs-1   ready   worker-1   running    10000000-"), "{}", healthy.out);

    lease_and_event(&plane).await?;
    // One pod is deleted, one disagrees, one sends an invalid report.
    plane.kubectl(&["delete", "pod", "glusterfs-0", "--force", "--grace-period=0"]).await?.ok()?;
    for (ordinal, state) in [(1, serde_json::to_value(report(1))?), (2, json!({"ordinal": "two"}))] {
        plane
            .kubectl(&["delete", "pod", &format!("glusterfs-{ordinal}"), "--force", "--grace-period=0"])
            .await?
            .ok()?;
        let notes =
            json!([{"ordinal": 0, "reason": "Waiting", "text": "glusterfs-0 is waited for", "severity": "Warning"}]);
        let pages = BTreeMap::from([("/state", state), ("/pool", json!({"notes": notes}))]);
        run_pod(&plane, ordinal, ip, agent(pages)?).await?;
    }
    let unhealthy = status(&["glusterfs", "-n", "default"])?;
    ensure!(unhealthy.code == Some(1), "{}", unhealthy.out);
    for line in [
        "  leader: glusterfs-1\n",
        "  glusterfs-0   no pod   -          no answer   00000000-",
        "  glusterfs-0 does not answer: it has no pod\n",
        "  glusterfs-2 does not answer: its answer cannot be read: ordinal: invalid type: string \"two\", expected u32",
        "  ! Waiting: glusterfs-0 is waited for\n",
        "  2026-01-02T03:04:05Z ! glusterfs-0 Rejected: it was rejected\n",
    ] {
        ensure!(unhealthy.out.contains(line), "{line:?} is missing: {}", unhealthy.out);
    }
    let json: Value = serde_json::from_str(&status(&["-o", "json"])?.out)?;
    ensure!(
        json["whole"] == false && json["peers"][1]["sees"]["glusterfs-0"]["words"] == "Peer in Cluster (Connected)"
    );
    Ok(())
}

async fn lease_and_event(plane: &ControlPlane) -> Result<()> {
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "glusterfs-pool"},
         "spec": {"holderIdentity": "glusterfs-1_7", "leaseDurationSeconds": 15, "renewTime": "2999-01-01T00:00:00.000000Z"}},
        {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "glusterfs-0.1", "namespace": "default"},
         "involvedObject": {"kind": "Pod", "namespace": "default", "name": "glusterfs-0"},
         "source": {"component": "stead-gluster-agent"}, "type": "Warning",
         "reason": "Rejected", "message": "it was rejected",
         "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z"},
        {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "glusterfs-0.2", "namespace": "default"},
         "involvedObject": {"kind": "Pod", "namespace": "default", "name": "glusterfs-0"},
         "source": {"component": "kubelet"}, "type": "Normal", "reason": "Pulled", "message": "not of the agents",
         "firstTimestamp": "2026-01-02T03:04:06Z", "lastTimestamp": "2026-01-02T03:04:06Z"},
    ]});
    plane.kubectl_with(&["create", "-f", "-"], &objects.to_string()).await?.ok().map(drop)
}
