//! The report about Glance and its Topologies, played as it stands. `cargo xtask report glance` prints it.

use std::path::Path;

use stead_testbed::Binaries;

#[tokio::test(flavor = "multi_thread")]
async fn the_report_holds() -> anyhow::Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    let mut seen = Vec::new();
    let played = stead_reports::glance::play(&binaries, Path::new(env!("CARGO_BIN_EXE_stead")), &mut seen).await;
    // What was typed and seen until then tells more than the error alone.
    played.map_err(|e| e.context(String::from_utf8_lossy(&seen).into_owned()))
}
