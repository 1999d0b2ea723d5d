//! A verdict as data, in the format of the recorded verdicts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::status::RejectionReason;
use crate::verdict::Verdict;

/// The verdict about one case. Empty fields are omitted.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlacementAnswer {
    /// The nodes that pass every filter, sorted; null if there are none, as in the recordings.
    #[serde(with = "null_when_empty")]
    pub feasible: Vec<String>,
    /// The reasons for each rejected node, in kube-scheduler's order.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected: BTreeMap<String, Vec<String>>,
    /// For each rejected node, whether preemption could help.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub codes: BTreeMap<String, String>,
    /// The plugins' scores for each feasible node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, BTreeMap<String, i64>>,
    /// The sum of the scores for each feasible node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub totals: BTreeMap<String, i64>,
    /// The nodes with the highest sum.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub best: Vec<String>,
    /// The FailedScheduling message, if no node is feasible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The node that preemption nominates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominated: Option<String>,
    /// All nodes that preemption could equally well nominate.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nominees: Vec<String>,
    /// The error that ended the attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&Verdict> for PlacementAnswer {
    fn from(v: &Verdict) -> PlacementAnswer {
        // Nodes that kube-scheduler does not mention have no entry.
        let rejected = || v.rejected.iter().filter(|(_, r)| r.reasons.iter().all(RejectionReason::is_reported));
        let nominees: Vec<String> = v.nominees.iter().map(|n| n.node.to_string()).collect();
        PlacementAnswer {
            feasible: v.feasible().map(ToString::to_string).collect(),
            rejected: rejected()
                .map(|(node, r)| (node.to_string(), r.reasons.iter().map(ToString::to_string).collect()))
                .collect(),
            codes: rejected().map(|(node, r)| (node.to_string(), r.code.as_str().into())).collect(),
            scores: v
                .scores
                .iter()
                .map(|(node, s)| (node.to_string(), s.by_plugin.iter().map(|(p, n)| (p.name().into(), *n)).collect()))
                .collect(),
            totals: v.scores.iter().map(|(node, s)| (node.to_string(), s.total)).collect(),
            best: v.best.iter().map(ToString::to_string).collect(),
            message: v.message.clone(),
            nominated: nominees.first().cloned(),
            nominees,
            error: v.error.as_ref().map(ToString::to_string),
        }
    }
}

mod null_when_empty {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(list: &Vec<String>, s: S) -> Result<S::Ok, S::Error> {
        (!list.is_empty()).then_some(list).serialize(s)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
        Option::<Vec<String>>::deserialize(d).map(Option::unwrap_or_default)
    }
}
