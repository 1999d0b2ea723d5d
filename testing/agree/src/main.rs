//! `cargo xtask agree`: plays random situations on the real control plane and in the simulation, and compares every change.
#![expect(clippy::print_stdout, reason = "this program reports to the person who runs it")]

mod progress;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Parser;
use jiff::SignedDuration;
use stead_agree::record::{Played, record};
use stead_agree::situation::Timers;
use stead_agree::{Judgement, Recording, Situation, Summary, judge, play_both};
use stead_testbed::{Binaries, Outcome};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use progress::Progress;

/// How often a run is tried on a machine that is too busy.
const TRIES: u32 = 3;

/// Play random situations on the real control plane and in the simulation, and compare every change.
#[derive(Parser)]
#[command(name = "cargo xtask agree")]
struct Args {
    /// Play these rehearsals both ways instead, and compare which steps pass
    #[arg(value_name = "FILE")]
    rehearsals: Vec<PathBuf>,
    /// A longer skip of a rehearsal is shortened on the real control plane, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 480)]
    longest_skip: i64,
    /// The seed of the situations
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many situations
    #[arg(long, default_value_t = 30)]
    count: u64,
    /// The number of the first situation
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Use Kubernetes' own waiting times instead of a tenth of them
    #[arg(long)]
    real_timers: bool,
    /// How many are played at the same time
    #[arg(long, default_value_t = 2)]
    at_once: usize,
    /// Go on where an interrupted call with the same file and the same commit stopped
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Keep recordings of the runs that differ in this directory
    #[arg(long, value_name = "DIR", default_value = "target/agree")]
    save: PathBuf,
    /// Keep the recordings of all runs
    #[arg(long)]
    save_all: bool,
    /// The share of runs that have to agree, in percent
    #[arg(long, default_value_t = 90)]
    threshold: usize,
    /// How many differences of a run are printed
    #[arg(long, default_value_t = 3)]
    differences: usize,
    /// Print everything that both arms saw of objects with this text in their name, when recordings are replayed
    #[arg(long, value_name = "TEXT")]
    show: Option<String>,
    /// Replay these recordings, without a control plane
    #[arg(long, value_name = "FILE", num_args = 1..)]
    replay: Vec<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if !args.rehearsals.is_empty() {
        return rehearse(&args);
    }
    let summary = if args.replay.is_empty() {
        let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped.into()) };
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?;
        runtime.block_on(play(&args, &binaries))?
    } else {
        replay(&args)?
    };
    println!("\n{summary}");
    Ok(Outcome::passed(summary.is_good(args.threshold)).into())
}

/// Plays rehearsals both ways, some files at the same time: they mostly wait.
fn rehearse(args: &Args) -> Result<ExitCode> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(Outcome::Skipped.into()) };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?;
    let longest = SignedDuration::from_secs(args.longest_skip);
    let (mut count, mut agree) = (0, 0);
    runtime.block_on(async {
        let (places, mut tasks) = (Arc::new(Semaphore::new(args.at_once)), JoinSet::new());
        for path in args.rehearsals.clone() {
            let (places, binaries) = (places.clone(), binaries.clone());
            tasks.spawn(async move {
                let _place = places.acquire().await;
                play_both(&binaries, &path, longest).await
            });
        }
        while let Some(done) = tasks.join_next().await {
            for played in done?? {
                println!("{played}");
                count += 1;
                agree += usize::from(played.agrees());
            }
        }
        anyhow::Ok(())
    })?;
    println!("\nagree: {agree} of {count} rehearsals");
    Ok(Outcome::passed(agree == count).into())
}

fn replay(args: &Args) -> Result<Summary> {
    let mut summary = Summary::default();
    for path in &args.replay {
        let recording = Recording::read(path)?;
        let judgement = judge(&recording);
        report(&judgement, args.differences);
        if let Some(text) = &args.show {
            show(&recording, text)?;
        }
        summary.add(&judgement);
    }
    Ok(summary)
}

/// Prints what both arms saw of some objects.
fn show(recording: &Recording, text: &str) -> Result<()> {
    let replay = stead_agree::replay(recording).map_err(anyhow::Error::msg)?;
    for (arm, observations) in [("real", &replay.real), ("simulated", &replay.simulated)] {
        for observation in observations.iter().filter(|observation| observation.subject.contains(text)) {
            println!("    {arm} {:.2} s: {}: {}", observation.at, observation.subject, observation.state);
        }
    }
    Ok(())
}

fn report(judgement: &Judgement, most: usize) {
    if judgement.agrees() {
        return println!("{} agrees: {}", judgement.name, judgement.situation);
    }
    println!("{} differs: {}", judgement.name, judgement.situation);
    judgement.differences.iter().take(most).for_each(|difference| println!("    {difference}"));
    let more = judgement.differences.len().saturating_sub(most);
    if more > 0 {
        println!("    and {more} more");
    }
    judgement.wrong_never.iter().for_each(|pod| println!("    wrong \"never\": {pod}"));
}

async fn play(args: &Args, binaries: &Binaries) -> Result<Summary> {
    std::fs::create_dir_all(&args.save).with_context(|| format!("creating {}", args.save.display()))?;
    let mut progress = Progress::open(args.resume.as_deref())?;
    let mut summary = Summary::default();
    progress.done().iter().for_each(|judgement| summary.add(judgement));
    let (places, mut tasks) = (Arc::new(Semaphore::new(args.at_once)), JoinSet::new());
    for number in args.first..args.first + args.count {
        let situation = Situation::draw(args.seed, number, Timers { real: args.real_timers });
        if progress.has(&situation.name()) {
            continue;
        }
        let (places, binaries, save, save_all) = (places.clone(), binaries.clone(), args.save.clone(), args.save_all);
        tasks.spawn(async move {
            let _place = places.acquire().await;
            let played = run(&binaries, &situation, &save, save_all).await;
            played.with_context(|| format!("run {}: {situation}", situation.name()))
        });
    }
    let mut failed = 0;
    while let Some(done) = tasks.join_next().await {
        match done? {
            Ok(judgement) => {
                report(&judgement, args.differences);
                progress.add(&judgement)?;
                summary.add(&judgement);
            }
            Err(error) => {
                failed += 1;
                println!("could not play {error:#}");
            }
        }
    }
    anyhow::ensure!(failed == 0, "{failed} runs could not be played; results of the others:\n{summary}");
    Ok(summary)
}

/// Plays one situation and compares it.
async fn run(binaries: &Binaries, situation: &Situation, save: &Path, save_all: bool) -> Result<Judgement> {
    let mut problem = String::new();
    for _ in 0..TRIES {
        match record(binaries, situation).await? {
            Played::Recorded(recording) => {
                let judgement = judge(&recording);
                if save_all || !judgement.agrees() {
                    recording.write(&save.join(format!("{}.jsonl.gz", situation.name())))?;
                }
                return Ok(judgement);
            }
            Played::Invalid(reason) => {
                println!("{} is played again: {reason}", situation.name());
                problem = reason;
            }
        }
    }
    anyhow::bail!("{problem}, {TRIES} times")
}
