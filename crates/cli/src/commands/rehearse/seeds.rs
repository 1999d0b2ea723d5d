//! Plays a rehearsal with one seed or many.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

use stead_whatif::{RehearsalError, Run, Scene};

use super::source::Source;

/// The outcome of a rehearsal.
pub(super) struct Played {
    pub(super) source: Source,
    /// The run to show: the only one, the shortest one that failed, or the first.
    pub(super) run: Run,
    /// Its seed.
    pub(super) seed: u64,
    /// What was found with many seeds; none for a single one.
    pub(super) many: Option<ManySeeds>,
}

/// The outcome with many seeds.
pub(super) struct ManySeeds {
    pub(super) first: u64,
    pub(super) count: u64,
    /// The seeds that failed, in order.
    pub(super) failed: Vec<u64>,
}

impl Played {
    pub(super) fn passed(&self) -> bool {
        self.run.passed() && self.many.as_ref().is_none_or(|many| many.failed.is_empty())
    }
}

/// Plays a rehearsal with the seeds from `first` on.
pub(super) fn play(source: Source, scene: &Scene, first: u64, count: Option<u64>) -> anyhow::Result<Played> {
    let broken = |error: RehearsalError| source.broken(&error.field, &error.message);
    let Some(count) = count else {
        let run = one(&source, scene, first).map_err(broken)?;
        return Ok(Played { source, run, seed: first, many: None });
    };
    let mut failed = failures(&source, scene, first, count).map_err(broken)?;
    failed.sort_by_key(|failure| failure.seed);
    // A short run says most: few steps, then little time.
    let shortest = failed.iter().min_by_key(|failure| failure.length);
    let seed = shortest.map_or(first, |failure| failure.seed);
    let run = one(&source, scene, seed).map_err(broken)?;
    let failed = failed.iter().map(|failure| failure.seed).collect();
    Ok(Played { source, run, seed, many: Some(ManySeeds { first, count, failed }) })
}

fn one(source: &Source, scene: &Scene, seed: u64) -> Result<Run, RehearsalError> {
    Ok(stead_whatif::play(&source.rehearsal, scene.start(seed)?, &source.manifests))
}

/// A run that failed.
struct Failure {
    seed: u64,
    /// Steps, milliseconds of cluster time, and the seed, which makes it unique.
    length: (usize, i128, u64),
}

/// Plays all seeds on all processors.
fn failures(source: &Source, scene: &Scene, first: u64, count: u64) -> Result<Vec<Failure>, RehearsalError> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut found = Vec::new();
        loop {
            let offset = next.fetch_add(1, Ordering::Relaxed);
            if offset >= count {
                return Ok(found);
            }
            let seed = first.wrapping_add(offset);
            let run = one(source, scene, seed)?;
            if !run.passed() {
                found.push(Failure { seed, length: (run.steps.len(), run.took().0.as_millis(), seed) });
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::new();
        for worker in workers {
            all.extend(worker.join().expect("a worker does not panic")?);
        }
        Ok(all)
    })
}
