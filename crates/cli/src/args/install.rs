//! The command lines of `stead install`, `stead uninstall` and `stead manifests`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use stead_manifests::{AntiAffinity, Options, Part};
use stead_model::{ClusterVersion, KubernetesVersion};

use crate::build_info::IMAGE;
use crate::connect::ConnectArgs;
use crate::output::{ExitWith, Hinted};
use crate::version;

/// Print the manifests that `stead install` applies
///
/// Examples:
///   For GitOps:
///     stead manifests --image registry.example/stead:0.1.0 > stead.yaml
///
///   Only the CRDs and their admission policies:
///     stead manifests --only crds | kubectl apply --server-side -f -
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ManifestsArgs {
    #[command(flatten)]
    pub(crate) options: OperatorOptions,

    /// Kubernetes version of the cluster, such as 1.29: objects that it does not have are left out [default: 1.36]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes: Option<ClusterVersion>,

    /// Print only this part [default: crds and operator]
    #[arg(long, value_enum, value_name = "PART")]
    pub(crate) only: Option<OnlyPart>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t = ManifestFormat::Yaml, value_name = "FORMAT")]
    pub(crate) output: ManifestFormat,
}

/// Install the operator and its CRDs in a cluster
///
/// Examples:
///   Show what would be installed:
///     stead install --image registry.example/stead:0.1.0 --dry-run
///
///   Install, with the image in your registry:
///     stead install --image registry.example/stead:0.1.0
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Checks the server version, your permissions, and whether CRDs with the same names exist. CRDs that belong to someone else (the \
OpenStack operators) are never changed: the operator then only explains and reports. Shows what will change, asks for \
confirmation, applies it, and waits until the operator is ready. Running it again changes nothing."
)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    #[command(flatten)]
    pub(crate) options: OperatorOptions,

    #[command(flatten)]
    pub(crate) consent: ConsentArgs,

    /// Kubernetes version of the cluster, such as 1.29 [default: that of the server]
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes: Option<ClusterVersion>,

    /// Do not wait until the operator is ready
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// Remove the operator and its CRDs from a cluster
///
/// Examples:
///   Show what would be removed:
///     stead uninstall --dry-run
///
///   Remove only the operator; keep the CRDs and all their objects:
///     stead uninstall --keep-crds
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    after_long_help = "\
Deletes control planes, Glances and GlanceAPIs first, while the operator can still remove their finalizers; then the operator, \
the policies, the CRDs and the namespace. PersistentVolumeClaims are kept and listed. Objects that belong to someone else are \
not changed. Refused while the recovery of a node is unfinished, because its record would be deleted."
)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    /// Namespace of the operator
    #[arg(short, long, value_name = "NAMESPACE", default_value = "stead-system")]
    pub(crate) namespace: String,

    #[command(flatten)]
    pub(crate) consent: ConsentArgs,

    /// Keep the CRDs and all their objects; remove only the operator
    #[arg(long)]
    pub(crate) keep_crds: bool,

    /// Stop the operator, remove its finalizers from all objects, and delete nothing (the Helm chart runs this before
    /// it is uninstalled)
    #[arg(long, conflicts_with = "keep_crds")]
    pub(crate) release_finalizers: bool,

    /// Remove finalizers in these namespaces only
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', num_args = 1, requires = "release_finalizers")]
    pub(crate) namespaces: Vec<String>,
}

/// Options of the installed operator.
#[derive(Debug, Args)]
pub(crate) struct OperatorOptions {
    /// Namespace of the operator
    #[arg(short, long, value_name = "NAMESPACE", default_value = "stead-system")]
    pub(crate) namespace: String,

    /// Work in these namespaces only, with Roles instead of a ClusterRole that may write
    #[arg(long, value_name = "NAMESPACE", value_delimiter = ',', num_args = 1)]
    pub(crate) namespaces: Vec<String>,

    /// Image of the operator [default: the image of the release; a program that was built from source has none]
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,

    /// Number of operator pods; one of them is the leader
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=9))]
    pub(crate) replicas: u32,

    /// What happens to the default anti-affinity when a Topology has no affinity
    #[arg(long, value_enum, default_value_t = DefaultAntiAffinity::Keep, value_name = "MODE")]
    pub(crate) default_anti_affinity: DefaultAntiAffinity,

    /// Glance image for objects that do not name one
    #[arg(long, value_name = "IMAGE", default_value = "")]
    pub(crate) glance_image: String,

    /// DNS domain of the cluster, such as cluster.local
    #[arg(long, value_name = "DOMAIN", default_value = "")]
    pub(crate) cluster_domain: String,
}

impl OperatorOptions {
    /// The image of the operator; an error if none was named and this program has no default.
    pub(crate) fn operator_image(&self) -> anyhow::Result<String> {
        let image = self.image.clone().or(IMAGE.map(str::to_owned)).filter(|image| !image.is_empty());
        image.ok_or_else(|| {
            let message = "--image is needed: this program was built without a default image".to_owned();
            let hint =
                "name an image that the cluster can pull, such as --image registry.example/stead:0.1.0".to_owned();
            ExitWith::Usage(anyhow::Error::new(Hinted { message, hint })).into()
        })
    }

    /// Converts to `stead_manifests::Options`, with this image and for a cluster of this version.
    pub(crate) fn options(&self, version: KubernetesVersion, image: String) -> Options {
        Options {
            namespace: self.namespace.clone(),
            namespaces: self.namespaces.clone(),
            image,
            replicas: self.replicas,
            default_anti_affinity: match self.default_anti_affinity {
                DefaultAntiAffinity::Keep => AntiAffinity::Keep,
                DefaultAntiAffinity::Replace => AntiAffinity::Replace,
            },
            glance_image: self.glance_image.clone(),
            cluster_domain: self.cluster_domain.clone(),
            admission_policies: version::has_admission_policies(version),
        }
    }
}

/// Confirmation and time limit of a command that changes a cluster.
#[derive(Debug, Args)]
pub(crate) struct ConsentArgs {
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Show what would be done, without changing anything
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,

    /// Maximum time to wait, such as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// What a Topology without an affinity of its own does to the default anti-affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DefaultAntiAffinity {
    /// Keep it
    Keep,
    /// Remove it, as the released OpenStack operators do
    Replace,
}

/// A part of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnlyPart {
    /// The CRDs and their admission policies
    Crds,
    /// The operator and its RBAC rules
    Operator,
    /// For `stead recover`: the NodeRecovery CRD, and roles to bind (not part of an installation)
    Recover,
}

impl OnlyPart {
    /// Converts to `stead_manifests::Part`, for a part of an installation.
    pub(crate) fn part(self) -> Option<Part> {
        match self {
            OnlyPart::Crds => Some(Part::Definitions),
            OnlyPart::Operator => Some(Part::Operator),
            OnlyPart::Recover => None,
        }
    }
}

/// How manifests are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManifestFormat {
    /// YAML, one document per object
    Yaml,
    /// JSON, one List object
    Json,
}

/// Parses a duration such as `90s`, `5m` or `1h`.
fn duration(text: &str) -> anyhow::Result<Duration> {
    let wrong = || anyhow::anyhow!("{text:?} is not a duration such as 90s or 5m");
    let unit = text.chars().last().filter(char::is_ascii_alphabetic);
    let number = unit.map_or(text, |unit| &text[..text.len() - unit.len_utf8()]);
    let seconds = match unit {
        None | Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some(_) => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, seconds) in [("90s", Some(90)), ("5m", Some(300)), ("1h", Some(3600)), ("7", Some(7))] {
            assert_eq!(duration(text).ok().map(|d| d.as_secs()), seconds, "{text}");
        }
        for text in ["", "s", "5x", "-1s", "1.5m", "99999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
