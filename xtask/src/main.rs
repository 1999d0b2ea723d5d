//! Development tasks. This program only parses the command line and dispatches: what is quick is in a file here, and
//! everything that links the product is a program of its own below `testing/`, built when it is asked for.
#![expect(clippy::print_stdout, reason = "a task reports to the person who runs it")]

mod cargo;
mod ci;
mod dependencies;
mod kubernetes;
mod layers;
mod older_kubernetes;
mod oracle;
mod real;
mod screenshots;
mod shape;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use stead_real::Outcome;

/// Development tasks.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Task {
    /// Run everything that a change has to pass: format, lints, layers, dependencies, tests, docs, one smoke test.
    Ci,
    /// Run everything that needs real components, and write a record of the results.
    Real(real::Args),
    /// Check that crates depend only on the layers below them, and that the core is free of I/O, clocks and chance.
    Layers,
    /// Print figures about the shape of the code: JSON accesses by strings, string errors, lines.
    Shape,
    /// Write the screenshots of the timeline page to docs/images (needs Chromium).
    Screenshots,
    /// Build the real kube-scheduler as a judge (needs Go).
    Oracle(oracle::Args),
    /// Build the real control plane (needs Go).
    Kubernetes(older_kubernetes::Args),

    /// Run a real control plane with stand-in nodes until Ctrl-C.
    #[command(disable_help_flag = true)]
    Cluster(Rest),
    /// Play a field report on a real control plane, with the operator running, and print it.
    #[command(disable_help_flag = true)]
    Report(Rest),
    /// Compare fresh random cases with the real kube-scheduler.
    #[command(disable_help_flag = true)]
    Verdicts(Rest),
    /// Have the real kube-scheduler judge every fix that is offered for the recorded cases.
    #[command(disable_help_flag = true)]
    Fixes(Rest),
    /// Play a walk-through with the operator killed at random moments, and behind a faulty proxy.
    #[command(disable_help_flag = true)]
    Disturb(Rest),
    /// Create many GlanceAPIs, and restart the operator.
    #[command(disable_help_flag = true)]
    Scale(Rest),
    /// Play the recordings of the OpenStack operators on a real control plane with our operator running.
    #[command(disable_help_flag = true)]
    Operators(Rest),
    /// Compare forecasts for random outages with what then happens on the real control plane.
    #[command(disable_help_flag = true)]
    Forecasts(Rest),
    /// Play random situations on the real control plane and in the simulation, and compare every change.
    #[command(disable_help_flag = true)]
    Agree(Rest),
    /// Recover random dead nodes under random faults, and look for two writers of one volume.
    #[command(disable_help_flag = true)]
    Recoveries(Rest),
    /// Start a real Glance from the objects that the loops render, and use it.
    #[command(disable_help_flag = true)]
    Glance(Rest),
    /// Play every scene of a Gluster pool on real glusterd, or random faults, or measure it.
    #[command(disable_help_flag = true)]
    Gluster(Rest),
    /// Plant faults in generated clusters, and compare what triage finds.
    #[command(disable_help_flag = true)]
    Faults(Rest),
    /// Feed broken input to everything that reads input.
    #[command(disable_help_flag = true)]
    Fuzz(Rest),
    /// Measure how fast pods are placed beside kube-scheduler's own algorithm, and the memory and forks of a cluster.
    #[command(disable_help_flag = true)]
    Bench(Rest),
    /// Write all release artifacts to dist/.
    #[command(disable_help_flag = true)]
    Dist(Rest),
    /// Build the operator's image as an OCI layout.
    #[command(disable_help_flag = true)]
    Image(Rest),
    /// Write the generated files of charts/stead.
    #[command(disable_help_flag = true)]
    Chart(Rest),
}

/// Arguments for the program that does it.
#[derive(clap::Args)]
struct Rest {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<OsString>,
}

fn main() -> Result<ExitCode> {
    let outcome = match Task::parse() {
        Task::Ci => ci::run()?,
        Task::Real(args) => real::run(&args)?,
        Task::Layers => layers::run()?,
        Task::Shape => shape::run()?,
        Task::Screenshots => screenshots::run()?,
        Task::Oracle(args) => oracle::build(&args)?,
        Task::Kubernetes(args) => older_kubernetes::build(&args)?,
        Task::Cluster(rest) => delegate(&SCENARIOS, "cluster", &rest)?,
        Task::Report(rest) => delegate(&SCENARIOS, "report", &rest)?,
        Task::Disturb(rest) => delegate(&SCENARIOS, "disturb", &rest)?,
        Task::Scale(rest) => delegate(&SCENARIOS, "scale", &rest)?,
        Task::Operators(rest) => delegate(&SCENARIOS, "operators", &rest)?,
        Task::Forecasts(rest) => delegate(&SCENARIOS, "forecasts", &rest)?,
        Task::Agree(rest) => delegate(&["--package", "stead-agree"], "", &rest)?,
        Task::Recoveries(rest) => delegate(&SCENARIOS, "recoveries", &rest)?,
        Task::Glance(rest) => delegate(&SCENARIOS, "glance", &rest)?,
        Task::Gluster(rest) => delegate(&SCENARIOS, "gluster", &rest)?,
        Task::Verdicts(rest) => delegate(&ORACLE, "verdicts", &rest)?,
        Task::Fixes(rest) => delegate(&ORACLE, "fixes", &rest)?,
        Task::Bench(rest) => delegate(&["--release", "--package", "stead-oracle"], "bench", &rest)?,
        Task::Faults(rest) => delegate(&["--package", "stead-faults"], "", &rest)?,
        Task::Fuzz(rest) => delegate(&["--package", "stead-fuzz"], "", &rest)?,
        Task::Dist(rest) => delegate(&DIST, "dist", &rest)?,
        Task::Image(rest) => delegate(&DIST, "image", &rest)?,
        Task::Chart(rest) => delegate(&DIST, "chart", &rest)?,
    };
    // A check that cannot run here is no failure; it has said what is missing.
    Ok(if outcome == Outcome::Failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

const SCENARIOS: [&str; 2] = ["--package", "stead-scenarios"];
const ORACLE: [&str; 2] = ["--package", "stead-oracle"];
const DIST: [&str; 2] = ["--package", "stead-dist"];

/// Builds and runs the program that does a task.
fn delegate(package: &[&str], command: &str, rest: &Rest) -> Result<Outcome> {
    let mut run = cargo::cargo();
    run.args(["run", "--quiet"]).args(package).arg("--");
    run.args((!command.is_empty()).then_some(command)).args(&rest.args);
    // Relative paths on the command line are relative to where it was typed.
    run.current_dir(std::env::current_dir().context("the current directory")?);
    Ok(run.status().with_context(|| format!("running cargo run {}", package.join(" ")))?.into())
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(PathBuf::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        crate::Task::command().debug_assert();
    }
}
