//! kube-scheduler's own algorithm, as a program that takes a batch.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_placement::Batch;

/// The program: the one that was named, or the one where it is usually built.
pub(crate) fn find(named: Option<&Path>) -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let path = named.map(Path::to_path_buf).or_else(|| cache.map(|c| c.join("stead-real/oracle")))?;
    if path.is_file() {
        return Some(path);
    }
    println!("kube-scheduler is NOT measured: there is no {} (--oracle PATH, STEAD_ORACLE)\n", path.display());
    None
}

/// Pods a second, with all nodes scored.
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
