//! All that has to hold before a change goes in.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{Outcome, cargo, debian, fixes, glance, layers, operators, root, verdicts};

/// So many fresh cases are compared each time: enough to see a mistake, few enough to wait for.
const FRESH_CASES: u64 = 500;

/// What has been counted: tests, and each other check as one.
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

pub(crate) fn run() -> Result<Outcome> {
    let mut count = Count::default();
    count.add(check("format", &["fmt", "--all", "--check"], &[])?);
    let clippy = ["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"];
    count.add(check("lints", &clippy, &[])?);
    say("layers");
    count.add(layers::run()?);
    tests(&mut count)?;
    let doc = ["doc", "--workspace", "--no-deps"];
    count.add(check("documentation", &doc, &[("RUSTDOCFLAGS", "--deny warnings")])?);
    say("paths");
    count.add(paths()?);
    say("ways out, judged by the real kube-scheduler");
    count.add(fixes::run(&fixes::Args::default())?);
    say("fresh verdicts of the real kube-scheduler");
    count.add(verdicts::run(&verdicts::Args::fresh(FRESH_CASES))?);
    say("recordings of the OpenStack operators, on the real Kubernetes");
    count.add(operators::run(&operators::Args::default())?);
    say("a real Glance, from what is rendered");
    count.add(glance::run(&glance::Args::default())?);
    say("not run here");
    println!("bench: `cargo xtask bench` measures, which needs an idle machine");
    println!("disturb, scale: a short form was run as a test; `cargo xtask disturb` kills the operator 100 times");
    println!(
        "gluster: its scenes and three random runs were tests; `cargo xtask gluster --runs 50` goes on, `--measure` measures"
    );
    println!(
        "report cinder: it was a test, with a tenth of Kubernetes' waiting times; `--real-timers` plays it with all of them"
    );
    println!(
        "forecasts: ten situations were a test; `cargo xtask forecasts` plays forty, `--real-timers` with Kubernetes' own"
    );
    println!("recoveries: five at random were a test; `cargo xtask recoveries` plays 60, `--seed N` others");
    println!("fuzz: its first seconds were run as a test; `cargo xtask fuzz --minutes 10` goes on");
    println!("\n{} passed, {} failed, {} skipped", count.passed, count.failed, count.skipped);
    Ok(if count.failed == 0 { Outcome::Passed } else { Outcome::Failed })
}

fn say(what: &str) {
    println!("\n── {what}");
}

/// Runs cargo, with its output for all to see.
fn check(what: &str, args: &[&str], env: &[(&str, &str)]) -> Result<Outcome> {
    say(what);
    let status = cargo::cargo().args(args).envs(env.iter().copied()).status();
    let passed = status.with_context(|| format!("running cargo {}", args[0]))?.success();
    println!("{what}: {}", if passed { "passed" } else { "FAILED" });
    Ok(if passed { Outcome::Passed } else { Outcome::Failed })
}

/// Runs the tests and adds up what they report.
fn tests(count: &mut Count) -> Result<()> {
    say("tests");
    // What runs pods as processes says by itself what is missing.
    debian::get("glusterd", "glusterfs-server");
    // A test that has nothing to run with returns early. The harness counts it as passed; the notes say otherwise.
    let notes = std::env::temp_dir().join(format!("stead-skipped-{}", std::process::id()));
    let mut child = cargo::cargo()
        .args(["test", "--workspace", "--no-fail-fast"])
        .env(stead_testbed::SKIPPED, &notes)
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
    // What does not even compile has no tests to count.
    if !child.wait()?.success() && failed == 0 {
        failed = 1;
    }
    let noted = skipped(&notes)?;
    noted.iter().for_each(|line| println!("{line}"));
    count.passed += passed.saturating_sub(noted.len());
    count.failed += failed;
    count.skipped += ignored + noted.len();
    Ok(())
}

/// The tests that were skipped, a line each. There is no file if none was.
fn skipped(notes: &Path) -> Result<Vec<String>> {
    if !notes.is_file() {
        return Ok(Vec::new());
    }
    let text = std::fs::read_to_string(notes).with_context(|| format!("reading {}", notes.display()))?;
    std::fs::remove_file(notes).with_context(|| format!("removing {}", notes.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The numbers in `test result: ok. 5 passed; 0 failed; 1 ignored; …`.
fn result(line: &str) -> Option<[usize; 3]> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |word: &str| {
        let before = rest.split(word).next()?.trim_end();
        before.rsplit(' ').next()?.parse().ok()
    };
    Some([number("passed")?, number("failed")?, number("ignored")?])
}

/// Looks for paths of somebody's machine in tracked files.
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
            println!("paths: skipped: this is no git repository, or git is not installed");
            return Ok(Outcome::Skipped);
        }
    };
    let found = String::from_utf8_lossy(&output.stdout);
    if found.is_empty() {
        println!("paths: passed");
        return Ok(Outcome::Passed);
    }
    println!("paths: FAILED: tracked files name places on one machine:\n{found}");
    Ok(Outcome::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_tests_are_read() {
        for (line, expected) in [
            ("test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out", Some([12, 0, 3])),
            ("test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured", Some([1, 2, 0])),
            ("running 5 tests", None),
        ] {
            assert_eq!(result(line), expected, "{line}");
        }
    }
}
