//! The layouts of a Glance API, and the names that follow from them.

use stead_model::{EndpointTls, GlanceApi, GlanceApiSpec};

use crate::metadata::{Texts, label, name, texts};
use crate::optional::non_empty;

/// The service's name: part of labels, of the names of Services, and the name of the database.
pub(crate) const SERVICE: &str = "glance";
/// The port of the Glance API.
pub(crate) const PORT: u16 = 9292;
/// The user and group that Glance's image runs as.
pub(crate) const GLANCE_ID: i64 = 42415;
/// The annotation of the API whose endpoints are in Keystone's catalogue.
pub(crate) const KEYSTONE_ENDPOINT: &str = "keystoneEndpoint";
/// The label with an API's name.
pub(crate) const API_NAME: &str = "api-name";

/// Which clients a GlanceAPI serves. A split API is two GlanceAPIs, an internal and an external one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ApiType {
    External,
    Internal,
    Single,
    Edge,
}

/// From where an API is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Internal,
    Public,
}

impl Endpoint {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Endpoint::Internal => "internal",
            Endpoint::Public => "public",
        }
    }

    /// The Secret with the certificate of this endpoint; none for no TLS.
    pub(crate) fn certificate(self, spec: &GlanceApiSpec) -> Option<&str> {
        let EndpointTls { internal, public } = spec.tls.as_ref()?.api.as_ref()?;
        let secret = match self {
            Endpoint::Internal => internal,
            Endpoint::Public => public,
        };
        non_empty(&secret.as_ref()?.secret_name)
    }
}

impl ApiType {
    /// The GlanceAPIs that an API of a layout consists of.
    pub(crate) fn parts(layout: &str) -> &'static [ApiType] {
        match layout {
            "single" => &[ApiType::Single],
            "edge" => &[ApiType::Edge],
            _ => &[ApiType::External, ApiType::Internal],
        }
    }

    /// The type in the spec of a GlanceAPI.
    pub(crate) fn of(api: &GlanceApi) -> ApiType {
        match api.spec.api_type.as_deref() {
            Some("external") => ApiType::External,
            Some("internal") => ApiType::Internal,
            Some("edge") => ApiType::Edge,
            _ => ApiType::Single,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ApiType::External => "external",
            ApiType::Internal => "internal",
            ApiType::Single => "single",
            ApiType::Edge => "edge",
        }
    }

    /// The endpoints that it serves.
    pub(crate) fn endpoints(self) -> &'static [Endpoint] {
        match self {
            ApiType::External => &[Endpoint::Public],
            ApiType::Internal | ApiType::Edge => &[Endpoint::Internal],
            ApiType::Single => &[Endpoint::Internal, Endpoint::Public],
        }
    }
}

/// The name of a StatefulSet, and of the headless Service that names its pods.
pub(crate) fn set_name(api: &GlanceApi) -> String {
    match ApiType::of(api) {
        ApiType::Single => name(&api.metadata).to_owned(),
        _ => format!("{}-api", name(&api.metadata)),
    }
}

/// The name of an API among those of its Glance; empty for a GlanceAPI that was not created by a Glance.
pub(crate) fn api_name(api: &GlanceApi) -> &str {
    label(&api.metadata, API_NAME).unwrap_or_default()
}

/// The labels of everything that belongs to a GlanceAPI, by which its pods are selected.
pub(crate) fn labels(api: &GlanceApi) -> Texts {
    let part = format!("{SERVICE}-{}-{}", api_name(api), ApiType::of(api).name());
    texts([("service", SERVICE), ("component", "glance-api"), ("glanceAPI", &part), ("owner", name(&api.metadata))])
}
