//! A verdict as data: the form in which verdicts are recorded and compared.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::verdict::Verdict;

/// What is said of one case. Fields that have nothing to say are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    /// The nodes that pass every filter, sorted; null where there are none, as the recordings have it.
    #[serde(with = "null_when_empty")]
    pub feasible: Vec<String>,
    /// For each other node the reasons, in kube-scheduler's order.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub rejected: BTreeMap<String, Vec<String>>,
    /// For each rejected node whether preemption might help.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub codes: BTreeMap<String, String>,
    /// For each node that fits, the plugins' scores.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub scores: BTreeMap<String, BTreeMap<String, i64>>,
    /// Their sums.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub totals: BTreeMap<String, i64>,
    /// The nodes with the highest.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub best: Vec<String>,
    /// Where nothing fits, the FailedScheduling message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The node that preemption would clear.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominated: Option<String>,
    /// All the nodes that are as good for that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nominees: Vec<String>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&Verdict> for Answer {
    fn from(v: &Verdict) -> Answer {
        let nominees: Vec<String> = v.nominees.iter().map(|n| n.node.to_string()).collect();
        Answer {
            feasible: v.feasible().map(ToString::to_string).collect(),
            rejected: v
                .rejected
                .iter()
                .map(|(node, r)| (node.to_string(), r.reasons.iter().map(ToString::to_string).collect()))
                .collect(),
            codes: v.rejected.iter().map(|(node, r)| (node.to_string(), r.code.as_str().into())).collect(),
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
