//! The record of a recovery: a `NodeRecovery` object.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Toleration;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stead_model::NodeHealth;

/// The group and version of the kind.
pub const API_VERSION: &str = "stead.dev/v1alpha1";

/// The kind.
pub const KIND: &str = "NodeRecovery";

/// The record of one recovery of one boot of one machine. It is cluster-scoped; its name follows from the node's name, UID
/// and boot ID, so that everybody who recovers this boot finds the same record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecovery {
    /// [`API_VERSION`].
    pub api_version: String,
    /// [`KIND`].
    pub kind: String,
    /// Name, UID and resourceVersion, and whatever else the API server keeps there: it is sent back unchanged.
    pub metadata: Map<String, Value>,
    /// What was decided, by whom and why.
    pub spec: NodeRecoverySpec,
    /// What was done.
    #[serde(default)]
    pub status: NodeRecoveryStatus,
}

impl NodeRecovery {
    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// When the last step was recorded.
    pub fn last_step(&self) -> Option<Timestamp> {
        self.status.steps.last().map(|step| step.at)
    }

    /// Whether it is for this node, identified by its UID.
    pub(crate) fn is_for(&self, node: &NodeHealth<'_>) -> bool {
        self.spec.node.uid == node.uid()
    }
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecoverySpec {
    /// Which boot of which machine.
    pub node: NodeIdentity,
    /// Why the machine is known to be off; the last item is the one that the recovery relies on.
    pub evidence: Vec<Evidence>,
    /// The node's last signs of life when the evidence was found: any later one makes the evidence void.
    #[serde(rename = "heard", default)]
    pub last_contact: LastContact,
    /// What is to be done.
    pub plan: RecoveryPlan,
    /// Who aborted the recovery before the point of no return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort: Option<Statement>,
}

/// One boot of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeIdentity {
    /// The name of the node.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its boot ID; empty if its kubelet has not reported one.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// The machine, by its cloud's name for it.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

impl NodeIdentity {
    /// The current boot of this node.
    pub(crate) fn of(node: &NodeHealth<'_>) -> NodeIdentity {
        NodeIdentity {
            name: node.name().to_owned(),
            uid: node.uid().to_owned(),
            boot_id: node.boot_id().unwrap_or_default().to_owned(),
            provider_id: node.provider_id().map(str::to_owned),
            zone: node.zone().map(str::to_owned),
        }
    }

    /// The name of the record of this boot.
    pub fn record_name(&self) -> String {
        // FNV-1a: short, and the same everywhere. The node's name is cut to leave room for it within 253 characters.
        let boot = self.uid.bytes().chain([b'/']).chain(self.boot_id.bytes());
        let hash = boot.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let name: String = self.name.chars().take(230).collect();
        format!("{}-{:08x}", name.trim_end_matches(['-', '.']), hash >> 32)
    }

    /// Whether another identity is of a different boot of the machine; false if one of the boot IDs is unknown.
    pub(crate) fn is_other_boot(&self, boot_id: Option<&str>) -> bool {
        boot_id.is_some_and(|boot_id| !self.boot_id.is_empty() && self.boot_id != boot_id)
    }
}

/// The last signs of life of a node. They are compared for equality only: the clock of a machine that was suspended is
/// behind, so that its first renewal after that can look older than its last one before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastContact {
    /// `renewTime` of the Lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Timestamp>,
    /// `lastHeartbeatTime` of the condition Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Timestamp>,
    /// `lastTransitionTime` of the condition Ready: since when the node is unreachable.
    #[serde(rename = "silent", default, skip_serializing_if = "Option::is_none")]
    pub unreachable_since: Option<Timestamp>,
}

impl LastContact {
    /// The last signs of life of a node.
    pub(crate) fn of(node: &NodeHealth<'_>) -> LastContact {
        LastContact {
            lease: node.lease.map(|lease| lease.renewed),
            heartbeat: node.heartbeat,
            unreachable_since: node.since,
        }
    }
}

/// Who stated something, when, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    /// The user, by the API server's name for them.
    pub by: String,
    /// When.
    pub at: Timestamp,
    /// The text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub words: String,
}

/// Why a machine is known to be off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The kind.
    pub kind: EvidenceKind,
    /// Who states it, when, and in which words.
    #[serde(flatten)]
    pub statement: Statement,
    /// Whether it proves that the machine is powered off: a machine that was only suspended continues when it is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub powered_off: bool,
    /// The UIDs of the pods that it is proof for; none if it is proof for the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Vec<String>>,
}

impl Evidence {
    /// Whether it proves that this pod does not run.
    pub fn covers(&self, uid: &str) -> bool {
        self.pods.as_ref().is_none_or(|pods| pods.iter().any(|covered| covered == uid))
    }
}

/// Kinds of evidence that a machine is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum EvidenceKind {
    /// A person has confirmed it.
    Person,
    /// The cloud's node controller reports that the machine is shut down.
    CloudShutdown,
    /// The machine was restarted, and the pods were being deleted before that.
    BootIdChanged,
}

/// What is to be done, and what is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryPlan {
    /// The pods to release from the node, in this order.
    pub pods: Vec<PlannedPod>,
    /// What is not changed, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_alone: Vec<LeftAlone>,
    /// Volumes that are attached to the node although no pod on it uses them: they are detached, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
}

impl RecoveryPlan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.volumes.is_empty()
    }

    /// The volumes that are to be detached.
    pub fn released_volumes(&self) -> impl Iterator<Item = &str> {
        self.pods.iter().flat_map(|pod| &pod.volumes).chain(&self.volumes).map(String::as_str)
    }

    /// Whether another plan releases the same and leaves the same alone. Where replacement pods would go may differ.
    pub(crate) fn has_same_effect(&self, other: &RecoveryPlan) -> bool {
        let effect = |plan: &RecoveryPlan| {
            let pods: BTreeSet<String> = plan.pods.iter().map(|pod| pod.uid.clone()).collect();
            // Pods that have ended come and go, and not all of them are listed.
            let stays = plan.left_alone.iter().filter(|left| !left.expendable);
            let left_alone: BTreeSet<String> = stays.filter_map(|left| left.uid.clone()).collect();
            let volumes: BTreeSet<String> = plan.released_volumes().map(str::to_owned).collect();
            (pods, left_alone, volumes)
        };
        effect(self) == effect(other)
    }

    /// The planned pod with this UID.
    pub fn pod(&self, uid: &str) -> Option<&PlannedPod> {
        self.pods.iter().find(|pod| pod.uid == uid)
    }
}

/// A pod that is to be released from the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedPod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its controller, as `Kind/name`; none if it has no controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its volumes that have to be detached.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Whether it was seen Terminating.
    #[serde(default)]
    pub terminating: bool,
    /// Where its replacement would go.
    pub target: ReplacementTarget,
    /// How many nodes can run its replacement; `target` names only the best of them. Zero in records that were written
    /// before this field existed, which list all nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub feasible_nodes: usize,
    /// Whether it tolerates the taint, so that it has to be deleted.
    #[serde(default)]
    pub tolerates: bool,
    /// Whether it was, or may have been, released before this plan was made. All that is left to do is to make sure that it
    /// no longer runs there when the node is back.
    #[serde(rename = "taken", default, skip_serializing_if = "std::ops::Not::not")]
    pub released_earlier: bool,
}

impl PlannedPod {
    /// How many nodes can run its replacement.
    pub fn feasible_nodes(&self) -> usize {
        match &self.target {
            ReplacementTarget::Nodes(nodes) => self.feasible_nodes.max(nodes.len()),
            ReplacementTarget::NoNode(_) | ReplacementTarget::NotRecreated => 0,
        }
    }

    /// Namespace and name.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Where the replacement of a pod would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReplacementTarget {
    /// To one of these nodes, the best first; at most three are stored.
    Nodes(Vec<String>),
    /// No node can run it at present, and why.
    #[serde(rename = "nowhere")]
    NoNode(String),
    /// Nobody recreates it.
    #[serde(rename = "gone")]
    NotRecreated,
}

/// Something that is not changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftAlone {
    /// What: `pod NAMESPACE/NAME`, or `taint KEY`.
    pub what: String,
    /// Why.
    pub why: String,
    /// The UID, if it is a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The tolerations that keep it on the node, if it needs any.
    #[serde(rename = "shield", default, skip_serializing_if = "Option::is_none")]
    pub added_tolerations: Option<AddedTolerations>,
    /// Whether its object may be deleted at any time without any loss: the pod has ended, or it is a static pod.
    #[serde(rename = "passing", default, skip_serializing_if = "std::ops::Not::not")]
    pub expendable: bool,
}

/// Tolerations that keep a pod on a node with the taint. Kubernetes allows adding a toleration to a pod and changing its
/// seconds, but not removing it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddedTolerations {
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub name: String,
    /// Its tolerations before.
    pub before: Vec<Toleration>,
    /// Its tolerations with the added ones.
    pub after: Vec<Toleration>,
}

// k8s-openapi does not derive Eq; a toleration has only text and whole numbers.
impl Eq for AddedTolerations {}

/// What was done.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRecoveryStatus {
    /// The phase.
    #[serde(default)]
    pub phase: RecoveryPhase,
    /// The steps that were taken, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<RecordedStep>,
    /// What the recovery waits for, or why it has stopped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The point of no return: when the first pod was removed or the first volume detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_return_since: Option<Timestamp>,
}

/// How far a recovery is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RecoveryPhase {
    /// It is recorded, and nothing was done.
    #[default]
    Planned,
    /// The same, and it has to wait for the recoveries of other nodes.
    Held,
    /// The taint is applied; the pods and volumes are being released.
    Fenced,
    /// The pods and volumes are released; the replacement pods are not all Ready.
    Released,
    /// All replacement pods are Ready; the node is not back yet.
    Recovered,
    /// The node is back, and the taint is removed.
    Returned,
    /// The node came back, or somebody aborted the recovery, before the point of no return: everything is as before.
    Undone,
    /// The Node object is gone or belongs to another machine: this record is only history.
    Void,
}

impl RecoveryPhase {
    /// Whether the node was taken out of service, and the recovery is not over.
    pub(crate) fn is_after_taint(self) -> bool {
        matches!(self, RecoveryPhase::Fenced | RecoveryPhase::Released | RecoveryPhase::Recovered)
    }

    /// Whether nothing is left to do.
    pub fn is_over(self) -> bool {
        matches!(self, RecoveryPhase::Returned | RecoveryPhase::Undone | RecoveryPhase::Void)
    }
}

/// A step that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedStep {
    /// When.
    pub at: Timestamp,
    /// What, in a few words.
    pub what: String,
}
