//! The walk-through on the real control plane: undisturbed, with the operator killed, behind a proxy that misbehaves.
//! A short form of `cargo xtask disturb`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use stead_stage::disturb::{self, Dice};
use stead_testbed::Binaries;

const STORAGE: &str = include_str!("../../../../testdata/cluster/storage.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn a_disturbed_walk_ends_as_an_undisturbed_one() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let stage = disturb::open(&binaries, Path::new(env!("CARGO_BIN_EXE_stead")), STORAGE).await?;
    let mut said = |_: &str| {};
    let calm = disturb::undisturbed(&stage, Duration::from_secs(20), &mut said).await?;
    let killed = disturb::killed(&stage, &calm, 8, &mut Dice(1), &mut said).await?;
    ensure!(killed.kills == 8, "killed {} times only", killed.kills);
    let (_, tally) = disturb::spoilt(&stage, &calm, 0.04, 1, &mut said).await?;
    ensure!(tally.faults() > 20, "few faults: {tally:?}");
    Ok(())
}
