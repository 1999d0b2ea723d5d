//! The commands, one file each.

mod completions;
mod dump;
mod explain;
mod gluster;
mod install;
mod man;
mod manifests;
mod operator;
mod place;
mod place_batch;
mod place_cases;
mod place_pod;
mod recover;
mod rehearse;
mod triage;
mod uninstall;
mod version;

use crate::args::{Cli, Command};
use crate::output::Outcome;

pub(crate) use explain::explained_kinds;
pub(crate) use rehearse::SHIPPED;

/// Runs the command.
pub(crate) fn run(cli: Cli) -> anyhow::Result<Outcome> {
    match cli.command {
        Command::Explain(args) => explain::run(&args),
        Command::Dump(args) => dump::run(&args),
        Command::Recover(args) => recover::run(&args),
        Command::Rehearse(args) => rehearse::run(&args),
        Command::Place(args) => place::run(args),
        Command::Install(args) => install::run(&args),
        Command::Uninstall(args) => uninstall::run(&args),
        Command::Manifests(args) => manifests::run(&args),
        Command::Gluster(args) => gluster::run(args),
        Command::Operator(args) => operator::run(args),
        Command::Version(args) => version::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Complete(args) => completions::answer_kubectl(&args),
        Command::Man(args) => man::run(&args),
    }
}
