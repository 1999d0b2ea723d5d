//! How results are printed: data on standard output, messages on standard error with one line each.

use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;

/// The result of a command that ran to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Success.
    Yes,
    /// The answer is no, or part of the input was wrong.
    No,
}

/// An error with a hint.
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

/// An error with an exit code of its own. Other errors exit with 1.
#[derive(Debug)]
pub(crate) enum ExitWith {
    /// The command line is wrong: exit code 2, as for errors that clap finds.
    Usage(anyhow::Error),
    /// There is no answer, because the cluster or the dump cannot be read: exit code 3.
    NoAnswer(anyhow::Error),
}

impl ExitWith {
    /// The error itself and its exit code.
    fn split(error: anyhow::Error) -> (anyhow::Error, u8) {
        match error.downcast::<ExitWith>() {
            Ok(ExitWith::Usage(error)) => (error, 2),
            Ok(ExitWith::NoAnswer(error)) => (error, 3),
            Err(error) => (error, 1),
        }
    }
}

impl std::fmt::Display for ExitWith {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ExitWith::Usage(error) | ExitWith::NoAnswer(error)) = self;
        write!(f, "{error:#}")
    }
}

impl std::error::Error for ExitWith {}

/// Prints the error, if any, and returns the exit code.
pub(crate) fn finish(result: anyhow::Result<Outcome>) -> ExitCode {
    let error = match result {
        Ok(Outcome::Yes) => return ExitCode::SUCCESS,
        Ok(Outcome::No) => return ExitCode::from(1),
        Err(error) => error,
    };
    let (error, code) = ExitWith::split(error);
    // A reader that closes the pipe early, as in `stead … | head`, is not an error.
    if error.chain().any(is_broken_pipe) {
        return ExitCode::SUCCESS;
    }
    complain("error", &format!("{error:#}"));
    if let Some(hinted) = error.downcast_ref::<Hinted>() {
        complain("hint", &hinted.hint);
    }
    ExitCode::from(code)
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints one line on standard error, such as `warning: …`.
pub(crate) fn complain(level: &str, text: &str) {
    // If standard error is closed, there is nowhere to report that.
    let _ = writeln!(io::stderr(), "{level}: {}", text.replace('\n', " "));
}

/// Prints text for people on standard error while standard output has the data.
pub(crate) fn aside(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// The first line of a YAML parser's error. The lines after it quote the input, which does not fit in a one-line error.
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

/// Prints a value as indented JSON.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    io::stdout().lock().write_all(&text)?;
    Ok(())
}

/// Prints a value as YAML.
pub(crate) fn yaml(value: &impl Serialize) -> anyhow::Result<()> {
    // Through serde_json's types, so that JSON and YAML have the same content.
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
