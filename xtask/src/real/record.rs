//! What came of a run: for people a table, for programs a file.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use stead_real::Outcome;

use crate::{ci, root};

/// How much of the log of a failed suite is printed.
const LAST_LINES: usize = 40;

/// A suite that has ended.
pub(super) struct Ended {
    name: &'static str,
    pub(super) outcome: Outcome,
    seconds: f64,
    /// The tests that passed and failed, and those that were skipped; none for a suite that has no tests.
    tests: Option<[usize; 3]>,
    /// The reason why the suite was skipped, or the last line that it printed.
    summary: String,
    log: PathBuf,
    last_lines: Vec<String>,
}

impl Ended {
    pub(super) fn new(
        name: &'static str,
        outcome: Outcome,
        seconds: f64,
        skipped: &[String],
        text: &str,
        log: PathBuf,
    ) -> Ended {
        let results: Vec<[usize; 3]> = text.lines().filter_map(ci::result).collect();
        let tests = results.iter().copied().reduce(|a, b| [a[0] + b[0], a[1] + b[1], a[2] + b[2]]);
        let tests = tests.map(|[passed, failed, _]| [passed.saturating_sub(skipped.len()), failed, skipped.len()]);
        let nothing_ran = tests.is_some_and(|[passed, failed, skipped]| passed + failed == 0 && skipped > 0);
        let outcome = if outcome == Outcome::Passed && nothing_ran { Outcome::Skipped } else { outcome };
        // `SKIPPED: name of the test: reason`
        let reason = skipped.first().and_then(|line| line.splitn(3, ": ").nth(2)).unwrap_or_default();
        let said = |line: &&str| !line.trim().is_empty() && !line.ends_with(": passed");
        let last = text.lines().rev().find(said).unwrap_or_default().trim();
        let summary = match (outcome, tests) {
            (Outcome::Skipped, _) => reason.to_owned(),
            (_, Some([passed, failed, skipped])) => format!("{passed} passed, {failed} failed, {skipped} skipped"),
            _ => last.to_owned(),
        };
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let last_lines = lines[lines.len().saturating_sub(LAST_LINES)..].to_vec();
        Ended { name, outcome, seconds, tests, summary, log, last_lines }
    }

    fn word(&self) -> &'static str {
        match self.outcome {
            Outcome::Passed => "passed",
            Outcome::Failed => "FAILED",
            Outcome::Skipped => "skipped",
        }
    }

    /// One line for people.
    pub(super) fn line(&self) -> String {
        format!("{}: {}, {:.0} s: {}", self.name, self.word(), self.seconds, self.summary)
    }

    /// Prints the end of the log of a suite that failed.
    pub(super) fn print_failure(&self) {
        if self.outcome == Outcome::Failed {
            println!("the last lines of {}:", self.log.display());
            self.last_lines.iter().for_each(|line| println!("    {line}"));
        }
    }

    fn json(&self) -> Value {
        let mut value = json!({
            "name": self.name,
            "outcome": self.word().to_lowercase(),
            "seconds": self.seconds.round(),
            "summary": self.summary,
        });
        if let Some([passed, failed, skipped]) = self.tests {
            value["tests"] = json!({"passed": passed, "failed": failed, "skipped": skipped});
        }
        value
    }
}

fn count(ended: &[Ended], outcome: Outcome) -> usize {
    ended.iter().filter(|suite| suite.outcome == outcome).count()
}

/// Prints a table.
pub(super) fn summarize(ended: &[Ended], built: Duration, took: Duration) {
    println!("\n| suite | result | seconds | |\n|---|---|---:|---|");
    for suite in ended {
        println!("| {} | {} | {:.0} | {} |", suite.name, suite.word(), suite.seconds, suite.summary.replace('|', "/"));
    }
    println!(
        "\n{} s, of them {} s to build; {} passed, {} failed, {} skipped",
        took.as_secs(),
        built.as_secs(),
        count(ended, Outcome::Passed),
        count(ended, Outcome::Failed),
        count(ended, Outcome::Skipped)
    );
}

/// Writes the record, and returns its path.
pub(super) fn write(ended: &[Ended], folder: &Path, built: Duration, took: Duration) -> Result<PathBuf> {
    let changes = git(&["status", "--porcelain"]);
    let record = json!({
        "commit": git(&["rev-parse", "HEAD"]),
        "changed": changes.map(|changes| !changes.is_empty()),
        "kubernetes": crate::kubernetes::VERSION,
        "seconds": took.as_secs(),
        "buildSeconds": built.as_secs(),
        "passed": count(ended, Outcome::Passed),
        "failed": count(ended, Outcome::Failed),
        "skipped": count(ended, Outcome::Skipped),
        "suites": ended.iter().map(Ended::json).collect::<Vec<_>>(),
    });
    let file = folder.join("RESULTS.json");
    let text = serde_json::to_string_pretty(&record).context("the record")?;
    std::fs::write(&file, text + "\n").with_context(|| format!("writing {}", file.display()))?;
    Ok(file)
}

/// What git prints; none outside of a repository.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).current_dir(root()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_from_the_output() {
        let skip = "SKIPPED: a::b: glusterd is not installed".to_owned();
        let ok = "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured";
        for (outcome, skipped, text, line) in [
            (Outcome::Passed, vec![], ok, "a: passed, 2 s: 2 passed, 0 failed, 0 skipped"),
            (Outcome::Passed, vec![skip.clone()], ok, "a: passed, 2 s: 1 passed, 0 failed, 1 skipped"),
            (Outcome::Passed, vec![skip.clone(); 2], ok, "a: skipped, 2 s: glusterd is not installed"),
            (Outcome::Skipped, vec![skip], "", "a: skipped, 2 s: glusterd is not installed"),
            (Outcome::Passed, vec![], "5 of 5 agree\n\na: passed\n", "a: passed, 2 s: 5 of 5 agree"),
            (Outcome::Failed, vec![], "one\ntwo differs", "a: FAILED, 2 s: two differs"),
        ] {
            assert_eq!(Ended::new("a", outcome, 2.0, &skipped, text, PathBuf::new()).line(), line);
        }
    }
}
