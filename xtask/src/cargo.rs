//! Cargo, called by a chore that cargo runs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::root;

/// Cargo in the project's root, without what cargo told this process about its own package: build scripts of others
/// (ring's) look at these variables and would make half of the dependencies be compiled anew.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root());
    let told = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(told)) {
        cargo.env_remove(name);
    }
    cargo
}

/// The program to test, built.
pub(crate) fn stead() -> Result<PathBuf> {
    program("stead")
}

/// A program of the workspace, built; with the features that the tests have it built with, so that it is built once.
pub(crate) fn program(name: &str) -> Result<PathBuf> {
    let output = cargo()
        .args(["build", "--quiet", "--workspace", "--bin", name, "--message-format=json"])
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo build")?;
    ensure!(output.status.success(), "cargo build --bin {name}: {}", output.status);
    let messages = String::from_utf8_lossy(&output.stdout);
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo build told of no program {name}"))
}
