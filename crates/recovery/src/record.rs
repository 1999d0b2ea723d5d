//! What is written down of a recovery: a `NodeRecovery` object.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind's group and version.
pub const API_VERSION: &str = "stead.dev/v1alpha1";

/// The kind.
pub const KIND: &str = "NodeRecovery";

/// The record of one recovery of one life of one machine. It has no namespace; its name follows from the node's name,
/// identity and boot id, so that whoever recovers that life finds the same record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecovery {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`KIND`].
    pub kind: String,
    /// Name, uid and resourceVersion, and whatever else the API server keeps there.
    pub metadata: Map<String, Value>,
    /// What was decided, by whom and why.
    pub spec: Spec,
    /// What has been done.
    #[serde(default)]
    pub status: Status,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Which life of which machine.
    pub node: NodeIdentity,
    /// Why it is known to be off; the first is what it was begun with.
    pub evidence: Vec<Evidence>,
    /// What is to be done.
    pub plan: Plan,
    /// Who wants it to end before the point of no return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort: Option<Said>,
}

/// One life of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeIdentity {
    /// The node's name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Its boot id; empty where its kubelet never said one.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// The machine, as its cloud calls it.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// Who said something, when, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Said {
    /// The user, as the API server knows it.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// In their words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
}

/// Why a machine is known to be off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// Of what kind.
    pub kind: EvidenceKind,
    /// Who says so, when, in which words.
    #[serde(flatten)]
    pub said: Said,
}

/// Kinds of evidence that a machine is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EvidenceKind {
    /// A person has made sure.
    Person,
    /// The cloud's controller says that the machine is shut down.
    CloudShutdown,
    /// The machine has been started anew since, and the pods were being deleted before that.
    BootIdChanged,
}

/// What is to be done, and what is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The pods that are to leave the node, in their order.
    pub pods: Vec<CondemnedPod>,
    /// What stays as it is, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<LeftAlone>,
}

/// A pod that is to leave the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CondemnedPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uid: String,
    /// Who makes it anew, as `Kind/name`; none where nobody does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its volumes that have to be detached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Whether it was being deleted already.
    #[serde(default)]
    pub terminating: bool,
    /// Where its successor would go.
    pub target: Target,
    /// Whether it tolerates the taint and has to be deleted besides.
    #[serde(default)]
    pub tolerates: bool,
}

/// Where a pod's successor would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// To one of these nodes, the best first.
    Nodes(Vec<String>),
    /// Nowhere for now, and why.
    Nowhere(String),
    /// There will be no successor: nobody makes it anew.
    Gone,
}

/// What stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftAlone {
    /// What: `pod NAMESPACE/NAME`, or `taint KEY`.
    pub what: String,
    /// Why.
    pub why: String,
    /// The pod's identity, where it has to be kept from the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shield: Option<String>,
}

/// What has been done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// How far it is.
    #[serde(default)]
    pub phase: Phase,
    /// The steps that were taken, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Took>,
    /// What is waited for, or why it has stopped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when there is no way back: the first pod was collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_return_since: Option<Timestamp>,
}

/// How far a recovery is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// It is written down, and nothing has been done.
    #[default]
    Planned,
    /// The taint is there; pods and volumes are waited for.
    Fenced,
    /// Pods and volumes are free of the node; the successors are waited for.
    Released,
    /// All successors are ready; the node has yet to come back.
    Recovered,
    /// The node is back, and the taint is gone.
    Returned,
    /// The node came back, or somebody aborted it, before the point of no return: all is as before.
    Undone,
    /// The node's object is gone, or is another machine's: this record is only history.
    Void,
}

impl Phase {
    /// Whether nothing is left to be done.
    pub fn is_over(self) -> bool {
        matches!(self, Phase::Returned | Phase::Undone | Phase::Void)
    }
}

/// A step that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Took {
    /// When.
    pub at: Timestamp,
    /// What, in a few words.
    pub what: String,
}
