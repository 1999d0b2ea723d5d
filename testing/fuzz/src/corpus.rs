//! The source of the broken input: recorded cases, and the examples.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::read::GzDecoder;
use serde_json::{Map, Value, json};
use stead_model::placement_kinds;

use crate::mutation::{mutate, mutate_text};
use crate::random::Random;

/// Only every seventh recorded case is used, because reading all of them takes too long.
const STRIDE: usize = 7;

/// Valid input.
pub(crate) struct Corpus {
    cases: Vec<Map<String, Value>>,
    examples: Vec<String>,
}

/// An input to process.
#[derive(Debug)]
pub(crate) struct Case {
    /// A dump, JSON or YAML.
    pub(crate) text: String,
    /// The objects in the format of a recorded case, if it was derived from one.
    pub(crate) given: Option<Map<String, Value>>,
    /// Whether to compute fixes and explanations too, which takes longer.
    pub(crate) explain: bool,
}

impl Corpus {
    pub(crate) fn load(root: &Path) -> Result<Corpus> {
        let mut cases = Vec::new();
        for file in ["cases.jsonl.gz", "devices.jsonl.gz"] {
            let path = root.join("testdata/scheduler").join(file);
            let file = std::fs::File::open(&path).with_context(|| format!("reading {}", path.display()))?;
            for line in BufReader::new(GzDecoder::new(file)).lines().step_by(STRIDE) {
                let mut case: Value = serde_json::from_str(&line?)?;
                if let Value::Object(given) = case["given"].take() {
                    cases.push(given);
                }
            }
        }
        let mut examples = Vec::new();
        for file in files(&root.join("examples"))? {
            examples.push(std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?);
        }
        Ok(Corpus { cases, examples })
    }

    /// Returns the case of a seed and a number.
    pub(crate) fn case(&self, seed: u64, number: u64) -> Case {
        let mut random = Random::of_case(seed, number);
        if random.one_in(20) {
            let mut text = random.pick(&self.examples).clone();
            mutate_text(&mut text, &mut random);
            return Case { text, given: None, explain: random.one_in(4) };
        }
        let mut given = Value::Object(random.pick(&self.cases).clone());
        for _ in 0..=random.below(6) {
            mutate(&mut given, &mut random, 0);
        }
        let mut text = as_list(&given).to_string();
        if random.one_in(10) {
            mutate_text(&mut text, &mut random);
        }
        let given = given.as_object().cloned();
        Case { text, given, explain: random.one_in(20) }
    }
}

/// Returns the files of a directory and its subdirectories, sorted.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() { files.extend(self::files(&path)?) } else { files.push(path) }
    }
    files.sort();
    Ok(files)
}

/// Converts a case to a `List` like kubectl's.
fn as_list(given: &Value) -> Value {
    let mut items = Vec::new();
    for (kind, list) in placement_kinds().filter_map(|kind| Some((kind, kind.case_list?))) {
        let list = given[list].as_array().into_iter().flatten();
        let alone = (kind.kind == "Pod").then(|| &given["pod"]);
        for item in list.chain(alone) {
            let mut item = item.clone();
            if let Value::Object(fields) = &mut item {
                fields.entry("apiVersion").or_insert_with(|| json!(api_version(kind.kind)));
                fields.entry("kind").or_insert_with(|| json!(kind.kind));
            }
            items.push(item);
        }
    }
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        "ReplicaSet" | "StatefulSet" => "apps/v1",
        "PodDisruptionBudget" => "policy/v1",
        "DeviceClass" => "resource.k8s.io/v1",
        "StorageClass" | "CSINode" | "CSIDriver" | "CSIStorageCapacity" | "VolumeAttachment" => "storage.k8s.io/v1",
        _ => "v1",
    }
}
