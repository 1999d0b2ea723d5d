//! The program as people and scripts meet it: what it prints where, and how it exits.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use expect_test::{Expect, expect};
use serde_json::Value;

/// What a run left behind.
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
        // Beside the reading: both pipes could be full. A program that ends before it has read all is no fault.
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
fn a_workloads_first_pod_for_people() {
    check(
        &["place", "-f", "-", "-n", "openstack", "--from", "examples/glance-zones"],
        &SET.replace("CLASS", "lvms-local-storage"),
        0,
        &expect![[r#"
            NODE       VERDICT   SCORE   REASONS
            worker-0   best      661
            master-0   fits      660
            master-1   no        -       node(s) didn't match Pod's node affinity/selector
            master-2   no        -       node(s) didn't match Pod's node affinity/selector
            worker-1   no        -       node(s) didn't match Pod's node affinity/selector
            worker-2   no        -       node(s) didn't match Pod's node affinity/selector
            worker-3   no        -       node(s) didn't match Pod's node affinity/selector

            pod openstack/db-0 goes to worker-0.
        "#]],
        &expect![[r#""#]],
    );
}

#[test]
fn a_pod_that_fits_nowhere_exits_with_1() {
    check(
        &["place", "-f", "-", "-n", "openstack", "--from", "examples/glance-zones", "-o", "wide"],
        &SET.replace("zoneA", "zoneX").replace("CLASS", "lvms-local-storage"),
        1,
        &expect![[r#"
            NODE       VERDICT   SCORE   REASONS
            master-0   no        -       node(s) didn't match Pod's node affinity/selector (evicting pods cannot help)
            master-1   no        -       node(s) didn't match Pod's node affinity/selector (evicting pods cannot help)
            master-2   no        -       node(s) didn't match Pod's node affinity/selector (evicting pods cannot help)
            worker-0   no        -       node(s) didn't match Pod's node affinity/selector (evicting pods cannot help)
            worker-1   no        -       node(s) didn't match Pod's node affinity/selector (evicting pods cannot help)
            worker-2   no        -       node(s) didn't match Pod's node affinity/selector (evicting pods cannot help)
            worker-3   no        -       node(s) didn't match Pod's node affinity/selector (evicting pods cannot help)

            pod openstack/db-0 fits nowhere:
              0/7 nodes are available: 7 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/7 nodes are available: 7 Preemption is not helpful for scheduling.
        "#]],
        &expect![[r#""#]],
    );
}

#[test]
fn machines_get_json_and_yaml_that_say_the_same() {
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
fn mistakes_are_said_in_one_line() {
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
            error: the file has no pod to place: it needs one of Pod, StatefulSet, Deployment, ReplicaSet, Job
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
        1,
        &expect![""],
        &expect![[r#"
        error: cannot explain "volume/v"
        hint: say which: pod/NAME, node/NAME, topology/NAME, glance/NAME or glanceapi/NAME
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
        1,
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

/// A cluster that cannot be reached is named, with what might help.
#[test]
fn no_cluster_to_look_at() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join("kubeconfig");
    let config = "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\n\
                  users: [{name: u, user: {}}]\ncontexts: [{name: here, context: {cluster: c, user: u}}]\n\
                  current-context: here\n";
    std::fs::write(&file, config).expect("a file");
    let file = file.to_str().expect("UTF-8");
    check(
        &["explain", "pod/p", "--kubeconfig", file],
        "",
        1,
        &expect![""],
        &expect![[r#"
            error: cannot list nodes: Connection refused (os error 111) (server http://127.0.0.1:1/, context here)
            hint: see whether `kubectl get nodes` works with the same context; --from takes a dump
        "#]],
    );
    check(
        &["explain", "glance/g", "--kubeconfig", file, "--context", "there"],
        "",
        1,
        &expect![""],
        &expect![[r#"
            error: the kubeconfig has no context there
            hint: choose one with --context: here
        "#]],
    );
    check(
        &["place", "-f", "-", "--kubeconfig", "nosuch"],
        "",
        1,
        &expect![""],
        &expect![[r#"
            error: cannot read kubeconfig nosuch: No such file or directory (os error 2)
        "#]],
    );
}

#[test]
fn topologies_and_glances_of_a_dump() {
    for (target, code, says) in [
        ("topology/glance-default-spread-pods", 0, "used by 2 GlanceAPIs with 6 pods: 4 ready, 2 that no node takes"),
        ("topo/default-sample", 0, "NoNodeHasKey"),
        ("glances/glance", 0, "13 of 15 pods are ready; 2 wait because no node takes them"),
        ("glanceapi/glance-azone-edge", 0, "all is well: 3 of 3 pods are ready"),
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

/// What is filled into a pod before it is placed must not trip over fields of another shape.
#[test]
fn fields_of_another_shape_are_named() {
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
        assert!(run.stderr.starts_with("error: ") && run.stderr.contains(field), "{file}: {}", run.stderr);
        assert_eq!(run.stderr.lines().count(), 1, "{file}: {}", run.stderr);
    }
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    for args in [
        &["fly"][..],
        &["place", "-f", "pod.yaml", "--from", "x", "--context", "y"],
        &["explain", "pod/p", "--from", "x", "--kubeconfig", "y"],
        &["place", "--batch", "x", "cases.jsonl"],
        &["place", "-o", "tree", "-f", "x", "--from", "y"],
        &[],
    ] {
        let run = stead(args, "");
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{args:?}");
    }
}

#[test]
fn cases_that_cannot_be_read_are_answered_too() {
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
fn answers_come_as_the_cases_do() {
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
fn recorded_verdicts_are_repeated() {
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
fn a_reader_that_goes_away_is_no_fault() {
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
    // It may be gone before all is written.
    let _ = input.write_all(format!("{case}\n").repeat(10_000).as_bytes());
    drop(input);
    let mut said = String::new();
    child.stderr.take().expect("an error output").read_to_string(&mut said).expect("text");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(said, "");
}

#[test]
fn completions_and_version() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let run = stead(&["completions", shell], "");
        assert!(run.code == Some(0) && run.stdout.contains("place"), "{shell}");
    }
    assert_eq!(stead(&["--version"], "").stdout, concat!("stead ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn help_says_what_it_is_with_examples_and_exit_codes() {
    let help = stead(&["--help"], "").stdout;
    for part in ["kube-scheduler", "Examples:", "stead place -f", "stead explain pod/", "Exit codes:", "  2  "] {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(!help.contains('\u{1b}'), "no colour where nobody sees it");
}

#[test]
fn a_batch_prints_one_line() {
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

/// A silent node with a StatefulSet's pod on it, and one that is well.
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
fn an_outage_in_a_dump_is_foreseen_from_its_own_time() {
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
        all.find(|f| f["way"] == way).expect("the way")["readyAt"].clone()
    };
    let answer = ask(&["pod/db-0"]);
    assert_eq!((&answer["state"], &answer["asOf"]), (&"not-ready".into(), &"2026-01-01T00:02:00Z".into()));
    assert_eq!(way(&answer, "do-nothing"), Value::Null);
    // Half of the collector's twenty seconds, one to start as before, and one to be ready.
    assert_eq!(way(&answer, "out-of-service"), "2026-01-01T00:02:12Z");
    let told = ask(&["pod/db-0", "--now", "2026-01-01T00:03:00Z", "--pod-gc-period", "4s", "--pod-start", "7s"]);
    assert_eq!(way(&told, "out-of-service"), "2026-01-01T00:03:04Z", "it started in a second before");
    let node = ask(&["node/a"]);
    assert_eq!(node["pods"][0]["fares"], "with-help");
    assert_eq!(way(&node, "node-returns"), "2026-01-01T00:02:01Z");
    let run = stead(&["explain", "pod/db-0", "--now", "2026-01-01T00:03:00Z"], "");
    assert_eq!(run.code, Some(2), "a live cluster has its own time: {}", run.stderr);
}
