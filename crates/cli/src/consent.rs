//! Asking for confirmation.

use std::io::{self, IsTerminal, Write};

use crate::args::ConsentArgs;
use crate::output::Hinted;

/// Whether the user confirms. Without a terminal and without `--yes`, that is an error.
pub(crate) fn given(args: &ConsentArgs, question: &str) -> anyhow::Result<bool> {
    if args.yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(Hinted {
            message: "cannot ask for confirmation: standard input is not a terminal".to_owned(),
            hint: "use --yes to skip the question, or --dry-run to change nothing".to_owned(),
        }
        .into());
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Whether the user types a statement. Without a terminal it is not made.
pub(crate) fn stated(args: &ConsentArgs, question: &str, statement: &str) -> anyhow::Result<bool> {
    if args.yes || !io::stdin().is_terminal() {
        return Ok(false);
    }
    write!(io::stderr(), "{question}")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case(statement))
}
