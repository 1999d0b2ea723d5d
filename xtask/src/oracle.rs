//! Builds kube-scheduler's framework as a judge, for any Kubernetes version that Stead mirrors.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use stead_real::{Binaries, Outcome};

use crate::kubernetes::{self, build_program, go};
use crate::root;

/// How to build.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build the program even if it exists
    #[arg(long)]
    again: bool,
    /// The Kubernetes version
    #[arg(long, value_name = "VERSION", default_value = NEWEST, value_parser = known)]
    kubernetes: String,
}

/// The newest version: its oracle is built with the rest of that control plane.
const NEWEST: &str = "1.36";

/// A release that stands for its minor version.
struct Release {
    minor: u16,
    patch: u16,
    /// Modules of Kubernetes' own that Go's registry has only with another patch: the nearest one.
    other_patches: &'static [(&'static str, u16)],
}

/// The releases before the newest one.
const RELEASES: [Release; 7] = [
    Release { minor: 29, patch: 15, other_patches: &[] },
    Release { minor: 30, patch: 14, other_patches: &[] },
    Release {
        minor: 31,
        patch: 14,
        other_patches: &[("csi-translation-lib", 12), ("dynamic-resource-allocation", 4), ("kube-scheduler", 10)],
    },
    Release { minor: 32, patch: 10, other_patches: &[("dynamic-resource-allocation", 9)] },
    Release {
        minor: 33,
        patch: 6,
        other_patches: &[
            ("cloud-provider", 4),
            ("cri-api", 5),
            ("csi-translation-lib", 4),
            ("dynamic-resource-allocation", 5),
            ("kms", 5),
            ("kube-scheduler", 5),
            ("mount-utils", 5),
        ],
    },
    Release { minor: 34, patch: 2, other_patches: &[] },
    Release { minor: 35, patch: 0, other_patches: &[] },
];

/// Checks the name of a version.
fn known(text: &str) -> Result<String> {
    let known = text == NEWEST || RELEASES.iter().any(|release| release.name() == text);
    ensure!(known, "the versions are {} to {NEWEST}", RELEASES[0].name());
    Ok(text.to_owned())
}

pub(crate) fn build(args: &Args) -> Result<Outcome> {
    let Some(release) = RELEASES.iter().find(|release| release.name() == args.kubernetes) else {
        return kubernetes::build(args.again, &["oracle"]);
    };
    let directory = Binaries::directory().context("none of STEAD_REAL, XDG_CACHE_HOME and HOME is set")?;
    let target = directory.join(format!("oracle-{}", release.name()));
    if args.again || !target.is_file() {
        println!("[1/2] the modules of Kubernetes {}", release.version());
        let sources = directory.join(format!("oracle-src-{}", release.name()));
        release.copy_sources(&sources)?;
        println!("[2/2] the oracle (some minutes on two cores)");
        build_program(&sources, &target, "./oracle", &["-tags", &release.tags()], "-s -w")?;
    }
    println!("{}", target.display());
    Ok(Outcome::Passed)
}

impl Release {
    fn name(&self) -> String {
        format!("1.{}", self.minor)
    }

    fn version(&self) -> String {
        format!("v1.{}.{}", self.minor, self.patch)
    }

    /// The tags that choose the oracle's files: one for each version that came later.
    fn tags(&self) -> String {
        let later = RELEASES.iter().map(|release| release.minor).chain([36]).filter(|minor| *minor > self.minor);
        later.map(|minor| format!("before1{minor}")).collect::<Vec<_>>().join(",")
    }

    fn copy_sources(&self, sources: &Path) -> Result<()> {
        let real = root().join("real");
        let newest = std::fs::read_to_string(real.join("go.mod")).context("reading real/go.mod")?;
        kubernetes::copy_oracle(&real, sources)?;
        let file = sources.join("go.mod");
        std::fs::write(&file, self.go_mod(&newest)).with_context(|| format!("writing {}", file.display()))?;
        go(sources, &["get", &format!("k8s.io/kubernetes@{}", self.version())])?;
        go(sources, &["mod", "tidy", "-e"])
    }

    /// The newest version's go.mod, for this one.
    fn go_mod(&self, newest: &str) -> String {
        let staging = format!("v0.{}.{}", self.minor, self.patch);
        let newest_staging = kubernetes::VERSION.replacen("v1.", "v0.", 1);
        let mut text = newest.replace(kubernetes::VERSION, &self.version()).replace(&newest_staging, &staging);
        for (module, patch) in self.other_patches {
            let line = |version: &str| format!("k8s.io/{module} => k8s.io/{module} {version}\n");
            text = text.replace(&line(&staging), &line(&format!("v0.{}.{patch}", self.minor)));
        }
        // A module of Kubernetes' own until 1.30; and files for other versions must not select another version.
        let more = format!(
            "\tk8s.io/kubernetes => k8s.io/kubernetes {}\n\
             \tk8s.io/legacy-cloud-providers => k8s.io/legacy-cloud-providers {staging}\n",
            self.version()
        );
        text.replace("replace (\n", &format!("replace (\n{more}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_tags_of_a_release() {
        let release = RELEASES.iter().find(|r| r.minor == 33).expect("1.33");
        assert_eq!(release.tags(), "before134,before135,before136");
        let newest = std::fs::read_to_string(root().join("real/go.mod")).expect("real/go.mod");
        let text = release.go_mod(&newest);
        assert!(!text.contains("36.4"), "{text}");
        for line in [
            "require k8s.io/kubernetes v1.33.6",
            "\tk8s.io/kubernetes => k8s.io/kubernetes v1.33.6",
            "\tk8s.io/api => k8s.io/api v0.33.6",
            "\tk8s.io/kms => k8s.io/kms v0.33.5",
            "\tk8s.io/legacy-cloud-providers => k8s.io/legacy-cloud-providers v0.33.6",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
    }
}
