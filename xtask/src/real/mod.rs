//! Everything that needs real components: control plane, kube-scheduler's framework, glusterd, Glance.
//!
//! Suites run two at a time; those that are about seconds run alone, at the end. Each writes its output to
//! `target/real/NAME.log`. Nothing is repeated: what fails once has failed.

mod record;
mod suites;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use stead_real::{Outcome, SKIPPED};

use crate::{cargo, ci, root};
use record::Ended;
use suites::{Run, SUITES, Suite};

/// Which suites to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only this suite; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the suites
    #[arg(long)]
    list: bool,
    /// How many suites run at the same time
    #[arg(long, default_value_t = 2)]
    jobs: usize,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    if args.list {
        for Suite { name, about, .. } in SUITES {
            println!("{name:<16} {about}");
        }
        return Ok(Outcome::Passed);
    }
    if let Some(unknown) = args.only.iter().find(|name| !SUITES.iter().any(|suite| suite.name == **name)) {
        bail!("there is no suite {unknown}; `cargo xtask real --list` lists them");
    }
    let chosen = |suite: &&Suite| args.only.is_empty() || args.only.iter().any(|name| name == suite.name);
    let suites: Vec<&Suite> = SUITES.iter().filter(chosen).collect();
    let folder = root().join("target/real");
    std::fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let start = Instant::now();
    println!("building");
    let programs = build(&suites)?;
    let built = start.elapsed();
    println!("built, {} s; output goes to {}", built.as_secs(), folder.display());
    let ended = run_all(&suites, &programs, &folder, args.jobs.max(1))?;
    record::summarize(&ended, built, start.elapsed());
    let file = record::write(&ended, &folder, built, start.elapsed())?;
    println!("record: {}", file.display());
    Ok(Outcome::passed(ended.iter().all(|suite| suite.outcome != Outcome::Failed)))
}

/// Paths by name. A test program may have the name of a program that it tests.
#[derive(Default)]
struct Programs {
    tests: BTreeMap<String, PathBuf>,
    bins: BTreeMap<String, PathBuf>,
}

impl Programs {
    fn bin(&self, name: &str) -> Result<&PathBuf> {
        self.bins.get(name).with_context(|| format!("cargo built no program {name}"))
    }

    fn test(&self, name: &str) -> Result<&PathBuf> {
        self.tests.get(name).with_context(|| format!("cargo built no test {name}"))
    }
}

/// Builds everything beforehand: suites that run side by side do not wait for each other's builds.
fn build(suites: &[&Suite]) -> Result<Programs> {
    let mut programs = Programs::default();
    // `--workspace` throughout, so that everything is compiled with the same features, once.
    let mut bins: Vec<&str> = vec!["stead", "cinder-demo"];
    let mut tests: Vec<&str> = Vec::new();
    for suite in suites {
        match suite.run {
            Run::Program(name, _) => bins.push(name),
            Run::Tests(name, _) => tests.push(name),
        }
    }
    bins.sort_unstable();
    bins.dedup();
    tests.sort_unstable();
    tests.dedup();
    if !tests.is_empty() {
        let targets: Vec<&str> = tests.iter().flat_map(|name| ["--test", name]).collect();
        programs.tests = executables(&[&["test", "--no-run", "--workspace", "--locked"], &targets[..]].concat())?;
    }
    // After the tests: where their features differ, the programs are those that are used.
    let targets: Vec<&str> = bins.iter().flat_map(|name| ["--bin", name]).collect();
    programs.bins = executables(&[&["build", "--workspace", "--locked"], &targets[..]].concat())?;
    Ok(programs)
}

/// What a cargo command builds, by name.
fn executables(args: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    let output = cargo::cargo()
        .args(args)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    ensure!(output.status.success(), "cargo {}: {}", args[0], output.status);
    let messages = String::from_utf8_lossy(&output.stdout);
    Ok(messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let path = PathBuf::from(message["executable"].as_str()?);
            Some((message["target"]["name"].as_str()?.to_owned(), path))
        })
        .collect())
}

fn run_all(suites: &[&Suite], programs: &Programs, folder: &Path, jobs: usize) -> Result<Vec<Ended>> {
    let total = suites.len();
    let (alone, together): (Vec<&Suite>, Vec<&Suite>) = suites.iter().copied().partition(|suite| suite.alone);
    let ended: Mutex<Vec<Result<Ended>>> = Mutex::default();
    let run = |suite: &Suite| {
        println!("{}: started", suite.name);
        let result = run_suite(suite, programs, folder);
        let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.push(result);
        if let Some(Ok(last)) = ended.last() {
            println!("[{}/{total}] {}", ended.len(), last.line());
            last.print_failure();
        }
    };
    let queue: Mutex<VecDeque<&Suite>> = Mutex::new(together.into());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(suite) = { queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front() } {
                    run(suite);
                }
            });
        }
    });
    alone.into_iter().for_each(run);
    ended.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect()
}

fn run_suite(suite: &Suite, programs: &Programs, folder: &Path) -> Result<Ended> {
    let (program, args) = match suite.run {
        Run::Tests(name, filters) => (programs.test(name)?, filters),
        Run::Program(name, args) => (programs.bin(name)?, args),
    };
    let log = folder.join(format!("{}.log", suite.name));
    let notes = folder.join(format!("{}.skipped", suite.name));
    let output = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
    let built = programs.bin("stead")?.parent().context("a program has a folder")?;
    let start = Instant::now();
    let status = Command::new(program)
        .args(args)
        .current_dir(root())
        .env(SKIPPED, &notes)
        .envs(suite.env.iter().copied())
        .env("STEAD_PROGRAMS", built)
        // The end of the log is shown: the error, not where in the code it was made.
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(output.try_clone().context("the log of a suite")?)
        .stderr(output)
        .status()
        .with_context(|| format!("running {}", suite.name))?;
    let seconds = start.elapsed().as_secs_f64();
    let skipped = ci::skipped(&notes)?;
    let text = std::fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))?;
    Ok(Ended::new(suite.name, status.into(), seconds, &skipped, &text, log))
}
