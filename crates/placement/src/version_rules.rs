//! How kube-scheduler differs between Kubernetes versions: one named rule for each difference.

use stead_model::KubernetesVersion;

/// The rules of one version. The plugins ask for a rule, never for the version.
#[derive(Debug, Clone)]
pub(crate) struct VersionRules {
    /// NodeDeclaredFeatures compares what a pod needs with what its node declares (KEP-5328, on by default from 1.36).
    pub(crate) declared_features: bool,
}

impl VersionRules {
    /// The rules of a version.
    pub(crate) fn of(version: KubernetesVersion) -> VersionRules {
        let from = |minor: u16| version >= KubernetesVersion::minor(minor);
        VersionRules { declared_features: from(36) }
    }
}
