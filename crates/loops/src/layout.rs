//! The layouts of a Glance API, and the names that follow from them.

use serde_json::Value;

use crate::object::{Texts, name, pairs, text};

/// The service's name: it stands in labels, in the names of Services and of the database.
pub(crate) const SERVICE: &str = "glance";
/// The port that Glance is reached at.
pub(crate) const PORT: u16 = 9292;
/// The user and group that Glance's image runs as.
pub(crate) const GLANCE_ID: i64 = 42415;
/// The annotation of the API whose endpoints stand in Keystone's catalogue.
pub(crate) const KEYSTONE_ENDPOINT: &str = "keystoneEndpoint";
/// The label that carries an API's name.
pub(crate) const API_NAME: &str = "api-name";

/// What a Glance API is for: a split API is two of them, one for each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ApiType {
    External,
    Internal,
    Single,
    Edge,
}

impl ApiType {
    /// The parts that an API of a layout consists of.
    pub(crate) fn parts(layout: &str) -> &'static [ApiType] {
        match layout {
            "single" => &[ApiType::Single],
            "edge" => &[ApiType::Edge],
            _ => &[ApiType::External, ApiType::Internal],
        }
    }

    /// As a GlanceAPI has it in its spec.
    pub(crate) fn of(api: &Value) -> ApiType {
        match text(api, "/spec/apiType") {
            "external" => ApiType::External,
            "internal" => ApiType::Internal,
            "edge" => ApiType::Edge,
            _ => ApiType::Single,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            ApiType::External => "external",
            ApiType::Internal => "internal",
            ApiType::Single => "single",
            ApiType::Edge => "edge",
        }
    }

    /// The sides that it is reached from.
    pub(crate) fn endpoints(self) -> &'static [&'static str] {
        match self {
            ApiType::External => &["public"],
            ApiType::Internal | ApiType::Edge => &["internal"],
            ApiType::Single => &["internal", "public"],
        }
    }
}

/// The name of a StatefulSet, and of the headless Service that names its pods.
pub(crate) fn set_name(api: &Value) -> String {
    match ApiType::of(api) {
        ApiType::Single => name(api).to_owned(),
        _ => format!("{}-api", name(api)),
    }
}

/// The name of an API among those of its Glance.
pub(crate) fn api_name(api: &Value) -> &str {
    api["metadata"]["labels"][API_NAME].as_str().unwrap_or_default()
}

/// The labels of all that belongs to a GlanceAPI, by which its pods are selected.
pub(crate) fn labels(api: &Value) -> Texts {
    let part = format!("{SERVICE}-{}-{}", api_name(api), ApiType::of(api).word());
    pairs([("service", SERVICE), ("component", "glance-api"), ("glanceAPI", &part), ("owner", name(api))])
}
