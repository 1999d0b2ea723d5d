//! Files, directories and archives.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use lzma_rust2::{XzOptions, XzWriter};
use stead_dump::{DEFAULT_MAX_SIZE, Dump, DumpError};

fn wanted(_: &str, kind: &str) -> bool {
    matches!(kind, "Node" | "Pod" | "PodDisruptionBudget")
}

fn read(paths: &[PathBuf], wanted: stead_dump::KindFilter<'_>) -> Result<Dump, DumpError> {
    stead_dump::read(paths, wanted, DEFAULT_MAX_SIZE)
}

/// An empty directory for one test.
fn directory(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

fn put(directory: &Path, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

fn gzip(content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content.as_ref()).unwrap();
    encoder.finish().unwrap()
}

fn xz(content: impl AsRef<[u8]>) -> Vec<u8> {
    let mut encoder = XzWriter::new(Vec::new(), XzOptions::with_preset(1)).unwrap();
    encoder.write_all(content.as_ref()).unwrap();
    encoder.finish().unwrap()
}

fn tar(files: &[(&str, impl AsRef<[u8]>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.as_ref().len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, content.as_ref()).unwrap();
    }
    archive.into_inner().unwrap()
}

fn node(name: &str) -> String {
    format!("apiVersion: v1\nkind: Node\nmetadata:\n  name: {name}\n")
}

fn names(dump: &Dump) -> Vec<String> {
    let text = |item: &stead_dump::Item, pointer| {
        item.value().pointer(pointer).and_then(|v| v.as_str()).unwrap_or("").to_owned()
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
    let at = directory("files");
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
    let at = directory("broken_files");
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
    assert!(fails(directory("empty_directory")).ends_with("contains no .yaml, .yml or .json file"));
}

#[test]
fn directories() {
    let at = directory("directories");
    put(&at, "b/nodes.yml", node("b"));
    put(&at, "a.yaml", node("a"));
    put(&at, "c.json", r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"c"}}"#);
    put(&at, "d.yaml.gz", gzip(node("d")));
    put(&at, "notes.txt", node("no"));
    put(&at, "README.md", "kind: Node");
    // A file that is not an object, not wanted, or broken and not wanted is skipped.
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
        skipped: binary.yaml is not UTF-8 text: invalid utf-8 sequence of 1 bytes from index 0
        skipped: broken.yaml, document 1: invalid YAML: while parsing a block mapping, did not find expected key at line 3 column 3
        skipped: mixed.yaml, document 1: kind is missing
        skipped: none.yaml is empty: expected Kubernetes objects in YAML or JSON
        skipped: values.yaml, document 1: kind is missing"#]].assert_eq(&warnings.join("\n"));
    // A wanted object has to be complete.
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
    // The newer copies: one from the pod's own file, one from the list.
    assert_eq!(dump.items[2].value()["status"]["phase"], "Running");
    assert_eq!(dump.items[2].source.item, None);
    assert_eq!(dump.items[3].value()["status"]["phase"], "Running");
    assert_eq!(dump.items[3].source.item, Some(2));
    assert_eq!(dump.items[3].value()["apiVersion"], "v1");
    assert_eq!(dump.warnings.len(), 1, "{:?}", dump.warnings);
    assert!(dump.warnings[0].ends_with("core/odd.yaml, document 1: kind is missing"));
}

#[test]
fn must_gather_directory() {
    let at = directory("must_gather_directory");
    for (path, content) in must_gather() {
        put(&at, &path, content);
    }
    check_must_gather(&read(&[at], &wanted).unwrap());
}

#[test]
fn must_gather_archive() {
    let at = directory("must_gather_archive");
    let files = must_gather();
    let files: Vec<(&str, &str)> = files.iter().map(|(p, c)| (p.as_str(), c.as_str())).collect();
    let plain = tar(&files);
    let zipped = gzip(&plain);
    let smaller = xz(&plain);
    for (name, content) in [
        ("must-gather.tar", &plain),
        ("must-gather.tar.gz", &zipped),
        ("must-gather.tgz", &zipped),
        ("must-gather.tar.xz", &smaller),
        ("attachment", &zipped),
    ] {
        let dump = read(&[put(&at, name, content)], &wanted).unwrap();
        check_must_gather(&dump);
        let file = dump.items[0].source.file.to_string();
        assert!(file.ends_with(&format!("{name}: {TOP}/cluster-scoped-resources/core/nodes/master-0.yaml")));
    }
    // Truncated: an error, not half a cluster.
    for length in [600, plain.len() / 3, plain.len() / 2] {
        let error = fails(put(&at, "cut.tar", &plain[..length]));
        assert!(error.contains("cut.tar"), "{length}: {error}");
    }
    for length in [100, zipped.len() / 2, zipped.len() - 4] {
        let error = fails(put(&at, "cut.tar.gz", &zipped[..length]));
        assert!(error.contains("cut.tar.gz"), "{length}: {error}");
    }
    for length in [100, smaller.len() / 2, smaller.len() - 4] {
        let error = fails(put(&at, "cut.tar.xz", &smaller[..length]));
        assert!(error.contains("cut.tar.xz"), "{length}: {error}");
    }
    let none = tar(&[("x/version", "4.16")]);
    assert!(fails(put(&at, "none.tar", none)).ends_with("none.tar contains no .yaml, .yml or .json file"));
}

/// An OpenStack must-gather packs what is not from hosts as an archive of its own.
#[test]
fn archives_inside_of_archives() {
    let at = directory("nested_archives");
    let files = must_gather();
    let files: Vec<(&str, &str)> = files.iter().map(|(p, c)| (p.as_str(), c.as_str())).collect();
    let (inner, host) = (xz(tar(&files)), xz(tar(&[("sosreport-worker-0/etc/x.yaml", node("sos"))])));
    let hosts = "must-gather/sos-reports/_all_nodes/sosreport-worker-0.tar.xz";
    let parts = [("must-gather/rhoso-data.tar.xz", inner.as_slice()), (hosts, host.as_slice())];
    let outer = tar(&parts);
    check_must_gather(&read(&[put(&at, "must-gather.tar", &outer)], &wanted).unwrap());
    for (path, content) in parts {
        put(&at, &format!("unpacked/{path}"), content);
    }
    check_must_gather(&read(&[at.join("unpacked")], &wanted).unwrap());

    // One that is broken does not hide what is beside it.
    let nodes = node("a");
    let parts = [("x/logs.tar", b"no archive".as_slice()), ("x/nodes.yaml", nodes.as_bytes())];
    let dump = read(&[put(&at, "broken.tar", tar(&parts))], &wanted).unwrap();
    assert_eq!(names(&dump), ["Node a"]);
    assert!(dump.warnings[0].contains("cannot unpack") && dump.warnings[0].contains("logs.tar"), "{:?}", dump.warnings);

    // More than three levels are not read.
    let mut deep = tar(&[("nodes.yaml", node("a"))]);
    for _ in 0..2 {
        deep = tar(&[("x.tar", deep)]);
    }
    assert_eq!(names(&read(&[put(&at, "deep.tar", &deep)], &wanted).unwrap()), ["Node a"]);
    let error = fails(put(&at, "deeper.tar", tar(&[("x.tar", deep)])));
    assert!(error.ends_with("contains no .yaml, .yml or .json file"), "{error}");
}

/// A file of a wanted kind that is truncated in the must-gather itself.
#[test]
fn must_gather_with_a_broken_resource() {
    let at = directory("must_gather_broken");
    let mut files = must_gather();
    files[0].1 = "apiVersion: v1\nkind: Node\nmetadata:\n  name: \"mast".to_owned();
    let files: Vec<(&str, &str)> = files.iter().map(|(p, c)| (p.as_str(), c.as_str())).collect();
    let error = fails(put(&at, "must-gather.tar", tar(&files)));
    assert!(error.contains("nodes/master-0.yaml, document 1: invalid YAML"), "{error}");
}

/// The limit counts the decompressed bytes of all files together.
#[test]
fn total_size() {
    let at = directory("total_size");
    let (a, b) = (node("a"), node("b"));
    let both = (a.len() + b.len()) as u64;
    let files = [put(&at, "a.yaml", &a), put(&at, "b.yaml.gz", gzip(&b))];
    let archive = [("x/a.yaml", &*a), ("x/b.yaml", &*b), ("x/must-gather.log", &*"log\n".repeat(10_000))];
    let archive = tar(&archive);
    let archive_size = archive.len() as u64;
    let zipped = put(&at, "archive/dump.tar.gz", gzip(&archive));
    let bomb = node("a") + &"#\n".repeat(1 << 20);
    let inner = gzip(&bomb);
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(inner.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, "x/a.yaml.gz", &*inner).unwrap();
    let nested = builder.into_inner().unwrap();
    let nested_size = (nested.len() + bomb.len()) as u64;
    let nested = put(&at, "nested/dump.tar", nested);
    let directory = directory("total_size_directory");
    put(&directory, "a.yaml", &a);
    put(&directory, "b.yml.gz", gzip(&b));
    for (paths, size, last) in [
        (&files[..], both, "b.yaml.gz"),
        (std::slice::from_ref(&directory), both, "b.yml.gz"),
        (&[zipped], archive_size, "dump.tar.gz"),
        (&[nested], nested_size, "dump.tar"),
    ] {
        stead_dump::read(paths, &wanted, size).unwrap();
        let error = stead_dump::read(paths, &wanted, size - 1).unwrap_err();
        assert!(matches!(error, DumpError::TooLarge { limit, .. } if limit == size - 1), "{error:?}");
        assert!(error.to_string().contains(last), "{error}");
    }
}

/// Reading a FIFO, a socket or a device could block forever.
#[cfg(unix)]
#[test]
fn special_files() {
    let at = directory("special_files");
    let fifo = at.join("a.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let writer = {
        let fifo = fifo.clone();
        std::thread::spawn(move || fs::write(fifo, node("a")).unwrap())
    };
    let (named, found) = (fails(fifo.clone()), fails(at.clone()));
    // Lets the writer end, which waits for a reader.
    assert_eq!(fs::read_to_string(&fifo).unwrap(), node("a"));
    writer.join().unwrap();
    for error in [named, found] {
        let want = "special_files/a.yaml is a FIFO: only files and directories are read (use - for standard input)";
        assert!(error.ends_with(want), "{error}");
    }
    fs::remove_file(&fifo).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(at.join("b.yaml")).unwrap();
    assert!(fails(at.clone()).contains("special_files/b.yaml is a socket"));
    assert!(fails(PathBuf::from("/dev/null")).contains("/dev/null is a device"));
}

/// Each file has its own limit for aliases; the documents of a file share it.
#[test]
fn alias_limit_is_per_file() {
    let at = directory("alias_limit");
    let document = |name: &str| format!("{}a: &a {}\nb: [*a, *a]\n", node(name), "x".repeat(1 << 20));
    let (one, other) = (put(&at, "one.yaml", document("a")), put(&at, "other.yaml", document("b")));
    assert_eq!(names(&read(&[one, other], &wanted).unwrap()), ["Node a", "Node b"]);
    let error = fails(put(&at, "both.yaml", format!("{}---\n{}", document("a"), document("b"))));
    assert!(error.contains("both.yaml, document 2: invalid YAML: the aliases of the file expand"), "{error}");
}
