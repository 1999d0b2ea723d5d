//! Compares placement and fixes with the real kube-scheduler, and measures both.
//!
//! The oracle is kube-scheduler's framework as a program (`real/oracle`, built by `cargo xtask oracle`).
#![expect(clippy::print_stdout, reason = "this program reports to the person who runs it")]

mod bench;
mod fixes;
mod program;
mod record;
mod verdicts;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use stead_model::{ClusterVersion, KubernetesVersion};
use stead_real::Outcome;

/// Compares with the real kube-scheduler.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    /// Compare fresh random cases with the real kube-scheduler.
    Verdicts(verdicts::Args),
    /// Have the real kube-scheduler judge every fix that is offered for the recorded cases.
    Fixes(fixes::Args),
    /// Measure how fast pods are placed beside kube-scheduler's own algorithm, and the memory and forks of a cluster.
    Bench(bench::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    let outcome = match Command::parse() {
        Command::Verdicts(args) => verdicts::run(&args)?,
        Command::Fixes(args) => fixes::run(&args)?,
        Command::Bench(args) => {
            bench::run(&args)?;
            Outcome::Passed
        }
    };
    Ok(outcome.into())
}

/// Reads a Kubernetes version that Stead mirrors.
fn mirrored(text: &str) -> anyhow::Result<KubernetesVersion> {
    let version: ClusterVersion = text.parse()?;
    anyhow::ensure!(
        version.is_mirrored(),
        "the versions are {} to {}",
        KubernetesVersion::OLDEST,
        KubernetesVersion::NEWEST
    );
    Ok(version.used)
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(PathBuf::from).unwrap_or_default()
}
