//! `stead rehearse` as people and CI use it: outputs, exit codes, and errors in files.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::{Expect, expect};
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn stead(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
    // No cluster is reached from a test.
    command.args(args).current_dir(folder).env("KUBECONFIG", folder.join("no-such-kubeconfig"));
    command.output().expect("the program runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A folder for one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("stead-rehearse-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).expect("a file");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("the folder is removed");
    }
}

/// A rehearsal with these steps, on one node.
fn with_steps(steps: &str) -> String {
    format!(
        "apiVersion: stead.dev/v1alpha1\nkind: Rehearsal\nmetadata: {{name: drill}}\ncluster: {{example: single-node}}\nsteps:\n{steps}"
    )
}

const POD: &str = "\
- name: A pod
  run: kubectl apply -f -
  objects:
  - {apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: web}]}}
- wait: {for: ready pod/web, within: 10s}
";

#[test]
fn a_drill_passes_or_fails() {
    let folder = Folder::new("drill");
    let passes = "- name: It runs\n  expect: {pods: \"NAME STATUS NODE\\nweb Running crc\"}\n";
    folder.write("passes.yaml", &with_steps(&format!("{POD}{passes}")));
    let fails = "- name: It does not run\n  expect: {pods: \"NAME STATUS\\nweb Pending\"}\n";
    folder.write("fails.yaml", &with_steps(&format!("{POD}{fails}")));
    let check = |args: &[&str], code: i32, expected: Expect| {
        let output = stead(&[&["rehearse"], args].concat(), &folder.0);
        expected.assert_eq(&text(&output.stdout));
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(code), String::new()), "{args:?}");
    };
    check(
        &["passes.yaml"],
        0,
        expect![[r#"
            drill

                0:00:00  A pod
                           kubectl apply -f - (1 Pod)
                0:00:01      pod web on crc: Ready
                0:00:01  It runs

            passed: 3 steps, 1 of them checks, 1s of cluster time (seed 0)
        "#]],
    );
    check(
        &["fails.yaml", "--seed", "7"],
        1,
        expect![[r#"
            drill

                0:00:00  A pod
                           kubectl apply -f - (1 Pod)
                0:00:00      pod web: Pending: 0/1 nodes are available: 1 node(s) had untolerated taint(s). no
                               new claims to deallocate, preemption: 0/1 nodes are available: 1 Preemption is
                               not helpful for scheduling.
                0:00:01      pod web on crc: Ready
                0:00:01  FAILED: It does not run
                             nothing matches the row: web  Pending
                             expected:
                             NAME   STATUS
                             web    Pending
                             found:
                             NAME   STATUS
                             web    Running

            failed in step 3 (steps[2], seed 7): nothing matches the row: web  Pending
        "#]],
    );
    check(
        &["passes.yaml", "--seeds", "5"],
        0,
        expect![[r#"
            drill: passed with all 5 seeds (0 to 4)
        "#]],
    );
    check(
        &["passes.yaml", "fails.yaml", "--seeds", "3", "--seed", "40"],
        1,
        expect![[r#"
            drill: passed with all 3 seeds (40 to 42)

            drill

                0:00:00  A pod
                           kubectl apply -f - (1 Pod)
                0:00:01      pod web on crc: Ready
                0:00:01  FAILED: It does not run
                             nothing matches the row: web  Pending
                             expected:
                             NAME   STATUS
                             web    Pending
                             found:
                             NAME   STATUS
                             web    Running

            failed in step 3 (steps[2], seed 41): nothing matches the row: web  Pending

            drill: failed with 3 of 3 seeds (40 to 42); above is the shortest run that fails
            repeat it with: stead rehearse fails.yaml --seed 41

            1 of 2 rehearsals failed: drill
        "#]],
    );
    check(
        &["passes.yaml", "-o", "wide"],
        0,
        expect![[r#"
            drill

                0:00:00  A pod
                           kubectl apply -f - (1 Pod)
                             pod/web created
                0:00:00  wait for ready pod/web, at most 10s
                0:00:01    pod web on crc: Ready
                0:00:01  It runs
                           check 1 pod

            passed: 3 steps, 1 of them checks, 1s of cluster time (seed 0)
        "#]],
    );
}

#[test]
fn programs_get_json_and_junit() {
    let folder = Folder::new("json");
    folder.write("fails.yaml", &with_steps(&format!("{POD}- expect: {{absent: pod/web}}\n")));
    let args = ["rehearse", "fails.yaml", "-o", "json", "--junit", "report.xml", "--html", "report.html"];
    let output = stead(&args, &folder.0);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let run = &report["rehearsals"][0];
    assert_eq!((&report["passed"], &run["name"], &run["seed"]), (&json!(false), &json!("drill"), &json!(0)));
    assert_eq!(run["steps"][2]["failure"], "pod default/web exists");
    let junit = std::fs::read_to_string(folder.0.join("report.xml")).expect("a report");
    assert!(junit.contains("<failure message=\"pod default/web exists\">"), "{junit}");
    let page = std::fs::read_to_string(folder.0.join("report.html")).expect("a page");
    assert!(page.contains("✗ FAILED") && page.contains("pod default/web exists"), "{page}");
    // The page needs nothing else.
    for outside in ["http://", "https://", "<script", "<link", "url(h"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn a_broken_file_has_a_line_and_a_column() {
    let folder = Folder::new("broken");
    for (file, expected) in [
        ("steps: [", "drill.yaml:1:8: "),
        (&with_steps("- {skip: 5}\n"), "drill.yaml:6:4: steps[0].skip: invalid type: integer `5`"),
        (&with_steps("- {skip: 1s}\n- {skp: 1s}\n"), "drill.yaml:7:4: steps[1].skp: unknown field `skp`"),
        (&with_steps("- {skip: 1s}\n- {name: x}\n"), "drill.yaml:7:3: steps[1]: one of run, fail"),
        (&with_steps("- {run: kubectl get pods}\n"), "drill.yaml:6:4: steps[0].run: "),
        (
            &with_steps("- expect:\n    pods: |\n      NAME  PHASE\n"),
            "drill.yaml:7:5: steps[0].expect.pods: there is no column",
        ),
        (&with_steps("- {run: kubectl apply -f no.yaml}\n"), "drill.yaml:6:4: steps[0].run: "),
        (&with_steps("- {fail: {node: a}}\n"), "drill.yaml:6:4: steps[0].fail.how: is needed"),
        (&with_steps(""), "drill.yaml:5:1: steps: "),
        (
            &with_steps("- {skip: 1s}\n").replace("single-node", "other"),
            "drill.yaml:4:11: cluster.example: there is no",
        ),
        (&with_steps("- {skip: 1s}\n").replace("v1alpha1", "v9"), "drill.yaml:1:1: apiVersion: must be"),
        ("", "drill.yaml: the file has no rehearsal"),
    ] {
        folder.write("drill.yaml", file);
        let output = stead(&["rehearse", "drill.yaml"], &folder.0);
        let error = text(&output.stderr);
        assert!(error.starts_with(&format!("error: {expected}")), "{error}\n{file}");
        assert_eq!((output.status.code(), error.lines().count(), output.stdout.len()), (Some(2), 1, 0), "{file}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_no_answer() {
    let folder = Folder::new("unread");
    let steps = with_steps("- {skip: 1s}\n");
    folder.write("from.yaml", &steps.replace("example: single-node", "from: no-such-dump"));
    folder.write("live.yaml", &steps.replace("example: single-node", "live: true"));
    for (args, code) in [
        (&["rehearse", "no-such-file.yaml"][..], 3),
        (&["rehearse", "from.yaml"], 3),
        (&["rehearse", "live.yaml"], 3),
        (&["rehearse", "no-such-name"], 2),
        (&["rehearse", "--seeds", "0"], 2),
        (&["rehearse", "--all", "from.yaml"], 2),
    ] {
        let output = stead(args, &folder.0);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(code), 0), "{args:?} {}", text(&output.stderr));
    }
}

#[test]
fn a_dump_goes_on_from_its_time() {
    let folder = Folder::new("dump");
    let dump = root().join("examples/dead-node");
    let steps = "- expect: {condition: {of: node/worker-0, type: Ready, status: Unknown}}\n- {skip: 1h}\n";
    let file = with_steps(steps).replace("example: single-node", &format!("from: {}", dump.display()));
    folder.write("drill.yaml", &file);
    let output = stead(&["rehearse", "drill.yaml", "-o", "json"], &folder.0);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()), "{}", text(&output.stdout));
}

#[test]
fn objects_files_and_several_documents() {
    let folder = Folder::new("objects");
    folder.write(
        "pod.yaml",
        "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: w, image: w}]}}\n",
    );
    let document = |name: &str, version: &str| {
        format!(
            "apiVersion: stead.dev/v1alpha1\nkind: Rehearsal\nmetadata: {{name: {name}}}\nkubernetes: \"{version}\"\nnamespace: shop\n\
             cluster:\n  objects:\n  - {{apiVersion: v1, kind: Node, metadata: {{name: n1, labels: {{zone: a}}}}}}\n\
             workloads: [{{ready: 5s}}, {{of: pod/web, start: 3s}}]\nsteps:\n- run: kubectl create -f pod.yaml\n\
             - skip: 7500ms\n- expect: {{pods: \"NAME READY NODE\\nweb 0/1 zone:a\"}}\n- wait: {{for: ready pod/web, within: 2s}}\n\
             - run: kubectl delete pod other\n  error: \"*NotFound*\"\n\
             - expect: {{nodes: \"NAME STATUS VERSION\\nn1 Ready v{version}.4\"}}\n"
        )
    };
    folder.write("drill.yaml", &format!("{}---\n{}", document("one", "1.36"), document("two", "1.30")));
    let output = stead(&["rehearse", "drill.yaml"], &folder.0);
    let told = text(&output.stdout);
    assert!(told.ends_with("\nall 2 rehearsals passed\n"), "{told}{}", text(&output.stderr));
}

#[test]
fn every_shipped_rehearsal_passes_and_fits_on_two_screens() {
    let output = stead(&["rehearse", "--all", "--seeds", "3"], &root());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    for name in ["glance", "glance-topology", "cinder", "cinder-zone", "gluster"] {
        let output = stead(&["rehearse", name], &root());
        let told = text(&output.stdout);
        for story in told.split("\n\n\n") {
            assert!(story.lines().count() <= 100, "{name}: {} lines", story.lines().count());
        }
        assert!(told.lines().all(|line| line.chars().count() <= 100), "{name}");
    }
}

/// Two processes have nothing in common but their arguments.
#[test]
fn the_same_seed_gives_the_same_bytes() {
    let play = |seed: &str| {
        let folder = Folder::new(&format!("bytes-{seed}"));
        let args = ["rehearse", "cinder", "--seed", seed, "-o", "wide", "--html", "page.html"];
        let output = stead(&args, &folder.0);
        (output.stdout, std::fs::read(folder.0.join("page.html")).expect("a page"))
    };
    let first = play("5");
    assert!(first == play("5"), "two runs with the same seed differ");
    assert!(first != play("6"), "the seed changes nothing");
}

#[test]
fn shipped_files_are_listed_and_printed() {
    let list = text(&stead(&["rehearse", "--list"], &root()).stdout);
    for name in ["glance", "glance-topology", "cinder", "cinder-zone", "gluster"] {
        assert!(list.contains(&format!("\n  {name} ")), "{list}");
        let printed = stead(&["rehearse", name, "--print"], &root()).stdout;
        let file = std::fs::read(root().join(format!("examples/rehearsals/{name}.yaml"))).expect("a file");
        assert!(printed == file, "{name}");
    }
}

#[test]
fn the_schema_is_published_and_the_shipped_rehearsals_follow_it() {
    let printed = text(&stead(&["rehearse", "--schema"], &root()).stdout);
    expect_test::expect_file!["../../../docs/rehearsal.schema.json"].assert_eq(&printed);
    let schema: Value = serde_json::from_str(&printed).expect("JSON");
    for entry in std::fs::read_dir(root().join("examples/rehearsals")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a file");
        let documents = stead_dump::located_documents(&text).expect("YAML");
        assert!(!documents.is_empty(), "{}", path.display());
        for document in documents {
            let problems = validate(&schema, &schema, &document.value, "");
            assert!(problems.is_empty(), "{}: {problems:#?}", path.display());
        }
    }
    // The validator below can say no.
    let broken = json!({ "apiVersion": "stead.dev/v1alpha1", "kind": "Rehearsal", "metadata": {}, "cluster": { "live": true },
        "steps": [{ "skip": "1 s", "run": "x", "nme": 1 }, { "expect": { "on": ["a"] } }, { "wait": { "for": "x" } }] });
    let problems = validate(&schema, &schema, &broken, "");
    let fields: Vec<&str> = problems.iter().filter_map(|problem| problem.split(':').next()).collect();
    assert_eq!(fields, ["/metadata", "/steps/0", "/steps/0", "/steps/1/expect", "/steps/1/expect", "/steps/2/wait"]);
}

/// Validates by the keywords that the schema uses; any other keyword is an error.
fn validate(schema: &Value, root: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let fields = value.as_object();
    let valid = |schema: &Value| validate(schema, root, value, at).is_empty();
    for (keyword, rule) in schema.as_object().into_iter().flatten() {
        let list = || rule.as_array().into_iter().flatten();
        let has = |name: &Value| fields.is_some_and(|fields| fields.contains_key(name.as_str().unwrap_or_default()));
        let ok = match keyword.as_str() {
            "$schema" | "title" | "description" | "$defs" | "properties" => true,
            "$ref" => {
                let pointer = rule.as_str().unwrap_or_default().trim_start_matches('#');
                problems.extend(validate(root.pointer(pointer).expect("a definition"), root, value, at));
                true
            }
            "type" => match rule.as_str() {
                Some("object") => value.is_object(),
                Some("array") => value.is_array(),
                Some("string") => value.is_string(),
                Some("integer") => value.is_u64(),
                other => panic!("type {other:?}"),
            },
            "const" => value == rule,
            "enum" => list().any(|option| option == value),
            "required" => list().all(has),
            "additionalProperties" => {
                fields.is_none_or(|fields| fields.keys().all(|name| schema["properties"].get(name).is_some()))
            }
            "dependentRequired" => rule
                .as_object()
                .into_iter()
                .flatten()
                .all(|(name, needed)| !has(&json!(name)) || needed.as_array().into_iter().flatten().all(has)),
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    problems.extend(validate(rule, root, item, &format!("{at}/{i}")));
                }
                true
            }
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap_or_default()),
            "minimum" => value.as_u64() >= rule.as_u64(),
            "oneOf" => list().filter(|option| valid(option)).count() == 1,
            "anyOf" => list().any(valid),
            // The types check texts; here only whether it is one.
            "pattern" => value.is_string(),
            other => panic!("the test does not know the keyword {other}"),
        };
        if !ok {
            problems.push(format!("{at}: {keyword}"));
        }
    }
    for (name, rule) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(field) = value.get(name) {
            problems.extend(validate(rule, root, field, &format!("{at}/{name}")));
        }
    }
    problems
}
