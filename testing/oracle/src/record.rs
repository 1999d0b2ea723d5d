//! Records the verdicts of an older version on cases that are recorded already, for the tests of placement.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use stead_model::KubernetesVersion;
use stead_placement::PlacementAnswer;
use stead_real::Outcome;

use crate::verdicts::normalize;
use crate::{program, root};

/// One case in so many is used.
const EVERY: usize = 3;

pub(crate) fn run(oracle: &Path, version: KubernetesVersion) -> Result<Outcome> {
    ensure!(
        version != KubernetesVersion::NEWEST,
        "the verdicts of {version} are in cases.jsonl.gz: they come with the cases"
    );
    let folder = root().join("testdata/scheduler");
    let cases = read(&folder.join("cases.jsonl.gz"))?;
    let verdicts = program::judge(oracle, &[], &cases)?;
    ensure!(cases.len() == verdicts.len(), "{} cases, but {} verdicts", cases.len(), verdicts.len());
    let path = folder.join(format!("versions/{version}.jsonl.gz"));
    let file = File::create(&path).with_context(|| format!("writing {}", path.display()))?;
    let mut output = GzEncoder::new(file, Compression::best());
    for verdict in &verdicts {
        let id = serde_json::from_str::<Value>(verdict)?["id"].take();
        let mut want: PlacementAnswer = serde_json::from_str(verdict)?;
        normalize(&mut want);
        writeln!(output, "{}", json!({ "id": id, "want": want }))?;
    }
    output.finish()?;
    println!("{}: {} verdicts", path.display(), verdicts.len());
    Ok(Outcome::Passed)
}

/// The cases, as the oracle reads them.
fn read(path: &Path) -> Result<Vec<String>> {
    let file = File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let lines = BufReader::new(GzDecoder::new(file)).lines().step_by(EVERY);
    let case = |line: std::io::Result<String>| {
        let mut case: Value = serde_json::from_str(&line?)?;
        let mut given = case["given"].take();
        given["id"] = case["id"].take();
        Ok(given.to_string())
    };
    lines.map(case).collect()
}
