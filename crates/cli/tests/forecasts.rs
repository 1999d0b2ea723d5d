//! What `stead explain` foresees of outages made at random, and what then happens on the real control plane. A short form
//! of `cargo xtask forecasts`. It is a program of its own, so that nothing else runs beside it: it is about seconds.

use std::path::Path;

use anyhow::{Result, ensure};
use stead_machines::Machines;
use stead_stage::forecasts::{self, Play, Verdict, Waits};
use stead_testbed::Binaries;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_foreseen_comes() -> Result<()> {
    let Some(binaries) = Binaries::find_or_skip() else { return Ok(()) };
    if !Machines::can_run_or_skip() {
        return Ok(());
    }
    let how = Play { numbers: (0..10).collect(), seed: 1, at_once: 10, waits: Waits::FAST };
    let mut lines = Vec::new();
    let say = &mut |line: &str| lines.push(line.to_owned());
    let tally = forecasts::play(&binaries, Path::new(env!("CARGO_BIN_EXE_stead")), &how, say).await;
    let tally = tally.map_err(|e| e.context(lines.join("\n")))?;
    let count = |verdict| tally.count(verdict).0;
    // Of forty, 95 in a hundred have to be right. Of ten one may be off: when a Node is deleted the pod collector's own
    // chance makes one of some eight pods a look later. Some may be as late as the machine was.
    let good = count(Verdict::NeverWrong) == 0 && count(Verdict::Elsewhere) == 0 && count(Verdict::Off) <= 1;
    let good = good && count(Verdict::Right) >= 7;
    ensure!(good, "{tally}:\n{}", lines.join("\n"));
    Ok(())
}
