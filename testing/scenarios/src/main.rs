//! Long runs on real components: the control plane, glusterd, Glance. `cargo xtask real` runs all of them.
#![expect(clippy::print_stdout, reason = "this program reports to the person who runs it")]

mod cluster;
mod debian;
mod disturb;
mod forecasts;
mod glance;
mod gluster;
mod operators;
mod recoveries;
mod report;
mod scale;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

/// Runs on real components.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    /// Run a real control plane with stand-in nodes until Ctrl-C.
    Cluster(cluster::Args),
    /// Play a field report on a real control plane, with the operator running, and print it.
    Report(report::Args),
    /// Play a walk-through with the operator killed at random moments, and behind a faulty proxy.
    Disturb(disturb::Args),
    /// Create many GlanceAPIs, and restart the operator.
    Scale(scale::Args),
    /// Play the recordings of the OpenStack operators on a real control plane with our operator running.
    Operators(operators::Args),
    /// Compare forecasts for random outages with what happens on the real control plane.
    Forecasts(forecasts::Args),
    /// Start a real Glance from the objects that the loops render, and use it.
    Glance(glance::Args),
    /// Play every scene of a Gluster pool on real glusterd, or random faults, or measure it.
    Gluster(gluster::Args),
    /// Recover random dead nodes under random faults, and look for two writers of one volume.
    Recoveries(recoveries::Args),
}

fn main() -> anyhow::Result<ExitCode> {
    let outcome = match Command::parse() {
        Command::Cluster(args) => cluster::run(&args)?,
        Command::Report(args) => report::run(&args)?,
        Command::Disturb(args) => disturb::run(&args)?,
        Command::Scale(args) => scale::run(&args)?,
        Command::Operators(args) => operators::run(&args)?,
        Command::Forecasts(args) => forecasts::run(&args)?,
        Command::Glance(args) => glance::run(&args)?,
        Command::Gluster(args) => gluster::run(&args)?,
        Command::Recoveries(args) => recoveries::run(&args)?,
    };
    Ok(outcome.into())
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("starting a runtime")
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).map(PathBuf::from).unwrap_or_default()
}
