//! The NodeRecoveries that were read.

use serde::Deserialize;
use serde_json::Value;
use stead_model::{ObjectKey, Objects, parse};

use crate::record::{KIND, NodeRecovery, RecoveryPhase};
use crate::refusal::Refusal;

/// The record that a node's recovery continues with: the one that is not over, otherwise the latest.
pub fn record_of(objects: &Objects, node: &str) -> Option<NodeRecovery> {
    let records = records(objects).filter(|record| record.spec.node.name == node);
    records.max_by_key(|record| (!record.status.phase.is_over(), record.last_step(), record.name().to_owned()))
}

/// Whether a NodeRecovery, readable or not, is of this node.
pub fn is_record_of(record: &Value, node: &str) -> bool {
    RecordSummary::of(record).is_some_and(|record| record.node() == node)
}

/// All records that can be read.
pub(crate) fn records(objects: &Objects) -> impl Iterator<Item = NodeRecovery> {
    objects.raw_of_kind(KIND).filter_map(|(key, value)| parse(key, value).ok())
}

/// The record of this name.
pub(crate) fn record_named(objects: &Objects, name: &str) -> Option<NodeRecovery> {
    let key = ObjectKey::cluster(KIND, name);
    parse(&key, objects.raw(&key)?).ok()
}

/// An error if a record of the node cannot be read: somebody has edited it, or another version of Stead wrote it.
pub(crate) fn check_readable(objects: &Objects, node: &str) -> Result<(), Refusal> {
    for (key, value) in objects.raw_of_kind(KIND).filter(|(_, value)| is_record_of(value, node)) {
        parse::<NodeRecovery>(key, value)
            .map_err(|error| Refusal::UnreadableRecord { name: key.name.clone(), error })?;
    }
    Ok(())
}

/// The part of a record that the limits on concurrent recoveries need. It can be read even if the rest cannot, so that an
/// unreadable record of another node still counts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RecordSummary {
    metadata: Name,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Name {
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    node: SummaryNode,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SummaryNode {
    name: String,
    zone: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: Option<Value>,
}

impl RecordSummary {
    /// The summaries of all records.
    pub(crate) fn all(objects: &Objects) -> impl Iterator<Item = RecordSummary> {
        objects.raw_of_kind(KIND).filter_map(|(_, value)| RecordSummary::of(value))
    }

    fn of(record: &Value) -> Option<RecordSummary> {
        RecordSummary::deserialize(record).ok()
    }

    /// The name of the record.
    pub(crate) fn name(&self) -> &str {
        &self.metadata.name
    }

    /// The name of its node.
    pub(crate) fn node(&self) -> &str {
        &self.spec.node.name
    }

    /// The zone of its node.
    pub(crate) fn zone(&self) -> Option<&str> {
        self.spec.node.zone.as_ref().and_then(Value::as_str)
    }

    /// Its phase; none if it is not known here.
    pub(crate) fn phase(&self) -> Option<RecoveryPhase> {
        self.status
            .phase
            .as_ref()
            .map_or(Some(RecoveryPhase::default()), |phase| RecoveryPhase::deserialize(phase).ok())
    }
}
