//! Runs the real kubectl.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// How a program ended, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// What it printed.
    pub stdout: String,
    /// What it complained of.
    pub stderr: String,
    /// Its exit code; none if it was killed.
    pub code: Option<i32>,
}

impl Ran {
    /// What it printed, or an error with what it complained of.
    pub fn ok(self) -> Result<String> {
        ensure!(self.code == Some(0), "kubectl ended with {:?}: {}", self.code, self.stderr.trim());
        Ok(self.stdout)
    }
}

/// Longer than anything here takes: one that goes on is told of, and not waited for.
const MOST: Duration = Duration::from_secs(900);

pub(crate) async fn run(program: &Path, kubeconfig: &Path, cache: &Path, args: &[&str], input: &str) -> Result<Ran> {
    let mut child = Command::new(program)
        .args(args)
        .env("KUBECONFIG", kubeconfig)
        .env("KUBECACHEDIR", cache)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("running {}", program.display()))?;
    let mut line = child.stdin.take().context("kubectl has no input")?;
    let write = async move {
        // One that does not read to the end has said why on its own.
        let _ = line.write_all(input.as_bytes()).await;
    };
    let (_, output) = tokio::join!(write, tokio::time::timeout(MOST, child.wait_with_output()));
    let output = output.with_context(|| format!("kubectl {} does not end", args.join(" ")))?;
    let output = output.context("waiting for kubectl")?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Ran { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code() })
}
