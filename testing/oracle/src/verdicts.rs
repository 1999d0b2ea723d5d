//! Compares the verdicts of kube-scheduler and Stead on new random cases.
//!
//! Without the oracle (kube-scheduler's framework as a program) the comparison is skipped.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use stead_model::{KubernetesVersion, Objects};
use stead_placement::{Cluster, PlacementAnswer, Pod, Profiles, evaluate};

use stead_real::Outcome;

use crate::{mirrored, program, record, root};

/// Options of the comparison.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Another generator of cases than real/cases.py, such as real/odd_cases.py
    #[arg(long)]
    r#gen: Option<PathBuf>,
    /// kube-scheduler's framework as a program [default: oracle in $STEAD_REAL or the cache]
    #[arg(long, env = "STEAD_ORACLE")]
    oracle: Option<PathBuf>,
    /// The Kubernetes version
    #[arg(long, value_name = "VERSION", default_value_t, value_parser = mirrored)]
    kubernetes: KubernetesVersion,
    /// A KubeSchedulerConfiguration for both, such as testdata/scheduler/configs/weights.yaml
    #[arg(long, value_name = "FILE")]
    scheduler_config: Option<PathBuf>,
    /// Where the random cases begin
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Record the verdicts of this older version on recorded cases, for the tests
    #[arg(long, conflicts_with_all = ["gen", "seed", "count"])]
    record: bool,
    /// How many cases
    #[arg(long, default_value_t = 2000)]
    count: u64,
}

/// Calls the generator, and adds the theme of each case.
const SCRIPT: &str = r#"
import importlib.util, json, random, sys
spec = importlib.util.spec_from_file_location("generator", sys.argv[1])
generator = importlib.util.module_from_spec(spec)
spec.loader.exec_module(generator)
seed, first, count = map(int, sys.argv[2:5])
for i in range(first, first + count):
    drawn = seed * 1000003 + i
    case = generator.case(drawn, "r%d-%d" % (seed, i))
    case["theme"] = random.Random(drawn).choice(generator.THEMES)
    print(json.dumps(case))
"#;

/// The number of cases that are generated and compared at a time.
const CHUNK: u64 = 500;

/// The results of a theme.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    agree: usize,
    differ: usize,
    unmodelled: usize,
    /// Of those that agree: both returned the same error, so only the error was compared.
    errors: usize,
}

pub(crate) fn run(args: &Args) -> Result<Outcome> {
    let generator = args.r#gen.clone().unwrap_or_else(|| root().join("real/cases.py"));
    let Some(oracle) = program::find(args.oracle.as_deref(), args.kubernetes) else {
        return Ok(Outcome::Skipped);
    };
    if args.record {
        return record::run(&oracle, args.kubernetes);
    }
    let config = args.scheduler_config.as_deref().map(read_config).transpose()?;
    let oracle_args: Vec<&OsStr> =
        args.scheduler_config.iter().flat_map(|path| [OsStr::new("-config"), path.as_os_str()]).collect();
    let mut themes: BTreeMap<String, Tally> = BTreeMap::new();
    for first in (0..args.count).step_by(CHUNK as usize) {
        let count = CHUNK.min(args.count - first);
        let cases = generate(&generator, args.seed, first, count)?;
        let verdicts = program::judge(&oracle, &oracle_args, &cases)?;
        ensure!(cases.len() == verdicts.len(), "{} cases, but {} verdicts", cases.len(), verdicts.len());
        for (case, verdict) in cases.iter().zip(verdicts) {
            compare(case, &verdict, (args.kubernetes, config.as_ref()), &mut themes)?;
        }
    }
    report(&themes, args);
    Ok(if themes.values().all(|t| t.differ == 0) { Outcome::Passed } else { Outcome::Failed })
}

fn generate(generator: &Path, seed: u64, first: u64, count: u64) -> Result<Vec<String>> {
    let output = Command::new("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args(["-c", SCRIPT])
        .arg(generator)
        .args([seed, first, count].map(|n| n.to_string()))
        .stderr(Stdio::inherit())
        .output()
        .context("running python3")?;
    ensure!(output.status.success(), "{}: {}", generator.display(), output.status);
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

/// Reads a configuration, and checks that it is one that placement models.
fn read_config(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let config = serde_saphyr::from_str(&text).with_context(|| format!("parsing {}", path.display()))?;
    Profiles::read(&config).with_context(|| path.display().to_string())?;
    Ok(config)
}

fn compare(
    case: &str,
    verdict: &str,
    (version, config): (KubernetesVersion, Option<&Value>),
    themes: &mut BTreeMap<String, Tally>,
) -> Result<()> {
    let mut case: serde_json::Map<String, Value> = serde_json::from_str(case)?;
    let id = case.remove("id").unwrap_or_default();
    let theme = case.remove("theme").and_then(|t| t.as_str().map(str::to_owned)).unwrap_or_default();
    let tally = themes.entry(theme).or_default();
    let (mut objects, key) = Objects::from_case(case)?;
    objects.set_version(version);
    if let Some(config) = config {
        objects.insert(Profiles::key(), config.clone());
    }
    let (cluster, pod) = (Cluster::from_objects(&objects, Some(&key)), Pod::from_objects(&objects, &key)?);
    let Ok(ours) = evaluate(&cluster, &pod) else {
        tally.unmodelled += 1;
        return Ok(());
    };
    let mut ours = PlacementAnswer::from(&ours);
    let mut theirs: PlacementAnswer = serde_json::from_str(verdict)?;
    normalize(&mut ours);
    normalize(&mut theirs);
    if ours == theirs {
        tally.agree += 1;
        tally.errors += usize::from(ours.error.is_some());
        return Ok(());
    }
    tally.differ += 1;
    println!("{id} differs:");
    let (ours, theirs) = (serde_json::to_value(ours)?, serde_json::to_value(theirs)?);
    for field in ["feasible", "rejected", "codes", "scores", "totals", "best", "message", "nominees", "error"] {
        if ours[field] != theirs[field] {
            println!("  {field}\n    ours   {}\n    theirs {}", ours[field], theirs[field]);
        }
    }
    Ok(())
}

/// Drops what is random: which of several equally good nodes is nominated, and what was found before an error that ends
/// the attempt.
pub(crate) fn normalize(answer: &mut PlacementAnswer) {
    answer.nominated = None;
    if answer.error.is_some() {
        *answer = PlacementAnswer { error: answer.error.take(), ..PlacementAnswer::default() };
    }
}

fn report(themes: &BTreeMap<String, Tally>, args: &Args) {
    println!("{:<14} {:>6} {:>7} {:>13}", "theme", "agree", "differ", "not modelled");
    let mut all = Tally::default();
    for (theme, t) in themes {
        println!("{theme:<14} {:>6} {:>7} {:>13}", t.agree, t.differ, t.unmodelled);
        all.agree += t.agree;
        all.differ += t.differ;
        all.unmodelled += t.unmodelled;
        all.errors += t.errors;
    }
    println!("{:<14} {:>6} {:>7} {:>13}", "all", all.agree, all.differ, all.unmodelled);
    let (version, seed) = (args.kubernetes, args.seed);
    println!("Kubernetes {version}, seed {seed}: {} of {} agree in every field", all.agree, all.agree + all.differ);
    if all.errors > 0 {
        println!("in {} of these both ended with the same error, and only that was compared", all.errors);
    }
}
