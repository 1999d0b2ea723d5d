//! The report about Glance and its Topologies, played as it stands. `cargo xtask report glance` prints it.

use std::path::Path;

use stead_machines::Machines;
use stead_testbed::Binaries;

const STEAD: &str = env!("CARGO_BIN_EXE_stead");

#[tokio::test(flavor = "multi_thread")]
async fn the_report_holds() -> anyhow::Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let mut seen = Vec::new();
    let played = stead_reports::glance::play(&binaries, Path::new(STEAD), &mut seen).await;
    // What was typed and seen until then tells more than the error alone.
    played.map_err(|e| e.context(String::from_utf8_lossy(&seen).into_owned()))
}

/// Three pods are stuck on a machine that is suspended: explained, recovered, and the machine resumed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_stuck_pods_are_recovered() -> anyhow::Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    if !Machines::can_run_or_skip() {
        return Ok(());
    }
    let Some(demo) = crate::demo_or_skip() else { return Ok(()) };
    let mut seen = Vec::new();
    let played = stead_reports::glance::recover(&binaries, Path::new(STEAD), &demo, &mut seen).await;
    played.map_err(|e| e.context(String::from_utf8_lossy(&seen).into_owned()))
}
