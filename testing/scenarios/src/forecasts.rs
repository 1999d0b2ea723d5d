//! Compares the forecasts of `stead explain` for random outages with what happens.

use anyhow::Result;
use stead_machines::Machines;
use stead_stage::forecasts::{self, PlaySettings, Timeouts};
use stead_stage::program;
use stead_testbed::{Binaries, Outcome};

use crate::runtime;

/// Which outages to play, and with which timers.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many situations
    #[arg(long, default_value_t = 40)]
    situations: u32,
    /// The seed that they are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only these, by number
    #[arg(long, value_delimiter = ',')]
    only: Vec<u32>,
    /// How many are played at the same time [default: 10, or all with real timers]
    #[arg(long)]
    at_once: Option<usize>,
    /// Use Kubernetes' own timeouts: half an hour, with a tolerance of ten seconds instead of three
    #[arg(long)]
    real_timers: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped) };
    if !Machines::can_run_or_skip() {
        return Ok(Outcome::Skipped);
    }
    let stead = program("stead")?;
    let (timeouts, at_once) =
        if args.real_timers { (Timeouts::REAL, args.situations as usize) } else { (Timeouts::FAST, 10) };
    let numbers = if args.only.is_empty() { (0..args.situations).collect() } else { args.only.clone() };
    let settings = PlaySettings { numbers, seed: args.seed, at_once: args.at_once.unwrap_or(at_once), timeouts };
    let runtime = runtime()?;
    let tally = runtime.block_on(forecasts::play(&binaries, &stead, &settings, &mut |line| println!("{line}")))?;
    println!("\n{tally}, within {} s, seed {}", settings.timeouts.max_error.as_secs(), args.seed);
    Ok(if tally.is_good() { Outcome::Passed } else { Outcome::Failed })
}
