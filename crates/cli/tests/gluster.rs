//! `stead gluster` without a cluster: what it prints, and how it exits.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// What a run left behind.
struct Said {
    out: String,
    err: String,
    code: Option<i32>,
}

fn stead(args: &[&str]) -> Said {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
    command.arg("gluster").args(args).env("KUBECONFIG", "/nonexistent").env_remove("KUBERNETES_SERVICE_HOST");
    let output = command.stdin(std::process::Stdio::null()).output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
}

fn manifests(args: &[&str]) -> Said {
    stead(&[&["manifests", "--image=registry.example/gluster:11.1"], args].concat())
}

#[test]
fn an_image_has_to_be_named() {
    let run = stead(&["manifests"]);
    assert_eq!((run.code, run.out.as_str()), (Some(1), ""));
    assert_eq!(run.err, "error: --image: name an image that contains glusterd and gluster, by its version or digest\n");
}

/// A file that goes away with its value.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> File {
        let path = std::env::temp_dir().join(format!("stead-gluster-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("a temporary file");
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn what_is_wrong_is_said_before_anything_is_printed() {
    let long = "n".repeat(53);
    let unknown = File::new("unknown.yaml", "replicas: 3\nreplica: 5\n");
    let zero = File::new("zero.yaml", "replicas: 0\n");
    for (args, code, said) in [
        (vec!["--replicas", "0"], 1, "error: --replicas: 0 is no pool: a pool has at least one peer\n"),
        (vec!["-f", zero.path()], 1, "error: --replicas: 0 is no pool"),
        (vec!["-f", unknown.path()], 1, "unknown field `replica`"),
        (vec!["-f", "nosuch.yaml"], 1, "error: reading nosuch.yaml: "),
        (vec!["--name", "Gluster"], 1, "error: --name: \"Gluster\": a lowercase RFC 1123 label"),
        (vec!["--name", &long], 1, "has 53 characters; a StatefulSet's pods need a name of at most 52\n"),
        (vec!["--brick-size", "10Gx"], 1, "error: --brick-size: 10Gx cannot be read"),
        (vec!["--storage-class-provisioner", "x"], 1, "error: --storage-class: a class to make needs a name"),
        (
            vec!["--storage-class-parameters", "a=b"],
            1,
            "error: --storage-class-parameters: needs --storage-class-provisioner",
        ),
        (vec!["--topology", "zones"], 1, "hint: use --from FILE for a Topology in a file"),
        (vec!["--check"], 1, "error: no cluster to connect to"),
        (vec!["--replicas=-1"], 2, "invalid value '-1' for '--replicas <COUNT>'"),
        (vec!["--liveness", "perod=1"], 2, "perod is none of delay, period, timeout, failures"),
        (vec!["--topology", "zones", "--spread-by", "zone"], 2, "cannot be used with"),
    ] {
        let run = manifests(&args);
        assert_eq!((run.code, run.out.as_str()), (Some(code), ""), "{args:?}: {}", run.err);
        assert!(run.err.contains(said), "{args:?}: {}", run.err);
    }
}

#[test]
fn an_even_number_is_warned_of_and_printed() {
    let run = manifests(&["--replicas", "4"]);
    assert_eq!(run.code, Some(0));
    assert!(run.err.starts_with("warning: replicas: 4 is even: ") && run.err.lines().count() == 1, "{}", run.err);
    assert!(run.out.contains("  replicas: 4\n"));
}

/// The documents of a text.
fn yaml(text: &str) -> Vec<Value> {
    let documents = text.split("---\n").filter(|d| !d.is_empty());
    documents.map(|d| serde_saphyr::from_str(d).expect("YAML")).collect()
}

#[test]
fn a_file_of_values_says_the_same_as_flags() {
    let file = File::new(
        "values.yaml",
        "name: pool\nnamespace: storage\nreplicas: 7\nhost-network: true\nrequests: {cpu: 2}\nliveness: {period: 30}\n\
         storage-class: bricks\nstorage-class-provisioner: ebs.csi.aws.com\nstorage-class-parameters: {encrypted: true}\n",
    );
    let by_file = manifests(&["-f", file.path(), "--replicas", "5"]);
    let by_flags = manifests(&[
        "--name=pool",
        "-n",
        "storage",
        "--replicas=5",
        "--host-network",
        "--requests=cpu=2",
        "--liveness=period=30",
        "--storage-class=bricks",
        "--storage-class-provisioner=ebs.csi.aws.com",
        "--storage-class-parameters=encrypted=true",
    ]);
    assert_eq!((by_file.code, by_file.err.as_str()), (Some(0), by_flags.err.as_str()));
    assert_eq!(by_file.out, by_flags.out);
    let list = manifests(&["-f", file.path(), "--replicas", "5", "-o", "json"]).out;
    let list: Value = serde_json::from_str(&list).expect("JSON");
    assert_eq!(list["items"], Value::from(yaml(&by_file.out)), "both forms say the same");
}

#[test]
fn a_topology_from_a_file() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let from = root.join("examples/glance-zones");
    let from = from.to_str().expect("UTF-8");
    let name = "glance-default-spread-pods";
    let run = manifests(&["-n", "openstack", "--topology", name, "--from", from]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let set = yaml(&run.out).pop().expect("a StatefulSet");
    let spread = &set["spec"]["template"]["spec"]["topologySpreadConstraints"];
    assert_eq!(spread[0]["topologyKey"], "zone");
    // That Topology counts the pods of another service.
    assert!(run.err.contains("warning: topology: the spread by zone counts pods with service=glance"), "{}", run.err);
    let other = manifests(&["--topology", name, "--from", from]);
    assert_eq!(other.code, Some(1));
    assert!(other.err.contains("the files have no Topology glance-default-spread-pods for namespace default"));
}

#[test]
fn the_program_copies_itself() {
    let to = File::new("copy", "an older one");
    let run = stead(&["copy-agent", to.path()]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let version = Command::new(&to.0).arg("--version").output().expect("the copy runs");
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("stead "));
}
