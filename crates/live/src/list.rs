//! Lists one kind.

use serde_json::Value;
use stead_client::{ApiRequest, Client, List};

use crate::error::ReadError;
use crate::resource::Resource;

/// The answer to a list.
pub(crate) enum Listed {
    /// The objects, and the revision of the cluster.
    Items(List),
    /// The cluster does not have the kind.
    Unknown,
    /// The user may not list it.
    Forbidden,
}

/// Lists a kind as of a revision; as of now without one, or if the server no longer has it.
pub(crate) async fn list(client: &Client, resource: &Resource, revision: Option<&str>) -> Result<Listed, ReadError> {
    let mut request = ApiRequest::list(resource.path());
    if let Some(revision) = revision {
        request = request.at_revision(revision);
    }
    match client.list(request).await {
        Ok(mut list) => {
            list.items.iter_mut().for_each(|object| add_type(object, resource));
            Ok(Listed::Items(list))
        }
        Err(error) if error.is_not_found() => Ok(Listed::Unknown),
        Err(error) if error.is_forbidden() => forbidden(client, resource, error.message()).await,
        Err(source) => Err(ReadError::Failed { plural: resource.api.plural, source }),
    }
}

/// Objects of a list do not have `apiVersion` and `kind`.
fn add_type(object: &mut Value, resource: &Resource) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), resource.api.api_version.into());
        fields.insert("kind".into(), resource.kind.into());
    }
}

/// The server checks permissions first: a kind that may not be listed may not even exist.
async fn forbidden(client: &Client, resource: &Resource, message: String) -> Result<Listed, ReadError> {
    let api = resource.api;
    if resource.required {
        let scope = if api.namespaced { " in all namespaces" } else { "" };
        return Err(ReadError::Forbidden { plural: api.plural, scope, message });
    }
    // Without an answer it is reported as forbidden, so that the warning says what is missing.
    let is_builtin = !api.api_version.contains('/');
    let known = is_builtin || client.has_kind(api.api_version, api.plural).await.unwrap_or(true);
    Ok(if known { Listed::Forbidden } else { Listed::Unknown })
}
