//! Builds Kubernetes' own control plane, kubectl and etcd from Go's module registry, into the user's cache.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use stead_testbed::Binaries;

use crate::root;

/// Kubernetes' version; `real/go.mod` has its modules.
const VERSION: &str = "v1.36.4";

/// The etcd that this Kubernetes was made with.
const ETCD: &str = "go.etcd.io/etcd/server/v3@v3.6.5";

/// Whether to build what is there.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build them even if they are there.
    #[arg(long)]
    again: bool,
}

/// A program: its name and the package that it is made of.
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

pub(crate) fn run(args: &Args) -> Result<()> {
    let directory = Binaries::directory().context("neither STEAD_REAL nor XDG_CACHE_HOME nor HOME is set")?;
    let wanted: Vec<_> = PROGRAMS.iter().filter(|(name, _)| args.again || !directory.join(name).is_file()).collect();
    if wanted.is_empty() {
        println!("{}", directory.display());
        return Ok(());
    }
    let steps = wanted.len() + 1;
    println!("[1/{steps}] Kubernetes' modules (ten minutes for all of this on two cores, and 3.6 GB of Go's caches)");
    let sources = directory.join("kubernetes-src");
    copy(&root().join("real"), &sources)?;
    go(&sources, &["mod", "tidy", "-e"])?;
    let etcd_sources = directory.join("etcd-build");
    for (i, (name, package)) in wanted.iter().enumerate() {
        println!("[{}/{steps}] {name}", i + 2);
        let target = directory.join(name);
        if *name == "etcd" {
            get_etcd(&etcd_sources)?;
            build(&etcd_sources, &target, package, "-s -w")?;
        } else {
            build(&sources, &target, package, &version_flags())?;
        }
    }
    println!("{}", directory.display());
    Ok(())
}

/// A program says which version it is only if it is told so when it is linked.
fn version_flags() -> String {
    let mut parts = VERSION.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let base = "k8s.io/component-base/version";
    format!(
        "-s -w -X {base}.gitVersion={VERSION} -X {base}.gitMajor={major} -X {base}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={VERSION}"
    )
}

/// What is built is moved into place when it is whole, so that a program that is there is one that works.
fn build(sources: &Path, target: &Path, package: &str, flags: &str) -> Result<()> {
    let partial = target.with_extension("partial");
    let output = partial.to_str().context("a cache whose path is no text")?;
    go(sources, &["build", "-ldflags", flags, "-o", output, package])?;
    std::fs::rename(&partial, target).with_context(|| format!("writing {}", target.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    for file in ["go.mod", "oracle/main.go", "oracle/bench.go", "kcm/main.go"] {
        let target = to.join(file);
        let folder = target.parent().context("a file is in a folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        std::fs::copy(from.join(file), &target).with_context(|| format!("writing {}", target.display()))?;
    }
    let require = format!("k8s.io/kubernetes@{VERSION}");
    go(to, &["get", &require])
}

fn get_etcd(sources: &Path) -> Result<()> {
    std::fs::create_dir_all(sources).with_context(|| format!("making {}", sources.display()))?;
    if !sources.join("go.mod").is_file() {
        go(sources, &["mod", "init", "etcd-build"])?;
    }
    go(sources, &["get", ETCD])
}

/// Runs the go command in a folder, for a program that stands alone.
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
