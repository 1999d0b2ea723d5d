//! The layering that docs/ARCHITECTURE.md promises, checked as a graph.
//!
//! [`CRATES`] lists every crate with the crates of this workspace that it may depend on directly. An edge that is not
//! listed fails, and so does a cycle, a product crate that depends on a testing crate (dev-dependencies excepted), and
//! a core crate with a dependency that does I/O or knows the time.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;
use stead_real::Outcome;

use crate::{cargo, root};

/// What a crate is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layer {
    /// Decides, and does no I/O: no client, runtime, file, clock or random source.
    Core,
    /// Reads, writes and prints.
    Shell,
    /// Used by tests and development tasks only.
    Testing,
}

use Layer::{Core, Shell, Testing};

/// Every crate, its layer, and the crates of this workspace that it may depend on directly.
const CRATES: &[(&str, Layer, &[&str])] = &[
    ("stead-semantics", Core, &[]),
    ("stead-model", Core, &["stead-semantics"]),
    ("stead-placement", Core, &["stead-semantics", "stead-model"]),
    ("stead-sim", Core, &["stead-semantics", "stead-model", "stead-placement"]),
    ("stead-kubectl", Core, &["stead-semantics", "stead-model"]),
    ("stead-whatif", Core, &["stead-semantics", "stead-model", "stead-sim", "stead-kubectl", "stead-loops"]),
    // What becomes of pods: whoever predicts anything asks it, so it is below explain.
    ("stead-forecast", Core, &["stead-model", "stead-placement", "stead-sim"]),
    ("stead-explain", Core, &["stead-semantics", "stead-model", "stead-placement", "stead-forecast"]),
    ("stead-loops", Core, &["stead-semantics", "stead-model", "stead-placement", "stead-explain"]),
    ("stead-recovery", Core, &["stead-semantics", "stead-model", "stead-placement"]),
    ("stead-pool", Core, &[]),
    ("stead-client", Shell, &["stead-model"]),
    ("stead-dump", Shell, &["stead-model"]),
    ("stead-live", Shell, &["stead-model", "stead-explain", "stead-client"]),
    ("stead-manifests", Shell, &["stead-semantics", "stead-model", "stead-pool"]),
    ("stead-election", Shell, &["stead-client"]),
    ("stead-operator", Shell, &["stead-model", "stead-explain", "stead-loops", "stead-client", "stead-election"]),
    ("stead-agent", Shell, &["stead-model", "stead-pool", "stead-client", "stead-election"]),
    (
        "stead",
        Shell,
        &[
            "stead-agent",
            "stead-client",
            "stead-dump",
            "stead-explain",
            "stead-kubectl",
            "stead-live",
            "stead-loops",
            "stead-manifests",
            "stead-model",
            "stead-operator",
            "stead-placement",
            "stead-pool",
            "stead-recovery",
            "stead-semantics",
            "stead-sim",
            "stead-whatif",
        ],
    ),
    ("stead-chance", Testing, &[]),
    ("stead-real", Testing, &[]),
    ("stead-testbed", Testing, &["stead-real"]),
    ("stead-machines", Testing, &["stead-testbed"]),
    ("stead-stage", Testing, &["stead-machines", "stead-testbed"]),
    ("stead-reports", Testing, &["stead-machines", "stead-stage", "stead-testbed"]),
    ("stead-real-tests", Testing, &[]),
    (
        "stead-oracle",
        Testing,
        &[
            "stead-explain",
            "stead-faults",
            "stead-forecast",
            "stead-model",
            "stead-placement",
            "stead-real",
            "stead-sim",
            "stead-whatif",
        ],
    ),
    ("stead-fuzz", Testing, &["stead-dump", "stead-explain", "stead-model", "stead-placement", "stead-real"]),
    ("stead-faults", Testing, &["stead-chance", "stead-explain", "stead-model", "stead-real"]),
    (
        "stead-agree",
        Testing,
        &["stead-chance", "stead-dump", "stead-kubectl", "stead-model", "stead-sim", "stead-testbed", "stead-whatif"],
    ),
    ("stead-dist", Testing, &["stead-manifests"]),
    (
        "stead-scenarios",
        Testing,
        &[
            "stead-dist",
            "stead-loops",
            "stead-machines",
            "stead-model",
            "stead-reports",
            "stead-stage",
            "stead-testbed",
        ],
    ),
    ("cinder-demo", Testing, &[]),
    ("xtask", Testing, &["stead-real"]),
];

/// The one shipped crate that talks to API servers.
const CLIENT: &str = "stead-client";

/// What the core must not depend on, directly or not: clients, runtimes, random sources, clocks, archives.
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

/// The lints that keep the core from the I/O of the standard library; each core crate has a copy as clippy.toml.
const LINTS: &str = "clippy-core.toml";

pub(crate) fn run() -> Result<Outcome> {
    let crates = workspace(&cargo::metadata()?)?;
    let mut faults = graph_faults(&crates, CRATES);
    for (name, _, _) in CRATES.iter().filter(|(name, layer, _)| *layer == Core && crates.contains_key(*name)) {
        faults.extend(core_faults(name, &tree(name)?));
        faults.extend(lint_faults(name, &crates[*name].folder)?);
    }
    faults.extend(feature_faults("stead", &tree("stead")?));
    for fault in &faults {
        println!("layers: {fault}");
    }
    if faults.is_empty() {
        println!("layers: {} crates, every dependency is allowed", crates.len());
    }
    Ok(Outcome::passed(faults.is_empty()))
}

/// The feature with which tests leave a safety rule out. Only the tests of a crate turn it on, by a dev-dependency on the
/// crate itself.
const TEST_FEATURE: &str = "switchable-guards";

fn feature_faults(package: &str, tree: &Tree) -> Vec<String> {
    let with_it = tree.iter().filter(|(_, features)| features.contains(TEST_FEATURE));
    with_it.map(|(name, _)| format!("{package} is shipped and must not have {name} with {TEST_FEATURE}")).collect()
}

/// A crate of the workspace.
#[derive(Debug, Default)]
struct Crate {
    /// Its folder, relative to the root of the repository.
    folder: String,
    /// Its direct dependencies within the workspace, dev-dependencies left out.
    depends_on: BTreeSet<String>,
    /// Its other direct dependencies, dev-dependencies left out.
    libraries: BTreeSet<String>,
}

/// Reads the workspace's crates from what `cargo metadata` prints.
fn workspace(metadata: &Value) -> Result<BTreeMap<String, Crate>> {
    let root = metadata["workspace_root"].as_str().context("cargo metadata has no workspace_root")?;
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut crates = BTreeMap::new();
    // A package without a source is one of ours.
    for package in packages.iter().filter(|package| package["source"].is_null()) {
        let manifest = text(&package["manifest_path"]);
        let folder =
            manifest.trim_start_matches(root).trim_start_matches('/').trim_end_matches("/Cargo.toml").to_owned();
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let shipped: Vec<&Value> = dependencies.filter(|dependency| dependency["kind"] != "dev").collect();
        let (ours, libraries): (Vec<&Value>, Vec<&Value>) =
            shipped.into_iter().partition(|dependency| dependency["path"].is_string());
        let names = |of: Vec<&Value>| of.into_iter().map(|dependency| text(&dependency["name"])).collect();
        let (depends_on, libraries) = (names(ours), names(libraries));
        crates.insert(text(&package["name"]), Crate { folder, depends_on, libraries });
    }
    Ok(crates)
}

fn graph_faults(crates: &BTreeMap<String, Crate>, table: &[(&str, Layer, &[&str])]) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, found) in crates {
        let Some((_, layer, allowed)) = table.iter().find(|(listed, _, _)| listed == name) else {
            faults.push(format!("{name} is not listed in xtask/src/layers.rs"));
            continue;
        };
        if (*layer != Testing) != found.folder.starts_with("crates/") {
            faults.push(format!("{name} is {layer:?}, but is in {}", found.folder));
        }
        for dependency in &found.depends_on {
            if !allowed.contains(&dependency.as_str()) {
                faults.push(format!("{name} must not depend on {dependency}"));
            }
            let to_testing = crates.get(dependency).is_some_and(|other| !other.folder.starts_with("crates/"));
            if found.folder.starts_with("crates/") && to_testing {
                faults.push(format!("{name} is shipped and must not depend on {dependency}, which is for tests"));
            }
        }
        if *layer == Shell && name != CLIENT && found.libraries.contains("kube") {
            faults.push(format!("{name} must reach API servers through {CLIENT}, not through kube"));
        }
    }
    faults.extend(cycle(table));
    faults
}

/// A cycle among the allowed dependencies. A crate is removed as soon as everything below it is; what remains is in a
/// cycle, or above one.
fn cycle(table: &[(&str, Layer, &[&str])]) -> Option<String> {
    let mut left: BTreeMap<&str, &[&str]> = table.iter().map(|(name, _, allowed)| (*name, *allowed)).collect();
    loop {
        let lowest = left.iter().find(|(_, allowed)| !allowed.iter().any(|below| left.contains_key(below)));
        let Some(name) = lowest.map(|(name, _)| *name) else { break };
        left.remove(name);
    }
    let names: Vec<&str> = left.into_keys().collect();
    (!names.is_empty()).then(|| format!("the allowed dependencies have a cycle among {}", names.join(", ")))
}

/// The dependencies of a package, direct and indirect, with the features that they have for it alone. (`cargo metadata`
/// has the features of the whole workspace together.)
type Tree = BTreeMap<String, BTreeSet<String>>;

fn tree(package: &str) -> Result<Tree> {
    let edges = ["--edges", "normal,build", "--prefix", "none", "--format", "{p}|{f}"];
    Ok(parse(&cargo::output(&[&["tree", "--locked", "--package", package], &edges[..]].concat())?))
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

fn core_faults(package: &str, tree: &Tree) -> Vec<String> {
    let banned = tree.keys().filter(|name| BANNED.contains(&name.as_str()));
    let mut faults: Vec<String> =
        banned.map(|name| format!("{package} is core and must not depend on {name}")).collect();
    // k8s-openapi has its timestamps from jiff. Without the feature `std` jiff has types, but no clock.
    if tree.get("jiff").is_some_and(|features| features.contains("std")) {
        faults.push(format!("{package} is core and must not have jiff's clock (feature std)"));
    }
    faults
}

/// Clippy reads the configuration beside a crate's manifest: for the core it has to be the shared one.
fn lint_faults(package: &str, folder: &str) -> Result<Option<String>> {
    let shared = std::fs::read_to_string(root().join(LINTS)).with_context(|| format!("reading {LINTS}"))?;
    let own = std::fs::read_to_string(root().join(folder).join("clippy.toml")).unwrap_or_default();
    Ok((own != shared).then(|| format!("{package} must have {LINTS} as its clippy.toml")))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use serde_json::json;

    use super::*;

    #[test]
    fn the_workspace_keeps_to_the_layers() {
        assert_eq!(run().expect("cargo runs"), Outcome::Passed);
    }

    fn package(name: &str, folder: &str, dependencies: &[(&str, Value)]) -> Value {
        let dependency = |(name, kind): &(&str, Value)| json!({"name": name, "path": "/somewhere", "kind": kind});
        let dependencies: Vec<Value> = dependencies.iter().map(dependency).collect();
        let manifest = format!("/r/{folder}/Cargo.toml");
        json!({"name": name, "source": null, "manifest_path": manifest, "dependencies": dependencies})
    }

    fn with_kube(mut package: Value) -> Value {
        package["dependencies"].as_array_mut().expect("a list").push(json!({"name": "kube", "kind": null}));
        package
    }

    #[test]
    fn forbidden_edges_are_named() {
        let table: &[(&str, Layer, &[&str])] =
            &[("a", Core, &[]), ("b", Shell, &["a", "t"]), ("t", Testing, &["a"]), ("m", Testing, &[])];
        let metadata = json!({"workspace_root": "/r", "packages": [
            package("a", "crates/a", &[("b", Value::Null), ("t", json!("dev"))]),
            with_kube(package("b", "crates/b", &[("a", Value::Null), ("t", json!("build"))])),
            package("m", "crates/m", &[]),
            package("t", "testing/t", &[("a", Value::Null)]),
            package("u", "crates/u", &[]),
            json!({"name": "serde", "source": "registry"}),
        ]});
        assert_eq!(
            graph_faults(&workspace(&metadata).expect("it is complete"), table),
            [
                "a must not depend on b",
                "b is shipped and must not depend on t, which is for tests",
                "b must reach API servers through stead-client, not through kube",
                "m is Testing, but is in crates/m",
                "u is not listed in xtask/src/layers.rs",
            ]
        );
    }

    #[test]
    fn cycles_are_named() {
        let table: &[(&str, Layer, &[&str])] = &[("a", Core, &["c"]), ("b", Core, &["a"]), ("c", Core, &["b"])];
        assert_eq!(cycle(table).as_deref(), Some("the allowed dependencies have a cycle among a, b, c"));
        assert_eq!(cycle(CRATES), None);
    }

    #[test]
    fn forbidden_dependencies_of_the_core_are_named() {
        let tree = parse("stead-placement v0.1.0 (path)|\ntokio v1.0.0|rt,net\njiff v0.2.0|alloc,std (*)\n");
        assert_eq!(
            core_faults("stead-placement", &tree),
            [
                "stead-placement is core and must not depend on tokio",
                "stead-placement is core and must not have jiff's clock (feature std)",
            ]
        );
    }

    #[test]
    fn a_shipped_program_without_its_guards_is_found() {
        let tree = parse("stead v0.1.0|\nstead-pool v0.1.0|switchable-guards\nstead-recovery v0.1.0|\n");
        assert_eq!(
            feature_faults("stead", &tree),
            ["stead is shipped and must not have stead-pool with switchable-guards"]
        );
    }

    /// Each line breaks a rule of the core, and the shared lints have to report it.
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

    /// It runs clippy-driver itself, on one file without dependencies: no cargo, no lock, no network.
    #[test]
    fn planted_violations_are_found_by_the_lints() {
        let folder = std::env::temp_dir().join(format!("stead-layers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        std::fs::copy(root().join(LINTS), folder.join("clippy.toml")).expect("the lints");
        std::fs::write(folder.join("lib.rs"), PLANTED.join("\n")).expect("the violations");
        let output = Command::new("clippy-driver")
            .args([
                "lib.rs",
                "--crate-type",
                "lib",
                "--edition",
                "2024",
                "--emit",
                "metadata",
                "--error-format",
                "short",
            ])
            .args(["-W", "clippy::disallowed_types", "-W", "clippy::disallowed_methods"])
            .env("CLIPPY_CONF_DIR", &folder)
            .current_dir(&folder)
            .output()
            .expect("clippy-driver runs");
        let report = String::from_utf8_lossy(&output.stderr).into_owned();
        std::fs::remove_dir_all(&folder).expect("the temporary folder is removed");
        for (i, line) in PLANTED.iter().enumerate() {
            let place = format!("lib.rs:{}:", i + 1);
            assert!(report.contains(&place), "not found: {line}\n{report}");
        }
    }
}
