//! `stead completions`: prints a shell completion script.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::output::{self, Outcome};

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Outcome> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "stead", &mut script);
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Yes)
}
