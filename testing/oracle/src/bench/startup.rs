//! Measures the released program: its size, and how long it takes to explain a pod from a small dump, from the start of
//! the process to its end.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::root;

/// What is allowed.
const MAX_BYTES: u64 = 20_000_000;
const MAX_TIME: Duration = Duration::from_millis(30);

/// How often the program is started; the median counts.
const RUNS: usize = 41;

const EXPLAIN: [&str; 6] =
    ["explain", "pod/glance-default-external-api-2", "-n", "openstack", "--from", "examples/glance-zones"];

pub(crate) fn measure() -> Result<()> {
    let Some(program) = released() else {
        println!("startup: skipped, there is no released program (run `cargo xtask dist`)");
        return Ok(());
    };
    let size = std::fs::metadata(&program).with_context(|| format!("reading {}", program.display()))?.len();
    println!("{:<36} {:>9.1} MB, at most {} MB", "size of the program", size as f64 / 1e6, MAX_BYTES / 1_000_000);
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let mut command = Command::new(&program);
        command.args(EXPLAIN).current_dir(root()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status().with_context(|| format!("running {}", program.display()))?;
        times.push(start.elapsed());
        ensure!(status.code().is_some_and(|code| code < 2), "stead explain ended with {status}");
    }
    times.sort_unstable();
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{:<36} {:>9.1} ms (fastest {:.1}), at most {} ms",
        "explain a pod from a small dump",
        milliseconds(times[RUNS / 2]),
        milliseconds(times[0]),
        MAX_TIME.as_millis()
    );
    Ok(())
}

/// The program that `cargo xtask dist` or `cargo xtask image` built.
fn released() -> Option<PathBuf> {
    let program = root().join("target/image/x86_64-unknown-linux-musl/dist/stead");
    program.is_file().then_some(program)
}
