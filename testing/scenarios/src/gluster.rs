//! A Gluster pool on real glusterd: every scene, random faults, and measurements.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use stead_stage::pool::{self, PoolStage};
use stead_stage::program;
use stead_testbed::{Binaries, Outcome};

use crate::{debian, runtime};

/// The limits of the measurements: the time until a peer is connected, and the memory of an agent in bytes.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(10);
const MAX_MEMORY: u64 = 20_000_000;

/// What to play.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many random runs, with two faults at a time
    #[arg(long, default_value_t = 0)]
    runs: u32,
    /// The seed of the random runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure how fast peers connect, and what an agent costs
    #[arg(long)]
    measure: bool,
    /// Play every scene (the default)
    #[arg(long)]
    scenes: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped) };
    debian::ensure_installed("glusterd", "glusterfs-server");
    if !pool::can_run_or_skip() {
        return Ok(Outcome::Skipped);
    }
    let stead = program("stead")?;
    let runtime = runtime()?;
    runtime.block_on(play(args, &binaries, &stead))?;
    println!("gluster: passed");
    Ok(Outcome::Passed)
}

async fn play(args: &Args, binaries: &Binaries, stead: &Path) -> Result<()> {
    let mut say = |line: &str| println!("{line}");
    if args.scenes || (args.runs == 0 && !args.measure) {
        pool::play(&PoolStage::open(binaries, stead).await?, &mut say).await?;
        say("a pool with host network");
        pool::play_on_host_network(&PoolStage::open(binaries, stead).await?).await?;
    }
    if args.runs > 0 {
        pool::play_random(&PoolStage::open(binaries, stead).await?, args.runs, args.seed, &mut say).await?;
    }
    if args.measure {
        // The shipped program is measured, not a development build.
        let shipped = stead_dist::program()?;
        let measured = pool::measure(&PoolStage::open(binaries, &shipped).await?).await?;
        let seconds = |times: &[Duration]| {
            times.iter().map(|time| format!("{:.1} s", time.as_secs_f64())).collect::<Vec<_>>().join(", ")
        };
        println!("from a running new pod to a connected peer: {}", seconds(&measured.joined));
        println!("from a running pod without its state to a connected peer: {}", seconds(&measured.restored));
        let (agent, container) = (measured.agent.as_secs_f64(), measured.container.as_secs_f64());
        println!("largest memory of an agent: {:.1} MB", measured.memory as f64 / 1e6);
        println!("CPU time per minute at rest: {agent:.2} s for the agent, {container:.2} s with glusterd");
        let late = measured.joined.iter().chain(&measured.restored).find(|time| **time > MAX_CONNECT_TIME);
        ensure!(late.is_none(), "a peer took {late:?} to be connected");
        ensure!(measured.memory < MAX_MEMORY, "an agent used {} bytes", measured.memory);
    }
    Ok(())
}
