//! The walk-through with the operator killed at random moments, and behind a faulty proxy.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stead_stage::disturb::{self, SeededRandom, WalkResult};
use stead_stage::program;
use stead_testbed::{Binaries, Outcome, Tally};

use crate::{root, runtime};

/// How much to play.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often to kill the operator, over as many walks as that takes
    #[arg(long, default_value_t = 100)]
    kills: u32,
    /// How often at most in one walk
    #[arg(long, default_value_t = 20)]
    kills_a_walk: u32,
    /// How many walks behind the proxy
    #[arg(long, default_value_t = 3)]
    proxies: u64,
    /// How many per cent of the requests fail, for each kind of fault
    #[arg(long, default_value_t = 4.0)]
    percent: f64,
    /// The seed of all random choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many minutes to check, after the first walk, that nothing is written
    #[arg(long, default_value_t = 1)]
    rest_minutes: u64,
    /// Print each step of each walk
    #[arg(long)]
    steps: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped) };
    let stead = program("stead")?;
    let runtime = runtime()?;
    runtime.block_on(play(args, &binaries, &stead))?;
    println!("disturb: passed");
    Ok(Outcome::Passed)
}

async fn play(args: &Args, binaries: &Binaries, stead: &Path) -> Result<()> {
    let storage = root().join("testdata/cluster/storage.yaml");
    let storage = std::fs::read_to_string(&storage).with_context(|| format!("reading {}", storage.display()))?;
    let stage = disturb::open(binaries, stead, &storage).await?;
    let mut say = |step: &str| {
        if args.steps {
            println!("  {step}");
        }
    };
    let rest = Duration::from_secs(60 * args.rest_minutes);
    println!("undisturbed, then {} minutes at rest", args.rest_minutes);
    let reference = disturb::play_undisturbed(&stage, rest, &mut say).await?;
    println!("  {}; no write at rest", counts(&reference));
    let mut random = SeededRandom(args.seed);
    let mut kills = 0;
    while kills < args.kills {
        let most = args.kills_a_walk.min(args.kills - kills);
        let walked = disturb::play_with_kills(&stage, &reference, most, &mut random, &mut say).await?;
        kills += walked.kills;
        println!(
            "killed {} times ({kills} of {}): {}; the same final state",
            walked.kills,
            args.kills,
            counts(&walked)
        );
    }
    for index in 0..args.proxies {
        let seed = args.seed.wrapping_add(index);
        let (walked, tally) =
            disturb::play_behind_faulty_proxy(&stage, &reference, args.percent / 100.0, seed, &mut say).await?;
        ensure!(tally.faults() > 20, "the proxy caused too few faults: {tally:?}");
        println!("behind the proxy, seed {seed}: {}; {}; the same final state", faults(&tally), counts(&walked));
    }
    Ok(())
}

fn counts(walked: &WalkResult) -> String {
    let recreated: u64 = walked.deleted.values().sum();
    let created: u64 = walked.created.values().sum();
    format!(
        "{:.0} s, {} objects at the end, {created} created, of them {recreated} StatefulSets recreated",
        walked.duration.as_secs_f64(),
        walked.state.len()
    )
}

fn faults(tally: &Tally) -> String {
    format!(
        "{} requests, {} x 409, {} x 429, {} x 500, {} lost responses, {} delays, {} stalled watches",
        tally.requests, tally.conflicts, tally.too_many, tally.internal, tally.lost_answers, tally.delays, tally.stalls
    )
}
