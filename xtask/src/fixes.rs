//! Every way out that is offered for the recorded cases, judged by kube-scheduler itself.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};
use stead_explain::{Action, Change, Objects, apply_to_case, fixes};

use crate::{Outcome, oracle, root};

/// Which cases, judged by what.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// kube-scheduler's algorithm as a program [default: stead-real/oracle in the cache].
    #[arg(long, env = "STEAD_ORACLE")]
    oracle: Option<PathBuf>,
    /// Recorded cases, gzipped JSON lines [default: the repository's own].
    #[arg(long)]
    cases: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let cases = args.cases.clone().unwrap_or_else(|| root().join("testdata/scheduler/cases.jsonl.gz"));
    let file = File::open(&cases).with_context(|| format!("reading {}", cases.display()))?;
    let (mut stuck, mut helped, mut time) = (0, 0, Duration::ZERO);
    let mut offered: Vec<(String, Value)> = Vec::new();
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        let case: Value = serde_json::from_str(&line?).context("a case")?;
        if case["want"].get("message").is_none() {
            continue;
        }
        stuck += 1;
        let given = case["given"].as_object().context("a case without what is given")?;
        let start = Instant::now();
        let (objects, pod) = Objects::from_case(given.clone())?;
        let found = fixes(&objects, &pod)?;
        time += start.elapsed();
        helped += usize::from(found.iter().any(|f| !f.changes.iter().any(buys)));
        for (i, fix) in found.iter().enumerate() {
            let mut changed: Map<String, Value> = given.clone();
            apply_to_case(&mut changed, &fix.changes)?;
            changed.insert("id".into(), json!(format!("{}#{i}", case["id"].as_str().unwrap_or_default())));
            offered.push((fix.text.clone(), Value::Object(changed)));
        }
    }
    ensure!(stuck > 0, "{}: no case where nothing fits, so that nothing would be checked", cases.display());
    println!("{stuck} cases where nothing fits: {} ways out offered", offered.len());
    println!("{helped} cases ({:.1} of 100) have one that buys no node", 100.0 * helped as f64 / f64::from(stuck));
    println!("{:.1} ms a case on average", time.as_secs_f64() * 1000.0 / f64::from(stuck));
    let Some(program) = oracle::find(args.oracle.as_deref()) else { return Ok(Outcome::Skipped) };
    let cases: Vec<String> = offered.iter().map(|(_, case)| case.to_string()).collect();
    let answers: Vec<Value> = oracle::judge(&program, &cases)?
        .iter()
        .map(|line| serde_json::from_str(line).context("the oracle's answer"))
        .collect::<Result<_>>()?;
    ensure!(answers.len() == offered.len(), "{} cases, but {} answers", offered.len(), answers.len());
    let refuted: Vec<String> = offered
        .iter()
        .zip(&answers)
        .filter(|(_, answer)| answer["feasible"].as_array().is_none_or(Vec::is_empty))
        .map(|((text, case), answer)| format!("{}: {text}: {}", case["id"], answer["message"]))
        .collect();
    println!("kube-scheduler: {} confirmed, {} refuted", offered.len() - refuted.len(), refuted.len());
    for line in &refuted {
        println!("refuted: {line}");
    }
    Ok(if refuted.is_empty() { Outcome::Passed } else { Outcome::Failed })
}

fn buys(c: &Change) -> bool {
    c.kind == "Node" && matches!(c.action, Action::Create(_))
}
