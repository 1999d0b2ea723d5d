//! Watches the cluster: every version of every object of the kinds that are recorded.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use jiff::Timestamp;
use kube::Client;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::Request;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::recording::key_of;

/// The paths of what is recorded.
pub(crate) const PATHS: [&str; 20] = [
    "/api/v1/namespaces",
    "/api/v1/nodes",
    "/api/v1/pods",
    "/api/v1/persistentvolumes",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/events",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/controllerrevisions",
    "/apis/batch/v1/jobs",
    "/apis/batch/v1/cronjobs",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
];

/// The paths of what rehearsals check besides.
pub(crate) const ALSO_CHECKED: [&str; 3] =
    ["/api/v1/services", "/apis/discovery.k8s.io/v1/endpointslices", "/api/v1/configmaps"];

/// A version of an object.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    /// When it was seen.
    pub(crate) at: Timestamp,
    /// The version of the API server, which all objects share.
    pub(crate) version: u64,
    /// The object.
    pub(crate) object: Value,
    /// Whether it was removed.
    pub(crate) removed: bool,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) seen: Vec<Seen>,
    /// The objects that exist now, by key.
    pub(crate) objects: BTreeMap<String, Value>,
    /// Why the log is incomplete.
    pub(crate) failure: Option<String>,
}

impl Log {
    fn add(&mut self, mut object: Value, removed: bool) {
        strip(&mut object);
        let version = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
        let key = key_of(&object);
        match removed {
            true => drop(self.objects.remove(&key)),
            false => drop(self.objects.insert(key, object.clone())),
        }
        self.seen.push(Seen { at: Timestamp::now(), version: version.unwrap_or_default(), object, removed });
    }
}

/// Removes what is large and not compared, and fields without a value, which a merge patch cannot express. The history of
/// the fields of claims says when their node was selected.
fn strip(object: &mut Value) {
    if object["kind"] != "PersistentVolumeClaim"
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("managedFields");
    }
    remove_nulls(object);
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Watches a cluster until it is dropped.
pub(crate) struct Watches {
    log: Arc<Mutex<Log>>,
    /// Aborted on drop.
    _tasks: JoinSet<()>,
}

impl Watches {
    /// Starts to watch. When it returns, all objects that exist are in the log.
    pub(crate) async fn start(client: &Client, paths: &[&'static str]) -> Result<Watches> {
        let (log, mut tasks) = (Arc::new(Mutex::new(Log::default())), JoinSet::new());
        for path in paths.iter().copied() {
            let version = list(client, path, &log).await.with_context(|| format!("listing {path}"))?;
            let (client, log) = (client.clone(), log.clone());
            tasks.spawn(async move {
                let result = watch(&client, path, version, &log).await;
                let reason = result.err().map_or_else(|| "ended".to_owned(), |error| format!("{error:#}"));
                locked(&log).failure.get_or_insert(format!("watching {path}: {reason}"));
            });
        }
        Ok(Watches { log, _tasks: tasks })
    }

    /// What was seen so far.
    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        locked(&self.log)
    }
}

fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn list(client: &Client, path: &str, log: &Mutex<Log>) -> Result<String> {
    let request = Request::new(path).list(&ListParams::default())?;
    let answer: Value = client.request(request).await?;
    let kind = answer["kind"].as_str().unwrap_or_default();
    let kind = kind.strip_suffix("List").unwrap_or(kind);
    for item in answer["items"].as_array().into_iter().flatten() {
        let mut object = json!({ "apiVersion": answer["apiVersion"], "kind": kind });
        if let (Some(object), Some(item)) = (object.as_object_mut(), item.as_object()) {
            object.extend(item.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
        locked(log).add(object, false);
    }
    Ok(answer["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
}

/// Follows the changes since a version, for ever.
async fn watch(client: &Client, path: &str, mut version: String, log: &Mutex<Log>) -> Result<()> {
    loop {
        let request = Request::new(path).watch(&WatchParams::default().timeout(290), &version)?;
        let mut events = std::pin::pin!(client.request_events::<Value>(request).await?);
        while let Some(event) = events.try_next().await? {
            let (object, removed) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) => bail!("{status:?}"),
            };
            if let Some(seen) = object["metadata"]["resourceVersion"].as_str() {
                seen.clone_into(&mut version);
            }
            locked(log).add(object, removed);
        }
    }
}
