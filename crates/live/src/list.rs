//! One kind's list, page by page.

use kube::Client;
use kube::api::{ListParams, VersionMatch};
use kube::core::Request;
use serde_json::Value;

use crate::error::ReadError;
use crate::resource::Resource;

/// So many objects are asked for at a time.
const PAGE: u32 = 500;

/// So often a list is begun anew because its pages had become too old.
const RESTARTS: usize = 3;

/// What came of asking for a list.
pub(crate) enum Listed {
    /// The objects, and the revision that they are of.
    Items { items: Vec<Value>, revision: Option<String> },
    /// The cluster does not know the kind.
    Unknown,
    /// It may not be listed.
    Forbidden,
}

impl Listed {
    /// The revision of the cluster that was seen.
    pub(crate) fn moment(&self) -> Option<&str> {
        match self {
            Listed::Items { revision, .. } => revision.as_deref(),
            _ => None,
        }
    }
}

/// Lists a kind as it was at a moment; as it is now where none is given, or where the server has that one no more.
pub(crate) async fn list(client: &Client, resource: &Resource, moment: Option<&str>) -> Result<Listed, ReadError> {
    let mut moment = moment;
    for _ in 0..RESTARTS {
        match pages(client, resource, moment).await {
            // Expired; or a revision that this kind's store has never had: kinds may be kept in stores of their own.
            Err(kube::Error::Api(status))
                if matches!(status.code, 410 | 504) || (status.code == 400 && moment.is_some()) =>
            {
                moment = None;
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Listed::Unknown),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                return forbidden(client, resource, status.message).await;
            }
            Err(source) => return Err(ReadError::Failed { plural: resource.plural.clone(), source }),
            Ok(listed) => return Ok(listed),
        }
    }
    // The last try gives its own error, if it still has one.
    let failed = |source| ReadError::Failed { plural: resource.plural.clone(), source };
    pages(client, resource, None).await.map_err(failed)
}

async fn pages(client: &Client, resource: &Resource, moment: Option<&str>) -> Result<Listed, kube::Error> {
    let mut params = ListParams::default().limit(PAGE);
    if let Some(moment) = moment {
        params.resource_version = Some(moment.to_owned());
        params.version_match = Some(VersionMatch::Exact);
    }
    let request = Request::new(resource.path());
    let mut items: Vec<Value> = Vec::new();
    loop {
        let page = request.list(&params).map_err(kube::Error::BuildRequest)?;
        let mut page: Value = client.request(page).await?;
        let revision = page["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let next = page["metadata"]["continue"].as_str().filter(|c| !c.is_empty()).map(str::to_owned);
        if let Value::Array(objects) = page["items"].take() {
            items.extend(objects.into_iter().map(|o| named(o, resource)));
        }
        match next {
            // A page that goes on carries the moment in itself.
            Some(next) => params = ListParams::default().limit(PAGE).continue_token(&next),
            None => return Ok(Listed::Items { items, revision }),
        }
    }
}

/// A list's items leave out what they are.
fn named(mut object: Value, resource: &Resource) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), resource.api_version.into());
        fields.insert("kind".into(), resource.kind.into());
    }
    object
}

/// Rights are looked at before kinds are: what may not be listed may not even exist.
async fn forbidden(client: &Client, resource: &Resource, message: String) -> Result<Listed, ReadError> {
    if resource.needed {
        let scope = if resource.namespaced { " in all namespaces" } else { "" };
        return Err(ReadError::Forbidden { plural: resource.plural.clone(), scope, message });
    }
    let known = match client.list_api_group_resources(resource.api_version).await {
        _ if !resource.api_version.contains('/') => true,
        Ok(resources) => resources.resources.iter().any(|r| r.name == resource.plural),
        Err(kube::Error::Api(status)) => status.code != 404,
        Err(_) => true,
    };
    Ok(if known { Listed::Forbidden } else { Listed::Unknown })
}
