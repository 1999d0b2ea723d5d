//! A Gluster pool on the real thing: every scene, faults at random, and figures.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use stead_stage::pool::{self, PoolStage};
use stead_stage::program;
use stead_testbed::{Binaries, Outcome};

use crate::{debian, runtime};

/// A peer is connected before this, and an agent stays below that.
const LATEST: Duration = Duration::from_secs(10);
const MEMORY: u64 = 20_000_000;

/// What is played.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// So many random runs, with two faults at a time.
    #[arg(long, default_value_t = 0)]
    runs: u32,
    /// What the random runs are drawn from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Measure how quick the pool is and what an agent costs.
    #[arg(long)]
    measure: bool,
    /// Play every scene; this is what is done if nothing else is asked for.
    #[arg(long)]
    scenes: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped) };
    debian::get("glusterd", "glusterfs-server");
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
        say("a pool on the network of its nodes");
        pool::on_the_nodes_network(&PoolStage::open(binaries, stead).await?).await?;
    }
    if args.runs > 0 {
        pool::runs(&PoolStage::open(binaries, stead).await?, args.runs, args.seed, &mut say).await?;
    }
    if args.measure {
        // What is shipped is measured, not what is quick to build.
        let shipped = stead_image::program()?;
        let figures = pool::measure(&PoolStage::open(binaries, &shipped).await?).await?;
        let seconds = |times: &[Duration]| {
            times.iter().map(|time| format!("{:.1} s", time.as_secs_f64())).collect::<Vec<_>>().join(", ")
        };
        println!("from a new pod that runs to a connected peer: {}", seconds(&figures.joined));
        println!("from a pod without its state that runs to a connected peer: {}", seconds(&figures.restored));
        let (agent, container) = (figures.agent.as_secs_f64(), figures.container.as_secs_f64());
        println!("the agents' memory at most: {:.1} MB", figures.memory as f64 / 1e6);
        println!(
            "CPU time in a minute at rest: the agent {agent:.2} s, with glusterd and what it is asked {container:.2} s"
        );
        let late = figures.joined.iter().chain(&figures.restored).find(|time| **time > LATEST);
        ensure!(late.is_none(), "a peer took {late:?} to be connected");
        ensure!(figures.memory < MEMORY, "an agent took {} bytes", figures.memory);
    }
    Ok(())
}
