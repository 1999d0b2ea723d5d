//! `stead completions`: prints a shell completion script. `stead complete`: answers kubectl, which completes plugins.

use anyhow::Context;
use clap_complete::env::Shells;

use crate::args::{CompleteArgs, CompletionsArgs};
use crate::complete;
use crate::output::{self, Outcome};

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Outcome> {
    let shell = args.shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&shell).with_context(|| format!("no completion for {shell}"))?;
    let mut script = Vec::new();
    completer.write_registration(complete::VARIABLE, "stead", "stead", "stead", &mut script)?;
    output::text(&String::from_utf8_lossy(&script))?;
    Ok(Outcome::Yes)
}

/// What kubectl understands after the candidates: complete nothing else, such as file names.
const NO_FILE_NAMES: &str = ":4";

/// Prints the candidates for the last word: one on a line, its description after a tab.
pub(crate) fn answer_kubectl(args: &CompleteArgs) -> anyhow::Result<Outcome> {
    let mut lines = String::new();
    for candidate in complete::candidates(&args.words)? {
        lines.push_str(&candidate.get_value().to_string_lossy());
        if let Some(help) = candidate.get_help() {
            lines.push('\t');
            lines.push_str(help.to_string().lines().next().unwrap_or_default());
        }
        lines.push('\n');
    }
    output::text(&format!("{lines}{NO_FILE_NAMES}\n"))?;
    Ok(Outcome::Yes)
}
