//! A field report, played on a real control plane with `stead operator` running.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use stead_testbed::Binaries;

use crate::{Outcome, root};

/// Which report.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The report to play.
    #[arg(value_enum)]
    report: Report,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Report {
    /// Glance in three zones by Topologies, from one node to a node that falls silent.
    Glance,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let Some(binaries) = Binaries::find() else {
        println!("report: the real Kubernetes is not here; `cargo xtask kubernetes` gets it");
        return Ok(Outcome::Failed);
    };
    let stead = build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("a runtime")?;
    let mut out = std::io::stdout();
    match args.report {
        Report::Glance => runtime.block_on(stead_reports::glance::play(&binaries, &stead, &mut out))?,
    }
    Ok(Outcome::Passed)
}

/// Builds `stead` and says where it is.
fn build() -> Result<std::path::PathBuf> {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "stead", "--message-format=json"])
        .current_dir(root())
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("running cargo build")?;
    ensure!(output.status.success(), "cargo build --package stead: {}", output.status);
    let messages = String::from_utf8_lossy(&output.stdout);
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "stead")
        .find_map(|message| message["executable"].as_str().map(std::path::PathBuf::from))
        .context("cargo build told of no program stead")
}
