//! A Gluster pool: real glusterd in pods that are processes, on the real control plane. Most of the time is waited for
//! Kubernetes' own timers, so the tests run side by side.

use std::path::Path;

use anyhow::Result;
use stead_stage::pool::{self, PoolStage};
use stead_testbed::Binaries;

const STEAD: &str = env!("CARGO_BIN_EXE_stead");

/// `cargo xtask gluster` prints the scenes.
#[tokio::test(flavor = "multi_thread")]
async fn the_scenes_hold() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    if !pool::can_run_or_skip() {
        return Ok(());
    }
    let mut told = Vec::new();
    let stage = PoolStage::open(&binaries, Path::new(STEAD)).await?;
    let played = pool::play(&stage, &mut |line: &str| told.push(line.to_owned())).await;
    played.map_err(|e| e.context(told.join("\n")))
}

/// A short form of `cargo xtask gluster --runs 50`.
#[tokio::test(flavor = "multi_thread")]
async fn faults_at_random_heal() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    if !pool::can_run_or_skip() {
        return Ok(());
    }
    let stage = PoolStage::open(&binaries, Path::new(STEAD)).await?;
    pool::runs(&stage, 3, 1, &mut |_: &str| {}).await
}

/// The report's own way: the nodes' network, one pod a node.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_on_the_nodes_network() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    if !pool::can_run_or_skip() {
        return Ok(());
    }
    let stage = PoolStage::open(&binaries, Path::new(STEAD)).await?;
    pool::on_the_nodes_network(&stage).await
}

/// The report, played as it stands. `cargo xtask report gluster` prints it.
#[tokio::test(flavor = "multi_thread")]
async fn the_report_holds() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    if !pool::can_run_or_skip() {
        return Ok(());
    }
    let mut seen = Vec::new();
    let played = stead_reports::gluster::play(&binaries, Path::new(STEAD), &mut seen).await;
    // What was typed and seen until then tells more than the error alone.
    played.map_err(|e| e.context(String::from_utf8_lossy(&seen).into_owned()))
}
