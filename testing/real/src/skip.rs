//! Reports tests that are skipped because a component is missing, so that they are not counted as passed.

use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable that names a file which gets one line for each skipped test. `cargo xtask ci` and
/// `cargo xtask real` set it, and subtract these tests from those that passed.
pub const SKIPPED: &str = "STEAD_SKIPPED";

/// Reports that the current test is skipped, and why. The test then returns.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("SKIPPED: {}: {why}\n", thread.name().unwrap_or("a test"));
    // Written directly: the test harness captures what the print macros write. Errors are ignored because there is
    // nowhere else to report them.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os(SKIPPED) {
        let noted =
            OpenOptions::new().create(true).append(true).open(file).and_then(|mut f| f.write_all(line.as_bytes()));
        if let Err(e) = noted {
            let _ = writeln!(std::io::stderr(), "SKIPPED, but not counted: {e}");
        }
    }
}
