//! Builds the control plane of an older version of Kubernetes, beside that of the newest one: `1.29/` in the same folder.

use std::path::Path;

use anyhow::{Context, Result, bail};
use stead_real::{Binaries, Outcome};

use crate::kubernetes::{self, go};

/// What to build.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build programs even if they exist
    #[arg(long)]
    again: bool,
    /// Build API server, controller manager and scheduler of this older version instead: 1.29
    #[arg(long, value_name = "VERSION")]
    kubernetes: Option<String>,
}

/// The older versions that suites run on, with the patch release.
const VERSIONS: [(&str, &str); 1] = [("1.29", "1.29.15")];

const PROGRAMS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];

/// Modules that are part of Kubernetes' repository: a release of Kubernetes needs the same release of each.
const STAGING: [&str; 28] = [
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "cloud-provider",
    "cluster-bootstrap",
    "code-generator",
    "component-base",
    "component-helpers",
    "controller-manager",
    "cri-api",
    "csi-translation-lib",
    "dynamic-resource-allocation",
    "endpointslice",
    "kms",
    "kube-aggregator",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "legacy-cloud-providers",
    "metrics",
    "mount-utils",
    "pod-security-admission",
    "sample-apiserver",
];

pub(crate) fn build(args: &Args) -> Result<Outcome> {
    let Some(wanted) = &args.kubernetes else { return kubernetes::build(args.again, &[]) };
    let Some((minor, version)) = VERSIONS.into_iter().find(|(minor, _)| minor == wanted) else {
        bail!("--kubernetes {wanted}: only {} can be built", VERSIONS.map(|(minor, _)| minor).join(", "));
    };
    let newest = Binaries::directory().context("none of STEAD_REAL, XDG_CACHE_HOME and HOME is set")?;
    let directory = newest.join(minor);
    let sources = directory.join("src");
    std::fs::create_dir_all(&sources).with_context(|| format!("creating {}", sources.display()))?;
    let file = sources.join("go.mod");
    std::fs::write(&file, module(version)).with_context(|| format!("writing {}", file.display()))?;
    println!("Kubernetes {version} (about ten minutes on two cores)");
    for program in PROGRAMS {
        let target = directory.join(program);
        if target.is_file() && !args.again {
            continue;
        }
        println!("{program}");
        let partial = target.with_extension("partial");
        let output = partial.to_str().context("the path of the cache is not UTF-8")?;
        let package = format!("k8s.io/kubernetes/cmd/{program}");
        go(&sources, &["build", "-ldflags", &flags(version), "-o", output, &package])?;
        std::fs::rename(&partial, &target).with_context(|| format!("writing {}", target.display()))?;
    }
    // Client and storage are those of the newest version.
    for program in ["etcd", "kubectl"] {
        link(&newest.join(program), &directory.join(program))?;
    }
    println!("{}", directory.display());
    Ok(Outcome::Passed)
}

/// A module that requires this version, with the staging modules of the same release.
fn module(version: &str) -> String {
    let staging = version.replacen("1.", "0.", 1);
    let replaced: String = STAGING.map(|name| format!("\tk8s.io/{name} => k8s.io/{name} v{staging}\n")).concat();
    format!(
        "module stead.dev/kubernetes\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v{version}\n\nreplace (\n{replaced})\n"
    )
}

/// Programs know their version only if the linker sets it.
fn flags(version: &str) -> String {
    let base = "k8s.io/component-base/version";
    let minor = version.split('.').nth(1).unwrap_or_default();
    format!("-s -w -X {base}.gitVersion=v{version} -X {base}.gitMajor=1 -X {base}.gitMinor={minor}")
}

fn link(from: &Path, to: &Path) -> Result<()> {
    if !to.exists() {
        std::os::unix::fs::symlink(from, to).with_context(|| format!("linking {}", to.display()))?;
    }
    Ok(())
}
