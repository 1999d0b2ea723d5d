//! The pool's objects in Kubernetes: the StatefulSet, its pods, the record, and the Secret with the pool's key.
//!
//! Watches keep them up to date, so that nothing is polled. The last known state is kept while the API server does not
//! answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use stead_client::{ApiPath, ApiRequest, Client, Error, Watch, WatchEvent, WatchOptions};
use stead_model::{ObjectKey, Typed};
use stead_pool::{HostName, InvalidName, PoolSpec, Record, config_map, key_secret, ordinal};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::auth::{Key, Keys};
use crate::settings::Settings;

/// The duration of one watch request.
const WATCH_DURATION: Duration = Duration::from_secs(290);

/// The field manager of the agent's writes.
const FIELD_MANAGER: &str = "stead";

/// The pool's objects, as last read.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PoolObjects {
    /// The StatefulSet; none if it has not been read yet or does not exist.
    pub(crate) set: Option<StatefulSetView>,
    /// The pods of the StatefulSet, by ordinal; none if they have not been listed yet.
    pub(crate) pods: Option<BTreeMap<u32, PoolPodView>>,
    /// The record; none if it has not been read yet.
    pub(crate) record: Option<RecordView>,
}

/// The fields of the StatefulSet that the agent needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatefulSetView {
    /// The wanted number of pods.
    pub(crate) replicas: u32,
    /// The ordinal of the first pod.
    pub(crate) start: u32,
    /// The label selector of its pods.
    pub(crate) selector: String,
}

/// The fields of a pod that the agent needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PoolPodView {
    pub(crate) uid: String,
    /// The pod's IP address; empty while it has none.
    pub(crate) address: String,
    /// Whether the pod's agent signs its answers. Agents of older versions do not.
    pub(crate) signs: bool,
}

/// The record, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RecordView {
    /// The ConfigMap does not exist.
    Absent,
    /// The ConfigMap has no data, as installed.
    Empty(Revision),
    /// The ConfigMap contains a record.
    Present {
        /// The record.
        record: Record,
        /// The revision of the ConfigMap.
        revision: Revision,
    },
    /// The ConfigMap cannot be parsed. It is never overwritten: a person has to look at it.
    Unreadable(String),
}

/// The revision of the ConfigMap that was read, with labels and annotations written by others.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Revision {
    version: String,
    labels: BTreeMap<String, String>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Revision {
    fn of(metadata: &ObjectMeta) -> Revision {
        Revision {
            version: metadata.resource_version.clone().unwrap_or_default(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: metadata.annotations.clone(),
        }
    }
}

impl PoolObjects {
    /// Returns the record: an empty one if there is none, nothing if it is unknown or unreadable.
    pub(crate) fn record(&self) -> Option<Record> {
        match self.record.as_ref()? {
            RecordView::Absent | RecordView::Empty(_) => Some(Record::default()),
            RecordView::Present { record, .. } => Some(record.clone()),
            RecordView::Unreadable(_) => None,
        }
    }
}

/// Reads and writes the pool's objects in Kubernetes.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    settings: Arc<Settings>,
    pool: PoolSpec,
    objects: watch::Sender<PoolObjects>,
    keys: watch::Sender<Keys>,
}

/// Why the record was not written.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// Another agent wrote the record: the decision was based on an old one.
    Outdated,
    /// Any other error.
    Failed(String),
}

impl Cluster {
    /// A cluster of which nothing has been read yet.
    pub(crate) fn new(client: Client, settings: Arc<Settings>) -> Result<Cluster, InvalidName> {
        let pool = settings.wanted(0, 0)?;
        Ok(Cluster { client, settings, pool, objects: watch::Sender::default(), keys: watch::Sender::default() })
    }

    /// The name by which the other peers know a pod.
    pub(crate) fn host(&self, ordinal: u32) -> HostName {
        self.pool.host(ordinal)
    }

    /// Subscribes to the pool's objects.
    pub(crate) fn objects(&self) -> watch::Receiver<PoolObjects> {
        self.objects.subscribe()
    }

    /// Subscribes to the pool's keys.
    pub(crate) fn keys(&self) -> watch::Receiver<Keys> {
        self.keys.subscribe()
    }

    /// The pods that the pool should have; none if the StatefulSet has not been read.
    pub(crate) fn wanted(&self) -> Option<PoolSpec> {
        let objects = self.objects.borrow();
        Some(self.wanted_by(objects.set.as_ref()?))
    }

    fn wanted_by(&self, set: &StatefulSetView) -> PoolSpec {
        let mut wanted = self.pool.clone();
        (wanted.replicas, wanted.start) = (set.replicas, set.start);
        wanted
    }

    /// Sets the objects without reading them.
    #[cfg(test)]
    pub(crate) fn set_objects(&self, objects: PoolObjects) {
        self.objects.send_replace(objects);
    }

    /// Sets the pool's key without reading it.
    #[cfg(test)]
    pub(crate) fn set_key(&self, key: Key) {
        self.keys.send_modify(|keys| keys.replace(key));
    }

    /// Watches all objects, for as long as it is polled.
    pub(crate) async fn watch_all(&self) {
        tokio::join!(self.watch_set(), self.watch_record(), self.watch_pods(), self.watch_key());
    }

    /// The path of an object in the pool's namespace.
    fn path(&self, kind: ApiPath<'_>, name: &str) -> String {
        kind.object(&self.settings.namespace, name)
    }

    fn update(&self, change: impl FnOnce(&mut PoolObjects)) {
        self.objects.send_if_modified(|objects| {
            let before = objects.clone();
            change(objects);
            *objects != before
        });
    }

    async fn watch_set(&self) {
        let options = WatchOptions::named(&self.settings.pool, WATCH_DURATION);
        let read = |object: &Value| {
            let object = StatefulSet::from_raw(&key_of(object), object)?;
            Ok((name_of(&object.metadata), set(object.spec.as_ref())))
        };
        follow(self.client.watch::<StatefulSet, _>(&self.settings.namespace, &options, read), |sets| {
            let set = sets.values().next().cloned();
            self.update(|objects| objects.set = set);
        })
        .await;
    }

    async fn watch_record(&self) {
        let options = WatchOptions::named(&self.settings.record(), WATCH_DURATION);
        let read = |object: &Value| {
            let object: ConfigMap = stead_model::parse(key_of(object), object)?;
            Ok((name_of(&object.metadata), read_record(&object)))
        };
        follow(self.client.watch::<ConfigMap, _>(&self.settings.namespace, &options, read), |records| {
            self.update_record(records.values().next().cloned().unwrap_or(RecordView::Absent));
        })
        .await;
    }

    /// Ignores a revision older than the known one: the watch may still report a state from before our own write.
    fn update_record(&self, record: RecordView) {
        self.update(|objects| {
            let older = match (&objects.record, &record) {
                (Some(RecordView::Present { revision: known, .. }), RecordView::Present { revision: new, .. }) => {
                    let version = |revision: &Revision| revision.version.parse::<u64>();
                    matches!((version(known), version(new)), (Ok(known), Ok(new)) if new < known)
                }
                _ => false,
            };
            if !older {
                objects.record = Some(record);
            }
        });
    }

    async fn watch_pods(&self) {
        let mut objects = self.objects();
        loop {
            let selector = match objects.wait_for(|objects| objects.set.is_some()).await {
                Ok(objects) => objects.set.as_ref().map(|set| set.selector.clone()).unwrap_or_default(),
                Err(_) => return,
            };
            let options = WatchOptions::labelled(&selector, WATCH_DURATION);
            let read = |object: &Value| {
                let object = Pod::from_raw(&key_of(object), object)?;
                Ok((name_of(&object.metadata), pod(&object)))
            };
            let pods = follow(self.client.watch::<Pod, _>(&self.settings.namespace, &options, read), |pods| {
                let ours =
                    pods.iter().filter_map(|(name, pod)| Some((ordinal(&self.settings.pool, name)?, pod.clone())));
                let ours = ours.collect();
                self.update(|objects| objects.pods = Some(ours));
            });
            let mut changes = self.objects();
            let other = changes.wait_for(|objects| objects.set.as_ref().is_some_and(|set| set.selector != selector));
            tokio::select! {
                () = pods => {}
                _ = other => {}
            }
        }
    }

    /// Watches the Secret with the pool's key, and writes a new key into it if it is empty. Without such a Secret,
    /// nothing is signed.
    async fn watch_key(&self) {
        let Some(name) = &self.settings.key_secret else { return std::future::pending().await };
        let (tell, mut secrets) = watch::channel::<Option<Secret>>(None);
        let options = WatchOptions::named(name, WATCH_DURATION);
        let read = |object: &Value| {
            let object: Secret = stead_model::parse(key_of(object), object)?;
            Ok((name_of(&object.metadata), object))
        };
        let following = follow(self.client.watch::<Secret, _>(&self.settings.namespace, &options, read), |all| {
            tell.send_replace(all.values().next().cloned());
        });
        let learning = async {
            while secrets.changed().await.is_ok() {
                let secret = secrets.borrow_and_update().clone();
                self.update_key(name, secret).await;
            }
        };
        tokio::join!(following, learning);
    }

    async fn update_key(&self, name: &str, secret: Option<Secret>) {
        let problem = match secret {
            None => format!("Secret {name} does not exist: apply the manifests again"),
            Some(secret) => match secret.data.as_ref().and_then(|data| data.get(key_secret::KEY)) {
                Some(bytes) => match Key::new(&bytes.0) {
                    Some(key) => return self.keys.send_modify(|keys| keys.replace(key)),
                    None => format!("Secret {name}: data.{} must have {} bytes", key_secret::KEY, key_secret::LENGTH),
                },
                None => match self.write_new_key(secret).await {
                    Ok(()) => return info!("Secret {name} now has a new key for the pool"),
                    // Another agent may have written one in the meantime: the watch reports it.
                    Err(error) => format!("Secret {name} has no key, and writing one failed: {error}"),
                },
            },
        };
        debug!("{problem}");
        self.keys.send_modify(|keys| keys.fail(problem));
    }

    /// Writes a new key into a Secret that has none, unless it has been changed in the meantime.
    async fn write_new_key(&self, mut secret: Secret) -> Result<(), String> {
        let bytes = Key::random().map_err(|error| error.to_string())?;
        secret.data.get_or_insert_default().insert(key_secret::KEY.to_owned(), ByteString(bytes));
        let path = self.path(ApiPath::of::<Secret>(), &name_of(&secret.metadata));
        let written = self.client.send::<Secret>(ApiRequest::update(path, &secret).managed_by(FIELD_MANAGER)).await;
        written.map(drop).map_err(|error| error.message())
    }

    /// Writes the record, unless it has changed since the decision.
    pub(crate) async fn write_record(
        &self,
        record: &Record,
        start: u32,
        decided_on: Option<&RecordView>,
    ) -> Result<(), NotWritten> {
        let kind = ApiPath::of::<ConfigMap>();
        let request = match &write(&self.settings, record, start, decided_on)? {
            Write::Create(object) => ApiRequest::create(kind.collection(Some(&self.settings.namespace)), object),
            Write::Replace(object) => ApiRequest::update(self.path(kind, &name_of(&object.metadata)), object),
        };
        match self.client.send::<ConfigMap>(request.managed_by(FIELD_MANAGER)).await {
            Ok(written) => {
                self.update_record(read_record(&written));
                Ok(())
            }
            Err(error) if error.is_conflict() || error.is_not_found() => Err(NotWritten::Outdated),
            Err(error) => Err(NotWritten::Failed(error.message())),
        }
    }

    /// Reads the StatefulSet now and returns the pods that the pool should have.
    pub(crate) async fn fetch_wanted(&self) -> Option<PoolSpec> {
        let path = self.path(ApiPath::of::<StatefulSet>(), &self.settings.pool);
        let found = self.client.send_json(ApiRequest::get(path)).await.ok()?;
        let found = StatefulSet::from_raw(&key_of(&found), &found).ok()?;
        Some(self.wanted_by(&set(found.spec.as_ref())))
    }

    /// Creates an event.
    pub(crate) async fn event(&self, event: &Event) -> Result<(), Error> {
        let path = ApiPath::of::<Event>().collection(Some(&self.settings.namespace));
        self.client.send::<Event>(ApiRequest::create(path, event).managed_by(FIELD_MANAGER)).await.map(drop)
    }
}

/// What errors call an object.
fn key_of(object: &Value) -> ObjectKey {
    ObjectKey::of(object).unwrap_or_else(|| ObjectKey::new("object", "", "without a name"))
}

fn name_of(metadata: &ObjectMeta) -> String {
    metadata.name.clone().unwrap_or_default()
}

/// Follows a watch of named objects; calls `report` with all of them after each change.
async fn follow<T: Send + 'static>(mut watch: Watch<(String, T)>, mut report: impl FnMut(&BTreeMap<String, T>)) {
    let mut objects = BTreeMap::new();
    loop {
        match watch.next().await {
            WatchEvent::Listed(listed) => objects = listed.into_iter().collect(),
            WatchEvent::Applied((name, object)) => {
                objects.insert(name, object);
            }
            WatchEvent::Deleted((name, _)) => {
                objects.remove(&name);
            }
            WatchEvent::Failed { error, again } => {
                if again {
                    debug!("watch: {error}");
                } else {
                    warn!("watch: {error}");
                }
                continue;
            }
        }
        report(&objects);
    }
}

/// A request that writes a record.
#[derive(Debug, Clone, PartialEq)]
enum Write {
    Create(ConfigMap),
    Replace(ConfigMap),
}

/// Returns the request that replaces the record that the decision was based on. It carries that revision, so a newer
/// record is not overwritten.
fn write(
    settings: &Settings,
    record: &Record,
    start: u32,
    decided_on: Option<&RecordView>,
) -> Result<Write, NotWritten> {
    let labels = |revision: Option<&Revision>| {
        let mut labels = revision.map(|revision| revision.labels.clone()).unwrap_or_default();
        labels.extend(config_map::labels(&settings.pool));
        labels
    };
    let object = |revision: Option<&Revision>| ConfigMap {
        metadata: ObjectMeta {
            name: Some(settings.record()),
            namespace: Some(settings.namespace.clone()),
            labels: Some(labels(revision)),
            annotations: revision.and_then(|revision| revision.annotations.clone()),
            resource_version: revision.map(|revision| revision.version.clone()),
            ..ObjectMeta::default()
        },
        data: Some(config_map::data(record, start)),
        ..ConfigMap::default()
    };
    match decided_on {
        Some(RecordView::Absent) => Ok(Write::Create(object(None))),
        Some(RecordView::Empty(revision) | RecordView::Present { revision, .. }) => {
            Ok(Write::Replace(object(Some(revision))))
        }
        Some(RecordView::Unreadable(_)) | None => Err(NotWritten::Failed("the record has not been read".into())),
    }
}

fn set(spec: Option<&StatefulSetSpec>) -> StatefulSetView {
    let number = |value: Option<i32>, default| value.and_then(|n| n.try_into().ok()).unwrap_or(default);
    let labels = spec.and_then(|spec| spec.selector.match_labels.as_ref());
    let selector: Vec<String> = labels.into_iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
    StatefulSetView {
        replicas: number(spec.and_then(|spec| spec.replicas), 1),
        start: number(spec.and_then(|spec| spec.ordinals.as_ref()?.start), 0),
        selector: selector.join(","),
    }
}

fn pod(object: &Pod) -> PoolPodView {
    let address = object.status.as_ref().and_then(|status| status.pod_ip.clone());
    PoolPodView {
        uid: object.metadata.uid.clone().unwrap_or_default(),
        address: address.unwrap_or_default(),
        signs: object
            .metadata
            .annotations
            .as_ref()
            .and_then(|all| all.get(key_secret::SIGNS))
            .is_some_and(|value| value == "true"),
    }
}

fn read_record(object: &ConfigMap) -> RecordView {
    let revision = Revision::of(&object.metadata);
    let data = object.data.clone().unwrap_or_default();
    if data.is_empty() {
        return RecordView::Empty(revision);
    }
    match config_map::record(&data) {
        Ok(record) => RecordView::Present { record, revision },
        Err(error) => RecordView::Unreadable(error.to_string()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

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
            let mut whole = json!({"serviceName": "g", "template": {}, "selector": {}});
            whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let found = set(Some(&serde_json::from_value(whole).unwrap()));
            assert_eq!((found.replicas, found.start, found.selector.as_str()), (replicas, start, selector), "{spec}");
        }
    }

    fn revision() -> Revision {
        let others: BTreeMap<String, String> = [("a".to_owned(), "b".to_owned())].into();
        Revision { version: "7".into(), labels: others.clone(), annotations: Some(others) }
    }

    #[test]
    fn a_record_replaces_only_the_revision_of_the_decision() {
        for (decided_on, replaces) in [
            (Some(RecordView::Absent), Some(None)),
            (Some(RecordView::Empty(revision())), Some(Some("7"))),
            (Some(RecordView::Present { record: Record::default(), revision: revision() }), Some(Some("7"))),
            (Some(RecordView::Unreadable("no JSON".into())), None),
            (None, None),
        ] {
            let request = write(&crate::test_agent::settings(), &Record::default(), 0, decided_on.as_ref()).ok();
            let found = request.as_ref().map(|request| match request {
                Write::Create(_) => None,
                Write::Replace(object) => {
                    let meta = &object.metadata;
                    let kept = [&meta.annotations, &meta.labels].map(|all| Some(all.as_ref()?.get("a")?.as_str()));
                    assert_eq!(kept, [Some("b"); 2], "labels and annotations of others are kept");
                    object.metadata.resource_version.as_deref()
                }
            });
            assert_eq!(found, replaces, "{decided_on:?}");
        }
    }

    #[test]
    fn an_unreadable_record_is_not_an_absent_one() {
        let object = |data: Option<BTreeMap<String, String>>| ConfigMap {
            metadata: ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() },
            data,
            ..ConfigMap::default()
        };
        let present = read_record(&object(Some(config_map::data(&Record::default(), 0))));
        assert!(matches!(present, RecordView::Present { .. }), "{present:?}");
        for data in [None, Some(BTreeMap::new())] {
            assert!(matches!(read_record(&object(data)), RecordView::Empty(_)));
        }
        for (key, value) in [("record.json", "{"), ("bricks", "0 gv0")] {
            let data = Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
            assert!(matches!(read_record(&object(data)), RecordView::Unreadable(_)), "{key}");
        }
    }

    #[test]
    fn an_annotation_tells_whether_an_agent_signs() {
        for (annotations, signs) in [(json!({}), false), (json!({"stead.dev/signs-reports": "true"}), true)] {
            let object = json!({"metadata": {"uid": "u", "annotations": annotations}, "status": {"podIP": "10.0.0.1"}});
            let found = pod(&serde_json::from_value(object).unwrap());
            assert_eq!(found, PoolPodView { uid: "u".into(), address: "10.0.0.1".into(), signs });
        }
    }
}
