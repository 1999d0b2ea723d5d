//! Builds a release again in another folder, and compares.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::artifacts;
use crate::release::{Release, git};

/// Builds the release again from a copy of its sources, and fails if any artifact differs.
pub(crate) fn reproducible(release: &Release, first: &Path) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("stead-dist-check-{}", std::process::id()));
    println!("building again in {}", folder.display());
    copy_sources(&release.root, &folder)?;
    let second = folder.join("dist");
    artifacts::write(&release.in_folder(&folder), None, &second)?;
    let (before, after) = (read_all(first)?, read_all(&second)?);
    let names = before.keys().chain(after.keys()).collect::<std::collections::BTreeSet<_>>();
    let different: Vec<&str> =
        names.into_iter().filter(|name| before.get(*name) != after.get(*name)).map(String::as_str).collect();
    if !different.is_empty() {
        bail!("not reproducible: {} differ; the second build is in {}", different.join(", "), second.display());
    }
    std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    println!("reproducible: {} files are the same", before.len());
    Ok(())
}

/// Copies the files that git knows or would add.
fn copy_sources(root: &Path, to: &Path) -> Result<()> {
    let listed = git(root, &["ls-files", "--cached", "--others", "--exclude-standard", "-z"])?;
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), to.join(name));
        // A file that was deleted and not committed yet.
        if !from.is_file() {
            continue;
        }
        let parent = to.parent().unwrap_or(&to);
        std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        std::fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    Ok(())
}

/// The content of every file below a folder, by path.
fn read_all(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let path = folder.join(&below);
        for entry in std::fs::read_dir(&path).with_context(|| format!("reading {}", path.display()))? {
            let name = below.join(entry?.file_name());
            let path = folder.join(&name);
            if path.is_dir() {
                folders.push(name);
            } else {
                let content = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
                files.insert(name.to_string_lossy().into_owned(), content);
            }
        }
    }
    Ok(files)
}
