//! The memory of a large cluster, and the cost of a fork.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Pod as RawPod;
use serde_json::{Value, json};
use stead_placement::{Cluster, Node, Pod};

use super::batches;

const NODES: usize = 5000;
const PODS: usize = 50_000;
const APPS: usize = 200;

/// Returns the resident set size of this process in bytes.
fn resident() -> Result<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").context("/proc/self/statm: only on Linux")?;
    let pages = text.split(' ').nth(1).context("the second field of /proc/self/statm")?;
    // The usual page size.
    Ok(pages.parse::<usize>()? * 4096)
}

/// Forgets the largest resident set size of this process so far.
pub(crate) fn reset_peak() {
    // Where this is not possible, the peak includes what was measured before.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The largest resident set size of this process, in megabytes.
pub(crate) fn peak_megabytes() -> Result<f64> {
    peak_of("self").context("/proc/self/status: only on Linux")
}

/// The largest resident set size of a process, in megabytes; none once it has ended.
pub(crate) fn peak_of(process: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}

fn megabytes(bytes: usize) -> usize {
    bytes / 1_000_000
}

/// A pod as Helm charts create it. Every third application is a StatefulSet, whose pods have their name as a label.
fn pod(i: usize, node: Option<usize>) -> RawPod {
    let app = i % APPS;
    let name = format!("app-{app}-{i}");
    let mut labels = json!({
        "app.kubernetes.io/name": format!("app-{app}"),
        "app.kubernetes.io/instance": format!("app-{app}-main"),
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/part-of": format!("suite-{}", app % 10),
        "helm.sh/chart": format!("app-{app}-1.2.3"),
    });
    let (key, value): (&str, Value) = match app % 3 {
        0 => ("statefulset.kubernetes.io/pod-name", json!(name)),
        _ => ("pod-template-hash", json!(format!("5d8c7b9f{app}"))),
    };
    labels[key] = value;
    let selector = json!({"matchLabels": {
        "app.kubernetes.io/name": format!("app-{app}"), "app.kubernetes.io/instance": format!("app-{app}-main"),
    }});
    let container = |name: &str, cpu: usize| {
        json!({
            "name": name, "image": format!("registry.example.com/team/{name}-{app}:1.2.3"),
            "resources": {
                "requests": {"cpu": format!("{cpu}m"), "memory": "128Mi"},
                "limits": {"memory": "256Mi"},
            },
        })
    };
    let mut spec = json!({
        "containers": [container("main", 50 + app % 5 * 10), container("sidecar", 20)],
        "topologySpreadConstraints": batches::spread(&selector),
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
    });
    if let Some(node) = node {
        spec["nodeName"] = json!(format!("node-{node}"));
    }
    let meta = json!({
        "name": name, "namespace": format!("team-{}", app % 20), "labels": labels,
        "uid": format!("0e9f4c1a-7b1d-4c3e-9a55-{i:012}"),
    });
    batches::object(json!({"metadata": meta, "spec": spec, "status": {"startTime": "2026-01-01T00:00:00Z"}}))
}

/// Returns the median run time of a function.
fn median_time(mut what: impl FnMut() -> Result<()>) -> Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..21 {
        let start = Instant::now();
        what()?;
        times.push(start.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

pub(crate) fn measure() -> Result<()> {
    let before = resident()?;
    let mut cluster = Cluster::new();
    for i in 0..NODES {
        cluster.set_node(Node::compile(&batches::node(i))?);
    }
    for i in 0..PODS {
        cluster.set_pod(Pod::compile(&pod(i, Some(i * 7 % NODES)), cluster.version())?);
    }
    println!("{NODES} nodes and {PODS} pods of {APPS} applications");
    println!("  the cluster: {} MB", megabytes(resident()?.saturating_sub(before)));
    println!("  a fork of it: {:?}", median_time(|| fork(&cluster))?);
    let start = Instant::now();
    for app in 0..APPS {
        let pod = Pod::compile(&pod(PODS + app, None), cluster.version())?;
        place(&mut cluster, &pod)?;
    }
    println!("  a first pod of every application placed: {:?}", start.elapsed());
    println!("  the cluster with its indexes: {} MB", megabytes(resident()?.saturating_sub(before)));
    println!("  a fork of it: {:?}", median_time(|| fork(&cluster))?);
    let pods =
        (0..21).map(|i| Pod::compile(&pod(PODS + APPS + i, None), cluster.version())).collect::<Result<Vec<_>, _>>()?;
    let mut next = pods.iter().cycle();
    let took = median_time(|| {
        let mut fork = cluster.clone();
        place(&mut fork, next.next().context("the iterator is infinite")?)
    })?;
    println!("  a fork of it, and a pod placed there: {took:?}");
    println!();
    Ok(())
}

fn fork(cluster: &Cluster) -> Result<()> {
    std::hint::black_box(cluster.clone());
    Ok(())
}

fn place(cluster: &mut Cluster, pod: &Pod) -> Result<()> {
    let node = cluster.place(pod)?.choose(0).cloned().with_context(|| format!("no place for {}", pod.key))?;
    cluster.assume(pod, &node)?;
    Ok(())
}
