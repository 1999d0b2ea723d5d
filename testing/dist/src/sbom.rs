//! The bill of materials of the program, in CycloneDX 1.5: every crate that is compiled into it, with its licence, its
//! digest from Cargo.lock, and what it depends on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::archive::sha256;
use crate::program::TARGET;
use crate::release::{Release, VERSION};

/// The bill of materials of a release.
pub(crate) fn document(release: &Release) -> Result<Vec<u8>> {
    let metadata =
        cargo(&release.root, &["metadata", "--format-version", "1", "--locked", "--filter-platform", TARGET])?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let tree = ["tree", "--locked", "--package", "stead", "--target", TARGET];
    let format = ["--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let tree = cargo(&release.root, &[&tree[..], &format[..]].concat())?;
    let lock = String::from_utf8(release.read("Cargo.lock")?).context("Cargo.lock")?;
    let used = used_packages(&tree);
    let mut document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": release.created(),
            "tools": {"components": [{"type": "application", "name": "cargo xtask dist", "version": VERSION}]},
            "component": component("application", "stead", VERSION, Some("Apache-2.0")),
        },
    });
    if let Some(homepage) = &release.homepage {
        document["metadata"]["component"]["externalReferences"] = json!([{"type": "website", "url": homepage}]);
    }
    document["components"] = components(&metadata, &used, &checksums(&lock)).into();
    document["dependencies"] = dependencies(&metadata, &used)?.into();
    // The serial number identifies the content: the same content has the same number.
    let digest = sha256(&serde_json::to_vec(&document)?);
    document["serialNumber"] = serial_number(&digest).into();
    let mut text = serde_json::to_vec_pretty(&document)?;
    text.push(b'\n');
    Ok(text)
}

/// Name and version.
type Package = (String, String);

/// The packages in lines of the form `name v1.2.3 (path or proc-macro) (*)`.
fn used_packages(tree: &str) -> BTreeSet<Package> {
    let package = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
    };
    tree.lines().filter_map(package).collect()
}

/// The digests in Cargo.lock.
fn checksums(lock: &str) -> BTreeMap<Package, String> {
    let blocks = lock.split("[[package]]").skip(1);
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""))?;
        Some(line.trim_end_matches('"').to_owned())
    };
    blocks
        .filter_map(|block| Some(((field(block, "name")?, field(block, "version")?), field(block, "checksum")?)))
        .collect()
}

fn components(metadata: &Value, used: &BTreeSet<Package>, checksums: &BTreeMap<Package, String>) -> Vec<Value> {
    let mut components = BTreeMap::new();
    for found in metadata["packages"].as_array().into_iter().flatten() {
        let package = identity(found);
        if !used.contains(&package) || package.0 == "stead" {
            continue;
        }
        let mut part = component("library", &package.0, &package.1, found["license"].as_str());
        if let Some(description) = found["description"].as_str() {
            part["description"] = description.split_whitespace().collect::<Vec<_>>().join(" ").into();
        }
        if let Some(checksum) = checksums.get(&package) {
            part["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        if let Some(repository) = found["repository"].as_str() {
            part["externalReferences"] = json!([{"type": "vcs", "url": repository}]);
        }
        components.insert(package, part);
    }
    components.into_values().collect()
}

fn component(kind: &str, name: &str, version: &str, license: Option<&str>) -> Value {
    let purl = purl(name, version);
    let mut component =
        json!({"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl, "scope": "required"});
    if let Some(license) = license {
        // Old packages separate alternatives with a slash.
        component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
    }
    component
}

fn purl(name: &str, version: &str) -> String {
    format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"))
}

fn identity(package: &Value) -> Package {
    let text = |field: &str| package[field].as_str().unwrap_or_default().to_owned();
    (text("name"), text("version"))
}

/// What each package depends on.
fn dependencies(metadata: &Value, used: &BTreeSet<Package>) -> Result<Vec<Value>> {
    let packages = metadata["packages"].as_array().context("cargo metadata has no packages")?;
    let by_id: BTreeMap<&str, Package> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, identity(package)))).collect();
    let mut edges = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().context("cargo metadata has no graph")? {
        let Some(package) = node["id"].as_str().and_then(|id| by_id.get(id)).filter(|p| used.contains(p)) else {
            continue;
        };
        let is_normal = |dependency: &&Value| {
            dependency["dep_kinds"].as_array().into_iter().flatten().any(|kind| kind["kind"].is_null())
        };
        let below = node["deps"].as_array().into_iter().flatten().filter(is_normal);
        let below: BTreeSet<String> = below
            .filter_map(|dependency| by_id.get(dependency["pkg"].as_str()?))
            .filter(|below| used.contains(below))
            .map(|(name, version)| purl(name, version))
            .collect();
        edges.insert(purl(&package.0, &package.1), below);
    }
    Ok(edges.into_iter().map(|(package, below)| json!({"ref": package, "dependsOn": below})).collect())
}

/// A UUID of version 8 (its content is the application's) from a digest.
fn serial_number(digest: &str) -> String {
    let variant = ["8", "9", "a", "b"][usize::from(digest.as_bytes()[16] % 4)];
    let (a, b, c, d, e) = (&digest[..8], &digest[8..12], &digest[13..16], &digest[17..20], &digest[20..32]);
    format!("urn:uuid:{a}-{b}-8{c}-{variant}{d}-{e}")
}

fn cargo(root: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO")).args(args).current_dir(root).output().context("running cargo")?;
    ensure!(output.status.success(), "cargo {}: {}", args[0], String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).context("the output of cargo")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_from_the_tree() {
        let tree = "stead v0.1.0 (/somewhere/crates/cli)\nserde v1.0.1\nserde_derive v1.0.1 (proc-macro) (*)\n";
        let names: Vec<String> = used_packages(tree).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["serde", "serde_derive", "stead"]);
    }

    #[test]
    fn digests_are_read_from_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nsource = \"registry\"\nchecksum = \
                    \"c0ffee\"\n\n[[package]]\nname = \"ours\"\nversion = \"0.1.0\"\n";
        let checksums = checksums(lock);
        assert_eq!(checksums.len(), 1);
        assert_eq!(checksums[&("a".to_owned(), "1.0.0".to_owned())], "c0ffee");
    }

    #[test]
    fn serial_numbers_are_uuids() {
        let digest = sha256(b"content");
        let number = serial_number(&digest);
        assert_eq!(number.len(), "urn:uuid:00000000-0000-0000-0000-000000000000".len());
        assert_eq!(number, serial_number(&digest));
        assert_ne!(number, serial_number(&sha256(b"other")));
    }

    /// The bill of materials of this repository: it names everything that Cargo.lock has for the program.
    #[test]
    fn the_program_s_crates_are_listed() {
        let release = Release {
            root: crate::root(),
            commit: String::new(),
            time: jiff::Timestamp::UNIX_EPOCH,
            repository: None,
            base_url: String::new(),
            homepage: None,
        };
        let document: Value = serde_json::from_slice(&document(&release).expect("a document")).expect("JSON");
        let components = document["components"].as_array().expect("components");
        let names: Vec<&str> = components.iter().filter_map(|component| component["name"].as_str()).collect();
        for name in ["stead-placement", "kube", "mimalloc", "serde_json"] {
            assert!(names.contains(&name), "{name}");
        }
        assert!(!names.contains(&"expect-test") && !names.contains(&"rusqlite"));
        for component in components.iter().filter(|c| !c["name"].as_str().unwrap_or_default().starts_with("stead-")) {
            assert!(component["hashes"][0]["content"].as_str().is_some_and(|hash| hash.len() == 64), "{component}");
            assert!(component["licenses"][0]["expression"].is_string(), "{component}");
        }
    }
}
