//! Checks every fix that is offered for the recorded cases with kube-scheduler.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};
use stead_explain::{Change, ChangeAction, Fix, apply_to_case, fixes};
use stead_model::{KubernetesVersion, Objects};

use stead_real::Outcome;

use crate::{mirrored, program, root};

/// Options of the comparison.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// kube-scheduler's framework as a program [default: oracle in $STEAD_REAL or the cache]
    #[arg(long, env = "STEAD_ORACLE")]
    oracle: Option<PathBuf>,
    /// The Kubernetes version
    #[arg(long, value_name = "VERSION", default_value_t, value_parser = mirrored)]
    kubernetes: KubernetesVersion,
    /// Recorded cases, gzipped JSON lines [default: testdata/scheduler/cases.jsonl.gz]
    #[arg(long)]
    cases: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let cases = args.cases.clone().unwrap_or_else(|| root().join("testdata/scheduler/cases.jsonl.gz"));
    let file = File::open(&cases).with_context(|| format!("reading {}", cases.display()))?;
    let (mut stuck, mut time) = (0, Duration::ZERO);
    let (mut helped, mut helped_small, mut helped_without_zero) = (0, 0, 0);
    let mut offered: Vec<(String, Value)> = Vec::new();
    for line in BufReader::new(GzDecoder::new(file)).lines() {
        let case: Value = serde_json::from_str(&line?).context("a case")?;
        if case["want"].get("message").is_none() {
            continue;
        }
        stuck += 1;
        let given = case["given"].as_object().context("a case without `given`")?;
        let start = Instant::now();
        let (mut objects, pod) = Objects::from_case(given.clone())?;
        objects.set_version(args.kubernetes);
        let found = fixes(&objects, &pod)?;
        time += start.elapsed();
        let in_place: Vec<&Fix> = found.iter().filter(|f| !f.changes.iter().any(adds_node)).collect();
        let small = |f: &&&Fix| f.changes.len() <= 3;
        helped += usize::from(!in_place.is_empty());
        helped_small += usize::from(in_place.iter().any(|f| small(&f)));
        helped_without_zero +=
            usize::from(in_place.iter().filter(small).any(|f| !f.changes.iter().any(sets_request_to_zero)));
        for (i, fix) in found.iter().enumerate() {
            let mut changed: Map<String, Value> = given.clone();
            apply_to_case(&mut changed, &fix.changes)?;
            changed.insert("id".into(), json!(format!("{}#{i}", case["id"].as_str().unwrap_or_default())));
            offered.push((fix.text.clone(), Value::Object(changed)));
        }
    }
    ensure!(stuck > 0, "{}: has no unschedulable pod, so nothing would be checked", cases.display());
    println!("{stuck} unschedulable pods: {} fixes offered", offered.len());
    let share = |n: usize| format!("{n} cases ({:.1} %)", 100.0 * n as f64 / f64::from(stuck));
    println!("{} have a fix without a new node", share(helped));
    println!("{} have one with at most three changes", share(helped_small));
    println!("{} have one of these that sets no request to zero", share(helped_without_zero));
    println!("{:.1} ms per case on average", time.as_secs_f64() * 1000.0 / f64::from(stuck));
    let Some(oracle) = program::find(args.oracle.as_deref(), args.kubernetes) else { return Ok(Outcome::Skipped) };
    let cases: Vec<String> = offered.iter().map(|(_, case)| case.to_string()).collect();
    let answers: Vec<Value> = program::judge(&oracle, &[], &cases)?
        .iter()
        .map(|line| serde_json::from_str(line).context("the oracle's answer"))
        .collect::<Result<_>>()?;
    ensure!(answers.len() == offered.len(), "{} cases, but {} responses", offered.len(), answers.len());
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

/// Whether a request is set to zero: the pod is then scheduled, but without the resources that it asked for.
fn sets_request_to_zero(c: &Change) -> bool {
    let operations = json!(c.action)["patch"].as_array().cloned().unwrap_or_default();
    operations
        .iter()
        .any(|op| op["value"] == json!("0") && op["path"].as_str().is_some_and(|p| p.contains("/resources/requests/")))
}

fn adds_node(c: &Change) -> bool {
    c.kind == "Node" && matches!(c.action, ChangeAction::Create(_))
}
