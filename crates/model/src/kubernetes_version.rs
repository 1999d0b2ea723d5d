//! The Kubernetes versions whose rules, wording and timers Stead knows.

use std::fmt;
use std::str::FromStr;

/// A minor version of Kubernetes that Stead mirrors, from [`KubernetesVersion::OLDEST`] to
/// [`KubernetesVersion::NEWEST`]. The default is the newest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesVersion {
    minor: u16,
}

/// A text that is not a version of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a Kubernetes version such as 1.31 or v1.31.4")]
pub struct NotAVersion(String);

/// The version of a cluster, and how it relates to the versions that Stead mirrors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterVersion {
    /// The minor version that the cluster reports.
    pub reported_minor: u16,
    /// The version whose rules are used: the nearest one that Stead mirrors.
    pub used: KubernetesVersion,
}

impl KubernetesVersion {
    /// The oldest version that Stead mirrors.
    pub const OLDEST: KubernetesVersion = KubernetesVersion::minor(29);
    /// The newest version that Stead mirrors.
    pub const NEWEST: KubernetesVersion = KubernetesVersion::minor(36);

    /// Version 1.`minor`, for the names of rules: `version >= KubernetesVersion::minor(32)`.
    pub const fn minor(minor: u16) -> KubernetesVersion {
        KubernetesVersion { minor }
    }

    /// Every version that Stead mirrors, the oldest first.
    pub fn all() -> impl DoubleEndedIterator<Item = KubernetesVersion> {
        (Self::OLDEST.minor..=Self::NEWEST.minor).map(KubernetesVersion::minor)
    }
}

impl Default for KubernetesVersion {
    fn default() -> KubernetesVersion {
        KubernetesVersion::NEWEST
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

impl ClusterVersion {
    /// Whether Stead mirrors the reported version itself.
    pub fn is_mirrored(self) -> bool {
        self.reported_minor == self.used.minor
    }
}

impl FromStr for ClusterVersion {
    type Err = NotAVersion;

    /// Reads `1.31`, and what API servers and kubelets report: `v1.31.4`, `v1.31.4+k3s1`, `v1.31.14-eks-1234`.
    fn from_str(text: &str) -> Result<ClusterVersion, NotAVersion> {
        let minor = || {
            let rest = text.strip_prefix('v').unwrap_or(text).strip_prefix("1.")?;
            let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok()
        };
        let reported_minor: u16 = minor().ok_or_else(|| NotAVersion(text.to_owned()))?;
        let used = reported_minor.clamp(KubernetesVersion::OLDEST.minor, KubernetesVersion::NEWEST.minor);
        Ok(ClusterVersion { reported_minor, used: KubernetesVersion::minor(used) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_clusters_report_them() {
        for (text, reported, used) in [
            ("1.31", 31, "1.31"),
            ("v1.31.4", 31, "1.31"),
            ("v1.29.15+k3s1", 29, "1.29"),
            ("v1.33.5-eks-113cf36", 33, "1.33"),
            ("v1.28.0", 28, "1.29"),
            ("v1.40.1", 40, "1.36"),
            ("1.30+", 30, "1.30"),
        ] {
            let version: ClusterVersion = text.parse().expect(text);
            assert_eq!((version.reported_minor, version.used.to_string()), (reported, used.to_owned()), "{text}");
            assert_eq!(version.is_mirrored(), (29..=36).contains(&reported), "{text}");
        }
        for text in ["", "1", "v1.", "2.31", "1.x", "latest", "1.99999999999"] {
            assert!(text.parse::<ClusterVersion>().is_err(), "{text}");
        }
    }
}
