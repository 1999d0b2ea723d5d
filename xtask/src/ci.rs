//! Everything that a change has to pass. Nothing here depends on how busy the machine is, installs anything, or needs
//! root. What needs real components is `cargo xtask real`; one smoke test of it runs here too.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use stead_real::{Outcome, SKIPPED};

use crate::{cargo, dependencies, layers, root};

/// The number of tests, and of other checks.
#[derive(Debug, Default)]
struct Count {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Count {
    fn add(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Skipped => self.skipped += 1,
        }
    }
}

/// The tests that need real components. They are checked by the lints, and run by `cargo xtask real`.
const REAL_TESTS: &str = "stead-real-tests";

pub(crate) fn run() -> Result<Outcome> {
    let (mut count, start) = (Count::default(), Instant::now());
    count.add(step("format", || cargo_passes(&["fmt", "--all", "--check"], &[]))?);
    count.add(step("paths", paths)?);
    count.add(step("layers", layers::run)?);
    count.add(step("dependencies", dependencies::run)?);
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"];
    count.add(step("lints", || cargo_passes(&clippy, &[]))?);
    let ordinary = ["test", "--workspace", "--exclude", REAL_TESTS, "--locked", "--no-fail-fast"];
    step("tests", || tests(&ordinary, &[], &mut count))?;
    let doc = ["doc", "--workspace", "--no-deps", "--locked"];
    count.add(step("documentation", || cargo_passes(&doc, &[("RUSTDOCFLAGS", "--deny warnings")]))?);
    // `--workspace` keeps the features, and with them what was compiled for the other tests.
    let smoke = ["test", "--workspace", "--locked", "--test", "smoke", "--", "--nocapture"];
    // It runs the program that the tests before have built.
    let target = cargo::metadata()?["target_directory"].as_str().map(|folder| format!("{folder}/debug"));
    let programs = target.context("cargo metadata has no target_directory")?;
    step("smoke test on the real control plane", || tests(&smoke, &[("STEAD_PROGRAMS", &programs)], &mut count))?;
    println!("\n`cargo xtask real` runs what needs real components; {} s", start.elapsed().as_secs());
    println!("{} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped);
    Ok(Outcome::passed(count.failed == 0))
}

/// Runs a step, and prints its name before and its result and time after.
fn step(name: &str, run: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
    println!("\n── {name}");
    let start = Instant::now();
    let outcome = run()?;
    let word = match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "FAILED",
        Outcome::Skipped => "skipped",
    };
    println!("{name}: {word}, {} s", start.elapsed().as_secs());
    Ok(outcome)
}

fn cargo_passes(args: &[&str], env: &[(&str, &str)]) -> Result<Outcome> {
    let status = cargo::cargo().args(args).envs(env.iter().copied()).status();
    Ok(Outcome::passed(status.with_context(|| format!("running cargo {}", args[0]))?.success()))
}

/// Runs tests and adds up what they report.
fn tests(args: &[&str], env: &[(&str, &str)], count: &mut Count) -> Result<Outcome> {
    // A test without the component it needs returns early. The harness counts it as passed; the notes say otherwise.
    let notes = std::env::temp_dir().join(format!("stead-skipped-{}", std::process::id()));
    let mut child = cargo::cargo()
        .args(args)
        .envs(env.iter().copied())
        .env(SKIPPED, &notes)
        .stdout(Stdio::piped())
        .spawn()
        .context("running cargo test")?;
    let output = child.stdout.take().context("the output of cargo test")?;
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        if let Some([p, f, i]) = result(&line) {
            passed += p;
            failed += f;
            ignored += i;
        }
    }
    // Tests that do not compile cannot be counted.
    if !child.wait()?.success() && failed == 0 {
        failed = 1;
    }
    let skipped = skipped(&notes)?;
    skipped.iter().for_each(|line| println!("{line}"));
    count.passed += passed.saturating_sub(skipped.len());
    count.failed += failed;
    count.skipped += ignored + skipped.len();
    Ok(if failed == 0 && passed == skipped.len() { Outcome::Skipped } else { Outcome::passed(failed == 0) })
}

/// The tests that were skipped, one line each. There is no file if none was.
pub(crate) fn skipped(notes: &Path) -> Result<Vec<String>> {
    if !notes.is_file() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(notes).with_context(|| format!("reading {}", notes.display()))?;
    std::fs::remove_file(notes).with_context(|| format!("removing {}", notes.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The numbers in `test result: ok. 5 passed; 0 failed; 1 ignored; …`.
pub(crate) fn result(line: &str) -> Option<[usize; 3]> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = rest.split(word).next()?.trim_end();
        before.rsplit(' ').next()?.parse().ok()
    };
    Some([number("passed")?, number("failed")?, number("ignored")?])
}

/// Looks for paths of one machine in tracked files.
fn paths() -> Result<Outcome> {
    let homes = ["home", "root", "work", "farm", "Users", "tmp/wt"].join("|");
    let pattern = format!("(^|[^A-Za-z0-9_.])/({homes})[/-]");
    let output = Command::new("git")
        .args(["grep", "-nIE", &pattern, "--", ".", ":!testdata", ":!examples"])
        .current_dir(root())
        .output();
    let output = match output {
        Ok(output) if output.status.code().is_some_and(|code| code < 2) => output,
        _ => {
            println!("this is not a git repository, or git is not installed");
            return Ok(Outcome::Skipped);
        }
    };
    let found = String::from_utf8_lossy(&output.stdout);
    if !found.is_empty() {
        println!("tracked files contain paths of one machine:\n{found}");
    }
    Ok(Outcome::passed(found.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_results_are_read() {
        for (line, expected) in [
            ("test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out", Some([12, 0, 3])),
            ("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured", Some([1, 2, 0])),
            ("running 5 tests", None),
        ] {
            assert_eq!(result(line), expected, "{line}");
        }
    }
}
