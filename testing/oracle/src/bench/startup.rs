//! Measures the released program: its size, and how long it takes to explain a pod from a small dump, from the start of
//! the process to its end.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::bounds::Bounds;
use crate::root;

/// What is allowed: megabytes and milliseconds.
const MAX_SIZE: f64 = 20.0;
const MAX_TIME: f64 = 30.0;

/// How often the program is started; the median counts.
const RUNS: usize = 41;

const EXPLAIN: [&str; 6] =
    ["explain", "pod/glance-default-external-api-2", "-n", "openstack", "--from", "examples/glance-zones"];

pub(crate) fn measure(bounds: &mut Bounds) -> Result<()> {
    let Some(program) = released() else {
        println!("startup: skipped, there is no released program (run `cargo xtask dist`)");
        return Ok(());
    };
    let size = std::fs::metadata(&program).with_context(|| format!("reading {}", program.display()))?.len();
    #[expect(clippy::cast_precision_loss, reason = "a program is far smaller")]
    bounds.row_at_most("size of the released program", size as f64 / 1e6, MAX_SIZE, "MB");
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let mut command = Command::new(&program);
        command.args(EXPLAIN).current_dir(root()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status().with_context(|| format!("running {}", program.display()))?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        ensure!(status.code().is_some_and(|code| code < 2), "stead explain ended with {status}");
    }
    times.sort_by(f64::total_cmp);
    bounds.row_at_most("the released program explains a pod from a small dump", times[RUNS / 2], MAX_TIME, "ms");
    Ok(())
}

/// The program that `cargo xtask dist` or `cargo xtask image` built.
fn released() -> Option<PathBuf> {
    let program = root().join("target/image/x86_64-unknown-linux-musl/dist/stead");
    program.is_file().then_some(program)
}
