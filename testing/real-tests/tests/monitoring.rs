//! The alert rules of `examples/monitoring`, judged by Prometheus' own promtool.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use stead_testbed::Binaries;
use stead_testbed::skip;

/// promtool of the cache of real components, or of the path.
fn promtool() -> Option<PathBuf> {
    let cached = Binaries::directory().map(|directory| directory.join("promtool"));
    let path = std::env::var_os("PATH")?;
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("promtool"));
    cached.into_iter().chain(on_path).find(|path| path.is_file())
}

#[test]
fn promtool_accepts_the_alert_rules() -> Result<()> {
    let Some(promtool) = promtool() else {
        skip("promtool is not installed (it is part of Debian's package prometheus)");
        return Ok(());
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/monitoring");
    for args in [["check", "rules", "alerts.yaml"], ["test", "rules", "alerts-test.yaml"]] {
        let output = Command::new(&promtool).args(args).current_dir(&folder).output().context("running promtool")?;
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "promtool {}: {}", args.join(" "), String::from_utf8_lossy(&said));
    }
    Ok(())
}
