//! The programs of this workspace, built by cargo.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};

/// The environment variable with the folder of up-to-date programs, which are then not built.
const PROGRAMS_VARIABLE: &str = "STEAD_PROGRAMS";

/// Builds a program of this workspace, such as `stead`, once per process. Returns its path.
pub fn program(name: &str) -> Result<PathBuf> {
    static BUILT: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = built.get(name) {
        return Ok(path.clone());
    }
    let path = match std::env::var_os(PROGRAMS_VARIABLE) {
        Some(folder) => PathBuf::from(folder).join(name),
        None => build(name)?,
    };
    built.insert(name.to_owned(), path.clone());
    Ok(path)
}

fn build(name: &str) -> Result<PathBuf> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--workspace", "--bin", name, "--message-format=json-render-diagnostics"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .stderr(Stdio::inherit());
    // Cargo describes the calling package in these variables. Build scripts (ring's) depend on them, so leaving them
    // set would rebuild half of the dependencies.
    let set_by_cargo = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(set_by_cargo)) {
        cargo.env_remove(name);
    }
    let output = cargo.output().context("running cargo build")?;
    ensure!(output.status.success(), "cargo build --bin {name}: {}", output.status);
    let messages = String::from_utf8_lossy(&output.stdout);
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo build reported no program {name}"))
}
