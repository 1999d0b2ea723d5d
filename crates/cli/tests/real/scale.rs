//! Some GlanceAPIs, and an operator that is restarted when all is done. A short form of `cargo xtask scale`.

use std::path::Path;

use anyhow::{Result, ensure};
use stead_stage::{disturb, scale};
use stead_testbed::Binaries;

const STORAGE: &str = include_str!("../../../../testdata/cluster/storage.yaml");

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_writes_nothing() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let stage = disturb::open(&binaries, Path::new(env!("CARGO_BIN_EXE_stead")), STORAGE).await?;
    let (first, second) = scale::play(&stage, &disturb::kubeconfig(&stage)?, 20, 2).await?;
    ensure!(!first.writes.is_empty(), "the first operator wrote nothing");
    ensure!(second.writes.is_empty(), "needless writes:\n{}", second.writes.join("\n"));
    Ok(())
}
