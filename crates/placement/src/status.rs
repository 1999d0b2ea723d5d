//! Why a node rejects a pod, as types. `wording.rs` has kube-scheduler's text for each of them.

use crate::pod::PodKey;
use crate::resources::ResourceName;
use crate::version_rules::ReasonWording;

/// Whether preempting other pods could resolve a rejection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// Preemption could resolve it (`Unschedulable`).
    Unschedulable,
    /// Preemption could not resolve it (`UnschedulableAndUnresolvable`).
    Unresolvable,
}

impl Code {
    /// kube-scheduler's name for the code.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Unschedulable => "Unschedulable",
            Code::Unresolvable => "UnschedulableAndUnresolvable",
        }
    }
}

/// A kube-scheduler plugin that filters or scores nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are kube-scheduler's own")]
pub enum Plugin {
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    EBSLimits,
    GCEPDLimits,
    NodeVolumeLimits,
    AzureDiskLimits,
    VolumeBinding,
    VolumeZone,
    PodTopologySpread,
    InterPodAffinity,
    DynamicResources,
    DefaultPreemption,
    NodeResourcesBalancedAllocation,
    ImageLocality,
    NodeDeclaredFeatures,
}

impl Plugin {
    /// The name in messages and scores.
    pub fn name(self) -> &'static str {
        match self {
            Plugin::NodeUnschedulable => "NodeUnschedulable",
            Plugin::TaintToleration => "TaintToleration",
            Plugin::NodeAffinity => "NodeAffinity",
            Plugin::NodePorts => "NodePorts",
            Plugin::NodeResourcesFit => "NodeResourcesFit",
            Plugin::VolumeRestrictions => "VolumeRestrictions",
            Plugin::EBSLimits => "EBSLimits",
            Plugin::GCEPDLimits => "GCEPDLimits",
            Plugin::NodeVolumeLimits => "NodeVolumeLimits",
            Plugin::AzureDiskLimits => "AzureDiskLimits",
            Plugin::VolumeBinding => "VolumeBinding",
            Plugin::VolumeZone => "VolumeZone",
            Plugin::PodTopologySpread => "PodTopologySpread",
            Plugin::InterPodAffinity => "InterPodAffinity",
            Plugin::DynamicResources => "DynamicResources",
            Plugin::DefaultPreemption => "DefaultPreemption",
            Plugin::NodeResourcesBalancedAllocation => "NodeResourcesBalancedAllocation",
            Plugin::ImageLocality => "ImageLocality",
            Plugin::NodeDeclaredFeatures => "NodeDeclaredFeatures",
        }
    }

    /// The weight of the plugin's score in the default profile.
    pub fn weight(self) -> i64 {
        match self {
            Plugin::TaintToleration => 3,
            Plugin::NodeAffinity | Plugin::PodTopologySpread | Plugin::InterPodAffinity | Plugin::DynamicResources => 2,
            _ => 1,
        }
    }
}

/// A plugin's reason for rejecting a pod. `Display` gives kube-scheduler's wording.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionReason {
    /// The node is cordoned.
    NodeUnschedulable,
    /// The node has a taint that the pod does not tolerate.
    UntoleratedTaint {
        /// The taint's key and value, where kube-scheduler names them (before 1.34).
        named: Option<(Box<str>, Box<str>)>,
    },
    /// The node does not match `nodeSelector` or the required node affinity.
    NodeAffinity,
    /// The required node affinity lists nodes by name, and this node is not one of them.
    NodeNotNamed {
        /// Whether kube-scheduler gives this reason; before 1.32 it does not mention such nodes.
        reported: bool,
    },
    /// The required node affinity cannot match any node, because its names exclude each other.
    NodeAffinityConflict,
    /// Another pod uses a host port that the pod requests.
    HostPortInUse,
    /// The node does not declare a feature that the pod needs.
    MissingFeature,
    /// The node has as many pods as it allows.
    TooManyPods,
    /// The node has too little of a resource left.
    InsufficientResource(ResourceName),
    /// A pod on the node uses a disk that allows only one user.
    DiskInUse,
    /// Another pod uses a claim with access mode `ReadWriteOncePod`.
    ReadWriteOncePodInUse(ReasonWording),
    /// The node's CSI driver cannot attach as many volumes.
    TooManyVolumes,
    /// The pod refers to a claim that does not exist.
    ClaimNotFound {
        /// The claim's name.
        claim: Box<str>,
    },
    /// The same, found by NodeVolumeLimits, which words it differently.
    ClaimLookupFailed {
        /// The claim's namespace.
        namespace: Box<str>,
        /// The claim's name.
        claim: Box<str>,
    },
    /// The claim of an ephemeral volume has not been created yet.
    EphemeralClaimNotCreated {
        /// The claim's name.
        claim: Box<str>,
    },
    /// The claim of an ephemeral volume belongs to something else than the pod.
    EphemeralClaimNotOwned(ClaimNotOwned),
    /// The claim's volume was deleted (phase `Lost`).
    ClaimLost {
        /// The claim's name.
        claim: Box<str>,
        /// The volume's name.
        volume: Box<str>,
    },
    /// The claim is being deleted.
    ClaimDeleting {
        /// The claim's name.
        claim: Box<str>,
    },
    /// A claim whose class binds immediately is not bound.
    UnboundImmediateClaims,
    /// The claim has neither a volume nor a class.
    ClaimWithoutVolumeAndClass,
    /// An unbound claim's class binds immediately, as VolumeZone words it.
    VolumeWithoutName,
    /// The claim's class does not exist.
    StorageClassNotFound {
        /// The class's name.
        class: Box<str>,
    },
    /// The claim's class has no binding mode.
    BindingModeNotSet {
        /// The class's name.
        class: Box<str>,
    },
    /// The claim's volume does not exist.
    VolumeNotFound {
        /// The volume's name.
        volume: Box<str>,
    },
    /// The node cannot use the claim's volume (the volume's node affinity).
    VolumeNodeAffinity(ReasonWording),
    /// No volume is available for the claim, and none can be provisioned on the node.
    NoVolumeToBind,
    /// The driver has too little free capacity for a new volume.
    NotEnoughStorage,
    /// A claim is bound to a volume that does not exist.
    BoundVolumeMissing,
    /// The volume's labels put it into another zone or region.
    VolumeZone,
    /// The node lacks the label that a spread constraint goes by.
    SpreadLabelMissing,
    /// The pod would exceed the maximum skew of a spread constraint.
    SpreadConstraint,
    /// The pod's required affinity to other pods is not satisfied.
    PodAffinity,
    /// The pod's required anti-affinity excludes a pod in the node's domain.
    PodAntiAffinity,
    /// A pod in the node's domain has a required anti-affinity against this pod.
    ExistingPodAntiAffinity,
    /// Preemption: no pod on the node has a lower priority.
    NoPreemptionVictims,
    /// Preemption: removing pods from the node would not resolve its rejection.
    PreemptionNotHelpful,
}

impl RejectionReason {
    /// Whether kube-scheduler mentions it.
    pub(crate) fn is_reported(&self) -> bool {
        !matches!(self, RejectionReason::NodeNotNamed { reported: false })
    }
}

/// The claim of an ephemeral volume exists but was not created for the pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimNotOwned {
    /// The claim's name. Its namespace is the pod's.
    pub claim: Box<str>,
    /// The pod.
    pub pod: PodKey,
}

/// A rejection: the plugin, its reasons, and whether preemption could resolve it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The plugin that rejects the pod.
    pub plugin: Plugin,
    /// Whether preemption could resolve it.
    pub code: Code,
    /// The reasons, in the plugin's order.
    pub reasons: Vec<RejectionReason>,
}

impl Rejection {
    pub(crate) fn new(plugin: Plugin, code: Code, reason: RejectionReason) -> Rejection {
        Rejection { plugin, code, reasons: vec![reason] }
    }
}

/// How many nodes have each reason. There are few reasons and many nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReasonCounts(Vec<(RejectionReason, usize)>);

impl ReasonCounts {
    /// Counts a reason for some nodes.
    pub(crate) fn add(&mut self, reason: &RejectionReason, nodes: usize) {
        match self.0.iter_mut().find(|(known, _)| known == reason) {
            Some((_, count)) => *count += nodes,
            None => self.0.push((reason.clone(), nodes)),
        }
    }

    /// Counts the reasons of a node.
    pub(crate) fn add_all(&mut self, rejection: &Rejection) {
        rejection.reasons.iter().for_each(|reason| self.add(reason, 1));
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RejectionReason, usize)> {
        self.0.iter().map(|(reason, count)| (reason, *count))
    }
}

/// An error that ends the scheduling attempt for all nodes. `Display` gives kube-scheduler's wording.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SchedulingError {
    /// A plugin failed; the scheduling framework adds the plugin's name.
    Plugin {
        /// Where in the cycle it failed.
        point: ExtensionPoint,
        /// The plugin.
        plugin: Plugin,
        /// What it failed with.
        cause: Box<SchedulingError>,
    },
    /// A class has no binding mode.
    BindingModeNotSet {
        /// The class's name.
        class: Box<str>,
    },
    /// The class of a claim does not exist.
    StorageClassNotFound {
        /// The class's name.
        class: Box<str>,
    },
    /// The claim of an ephemeral volume belongs to something else than the pod.
    EphemeralClaimNotOwned(ClaimNotOwned),
    /// An inline volume has no equivalent in CSI.
    CsiTranslation {
        /// The volume.
        volume: Box<str>,
        /// What prevents the translation.
        cause: CsiTranslationError,
    },
    /// The preferred node affinity is invalid in a way that kube-apiserver accepts.
    PreferredNodeAffinity(Box<str>),
    /// The claim has a class of volume attributes, which this version does not support.
    AttributesClassUnsupported {
        /// The claim's namespace.
        namespace: Box<str>,
        /// The claim's name.
        claim: Box<str>,
    },
    /// Preemption would clear a node without removing a pod from it.
    NoVictimOnNode(Box<str>),
}

/// A part of the scheduling cycle in which plugins run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are kube-scheduler's own")]
pub enum ExtensionPoint {
    PreFilter,
    Filter,
    PreScore,
}

/// Why an inline volume cannot be translated to CSI.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum CsiTranslationError {
    /// The ID of an AWS volume is malformed.
    AwsVolumeId(Box<str>),
    /// An Azure disk is of a kind that CSI does not support.
    AzureDiskKind(Box<str>),
}

/// Why a pod does not pass a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptFault {
    /// A plugin rejects the pod.
    Rejected(Rejection),
    /// A plugin fails, which ends the attempt for all nodes.
    Error(SchedulingError),
}

impl AttemptFault {
    /// Adds the plugin to an error, as the scheduling framework does.
    pub(crate) fn in_plugin(self, point: ExtensionPoint, plugin: Plugin) -> AttemptFault {
        match self {
            AttemptFault::Error(cause) => AttemptFault::Error(cause.in_plugin(point, plugin)),
            rejected @ AttemptFault::Rejected(_) => rejected,
        }
    }
}

impl SchedulingError {
    pub(crate) fn in_plugin(self, point: ExtensionPoint, plugin: Plugin) -> SchedulingError {
        SchedulingError::Plugin { point, plugin, cause: Box::new(self) }
    }
}

pub(crate) type Filtered = Result<(), AttemptFault>;

pub(crate) fn reject(plugin: Plugin, code: Code, reason: RejectionReason) -> Filtered {
    Err(AttemptFault::Rejected(Rejection::new(plugin, code, reason)))
}
