//! The command line of what concerns an installation.

use std::time::Duration;

use clap::{Args, ValueEnum};
use stead_manifests::{AntiAffinity, Options, Part};

use crate::connect::ConnectArgs;

/// Print what `stead install` would install.
///
/// The same objects, in the same order, for those who install by other means.
#[derive(Debug, Args)]
pub(crate) struct ManifestsArgs {
    #[command(flatten)]
    pub(crate) options: OperatorOptions,

    /// Only the definitions (with their policies), or only the operator
    #[arg(long, value_enum, value_name = "PART")]
    pub(crate) only: Option<OnlyPart>,

    /// How to print it
    #[arg(short, long, value_enum, default_value_t = ManifestFormat::Yaml, value_name = "FORMAT")]
    pub(crate) output: ManifestFormat,
}

/// Install the definitions and the operator in a cluster.
///
/// Looks first: at the server's version, at your rights, and at definitions of the same names that belong to somebody
/// else (the OpenStack operators), which are never touched. Shows what it will do, asks, applies, and waits until the
/// operator is ready. A second time, nothing changes.
#[derive(Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    #[command(flatten)]
    pub(crate) options: OperatorOptions,

    #[command(flatten)]
    pub(crate) consent: ConsentArgs,

    /// Do not wait until the operator is ready
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// Take the operator and the definitions away again.
///
/// First the control planes, Glances and their APIs, while the operator can still let go of what they hold; then the
/// operator, the policies, the definitions, the namespace. Claims are kept and listed. What belongs to somebody else
/// is not touched. While the recovery of a node is not over, it is refused: its record would go.
#[derive(Debug, Args)]
pub(crate) struct UninstallArgs {
    #[command(flatten)]
    pub(crate) connect: ConnectArgs,

    /// The operator's namespace
    #[arg(short, long, value_name = "NAMESPACE", default_value = "stead-system")]
    pub(crate) namespace: String,

    #[command(flatten)]
    pub(crate) consent: ConsentArgs,

    /// Keep the definitions and all objects of their kinds; only the operator goes
    #[arg(long)]
    pub(crate) keep_crds: bool,
}

/// What an installer decides about the operator.
#[derive(Debug, Args)]
pub(crate) struct OperatorOptions {
    /// The operator's namespace
    #[arg(short, long, value_name = "NAMESPACE", default_value = "stead-system")]
    pub(crate) namespace: String,

    /// The operator's image
    #[arg(long, value_name = "IMAGE", default_value_t = Options::default().image)]
    pub(crate) image: String,

    /// How many operators run; one of them leads
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=9))]
    pub(crate) replicas: u32,

    /// Whether a Topology without an affinity of its own leaves the default anti-affinity in place
    #[arg(long, value_enum, default_value_t = DefaultAntiAffinity::Keep, value_name = "WAY")]
    pub(crate) default_anti_affinity: DefaultAntiAffinity,

    /// Glance's image, where an object names none
    #[arg(long, value_name = "IMAGE", default_value = "")]
    pub(crate) glance_image: String,

    /// The domain of the cluster's Services, such as cluster.local
    #[arg(long, value_name = "DOMAIN", default_value = "")]
    pub(crate) cluster_domain: String,
}

impl OperatorOptions {
    /// The same, for those who make the manifests.
    pub(crate) fn options(&self) -> Options {
        Options {
            namespace: self.namespace.clone(),
            image: self.image.clone(),
            replicas: self.replicas,
            default_anti_affinity: match self.default_anti_affinity {
                DefaultAntiAffinity::Keep => AntiAffinity::Keep,
                DefaultAntiAffinity::Replace => AntiAffinity::Replace,
            },
            glance_image: self.glance_image.clone(),
            cluster_domain: self.cluster_domain.clone(),
        }
    }
}

/// Whether, and for how long.
#[derive(Debug, Args)]
pub(crate) struct ConsentArgs {
    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Show what would be done, and do nothing
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,

    /// How long to wait, such as 90s or 5m
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) timeout: Duration,
}

/// What a Topology without an affinity of its own does to the default anti-affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DefaultAntiAffinity {
    /// It stays
    Keep,
    /// It goes, as with the released OpenStack operators
    Replace,
}

/// A part of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnlyPart {
    /// The definitions, with their policies
    Crds,
    /// The operator and what it needs to run
    Operator,
}

impl OnlyPart {
    /// The same, for those who make the manifests.
    pub(crate) fn part(self) -> Part {
        match self {
            OnlyPart::Crds => Part::Definitions,
            OnlyPart::Operator => Part::Operator,
        }
    }
}

/// How manifests are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManifestFormat {
    /// YAML, one document for each object
    Yaml,
    /// JSON, one List
    Json,
}

/// Reads a time such as `90s`, `5m` or `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no time such as 90s or 5m");
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
    fn times() {
        for (text, seconds) in [("90s", Some(90)), ("5m", Some(300)), ("1h", Some(3600)), ("7", Some(7))] {
            assert_eq!(duration(text).ok().map(|d| d.as_secs()), seconds, "{text}");
        }
        for text in ["", "s", "5x", "-1s", "1.5m", "99999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
