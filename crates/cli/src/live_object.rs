//! What all objects in a cluster have in common.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use stead_model::{Condition, ConditionedStatus, ModelError, parse};

/// The metadata and the conditions of an object, whatever its kind.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LiveObject {
    pub(crate) metadata: ObjectMeta,
    status: ConditionedStatus,
}

impl LiveObject {
    /// Reads an object; `what` names it in an error.
    pub(crate) fn read(what: impl ToString, object: &Value) -> Result<LiveObject, ModelError> {
        parse(what, object)
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// Its namespace; empty for a cluster-scoped object.
    pub(crate) fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// A condition that has this status.
    pub(crate) fn condition(&self, kind: &str, status: &str) -> Option<&Condition> {
        self.conditions(status).find(|condition| condition.r#type == kind)
    }

    /// The conditions that have this status.
    pub(crate) fn conditions(&self, status: &str) -> impl Iterator<Item = &Condition> {
        self.status.conditions.iter().filter(move |condition| condition.status == status)
    }
}
