//! Runs the real kubectl.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// The output and exit code of kubectl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubectlOutput {
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Exit code; none if it was killed.
    pub code: Option<i32>,
}

impl KubectlOutput {
    /// Returns the standard output, or an error with the standard error.
    pub fn ok(self) -> Result<String> {
        ensure!(self.code == Some(0), "kubectl ended with {:?}: {}", self.code, self.stderr.trim());
        Ok(self.stdout)
    }
}

/// Longer than any call takes.
const TIMEOUT: Duration = Duration::from_secs(900);

pub(crate) async fn run(
    program: &Path,
    kubeconfig: &Path,
    cache: &Path,
    args: &[&str],
    input: &str,
) -> Result<KubectlOutput> {
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
        // If kubectl does not read all its input, it reports the reason itself.
        let _ = line.write_all(input.as_bytes()).await;
    };
    let (_, output) = tokio::join!(write, tokio::time::timeout(TIMEOUT, child.wait_with_output()));
    let output = output.with_context(|| format!("kubectl {} timed out", args.join(" ")))?;
    let output = output.context("waiting for kubectl")?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(KubectlOutput { stdout: text(output.stdout), stderr: text(output.stderr), code: output.status.code() })
}
