//! The program as people and scripts use it: what it prints on which stream, and its exit codes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use expect_test::{Expect, expect, expect_file};
use serde_json::Value;

/// The result of a run.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn stead(args: &[&str], input: &str) -> Run {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stead"))
        .args(args)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("an input");
    let output = std::thread::scope(|scope| {
        // In a thread, because both pipes can be full. The program may end before it has read everything.
        scope.spawn(move || stdin.write_all(input.as_bytes()));
        child.wait_with_output().expect("the program ends")
    });
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn check(args: &[&str], input: &str, code: i32, stdout: &Expect, stderr: &Expect) {
    let run = stead(args, input);
    stdout.assert_eq(&run.stdout);
    stderr.assert_eq(&run.stderr);
    assert_eq!(run.code, Some(code), "{args:?}");
}

const SET: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: db
spec:
  selector: {matchLabels: {app: db}}
  template:
    metadata:
      labels: {app: db}
    spec:
      nodeSelector: {zone: zoneA}
      containers:
      - name: db
        image: db
        resources: {requests: {cpu: 1, memory: 1Gi}}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec:
      accessModes: [ReadWriteOnce]
      storageClassName: CLASS
      resources: {requests: {storage: 1Gi}}
"#;

#[test]
fn place_prints_a_table_for_the_first_pod_of_a_workload() {
    check(
        &["place", "-f", "-", "-n", "openstack", "--from", "examples/glance-zones"],
        &SET.replace("CLASS", "lvms-local-storage"),
        0,
        &expect![[r#"
            pod openstack/db-0: kube-scheduler would choose worker-0

            NODE       VERDICT   SCORE   REASONS
            worker-0   best      661
            master-0   fits      660
            master-1   no        -       node(s) didn't match Pod's node affinity/selector
            master-2   no        -       node(s) didn't match Pod's node affinity/selector
            worker-1   no        -       node(s) didn't match Pod's node affinity/selector
            worker-2   no        -       node(s) didn't match Pod's node affinity/selector
            worker-3   no        -       node(s) didn't match Pod's node affinity/selector
        "#]],
        &expect![[r#""#]],
    );
}

#[test]
fn place_exits_with_1_if_no_node_can_run_the_pod() {
    check(
        &["place", "-f", "-", "-n", "openstack", "--from", "examples/glance-zones", "-o", "wide"],
        &SET.replace("zoneA", "zoneX").replace("CLASS", "lvms-local-storage"),
        1,
        &expect![[r#"
            pod openstack/db-0: 0 of 7 nodes can run it

            kube-scheduler says
              0/7 nodes are available: 7 node(s) didn't match Pod's node affinity/selector. no new claims to
              deallocate, preemption: 0/7 nodes are available: 7 Preemption is not helpful for scheduling.

            NODE       VERDICT   SCORE   REASONS
            master-0   no        -       node(s) didn't match Pod's node affinity/selector (preemption cannot help)
            master-1   no        -       node(s) didn't match Pod's node affinity/selector (preemption cannot help)
            master-2   no        -       node(s) didn't match Pod's node affinity/selector (preemption cannot help)
            worker-0   no        -       node(s) didn't match Pod's node affinity/selector (preemption cannot help)
            worker-1   no        -       node(s) didn't match Pod's node affinity/selector (preemption cannot help)
            worker-2   no        -       node(s) didn't match Pod's node affinity/selector (preemption cannot help)
            worker-3   no        -       node(s) didn't match Pod's node affinity/selector (preemption cannot help)
        "#]],
        &expect![[r#""#]],
    );
}

#[test]
fn place_prints_the_same_as_json_and_yaml() {
    let args = ["place", "-f", "-", "-n", "openstack", "--from", "examples/glance-zones", "-o"];
    let set = SET.replace("CLASS", "lvms-local-storage");
    let json = stead(&[&args[..], &["json"]].concat(), &set);
    let yaml = stead(&[&args[..], &["yaml"]].concat(), &set);
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
    let yaml: Value = serde_saphyr::from_str(&yaml.stdout).expect("YAML");
    assert_eq!(json, yaml);
    assert!(json["best"].is_array() && json["scores"].is_object(), "{json}");
}

#[test]
fn errors_are_one_line() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, ports: [{hostPort: x}]}]}";
    check(
        &["place", "-f", "-", "--from", "examples/glance-zones"],
        pod,
        1,
        &expect![""],
        &expect![[r#"
            error: pod default/p: spec.containers[0].ports[0].hostPort: invalid type: string "x", expected i32
        "#]],
    );
    check(
        &["place", "-f", "-", "--from", "examples/glance-zones"],
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}",
        1,
        &expect![""],
        &expect![[r#"
            error: no pod to place in the file: it needs one of Pod, StatefulSet, Deployment, ReplicaSet, Job
        "#]],
    );
    check(
        &["place", "-f", "nosuch.yaml", "--from", "examples/glance-zones"],
        "",
        1,
        &expect![""],
        &expect![[r#"
            error: cannot read nosuch.yaml: No such file or directory (os error 2)
        "#]],
    );
    check(
        &["explain", "volume/v", "--from", "examples/glance-zones"],
        "",
        2,
        &expect![""],
        &expect![[r#"
        error: cannot explain "volume": not a kind that can be explained
        hint: use KIND NAME or KIND/NAME; kinds: pod, node, sts, deploy, ds, job, pvc, pv, pdb, ns, topology, glance, glanceapi, oscp
    "#]],
    );
    check(
        &["explain", "node/worker-9", "--from", "examples/glance-zones"],
        "",
        1,
        &expect![""],
        &expect![[r#"
        error: node worker-9 not found in the dump
    "#]],
    );
}

/// A dump that is larger than allowed is refused, and the flag that raises the limit is named.
#[test]
fn max_dump_size() {
    let dump = ["explain", "node/worker-9", "--from", "examples/glance-zones/storage.yaml", "--max-dump-size"];
    check(
        &[&dump[..], &["1Ki"]].concat(),
        "",
        3,
        &expect![""],
        &expect![[r#"
            error: the dump is larger than 1024 bytes when decompressed (reached in examples/glance-zones/storage.yaml)
            hint: raise the limit with --max-dump-size, or dump fewer kinds
        "#]],
    );
    for size in ["0", "-1Gi", "much"] {
        assert_eq!(stead(&[&dump[..], &[size]].concat(), "").code, Some(2), "{size}");
    }
}

/// The error names the cluster, and a hint says what to check.
#[test]
fn a_cluster_that_cannot_be_reached() {
    let file = kubeconfig("unreachable", "http://127.0.0.1:1");
    let file = file.as_str();
    check(
        &["explain", "pod/p", "--kubeconfig", file],
        "",
        3,
        &expect![""],
        &expect![[r#"
            error: cannot list nodes: Connection refused (os error 111) (server http://127.0.0.1:1/, context here)
            hint: check whether `kubectl get nodes` works with the same context; --from reads a dump
        "#]],
    );
    check(
        &["explain", "glance/g", "--kubeconfig", file, "--context", "there"],
        "",
        3,
        &expect![""],
        &expect![[r#"
            error: the kubeconfig has no context there
            hint: choose one with --context: here
        "#]],
    );
    check(
        &["place", "-f", "-", "--kubeconfig", "nosuch"],
        "",
        3,
        &expect![""],
        &expect![[r#"
            error: cannot read kubeconfig nosuch: No such file or directory (os error 2)
        "#]],
    );
}

/// A kubeconfig for a server, in a file of this name.
fn kubeconfig(name: &str, server: &str) -> String {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let config = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: here, context: {{cluster: c, user: u}}}}]\n\
         current-context: here\n"
    );
    std::fs::write(&file, config).expect("a file");
    file.to_str().expect("UTF-8").to_owned()
}

/// The server is told whom to act as, and what it does not allow is named.
#[test]
fn impersonation_and_missing_permissions() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let file = kubeconfig("impersonation", &format!("http://{}", listener.local_addr().expect("an address")));
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).map(|l| l.to_lowercase()).collect();
            seen.lock().expect("no panic before").push(head);
            let body = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no"}"#;
            let length = body.len();
            let _ = write!(stream, "HTTP/1.1 403 X\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        }
    });
    let run =
        stead(&["explain", "pod/p", "--kubeconfig", &file, "--as", "bob", "--as-group", "a", "--as-group", "b"], "");
    assert_eq!(run.code, Some(3));
    assert!(run.stderr.contains("list nodes"), "{}", run.stderr);
    let heads = heads.lock().expect("no panic before");
    assert!(!heads.is_empty());
    for head in heads.iter() {
        for header in ["impersonate-user: bob", "impersonate-group: a", "impersonate-group: b"] {
            assert!(head.iter().any(|line| line == header), "{head:?}");
        }
    }
}

#[test]
fn explain_topologies_and_glances_from_a_dump() {
    for (target, code, says) in [
        ("topology/glance-default-spread-pods", 0, "used by 2 GlanceAPIs with 6 pods: 4 ready, 2 that no"),
        ("topo/default-sample", 0, "NoNodeHasKey"),
        ("glances/glance", 0, "13 of 15 pods are ready; no node can run 2 pods"),
        ("glanceapi/glance-azone-edge", 0, "healthy: 3 of 3 pods are ready"),
        ("topology/nosuch", 1, ""),
    ] {
        let run = stead(&["explain", target, "--from", "examples/glance-zones"], "");
        assert_eq!(run.code, Some(code), "{target}: {}", run.stderr);
        assert!(run.stdout.contains(says), "{target}: {}", run.stdout);
        let args = ["explain", target, "--from", "examples/glance-zones", "-o"];
        let json = stead(&[&args[..], &["json"]].concat(), "");
        let yaml = stead(&[&args[..], &["yaml"]].concat(), "");
        if code == 0 {
            let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
            let yaml: Value = serde_saphyr::from_str(&yaml.stdout).expect("YAML");
            assert_eq!(json, yaml, "{target}");
        }
    }
}

/// The first line of the answer about each kind, as kubectl would take the arguments.
#[test]
fn objects_are_named_as_for_kubectl() {
    let from = ["--from", "examples/glance-zones"];
    for (arguments, code, first_lines) in [
        (
            &["pod", "glance-default-external-api-2"][..],
            0,
            &["pod openstack/glance-default-external-api-2: Pending"][..],
        ),
        (&["sts/glance-azone-edge-api"], 0, &["statefulset openstack/glance-azone-edge-api: 3 of 3 pods ready"]),
        (&["no", "worker-0", "worker-1"], 0, &["node worker-0: ", "node worker-1: "]),
        (&["pods", "-l", "nosuch=label", "-A"], 1, &[]),
        (&["pods", "-l", "nosuch in"], 2, &[]),
        (&["pod", "x", "-l", "a=b"], 2, &[]),
        (&["pod", "nosuch"], 1, &[]),
        (&["worker-0"], 2, &[]),
    ] {
        let run = stead(&[&["explain"], arguments, &from].concat(), "");
        assert_eq!(run.code, Some(code), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stderr.is_empty(), code == 0, "{arguments:?}: {}", run.stderr);
        for first in first_lines {
            assert!(run.stdout.lines().any(|line| line.starts_with(first)), "{arguments:?}: {}", run.stdout);
        }
    }
    let run = stead(&[&["explain", "pods", "-A", "-o", "json"][..], &from].concat(), "");
    let list: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert!(list.as_array().is_some_and(|list| list.len() > 10 && list.iter().all(|item| item["pod"].is_string())));
}

/// Where there is only oc, commands are written for oc.
#[test]
fn commands_are_for_the_client_on_the_path() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("only-oc");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("oc"), "").expect("a file");
    let target = "pod/glance-default-external-api-2";
    for (path, says) in
        [(folder.as_path(), "  oc label node worker-3"), (Path::new(""), "  kubectl label node worker-3")]
    {
        let output = Command::new(env!("CARGO_BIN_EXE_stead"))
            .args(["explain", target, "--from", "examples/glance-zones"])
            .current_dir(root())
            .env("PATH", path)
            .output()
            .expect("the program runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(says), "{path:?}: {text}");
    }
}

#[test]
fn malformed_workloads_are_named_with_the_field() {
    let pod = |spec: &str| format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {spec}\n");
    let set = |spec: &str| format!("apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {{name: p}}\nspec: {spec}\n");
    let template = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c}]}}";
    for (file, field) in [
        (pod("hello"), "spec"),
        (pod("{containers: [{name: c}], tolerations: {a: b}}"), "spec.tolerations"),
        (pod("{containers: [{name: c}], affinity: {podAffinity: x}}"), "spec.affinity.podAffinity"),
        (
            pod("{containers: [{name: c}], volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: x}}}]}"),
            "spec.volumes[0].ephemeral.volumeClaimTemplate.spec",
        ),
        (set("{template: {metadata: x, spec: {containers: []}}}"), "spec.template.metadata"),
        (set(&format!("{{template: {template}, volumeClaimTemplates: [x]}}")), "spec.volumeClaimTemplates[0]"),
        (set(&format!("{{template: {template}, selector: x}}")), "spec.selector"),
    ] {
        let run = stead(&["place", "-f", "-", "--from", "examples/glance-zones"], &file);
        assert_eq!((run.code, run.stdout.as_str()), (Some(1), ""), "{file}: {}", run.stderr);
        assert!(run.stderr.contains(&format!(" default/p: {field}")), "{file}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{file}: {}", run.stderr);
    }
}

/// The StatefulSet controller uses a claim that exists. This one is bound to a volume on worker-3.
#[test]
fn place_uses_the_existing_claim_of_a_stateful_set() {
    let set = SET
        .replace("name: db\nspec:", "name: glance-default-external-api\nspec:\n  ordinals: {start: 2}")
        .replace("nodeSelector: {zone: zoneA}", "nodeSelector: {}")
        .replace("metadata: {name: data}", "metadata: {name: glance}")
        .replace("CLASS", "lvms-local-storage");
    let run = stead(&["place", "-f", "-", "-n", "openstack", "--from", "examples/glance-zones"], &set);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let first = run.stdout.lines().next();
    assert_eq!(
        first,
        Some("pod openstack/glance-default-external-api-2: kube-scheduler would choose worker-3"),
        "{}",
        run.stdout
    );
}

#[test]
fn command_line_errors_exit_with_2() {
    for args in [
        &["fly"][..],
        &["place", "-f", "pod.yaml", "--from", "x", "--context", "y"],
        &["explain", "pod/p", "--from", "x", "--kubeconfig", "y"],
        &["place", "--batch", "x", "cases.jsonl"],
        &["place", "-o", "tree", "-f", "x", "--from", "y"],
        &["explain", "pod/p", "--as-group", "admins"],
        &["explain", "pod/p", "--request-timeout", "-1s"],
        &[],
    ] {
        let run = stead(args, "");
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{args:?}");
    }
}

#[test]
fn malformed_cases_get_an_error_as_answer() {
    let good = r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c"}]}}"#;
    let cases = [
        "not json".to_owned(),
        format!(r#"{{"id":"given","given":{{"nodes":null,"pod":{good}}}}}"#),
        format!(r#"{{"id":"flat","nodes":[],"pod":{good}}}"#),
        String::new(),
        r#"{"id":"no pod","given":{}}"#.to_owned(),
        format!(
            r#"{{"id":"quantity","nodes":[{{"metadata":{{"name":"n"}},"status":{{"allocatable":{{"cpu":"x"}}}}}}],"pod":{good}}}"#
        ),
        format!(
            r#"{{"id":"type","pods":[{{"metadata":{{"name":"q"}},"spec":{{"containers":[{{"name":"c","ports":[{{"containerPort":"80"}}]}}]}}}}],"pod":{good}}}"#
        ),
        r#"{"id":"operator","pod":{"metadata":{"name":"p"},"spec":{"containers":[],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Near"}]}]}}}}}}"#.to_owned(),
    ];
    check(
        &["place"],
        &cases.join("\n"),
        1,
        &expect![[r#"
        {"id":null,"error":"line 1: not a JSON object: expected ident at line 1 column 2"}
        {"id":"given","feasible":null,"message":"no nodes available to schedule pods"}
        {"id":"flat","feasible":null,"message":"no nodes available to schedule pods"}
        {"id":"no pod","error":"case: pod: missing"}
        {"id":"quantity","error":"node n: status.allocatable[cpu]: \"x\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"}
        {"id":"type","error":"pod default/q: spec.containers[0].ports[0].containerPort: invalid type: string \"80\", expected i32"}
        {"id":"operator","error":"pod default/p: spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value: \"Near\": not a valid selector operator"}
    "#]],
        &expect![[r#"
        error: 5 of 7 cases could not be answered: see `error` in their answers
    "#]],
    );
}

#[test]
fn each_case_is_answered_before_the_next_is_read() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stead"))
        .arg("place")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut input = child.stdin.take().expect("an input");
    let mut output = BufReader::new(child.stdout.take().expect("an output"));
    for id in 0..3 {
        writeln!(input, r#"{{"id":{id},"pod":{{"metadata":{{"name":"p"}}}}}}"#).expect("it reads");
        let mut line = String::new();
        output.read_line(&mut line).expect("it answers before the next case");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["id"], id);
    }
    drop(input);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn place_repeats_recorded_verdicts() {
    let file = std::fs::File::open(root().join("testdata/scheduler/cases.jsonl.gz")).expect("the recording");
    let mut lines = BufReader::new(flate2::read::GzDecoder::new(file)).lines().map(|l| l.expect("a line"));
    let cases: Vec<String> = lines.by_ref().take(200).collect();
    let run = stead(&["place"], &cases.join("\n"));
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    for (case, answer) in cases.iter().zip(run.stdout.lines()) {
        let (case, answer): (Value, Value) =
            (serde_json::from_str(case).expect("a case"), serde_json::from_str(answer).expect("an answer"));
        let mut want = case["want"].clone();
        want["id"] = case["id"].clone();
        if let (Value::Object(want), Some(nominated)) = (&mut want, answer.get("nominated")) {
            assert!(want["nominees"].as_array().is_some_and(|n| n.contains(nominated)), "{}", case["id"]);
            want.insert("nominated".into(), nominated.clone());
        }
        assert_eq!(answer, want, "{}", case["id"]);
    }
    assert_eq!(run.stdout.lines().count(), cases.len());
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let case = r#"{"id":"x","pod":{"metadata":{"name":"p"}}}"#;
    let mut child = Command::new(env!("CARGO_BIN_EXE_stead"))
        .arg("place")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let mut input = child.stdin.take().expect("an input");
    // The program may end before everything is written.
    let _ = input.write_all(format!("{case}\n").repeat(10_000).as_bytes());
    drop(input);
    let mut said = String::new();
    child.stderr.take().expect("an error output").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(said, "");
}

#[test]
fn completions_and_version_are_printed() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = stead(&["completions", shell], "");
        assert!(run.code == Some(0) && run.stdout.contains("STEAD_COMPLETE"), "{shell}: {}", run.stderr);
    }
    assert_eq!(stead(&["complete", "explain", "topo"], "").stdout, "topology\n:4\n");
    assert_eq!(stead(&["--version"], "").stdout, concat!("stead ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn the_version_has_the_supported_kubernetes_versions() {
    let run = stead(&["version", "-o", "json"], "");
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let version: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["kubernetes"], serde_json::json!({"oldest": "1.29", "newest": "1.36"}));
    assert!(stead(&["version"], "").stdout.contains("Kubernetes:  1.29 to 1.36\n"));
    assert_eq!(stead(&["version", "--check", "--kubeconfig", "no-such-file"], "").code, Some(3));
}

/// A program that is not part of a release has no image: without one, nothing is asked of a cluster.
#[test]
fn an_installation_needs_an_image() {
    for args in [&["install", "--dry-run"][..], &["manifests"], &["manifests", "--only", "operator"]] {
        let run = stead(args, "");
        assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""), "{args:?}");
        assert!(run.stderr.starts_with("error: --image is needed"), "{args:?}: {}", run.stderr);
    }
    for args in [&["manifests", "--only", "crds"][..], &["manifests", "--image", "registry.example/stead:1"]] {
        assert_eq!(stead(args, "").code, Some(0), "{args:?}");
    }
}

#[test]
fn help_is_grouped_and_starts_with_examples() {
    for (args, golden) in [
        (&["--help"][..], expect_file!["help/stead.txt"]),
        (&["-h"], expect_file!["help/stead-short.txt"]),
        (&["explain", "--help"], expect_file!["help/explain.txt"]),
    ] {
        let run = stead(args, "");
        golden.assert_eq(&run.stdout);
        assert_eq!(run.code, Some(0), "{args:?}");
    }
}

/// Every command has a one-line summary, then examples, then details.
#[test]
fn long_help_of_every_command_starts_with_a_sentence_and_examples() {
    for command in [
        &["explain"][..],
        &["place"],
        &["recover"],
        &["install"],
        &["uninstall"],
        &["manifests"],
        &["operator"],
        &["gluster"],
        &["gluster", "manifests"],
        &["gluster", "status"],
        &["gluster", "agent"],
        &["version"],
        &["completions"],
    ] {
        let help = stead(&[command, &["--help"]].concat(), "").stdout;
        let mut lines = help.lines();
        let summary = lines.next().unwrap_or_default();
        assert!(!summary.ends_with('.') && summary.chars().next().is_some_and(char::is_uppercase), "{summary}");
        assert_eq!(lines.next(), Some(""), "{command:?}: the summary is one line");
        assert!(lines.next().is_some_and(|line| line.starts_with("Example")), "{command:?}: {help}");
        // clap does not wrap the usage line.
        let text = help.lines().filter(|line| !line.starts_with("Usage: "));
        let wide: Vec<&str> = text.filter(|line| line.chars().count() > 100).collect();
        assert!(wide.is_empty(), "{command:?}: {wide:?}");
        assert!(!help.contains('\u{1b}'), "no colour if the output is not a terminal");
    }
}

#[test]
fn a_batch_prints_its_rate_in_one_line() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("batch.json");
    let node = |i| format!(r#"{{"metadata":{{"name":"n{i}"}},"status":{{"allocatable":{{"cpu":"1","pods":"10"}}}}}}"#);
    let pod = |i| {
        format!(
            r#"{{"metadata":{{"name":"p{i}"}},"spec":{{"containers":[{{"name":"c","resources":{{"requests":{{"cpu":"400m"}}}}}}]}}}}"#
        )
    };
    let list = |make: &dyn Fn(usize) -> String, n: usize| (0..n).map(make).collect::<Vec<_>>().join(",");
    let text = format!(r#"{{"nodes":[{}],"pods":[],"queue":[{}]}}"#, list(&node, 2), list(&pod, 5));
    std::fs::write(&folder, text).expect("a file");
    let run = stead(&["place", "--batch", folder.to_str().expect("UTF-8")], "");
    let line: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!((&line["nodes"], &line["queue"], &line["placed"]), (&2.into(), &5.into(), &4.into()), "{line}");
    assert!(line["seconds"].is_number() && line["podsPerSecond"].is_number());
}

/// An unreachable node with a pod of a StatefulSet, and a healthy node.
const OUTAGE: &str = r#"
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: a}
  spec:
    taints:
    - {key: node.kubernetes.io/unreachable, effect: NoExecute, timeAdded: "2026-01-01T00:01:00Z"}
  status:
    allocatable: {cpu: "4", memory: 8Gi, pods: "10"}
    conditions: [{type: Ready, status: Unknown, lastTransitionTime: "2026-01-01T00:01:00Z"}]
- apiVersion: v1
  kind: Node
  metadata: {name: b}
  status:
    allocatable: {cpu: "4", memory: 8Gi, pods: "10"}
    conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]
- apiVersion: v1
  kind: Pod
  metadata:
    name: db-0
    namespace: default
    creationTimestamp: "2026-01-01T00:00:00Z"
    ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: u, controller: true}]
  spec: {nodeName: a, containers: [{name: c, image: i}]}
  status:
    phase: Running
    startTime: "2026-01-01T00:00:00Z"
    containerStatuses: [{name: c, ready: true, state: {running: {startedAt: "2026-01-01T00:00:01Z"}}}]
- apiVersion: coordination.k8s.io/v1
  kind: Lease
  metadata: {name: a, namespace: kube-node-lease}
  spec: {leaseDurationSeconds: 40, renewTime: "2026-01-01T00:00:10.000000Z"}
- apiVersion: coordination.k8s.io/v1
  kind: Lease
  metadata: {name: b, namespace: kube-node-lease}
  spec: {leaseDurationSeconds: 40, renewTime: "2026-01-01T00:02:00.000000Z"}
"#;

#[test]
fn forecasts_from_a_dump_start_at_the_time_of_the_dump() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("outage.yaml");
    std::fs::write(&file, OUTAGE).expect("a file");
    let file = file.to_str().expect("UTF-8");
    let ask = |more: &[&str]| -> Value {
        let args: Vec<&str> = [&["explain"], more, &["--from", file, "-o", "json"]].concat();
        let run = stead(&args, "");
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        serde_json::from_str(&run.stdout).expect("JSON")
    };
    let way = |answer: &Value, way: &str| {
        let mut all = answer["forecast"].as_array().expect("a forecast").iter();
        // To the second: controllers need some thousandths.
        match all.find(|f| f["way"] == way).expect("the way")["readyAt"].as_str() {
            Some(ready) => Value::from(format!("{}Z", &ready[..19])),
            None => Value::Null,
        }
    };
    let answer = ask(&["pod/db-0"]);
    assert_eq!((&answer["state"], &answer["asOf"]), (&"not-ready".into(), &"2026-01-01T00:02:00Z".into()));
    assert_eq!(way(&answer, "do-nothing"), Value::Null);
    // Half of the pod garbage collector's 20 s, one second to start, as before, and one to be ready.
    assert_eq!(way(&answer, "out-of-service"), "2026-01-01T00:02:12Z");
    let told = ask(&["pod/db-0", "--now", "2026-01-01T00:03:00Z", "--pod-gc-period", "4s", "--pod-start", "7s"]);
    assert_eq!(way(&told, "out-of-service"), "2026-01-01T00:03:04Z", "it took one second to start before");
    let node = ask(&["node/a"]);
    assert_eq!(node["pods"][0]["fares"], "with-help");
    // Its kubelet is heard of after a second. It ends the pod, which does not tolerate the taint of its node, and another is created.
    assert_eq!(way(&node, "node-returns"), "2026-01-01T00:02:04Z");
}
