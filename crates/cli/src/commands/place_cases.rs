//! `stead place CASES`: prints one answer per line, in the order of the cases.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::{Map, Value};
use stead_explain::{Fix, fixes};
use stead_model::{KubernetesVersion, Objects};
use stead_placement::{Cluster, PlacementAnswer, Pod, evaluate};

use crate::output::{self, Outcome, complain};
use crate::scheduler;

/// What holds for all cases.
pub(crate) struct Rules {
    pub(crate) version: KubernetesVersion,
    /// The configuration of kube-scheduler, where it is not the default.
    pub(crate) scheduler_config: Option<Value>,
}

/// The printed line of a case.
#[derive(Serialize)]
struct Line {
    id: Value,
    #[serde(flatten)]
    answer: CaseAnswer,
}

#[derive(Serialize)]
#[serde(untagged)]
enum CaseAnswer {
    Answer(Box<AnswerWithFixes>),
    Error { error: String },
}

/// An answer, with possible fixes if they were asked for.
#[derive(Serialize)]
struct AnswerWithFixes {
    #[serde(flatten)]
    answer: PlacementAnswer,
    #[serde(skip_serializing_if = "Option::is_none")]
    fixes: Option<Vec<Fix>>,
}

pub(crate) fn run(path: Option<&Path>, fixes: bool, rules: &Rules) -> anyhow::Result<Outcome> {
    let mut input: Box<dyn BufRead> = match path {
        Some(path) if path != Path::new("-") => {
            let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            Box::new(BufReader::with_capacity(1 << 20, file))
        }
        _ => Box::new(BufReader::with_capacity(1 << 20, io::stdin())),
    };
    let (mut number, mut cases, mut bad) = (0, 0, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line).context("cannot read the cases")? == 0 {
            break;
        }
        number += 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        cases += 1;
        let (id, result) = answer_line(&line, number, fixes, rules);
        let answer = match result {
            Ok(answer) => CaseAnswer::Answer(Box::new(answer)),
            Err(error) => CaseAnswer::Error { error: format!("{error:#}") },
        };
        bad += usize::from(matches!(answer, CaseAnswer::Error { .. }));
        output::json_line(&Line { id, answer })?;
    }
    if bad == 0 {
        return Ok(Outcome::Yes);
    }
    complain("error", &format!("{bad} of {cases} cases could not be answered: see `error` in their answers"));
    Ok(Outcome::No)
}

/// The id of a case, and its answer.
fn answer_line(line: &[u8], number: usize, fixes: bool, rules: &Rules) -> (Value, anyhow::Result<AnswerWithFixes>) {
    let mut case: Map<String, Value> = match serde_json::from_slice(line) {
        Ok(case) => case,
        Err(e) => return (Value::Null, Err(e).with_context(|| format!("line {number}: not a JSON object"))),
    };
    let id = case.remove("id").unwrap_or(Value::Null);
    (id, answer(case, fixes, rules))
}

fn answer(mut case: Map<String, Value>, with_fixes: bool, rules: &Rules) -> anyhow::Result<AnswerWithFixes> {
    let given = match case.remove("given") {
        Some(Value::Object(given)) => given,
        Some(_) => bail!("given: not an object"),
        None => case,
    };
    let (mut objects, key) = Objects::from_case(given)?;
    objects.set_version(rules.version);
    scheduler::set(&mut objects, rules.scheduler_config.clone())?;
    let cluster = Cluster::from_objects(&objects, Some(&key));
    let pod = Pod::from_objects(&objects, &key)?;
    objects.check()?;
    let answer = PlacementAnswer::from(&evaluate(&cluster, &pod)?);
    let is_unschedulable = answer.message.is_some();
    let fixes = (with_fixes && is_unschedulable).then(|| fixes(&objects, &key)).transpose()?;
    Ok(AnswerWithFixes { answer, fixes })
}
