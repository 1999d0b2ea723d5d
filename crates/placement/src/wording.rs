//! The wording of kube-scheduler, by version. No other file of this crate produces Kubernetes' texts about scheduling.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use crate::preemption::NotEligible;
use crate::status::{ClaimNotOwned, CsiTranslationError, ExtensionPoint, Rejection, RejectionReason, SchedulingError};
use crate::version_rules::{ReasonWording, VersionRules};

impl Display for RejectionReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = match self {
            RejectionReason::NodeUnschedulable => "node(s) were unschedulable",
            RejectionReason::UntoleratedTaint { named: None } => "node(s) had untolerated taint(s)",
            RejectionReason::UntoleratedTaint { named: Some((key, value)) } => {
                return write!(f, "node(s) had untolerated taint {{{key}: {value}}}");
            }
            RejectionReason::NodeAffinity => "node(s) didn't match Pod's node affinity/selector",
            RejectionReason::NodeNotNamed { .. } => "node(s) didn't satisfy plugin(s) [NodeAffinity]",
            RejectionReason::NodeAffinityConflict => "pod affinity terms conflict",
            RejectionReason::HostPortInUse => "node(s) didn't have free ports for the requested pod ports",
            RejectionReason::MissingFeature => "node(s) didn't match Pod's required features",
            RejectionReason::TooManyPods => "Too many pods",
            RejectionReason::InsufficientResource(name) => return write!(f, "Insufficient {name}"),
            RejectionReason::DiskInUse => "node(s) had no available disk",
            RejectionReason::ReadWriteOncePodInUse(ReasonWording::Former) => {
                "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
            }
            RejectionReason::ReadWriteOncePodInUse(ReasonWording::Current) => {
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod"
            }
            RejectionReason::TooManyVolumes => "node(s) exceed max volume count",
            RejectionReason::ClaimNotFound { claim } => {
                return write!(f, "persistentvolumeclaim \"{claim}\" not found");
            }
            RejectionReason::ClaimLookupFailed { namespace, claim } => {
                return write!(f, "looking up PVC {namespace}/{claim}: persistentvolumeclaim \"{claim}\" not found");
            }
            RejectionReason::EphemeralClaimNotCreated { claim } => {
                return write!(
                    f,
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{claim}\""
                );
            }
            RejectionReason::EphemeralClaimNotOwned(why) => return why.fmt(f),
            RejectionReason::ClaimLost { claim, volume } => {
                return write!(
                    f,
                    "persistentvolumeclaim \"{claim}\" bound to non-existent persistentvolume \"{volume}\""
                );
            }
            RejectionReason::ClaimDeleting { claim } => {
                return write!(f, "persistentvolumeclaim \"{claim}\" is being deleted");
            }
            RejectionReason::UnboundImmediateClaims => "pod has unbound immediate PersistentVolumeClaims",
            RejectionReason::ClaimWithoutVolumeAndClass => "PersistentVolumeClaim had no pv name and storageClass name",
            RejectionReason::VolumeWithoutName => "PersistentVolume had no name",
            RejectionReason::StorageClassNotFound { class } => {
                return write!(f, "storageclass.storage.k8s.io \"{class}\" not found");
            }
            RejectionReason::BindingModeNotSet { class } => {
                return write!(f, "VolumeBindingMode not set for StorageClass \"{class}\"");
            }
            RejectionReason::VolumeNotFound { volume } => return write!(f, "persistentvolume \"{volume}\" not found"),
            RejectionReason::VolumeNodeAffinity(ReasonWording::Former) => "node(s) had volume node affinity conflict",
            RejectionReason::VolumeNodeAffinity(ReasonWording::Current) => {
                "node(s) didn't match PersistentVolume's node affinity"
            }
            RejectionReason::NoVolumeToBind => "node(s) didn't find available persistent volumes to bind",
            RejectionReason::NotEnoughStorage => "node(s) did not have enough free storage",
            RejectionReason::BoundVolumeMissing => {
                "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
            }
            RejectionReason::VolumeZone => "node(s) had no available volume zone",
            RejectionReason::SpreadLabelMissing => {
                "node(s) didn't match pod topology spread constraints (missing required label)"
            }
            RejectionReason::SpreadConstraint => "node(s) didn't match pod topology spread constraints",
            RejectionReason::PodAffinity => "node(s) didn't match pod affinity rules",
            RejectionReason::PodAntiAffinity => "node(s) didn't match pod anti-affinity rules",
            RejectionReason::ExistingPodAntiAffinity => "node(s) didn't satisfy existing pods anti-affinity rules",
            RejectionReason::NoPreemptionVictims => "No preemption victims found for incoming pod",
            RejectionReason::PreemptionNotHelpful => "Preemption is not helpful for scheduling",
        };
        f.write_str(text)
    }
}

impl Display for ClaimNotOwned {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ClaimNotOwned { claim, pod } = self;
        write!(f, "PVC {}/{claim} was not created for pod {pod} (pod is not owner)", pod.namespace)
    }
}

impl std::error::Error for SchedulingError {}

impl Display for SchedulingError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            SchedulingError::Plugin { point, plugin, cause } => match point {
                ExtensionPoint::PreFilter => write!(f, "running PreFilter plugin \"{}\": {cause}", plugin.name()),
                ExtensionPoint::Filter => write!(f, "running \"{}\" filter plugin: {cause}", plugin.name()),
                ExtensionPoint::PreScore => write!(f, "running PreScore plugin \"{}\": {cause}", plugin.name()),
            },
            SchedulingError::BindingModeNotSet { class } => {
                write!(f, "VolumeBindingMode not set for StorageClass {class:?}")
            }
            SchedulingError::StorageClassNotFound { class } => write!(f, "failed to find storage class {class:?}"),
            SchedulingError::EphemeralClaimNotOwned(why) => why.fmt(f),
            SchedulingError::CsiTranslation { volume, cause } => {
                write!(f, "converting volume({volume}) from inline to csi: {cause}")
            }
            SchedulingError::PreferredNodeAffinity(faults) => f.write_str(faults),
            SchedulingError::AttributesClassUnsupported { namespace, claim } => write!(
                f,
                "unsupported volumeAttributesClassName is set on claim {namespace}/{claim} when the feature-gate \
                 VolumeAttributesClass is disabled"
            ),
            SchedulingError::NoVictimOnNode(node) => {
                write!(f, "expected at least one victim pod on node \"{node}\"")
            }
        }
    }
}

impl Display for CsiTranslationError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            CsiTranslationError::AwsVolumeId(id) => {
                write!(f, "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id})")
            }
            CsiTranslationError::AzureDiskKind(kind) => write!(f, "kind({kind}) is not supported in csi migration"),
        }
    }
}

/// The message where the cluster has no nodes.
pub(crate) const NO_NODES: &str = "no nodes available to schedule pods";

/// How PostFilter's part of the message begins: where DynamicResources is enabled, it comes first and says that the pod
/// has no device claims.
fn preemption_prefix(rules: &VersionRules) -> &'static str {
    if rules.dynamic_resources { "no new claims to deallocate, preemption:" } else { "preemption:" }
}

/// The FailedScheduling message: the number of nodes with each reason, sorted as text.
pub(crate) fn fit_message<'a>(nodes: usize, reasons: impl Iterator<Item = (&'a RejectionReason, usize)>) -> String {
    let mut counts: BTreeMap<&RejectionReason, usize> = BTreeMap::new();
    // Nodes without a reported reason are counted among all nodes only.
    for (reason, n) in reasons.filter(|(r, n)| r.is_reported() && *n > 0) {
        *counts.entry(reason).or_default() += n;
    }
    let mut lines: Vec<String> = counts.into_iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    lines.sort();
    let mut message = format!("0/{nodes} nodes are available:");
    if !lines.is_empty() {
        message.push_str(&format!(" {}.", lines.join(", ")));
    }
    message
}

/// What DynamicResources' PostFilter fails with where a PreFilter plugin before it rejects the pod: it has stored no
/// state by then. Preemption is not reached.
pub(crate) const NO_DEVICE_STATE: &str = "not found";

/// The FailedScheduling message where a PreFilter plugin rejects the pod, with PostFilter's part.
pub(crate) fn prefilter_message(nodes: usize, rejection: &Rejection, post_filter: &str) -> String {
    let reasons: Vec<String> = rejection.reasons.iter().map(ToString::to_string).collect();
    format!("0/{nodes} nodes are available: {}. {post_filter}", reasons.join(", "))
}

/// What PostFilter adds to the message where the pod may not preempt others.
pub(crate) fn not_eligible_message(rules: &VersionRules, why: NotEligible) -> String {
    let why = match why {
        NotEligible::NeverPreempts => "not eligible due to preemptionPolicy=Never.",
        NotEligible::PodTerminating => "not eligible due to a terminating pod on the nominated node.",
    };
    format!("{} {why}", preemption_prefix(rules))
}

/// What PostFilter adds to the message where preemption clears no node: each node's reason.
pub(crate) fn preemption_message<'a>(
    rules: &VersionRules,
    nodes: usize,
    reasons: impl Iterator<Item = (&'a RejectionReason, usize)>,
) -> String {
    format!("{} {}", preemption_prefix(rules), fit_message(nodes, reasons))
}

/// What PostFilter adds to the message where preemption fails.
pub(crate) fn preemption_errors(errors: &[SchedulingError]) -> String {
    match errors {
        [one] => format!("preemption: {one}"),
        several => {
            let texts: Vec<String> = several.iter().map(ToString::to_string).collect();
            format!("preemption: [{}]", texts.join(", "))
        }
    }
}
