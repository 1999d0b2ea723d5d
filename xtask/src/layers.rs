//! The layering that docs/ARCHITECTURE.md promises, checked.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{Outcome, root};

/// The core, from the bottom: each crate may know those before it.
const CORE: [&str; 6] =
    ["stead-semantics", "stead-placement", "stead-explain", "stead-loops", "stead-pool", "stead-recovery"];

/// The crates above and beside the core, and those of our own that they may know.
const SHELL: [(&str, &[&str]); 10] = [
    ("stead-dump", &[]),
    ("stead-live", &["stead-semantics", "stead-placement", "stead-explain"]),
    ("stead-manifests", &["stead-semantics", "stead-pool"]),
    ("stead-election", &[]),
    ("stead-operator", &["stead-semantics", "stead-placement", "stead-explain", "stead-loops", "stead-election"]),
    ("stead-agent", &["stead-pool", "stead-election"]),
    ("stead-testbed", &[]),
    ("stead-machines", &["stead-testbed"]),
    ("stead-stage", &["stead-machines", "stead-testbed"]),
    ("stead-reports", &["stead-machines", "stead-stage", "stead-testbed"]),
];

/// What the core must not know, directly or not: clients, runtimes, random sources, clocks, archives.
const BANNED: [&str; 31] = [
    "async-std",
    "axum",
    "chrono",
    "crossbeam",
    "fastrand",
    "flate2",
    "futures",
    "getrandom",
    "h2",
    "http",
    "hyper",
    "kube",
    "kube-client",
    "kube-core",
    "kube-runtime",
    "mio",
    "rand",
    "rand_core",
    "rayon",
    "reqwest",
    "rustls",
    "serde-saphyr",
    "smol",
    "socket2",
    "tar",
    "tempfile",
    "time",
    "tokio",
    "tower",
    "ureq",
    "uuid",
];

/// The lints that keep the core from what the standard library offers; each core crate refers to them.
const LINTS: &str = "clippy-core.toml";

pub(crate) fn run() -> Result<Outcome> {
    let mut faults = Vec::new();
    for (height, package) in CORE.iter().enumerate() {
        let tree = tree(package)?;
        faults.extend(core_faults(package, &CORE[..height], &tree));
        faults.extend(lint_faults(package)?);
    }
    for (package, allowed) in SHELL {
        faults.extend(own_faults(package, allowed, &tree(package)?));
    }
    for fault in &faults {
        println!("layers: {fault}");
    }
    if !faults.is_empty() {
        return Ok(Outcome::Failed);
    }
    println!(
        "layers: {} know no client, runtime, clock or random source, and only what is below them",
        CORE.join(", ")
    );
    Ok(Outcome::Passed)
}

/// A package's dependencies, direct and not, with the features that they have.
type Tree = BTreeMap<String, BTreeSet<String>>;

fn tree(package: &str) -> Result<Tree> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal,build", "--prefix", "none", "--format", "{p}|{f}"])
        .current_dir(root())
        .output()
        .context("running cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    Ok(parse(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines of the form `name version …|feature,feature`; the first is the package itself.
fn parse(text: &str) -> Tree {
    let mut tree = Tree::new();
    for line in text.lines().skip(1) {
        let (package, features) = line.split_once('|').unwrap_or((line, ""));
        let Some(name) = package.split(' ').next().filter(|n| !n.is_empty()) else { continue };
        let features = features.trim_end_matches(" (*)").split(',').filter(|f| !f.is_empty());
        tree.entry(name.to_owned()).or_default().extend(features.map(str::to_owned));
    }
    tree
}

fn core_faults(package: &str, below: &[&str], tree: &Tree) -> Vec<String> {
    let banned = tree.keys().filter(|name| BANNED.contains(&name.as_str()));
    let mut faults: Vec<String> = banned.map(|name| format!("{package} must not depend on {name}")).collect();
    faults.extend(own_faults(package, below, tree));
    // k8s-openapi has its timestamps from jiff. Without `std` jiff has types, but no clock.
    if tree.get("jiff").is_some_and(|features| features.contains("std")) {
        faults.push(format!("{package} must not have jiff with its clock (feature std)"));
    }
    faults
}

fn own_faults(package: &str, allowed: &[&str], tree: &Tree) -> Vec<String> {
    let own = tree.keys().filter(|name| name.starts_with("stead") && !allowed.contains(&name.as_str()));
    own.map(|name| format!("{package} must not depend on {name}")).collect()
}

/// Clippy reads the configuration beside a crate's manifest: the core's has to be the shared one.
fn lint_faults(package: &str) -> Result<Option<String>> {
    let folder = root().join("crates").join(package.trim_start_matches("stead-"));
    let shared = std::fs::read_to_string(root().join(LINTS)).with_context(|| format!("reading {LINTS}"))?;
    let own = std::fs::read_to_string(folder.join("clippy.toml")).unwrap_or_default();
    Ok((own != shared).then(|| format!("{package} must have {LINTS} as its clippy.toml")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layers_hold() {
        assert_eq!(run().expect("cargo tree runs"), Outcome::Passed);
    }

    #[test]
    fn what_breaks_them_is_named() {
        let tree = parse(
            "stead-placement v0.1.0 (somewhere)|\n\
             tokio v1.0.0|rt,net\n\
             jiff v0.2.0|alloc,std (*)\n\
             stead-semantics v0.1.0 (somewhere)|\n\
             stead-dump v0.1.0 (somewhere)|\n",
        );
        assert_eq!(
            core_faults("stead-placement", &["stead-semantics"], &tree),
            [
                "stead-placement must not depend on tokio",
                "stead-placement must not depend on stead-dump",
                "stead-placement must not have jiff with its clock (feature std)",
            ]
        );
    }

    /// Each line breaks a rule of the core, and the shared lints have to say so.
    const PLANTED: &[&str] = &[
        "pub fn a() -> std::collections::HashMap<u8, u8> { Default::default() }",
        "pub fn b() -> std::collections::HashSet<u8> { Default::default() }",
        "pub fn c() { let _ = std::time::SystemTime::now(); }",
        "pub fn d() { let _ = std::time::Instant::now(); }",
        "pub fn e() { let _ = std::thread::spawn(|| ()); }",
        "pub fn f() { let _ = std::env::var(\"HOME\"); }",
        "pub fn g() { let _ = std::fs::read(\"x\"); }",
        "pub fn h() { let _ = std::net::TcpStream::connect(\"x\"); }",
        "pub fn i() { let _ = std::hash::RandomState::new(); }",
        "pub fn j() { let _ = std::process::Command::new(\"x\"); }",
        "pub fn k() { let _ = std::io::stdin(); }",
        "pub fn l() { let _ = std::fs::File::open(\"x\"); }",
    ];

    #[test]
    fn planted_violations_are_found_by_the_lints() {
        let folder = std::env::temp_dir().join(format!("stead-layers-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("src")).expect("a temporary folder");
        let manifest = "[package]\nname = \"planted\"\nedition = \"2024\"\n[workspace]\n\
                        [lints.clippy]\ndisallowed_types = \"warn\"\ndisallowed_methods = \"warn\"\n";
        std::fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest");
        std::fs::copy(root().join(LINTS), folder.join("clippy.toml")).expect("the lints");
        std::fs::write(folder.join("src/lib.rs"), PLANTED.join("\n")).expect("the violations");
        let output = Command::new(env!("CARGO"))
            .args(["clippy", "--offline", "--quiet", "--message-format", "short", "--target-dir"])
            .arg(folder.join("target"))
            .current_dir(&folder)
            .output()
            .expect("cargo runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        std::fs::remove_dir_all(&folder).expect("the temporary folder goes away");
        if said.contains("no such command: `clippy`") || said.contains("'cargo-clippy' is not installed") {
            println!("skipped: clippy is not installed");
            return;
        }
        for (i, line) in PLANTED.iter().enumerate() {
            let place = format!("src/lib.rs:{}:", i + 1);
            assert!(said.contains(&place), "not found: {line}\n{said}");
        }
    }
}
