//! Tests that have nothing to run with say so, and are not counted as passed.

use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable that names a file which gets a line for each test that was skipped. `cargo xtask ci` sets
/// it, and takes these tests out of the number of those that passed.
pub const SKIPPED: &str = "STEAD_SKIPPED";

/// Says aloud that the test that runs in this thread is skipped, and why. The test then returns.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {why}\n", thread.name().unwrap_or("a test"));
    // Not by a macro: what these print, the test harness keeps to itself. A test that cannot even say this is no
    // worse off for it.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os(SKIPPED) {
        let noted =
            OpenOptions::new().create(true).append(true).open(file).and_then(|mut f| f.write_all(line.as_bytes()));
        if let Err(e) = noted {
            let _ = writeln!(std::io::stderr(), "SKIPPED, but not counted: {e}");
        }
    }
}
