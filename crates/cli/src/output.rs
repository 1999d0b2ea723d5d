//! How things are printed: answers on standard output, complaints on standard error, in one line each.

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

/// How a command ended that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Fine.
    Yes,
    /// The answer is no, or some of the input was wrong.
    No,
}

/// An error with advice.
#[derive(Debug)]
pub(crate) struct Hinted {
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl std::fmt::Display for Hinted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Hinted {}

/// Turns how a command ended into an exit code, and says what went wrong.
pub(crate) fn finish(result: anyhow::Result<Outcome>) -> ExitCode {
    let error = match result {
        Ok(Outcome::Yes) => return ExitCode::SUCCESS,
        Ok(Outcome::No) => return ExitCode::from(1),
        Err(error) => error,
    };
    // Whoever reads the output has seen enough: `stead … | head` is no fault.
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    complain("error", &format!("{error:#}"));
    if let Some(hinted) = error.downcast_ref::<Hinted>() {
        complain("hint", &hinted.hint);
    }
    ExitCode::from(1)
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Says something on standard error, in one line.
pub(crate) fn complain(sort: &str, text: &str) {
    // There is nowhere left to say that standard error is closed.
    let _ = writeln!(io::stderr(), "{sort}: {}", text.replace('\n', " "));
}

/// Says more to people, beside what programs read.
pub(crate) fn aside(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// What is wrong with a YAML text, by its reader's words. A picture of the place follows them, which one line of
/// complaint has no room for.
pub(crate) fn first_line(text: &str) -> &str {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or(text);
    line.strip_prefix("error: ").unwrap_or(line)
}

/// Prints a value as one line of JSON.
pub(crate) fn json_line(value: &impl Serialize) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    io::stdout().lock().write_all(&line)?;
    Ok(())
}

/// Prints a value as JSON for people.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    io::stdout().lock().write_all(&text)?;
    Ok(())
}

/// Prints a value as YAML.
pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<()> {
    // Through JSON's own types, so that both forms say the same.
    let mut text = serde_saphyr::to_string(&serde_json::to_value(value)?)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Prints text.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}
