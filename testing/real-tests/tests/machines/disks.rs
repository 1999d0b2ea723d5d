//! Disks that move between nodes on the real control plane, and the record of who could write to them. Skipped if the
//! control plane is not built, or pods cannot run as processes.

use std::time::{Duration, Instant};

use kube::ResourceExt;
use serde_json::{Value, json};
use stead_machines::{Api, End, Image, Images, Interval, Violation};
use stead_testbed::{ClusterSpec, DriverSpec, NodeSpec, Options};

use crate::cluster::{Cluster, MINUTE, NS, binaries_or_skip};

/// Writes to its volume continuously, through an open file and through SQLite, and prints when writes succeed and when
/// they fail.
const WRITER: &str = r#"
import errno, os, signal, sqlite3, sys, time
me = os.environ['UID']
leaving = []
signal.signal(signal.SIGTERM, lambda *args: leaving.append(1))
file = os.open('/data/marks', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
base = sqlite3.connect('/data/base', isolation_level=None)
base.execute('CREATE TABLE IF NOT EXISTS marks (pod TEXT)')
said = None
while True:
    try:
        os.write(file, b'x')
        os.fsync(file)
        now = 'writes'
    except OSError as e:
        now = 'file: ' + errno.errorcode[e.errno]
    try:
        base.execute('INSERT INTO marks VALUES (?)', [me])
    except sqlite3.Error as e:
        now += ', base: lost'
        try: os.listdir('/data')
        except OSError as e: now += ', list: ' + errno.errorcode[e.errno]
    if now != said:
        print(me, now, flush=True)
        said = now
    # Exit only after one more attempt.
    if leaving: sys.exit(0)
    time.sleep(0.05)
"#;

/// What the writer prints when its disk is detached.
const LOST: &str = "file: EIO, base: lost, list: EIO";

/// Two nodes of a cloud in one zone and one in another, and a StatefulSet with one writer.
async fn cluster() -> Option<Cluster> {
    let binaries = binaries_or_skip()?;
    let node = |(name, zone): (&str, &str)| NodeSpec {
        name: name.to_owned(),
        labels: [("zone".to_owned(), zone.to_owned())].into(),
        ..NodeSpec::default()
    };
    let driver =
        DriverSpec { name: "cinder.test".to_owned(), topology: Some("zone".to_owned()), attach: true, disk: true };
    let cluster = ClusterSpec {
        nodes: [("n0", "a"), ("n1", "a"), ("n2", "b")].map(node).to_vec(),
        drivers: vec![driver],
        cloud: Some("openstack".to_owned()),
        ..ClusterSpec::default()
    };
    let images = Images::default().with("writer", Image::default().entrypoint(["python3", "-c", WRITER]));
    let options = Options { fast: true, egress: true, ..Options::default() };
    let cluster = Cluster::start(&binaries, options, cluster, images).await;
    cluster
        .apply(json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "disk" },
            "provisioner": "cinder.test", "volumeBindingMode": "WaitForFirstConsumer",
        }))
        .await;
    cluster.kubectl("cordon n1 n2").await;
    cluster.apply(writers("w", 1)).await;
    cluster.machines.wait_ready(NS, "w-0", MINUTE).await.unwrap();
    cluster.wait_for_output(&cluster.uid().await, "writes").await;
    cluster.kubectl("cordon n0").await;
    cluster.kubectl("uncordon n1 n2").await;
    Some(cluster)
}

/// A StatefulSet of writers, which are created and deleted in parallel.
fn writers(name: &str, count: u32) -> Value {
    let container = json!({
        "name": "writer", "image": "writer", "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        "env": [{ "name": "UID", "valueFrom": { "fieldRef": { "fieldPath": "metadata.uid" } } }],
    });
    let claim = json!({
        "metadata": { "name": "data" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "disk",
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name },
        "spec": {
            "serviceName": name, "replicas": count, "podManagementPolicy": "Parallel",
            "selector": { "matchLabels": { "app": name } },
            "template": { "metadata": { "labels": { "app": name } }, "spec": { "containers": [container] } },
            "volumeClaimTemplates": [claim],
        },
    })
}

impl Cluster {
    fn has_printed(&self, uid: &str, text: &str) -> bool {
        let log = self.machines.logs(NS, "w-0", "writer").unwrap_or_default();
        log.lines().any(|line| line == format!("{uid} {text}"))
    }

    /// Waits until a pod's writer has printed this.
    async fn wait_for_output(&self, uid: &str, text: &str) {
        let end = Instant::now() + MINUTE;
        while !self.has_printed(uid, text) {
            assert!(
                Instant::now() < end,
                "{uid} has not printed {text}: {:?}",
                self.machines.logs(NS, "w-0", "writer")
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the uids of the pods that a node's kubelet reports as running.
    async fn running(&self, node: &str) -> Result<Vec<String>, String> {
        let path = format!("/api/v1/nodes/{node}/proxy/runningpods/");
        let ran = self.plane.kubectl(&["get", "--raw", &path]).await.unwrap();
        if ran.code != Some(0) {
            return Err(ran.stderr);
        }
        let list: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("PodList"), &json!("v1")), "{list}");
        let items = list["items"].as_array().unwrap();
        Ok(items.iter().map(|pod| pod["metadata"]["uid"].as_str().unwrap().to_owned()).collect())
    }

    fn volume(&self) -> String {
        let path = self.machines.volume_dir(NS, "data-w-0").unwrap();
        path.file_name().unwrap().to_str().unwrap().to_owned()
    }

    async fn uid(&self) -> String {
        self.get("pod/w-0", "{.metadata.uid}").await
    }

    /// Waits until another pod than this one is ready, and returns its uid.
    async fn successor(&self, of: &str) -> String {
        let end = Instant::now() + MINUTE * 2;
        loop {
            if let Ok(pod) = self.machines.wait_ready(NS, "w-0", MINUTE).await
                && pod.uid().as_deref() != Some(of)
            {
                return pod.uid().unwrap();
            }
            assert!(Instant::now() < end, "no other pod than {of}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Returns the only witness interval of a pod.
    fn interval(&self, uid: &str) -> Interval {
        let all = self.machines.witness();
        let mut of = all.iter().filter(|interval| interval.uid == uid);
        let interval = of.next().cloned();
        assert!(of.next().is_none(), "{all:?}");
        interval.unwrap_or_else(|| panic!("no interval of {uid}: {all:?}"))
    }

    async fn out_of_service(&self, node: &str) {
        self.until(&format!("node/{node}"), "{.status.conditions[?(@.type=='Ready')].status}", "Unknown").await;
        self.kubectl(&format!("taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_moves_with_its_pod_and_a_detach_may_fail() {
    let Some(cluster) = cluster().await else { return };
    let (first, volume, disks) = (cluster.uid().await, cluster.volume(), cluster.machines.disks());
    let in_use = format!("kubernetes.io/csi/cinder.test^{volume}");
    assert_eq!(cluster.get("node/n0", "{.status.volumesInUse[*]}").await, in_use);
    assert_eq!(cluster.running("n0").await, Ok(vec![first.clone()]));
    assert_eq!(disks.holder(&volume).as_deref(), Some("n0"));

    // The storage refuses to detach, with a reason.
    disks.fail_detach(&volume, Some("the hypervisor does not answer"));
    cluster.kubectl("delete pod w-0 --timeout=5m").await;
    cluster
        .until("volumeattachments", "{.items[*].status.detachError.message}", "the hypervisor does not answer")
        .await;
    cluster.until("node/n0", "{.status.volumesInUse}", "").await;
    assert_eq!(cluster.running("n0").await, Ok(vec![]));
    assert!(matches!(cluster.interval(&first).to, Some((_, End::Unmounted))), "{:?}", cluster.interval(&first));
    cluster.until("pod/w-0", "{.status.phase}", "Pending").await;
    assert_eq!(disks.holder(&volume).as_deref(), Some("n0"));
    let before = Instant::now();
    disks.set_delays(Duration::from_millis(700), Duration::from_millis(700));
    disks.fail_detach(&volume, None);
    let second = cluster.successor(&first).await;
    assert!(before.elapsed() > Duration::from_millis(1400), "{:?}", before.elapsed());
    // The new pod is in the same zone.
    assert_eq!(
        (cluster.get("pod/w-0", "{.spec.nodeName}").await, disks.holder(&volume).as_deref()),
        ("n1".to_owned(), Some("n1"))
    );
    cluster.wait_for_output(&second, "writes").await;
    let (old, new) = (cluster.interval(&first), cluster.interval(&second));
    assert!(
        old.writes > 0 && new.writes > 0 && old.last_write.unwrap().monotonic < new.from.monotonic,
        "{old:?} {new:?}"
    );
    assert_eq!(cluster.machines.violations(), []);
    // The rows of both pods are there.
    let ask = "import sqlite3; print(*[row[0] for row in sqlite3.connect('/data/base').execute('SELECT DISTINCT pod FROM marks')])";
    let said = cluster.machines.exec(NS, "w-0", "writer", &["python3", "-c", ask]).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout).trim(), format!("{first} {second}"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disks_move_between_many_pods() {
    let Some(cluster) = cluster().await else { return };
    // On either node: a disk that is still attached, or attached again, is not detached from a new pod.
    cluster.apply(writers("many", 5)).await;
    for round in 0..8 {
        for index in 0..5 {
            cluster.machines.wait_ready(NS, &format!("many-{index}"), MINUTE).await.unwrap();
        }
        assert_eq!(cluster.machines.violations(), [], "round {round}");
        cluster.kubectl("delete pods -l app=many --timeout=5m").await;
    }
    assert_eq!(cluster.machines.violations(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_process_cannot_write_after_its_disk_was_detached() {
    let Some(cluster) = cluster().await else { return };
    let first = cluster.uid().await;
    cluster.machines.suspend("n0").await.unwrap();
    let held = cluster.interval(&first);
    assert!(held.to.is_none(), "a frozen process can write when it is resumed: {held:?}");
    assert!(cluster.running("n0").await.is_err());
    cluster.out_of_service("n0").await;
    let second = cluster.successor(&first).await;
    cluster.wait_for_output(&second, "writes").await;
    let (old, new) = (cluster.interval(&first), cluster.interval(&second));
    assert!(
        matches!(old.to, Some((end, End::Detached { running: false })) if end.monotonic < new.from.monotonic),
        "{old:?}"
    );
    assert_eq!((new.node.as_str(), cluster.machines.violations()), ("n1", vec![]));
    // It continues with its files open.
    assert!(!cluster.has_printed(&first, LOST));
    cluster.machines.resume("n0").await.unwrap();
    cluster.wait_for_output(&first, LOST).await;
    assert_eq!(cluster.interval(&first).writes, old.writes);
    // Its kubelet stops it, because its object is deleted.
    let end = Instant::now() + MINUTE;
    while cluster.running("n0").await != Ok(vec![]) {
        assert!(Instant::now() < end, "{:?}", cluster.running("n0").await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    cluster.until("node/n0", "{.status.volumesInUse}", "").await;
    assert_eq!(cluster.running("n1").await, Ok(vec![second]));
    assert_eq!(cluster.machines.violations(), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn violations_are_detected() {
    let Some(cluster) = cluster().await else { return };
    let (first, volume) = (cluster.uid().await, cluster.volume());
    // The machine only has no network, a user taints the node out of service, and the storage cannot revoke access.
    cluster.machines.cut(&["n0"], Api::Unreachable).await.unwrap();
    cluster.machines.disks().ignore_detach(true);
    cluster.out_of_service("n0").await;
    let second = cluster.successor(&first).await;
    let violations = cluster.machines.violations();
    let [Violation::TwoWriters(two)] = &violations[..] else { panic!("{violations:?}") };
    assert_eq!((two[0].uid.as_str(), two[1].uid.as_str()), (first.as_str(), second.as_str()));
    let writes = |uid: &str| cluster.interval(uid).writes;
    let (was, end) = ((writes(&first), writes(&second)), Instant::now() + MINUTE);
    while writes(&first) == was.0 || writes(&second) == was.1 {
        assert!(Instant::now() < end, "both write: {was:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A disk is removed by hand from a running machine.
    cluster.machines.disks().ignore_detach(false);
    assert!(cluster.machines.disks().remove(&volume, "n1"));
    let early = |v: &Violation| matches!(v, Violation::EarlyDetach(i) if i.uid == second);
    assert!(cluster.machines.violations().iter().any(early), "{:?}", cluster.machines.violations());
    cluster.wait_for_output(&second, LOST).await;
    assert!(!cluster.has_printed(&first, LOST));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cloud_shuts_down_and_deletes_machines() {
    let Some(cluster) = cluster().await else { return };
    let machines = &cluster.machines;
    let first = cluster.uid().await;
    let shutdown = "{.spec.taints[?(@.key=='node.cloudprovider.kubernetes.io/shutdown')].effect}";
    assert_eq!(cluster.get("node/n0", "{.spec.providerID}").await, "openstack:///00000001-0000-4000-8000-000000000000");
    let boot_id = cluster.get("node/n0", "{.status.nodeInfo.bootID}").await;

    // Power off and on: the same pod is restarted.
    machines.kill("n0").await.unwrap();
    assert!(matches!(cluster.interval(&first).to, Some((_, End::Died))), "{:?}", cluster.interval(&first));
    cluster.until("node/n0", shutdown, "NoSchedule").await;
    machines.boot("n0").await.unwrap();
    cluster.until("node/n0", shutdown, "").await;
    cluster.until("pod/w-0", "{.status.containerStatuses[0].restartCount}", "1").await;
    let again = cluster.get("node/n0", "{.status.nodeInfo.bootID}").await;
    assert_ne!(again, boot_id);
    assert_eq!(cluster.uid().await, first);

    // The machine is deleted: the Node and its objects are removed; the pod moves when its volume is free.
    machines.delete("n0").await.unwrap();
    cluster.until("nodes", "{.items[*].metadata.name}", "n1 n2").await;
    cluster.until("csinodes", "{.items[*].metadata.name}", "n1 n2").await;
    cluster.kubectl("delete pod w-0 --force --grace-period=0").await;
    let second = cluster.successor(&first).await;
    assert_eq!(cluster.interval(&second).node, "n1");
    assert_eq!(machines.violations(), []);
    machines.boot("n0").await.unwrap();
    machines.ready().await.unwrap();
    cluster.until("csinodes", "{.items[*].metadata.name}", "n0 n1 n2").await;
    assert_ne!(cluster.get("node/n0", "{.status.nodeInfo.bootID}").await, again);
    assert_eq!((cluster.running("n0").await, cluster.running("n1").await), (Ok(vec![]), Ok(vec![second])));
}
