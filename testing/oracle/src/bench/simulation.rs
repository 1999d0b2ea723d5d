//! Measures the simulation: the first field report, a large cluster that starts, and the loss of a zone.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use stead_sim::{Choices, MachineSpec, MachineState, Settings, SimObject, Simulation, Write};
use stead_whatif::{Manifests, Rehearsal, Scene, play};

use super::bounds::Bounds;
use super::memory::{peak_megabytes, reset_peak};

/// The large cluster.
const NODES: usize = 5000;
const SETS: usize = 500;
const REPLICAS: usize = 100;

/// The cluster that loses a zone: nodes in each of three zones, and pods on each of them.
const NODES_OF_ZONE: usize = 300;
const PODS_OF_NODE: usize = 10;

pub(crate) fn measure(bounds: &mut Bounds, runs: usize) -> Result<()> {
    println!("the simulation");
    first_report(bounds, runs)?;
    large_cluster(bounds)?;
    lost_zone(bounds)?;
    println!();
    Ok(())
}

/// The rehearsal that `stead rehearse` plays first, with its 2 days and 19 hours.
fn first_report(bounds: &mut Bounds, runs: usize) -> Result<()> {
    let file = crate::root().join("examples/rehearsals/glance.yaml");
    let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let rehearsal: Rehearsal = serde_saphyr::from_str(&text).with_context(|| format!("reading {}", file.display()))?;
    let mut times = Vec::new();
    for _ in 0..runs.max(1) {
        let start = Instant::now();
        let scene = Scene::new(&rehearsal, None).context("the scene of the first report")?;
        let run = play(&rehearsal, scene.start(0)?, &Manifests::default());
        times.push(start.elapsed().as_secs_f64() * 1e3);
        ensure!(run.passed(), "the first report fails: {:?}", run.failure());
    }
    times.sort_by(f64::total_cmp);
    bounds.row_at_most("the first field report, 2 d 19 h", times[times.len() / 2], 100.0, "ms");
    Ok(())
}

/// Nodes and StatefulSets are created, and run until every pod is Ready.
fn large_cluster(bounds: &mut Bounds) -> Result<()> {
    reset_peak();
    let what = format!("{NODES} nodes and {} pods of StatefulSets start", SETS * REPLICAS);
    let start = Instant::now();
    let mut simulation = cluster(NODES)?;
    for set in 0..SETS {
        stateful_set(&mut simulation, set, REPLICAS)?;
    }
    let until = simulation.now() + SignedDuration::from_hours(2);
    run_until_ready(&mut simulation, SETS * REPLICAS, until)?;
    let seconds = start.elapsed().as_secs_f64();
    bounds.row_at_most(&what, seconds, 30.0, "s");
    bounds.row_at_most("  its memory", peak_megabytes()?, 1500.0, "MB");
    #[expect(clippy::cast_precision_loss, reason = "there are far fewer steps")]
    let rate = simulation.steps() as f64 / seconds;
    bounds.row_at_least("  simulated events in each second", rate, 200_000.0, "");
    Ok(())
}

/// All nodes of a zone fall silent for half an hour, and come back.
fn lost_zone(bounds: &mut Bounds) -> Result<()> {
    let nodes = NODES_OF_ZONE * 3;
    let mut simulation = cluster(nodes)?;
    for set in 0..nodes * PODS_OF_NODE / REPLICAS {
        stateful_set(&mut simulation, set, REPLICAS)?;
    }
    let until = simulation.now() + SignedDuration::from_hours(2);
    run_until_ready(&mut simulation, nodes * PODS_OF_NODE, until)?;
    let zone: Vec<String> = (0..nodes).filter(|i| i % 3 == 0).map(node_name).collect();
    let start = Instant::now();
    for node in &zone {
        simulation.fail(node, MachineState::Suspended)?;
    }
    simulation.run_for(SignedDuration::from_mins(30))?;
    let lost = ready_pods(&simulation);
    for node in &zone {
        simulation.heal(node)?;
    }
    let until = simulation.now() + SignedDuration::from_hours(1);
    run_until_ready(&mut simulation, nodes * PODS_OF_NODE, until)?;
    let seconds = start.elapsed().as_secs_f64();
    ensure!(lost < nodes * PODS_OF_NODE, "the loss of a zone has no consequence");
    bounds.row_at_most(&format!("a zone of {NODES_OF_ZONE} nodes is lost and restored"), seconds, 2.0, "s");
    Ok(())
}

fn node_name(i: usize) -> String {
    format!("node-{i}")
}

/// Machines in three zones.
fn cluster(nodes: usize) -> Result<Simulation> {
    let now: Timestamp = "2026-01-01T00:00:00Z".parse()?;
    let mut simulation = Simulation::new(now, Settings::default(), Choices::seeded(1));
    for i in 0..nodes {
        let zone = format!("zone-{}", i % 3);
        simulation.add_machine(MachineSpec::named(node_name(i)).with_label("topology.kubernetes.io/zone", &zone))?;
    }
    Ok(simulation)
}

/// Every other StatefulSet starts its pods in order.
fn stateful_set(simulation: &mut Simulation, number: usize, replicas: usize) -> Result<()> {
    let name = format!("db-{number}");
    let policy = if number.is_multiple_of(2) { "OrderedReady" } else { "Parallel" };
    let object = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": policy,
            "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{
                    "name": "main", "image": "registry.example/db:1",
                    "resources": { "requests": { "cpu": "100m", "memory": "128Mi" } },
                }] },
            },
        },
    });
    simulation.request(Write::Create(SimObject::from_json(&object)?))?;
    Ok(())
}

/// Runs until so many pods are Ready.
fn run_until_ready(simulation: &mut Simulation, pods: usize, until: Timestamp) -> Result<()> {
    // Every pod is looked at only once in a second of virtual time.
    while ready_pods(simulation) < pods {
        ensure!(simulation.now() < until, "{} of {pods} pods are Ready by {until}", ready_pods(simulation));
        simulation.run_for(SignedDuration::from_secs(1))?;
    }
    Ok(())
}

fn ready_pods(simulation: &Simulation) -> usize {
    let is_ready = |pod: &Pod| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        pod.metadata.deletion_timestamp.is_none()
            && conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    };
    simulation.store().all::<Pod>().filter(|pod| is_ready(pod)).count()
}
