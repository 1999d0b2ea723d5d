//! The program `stead`, static and without local paths in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::release::Release;
use crate::root;

/// How large the program may be.
const MAX_BYTES: usize = 20_000_000;

/// The platform of the program in Rust's terms.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-musl";

/// The platform in OCI terms.
pub(crate) const ARCHITECTURE: &str = "amd64";

/// Builds the program of these sources for a test, and returns its path.
pub fn build() -> Result<PathBuf> {
    build_release(&Release::of(&root())?)
}

/// Builds the program of a release, and returns its path.
pub(crate) fn build_release(release: &Release) -> Result<PathBuf> {
    check_tools()?;
    let folder = release.root.join("target").join("image");
    println!("building stead for {TARGET}");
    let mut cargo = Command::new(env!("CARGO"));
    // The variables in which cargo describes this package: build scripts of dependencies depend on them.
    let set_by_cargo = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(set_by_cargo)) {
        cargo.env_remove(name);
    }
    cargo
        .args(["build", "--profile", "dist", "--locked", "--package", "stead", "--target", TARGET, "--target-dir"])
        .arg(&folder)
        .current_dir(&release.root)
        // Cargo's separator, which allows paths with spaces.
        .env("CARGO_ENCODED_RUSTFLAGS", flags(&release.root).join("\u{1f}"))
        .env("CARGO_INCREMENTAL", "0")
        .env("STEAD_COMMIT", &release.commit)
        .env("SOURCE_DATE_EPOCH", release.time.as_second().to_string())
        .env_remove("STEAD_IMAGE");
    if let Some(image) = release.image() {
        cargo.env("STEAD_IMAGE", image);
    }
    let status = cargo.status().context("running cargo build")?;
    ensure!(status.success(), "cargo build: {status}");
    let program = folder.join(TARGET).join("dist").join("stead");
    let bytes = std::fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    check_program(&bytes)?;
    Ok(program)
}

/// The flags of the compiler: short relocations, and no paths of this machine.
fn flags(root: &Path) -> Vec<String> {
    // The relocations of a program that can be loaded anywhere take half a megabyte if each is written by itself.
    let relocations = ["-C".to_owned(), "link-arg=-Wl,-z,pack-relative-relocs".to_owned()];
    relocations.into_iter().chain(path_flags(root)).collect()
}

/// Paths of this machine are replaced in what the compiler writes about source files.
fn path_flags(root: &Path) -> Vec<String> {
    let mut flags = Vec::new();
    if let Some(home) = cargo_home() {
        flags.push(format!("--remap-path-prefix={}=cargo", home.display()));
    }
    // The last one that matches is used: sources may be below cargo's folder.
    flags.push(format!("--remap-path-prefix={}=stead", root.display()));
    flags
}

fn cargo_home() -> Option<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
}

/// An error that names what has to be installed.
fn check_tools() -> Result<()> {
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        bail!("musl-gcc is not installed: some dependencies have C code. On Debian: `apt-get install musl-tools`");
    }
    // The standard library of the target, where rustup would put it.
    let sysroot = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output();
    let sysroot = sysroot.context("running rustc")?;
    let folder = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
    ensure!(folder.is_dir(), "Rust's standard library for {TARGET} is not installed: `rustup target add {TARGET}`");
    Ok(())
}

/// Checks that a program runs anywhere and is not too large.
fn check_program(program: &[u8]) -> Result<()> {
    ensure!(!has_interpreter(program)?, "the program is not static: it needs a dynamic linker");
    ensure!(program.len() <= MAX_BYTES, "the program has {} bytes; at most {MAX_BYTES} are allowed", program.len());
    Ok(())
}

/// The segment type that names a dynamic linker (PT_INTERP).
const INTERPRETER: u32 = 3;

/// Whether an ELF program of 64 bits, little-endian, names a dynamic linker.
fn has_interpreter(elf: &[u8]) -> Result<bool> {
    let number = |at: usize, size: usize| -> Result<usize> {
        let bytes = elf.get(at..at + size).context("the program is cut off")?;
        Ok(bytes.iter().rev().fold(0, |number, byte| (number << 8) | usize::from(*byte)))
    };
    ensure!(elf.starts_with(b"\x7fELF\x02\x01"), "this is not a program for 64-bit Linux");
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for segment in 0..count {
        if number(table + segment * size, 4)? == INTERPRETER as usize {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_found() {
        // This test is linked dynamically, except on musl.
        let this = std::fs::read(std::env::current_exe().expect("a path")).expect("this program");
        assert_eq!(has_interpreter(&this).expect("ELF"), !cfg!(target_env = "musl"));
        assert!(has_interpreter(b"#!/bin/sh").is_err());
        assert!(has_interpreter(&this[..60]).is_err());
    }

    #[test]
    fn no_path_of_this_machine_stays() {
        let flags = path_flags(Path::new("/somewhere/stead"));
        assert_eq!(flags.last().map(String::as_str), Some("--remap-path-prefix=/somewhere/stead=stead"));
    }
}
