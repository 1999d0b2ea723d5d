//! The program that goes into the image.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::root;

/// The architecture in OCI terms.
pub(crate) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Builds a static program without local paths in it.
pub fn build() -> Result<PathBuf> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let folder = root().join("target").join("image");
    let mut flags = vec![format!("--remap-path-prefix={}=stead", root().display())];
    if let Some(home) = cargo_home() {
        flags.push(format!("--remap-path-prefix={}=cargo", home.display()));
    }
    println!("building for {target}");
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "--locked", "--package", "stead", "--target", &target, "--target-dir"])
        .arg(&folder)
        .current_dir(root())
        // Cargo's separator, which allows paths with spaces.
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .status()
        .context("running cargo build")?;
    ensure!(
        status.success(),
        "cargo build: {status}; needed: `rustup target add {target}` and a C compiler for musl (musl-gcc, Debian's \
         musl-tools)"
    );
    Ok(folder.join(target).join("release").join("stead"))
}

fn cargo_home() -> Option<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
}
