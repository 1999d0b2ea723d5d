//! Feeds broken input to everything that reads input: text → dump reader → objects → cluster → verdict → explanation.
//!
//! A case is determined by a seed and a number, so these two identify a failure. A worker process runs the cases; the
//! parent process detects panics, aborts and hangs.
#![expect(clippy::print_stdout, reason = "this program reports to the person who runs it")]

mod corpus;
mod mutation;
mod random;
mod target;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use clap::Parser;
use corpus::Corpus;
use stead_real::Outcome;

/// Feed broken input to everything that reads input.
#[derive(Parser)]
#[command(name = "cargo xtask fuzz")]
struct Args {
    /// How many minutes
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The seed of the cases
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first case, to repeat one that failed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run cases and write their numbers to this file (the worker process)
    #[arg(long, hide = true)]
    worker: Option<PathBuf>,
}

/// A case that takes longer counts as a hang.
const LIMIT: Duration = Duration::from_secs(5);

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let outcome = match &args.worker {
        Some(notes) => work(&args, notes)?,
        None => watch(&args)?,
    };
    Ok(outcome.into())
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(PathBuf::from).unwrap_or_default()
}

/// Runs cases until the time is over or one panics.
fn work(args: &Args, notes: &Path) -> Result<Outcome> {
    let corpus = Corpus::load(&root())?;
    let notes = File::create(notes)?;
    let end = Instant::now() + Duration::from_secs_f64(args.minutes * 60.0);
    let mut number = args.first;
    while Instant::now() < end {
        notes.write_all_at(&number.to_le_bytes(), 0)?;
        target::run(&corpus.case(args.seed, number));
        number += 1;
    }
    println!("fuzz: seed {}, cases {} to {number}: no panic, no hang", args.seed, args.first);
    Ok(Outcome::Passed)
}

/// Starts a worker and watches it.
fn watch(args: &Args) -> Result<Outcome> {
    let folder = root().join("target/fuzz");
    std::fs::create_dir_all(&folder)?;
    let notes = folder.join(format!("notes-{}", std::process::id()));
    std::fs::write(&notes, [0; 8])?;
    let mut worker = Command::new(std::env::current_exe()?)
        .args(["--minutes", &args.minutes.to_string(), "--seed", &args.seed.to_string()])
        .args(["--first", &args.first.to_string(), "--worker"])
        .arg(&notes)
        .spawn()
        .context("starting the worker")?;
    let ending = wait_for(&mut worker, &notes)?;
    let number = read_number(&notes)?;
    std::fs::remove_file(&notes)?;
    let Some(what) = ending else { return Ok(Outcome::Passed) };
    let file = folder.join(format!("seed-{}-case-{number}.txt", args.seed));
    std::fs::write(&file, Corpus::load(&root())?.case(args.seed, number).text)?;
    println!("fuzz: {what}: seed {}, case {number}; the input is in {}", args.seed, file.display());
    println!("repeat with: cargo xtask fuzz --seed {} --first {number}", args.seed);
    Ok(Outcome::Failed)
}

fn read_number(notes: &Path) -> Result<u64> {
    let mut bytes = [0; 8];
    File::open(notes)?.read_exact_at(&mut bytes, 0)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Waits for the worker, and returns how it failed; none if it succeeded.
fn wait_for(worker: &mut Child, notes: &Path) -> Result<Option<String>> {
    let mut last = (0, Instant::now());
    loop {
        if let Some(status) = worker.try_wait()? {
            return Ok((!status.success()).then(|| format!("the worker ended with {status}")));
        }
        // Before the first case, the worker reads the corpus, which may take longer.
        match read_number(notes) {
            Ok(number) if number == last.0 && number > 0 => {
                if last.1.elapsed() > LIMIT {
                    worker.kill()?;
                    worker.wait()?;
                    return Ok(Some("a hang".into()));
                }
            }
            Ok(number) => last = (number, Instant::now()),
            Err(_) => {}
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cases_do_not_panic() {
        let corpus = Corpus::load(&root()).expect("the corpus is part of the repository");
        for number in 0..1500 {
            let case = corpus.case(20_260_101, number);
            let result = std::panic::catch_unwind(|| target::run(&case));
            assert!(result.is_ok(), "seed 20260101, case {number} panics");
        }
    }

    #[test]
    fn a_case_is_the_same_every_time() {
        let corpus = Corpus::load(&root()).expect("the corpus is part of the repository");
        for number in 0..50 {
            assert_eq!(corpus.case(7, number).text, corpus.case(7, number).text);
        }
        assert_ne!(corpus.case(7, 1).text, corpus.case(8, 1).text);
    }
}
