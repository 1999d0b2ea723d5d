//! Our taint on a node, and the annotation that says that it is ours.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stead_model::{NodeHealth, OUT_OF_SERVICE};

use crate::guard::{Guard, Guards};
use crate::next_step::RecoveryWrite;
use crate::record::{EvidenceKind, NodeRecovery};

/// The annotation that goes with our taint.
pub const ANNOTATION: &str = "stead.dev/recovery";

/// The value of the taint in the Kubernetes documentation.
const VALUE: &str = "nodeshutdown";

/// The content of the annotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryAnnotation {
    /// The name of the record.
    pub record: String,
    /// Who applied the taint.
    pub holder: String,
    /// When.
    pub time: Timestamp,
    /// For which boot of the machine.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// With which kind of evidence.
    pub evidence: Option<EvidenceKind>,
    /// Set when the recovery has ended and the annotation is about to be removed. Until then it tells others, and it has
    /// given the Node a new version, so that a taint that somebody else decided on before is refused.
    #[serde(rename = "over", default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedRecovery>,
    /// Why it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How a recovery has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndedRecovery {
    /// After the taint was applied.
    Fenced,
    /// Before the taint was applied.
    Unfenced,
}

/// Who applied the out-of-service taint of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaintOwner {
    /// This recovery.
    Ours,
    /// Somebody else.
    Foreign,
}

impl RecoveryAnnotation {
    /// The annotation of a node.
    pub fn of(node: &NodeHealth<'_>) -> Option<RecoveryAnnotation> {
        serde_json::from_str(node.annotation(ANNOTATION)?).ok()
    }

    /// The annotation of a node, if it is of this record.
    pub(crate) fn of_record(node: &NodeHealth<'_>, record: &str) -> Option<RecoveryAnnotation> {
        RecoveryAnnotation::of(node).filter(|annotation| annotation.record == record)
    }

    fn new(record: &NodeRecovery, holder: &str, now: Timestamp) -> RecoveryAnnotation {
        RecoveryAnnotation {
            record: record.name().into(),
            holder: holder.into(),
            time: now,
            boot_id: record.spec.node.boot_id.clone(),
            evidence: record.spec.evidence.last().map(|evidence| evidence.kind),
            ended: None,
            why: None,
        }
    }
}

/// A taint of effect NoExecute.
pub(crate) fn no_execute(key: &str, value: &str) -> Taint {
    Taint { key: key.into(), value: Some(value.into()), effect: "NoExecute".into(), time_added: None }
}

/// The taint that Stead applies.
pub(crate) fn taint() -> Taint {
    no_execute(OUT_OF_SERVICE, VALUE)
}

fn is_ours(taint: &Taint) -> bool {
    taint.key == OUT_OF_SERVICE && taint.value.as_deref() == Some(VALUE) && taint.effect == "NoExecute"
}

/// Whether this recovery has applied its taint, even if somebody has removed it since.
pub(crate) fn is_fenced_by(node: &NodeHealth<'_>, record: &str) -> bool {
    RecoveryAnnotation::of_record(node, record).is_some_and(|annotation| annotation.ended.is_none())
}

/// Who applied the out-of-service taint; none if there is no such taint.
pub(crate) fn taint_owner(node: &NodeHealth<'_>, record: &str) -> Option<TaintOwner> {
    node.taint(OUT_OF_SERVICE)?;
    let ours = is_fenced_by(node, record) && node.taints().iter().any(is_ours);
    Some(if ours { TaintOwner::Ours } else { TaintOwner::Foreign })
}

/// Applies the taint, with the annotation. Other taints are not changed.
pub(crate) fn apply_taint(
    node: &NodeHealth<'_>,
    record: &NodeRecovery,
    holder: &str,
    now: Timestamp,
    guards: Guards,
) -> RecoveryWrite {
    let mut taints = node.taints().to_vec();
    taints.push(taint());
    let annotation = RecoveryAnnotation::new(record, holder, now);
    let what = format!("taint {OUT_OF_SERVICE}={VALUE}:NoExecute applied");
    patch_node(node, &taints.iter().collect::<Vec<_>>(), Some(&annotation), what, guards)
}

/// Removes our taint, if it is there, and annotates the node with the end of the recovery.
pub(crate) fn end(
    node: &NodeHealth<'_>,
    record: &NodeRecovery,
    holder: &str,
    why: &str,
    now: Timestamp,
    guards: Guards,
) -> RecoveryWrite {
    let ended = if is_fenced_by(node, record.name()) { EndedRecovery::Fenced } else { EndedRecovery::Unfenced };
    let goes = |taint: &Taint| {
        let anybodys = !guards.hold(Guard::Foreign) && taint.key == OUT_OF_SERVICE;
        (ended == EndedRecovery::Fenced && is_ours(taint)) || anybodys
    };
    let taints: Vec<&Taint> = node.taints().iter().filter(|taint| !goes(taint)).collect();
    let annotation = RecoveryAnnotation {
        ended: Some(ended),
        why: Some(why.to_owned()),
        ..RecoveryAnnotation::new(record, holder, now)
    };
    let what = format!("recovery ended; taint {OUT_OF_SERVICE} removed if it was ours");
    patch_node(node, &taints, Some(&annotation), what, guards)
}

/// Removes what is left of a recovery that is over from the node; none if nothing is left.
pub(crate) fn clean_up(node: &NodeHealth<'_>, record: &str, guards: Guards) -> Option<RecoveryWrite> {
    let annotation = RecoveryAnnotation::of_record(node, record)?;
    // Our taint was removed when the recovery ended: a taint that is there now is somebody else's.
    let ended = annotation.ended.is_some();
    let taints: Vec<&Taint> = node.taints().iter().filter(|taint| ended || !is_ours(taint)).collect();
    Some(patch_node(node, &taints, None, "annotation removed".into(), guards))
}

fn patch_node(
    node: &NodeHealth<'_>,
    taints: &[&Taint],
    annotation: Option<&RecoveryAnnotation>,
    what: String,
    guards: Guards,
) -> RecoveryWrite {
    let annotation =
        annotation.map(|annotation| serde_json::to_string(annotation).expect("the annotation has only text"));
    let mut metadata = preconditions(node.uid(), node.resource_version(), guards);
    metadata.insert("annotations".into(), json!({ ANNOTATION: annotation }));
    let patch = json!({ "metadata": metadata, "spec": { "taints": taints } });
    RecoveryWrite::Node { name: node.name().to_owned(), patch, what }
}

/// The metadata of a patch: the API server refuses it if the object is another one, or has changed.
pub(crate) fn preconditions(uid: &str, version: &str, guards: Guards) -> Map<String, Value> {
    let mut metadata = Map::new();
    metadata.insert("uid".into(), uid.into());
    if guards.hold(Guard::Version) {
        metadata.insert("resourceVersion".into(), version.into());
    }
    metadata
}
