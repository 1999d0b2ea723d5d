//! Chores: what is done to the project rather than with it. A file or folder for each.
#![expect(clippy::print_stdout, reason = "a chore talks to whoever runs it")]

mod bench;
mod cargo;
mod ci;
mod cluster;
mod debian;
mod disturb;
mod fixes;
mod forecasts;
mod fuzz;
mod glance;
mod gluster;
mod image;
mod kubernetes;
mod layers;
mod operators;
mod oracle;
mod oracle_build;
mod recoveries;
mod report;
mod scale;
mod verdicts;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

/// The project's chores.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Chore {
    /// All that has to hold before a change goes in: format, lints, layers, tests, documentation, paths.
    Ci,
    /// Check that the core crates know no client, clock, file or thread, and each only the layers below it.
    Layers,
    /// Build the real kube-scheduler as a judge, from Go's module registry, once.
    Oracle(oracle_build::Args),
    /// Build Kubernetes' own control plane, from Go's module registry, once.
    Kubernetes(kubernetes::Args),
    /// Run a real control plane with stand-in nodes until Ctrl-C.
    Cluster(cluster::Args),
    /// Play a field report on a real control plane, with the operator running, and print what is typed and seen.
    Report(report::Args),
    /// Compare fresh random cases with the real kube-scheduler.
    Verdicts(verdicts::Args),
    /// Play a walk-through with the operator killed again and again, and behind a proxy that misbehaves.
    Disturb(disturb::Args),
    /// Have many GlanceAPIs made, and restart the operator.
    Scale(scale::Args),
    /// Play the recordings of the OpenStack operators on a real control plane with our operator running.
    Operators(operators::Args),
    /// Compare what is foreseen of outages made at random with what then happens on the real control plane.
    Forecasts(forecasts::Args),
    /// Feed broken input to everything that reads any.
    Fuzz(fuzz::Args),
    /// Place batches of pods beside kube-scheduler's own algorithm, and measure memory and forks.
    Bench(bench::Args),
    /// Have kube-scheduler itself judge every way out that is offered for the recorded cases.
    Fixes(fixes::Args),
    /// Make the operator's image, as an OCI layout.
    Image(image::Args),
    /// Start a real Glance from what the loops render, and use it.
    Glance(glance::Args),
    /// Play every scene of a Gluster pool on real glusterd, or faults at random, or measure it.
    Gluster(gluster::Args),
    /// Lose nodes, recover them with everything in the way, and look for two that could write one disk.
    Recoveries(recoveries::Args),
}

/// How a chore ended that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// There is nothing to run it with; why has been said.
    Skipped,
}

fn main() -> anyhow::Result<ExitCode> {
    let outcome = match Chore::parse() {
        Chore::Ci => ci::run()?,
        Chore::Layers => layers::run()?,
        Chore::Verdicts(args) => verdicts::run(&args)?,
        Chore::Disturb(args) => disturb::run(&args)?,
        Chore::Scale(args) => scale::run(&args)?,
        Chore::Operators(args) => operators::run(&args)?,
        Chore::Forecasts(args) => forecasts::run(&args)?,
        Chore::Fuzz(args) => fuzz::run(&args)?,
        Chore::Bench(args) => {
            bench::run(&args)?;
            Outcome::Passed
        }
        Chore::Oracle(args) => {
            oracle_build::run(&args)?;
            Outcome::Passed
        }
        Chore::Kubernetes(args) => {
            kubernetes::run(&args)?;
            Outcome::Passed
        }
        Chore::Cluster(args) => cluster::run(&args)?,
        Chore::Report(args) => report::run(&args)?,
        Chore::Fixes(args) => fixes::run(&args)?,
        Chore::Image(args) => {
            image::run(&args)?;
            Outcome::Passed
        }
        Chore::Glance(args) => glance::run(&args)?,
        Chore::Gluster(args) => gluster::run(&args)?,
        Chore::Recoveries(args) => recoveries::run(&args)?,
    };
    Ok(if outcome == Outcome::Failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The project's root.
fn root() -> PathBuf {
    let chores = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    chores.parent().map(PathBuf::from).unwrap_or(chores)
}
