//! Watches, one for each kind (and namespace, if not all are watched), that keep the index up to date.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::Value;
use stead_loops::Watched;
use tracing::{debug, warn};

use crate::client::chain;
use crate::shared::Shared;

/// How often a kind is looked for that is not there yet.
const LOOK_FOR: Duration = Duration::from_secs(1);

/// Keeps one kind up to date, for as long as it is polled. A watch that says nothing for `timeout` (the server's
/// bookmarks count as something) is begun anew, as is one that ends.
pub(crate) async fn keep(
    client: Client,
    watched: &'static Watched,
    scope: Option<String>,
    timeout: Duration,
    shared: Arc<Shared>,
) {
    let scope = scope.as_deref();
    while !shared.is_defined(watched.kind) {
        tokio::time::sleep(LOOK_FOR).await;
    }
    let (group, version) = watched.api_version.rsplit_once('/').unwrap_or(("", watched.api_version));
    let gvk = GroupVersionKind::gvk(group, version, watched.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, watched.plural);
    let api: Api<DynamicObject> = match scope {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let seconds = timeout.as_secs().clamp(1, 3600).try_into().unwrap_or(290);
    let mut config = watcher::Config::default().timeout(seconds);
    if !watched.selector.is_empty() {
        config = config.labels(watched.selector);
    }
    let mut events = std::pin::pin!(watcher(api, config).default_backoff());
    let mut listed = Vec::new();
    let mut failing = false;
    while let Some(event) = events.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                report(watched, scope, &error, &mut failing, &shared);
                continue;
            }
        };
        failing = false;
        match event {
            watcher::Event::Init => listed.clear(),
            watcher::Event::InitApply(object) => listed.extend(value(watched, object)),
            watcher::Event::InitDone => {
                let objects = std::mem::take(&mut listed);
                debug!(kind = watched.kind, objects = objects.len(), "listed");
                shared.learn(|index| index.reset(watched.kind, scope, objects));
            }
            watcher::Event::Apply(object) => {
                if let Some(object) = value(watched, object) {
                    shared.learn(|index| index.put(object));
                }
            }
            watcher::Event::Delete(object) => {
                if let Some(object) = value(watched, object) {
                    shared.learn(|index| index.left(&object));
                }
            }
        }
    }
}

/// A watch that fails is said once, until it works again; a kind that may be unknown and is, is no failure.
fn report(watched: &Watched, scope: Option<&str>, error: &watcher::Error, failing: &mut bool, shared: &Shared) {
    let unknown = matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404);
    if unknown && watched.optional {
        shared.learn(|index| index.reset(watched.kind, scope, Vec::new()));
    } else if std::mem::replace(failing, true) {
        debug!(kind = watched.kind, "watching: {}", chain(error));
    } else {
        warn!(kind = watched.kind, "watching: {}", chain(error));
    }
}

/// An object as data, trimmed at once: no secret's value waits for the rest of its list. Items of lists do not say what
/// they are.
fn value(watched: &Watched, object: DynamicObject) -> Option<Value> {
    let mut value = serde_json::to_value(object).ok()?;
    value["apiVersion"] = watched.api_version.into();
    value["kind"] = watched.kind.into();
    Some(stead_loops::trim(value))
}
