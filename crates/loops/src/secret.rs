//! A Secret as the store has it: with digests in place of its values.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::json;
use stead_model::{ModelError, ObjectKey, ParsedJson, Typed, parse_json};

/// A Secret whose values are replaced by their digests ([`crate::trim`]).
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct DigestedSecret {
    pub(crate) metadata: ObjectMeta,
    pub(crate) data: Option<BTreeMap<String, String>>,
}

impl DigestedSecret {
    /// Whether it has a key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.data.as_ref().is_some_and(|data| data.contains_key(key))
    }

    /// All digests, as part of another digest.
    pub(crate) fn digests(&self) -> String {
        json!(self.data).to_string()
    }

    /// The digest of one value, as part of another digest.
    pub(crate) fn digest(&self, key: &str) -> String {
        json!(self.data.as_ref().and_then(|data| data.get(key))).to_string()
    }
}

impl Typed for DigestedSecret {
    const KIND: &'static str = "Secret";

    fn from_json(key: &ObjectKey, json: ParsedJson<'_>) -> Result<DigestedSecret, ModelError> {
        parse_json(key, json)
    }

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
