//! Measures triage of a large cluster with every fault in it.

use std::time::Instant;

use anyhow::Result;
use stead_explain::outage::Clock;
use stead_explain::triage::{Thresholds, TriageScope, triage};
use stead_model::Objects;

use super::bounds::Bounds;

/// Nodes and pods.
const SIZE: (usize, usize) = (5000, 50_000);

/// The longest time after reading, in milliseconds.
const LIMIT: f64 = 2000.0;

pub(crate) fn measure(bounds: &mut Bounds, runs: usize) -> Result<()> {
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
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let what = format!("triage: {} nodes, {pods} pods, {causes} causes, after reading", cluster.node_count());
    bounds.row_at_most(&what, times[times.len() / 2], LIMIT, "ms");
    Ok(())
}
