//! Forecasts compared with what then happens, in random situations.
//!
//! A situation is drawn from a seed ([`Situation`]): a workload, its storage, what happens to its node, and what a
//! person does about it before `stead explain` is called. It is played on a real control plane with machines
//! ([`play()`]): something breaks, `stead explain` is called after a while, the commands of one of its options are
//! run, and a watch reports when and where the pod is Ready again. The comparison is a [`Verdict`]. Many situations
//! are played at once, each on a node of its own.

mod ground;
mod lateness;
mod objects;
mod play;
mod sight;
mod situation;
mod verdict;
mod waits;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use stead_testbed::Binaries;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use situation::{Fault, Meddling, Patience, Situation, Storage, WAYS, Workload, Zone};
pub use verdict::{Seen, Tally, Verdict};
pub use waits::Waits;

use ground::Ground;

/// How much is played.
#[derive(Debug, Clone, PartialEq)]
pub struct Play {
    /// Which situations.
    pub numbers: Vec<u32>,
    /// What they are drawn from.
    pub seed: u64,
    /// How many are played at the same time.
    pub at_once: usize,
    /// The control plane's waiting times.
    pub waits: Waits,
}

/// Plays situations; `say` hears of each. What was seen of all is returned.
pub async fn play(binaries: &Binaries, stead: &Path, how: &Play, say: &mut (impl FnMut(&str) + Send)) -> Result<Tally> {
    let situations: Vec<Situation> = how.numbers.iter().map(|number| Situation::draw(how.seed, *number)).collect();
    let ground = Arc::new(Ground::open(binaries, stead, how.waits, &situations, how.at_once).await?);
    let (places, mut tasks) = (Arc::new(Semaphore::new(how.at_once)), JoinSet::new());
    for situation in situations {
        let (ground, places) = (ground.clone(), places.clone());
        tasks.spawn(async move {
            let _place = places.acquire().await;
            let seen = play::play(&ground, &situation).await;
            seen.map_err(|e| e.context(format!("situation {}, {}: {situation}", situation.number, situation.way)))
        });
    }
    let (mut tally, mut failed) = (Tally::default(), 0);
    while let Some(done) = tasks.join_next().await {
        match done? {
            Ok(seen) => {
                let verdict = seen.verdict(how.waits.limit);
                tally.add(seen.situation.way, verdict);
                say(&match verdict {
                    Verdict::Right => seen.to_string(),
                    wrong => format!("{seen}  <- {wrong:?}\n{}", seen.said),
                });
            }
            Err(e) => {
                failed += 1;
                say(&format!("not played: {e:#}"));
            }
        }
    }
    if failed > 0 {
        bail!("{failed} situations could not be played; of the others:\n{tally}");
    }
    Ok(tally)
}
