//! Why a node does not take a pod, in kube-scheduler's words.

use std::borrow::Cow;

/// Whether preempting other pods could help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// It could (`Unschedulable`).
    Unschedulable,
    /// It could not (`UnschedulableAndUnresolvable`).
    Unresolvable,
}

impl Code {
    /// kube-scheduler's name for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Unschedulable => "Unschedulable",
            Code::Unresolvable => "UnschedulableAndUnresolvable",
        }
    }
}

/// The part of the scheduler that rejects or scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are kube-scheduler's own")]
pub enum Plugin {
    NodeUnschedulable,
    TaintToleration,
    NodeAffinity,
    NodePorts,
    NodeResourcesFit,
    VolumeRestrictions,
    NodeVolumeLimits,
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
            Plugin::NodeVolumeLimits => "NodeVolumeLimits",
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

    /// How much its score counts in the default profile.
    pub fn weight(self) -> i64 {
        match self {
            Plugin::TaintToleration => 3,
            Plugin::NodeAffinity | Plugin::PodTopologySpread | Plugin::InterPodAffinity | Plugin::DynamicResources => 2,
            _ => 1,
        }
    }
}

/// A rejection: by whom, for what reasons, and whether preemption could help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The plugin that said no.
    pub plugin: Plugin,
    /// Whether preemption could help.
    pub code: Code,
    /// The reasons, in its order.
    pub reasons: Vec<Cow<'static, str>>,
}

impl Rejection {
    pub(crate) fn new(plugin: Plugin, code: Code, reason: impl Into<Cow<'static, str>>) -> Rejection {
        Rejection { plugin, code, reasons: vec![reason.into()] }
    }
}

/// Why a pod is not let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A plugin says no.
    Rejected(Rejection),
    /// A plugin cannot tell, which ends the attempt for all nodes.
    Error(String),
}

impl Fault {
    /// The same with other words for what could not be told.
    pub(crate) fn around(self, words: impl FnOnce(String) -> String) -> Fault {
        match self {
            Fault::Error(error) => Fault::Error(words(error)),
            rejected @ Fault::Rejected(_) => rejected,
        }
    }
}

pub(crate) type Filtered = Result<(), Fault>;

pub(crate) fn reject(plugin: Plugin, code: Code, reason: impl Into<Cow<'static, str>>) -> Filtered {
    Err(Fault::Rejected(Rejection::new(plugin, code, reason)))
}
