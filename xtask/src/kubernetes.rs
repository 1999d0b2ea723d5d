//! Builds Kubernetes' own control plane, kubectl, etcd and the oracle from Go's module registry, into the user's cache.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use stead_real::{Binaries, Outcome};

use crate::root;

/// The version of Kubernetes; `real/go.mod` has its modules.
pub(crate) const VERSION: &str = "v1.36.4";

/// The etcd that this Kubernetes was made with.
const ETCD: &str = "go.etcd.io/etcd/server/v3@v3.6.5";

/// The programs: the name of each and the Go package it is built from.
const PROGRAMS: [(&str, &str); 8] = [
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("kubemark", "k8s.io/kubernetes/cmd/kubemark"),
    ("kcm-fast", "./kcm"),
    ("oracle", "./oracle"),
    ("etcd", "go.etcd.io/etcd/server/v3"),
];

/// Builds the programs of these names that do not exist yet, or `again`; all of them if no name is given.
pub(crate) fn build(again: bool, only: &[&str]) -> Result<Outcome> {
    let directory = Binaries::directory().context("none of STEAD_REAL, XDG_CACHE_HOME and HOME is set")?;
    let wanted: Vec<_> = PROGRAMS
        .iter()
        .filter(|(name, _)| only.is_empty() || only.contains(name))
        .filter(|(name, _)| again || !directory.join(name).is_file())
        .collect();
    let steps = wanted.len() + 1;
    if !wanted.is_empty() {
        println!(
            "[1/{steps}] Kubernetes' modules (about ten minutes for everything on two cores, 3.6 GB of Go's caches)"
        );
        let sources = directory.join("kubernetes-src");
        copy(&root().join("real"), &sources)?;
        go(&sources, &["mod", "tidy", "-e"])?;
    }
    for (i, (name, package)) in wanted.iter().enumerate() {
        println!("[{}/{steps}] {name}", i + 2);
        let (sources, flags) = if *name == "etcd" {
            (get_etcd(&directory)?, "-s -w".to_owned())
        } else {
            (directory.join("kubernetes-src"), version_flags())
        };
        build_program(&sources, &directory.join(name), package, &[], &flags)?;
    }
    println!("{}", directory.display());
    Ok(Outcome::Passed)
}

/// Programs know their version only if the linker sets it.
fn version_flags() -> String {
    let mut parts = VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let base = "k8s.io/component-base/version";
    format!(
        "-s -w -X {base}.gitVersion={VERSION} -X {base}.gitMajor={major} -X {base}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={VERSION}"
    )
}

/// A program is moved into place when it is complete, so that an existing one always works.
pub(crate) fn build_program(sources: &Path, target: &Path, package: &str, options: &[&str], flags: &str) -> Result<()> {
    let partial = target.with_extension("partial");
    let output = partial.to_str().context("the path of the cache is not UTF-8")?;
    go(sources, &[&["build", "-ldflags", flags, "-o", output], options, &[package]].concat())?;
    std::fs::rename(&partial, target).with_context(|| format!("writing {}", target.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    copy_oracle(from, to)?;
    for file in ["go.mod", "kcm/main.go"] {
        copy_file(&from.join(file), &to.join(file))?;
    }
    let require = format!("k8s.io/kubernetes@{VERSION}");
    go(to, &["get", &require])
}

/// Copies the oracle's sources, without files of an earlier copy.
pub(crate) fn copy_oracle(from: &Path, to: &Path) -> Result<()> {
    let (from, to) = (from.join("oracle"), to.join("oracle"));
    if to.is_dir() {
        std::fs::remove_dir_all(&to).with_context(|| format!("removing {}", to.display()))?;
    }
    for file in std::fs::read_dir(&from).with_context(|| format!("reading {}", from.display()))? {
        let file = file.with_context(|| format!("reading {}", from.display()))?;
        copy_file(&file.path(), &to.join(file.file_name()))?;
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a file has a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    std::fs::copy(from, to).with_context(|| format!("writing {}", to.display()))?;
    Ok(())
}

fn get_etcd(directory: &Path) -> Result<std::path::PathBuf> {
    let sources = directory.join("etcd-build");
    std::fs::create_dir_all(&sources).with_context(|| format!("creating {}", sources.display()))?;
    if !sources.join("go.mod").is_file() {
        go(&sources, &["mod", "init", "etcd-build"])?;
    }
    go(&sources, &["get", ETCD])?;
    Ok(sources)
}

/// Runs the go command in a folder. Programs are linked statically.
pub(crate) fn go(folder: &Path, args: &[&str]) -> Result<()> {
    let status = Command::new("go")
        .args(args)
        .current_dir(folder)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=mod")
        .status()
        .context("running go: Go 1.26 or newer is needed")?;
    ensure!(status.success(), "go {}: {status}", args.join(" "));
    Ok(())
}
