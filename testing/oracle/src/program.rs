//! The oracle: kube-scheduler's code as a program that evaluates cases and places batches.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_model::KubernetesVersion;
use stead_placement::Batch;
use stead_real::{Binaries, skip};

/// Where `cargo xtask oracle` builds the program of a version.
fn default_path(version: KubernetesVersion) -> Option<PathBuf> {
    let name = if version == KubernetesVersion::NEWEST { "oracle".to_owned() } else { format!("oracle-{version}") };
    Some(Binaries::directory()?.join(name))
}

/// Returns the path of the program: the given one, or the one that `cargo xtask oracle` builds for the version.
pub(crate) fn find(named: Option<&Path>, version: KubernetesVersion) -> Option<PathBuf> {
    let path = named.map(Path::to_path_buf).or_else(|| default_path(version))?;
    if path.is_file() {
        return Some(path);
    }
    skip(&format!(
        "kube-scheduler {version}'s framework is not built (run `cargo xtask oracle --kubernetes {version}`)"
    ));
    None
}

/// Measures pods per second, with all nodes scored.
pub(crate) fn rate(program: &Path, batch: &Batch) -> Result<f64> {
    let file = std::env::temp_dir().join(format!("stead-bench-{}.json", std::process::id()));
    std::fs::write(&file, serde_json::to_vec(batch)?).with_context(|| format!("writing {}", file.display()))?;
    let output = Command::new(program)
        .args(["-percentage", "100", "-bench"])
        .arg(&file)
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("running {}", program.display()));
    std::fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
    let output = output?;
    ensure!(output.status.success(), "{}: {}", program.display(), output.status);
    let answer: Value = serde_json::from_slice(&output.stdout).context("the oracle's answer")?;
    answer["podsPerSecond"].as_f64().context("the oracle's podsPerSecond")
}

/// Returns the verdicts on the cases, in order.
pub(crate) fn judge(program: &Path, args: &[&OsStr], cases: &[String]) -> Result<Vec<String>> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("running {}", program.display()))?;
    let mut input = child.stdin.take().context("the oracle's input")?;
    let output = child.stdout.take().context("the oracle's output")?;
    let answers = std::thread::scope(|scope| {
        let writer = scope.spawn(move || cases.iter().try_for_each(|case| writeln!(input, "{case}")));
        let answers: std::io::Result<Vec<String>> = BufReader::new(output).lines().collect();
        writer.join().expect("the writer does not panic")?;
        answers
    })?;
    ensure!(child.wait()?.success(), "{} failed", program.display());
    Ok(answers)
}
