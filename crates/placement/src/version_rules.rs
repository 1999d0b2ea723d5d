//! How kube-scheduler differs between Kubernetes versions: one named rule for each difference.
//!
//! Features are taken with their default of that version. Docs: the table in `docs/FIDELITY.md`.

use stead_model::KubernetesVersion;

/// The rules of one version. The plugins ask for a rule, never for the version.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VersionRules {
    /// 1.36: NodeDeclaredFeatures compares what a pod needs with what its node declares (KEP-5328).
    pub(crate) declared_features: bool,
    /// 1.36: NodeResourcesBalancedAllocation scores how much the pod improves the balance, not the balance itself.
    pub(crate) balance_improvement: bool,
    /// 1.36: ImageLocality counts image volumes (KEP-4639).
    pub(crate) image_volumes: bool,
    /// 1.36: DeviceClasses can provide extended resources (KEP-5004).
    pub(crate) device_extended_resources: bool,
    /// 1.36: the kubelet's report about pod-level resources counts (KEP-5419).
    pub(crate) pod_level_report: bool,
    /// 1.35: DynamicResources scores nodes (KEP-4816).
    pub(crate) device_scores: bool,
    /// 1.34: DynamicResources is enabled (KEP-4381) and takes part in the message of the event.
    pub(crate) dynamic_resources: bool,
    /// 1.34: pod-level resources count (KEP-2837).
    pub(crate) pod_level_resources: bool,
    /// 1.34: InterPodAffinity clears the namespace selector of a copy only, so the selector stays and is matched against
    /// empty labels.
    pub(crate) keeps_namespace_selector: bool,
    /// 1.34: a request above the node's allocatable amount is beyond preemption.
    pub(crate) unresolvable_requests: bool,
    /// Before 1.34: TaintToleration's reason names the taint.
    pub(crate) names_taint: bool,
    /// 1.34: VolumeRestrictions' reason about ReadWriteOncePod is worded for several nodes.
    pub(crate) read_write_once_pod: ReasonWording,
    /// What the class of volume attributes means to VolumeBinding (KEP-3751).
    pub(crate) attributes_class: AttributesClassRule,
    /// 1.33: host ports of sidecars count.
    pub(crate) sidecar_ports: bool,
    /// 1.33: the kubelet's report about resources during a resize counts (KEP-1287).
    pub(crate) resize_report: bool,
    /// 1.33: NodeResourcesBalancedAllocation does not score pods without requests.
    pub(crate) skips_best_effort: bool,
    /// 1.33: VolumeBinding's reason about a volume's node affinity no longer speaks of a conflict.
    pub(crate) volume_node_affinity: ReasonWording,
    /// 1.32: NodeVolumeLimits counts VolumeAttachments.
    pub(crate) counts_attachments: bool,
    /// Before 1.32: a node's allocatable resources can limit its volumes (`attachable-volumes-*`).
    pub(crate) allocatable_volume_limits: bool,
    /// 1.32: nodes that the node affinity does not list by name are rejected with a reason; before, without one.
    pub(crate) reports_unlisted_nodes: bool,
    /// 1.32: a node's use, as NodeResourcesFit scores it, includes sidecars.
    pub(crate) scores_sidecars: bool,
    /// When NodeVolumeLimits treats Portworx volumes as those of the CSI driver (KEP-2589).
    pub(crate) portworx: PortworxMigration,
    /// Before 1.31: plugins of their own limit EBS, GCE and Azure disks on nodes without a CSINode.
    pub(crate) in_tree_limits: bool,
    /// 1.30: ImageLocality counts init containers.
    pub(crate) init_images: bool,
    /// Before 1.30: NodeAffinity and VolumeBinding score every pod, with zero where they have no preference.
    pub(crate) scores_without_preference: bool,
}

/// Two wordings of the same reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasonWording {
    /// That of the newest version.
    Current,
    /// The one before it was changed.
    Former,
}

/// What `volumeAttributesClassName` means to the search for a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AttributesClassRule {
    /// Nothing (before 1.31).
    Ignored,
    /// A claim that has one is an error, and a volume that has one is not used (1.31 to 1.33).
    Unsupported,
    /// Claim and volume need the same (from 1.34).
    Compared,
}

/// When Portworx volumes count as those of the CSI driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PortworxMigration {
    /// Never (before 1.31).
    Off,
    /// If an annotation of the CSINode says so (1.31 to 1.35).
    Annotated,
    /// Always (from 1.36).
    On,
}

impl VersionRules {
    /// The rules of a version.
    pub(crate) fn of(version: KubernetesVersion) -> VersionRules {
        let from = |minor: u16| version >= KubernetesVersion::minor(minor);
        let wording = |minor: u16| if from(minor) { ReasonWording::Current } else { ReasonWording::Former };
        VersionRules {
            declared_features: from(36),
            balance_improvement: from(36),
            image_volumes: from(36),
            device_extended_resources: from(36),
            pod_level_report: from(36),
            device_scores: from(35),
            dynamic_resources: from(34),
            pod_level_resources: from(34),
            keeps_namespace_selector: from(34),
            unresolvable_requests: from(34),
            names_taint: !from(34),
            read_write_once_pod: wording(34),
            attributes_class: match () {
                () if from(34) => AttributesClassRule::Compared,
                () if from(31) => AttributesClassRule::Unsupported,
                () => AttributesClassRule::Ignored,
            },
            sidecar_ports: from(33),
            resize_report: from(33),
            skips_best_effort: from(33),
            volume_node_affinity: wording(33),
            counts_attachments: from(32),
            allocatable_volume_limits: !from(32),
            reports_unlisted_nodes: from(32),
            scores_sidecars: from(32),
            portworx: match () {
                () if from(36) => PortworxMigration::On,
                () if from(31) => PortworxMigration::Annotated,
                () => PortworxMigration::Off,
            },
            in_tree_limits: !from(31),
            init_images: from(30),
            scores_without_preference: !from(30),
        }
    }
}

impl Default for VersionRules {
    fn default() -> VersionRules {
        VersionRules::of(KubernetesVersion::default())
    }
}
