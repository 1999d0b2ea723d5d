//! The pool's objects in Kubernetes: the StatefulSet, its pods, the record, and the Secret with the pool's key.
//!
//! Watches keep them up to date, so that nothing is polled. The last known state stays while the API server does not
//! answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_client::{ApiPath, ApiRequest, Client, Error, Watch, WatchEvent, WatchOptions};
use stead_pool::{HostName, InvalidName, PoolSpec, Record, config_map, key_secret, ordinal};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::auth::{Key, Keys};
use crate::settings::Settings;

/// How long one request of a watch lasts.
const WATCH: Duration = Duration::from_secs(290);

/// The field manager of what the agent writes.
const MANAGER: &str = "stead";

/// What was seen last.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Seen {
    /// The StatefulSet; none if it has not been seen, or does not exist.
    pub(crate) set: Option<Set>,
    /// The pods that the StatefulSet has created, by ordinal; none if they have not been listed yet.
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodSeen {
    /// Its uid.
    pub(crate) uid: String,
    /// Its address; empty while it has none.
    pub(crate) address: String,
    /// Whether its agent signs its answers: one of an older version does not.
    pub(crate) signs: bool,
}

/// The record, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RecordSeen {
    /// There is no ConfigMap for it.
    Absent,
    /// There is a ConfigMap, as it was installed, with nothing in it.
    Empty(Revision),
    /// There is a record.
    There {
        /// What it says.
        record: Record,
        /// Its revision.
        revision: Revision,
    },
    /// It is there and cannot be read. It is never overwritten: somebody has to look.
    Unreadable(String),
}

/// Which revision of the ConfigMap was read, with what others have written on it.
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

impl Seen {
    /// The record; an empty one if there is none.
    pub(crate) fn record(&self) -> Option<Record> {
        match self.record.as_ref()? {
            RecordSeen::Absent | RecordSeen::Empty(_) => Some(Record::default()),
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
    pool: PoolSpec,
    seen: watch::Sender<Seen>,
    keys: watch::Sender<Keys>,
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
        Ok(Cluster { client, settings, pool, seen: watch::Sender::default(), keys: watch::Sender::default() })
    }

    /// The name by which the other peers know a pod.
    pub(crate) fn host(&self, ordinal: u32) -> HostName {
        self.pool.host(ordinal)
    }

    /// What was seen last, and each change of it.
    pub(crate) fn seen(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// The pool's keys, and each change of them.
    pub(crate) fn keys(&self) -> watch::Receiver<Keys> {
        self.keys.subscribe()
    }

    /// What is wanted, if the StatefulSet has been seen.
    pub(crate) fn wanted(&self) -> Option<PoolSpec> {
        let seen = self.seen.borrow();
        Some(self.wanted_by(seen.set.as_ref()?))
    }

    fn wanted_by(&self, set: &Set) -> PoolSpec {
        let mut wanted = self.pool.clone();
        (wanted.replicas, wanted.start) = (set.replicas, set.start);
        wanted
    }

    /// Takes this for what Kubernetes has.
    #[cfg(test)]
    pub(crate) fn pretend(&self, seen: Seen) {
        self.seen.send_replace(seen);
    }

    /// Takes this for the pool's key.
    #[cfg(test)]
    pub(crate) fn pretend_key(&self, key: Key) {
        self.keys.send_modify(|keys| keys.replace(key));
    }

    /// Keeps it up to date, for as long as it is polled.
    pub(crate) async fn keep(&self) {
        tokio::join!(self.keep_set(), self.keep_record(), self.keep_pods(), self.keep_key());
    }

    /// The path of an object in the pool's namespace.
    fn path(&self, kind: ApiPath<'_>, name: &str) -> String {
        kind.object(&self.settings.namespace, name)
    }

    fn learn(&self, change: impl FnOnce(&mut Seen)) {
        self.seen.send_if_modified(|seen| {
            let before = seen.clone();
            change(seen);
            *seen != before
        });
    }

    async fn keep_set(&self) {
        let options = WatchOptions::named(&self.settings.pool, WATCH);
        let read = |object: StatefulSet| (name_of(&object.metadata), set(object.spec.as_ref()));
        follow(self.client.watch(&self.settings.namespace, &options, read), |sets| {
            let set = sets.values().next().cloned();
            self.learn(|seen| seen.set = set);
        })
        .await;
    }

    async fn keep_record(&self) {
        let options = WatchOptions::named(&self.settings.record(), WATCH);
        let read = |object: ConfigMap| (name_of(&object.metadata), read_record(&object));
        follow(self.client.watch(&self.settings.namespace, &options, read), |records| {
            self.learn_record(records.values().next().cloned().unwrap_or(RecordSeen::Absent));
        })
        .await;
    }

    /// The watch may still tell what our own write has changed: an older revision is not news.
    fn learn_record(&self, record: RecordSeen) {
        self.learn(|seen| {
            let older = match (&seen.record, &record) {
                (Some(RecordSeen::There { revision: had, .. }), RecordSeen::There { revision: new, .. }) => {
                    let version = |revision: &Revision| revision.version.parse::<u64>();
                    matches!((version(had), version(new)), (Ok(had), Ok(new)) if new < had)
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
            let options = WatchOptions::labelled(&selector, WATCH);
            let read = |object: Pod| (name_of(&object.metadata), pod(&object));
            let pods = follow(self.client.watch(&self.settings.namespace, &options, read), |pods| {
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

    /// Follows the Secret with the pool's key; where it is empty, fills it. Without such a Secret, nothing is signed.
    async fn keep_key(&self) {
        let Some(name) = &self.settings.key_secret else { return std::future::pending().await };
        let (tell, mut secrets) = watch::channel::<Option<Secret>>(None);
        let options = WatchOptions::named(name, WATCH);
        let read = |object: Secret| (name_of(&object.metadata), object);
        let following = follow(self.client.watch(&self.settings.namespace, &options, read), |all| {
            tell.send_replace(all.values().next().cloned());
        });
        let learning = async {
            while secrets.changed().await.is_ok() {
                let secret = secrets.borrow_and_update().clone();
                self.learn_key(name, secret).await;
            }
        };
        tokio::join!(following, learning);
    }

    async fn learn_key(&self, name: &str, secret: Option<Secret>) {
        let problem = match secret {
            None => format!("Secret {name} does not exist: apply the manifests again"),
            Some(secret) => match secret.data.as_ref().and_then(|data| data.get(key_secret::KEY)) {
                Some(bytes) => match Key::new(&bytes.0) {
                    Some(key) => return self.keys.send_modify(|keys| keys.replace(key)),
                    None => format!("Secret {name}: data.{} must have {} bytes", key_secret::KEY, key_secret::LENGTH),
                },
                None => match self.fill(secret).await {
                    Ok(()) => return info!("Secret {name} has the pool's new key"),
                    // Somebody else may have filled it just now: the watch tells.
                    Err(error) => format!("Secret {name} has no key, and could not be filled: {error}"),
                },
            },
        };
        debug!("{problem}");
        self.keys.send_modify(|keys| keys.fail(problem));
    }

    /// Writes a new key into a Secret that has none, if nobody has written it meanwhile.
    async fn fill(&self, mut secret: Secret) -> Result<(), String> {
        let bytes = Key::random().map_err(|error| error.to_string())?;
        secret.data.get_or_insert_default().insert(key_secret::KEY.to_owned(), ByteString(bytes));
        let path = self.path(ApiPath::of::<Secret>(), &name_of(&secret.metadata));
        let written = self.client.send::<Secret>(ApiRequest::update(path, &secret).managed_by(MANAGER)).await;
        written.map(drop).map_err(|error| error.message())
    }

    /// Writes the record, if it still is the one that was decided on.
    pub(crate) async fn write_record(
        &self,
        record: &Record,
        start: u32,
        decided_on: Option<&RecordSeen>,
    ) -> Result<(), NotWritten> {
        let kind = ApiPath::of::<ConfigMap>();
        let request = match &write(&self.settings, record, start, decided_on)? {
            Write::Create(object) => ApiRequest::create(kind.collection(Some(&self.settings.namespace)), object),
            Write::Replace(object) => ApiRequest::update(self.path(kind, &name_of(&object.metadata)), object),
        };
        match self.client.send::<ConfigMap>(request.managed_by(MANAGER)).await {
            Ok(written) => {
                self.learn_record(read_record(&written));
                Ok(())
            }
            Err(error) if error.is_conflict() || error.is_not_found() => Err(NotWritten::Outdated),
            Err(error) => Err(NotWritten::Failed(error.message())),
        }
    }

    /// What is wanted, asked now.
    pub(crate) async fn ask_wanted(&self) -> Option<PoolSpec> {
        let path = self.path(ApiPath::of::<StatefulSet>(), &self.settings.pool);
        let found: StatefulSet = self.client.send(ApiRequest::get(path)).await.ok()?;
        Some(self.wanted_by(&set(found.spec.as_ref())))
    }

    /// Creates an event.
    pub(crate) async fn event(&self, event: &Event) -> Result<(), Error> {
        let path = ApiPath::of::<Event>().collection(Some(&self.settings.namespace));
        self.client.send::<Event>(ApiRequest::create(path, event).managed_by(MANAGER)).await.map(drop)
    }
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
                    debug!("watching: {error}");
                } else {
                    warn!("watching: {error}");
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

/// The request that writes a record in place of the one that was decided on. What has come since then is not
/// overwritten, so the revision is never a newer one.
fn write(
    settings: &Settings,
    record: &Record,
    start: u32,
    decided_on: Option<&RecordSeen>,
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
        Some(RecordSeen::Absent) => Ok(Write::Create(object(None))),
        Some(RecordSeen::Empty(revision) | RecordSeen::There { revision, .. }) => {
            Ok(Write::Replace(object(Some(revision))))
        }
        Some(RecordSeen::Unreadable(_)) | None => Err(NotWritten::Failed("the record has not been read".into())),
    }
}

fn set(spec: Option<&StatefulSetSpec>) -> Set {
    let number = |value: Option<i32>, default| value.and_then(|n| n.try_into().ok()).unwrap_or(default);
    let labels = spec.and_then(|spec| spec.selector.match_labels.as_ref());
    let selector: Vec<String> = labels.into_iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
    Set {
        replicas: number(spec.and_then(|spec| spec.replicas), 1),
        start: number(spec.and_then(|spec| spec.ordinals.as_ref()?.start), 0),
        selector: selector.join(","),
    }
}

fn pod(object: &Pod) -> PodSeen {
    let address = object.status.as_ref().and_then(|status| status.pod_ip.clone());
    PodSeen {
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

fn read_record(object: &ConfigMap) -> RecordSeen {
    let revision = Revision::of(&object.metadata);
    let data = object.data.clone().unwrap_or_default();
    if data.is_empty() {
        return RecordSeen::Empty(revision);
    }
    match config_map::record(&data) {
        Ok(record) => RecordSeen::There { record, revision },
        Err(error) => RecordSeen::Unreadable(error.to_string()),
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
    fn a_record_is_written_in_place_of_the_one_that_was_decided_on() {
        for (decided_on, replaces) in [
            (Some(RecordSeen::Absent), Some(None)),
            (Some(RecordSeen::Empty(revision())), Some(Some("7"))),
            (Some(RecordSeen::There { record: Record::default(), revision: revision() }), Some(Some("7"))),
            (Some(RecordSeen::Unreadable("no JSON".into())), None),
            (None, None),
        ] {
            let request = write(&crate::test_agent::settings(), &Record::default(), 0, decided_on.as_ref()).ok();
            let found = request.as_ref().map(|request| match request {
                Write::Create(_) => None,
                Write::Replace(object) => {
                    let meta = &object.metadata;
                    let kept = [&meta.annotations, &meta.labels].map(|all| Some(all.as_ref()?.get("a")?.as_str()));
                    assert_eq!(kept, [Some("b"); 2], "what others have written is kept");
                    object.metadata.resource_version.as_deref()
                }
            });
            assert_eq!(found, replaces, "{decided_on:?}");
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_is_told_from_none() {
        let object = |data: Option<BTreeMap<String, String>>| ConfigMap {
            metadata: ObjectMeta { resource_version: Some("7".into()), ..ObjectMeta::default() },
            data,
            ..ConfigMap::default()
        };
        let there = read_record(&object(Some(config_map::data(&Record::default(), 0))));
        assert!(matches!(there, RecordSeen::There { .. }), "{there:?}");
        for data in [None, Some(BTreeMap::new())] {
            assert!(matches!(read_record(&object(data)), RecordSeen::Empty(_)));
        }
        for (key, value) in [("record.json", "{"), ("bricks", "0 gv0")] {
            let data = Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
            assert!(matches!(read_record(&object(data)), RecordSeen::Unreadable(_)), "{key}");
        }
    }

    #[test]
    fn a_pod_says_whether_its_agent_signs() {
        for (annotations, signs) in [(json!({}), false), (json!({"stead.dev/signs-reports": "true"}), true)] {
            let object = json!({"metadata": {"uid": "u", "annotations": annotations}, "status": {"podIP": "10.0.0.1"}});
            let found = pod(&serde_json::from_value(object).unwrap());
            assert_eq!(found, PodSeen { uid: "u".into(), address: "10.0.0.1".into(), signs });
        }
    }
}
