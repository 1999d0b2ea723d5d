//! `stead place --batch FILE`: places a queue of pods in order, and prints the rate.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;
use serde_json::Value;
use stead_placement::{Batch, place_all};

use crate::output::{self, Outcome};

/// The result of a batch.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Rate {
    nodes: usize,
    queue: usize,
    placed: usize,
    seconds: f64,
    pods_per_second: f64,
}

pub(crate) fn run(path: &Path) -> anyhow::Result<Outcome> {
    let name = path.display();
    let text = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let batch: Value = serde_json::from_slice(&text).with_context(|| format!("cannot parse {name}"))?;
    let batch: Batch = stead_model::parse(name, &batch)?;
    let mut cluster = batch.cluster()?;
    // Measures placement only, not reading the file, as kube-scheduler's own benchmark does.
    let start = Instant::now();
    let placed = place_all(&mut cluster, &batch.queue, 0)?.iter().flatten().count();
    let seconds = start.elapsed().as_secs_f64();
    let pods_per_second = if seconds > 0.0 { placed as f64 / seconds } else { 0.0 };
    let (nodes, queue) = (batch.nodes.len(), batch.queue.len());
    output::json_line(&Rate { nodes, queue, placed, seconds, pods_per_second })?;
    Ok(Outcome::Yes)
}
