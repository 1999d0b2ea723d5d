//! The resources of the OpenStack operators, whatever their kinds: the server says which it has.

use std::collections::BTreeSet;

use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResource, APIResourceList};
use serde_json::Value;
use stead_client::{ApiPath, ApiRequest, Client, Error};
use stead_model::{ALL_OPENSTACK_KINDS, is_openstack, is_openstack_intermediate};

use crate::{CONCURRENCY, Live};

/// A kind that the server has.
struct Discovered {
    api_version: String,
    kind: String,
    plural: String,
}

/// Adds the objects of all kinds of the OpenStack operators that were not read yet, from one namespace.
///
/// They say who uses a Topology. What cannot be read is one warning: the other answers do not depend on it.
pub async fn add_openstack(client: &Client, namespace: &str, live: &mut Live) {
    add_openstack_of(client, Some(namespace), live).await;
}

/// The same from one namespace, or from all.
async fn add_openstack_of(client: &Client, namespace: Option<&str>, live: &mut Live) {
    let (mut found, mut failed) = discover(client).await;
    found.retain(|kind| !live.kinds.contains(&kind.kind));
    let lists: Vec<_> = futures::stream::iter(found)
        .map(|kind| async move {
            let listed = list(client, &kind, namespace).await;
            (kind, listed)
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    for (kind, listed) in lists {
        match listed {
            Ok(items) => {
                live.items.extend(items);
                live.kinds.insert(kind.kind);
            }
            // Its definition was deleted in the meantime.
            Err(error) if error.is_not_found() => {}
            Err(_) => failed.push(kind.plural),
        }
    }
    if failed.is_empty() {
        live.kinds.insert(ALL_OPENSTACK_KINDS.to_owned());
    } else {
        let consequence = "other users of a Topology are not shown, and finalizers are not checked";
        live.warnings.push(format!("cannot list {}: {consequence}", failed.join(", ")));
    }
}

/// The objects of all kinds of the OpenStack operators from all namespaces, without the kinds in `known`.
pub async fn openstack(client: &Client, known: BTreeSet<String>) -> Live {
    let mut live = Live { kinds: known, ..Live::default() };
    add_openstack_of(client, None, &mut live).await;
    live
}

/// The kinds of the OpenStack operators, and what could not be discovered.
async fn discover(client: &Client) -> (Vec<Discovered>, Vec<String>) {
    let Ok(groups) = client.send::<APIGroupList>(ApiRequest::get("/apis")).await else {
        return (Vec::new(), vec!["API groups".to_owned()]);
    };
    let preferred = groups.groups.into_iter().filter_map(|group| {
        let version = group.preferred_version.or_else(|| group.versions.into_iter().next())?;
        Some(version.group_version)
    });
    let wanted = preferred.filter(|version| is_openstack(version) || version.starts_with("rabbitmq.com/"));
    let answers: Vec<_> = futures::stream::iter(wanted)
        .map(|version| async move {
            let path = format!("/apis/{version}");
            (client.send::<APIResourceList>(ApiRequest::get(path)).await, version)
        })
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (answer, version) in answers {
        match answer {
            Ok(list) => found.extend(list.resources.into_iter().filter_map(|resource| listable(&version, resource))),
            Err(error) if error.is_not_found() => {}
            Err(_) => failed.push(version),
        }
    }
    (found, failed)
}

/// A resource as a kind to list; none for a subresource, or one without a namespace or a list.
fn listable(api_version: &str, resource: APIResource) -> Option<Discovered> {
    let listable = resource.namespaced && resource.verbs.iter().any(|verb| verb == "list");
    let known = is_openstack(api_version) || is_openstack_intermediate(api_version, &resource.kind);
    let kind = Discovered { api_version: api_version.to_owned(), kind: resource.kind, plural: resource.name };
    (listable && known && !kind.plural.contains('/')).then_some(kind)
}

async fn list(client: &Client, kind: &Discovered, namespace: Option<&str>) -> Result<Vec<Value>, Error> {
    let path = ApiPath { api_version: &kind.api_version, plural: &kind.plural, namespaced: true };
    let mut list = client.list(ApiRequest::list(path.collection(namespace))).await?;
    for item in list.items.iter_mut().filter_map(Value::as_object_mut) {
        item.insert("apiVersion".into(), kind.api_version.as_str().into());
        item.insert("kind".into(), kind.kind.as_str().into());
    }
    Ok(list.items)
}
