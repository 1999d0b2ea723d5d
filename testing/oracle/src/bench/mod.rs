//! Measures how fast pods are placed, compared with kube-scheduler's algorithm on the same batches, the memory of a large
//! cluster, the simulation and its forecasts, the time of triage, explanations from a large dump, and the size and start
//! of the released program.

mod batches;
mod bounds;
mod dump;
mod forecasts;
mod memory;
mod simulation;
mod startup;
mod triage;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use stead_model::KubernetesVersion;
use stead_placement::{Batch, place_all};

use crate::program;
use batches::Kind;
use bounds::Bounds;

/// Options of the benchmark.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// kube-scheduler's algorithm as a program, for comparison [default: oracle in $STEAD_REAL or the cache]
    #[arg(long, env = "STEAD_ORACLE")]
    oracle: Option<PathBuf>,
    /// Do not measure kube-scheduler
    #[arg(long)]
    alone: bool,
    /// Only parts whose name contains this: memory, simulation, forecasts, startup, triage, dump, or the name of a batch
    #[arg(long)]
    only: Option<String>,
    /// Fail if a bound is missed
    #[arg(long)]
    check: bool,
    /// Measure explanations with this program instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// How often ours is run; the median counts
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// The batches: nodes, queued pods, kind, existing pods.
const BATCHES: [(usize, usize, Kind, usize); 5] = [
    (1000, 2000, Kind::Spread, 0),
    (1000, 2000, Kind::Anti, 0),
    (1000, 2000, Kind::Mixed, 0),
    (1000, 2000, Kind::Basic, 0),
    (5000, 1000, Kind::Spread, 5000),
];

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(!cfg!(debug_assertions), "only an optimized build is worth measuring: `cargo xtask bench`");
    let wanted = |name: &str| args.only.as_ref().is_none_or(|part| name.contains(part.as_str()));
    // First, before other measurements allocate memory.
    if wanted("memory") {
        memory::measure()?;
    }
    let mut bounds = Bounds::default();
    if wanted("simulation") {
        simulation::measure(&mut bounds, args.runs)?;
    }
    if wanted("forecasts") {
        forecasts::measure(&mut bounds, args.runs)?;
    }
    if wanted("startup") {
        startup::measure(&mut bounds)?;
    }
    if wanted("triage") {
        triage::measure(&mut bounds, args.runs)?;
    }
    if wanted("dump") {
        dump::measure(&mut bounds, &crate::root(), args.program.as_deref(), args.runs)?;
    }
    let oracle = if args.alone { None } else { program::find(args.oracle.as_deref(), KubernetesVersion::NEWEST) };
    println!("{:<36} {:>12} {:>16} {:>7}", "batch", "ours pods/s", "kube-scheduler", "ratio");
    for (nodes, queue, kind, present) in BATCHES {
        let name = format!("{nodes} nodes, {present} + {queue} {}", kind.name());
        if !wanted(&name) {
            continue;
        }
        let batch = batches::batch(nodes, queue, kind, present);
        let ours = rate(&batch, args.runs)?;
        match &oracle {
            None => println!("{name:<36} {ours:>12.0} {:>16} {:>7}", "-", "-"),
            Some(oracle) => {
                let theirs = program::rate(oracle, &batch)?;
                println!("{name:<36} {ours:>12.0} {theirs:>16.0} {:>6.0}x", ours / theirs);
            }
        }
    }
    bounds.finish(args.check)
}

/// Measures pods per second, like kube-scheduler's benchmark: from the object of each queued pod until it is assumed on
/// a node.
fn rate(batch: &Batch, runs: usize) -> Result<f64> {
    let mut times = Vec::new();
    for run in 0..runs.max(1) {
        let mut cluster = batch.cluster()?;
        let start = Instant::now();
        let nodes = place_all(&mut cluster, &batch.queue, run as u64)?;
        times.push(start.elapsed().as_secs_f64());
        let placed = nodes.iter().flatten().count();
        ensure!(placed == batch.queue.len(), "only {placed} of {} pods were placed", batch.queue.len());
    }
    times.sort_by(f64::total_cmp);
    let middle = times.get(times.len() / 2).context("at least one run")?;
    Ok(batch.queue.len() as f64 / middle)
}
