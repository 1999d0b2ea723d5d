//! Measures what many GlanceAPIs cost the operator, and what a restart costs.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use stead_stage::disturb;
use stead_stage::program;
use stead_stage::scale::{self, Effort};
use stead_testbed::{Binaries, Outcome};

use crate::{root, runtime};

/// How many objects to create.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many GlanceAPIs, with a pod each
    #[arg(long, default_value_t = 200)]
    apis: usize,
    /// In how many namespaces, with a Glance each
    #[arg(long, default_value_t = 5)]
    namespaces: usize,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped) };
    let stead = program("stead")?;
    let runtime = runtime()?;
    let quiet = runtime.block_on(play(args, &binaries, &stead))?;
    println!("scale: {}", if quiet { "passed" } else { "FAILED" });
    Ok(if quiet { Outcome::Passed } else { Outcome::Failed })
}

async fn play(args: &Args, binaries: &Binaries, stead: &Path) -> Result<bool> {
    let storage = root().join("testdata/cluster/storage.yaml");
    let storage = std::fs::read_to_string(&storage).with_context(|| format!("reading {}", storage.display()))?;
    let stage = disturb::open(binaries, stead, &storage).await?;
    let kubeconfig = disturb::kubeconfig(&stage)?;
    let (first, second) = scale::play(&stage, &kubeconfig, args.apis, args.namespaces).await?;
    ensure!(!first.writes.is_empty(), "the first operator wrote nothing");
    println!("| {} GlanceAPIs in {} namespaces | from nothing | restarted |", args.apis, args.namespaces);
    println!("|---|---|---|");
    let seconds = |effort: &Effort| [effort.ready, effort.done].map(|time| format!("{:.1} s", time.as_secs_f64()));
    let ([ready, done], [again, idle]) = (seconds(&first), seconds(&second));
    println!("| until ready | {ready} | {again} |");
    println!("| until everything is done and the queue is empty | {done} | {idle} |");
    println!("| writes, without the Lease | {} | {} |", first.writes.len(), second.writes.len());
    let verbs = first.requests.keys().chain(second.requests.keys().filter(|v| !first.requests.contains_key(*v)));
    for verb in verbs {
        let count = |effort: &Effort| effort.requests.get(verb).copied().unwrap_or(0);
        println!("| requests: {verb} | {} | {} |", count(&first), count(&second));
    }
    let mib = |effort: &Effort| effort.memory / (1 << 20);
    println!("| peak memory | {} MiB | {} MiB |", mib(&first), mib(&second));
    second.writes.iter().for_each(|write| println!("unnecessary write: {write}"));
    Ok(second.writes.is_empty())
}
