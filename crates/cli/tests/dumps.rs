//! Dumps: what `stead dump` writes, what `--from` reads of other tools, and that answers do not depend on where they come from.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use stead_dump::{DEFAULT_MAX_SIZE, Redaction, read, redact};
use stead_model::Kind;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// An empty directory of a test.
fn directory(name: &str) -> PathBuf {
    let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("dumps-{name}"));
    let _ = fs::remove_dir_all(&at);
    fs::create_dir_all(&at).expect("a directory");
    at
}

struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn stead(args: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_stead")).args(args).current_dir(root()).output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The causes that triage finds in a dump, each with its objects.
fn causes(from: &str) -> Vec<String> {
    let run = stead(&["explain", "-A", "-o", "json", "--from", from]);
    let found: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{from}: {}", run.stderr));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |cause: &Value| {
        let objects: Vec<String> = cause["objects"].as_array().into_iter().flatten().map(text).collect();
        format!("{}: {}", text(&cause["cause"]), objects.join(" "))
    };
    found["causes"].as_array().into_iter().flatten().map(line).collect()
}

#[test]
fn dumps_of_other_tools_are_read() {
    let pending = "Unschedulable: pod/shop/web-1 statefulset/shop/web";
    let openstack = "Unschedulable: pod/openstack/glance-default-external-api-1 \
                     statefulset/openstack/glance-default-external-api";
    for (sample, pod, verdict, stuck) in [
        ("oc-adm-inspect", "web-1", "0 of 2 nodes can run this pod", pending),
        ("must-gather", "web-1", "0 of 2 nodes can run this pod", pending),
        // It has no StatefulSets.
        ("cluster-info-dump", "web-1", "0 of 2 nodes can run this pod", "Unschedulable: pod/shop/web-1"),
        ("cluster-info-dump.json", "web-1", "0 of 2 nodes can run this pod", "Unschedulable: pod/shop/web-1"),
        ("support-bundle", "web-1", "0 of 2 nodes can run this pod", pending),
        ("openstack-must-gather", "glance-default-external-api-1", "0 of 2 nodes can run this pod", openstack),
        (
            "openstack-must-gather-legacy",
            "glance-default-external-api-0",
            "CrashLoopBackOff on node worker-0, not Ready",
            "CrashLoop: pod/openstack/glance-default-external-api-0 statefulset/openstack/glance-default-external-api\n\
             ClaimUnbound: persistentvolumeclaim/openstack/glance-glance-default-external-api-1",
        ),
    ] {
        let from = format!("testdata/dumps/{sample}");
        let run = stead(&["explain", "pod", pod, "--from", &from]);
        assert_eq!(run.code, Some(0), "{sample}: {}", run.stderr);
        assert!(run.stdout.lines().next().is_some_and(|line| line.contains(verdict)), "{sample}: {}", run.stdout);
        assert_eq!(run.stderr.contains("oc describe"), sample.ends_with("legacy"), "{sample}: {}", run.stderr);
        assert!(!run.stderr.contains("skipped"), "{sample}: {}", run.stderr);
        assert_eq!(causes(&from).join("\n"), stuck, "{sample}");
    }
}

#[test]
fn a_pod_of_which_only_the_name_was_collected_is_reported() {
    let from = "testdata/dumps/openstack-must-gather-legacy";
    let run = stead(&["explain", "pod", "glance-default-external-api-1", "--from", from]);
    expect![[r#"
        warning: testdata/dumps/openstack-must-gather-legacy: 1 pod is text of `oc describe`, which has no affinity, spread constraints, times or UIDs. `stead dump` or `oc adm inspect` collects them
        warning: testdata/dumps/openstack-must-gather-legacy: only the name of pod openstack/glance-default-external-api-1 is there: it is Pending, its last event is "FailedScheduling: 0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.". `stead dump` or `oc adm inspect` collects it
        note: the dump does not tell the version of its control plane: Kubernetes 1.31 is assumed, the version of the newest kubelet (--kubernetes sets another one)
        error: pod glance-default-external-api-1 not found in the dump
    "#]]
    .assert_eq(&run.stderr);
    assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""));
}

#[test]
fn several_dumps_are_one_cluster_with_the_newest_objects() {
    let at = directory("several");
    let newer = fs::read_to_string(root().join("testdata/dumps/cluster-info-dump/shop/pods.json")).expect("the sample");
    // The other pods of the sample have lower versions.
    let newer =
        newer.replace("\"ssd\"", "\"ssd-old\"").replace("\"resourceVersion\": \"105\"", "\"resourceVersion\": \"205\"");
    fs::write(at.join("newer.json"), newer).expect("a file");
    let newer = at.join("newer.json").display().to_string();
    for from in [["testdata/dumps/oc-adm-inspect", &newer], [&newer, "testdata/dumps/oc-adm-inspect"]] {
        let run = stead(&["explain", "pod", "web-1", "--from", from[0], "--from", from[1]]);
        assert!(run.stdout.contains("1 of 2 nodes can run it now"), "{}{}", run.stdout, run.stderr);
    }
}

#[track_caller]
fn check_error(args: &[&str], code: i32, expected: Expect) {
    let run = stead(args);
    expected.assert_eq(&run.stderr.replace(env!("CARGO_TARGET_TMPDIR"), "TMP"));
    assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""));
}

#[test]
fn a_dump_is_written_once_and_completely() {
    let at = directory("written");
    let (file, name) = (at.join("dump.json"), at.join("dump.json").display().to_string());
    let run = stead(&["dump", "--from", "examples/dead-node", "-o", &name]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
    check_error(
        &["dump", "--from", "examples/dead-node", "-o", &name],
        1,
        expect![[r#"
            error: TMP/dumps-written/dump.json exists: choose another name, or replace it with --force
        "#]],
    );
    let forced = stead(&["dump", "--from", "examples/dead-node", "-o", &name, "--force"]);
    assert_eq!(forced.code, Some(0), "{}", forced.stderr);
    let zipped = at.join("dump.json.gz").display().to_string();
    assert_eq!(stead(&["dump", "--from", &name, "-o", &zipped]).code, Some(0));
    let names: Vec<_> = fs::read_dir(&at).expect("the directory").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");

    let text = fs::read_to_string(&file).expect("the dump");
    let without_end: Vec<&str> = text.lines().filter(|line| !line.contains("DumpEnd")).collect();
    fs::write(at.join("truncated.json"), without_end.join("\n")).expect("a file");
    fs::write(at.join("newer.json"), text.replace("\"format\":1", "\"format\":2")).expect("a file");
    fs::write(at.join("dump.tar.xz"), b"\xfd7zXZ\0\0").expect("a file");
    let explain = |name: &str, expected: Expect| {
        check_error(&["explain", "--from", &at.join(name).display().to_string()], 3, expected);
    };
    explain(
        "truncated.json",
        expect![[r#"
            error: TMP/dumps-written/truncated.json is incomplete: its last line is missing, so writing or copying it was interrupted
        "#]],
    );
    explain(
        "newer.json",
        expect![[r#"
            error: TMP/dumps-written/newer.json has format 2 of stead 0.1.0, and this version reads formats up to 1: update Stead
        "#]],
    );
    explain(
        "dump.tar.xz",
        expect![[r#"
            error: cannot read TMP/dumps-written/dump.tar.xz: failed to fill whole buffer
        "#]],
    );
}

/// All questions about the objects of a dump.
fn questions(objects: &[Value]) -> Vec<Vec<String>> {
    let mut out = vec![vec!["-A".to_owned()]];
    for object in objects {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let explained = [
            "pod",
            "node",
            "statefulset",
            "deployment",
            "persistentvolumeclaim",
            "topology",
            "glance",
            "openstackcontrolplane",
        ];
        if explained.contains(&kind.as_str()) {
            let namespace = text("namespace");
            let target = vec![format!("{kind}/{}", text("name"))];
            let namespaced = if namespace.is_empty() { Vec::new() } else { vec!["-n".to_owned(), namespace] };
            out.push([target, namespaced].concat());
        }
    }
    out
}

fn answer(question: &[String], from: &Path) -> Value {
    let from = from.display().to_string();
    let mut args: Vec<&str> = vec!["explain", "-o", "json", "--now", "2026-03-01T10:00:00Z", "--from", &from];
    args.splice(1..1, question.iter().map(String::as_str));
    let run = stead(&args);
    serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{args:?}: {}", run.stderr))
}

fn restored(value: &Value, redaction: &Redaction) -> Value {
    match value {
        Value::String(text) => redaction.restore(text).into(),
        Value::Array(items) => items.iter().map(|item| restored(item, redaction)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (redaction.restore(name), restored(value, redaction))).collect()
        }
        other => other.clone(),
    }
}

/// Redacted objects give the same answers apart from names.
fn check_redaction(name: &str, plain: Vec<Value>) {
    let at = directory(&format!("redacted-{name}"));
    let list = |items: &[Value]| json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string();
    let mut objects = plain.clone();
    let redaction = redact(&mut objects);
    fs::write(at.join("plain.json"), list(&plain)).expect("a file");
    fs::write(at.join("redacted.json"), list(&objects)).expect("a file");
    for question in questions(&plain) {
        let redacted: Vec<String> = question
            .iter()
            .map(|word| match word.split_once('/') {
                Some((kind, name)) => format!("{kind}/{}", redaction.name(name)),
                None if word.starts_with('-') => word.clone(),
                None => redaction.name(word),
            })
            .collect();
        let (expected, found) =
            (answer(&question, &at.join("plain.json")), answer(&redacted, &at.join("redacted.json")));
        let pretty = |value: &Value| serde_json::to_string_pretty(value).expect("JSON");
        assert_eq!(pretty(&restored(&found, &redaction)), pretty(&expected), "{name}: {question:?}");
    }
}

#[test]
fn redacted_examples_give_the_same_answers() {
    for example in ["glance-zones", "cinder-outage", "dead-node", "stuck-rollout"] {
        let dump = read(&[root().join("examples").join(example)], &|_, _| true, DEFAULT_MAX_SIZE).expect("the example");
        check_redaction(example, dump.items.iter().map(|item| item.value()).collect());
    }
}

/// Names as people choose them, some of which are words of Kubernetes.
const NAMES: [&str; 12] =
    ["acme", "zebra", "node", "pending", "api", "a1", "7up", "x-ray", "0day", "kube", "mail.eu", "Nodes"];

/// A cluster whose names depend on a seed.
fn generated(seed: usize) -> Vec<Value> {
    let pick = |i: usize| NAMES[(seed * 7 + i * 5) % NAMES.len()].to_lowercase();
    let label = |i: usize| NAMES[(seed * 3 + i * 7) % NAMES.len()];
    let nodes = (0..4).map(|i| {
        let name = format!("{}-{i}.{}.internal", pick(i), pick(9));
        json!({ "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": { "kubernetes.io/hostname": name, "acme.com/tier": label(i) } },
            "spec": { "taints": [{ "key": "acme.com/for", "value": label(i + 1), "effect": "NoSchedule" }] },
            "status": { "allocatable": { "cpu": "2", "memory": "4Gi", "pods": "10" },
                "conditions": [{ "type": "Ready", "status": "True", "lastHeartbeatTime": "2026-03-01T09:59:00Z" }] } })
    });
    let namespace = pick(2);
    let pods = (0..6).map(|i| {
        let set = format!("{}-{}", pick(i), pick(i + 3)).replace('.', "-");
        let owner = json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": "u", "controller": true }]);
        let message = format!("0/4 nodes are available: pod {set}-{i} waits for {}.", label(i));
        json!({ "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("{set}-{i}"), "namespace": namespace, "labels": { "app": label(i) },
                "creationTimestamp": "2026-03-01T08:00:00Z", "ownerReferences": owner },
            "spec": { "nodeSelector": { "acme.com/tier": label(i) },
                "containers": [{ "name": pick(i + 1).replace('.', "-"), "image": "mail.eu/app:2", "resources": { "requests": { "cpu": "1" } } }] },
            "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
                "reason": "Unschedulable", "message": message, "lastTransitionTime": "2026-03-01T08:00:00Z" }] } })
    });
    nodes.chain(pods).collect()
}

#[test]
fn redacted_generated_clusters_give_the_same_answers() {
    for seed in 0..6 {
        check_redaction(&format!("seed-{seed}"), generated(seed));
    }
}

#[test]
fn the_plan_of_a_recovery_from_a_dump() {
    let run = stead(&["recover", "node/worker-0", "--from", "examples/dead-node"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    expect![[r#"
        node worker-0: 2 pods and 2 volumes to release; Ready again in about 15s
          unreachable, last heartbeat 11m26s ago (2026-03-01T09:48:31Z), zone zone-a

        Pods to release, in this order
          - shop/cache-7d9c5b8f44-x2m8q of ReplicaSet/cache-7d9c5b8f44, Terminating
              volume pvc-5f3a1c00-0000-4000-8000-000000000114 is detached
              replacement pod on worker-1; Ready at 2026-03-01T10:00:11Z, in 13s
          - shop/db-0 of StatefulSet/db, Terminating
              volume pvc-5f3a1c00-0000-4000-8000-000000000111 is detached
              replacement pod on worker-2 or worker-1; Ready at 2026-03-01T10:00:13Z, in 15s

        Stead applies the taint node.kubernetes.io/out-of-service=nodeshutdown:NoExecute. Kubernetes then
        removes the pods (its pod garbage collector runs every 20 s), detaches the volumes and recreates
        the pods. Stead removes the taint when the node is back.
    "#]]
    .assert_eq(&run.stdout);
    expect![[r#"
        note: from a dump, these are not checked: whether the machine is off, whether the node has come back since, other recoveries that were started since, and your permissions; nothing was changed
    "#]].assert_eq(&run.stderr);
    let run = stead(&["recover", "node/worker-0", "--from", "examples/dead-node", "-o", "json"]);
    let plan: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(plan["pods"].as_array().map(Vec::len), Some(2), "{plan}");
    let alive = stead(&["recover", "node/worker-1", "--from", "examples/dead-node"]);
    assert_eq!(alive.code, Some(1), "{}", alive.stderr);
    let missing = stead(&["recover", "node/worker-0", "--from", "examples/dead-node/nodes.yaml"]);
    assert_eq!(missing.code, Some(3), "{}", missing.stderr);
    assert!(missing.stderr.contains("the dump has no pods, persistentvolumeclaims"), "{}", missing.stderr);
}

#[test]
fn examples_show_what_is_stuck() {
    let shown = |from: &str| stead(&["explain", "-A", "--from", from]).stdout;
    expect![[r#"
        8 objects are stuck for 1 cause, 1 of them critical
        critical NodeUnreachable (8 objects): node worker-0 is unreachable: no heartbeat for 11m27s
                 stead explain node/worker-0
    "#]]
    .assert_eq(&shown("examples/dead-node"));
    expect![[r#"
        2 objects are stuck for 1 cause, 0 of them critical
        warning  ImagePull (2 objects): an image of pod shop/api-6d5f9c7b8d-tk4jr cannot be pulled:
                 ImagePullBackOff: Back-off pulling image "registry.example.com/shop/api:2.4.O":
                 ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image
                 "registry.example.com/shop/api:2.4.O": failed to resolve image:
                 registry.example.com/shop/api:2.4.O: not found
                 kubectl -n shop describe pod api-6d5f9c7b8d-tk4jr
    "#]]
    .assert_eq(&shown("examples/stuck-rollout"));
    expect![[r#"
        deployment shop/api: 3 of 3 pods ready; the rollout is not complete: 1 of 3 pods are updated; stuck:
          ImagePull (pod/shop/api-6d5f9c7b8d-tk4jr)

        Causes
          - warning ImagePull: an image of pod shop/api-6d5f9c7b8d-tk4jr cannot be pulled: ImagePullBackOff:
            Back-off pulling image "registry.example.com/shop/api:2.4.O": ErrImagePull: rpc error: code =
            NotFound desc = failed to pull and unpack image "registry.example.com/shop/api:2.4.O": failed to
            resolve image: registry.example.com/shop/api:2.4.O: not found
            pods: api-6d5f9c7b8d-tk4jr
            kubectl -n shop describe pod api-6d5f9c7b8d-tk4jr

        Details
          - pods: 1 in zone-a, 2 in zone-b, 1 in zone-c
          - condition Progressing=False: ProgressDeadlineExceeded: ReplicaSet "api-6d5f9c7b8d" has timed out
            progressing.
    "#]]
    .assert_eq(&stead(&["explain", "deploy/api", "--from", "examples/stuck-rollout"]).stdout);
}

/// An API server that has these objects and answers lists only.
fn serve(objects: Vec<Value>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = answer_request(stream, &objects);
        }
    });
    address
}

fn answer_request(mut stream: TcpStream, objects: &[Value]) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let path = request.split(' ').nth(1).unwrap_or_default().split('?').next().unwrap_or_default().to_owned();
    let (status, body) = match path.as_str() {
        "/version" => ("200 OK", json!({ "major": "1", "minor": "33", "gitVersion": "v1.33.2" })),
        "/apis" => ("200 OK", json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [] })),
        path => match list(path, objects) {
            Some(list) => ("200 OK", list),
            None => {
                ("404 Not Found", json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" }))
            }
        },
    };
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close",
        body.len()
    );
    write!(stream, "{head}\r\n\r\n{body}")
}

fn list(path: &str, objects: &[Value]) -> Option<Value> {
    let words: Vec<&str> = path.trim_start_matches("/apis/").trim_start_matches("/api/").split('/').collect();
    let (version, rest) = if path.starts_with("/api/") {
        (words[0].to_owned(), &words[1..])
    } else {
        (words[..2].join("/"), &words[2..])
    };
    let (namespace, plural) = match rest {
        ["namespaces", namespace, plural] => (Some(*namespace), *plural),
        [plural] => (None, *plural),
        _ => return None,
    };
    let kind = stead_model::KINDS.iter().find(|kind| kind.api_version == version && kind.plural == plural)?;
    let is_listed = |object: &&Value| {
        Kind::find(object["apiVersion"].as_str().unwrap_or_default(), kind.kind) == Some(kind)
            && object["kind"] == kind.kind
            && namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace)
    };
    let bare = |object: &Value| {
        let fields =
            object.as_object().into_iter().flatten().filter(|(name, _)| *name != "apiVersion" && *name != "kind");
        fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Value>()
    };
    let items: Vec<Value> = objects.iter().filter(is_listed).map(bare).collect();
    let metadata = json!({ "resourceVersion": "999" });
    Some(json!({ "apiVersion": version, "kind": format!("{}List", kind.kind), "metadata": metadata, "items": items }))
}

#[test]
fn answers_from_a_dump_are_those_from_the_cluster() {
    let at = directory("live");
    let dump = read(&[root().join("examples/dead-node")], &|_, _| true, DEFAULT_MAX_SIZE).expect("the example");
    let objects: Vec<Value> = dump.items.iter().map(|item| item.value()).collect();
    let address = serve(objects.clone());
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{ "name": "c", "cluster": { "server": format!("http://{address}") } }],
        "users": [{ "name": "u", "user": {} }],
        "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u", "namespace": "shop" } }],
    });
    let (kubeconfig, file) =
        (at.join("kubeconfig").display().to_string(), at.join("dump.json.gz").display().to_string());
    fs::write(&kubeconfig, config.to_string()).expect("a file");
    let run = stead(&["dump", "--kubeconfig", &kubeconfig, "-o", &file]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), ""), "{}", run.stderr);
    assert!(run.stderr.contains("reading nodes (1 of "), "{}", run.stderr);
    let now = ["--now", "2026-03-01T10:00:00Z"];
    let mut compared: BTreeMap<&str, usize> = BTreeMap::new();
    for question in questions(&objects) {
        for format in ["table", "json"] {
            let question: Vec<&str> =
                ["explain"].into_iter().chain(question.iter().map(String::as_str)).chain(now).collect();
            let live = stead(&[&question[..], &["-o", format, "--kubeconfig", &kubeconfig]].concat());
            let dumped = stead(&[&question[..], &["-o", format, "--from", &file]].concat());
            let live_answer = live.stdout.replace(&format!(" --kubeconfig {kubeconfig}"), "");
            assert_eq!(
                (dumped.code, &dumped.stdout),
                (live.code, &live_answer),
                "{question:?}: {}{}",
                live.stderr,
                dumped.stderr
            );
            *compared.entry(format).or_default() += 1;
        }
    }
    assert!(compared.values().all(|count| *count > 10), "{compared:?}");
}
