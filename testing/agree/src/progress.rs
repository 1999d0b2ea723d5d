//! The results so far, in a file, so that an interrupted call can go on.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use stead_agree::Judgement;

/// The results of a call.
pub(crate) struct Progress {
    done: Vec<Judgement>,
    file: Option<File>,
}

impl Progress {
    /// Reads the results of an interrupted call; none if there is no file, or it does not exist yet.
    pub(crate) fn open(path: Option<&Path>) -> Result<Progress> {
        let Some(path) = path else { return Ok(Progress { done: Vec::new(), file: None }) };
        let commit = commit()?;
        let text = if path.exists() { std::fs::read_to_string(path)? } else { String::new() };
        let mut lines = text.lines();
        if let Some(first) = lines.next() {
            let first: Value = serde_json::from_str(first)?;
            ensure!(first["commit"] == *commit, "{} is of another commit: {}", path.display(), first["commit"]);
        }
        // The last line may have been cut off.
        let done = lines.map_while(|line| serde_json::from_str(line).ok()).collect();
        let file = File::options().create(true).append(true).open(path);
        let mut file = file.with_context(|| format!("writing {}", path.display()))?;
        if text.is_empty() {
            writeln!(file, "{}", json!({ "commit": commit }))?;
        }
        Ok(Progress { done, file: Some(file) })
    }

    pub(crate) fn done(&self) -> &[Judgement] {
        &self.done
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.done.iter().any(|judgement| judgement.name == name)
    }

    pub(crate) fn add(&mut self, judgement: &Judgement) -> Result<()> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{}", serde_json::to_string(judgement)?)?;
        }
        Ok(())
    }
}

/// The commit that is checked out.
fn commit() -> Result<String> {
    let output = Command::new("git").args(["rev-parse", "HEAD"]).output().context("running git")?;
    ensure!(output.status.success(), "git rev-parse HEAD failed");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
