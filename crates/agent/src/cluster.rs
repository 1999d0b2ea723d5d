//! What Kubernetes has of the pool: the StatefulSet, its pods, and the record.
//!
//! Three watches keep it up to date, so that nothing is asked at rest. What was seen last stays while the API server
//! does not answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use stead_pool::{HostName, InvalidName, Record, Wanted, config_map, ordinal};
use tokio::sync::watch;
use tracing::{debug, warn};

use crate::settings::Settings;

/// After how many seconds a watch is begun anew.
const WATCH: u32 = 290;

/// How long a request may take.
const LIMIT: Duration = Duration::from_secs(5);

/// What was seen last.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    /// The StatefulSet; none if it has not been seen, or is not there.
    pub(crate) set: Option<Set>,
    /// The pods that the StatefulSet has made, by ordinal; none if they have not been listed yet.
    pub(crate) pods: Option<BTreeMap<u32, PodSeen>>,
    /// The record; none if it has not been looked for yet.
    pub(crate) record: Option<RecordSeen>,
}

/// What is known of the StatefulSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Set {
    /// How many pods are wanted.
    pub(crate) replicas: u32,
    /// The ordinal of the first one.
    pub(crate) start: u32,
    /// Which pods are its own.
    pub(crate) selector: String,
}

/// What is known of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PodSeen {
    /// Its uid.
    pub(crate) uid: String,
    /// Its address; empty while it has none.
    pub(crate) address: String,
}

/// The record, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RecordSeen {
    /// There is none yet.
    Absent,
    /// It is there.
    There {
        /// What it says.
        record: Record,
        /// Its revision.
        revision: String,
    },
    /// It is there and cannot be read. It is never written over: somebody has to look.
    Unreadable(String),
}

impl Seen {
    /// The record; an empty one if there is none.
    pub(crate) fn record(&self) -> Option<Record> {
        match self.record.as_ref()? {
            RecordSeen::Absent => Some(Record::default()),
            RecordSeen::There { record, .. } => Some(record.clone()),
            RecordSeen::Unreadable(_) => None,
        }
    }
}

/// Kubernetes, as far as this pool is concerned.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    settings: Arc<Settings>,
    pool: Wanted,
    seen: watch::Sender<Seen>,
}

/// A record that was not written.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// Somebody else wrote it: what was decided was decided on something old.
    Outdated,
    /// Anything else.
    Failed(String),
}

impl Cluster {
    /// Nothing has been seen yet.
    pub(crate) fn new(client: Client, settings: Arc<Settings>) -> Result<Cluster, InvalidName> {
        let pool = settings.wanted(0, 0)?;
        Ok(Cluster { client, settings, pool, seen: watch::Sender::default() })
    }

    /// The name by which the other peers know a pod.
    pub(crate) fn host(&self, ordinal: u32) -> HostName {
        self.pool.host(ordinal)
    }

    /// What was seen last, and each change of it.
    pub(crate) fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// What is wanted, if the StatefulSet has been seen.
    pub(crate) fn wanted(&self) -> Option<Wanted> {
        let seen = self.seen.borrow();
        Some(self.wanted_by(seen.set.as_ref()?))
    }

    fn wanted_by(&self, set: &Set) -> Wanted {
        let mut wanted = self.pool.clone();
        (wanted.replicas, wanted.start) = (set.replicas, set.start);
        wanted
    }

    /// Takes this for what Kubernetes has.
    #[cfg(test)]
    pub(crate) fn pretend(&self, seen: Seen) {
        self.seen.send_replace(seen);
    }

    /// Keeps it up to date, for as long as it is polled.
    pub(crate) async fn keep(&self) {
        tokio::join!(self.keep_set(), self.keep_record(), self.keep_pods());
    }

    fn api(&self, api_version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        Api::namespaced_with(self.client.clone(), &self.settings.namespace, &resource)
    }

    fn learn(&self, change: impl FnOnce(&mut Seen)) {
        self.seen.send_if_modified(|seen| {
            let before = seen.clone();
            change(seen);
            *seen != before
        });
    }

    async fn keep_set(&self) {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.settings.pool));
        let api = self.api("apps/v1", "StatefulSet", "statefulsets");
        follow(
            api,
            config,
            |object| set(&object.data["spec"]),
            |sets| {
                let set = sets.values().next().cloned();
                self.learn(|seen| seen.set = set);
            },
        )
        .await;
    }

    async fn keep_record(&self) {
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.settings.record()));
        let api = self.api("v1", "ConfigMap", "configmaps");
        follow(
            api,
            config,
            |object| read_record(&object.data["data"], object.resource_version()),
            |records| {
                self.learn_record(records.values().next().cloned().unwrap_or(RecordSeen::Absent));
            },
        )
        .await;
    }

    /// The watch may still tell what our own write has changed: an older revision is not news.
    fn learn_record(&self, record: RecordSeen) {
        self.learn(|seen| {
            let older = match (&seen.record, &record) {
                (Some(RecordSeen::There { revision: had, .. }), RecordSeen::There { revision: new, .. }) => {
                    matches!((had.parse::<u64>(), new.parse::<u64>()), (Ok(had), Ok(new)) if new < had)
                }
                _ => false,
            };
            if !older {
                seen.record = Some(record);
            }
        });
    }

    async fn keep_pods(&self) {
        let mut seen = self.seen();
        loop {
            let selector = match seen.wait_for(|seen| seen.set.is_some()).await {
                Ok(seen) => seen.set.as_ref().map(|set| set.selector.clone()).unwrap_or_default(),
                Err(_) => return,
            };
            let config = watcher::Config::default().labels(&selector);
            let pods = follow(self.api("v1", "Pod", "pods"), config, pod, |pods| {
                let ours =
                    pods.iter().filter_map(|(name, pod)| Some((ordinal(&self.settings.pool, name)?, pod.clone())));
                let ours = ours.collect();
                self.learn(|seen| seen.pods = Some(ours));
            });
            let mut changes = self.seen();
            let other = changes.wait_for(|seen| seen.set.as_ref().is_some_and(|set| set.selector != selector));
            tokio::select! {
                () = pods => {}
                _ = other => {}
            }
        }
    }

    /// Writes the record, if it still is the one that was decided on.
    pub(crate) async fn write_record(
        &self,
        record: &Record,
        start: u32,
        decided_on: Option<&RecordSeen>,
    ) -> Result<(), NotWritten> {
        let (method, path, object) = write(&self.settings, record, start, decided_on)?;
        match self.send(method, &path, &object).await {
            Ok(written) => {
                let revision = written["metadata"]["resourceVersion"].as_str().map(str::to_owned);
                self.learn_record(read_record(&written["data"], revision));
                Ok(())
            }
            Err(Refusal { code: 409 | 404, .. }) => Err(NotWritten::Outdated),
            Err(refusal) => Err(NotWritten::Failed(refusal.message)),
        }
    }

    /// What is wanted, asked now.
    pub(crate) async fn ask_wanted(&self) -> Option<Wanted> {
        let (pool, namespace) = (&self.settings.pool, &self.settings.namespace);
        let path = format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/{pool}");
        let object = self.send("GET", &path, &Value::Null).await.ok()?;
        Some(self.wanted_by(&set(&object["spec"])))
    }

    /// Makes an event.
    pub(crate) async fn event(&self, event: &Value) -> Result<(), String> {
        let path = format!("/api/v1/namespaces/{}/events", self.settings.namespace);
        self.send("POST", &path, event).await.map(drop).map_err(|refusal| refusal.message)
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Result<Value, Refusal> {
        let unanswered = |message: String| Refusal { code: 0, message };
        let (query, body) = match body {
            Value::Null => ("", Vec::new()),
            body => ("?fieldManager=stead", body.to_string().into_bytes()),
        };
        let request = http::Request::builder()
            .method(method)
            .uri(format!("{path}{query}"))
            .header("content-type", "application/json")
            .header("accept", "application/json")
            .body(body)
            .map_err(|e| unanswered(e.to_string()))?;
        match tokio::time::timeout(LIMIT, self.client.request(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(kube::Error::Api(status))) => Err(Refusal { code: status.code, message: status.message.clone() }),
            Ok(Err(error)) => Err(unanswered(error.to_string())),
            Err(_) => Err(unanswered(format!("no answer within {} s", LIMIT.as_secs()))),
        }
    }
}

struct Refusal {
    /// Zero if there was no answer.
    code: u16,
    message: String,
}

/// Follows the objects of a watch, of which `read` keeps what matters; tells all of them after each change.
async fn follow<T>(
    api: Api<DynamicObject>,
    config: watcher::Config,
    read: impl Fn(&DynamicObject) -> T,
    mut tell: impl FnMut(&BTreeMap<String, T>),
) {
    let mut events = std::pin::pin!(watcher(api, config.timeout(WATCH)).default_backoff());
    let (mut objects, mut listed) = (BTreeMap::new(), BTreeMap::new());
    let mut failing = false;
    while let Some(event) = events.next().await {
        match event {
            Err(error) => {
                if std::mem::replace(&mut failing, true) {
                    debug!("watching: {error}");
                } else {
                    warn!("watching: {error}");
                }
                continue;
            }
            Ok(watcher::Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                listed.insert(object.name_any(), read(&object));
                continue;
            }
            Ok(watcher::Event::InitDone) => objects = std::mem::take(&mut listed),
            Ok(watcher::Event::Apply(object)) => {
                objects.insert(object.name_any(), read(&object));
            }
            Ok(watcher::Event::Delete(object)) => {
                objects.remove(&object.name_any());
            }
        }
        failing = false;
        tell(&objects);
    }
}

/// The request that writes a record in place of the one that was decided on: method, path and body. What has come since
/// then is not written over, so the revision is never a newer one.
fn write(
    settings: &Settings,
    record: &Record,
    start: u32,
    decided_on: Option<&RecordSeen>,
) -> Result<(&'static str, String, Value), NotWritten> {
    let (name, namespace) = (settings.record(), &settings.namespace);
    let all = format!("/api/v1/namespaces/{namespace}/configmaps");
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, "labels": config_map::labels(&settings.pool)},
        "data": config_map::data(record, start),
    });
    match decided_on {
        Some(RecordSeen::Absent) => Ok(("POST", all, object)),
        Some(RecordSeen::There { revision, .. }) => {
            object["metadata"]["resourceVersion"] = revision.as_str().into();
            Ok(("PUT", format!("{all}/{name}"), object))
        }
        Some(RecordSeen::Unreadable(_)) | None => Err(NotWritten::Failed("the record has not been read".into())),
    }
}

fn set(spec: &Value) -> Set {
    let number = |value: &Value, default| value.as_u64().and_then(|n| n.try_into().ok()).unwrap_or(default);
    let labels = spec["selector"]["matchLabels"].as_object();
    let selector: Vec<String> =
        labels.into_iter().flatten().filter_map(|(k, v)| Some(format!("{k}={}", v.as_str()?))).collect();
    Set {
        replicas: number(&spec["replicas"], 1),
        start: number(&spec["ordinals"]["start"], 0),
        selector: selector.join(","),
    }
}

fn pod(object: &DynamicObject) -> PodSeen {
    let address = object.data["status"]["podIP"].as_str().unwrap_or_default();
    PodSeen { uid: object.uid().unwrap_or_default(), address: address.to_owned() }
}

fn read_record(data: &Value, revision: Option<String>) -> RecordSeen {
    let data: BTreeMap<String, String> = serde_json::from_value(data.clone()).unwrap_or_default();
    match config_map::record(&data) {
        Ok(record) => RecordSeen::There { record, revision: revision.unwrap_or_default() },
        Err(error) => RecordSeen::Unreadable(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read_with_kubernetes_defaults() {
        for (spec, replicas, start, selector) in [
            (json!({}), 1, 0, ""),
            (json!({"replicas": 0}), 0, 0, ""),
            (
                json!({"replicas": 3, "ordinals": {"start": 5}, "selector": {"matchLabels": {"b": "2", "a": "1"}}}),
                3,
                5,
                "a=1,b=2",
            ),
        ] {
            let found = set(&spec);
            assert_eq!((found.replicas, found.start, found.selector.as_str()), (replicas, start, selector), "{spec}");
        }
    }

    #[test]
    fn a_record_is_written_in_place_of_the_one_that_was_decided_on() {
        let there = RecordSeen::There { record: Record::default(), revision: "7".into() };
        let (all, one) = ("/api/v1/namespaces/n/configmaps", "/api/v1/namespaces/n/configmaps/g-pool");
        for (decided_on, found) in [
            (Some(RecordSeen::Absent), Some(("POST", all, Value::Null))),
            (Some(there), Some(("PUT", one, json!("7")))),
            (Some(RecordSeen::Unreadable("no JSON".into())), None),
            (None, None),
        ] {
            let request = write(&crate::stand_in::settings(), &Record::default(), 0, decided_on.as_ref()).ok();
            let request = request
                .as_ref()
                .map(|(method, path, body)| (*method, path.as_str(), body["metadata"]["resourceVersion"].clone()));
            assert_eq!(request, found, "{decided_on:?}");
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_is_told_from_none() {
        let whole = json!(config_map::data(&Record::default(), 0));
        assert_eq!(
            read_record(&whole, Some("7".into())),
            RecordSeen::There { record: Record::default(), revision: "7".into() }
        );
        for data in [Value::Null, json!({}), json!({"record.json": "{"})] {
            assert!(matches!(read_record(&data, None), RecordSeen::Unreadable(_)), "{data}");
        }
    }
}
