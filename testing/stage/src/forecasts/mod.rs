//! Compares forecasts with what happens, in random situations.
//!
//! A situation is drawn from a seed ([`Situation`]): a workload, its storage, what happens to its node, and what a
//! person does about it before `stead explain` is called. It is played on a real control plane with machines
//! ([`play()`]): the node fails, `stead explain` is called after a while, the commands of one of its options are run,
//! and a watch reports when and where the pod is Ready again. The result of the comparison is an [`Accuracy`]. Many
//! situations are played at the same time, each on a separate node.

mod accuracy;
mod cluster;
mod machine_delay;
mod objects;
mod play;
mod readiness;
mod situation;
mod timeouts;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use stead_testbed::Binaries;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

pub use accuracy::{Accuracy, AccuracyTally, PlayedForecast};
pub use situation::{ManualAction, OPTIONS, Situation, Storage, TolerationTime, Trigger, Workload, Zone};
pub use timeouts::Timeouts;

use cluster::ForecastCluster;

/// Which situations to play, and settings.
#[derive(Debug, Clone, PartialEq)]
pub struct PlaySettings {
    /// The numbers of the situations.
    pub numbers: Vec<u32>,
    /// The seed of the situations.
    pub seed: u64,
    /// How many situations are played at the same time.
    pub at_once: usize,
    /// The timeouts of the control plane.
    pub timeouts: Timeouts,
}

/// Plays situations. Calls `say` with the result of each, and returns the tally of all.
pub async fn play(
    binaries: &Binaries,
    stead: &Path,
    settings: &PlaySettings,
    say: &mut (impl FnMut(&str) + Send),
) -> Result<AccuracyTally> {
    let situations: Vec<Situation> =
        settings.numbers.iter().map(|number| Situation::draw(settings.seed, *number)).collect();
    let cluster =
        Arc::new(ForecastCluster::open(binaries, stead, settings.timeouts, &situations, settings.at_once).await?);
    let (places, mut tasks) = (Arc::new(Semaphore::new(settings.at_once)), JoinSet::new());
    for situation in situations {
        let (cluster, places) = (cluster.clone(), places.clone());
        tasks.spawn(async move {
            let _place = places.acquire().await;
            let played = play::play(&cluster, &situation).await;
            played.map_err(|e| e.context(format!("situation {}, {}: {situation}", situation.number, situation.option)))
        });
    }
    let (mut tally, mut failed) = (AccuracyTally::default(), 0);
    while let Some(done) = tasks.join_next().await {
        match done? {
            Ok(played) => {
                let accuracy = played.accuracy(settings.timeouts.max_error);
                tally.add(played.situation.option, accuracy);
                say(&match accuracy {
                    Accuracy::Accurate => played.to_string(),
                    wrong => format!("{played}  <- {wrong:?}\n{}", played.forecast_json),
                });
            }
            Err(e) => {
                failed += 1;
                say(&format!("could not play {e:#}"));
            }
        }
    }
    if failed > 0 {
        bail!("{failed} situations could not be played; results of the others:\n{tally}");
    }
    Ok(tally)
}
