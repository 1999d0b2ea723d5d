//! Files, folders and archives.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use stead_dump::{Dump, DumpError, read};

fn wanted(_: &str, kind: &str) -> bool {
    matches!(kind, "Node" | "Pod" | "PodDisruptionBudget")
}

/// An empty folder of its own for a test.
fn folder(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn put(folder: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

fn gzip(content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content.as_ref()).unwrap();
    encoder.finish().unwrap()
}

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, content.as_bytes()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn node(name: &str) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n")
}

fn names(dump: &Dump) -> Vec<String> {
    let text = |item: &stead_dump::Item, pointer| {
        item.value.pointer(pointer).and_then(|v| v.as_str()).unwrap_or("").to_owned()
    };
    dump.items.iter().map(|item| format!("{} {}", text(item, "/kind"), text(item, "/metadata/name"))).collect()
}

fn chain(error: &DumpError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn fails(path: PathBuf) -> String {
    chain(&read(&[path], &wanted).unwrap_err())
}

#[test]
fn files() {
    let at = folder("files");
    let plain = put(&at, "nodes.yaml", node("a"));
    // The content decides, not the name.
    let zipped = put(&at, "nodes.txt", gzip(node("b")));
    let dump = read(&[plain.clone(), zipped, plain], &wanted).unwrap();
    assert_eq!(names(&dump), ["Node a", "Node b"]);
    assert!(dump.items[0].source.file.ends_with("nodes.yaml"));
    assert_eq!(dump.warnings, [""; 0]);
}

#[test]
fn broken_files() {
    let at = folder("broken_files");
    let zipped = gzip(node("a").repeat(1000));
    for (name, content, want) in [
        ("cut.yaml.gz", &zipped[..zipped.len() / 2], "cannot read"),
        ("head.gz", &zipped[..5], "cannot read"),
        ("binary.yaml", &b"kind: \xff\xfe"[..], "is not UTF-8 text: invalid utf-8 sequence of 1 bytes from index 6"),
        ("empty.yaml", b"", "is empty"),
        (
            "cut.json",
            b"{\"kind\": \"Node\"",
            "document 1: invalid JSON: EOF while parsing an object at line 1 column 15",
        ),
    ] {
        let error = fails(put(&at, name, content));
        assert!(error.contains(name) && error.contains(want), "{error}");
    }
    assert!(fails(at.join("none.yaml")).contains("cannot read"));
    assert!(fails(folder("empty_folder")).ends_with("holds no .yaml, .yml or .json file"));
}

#[test]
fn folders() {
    let at = folder("folders");
    put(&at, "b/nodes.yml", node("b"));
    put(&at, "a.yaml", node("a"));
    put(&at, "c.json", r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"c"}}"#);
    put(&at, "d.yaml.gz", gzip(node("d")));
    put(&at, "notes.txt", node("no"));
    put(&at, "README.md", "kind: Node");
    // What is no object, or not wanted, or broken and not wanted, does not stop the rest.
    put(&at, "values.yaml", "replicas: 3\n");
    put(&at, "mixed.yaml", format!("just: this\n---\n{}", node("e")));
    put(&at, "secret.yaml", "apiVersion: v1\nkind: Secret\n");
    put(&at, "broken.yaml", "apiVersion: v1\nkind: \"Secret\"\n  data: [\n");
    put(&at, "binary.yaml", b"\xff\xfe");
    put(&at, "none.yaml", "");
    let dump = read(std::slice::from_ref(&at), &wanted).unwrap();
    assert_eq!(names(&dump), ["Node a", "Node b", "Node c", "Node d", "Node e"]);
    let warnings: Vec<String> =
        dump.warnings.iter().map(|warning| warning.replace(&format!("{}/", at.display()), "")).collect();
    expect_test::expect![[r#"
        passed over: binary.yaml is not UTF-8 text: invalid utf-8 sequence of 1 bytes from index 0
        passed over: broken.yaml, document 1: invalid YAML: while parsing a block mapping, did not find expected key at line 3 column 3
        passed over: mixed.yaml, document 1: kind is missing
        passed over: none.yaml is empty: it should hold Kubernetes objects in YAML or JSON
        passed over: values.yaml, document 1: kind is missing"#]].assert_eq(&warnings.join("\n"));
    // What is wanted has to be whole.
    put(&at, "pods.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p\n");
    let error = fails(at.clone());
    assert!(error.contains("pods.yaml, document 1: invalid YAML"), "{error}");
    put(&at, "pods.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {}\n");
    let error = fails(at);
    assert!(error.ends_with("pods.yaml, document 1: metadata.name is missing"), "{error}");
}

const TOP: &str = "must-gather.local.42/quay-io-openshift-release-dev-ocp-v4-0-art-dev-sha256-0a1b";

fn must_gather() -> Vec<(String, String)> {
    let pod = |name: &str, version: u32, phase: &str| {
        format!(
            "metadata:\n    name: {name}\n    namespace: openstack\n    resourceVersion: \"{version}\"\n  status:\n    phase: {phase}\n"
        )
    };
    let one = |name: &str, version: u32, phase: &str| {
        format!("---\napiVersion: v1\nkind: Pod\n{}", pod(name, version, phase).replace("\n  ", "\n"))
    };
    let crd = "---\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {broken\n";
    [
        ("cluster-scoped-resources/core/nodes/master-0.yaml", format!("---\n{}", node("master-0"))),
        ("cluster-scoped-resources/core/nodes/worker-3.yaml", format!("---\n{}", node("worker-3"))),
        ("cluster-scoped-resources/apiextensions.k8s.io/customresourcedefinitions/x.yaml", crd.to_owned()),
        (
            "namespaces/openstack/core/pods.yaml",
            format!(
                "---\napiVersion: v1\nitems:\n- {}- {}kind: PodList\nmetadata:\n  resourceVersion: \"50\"\n",
                pod("glance-0", 40, "Pending"),
                pod("glance-1", 41, "Running")
            ),
        ),
        ("namespaces/openstack/pods/glance-0/glance-0.yaml", one("glance-0", 45, "Running")),
        ("namespaces/openstack/pods/glance-1/glance-1.yaml", one("glance-1", 30, "Pending")),
        ("namespaces/openstack/pods/glance-1/glance-api/glance-api/logs/current.log", "kind: Pod\n".to_owned()),
        (
            "namespaces/openstack/policy/poddisruptionbudgets.yaml",
            "---\napiVersion: policy/v1\nitems: []\nkind: PodDisruptionBudgetList\n".to_owned(),
        ),
        ("namespaces/openstack/core/odd.yaml", "a: b\n".to_owned()),
        ("event-filter.html", "<html>kind: Pod</html>".to_owned()),
        ("version", "openshift/must-gather\n4.16.0".to_owned()),
        ("timestamp", "2025-01-08 16:58:02\n".to_owned()),
        ("monitoring/prometheus/alerts.json", r#"{"status":"success","data":{"kind":7}}"#.to_owned()),
        ("etcd_info/endpoint_health.json", "[{\"endpoint\":\"https://[::1]:2379\"}]".to_owned()),
        ("etcd_info/broken.json", "{".to_owned()),
    ]
    .map(|(path, content)| (format!("{TOP}/{path}"), content))
    .to_vec()
}

fn check_must_gather(dump: &Dump) {
    assert_eq!(names(dump), ["Node master-0", "Node worker-3", "Pod glance-0", "Pod glance-1"]);
    let kinds: Vec<&str> = dump.kinds.iter().map(String::as_str).collect();
    assert_eq!(kinds, ["Node", "Pod", "PodDisruptionBudget"]);
    // Of the copies the newer ones: one from the pod's own file, one from the list.
    assert_eq!(dump.items[2].value["status"]["phase"], "Running");
    assert_eq!(dump.items[2].source.item, None);
    assert_eq!(dump.items[3].value["status"]["phase"], "Running");
    assert_eq!(dump.items[3].source.item, Some(2));
    assert_eq!(dump.items[3].value["apiVersion"], "v1");
    assert_eq!(dump.warnings.len(), 1, "{:?}", dump.warnings);
    assert!(dump.warnings[0].ends_with("core/odd.yaml, document 1: kind is missing"));
}

#[test]
fn must_gather_folder() {
    let at = folder("must_gather_folder");
    for (path, content) in must_gather() {
        put(&at, &path, content);
    }
    check_must_gather(&read(&[at], &wanted).unwrap());
}

#[test]
fn must_gather_archive() {
    let at = folder("must_gather_archive");
    let files = must_gather();
    let files: Vec<(&str, &str)> = files.iter().map(|(p, c)| (p.as_str(), c.as_str())).collect();
    let plain = tar(&files);
    let zipped = gzip(&plain);
    for (name, content) in [
        ("must-gather.tar", &plain),
        ("must-gather.tar.gz", &zipped),
        ("must-gather.tgz", &zipped),
        ("attachment", &zipped),
    ] {
        let dump = read(&[put(&at, name, content)], &wanted).unwrap();
        check_must_gather(&dump);
        let file = dump.items[0].source.file.to_string();
        assert!(file.ends_with(&format!("{name}: {TOP}/cluster-scoped-resources/core/nodes/master-0.yaml")));
    }
    // Cut short: an error, not half a cluster.
    for length in [600, plain.len() / 3, plain.len() / 2] {
        let error = fails(put(&at, "cut.tar", &plain[..length]));
        assert!(error.contains("cut.tar"), "{length}: {error}");
    }
    for length in [100, zipped.len() / 2, zipped.len() - 4] {
        let error = fails(put(&at, "cut.tar.gz", &zipped[..length]));
        assert!(error.contains("cut.tar.gz"), "{length}: {error}");
    }
    let none = tar(&[("x/version", "4.16")]);
    assert!(fails(put(&at, "none.tar", none)).ends_with("none.tar holds no .yaml, .yml or .json file"));
}

/// A file of a wanted kind that was cut in the must-gather itself.
#[test]
fn must_gather_with_a_broken_resource() {
    let at = folder("must_gather_broken");
    let mut files = must_gather();
    files[0].1 = "apiVersion: v1\nkind: Node\nmetadata:\n  name: \"mast".to_owned();
    let files: Vec<(&str, &str)> = files.iter().map(|(p, c)| (p.as_str(), c.as_str())).collect();
    let error = fails(put(&at, "must-gather.tar", tar(&files)));
    assert!(error.contains("nodes/master-0.yaml, document 1: invalid YAML"), "{error}");
}
