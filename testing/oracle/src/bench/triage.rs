//! Measures triage of a large cluster with every fault in it.

use std::time::Instant;

use anyhow::{Result, ensure};
use stead_explain::outage::Clock;
use stead_explain::triage::{Thresholds, TriageScope, triage};
use stead_model::Objects;

/// Nodes and pods.
const SIZE: (usize, usize) = (5000, 50_000);

/// The longest time after reading.
const LIMIT_MS: u128 = 2000;

pub(crate) fn measure(runs: usize) -> Result<()> {
    let cluster = stead_faults::large_cluster(1, SIZE.0, SIZE.1);
    let pods = cluster.items().iter().filter(|item| item["kind"] == "Pod").count();
    let (kinds, clock) = (cluster.kinds(), Clock::at(cluster.now()));
    let mut times = Vec::new();
    let mut causes = 0;
    for _ in 0..runs.max(1) {
        // Nothing is parsed before the first question.
        let objects = Objects::from_items(cluster.items().iter().cloned());
        let start = Instant::now();
        causes = triage(&objects, &kinds, &clock, &Thresholds::default(), &TriageScope::default()).causes.len();
        times.push(start.elapsed().as_millis());
    }
    times.sort_unstable();
    let median = times[times.len() / 2];
    println!(
        "triage: {} nodes, {pods} pods, {causes} causes: {median} ms after reading (limit {LIMIT_MS} ms)",
        cluster.node_count()
    );
    ensure!(median <= LIMIT_MS, "triage took {median} ms");
    Ok(())
}
