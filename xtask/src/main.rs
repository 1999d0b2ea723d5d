//! Chores: what is done to the project rather than with it.
#![expect(clippy::print_stdout, reason = "a chore talks to whoever runs it")]

mod bench;
mod fixes;
mod oracle;

use clap::Parser;

/// The project's chores.
#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Chore {
    /// Place batches of pods beside kube-scheduler's own algorithm, and measure memory and forks.
    Bench(bench::Args),
    /// Have kube-scheduler itself judge every way out that is offered for the recorded cases.
    Fixes(fixes::Args),
}

fn main() -> anyhow::Result<()> {
    match Chore::parse() {
        Chore::Bench(args) => bench::run(&args),
        Chore::Fixes(args) => fixes::run(&args),
    }
}
