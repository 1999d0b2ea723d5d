//! Random recoveries on the real control plane: a volume never has two writers.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use stead_machines::Machines;
use stead_stage::program;
use stead_stage::recoveries::{PlayedRun, RecoveryStage, RunResult};
use stead_testbed::{Binaries, Outcome};

use crate::runtime;

/// The result of a run in which nobody could truthfully confirm that the machine is off, or nothing was written.
const NOTHING: &str = "not started";

/// How much to play.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many runs
    #[arg(long, default_value_t = 60)]
    runs: u32,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first run: with `--runs 1`, repeats one
    #[arg(long, default_value_t = 0)]
    from: u32,
    /// How many at the same time
    #[arg(long, default_value_t = 4)]
    lanes: usize,
    /// Print every step of each run, not only of those that fail
    #[arg(long)]
    steps: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped) };
    if !Machines::can_run_or_skip() {
        return Ok(Outcome::Skipped);
    }
    let stead = program("stead")?;
    let runtime = runtime()?;
    let failed = runtime.block_on(play(args, &binaries, &stead))?;
    println!("recoveries: {}", if failed == 0 { "passed" } else { "FAILED" });
    Ok(if failed == 0 { Outcome::Passed } else { Outcome::Failed })
}

async fn play(args: &Args, binaries: &Binaries, stead: &Path) -> Result<usize> {
    let stage = RecoveryStage::open(binaries, stead, args.lanes).await?;
    let (began, mut all, mut failed) = (Instant::now(), Vec::new(), Vec::new());
    let mut say = |played: PlayedRun| {
        let PlayedRun { number, spec, duration, log, result } = played;
        let seconds = duration.as_secs_f64();
        match result {
            Ok(result) => {
                println!("run {number}: {spec}: {}, {seconds:.0} s", summary(&result));
                if args.steps {
                    println!("{log}");
                }
                all.push(result);
            }
            Err(error) => {
                println!("run {number}: {spec}: FAILED, {seconds:.0} s\n{error:#}\n{log}");
                failed.push(number);
            }
        }
    };
    stage.play(args.from..args.from + args.runs, args.seed, &mut say).await;
    let sum = |what: fn(&RunResult) -> u64| all.iter().map(what).sum::<u64>();
    println!(
        "{} runs of seed {} in {:.0} s: {} passed (never two writers, nothing lost, nothing left behind), {} failed {failed:?}",
        args.runs,
        args.seed,
        began.elapsed().as_secs_f64(),
        all.len(),
        failed.len()
    );
    println!(
        "{} calls, {} writes, {} taints applied, {} API faults, {} disks detached from resumed processes",
        sum(|r| r.calls),
        sum(|r| r.writes),
        sum(|r| r.taints),
        sum(|r| r.faults),
        sum(|r| r.detached)
    );
    println!("final phases: {}", counted(all.iter().map(|r| r.phase.clone().unwrap_or_else(|| NOTHING.into()))));
    println!("killed after write: {}", counted(all.iter().flat_map(|r| r.killed_after.clone())));
    println!("phase when the machine came back: {}", counted(all.iter().flat_map(|r| r.phases_at_return.clone())));
    // Runs without a taint would prove nothing.
    ensure!(args.runs < 5 || sum(|r| r.taints) > 0, "no run applied the taint");
    Ok(failed.len())
}

/// Returns how often each value occurs.
fn counted<T: Ord + Display>(all: impl Iterator<Item = T>) -> String {
    let mut counts = BTreeMap::<T, usize>::new();
    all.for_each(|one| *counts.entry(one).or_default() += 1);
    counts.iter().map(|(one, count)| format!("{one} x {count}")).collect::<Vec<_>>().join(", ")
}

fn summary(result: &RunResult) -> String {
    let RunResult { phase, calls, killed_after, writes, taints, faults, detached, .. } = result;
    let (phase, kills) = (phase.as_deref().unwrap_or(NOTHING), killed_after.len());
    format!(
        "{phase}; {calls} calls, {kills} killed, {writes} writes, {taints} taints applied, {faults} faults, {detached} detached"
    )
}
