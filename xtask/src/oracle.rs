//! kube-scheduler's own code as a program: it judges cases, and places batches.

use std::io::Write;
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
    println!("kube-scheduler is NOT asked: there is no {} (--oracle PATH, STEAD_ORACLE)\n", path.display());
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

/// What it says of cases, in their order.
pub(crate) fn judge(program: &Path, cases: impl Iterator<Item = Value>) -> Result<Vec<Value>> {
    let mut child = Command::new(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("running {}", program.display()))?;
    let mut input = child.stdin.take().context("the oracle's standard input")?;
    let cases: Vec<Value> = cases.collect();
    let count = cases.len();
    // It answers while it reads, so somebody else has to write.
    let writer = std::thread::spawn(move || -> std::io::Result<()> {
        for case in cases {
            writeln!(input, "{case}")?;
        }
        Ok(())
    });
    let output = child.wait_with_output().with_context(|| format!("running {}", program.display()))?;
    writer.join().expect("the writer does not panic").context("writing cases to the oracle")?;
    ensure!(output.status.success(), "{}: {}", program.display(), output.status);
    let lines = output.stdout.split(|b| *b == b'\n').filter(|l| !l.is_empty());
    let answers =
        lines.map(|l| serde_json::from_slice(l).context("the oracle's answer")).collect::<Result<Vec<_>>>()?;
    ensure!(answers.len() == count, "the oracle answered {} of {count} cases", answers.len());
    Ok(answers)
}
