//! Our taint on a node, and the mark that says that it is ours.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Taint;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stead_explain::outage::{NodeStanding, OUT_OF_SERVICE};

use crate::deed::Deed;
use crate::guard::{Guard, Guards};
use crate::pods::no_execute;
use crate::record::{EvidenceKind, NodeRecovery};

/// The annotation that goes with our taint.
pub const ANNOTATION: &str = "stead.dev/recovery";

/// The value that Kubernetes' own documentation gives the taint.
const VALUE: &str = "nodeshutdown";

/// What the annotation says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// The record's name.
    pub record: String,
    /// Who has put the taint there.
    pub holder: String,
    /// When.
    pub time: Timestamp,
    /// For which life of the machine.
    #[serde(rename = "bootID")]
    pub boot_id: String,
    /// On which kind of evidence.
    pub evidence: Option<EvidenceKind>,
    /// Whether it is over, and the mark is about to go. Until then it says so to others, and it has made the Node another
    /// version, by which a taint that somebody has decided upon before is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<Over>,
    /// Why it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How a recovery ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Over {
    /// The taint was there.
    Fenced,
    /// It never was.
    Unfenced,
}

/// Whose out-of-service taint a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fence {
    None,
    /// That of this recovery.
    Ours,
    /// Somebody else's.
    Foreign,
}

impl Mark {
    /// The mark that a node has.
    pub fn of(node: &NodeStanding) -> Option<Mark> {
        serde_json::from_str(node.annotation(ANNOTATION)?).ok()
    }
}

/// The taint, as the rules of taints see it.
pub(crate) fn taint() -> Taint {
    no_execute(OUT_OF_SERVICE, VALUE)
}

fn is_ours(taint: &Value) -> bool {
    taint["key"] == OUT_OF_SERVICE && taint["value"] == VALUE && taint["effect"] == "NoExecute"
}

/// Whether this recovery has put its taint there, be it that somebody has taken it away since.
pub(crate) fn is_marked(node: &NodeStanding, record: &str) -> bool {
    Mark::of(node).is_some_and(|mark| mark.record == record && mark.over.is_none())
}

/// Whose taint the node has.
pub(crate) fn fence(node: &NodeStanding, record: &str) -> Fence {
    let marked = is_marked(node, record);
    match node.taint(OUT_OF_SERVICE) {
        None => Fence::None,
        Some(_) if marked && node.taints.iter().any(is_ours) => Fence::Ours,
        Some(_) => Fence::Foreign,
    }
}

/// Puts the taint there, with the mark; all other taints stay as they are.
pub(crate) fn put(node: &NodeStanding, record: &NodeRecovery, holder: &str, now: Timestamp, guards: Guards) -> Deed {
    let mut taints = node.taints.clone();
    taints.push(json!({ "key": OUT_OF_SERVICE, "value": VALUE, "effect": "NoExecute" }));
    let mark = mark(record, holder, now, None, None);
    let patch = json!({
        "metadata": metadata(&node.uid, &node.resource_version, guards, Some(json!({ ANNOTATION: mark }))),
        "spec": { "taints": taints },
    });
    Deed::Node { name: node.name.clone(), patch, what: format!("taint {OUT_OF_SERVICE}={VALUE}:NoExecute put there") }
}

/// Takes our taint away, if it is there, and marks the node as one whose recovery is over.
pub(crate) fn end(
    node: &NodeStanding,
    record: &NodeRecovery,
    holder: &str,
    why: &str,
    now: Timestamp,
    guards: Guards,
) -> Deed {
    let over = if is_marked(node, record.name()) { Over::Fenced } else { Over::Unfenced };
    let goes = |taint: &Value| {
        let anybodys = !guards.hold(Guard::Foreign) && taint["key"] == OUT_OF_SERVICE;
        (over == Over::Fenced && is_ours(taint)) || anybodys
    };
    let taints: Vec<&Value> = node.taints.iter().filter(|taint| !goes(taint)).collect();
    let mark = mark(record, holder, now, Some(over), Some(why));
    let patch = json!({
        "metadata": metadata(&node.uid, &node.resource_version, guards, Some(json!({ ANNOTATION: mark }))),
        "spec": { "taints": taints },
    });
    Deed::Node {
        name: node.name.clone(),
        patch,
        what: format!("its recovery is over: no taint {OUT_OF_SERVICE} of it"),
    }
}

/// How the node is marked as one whose recovery is over.
pub(crate) fn over(node: &NodeStanding, record: &str) -> Option<Over> {
    Mark::of(node).filter(|mark| mark.record == record)?.over
}

fn mark(record: &NodeRecovery, holder: &str, now: Timestamp, over: Option<Over>, why: Option<&str>) -> String {
    let mark = Mark {
        record: record.name().into(),
        holder: holder.into(),
        time: now,
        boot_id: record.spec.node.boot_id.clone(),
        evidence: record.spec.evidence.last().map(|evidence| evidence.kind),
        over,
        why: why.map(str::to_owned),
    };
    serde_json::to_string(&mark).expect("a mark has only text")
}

/// Takes from the node what is left of a recovery that is over; none where nothing is.
pub(crate) fn tidy(node: &NodeStanding, record: &str, guards: Guards) -> Option<Deed> {
    let mark = Mark::of(node).filter(|mark| mark.record == record)?;
    // With the end our taint went: what is there now is somebody else's.
    let taints: Vec<&Value> = node.taints.iter().filter(|taint| mark.over.is_some() || !is_ours(taint)).collect();
    let patch = json!({
        "metadata": metadata(&node.uid, &node.resource_version, guards, Some(json!({ ANNOTATION: null }))),
        "spec": { "taints": taints },
    });
    Some(Deed::Node { name: node.name.clone(), patch, what: "the mark taken away".into() })
}

/// The metadata of a patch: the API server refuses it where the object is another, or has changed.
pub(crate) fn metadata(uid: &str, version: &str, guards: Guards, annotations: Option<Value>) -> Value {
    let mut metadata = Map::new();
    metadata.insert("uid".into(), uid.into());
    if guards.hold(Guard::Version) {
        metadata.insert("resourceVersion".into(), version.into());
    }
    metadata.extend(annotations.map(|annotations| ("annotations".to_owned(), annotations)));
    Value::Object(metadata)
}
