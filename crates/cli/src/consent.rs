//! Asking before something is done.

use std::io::{self, IsTerminal, Write};

use crate::args::ConsentArgs;
use crate::output::Hinted;

/// Whether to go on. Where nobody can be asked and nobody said yes beforehand, that is an error.
pub(crate) fn given(args: &ConsentArgs, question: &str) -> anyhow::Result<bool> {
    if args.yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        return Err(Hinted {
            message: "standard input is no terminal, so nobody can be asked".to_owned(),
            hint: "say --yes to go on without being asked, or --dry-run to only look".to_owned(),
        }
        .into());
    }
    write!(io::stderr(), "{question} [y/N] ")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}

/// Whether somebody types a statement. Where nobody can be asked, it is not made.
pub(crate) fn stated(args: &ConsentArgs, question: &str, statement: &str) -> anyhow::Result<bool> {
    if args.yes || !io::stdin().is_terminal() {
        return Ok(false);
    }
    write!(io::stderr(), "{question}")?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(answer.trim().eq_ignore_ascii_case(statement))
}
