//! What is written down of a recovery: a `NodeRecovery` object.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stead_explain::outage::NodeStanding;

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

impl NodeRecovery {
    /// Its name.
    pub fn name(&self) -> &str {
        self.metadata.get("name").and_then(Value::as_str).unwrap_or_default()
    }

    /// When the last step was taken.
    pub fn last_step(&self) -> Option<Timestamp> {
        self.status.steps.last().map(|step| step.at)
    }
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Which life of which machine.
    pub node: NodeIdentity,
    /// Why it is known to be off; the last is what it goes on with.
    pub evidence: Vec<Evidence>,
    /// What its kubelet had said last when that was found out: any later word of it makes the evidence void.
    #[serde(default)]
    pub heard: Heard,
    /// What is to be done.
    pub plan: Plan,
    /// Who wants it to end before the point of no return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abort: Option<Said>,
}

impl NodeIdentity {
    /// This life of this node.
    pub(crate) fn of(node: &NodeStanding) -> NodeIdentity {
        NodeIdentity {
            name: node.name.clone(),
            uid: node.uid.clone(),
            boot_id: node.boot_id.clone().unwrap_or_default(),
            provider_id: node.provider_id.clone(),
            zone: node.zone.clone(),
        }
    }

    /// What the record of this life is called.
    pub fn record_name(&self) -> String {
        // FNV-1a: short, and the same everywhere. A name of 253 letters leaves no room for it.
        let life = self.uid.bytes().chain([b'/']).chain(self.boot_id.bytes());
        let hash = life.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let name: String = self.name.chars().take(230).collect();
        format!("{}-{:08x}", name.trim_end_matches(['-', '.']), hash >> 32)
    }
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

/// The last signs of life of a node. They are compared, and not measured: a machine that was suspended has a clock that
/// is behind, and the renewal that it begins its second life with may look older than the first life's last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heard {
    /// The Lease's renewTime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Timestamp>,
    /// The condition Ready's lastHeartbeatTime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat: Option<Timestamp>,
    /// The condition Ready's lastTransitionTime: since when nothing is heard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent: Option<Timestamp>,
}

impl Heard {
    /// What a node's kubelet has said last.
    pub(crate) fn of(node: &NodeStanding) -> Heard {
        Heard { lease: node.lease.map(|lease| lease.renewed), heartbeat: node.heartbeat, silent: node.since }
    }
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
    /// Whether it proves that the machine is powered off: a machine that was only suspended goes on when it is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub powered_off: bool,
    /// The pods, by uid, that it is proof for; none where it is for all of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Vec<String>>,
}

impl Evidence {
    /// Whether it proves that this pod does not run.
    pub fn covers(&self, uid: &str) -> bool {
        self.pods.as_ref().is_none_or(|pods| pods.iter().any(|p| p == uid))
    }
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
    /// Volumes that hang on the node though no pod there has them any more: they are freed too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.volumes.is_empty()
    }

    /// The volumes that are to be detached.
    pub fn freed(&self) -> impl Iterator<Item = &str> {
        self.pods.iter().flat_map(|p| &p.volumes).chain(&self.volumes).map(String::as_str)
    }

    /// Whether another plan takes the same from the node, and leaves the same alone. Where successors would go may differ.
    pub(crate) fn is_about_the_same(&self, other: &Plan) -> bool {
        let of = |plan: &Plan| {
            let pods: BTreeSet<String> = plan.pods.iter().map(|p| p.uid.clone()).collect();
            // Pods that have ended come and go, and not all of them are listed.
            let stays = plan.left_alone.iter().filter(|l| !l.passing);
            let alone: BTreeSet<String> = stays.filter_map(|l| l.uid.clone()).collect();
            let volumes: BTreeSet<String> = plan.freed().map(str::to_owned).collect();
            (pods, alone, volumes)
        };
        of(self) == of(other)
    }

    /// The condemned pod of this identity.
    pub fn condemned(&self, uid: &str) -> Option<&CondemnedPod> {
        self.pods.iter().find(|p| p.uid == uid)
    }
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
    /// How many nodes can run its replacement; `target` names only the best of them. Zero in records that were written
    /// before this field existed, which list all nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub feasible_nodes: usize,
    /// Whether it tolerates the taint and has to be deleted besides.
    #[serde(default)]
    pub tolerates: bool,
    /// Whether it was, or may have been, taken from the node before this plan was made: nothing is left to be done but to
    /// see that it does not run there any more when the node is back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
}

impl CondemnedPod {
    /// How many nodes can run its replacement.
    pub fn feasible_nodes(&self) -> usize {
        match &self.target {
            Target::Nodes(nodes) => self.feasible_nodes.max(nodes.len()),
            Target::Nowhere(_) | Target::Gone => 0,
        }
    }
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Where a pod's successor would go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    /// To one of these nodes, the best first; at most three are stored.
    Nodes(Vec<String>),
    /// Nowhere for now, and why.
    Nowhere(String),
    /// There will be no successor: nobody makes it anew.
    Gone,
}

/// What stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeftAlone {
    /// What: `pod NAMESPACE/NAME`, or `taint KEY`.
    pub what: String,
    /// Why.
    pub why: String,
    /// The pod's identity, where it is a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// How it is kept from the taint, where that is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shield: Option<Shield>,
    /// Whether its object may go at any time and nothing is lost with it: the pod has ended, or its kubelet has it from a
    /// file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub passing: bool,
}

/// What keeps a pod from the taint: tolerations. A toleration can be added to a pod, and its seconds can be changed;
/// it cannot be removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shield {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Its tolerations as they were before.
    pub before: Vec<Value>,
    /// Its tolerations with those that keep it.
    pub after: Vec<Value>,
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
    /// Since when there is no way back: the first pod was collected, or a volume detached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_return_since: Option<Timestamp>,
}

/// How far a recovery is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// It is written down, and nothing has been done.
    #[default]
    Planned,
    /// The same, and the recoveries of other nodes come first.
    Held,
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
