//! The release artifacts, judged by the tools of those who use them.

mod artifacts;
mod chart;
mod helm;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// The result of a command.
#[derive(Debug)]
struct CommandOutput {
    out: String,
    err: String,
    code: Option<i32>,
}

impl CommandOutput {
    /// Standard output, or an error with everything that was printed.
    fn ok(self) -> Result<String> {
        anyhow::ensure!(self.code == Some(0), "exit code {:?}: {}{}", self.code, self.out, self.err);
        Ok(self.out)
    }
}

fn run(command: &mut Command) -> Result<CommandOutput> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(CommandOutput { out: text(output.stdout), err: text(output.stderr), code: output.status.code() })
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The chart in the repository.
fn chart() -> PathBuf {
    root().join("charts/stead")
}
