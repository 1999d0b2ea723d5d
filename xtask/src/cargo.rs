//! Cargo, called by a program that cargo runs.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::root;

/// Cargo in the root of the repository. The variables in which cargo describes the calling package are removed: build
/// scripts of dependencies (ring's) depend on them, so leaving them set would rebuild half of the dependencies.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root());
    let set_by_cargo = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(set_by_cargo)) {
        cargo.env_remove(name);
    }
    // A build server compiles everything once: what a next compilation could reuse would only fill the disk.
    if std::env::var_os("CI").is_some() {
        cargo.env("CARGO_INCREMENTAL", "0");
    }
    cargo
}

/// The output of a cargo command.
pub(crate) fn output(args: &[&str]) -> Result<String> {
    let output = cargo().args(args).stderr(Stdio::piped()).output().context("running cargo")?;
    ensure!(output.status.success(), "cargo {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).context("the output of cargo")
}

/// What `cargo metadata` prints.
pub(crate) fn metadata() -> Result<Value> {
    serde_json::from_str(&output(&["metadata", "--format-version", "1", "--locked"])?).context("cargo metadata")
}
