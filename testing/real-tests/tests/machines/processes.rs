//! Pods as processes on the real control plane. Skipped if the control plane is not built, or pods cannot run as
//! processes.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};
use stead_machines::{Api, Image, Images};
use stead_testbed::{ClusterSpec, DriverSpec, NodeSpec, Options};

use crate::cluster::{Cluster, MINUTE, NS, binaries_or_skip};

/// A web server that serves a file of its volume at `/`, and is ready while the file `/data/ready` exists.
const WEB: &str = r#"
import http.server, os, signal, sys, time
class Web(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ok = self.path != '/ready' or os.path.exists('/data/ready')
        self.send_response(200 if ok else 503)
        self.end_headers()
        try: self.wfile.write(open('/data/text').read().encode())
        except OSError: pass
    def log_message(self, *args): pass
def leave(*args):
    print('leaving', flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
open('/data/starts', 'a').write('x')
print('here', flush=True)
http.server.ThreadingHTTPServer(('', 8080), Web).serve_forever()
"#;

async fn cluster() -> Option<Cluster> {
    let binaries = binaries_or_skip()?;
    let node = |name: &str| NodeSpec { name: name.to_owned(), ..NodeSpec::default() };
    let driver = DriverSpec { name: "disk.test".to_owned(), topology: None, attach: true, disk: false };
    let cluster = ClusterSpec { nodes: vec![node("n0"), node("n1")], drivers: vec![driver], ..ClusterSpec::default() };
    let images = Images::default().with("web", Image::default().entrypoint(["python3", "-c", WEB]).env("MADE", "here"));
    let cluster = Cluster::start(&binaries, Options { fast: true, ..Options::default() }, cluster, images).await;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "disk" },
        "provisioner": "disk.test", "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.apply(class).await;
    Some(cluster)
}

impl Cluster {
    /// Runs a shell command in a pod, and returns its output or its error.
    async fn sh(&self, pod: &str, line: &str) -> Result<String, String> {
        let output = self.machines.exec(NS, pod, "web", &["sh", "-c", line]).await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    async fn ready(&self, pod: &str) -> Pod {
        self.machines.wait_ready(NS, pod, MINUTE).await.unwrap()
    }

    /// Creates the headless Service and a StatefulSet of two web servers, each on its own node with its own volume.
    async fn web(&self) {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "web" },
            "spec": {
                "clusterIP": "None", "publishNotReadyAddresses": true, "selector": { "app": "web" },
                "ports": [{ "port": 8080 }],
            },
        }))
        .await;
        let probe =
            json!({ "httpGet": { "path": "/ready", "port": "http" }, "periodSeconds": 1, "failureThreshold": 1 });
        let env = json!([
            { "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
            { "name": "IP", "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
            { "name": "FULL", "value": "$(POD).web" },
        ]);
        let container = json!({
            "name": "web", "image": "web", "env": env, "ports": [{ "name": "http", "containerPort": 8080 }],
            "readinessProbe": probe, "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
        });
        let init = json!({
            "name": "first", "image": "web", "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            "command": ["sh", "-c", "test -e /data/text || hostname > /data/text; touch /data/ready"],
        });
        let claim = json!({
            "metadata": { "name": "data" },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "disk",
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        let spread = json!({ "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [
            { "labelSelector": { "matchLabels": { "app": "web" } }, "topologyKey": "kubernetes.io/hostname" },
        ] } });
        self.apply(json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "web" },
            "spec": {
                "serviceName": "web", "replicas": 2, "podManagementPolicy": "Parallel",
                "selector": { "matchLabels": { "app": "web" } },
                "template": {
                    "metadata": { "labels": { "app": "web" } },
                    "spec": { "affinity": spread, "initContainers": [init], "containers": [container] },
                },
                "volumeClaimTemplates": [claim],
            },
        }))
        .await;
        self.ready("web-0").await;
        self.ready("web-1").await;
        self.wait_until_resolved("web-0", "web-1").await;
        self.wait_until_resolved("web-1", "web-0").await;
    }

    /// Waits until a pod resolves another one's name: DNS follows changes of addresses with a delay.
    async fn wait_until_resolved(&self, from: &str, name: &str) {
        let ask = format!("getent ahostsv4 {name}.web | cut -d' ' -f1 | sort -u");
        let end = Instant::now() + MINUTE;
        loop {
            let (resolved, address) = (self.sh(from, &ask).await, self.machines.pod_address(NS, name).unwrap());
            if resolved == ok(&address) {
                return;
            }
            assert!(Instant::now() < end, "{name} is {resolved:?} for {from}, not {address}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn address(pod: &Pod) -> String {
    pod.status.as_ref().unwrap().pod_ip.clone().unwrap()
}

fn ok(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_with_names_volumes_and_the_api_server() {
    let Some(cluster) = cluster().await else { return };
    cluster.web().await;
    let web_0 = cluster.ready("web-0").await;
    // DNS names in both directions, and requests by name.
    let ask = "curl -sS -m 10 http://web-1.web:8080/";
    assert_eq!(cluster.sh("web-0", ask).await, ok("web-1"));
    let full = "web-1.web.default.svc.cluster.local";
    let other = cluster.machines.pod_address(NS, "web-1").unwrap();
    assert_eq!(cluster.sh("web-0", &format!("getent hosts {full} | cut -d' ' -f1")).await, ok(&other));
    let back = format!("python3 -c \"import socket; print(socket.gethostbyaddr('{other}')[0])\"");
    assert_eq!(cluster.sh("web-0", &back).await, ok(full));
    assert_eq!(cluster.sh("web-0", "getent ahostsv4 web | cut -d' ' -f1 | sort -u | wc -l").await, ok("2"));
    assert!(cluster.sh("web-0", "getent hosts web-2.web").await.is_err());
    assert_eq!(
        cluster.sh("web-0", "hostname; cat /etc/hostname; hostname -f").await,
        ok("web-0\nweb-0\nweb-0.web.default.svc.cluster.local")
    );
    // The environment.
    let env = "echo $POD $FULL $MADE; [ $IP = $(hostname -i) ] && echo same";
    assert_eq!(cluster.sh("web-0", env).await, ok("web-0 web-0.web here\nsame"));
    // The API server, by address and by name, with the pod's ServiceAccount.
    let api = "d=/var/run/secrets/kubernetes.io/serviceaccount; cat $d/namespace; \
               for h in $KUBERNETES_SERVICE_HOST kubernetes.default.svc; do \
               curl -sS -m 10 --cacert $d/ca.crt -H \"Authorization: Bearer $(cat $d/token)\" \
               https://$h:$KUBERNETES_SERVICE_PORT/api/v1/nodes | grep -o 'User ..system[^ ]*'; done";
    let user = "User \\\"system:serviceaccount:default:default\\\"";
    assert_eq!(cluster.sh("web-0", api).await, ok(&format!("default{user}\n{user}")));
    // Files of a container are not on the host, and are removed with it; a volume is kept.
    let mark = format!("stead-mark-{}", std::process::id());
    cluster.sh("web-0", &format!("touch /opt/{mark} /tmp/{mark}; echo kept > /data/text")).await.unwrap();
    assert!(!std::path::Path::new(&format!("/opt/{mark}")).exists());
    cluster.machines.kill_container(NS, "web-0", "web").await.unwrap();
    cluster.until("pod/web-0", "{.status.containerStatuses[0].restartCount}", "1").await;
    let again = cluster.ready("web-0").await;
    assert_eq!((again.uid(), address(&again)), (web_0.uid(), address(&web_0)));
    assert_eq!(cluster.get("pod/web-0", "{..lastState.terminated.exitCode}").await, "137");
    let left = format!("ls /opt/{mark} 2>/dev/null; cat /data/text /data/starts");
    assert_eq!(cluster.sh("web-0", &left).await, ok("kept\nxx"));
    // A recreated pod has another uid and address, and the same volume.
    cluster.plane.kubectl(&["delete", "pod", "web-0"]).await.unwrap().ok().unwrap();
    let third = cluster.ready("web-0").await;
    assert_ne!((third.uid(), address(&third)), (web_0.uid(), address(&web_0)));
    cluster.wait_until_resolved("web-1", "web-0").await;
    assert_eq!(cluster.sh("web-1", "curl -sS -m 10 http://web-0.web:8080/").await, ok("kept"));
    assert_eq!(cluster.machines.logs(NS, "web-0", "web").unwrap(), "here\nhere\nleaving\nhere\n");
    let volume = cluster.machines.volume_dir(NS, "data-web-0").unwrap();
    assert_eq!(std::fs::read_to_string(volume.join("starts")).unwrap(), "xxx");
    // kubectl logs and kubectl exec.
    let ran = cluster.plane.kubectl(&["logs", "web-0", "--tail=2"]).await.unwrap();
    assert_eq!(ran.stdout, "leaving\nhere\n", "{ran:?}");
    let ran =
        cluster.plane.kubectl(&["exec", "web-0", "--", "sh", "-c", "echo $POD; echo no >&2; exit 3"]).await.unwrap();
    assert_eq!((ran.stdout.as_str(), ran.code), ("web-0\n", Some(3)), "{ran:?}");
    let ran = cluster.plane.kubectl_with(&["exec", "-i", "web-0", "--", "tr", "a-z", "A-Z"], "hello\n").await.unwrap();
    assert_eq!((ran.stdout.as_str(), ran.code), ("HELLO\n", Some(0)), "{ran:?}");
    // A failing readiness probe, and an emptied volume.
    cluster.sh("web-0", "rm /data/ready").await.unwrap();
    cluster.until("pod/web-0", "{.status.conditions[?(@.type=='Ready')].status}", "False").await;
    cluster.machines.empty_volume(NS, "data-web-0").await.unwrap();
    assert_eq!(cluster.sh("web-0", "ls -A /data").await, ok(""));
    let usage = cluster.machines.usage(NS, "web-0", "web").await.unwrap();
    assert!(usage.rss > 1 << 20 && usage.cpu > Duration::from_millis(1), "{usage:?}");
    let stream = cluster.machines.connect(format!("{}:8080", address(&third)).parse().unwrap()).await;
    assert!(stream.is_ok(), "{stream:?}");
}

/// Returns how often the web server of a pod was started, from its volume.
fn starts(cluster: &Cluster, pod: &str) -> usize {
    let volume = cluster.machines.volume_dir(NS, &format!("data-{pod}")).unwrap();
    std::fs::read_to_string(volume.join("starts")).unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_lose_network_and_power_and_are_suspended() {
    let Some(cluster) = cluster().await else { return };
    let machines = &cluster.machines;
    cluster.web().await;
    let before = cluster.ready("web-1").await;
    let node = before.spec.as_ref().unwrap().node_name.clone().unwrap();
    // Requests that have to succeed get more time.
    let (ask, try_once) = ("curl -sS -m 10 http://web-1.web:8080/", "curl -sS -m 1 http://web-1.web:8080/");
    let api = "curl -ksS -m 10 -o /dev/null -w '%{http_code}' https://kubernetes.default.svc/version";
    let ready = "{.status.conditions[?(@.type=='Ready')].status}";
    let node_path = format!("node/{node}");

    // No network to other nodes, but the API server is reachable: only requests to the other pod fail.
    machines.cut(&[&node], Api::Reachable).await.unwrap();
    assert!(cluster.sh("web-0", try_once).await.is_err());
    assert_eq!(cluster.sh("web-1", ask).await, ok("web-1"));
    assert_eq!((cluster.sh("web-0", api).await, cluster.sh("web-1", api).await), (ok("200"), ok("200")));
    machines.rejoin_all().await.unwrap();
    assert_eq!(cluster.sh("web-0", ask).await, ok("web-1"));

    // Power off and on: the same pod is restarted with the same volume, a new boot id and a new address.
    let boot_id = cluster.get(&node_path, "{.status.nodeInfo.bootID}").await;
    machines.kill(&node).await.unwrap();
    assert!(cluster.sh("web-0", try_once).await.is_err());
    assert!(machines.exec(NS, "web-1", "web", &["true"]).await.is_err());
    machines.boot(&node).await.unwrap();
    cluster.until("pod/web-1", "{.status.containerStatuses[0].restartCount}", "1").await;
    let again = cluster.ready("web-1").await;
    assert_eq!(again.uid(), before.uid());
    assert_ne!(address(&again), address(&before));
    assert_ne!(cluster.get(&node_path, "{.status.nodeInfo.bootID}").await, boot_id);
    cluster.until("pod/web-1", "{.status.podIP}", &machines.pod_address(NS, "web-1").unwrap()).await;
    assert_eq!(starts(&cluster, "web-1"), 2);
    cluster.wait_until_resolved("web-0", "web-1").await;

    // Suspended: nothing answers, nothing exits; after the resume it continues.
    machines.suspend(&node).await.unwrap();
    assert!(cluster.sh("web-0", try_once).await.is_err());
    cluster.until(&node_path, ready, "Unknown").await;
    cluster.until("pod/web-1", ready, "False").await;
    machines.resume(&node).await.unwrap();
    cluster.until(&node_path, ready, "True").await;
    cluster.until("pod/web-1", ready, "True").await;
    assert_eq!(cluster.ready("web-1").await.uid(), before.uid());
    assert_eq!((cluster.sh("web-0", ask).await, starts(&cluster, "web-1")), (ok("web-1"), 2));

    // No network at all: the pod keeps running, unobserved.
    machines.cut(&[&node], Api::Unreachable).await.unwrap();
    assert!(cluster.sh("web-1", "curl -ksS -m 1 https://10.96.0.1/version").await.is_err());
    machines.kill_container(NS, "web-1", "web").await.unwrap();
    cluster.until(&node_path, ready, "Unknown").await;
    assert_eq!(starts(&cluster, "web-1"), 3);
    assert_eq!(cluster.get("pod/web-1", "{.status.containerStatuses[0].restartCount}").await, "1");
    machines.rejoin_all().await.unwrap();
    cluster.until(&node_path, ready, "True").await;
    cluster.until("pod/web-1", "{.status.containerStatuses[0].restartCount}", "2").await;
    cluster.until("pod/web-1", ready, "True").await;
    assert!(machines.suspend("no-such-node").await.is_err());
}

fn pod(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "labels": { "a": "b" } }, "spec": spec })
}

fn shell(line: &str) -> Value {
    json!({ "name": "web", "image": "any", "command": ["sh", "-c", line] })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_crash_are_probed_and_terminate() {
    let Some(cluster) = cluster().await else { return };
    let machines = &cluster.machines;
    let first = "{.status.containerStatuses[0]";
    // A container that crashes again and again, one with a failing liveness probe, and two that end.
    let applied = Instant::now();
    cluster.apply(pod("crash", json!({ "containers": [shell("echo once; exit 3")] }))).await;
    let mut sick = shell("touch /tmp/well; sleep 2; rm /tmp/well; exec sleep 1000");
    sick["livenessProbe"] =
        json!({ "exec": { "command": ["test", "-e", "/tmp/well"] }, "periodSeconds": 1, "failureThreshold": 2 });
    cluster.apply(pod("sick", json!({ "terminationGracePeriodSeconds": 1, "containers": [sick] }))).await;
    for (name, line) in [("good", "exit 0"), ("bad", "exit 7")] {
        cluster.apply(pod(name, json!({ "restartPolicy": "Never", "containers": [shell(line)] }))).await;
    }
    // Values from ConfigMap and Secret, files, the downward API, a host path, two containers in one network.
    cluster.plane.kubectl(&["create", "configmap", "conf", "--from-literal=k=v1"]).await.unwrap().ok().unwrap();
    cluster.plane.kubectl(&["create", "secret", "generic", "sec", "--from-literal=s=v2"]).await.unwrap().ok().unwrap();
    let mut full = shell("exec python3 -m http.server 9000");
    full["env"] = json!([
        { "name": "C", "valueFrom": { "configMapKeyRef": { "name": "conf", "key": "k" } } },
        { "name": "S", "valueFrom": { "secretKeyRef": { "name": "sec", "key": "s" } } },
        { "name": "L", "valueFrom": { "fieldRef": { "fieldPath": "metadata.labels['a']" } } },
        { "name": "N", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
    ]);
    full["workingDir"] = json!("/usr");
    full["startupProbe"] = json!({ "tcpSocket": { "port": 9000 }, "periodSeconds": 1, "failureThreshold": 20 });
    full["volumeMounts"] = json!([
        { "name": "conf", "mountPath": "/conf" }, { "name": "sec", "mountPath": "/sec", "readOnly": true },
        { "name": "down", "mountPath": "/down" }, { "name": "host", "mountPath": "/host", "subPath": "sub" },
        { "name": "empty", "mountPath": "/shared" },
    ]);
    let other = json!({
        "name": "other", "image": "any", "command": ["sh", "-c", "hostname > /shared/name; exec sleep 1000"],
        "volumeMounts": [{ "name": "empty", "mountPath": "/shared" }],
    });
    let volumes = json!([
        { "name": "conf", "configMap": { "name": "conf" } },
        { "name": "sec", "secret": { "secretName": "sec" } },
        { "name": "down", "downwardAPI": { "items": [{ "path": "uid", "fieldRef": { "fieldPath": "metadata.uid" } }] } },
        { "name": "host", "hostPath": { "path": "/var/own" } },
        { "name": "empty", "emptyDir": {} },
    ]);
    let spec = json!({ "nodeName": "n0", "containers": [full, other], "volumes": volumes });
    cluster.apply(pod("full", spec)).await;
    // A pod on its node's network.
    let spec = json!({ "hostNetwork": true, "nodeName": "n1", "containers": [shell("exec sleep 1000")] });
    cluster.apply(pod("host", spec)).await;
    // A preStop hook and a slow program; and one that ignores SIGTERM.
    let mut polite = shell("trap 'echo term; sleep 1; exit 5' TERM; while :; do sleep 0.1; done");
    polite["lifecycle"] =
        json!({ "preStop": { "exec": { "command": ["sh", "-c", "echo hook > /proc/1/fd/1; sleep 1"] } } });
    cluster.apply(pod("polite", json!({ "terminationGracePeriodSeconds": 20, "containers": [polite] }))).await;
    cluster
        .apply(pod("deaf", json!({ "terminationGracePeriodSeconds": 2, "containers": [shell("sleep 1000")] })))
        .await;

    cluster.until("pod/good", "{.status.phase} {..exitCode}", "Succeeded 0").await;
    cluster.until("pod/bad", "{.status.phase} {..exitCode}", "Failed 7").await;
    let uid = cluster.ready("full").await.uid().unwrap();
    let line = "echo $C $S $L $N $(pwd) $(cat /conf/k /sec/s /down/uid) $(cat /shared/name); touch /host/here; touch /sec/x 2>/dev/null || echo ro";
    // (A program that is run in a container starts in its root directory.)
    let expected = format!("v1 v2 b n0 / v1v2{uid} full\nro");
    assert_eq!(cluster.sh("full", line).await, ok(&expected));
    assert!(machines.folder().join("nodes/n0/host/var/own/sub/here").exists());
    let output = machines.exec(NS, "full", "other", &["curl", "-s", "-m", "10", "-I", "http://127.0.0.1:9000/"]).await;
    assert!(output.unwrap().status.success());
    let host = cluster.ready("host").await;
    assert_eq!(Some(address(&host)), host.status.as_ref().unwrap().host_ip);
    assert_eq!(cluster.sh("host", "hostname; ip -4 -o addr show bridge0 | grep -c 10.1.").await, ok("n1\n1"));

    cluster.ready("polite").await;
    cluster.ready("deaf").await;
    let begun = Instant::now();
    cluster.plane.kubectl(&["delete", "pod", "deaf", "polite", "--wait=false"]).await.unwrap().ok().unwrap();
    let gone = ["wait", "--for=delete", "pod/polite", "pod/deaf", "--timeout=30s"];
    cluster.plane.kubectl(&gone).await.unwrap().ok().unwrap();
    // Less than the whole grace period.
    assert!((2..20).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(machines.logs(NS, "polite", "web").unwrap(), "hook\nterm\n");

    cluster.until("pod/sick", &format!("{first}.lastState.terminated.exitCode}}"), "137").await;
    let restarts = cluster.get("pod/sick", &format!("{first}.restartCount}}")).await.parse::<u32>().unwrap();
    assert!(restarts >= 1, "{restarts}");
    cluster.until("pod/crash", &format!("{first}.state.waiting.reason}}"), "CrashLoopBackOff").await;
    let restarts = cluster.get("pod/crash", &format!("{first}.restartCount}}")).await.parse::<u32>().unwrap();
    // The first restart is immediate, the others after 1, 2, 4… seconds.
    let lived = applied.elapsed().as_secs();
    assert!(restarts >= 1 && u64::from(restarts) < 3 + lived.ilog2() as u64, "{restarts} in {lived} s");
    assert_eq!(cluster.get("pod/crash", &format!("{first}.lastState.terminated.exitCode}}")).await, "3");
    assert_eq!(cluster.get("pod/crash", "{.status.phase}").await, "Running");
}

/// The file in which the child process, which runs the same test, stores its paths.
const CHILD: &str = "STEAD_MACHINES_TRIAL";

/// Waits until the files and processes of a cluster on this machine are removed.
async fn wait_until_removed(group: &std::path::Path, folder: &std::path::Path) {
    let end = Instant::now() + MINUTE;
    while group.exists() || folder.exists() {
        assert!(Instant::now() < end, "{} or {} still exists", group.display(), folder.display());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(folder.to_str().unwrap()), "{mounts}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_after_a_drop_or_a_kill() {
    let Some(dropped) = cluster().await else { return };
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "left" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "disk",
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    dropped.apply(claim).await;
    let mut sleep = shell("exec sleep 1000 >/data/open");
    sleep["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "left" } }]);
    dropped.apply(pod("sleep", json!({ "containers": [sleep], "volumes": volumes }))).await;
    dropped.ready("sleep").await;
    let (group, folder) = (dropped.machines.control_group(), dropped.machines.folder());
    if let Some(child_file) = std::env::var_os(CHILD) {
        std::fs::write(child_file, format!("{}\n{}\n", group.display(), folder.display())).unwrap();
        return tokio::time::sleep(MINUTE).await;
    }
    assert!(group.exists() && folder.exists());
    drop(dropped.machines);
    assert!(!group.exists() && !folder.exists());

    let file = std::env::temp_dir().join(format!("stead-machines-child-{}", std::process::id()));
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::nothing_is_left_after_a_drop_or_a_kill"])
        .env(CHILD, &file)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + 5 * MINUTE;
    let text = loop {
        match std::fs::read_to_string(&file) {
            Ok(text) if text.lines().count() == 2 => break text,
            _ => assert!(Instant::now() < end, "the child process has not started"),
        }
        assert_eq!(child.try_wait().unwrap(), None, "the child process has ended");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    std::fs::remove_file(&file).unwrap();
    let mut paths = text.lines().map(std::path::PathBuf::from);
    let (group, folder) = (paths.next().unwrap(), paths.next().unwrap());
    assert!(group.exists() && folder.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until_removed(&group, &folder).await;
}
