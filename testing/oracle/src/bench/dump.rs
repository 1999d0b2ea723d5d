//! Explanations from a large dump: how long they take, and how much memory.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::bounds::Bounds;
use super::memory::peak_of;

const NODES: usize = 5000;
const PODS: usize = 50_000;
const NAMESPACES: usize = 20;
const APPS: usize = 500;

/// The bounds: seconds and megabytes.
const LARGE: Bound = Bound { seconds: 1.5, megabytes: 400.0 };
const SMALL: Bound = Bound { seconds: 0.03, megabytes: 400.0 };

struct Bound {
    seconds: f64,
    megabytes: f64,
}

/// How a dump is written.
#[derive(Clone, Copy)]
enum Written {
    /// Compact JSON.
    Compact,
    /// JSON as `kubectl get -o json --show-managed-fields` prints it.
    ManagedFields,
    /// YAML as `kubectl get -o yaml` prints it.
    Yaml,
}

/// Measures the program on dumps of a large cluster.
pub(crate) fn measure(bounds: &mut Bounds, root: &Path, program: Option<&Path>, runs: usize) -> Result<()> {
    let program = program.map_or_else(|| build(root), |program| Ok(program.to_owned()))?;
    let directory = std::env::temp_dir().join(format!("stead-bench-dump-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    let measured = measure_all(bounds, root, &program, &directory, runs);
    std::fs::remove_dir_all(&directory)?;
    measured
}

fn measure_all(bounds: &mut Bounds, root: &Path, program: &Path, directory: &Path, runs: usize) -> Result<()> {
    println!("explanations from a dump ({NODES} nodes, {PODS} pods)");
    println!("{:<54} {:>8} {:>9} {:>9}", "dump and pod", "MB", "seconds", "peak MB");
    for (name, written, bound) in [
        ("compact.json", Written::Compact, Some(LARGE)),
        ("managed-fields.json", Written::ManagedFields, Some(LARGE)),
        ("cluster.yaml", Written::Yaml, None),
    ] {
        let file = directory.join(name);
        write_cluster(&file, written).with_context(|| format!("cannot write {}", file.display()))?;
        for pod in ["pending", "app-7-7"] {
            row(bounds, program, &file, name, pod, runs, bound.as_ref())?;
        }
        std::fs::remove_file(&file)?;
    }
    let small = root.join("examples/glance-zones");
    row(bounds, program, &small, "examples/glance-zones", "glance-default-external-api-2", runs, Some(&SMALL))?;
    println!();
    Ok(())
}

/// Measures and prints one explanation.
fn row(
    bounds: &mut Bounds,
    program: &Path,
    dump: &Path,
    name: &str,
    pod: &str,
    runs: usize,
    bound: Option<&Bound>,
) -> Result<()> {
    let mut measured = (0..runs.max(1)).map(|_| explain(program, dump, pod)).collect::<Result<Vec<_>>>()?;
    measured.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (seconds, _) = measured[measured.len() / 2];
    let megabytes = measured.iter().map(|(_, peak)| *peak).fold(0.0, f64::max);
    let size = size_of(dump)? as f64 / 1e6;
    let what = format!("{name}, pod {pod}");
    let limits = bound.map(|bound| {
        let time = bounds.at_most(&what, seconds, bound.seconds, "s");
        format!("{time}; {}", bounds.at_most(&what, megabytes, bound.megabytes, "MB"))
    });
    println!("{what:<54} {size:>8.1} {seconds:>9.3} {megabytes:>9.0}  {}", limits.unwrap_or_default());
    Ok(())
}

fn size_of(path: &Path) -> Result<u64> {
    if path.is_file() {
        return Ok(path.metadata()?.len());
    }
    std::fs::read_dir(path)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
}

/// Builds the program as it is released.
fn build(root: &Path) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).current_dir(root).args(["build", "--release", "--package", "stead"]).status()?;
    ensure!(status.success(), "stead could not be built");
    let here = std::env::current_exe()?;
    let program = here.with_file_name("stead");
    ensure!(program.exists(), "{} does not exist", program.display());
    Ok(program)
}

/// Seconds and peak megabytes of one explanation.
fn explain(program: &Path, dump: &Path, pod: &str) -> Result<(f64, f64)> {
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(["explain", "pod", pod, "--from"])
        .arg(dump)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut peak = 0.0;
    loop {
        peak = peak_of(&child.id().to_string()).unwrap_or(peak);
        if let Some(status) = child.try_wait()? {
            let seconds = start.elapsed().as_secs_f64();
            ensure!(status.code() == Some(0), "explaining pod {pod} failed: {status}");
            return Ok((seconds, peak));
        }
        std::thread::sleep(Duration::from_millis(1));
        if start.elapsed() > Duration::from_secs(120) {
            child.kill()?;
            bail!("explaining pod {pod} takes more than two minutes");
        }
    }
}

/// Writes the list that kubectl prints.
fn write_cluster(file: &Path, written: Written) -> Result<()> {
    let mut out = BufWriter::new(File::create(file)?);
    let items = (0..NODES).map(node).chain((0..PODS).map(|i| pod(i, Some(i * 7 % NODES)))).chain([pending()]);
    let managed = matches!(written, Written::ManagedFields);
    let items = items.map(|item| if managed { with_managed_fields(item) } else { item });
    match written {
        Written::Yaml => writeln!(out, "apiVersion: v1\nitems:")?,
        _ => write!(out, "{{\"apiVersion\":\"v1\",\"items\":[")?,
    }
    for (i, item) in items.enumerate() {
        let comma = if i == 0 { "" } else { "," };
        match written {
            Written::Compact => write!(out, "{comma}{item}")?,
            Written::ManagedFields => write!(out, "{comma}\n{item:#}")?,
            Written::Yaml => write_yaml(&mut out, &item, 0, true)?,
        }
    }
    match written {
        Written::Yaml => writeln!(out, "kind: List\nmetadata:\n  resourceVersion: \"\"")?,
        _ => writeln!(out, "],\"kind\":\"List\",\"metadata\":{{\"resourceVersion\":\"\"}}}}")?,
    }
    Ok(out.flush()?)
}

/// YAML as kubectl prints it: block style, lists not indented. Strings are quoted, which is never wrong.
fn write_yaml(out: &mut impl Write, value: &Value, indent: usize, in_list: bool) -> Result<()> {
    let pad = |first: bool| match (first, in_list) {
        (true, true) => format!("{}- ", " ".repeat(indent)),
        (_, true) => " ".repeat(indent + 2),
        (_, false) => " ".repeat(indent),
    };
    let Value::Object(fields) = value else {
        writeln!(out, "{}{value}", pad(true))?;
        return Ok(());
    };
    let inner = if in_list { indent + 2 } else { indent };
    for (i, (name, value)) in fields.iter().enumerate() {
        write!(out, "{}{name}:", pad(i == 0))?;
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                writeln!(out)?;
                write_yaml(out, value, inner + 2, false)?;
            }
            Value::Array(items) if !items.is_empty() => {
                writeln!(out)?;
                items.iter().try_for_each(|item| write_yaml(out, item, inner, true))?;
            }
            value => writeln!(out, " {value}")?,
        }
    }
    Ok(())
}

pub(super) fn node(i: usize) -> Value {
    let name = format!("node-{i}");
    let size = json!({ "cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "400Gi" });
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name, "uid": uid(1, i), "resourceVersion": (1000 + i).to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {
                "kubernetes.io/hostname": name, "topology.kubernetes.io/zone": format!("zone-{}", i % 3),
                "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            },
        },
        "spec": { "providerID": format!("example:///node-{i}") },
        "status": {
            "allocatable": size, "capacity": size,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady",
                "lastHeartbeatTime": "2026-02-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:01:00Z",
            }],
        },
    })
}

pub(super) fn pod(i: usize, node: Option<usize>) -> Value {
    let app = i % APPS;
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("app-{app}-{i}"), "namespace": format!("team-{}", app % NAMESPACES), "uid": uid(2, i),
            "resourceVersion": (10_000 + i).to_string(), "creationTimestamp": "2026-01-15T10:00:00Z",
            "labels": { "app": format!("app-{app}"), "pod-template-hash": format!("5d8c7b9f{app}") },
        },
        "spec": {
            "containers": [{
                "name": "main", "image": format!("registry.example.com/team/app-{app}:1.2.3"),
                "resources": { "requests": { "cpu": format!("{}m", 50 + app % 5 * 10), "memory": "128Mi" } },
            }],
        },
        "status": { "phase": "Pending" },
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(format!("node-{node}"));
        pod["status"] = json!({
            "phase": "Running", "startTime": "2026-01-15T10:00:01Z",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-15T10:00:05Z" }],
        });
    }
    pod
}

/// A pod that fits on no node.
fn pending() -> Value {
    let mut pod = pod(0, None);
    pod["metadata"]["name"] = json!("pending");
    pod["metadata"]["uid"] = json!(uid(3, 0));
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("40");
    pod["spec"]["nodeSelector"] = json!({ "topology.kubernetes.io/zone": "zone-1" });
    pod
}

fn uid(kind: usize, i: usize) -> String {
    format!("0e9f4c1a-7b1d-4c3e-9a{kind:02}-{i:012}")
}

/// What the API server adds for each component that has written an object.
fn with_managed_fields(mut object: Value) -> Value {
    let entry = |manager: &str, fields: &Value, subresource: Option<&str>| {
        let mut entry = json!({
            "manager": manager, "operation": "Update", "apiVersion": "v1", "time": "2026-01-15T10:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields_of(fields),
        });
        if let Some(subresource) = subresource {
            entry["subresource"] = json!(subresource);
        }
        entry
    };
    let written = json!({ "metadata": { "labels": object["metadata"]["labels"] }, "spec": object["spec"] });
    let status = json!({ "status": object["status"] });
    object["metadata"]["managedFields"] =
        json!([entry("kube-controller-manager", &written, None), entry("kubelet", &status, Some("status"))]);
    object
}

fn fields_of(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (format!("f:{name}"), fields_of(value))).collect(),
        Value::Array(items) => {
            let key =
                |item: &Value| ["name", "type"].iter().find_map(|key| Some((*key, item[*key].as_str()?.to_owned())));
            let keyed = items.iter().filter_map(|item| Some((key(item)?, item)));
            keyed.map(|((key, name), item)| (format!("k:{{\"{key}\":\"{name}\"}}"), fields_of(item))).collect()
        }
        _ => json!({}),
    }
}
