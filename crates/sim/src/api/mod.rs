//! The API server: versions, generations, finalizers, graceful deletion, preconditions.

mod bind;
mod defaults;
mod delete;
mod eviction;
mod storage;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

pub(crate) use storage::{CLAIM_PROTECTION, VOLUME_PROTECTION, default_class};

use crate::choices::Choices;
use crate::error::ApiError;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::settings::Settings;
use crate::step::Write;
use crate::store::{Change, Store};

/// The state of the API server.
#[derive(Debug, Clone, Default)]
pub struct ApiServer {
    store: Store,
    revision: u64,
    uids: u64,
}

/// What a request is made with.
pub(crate) struct Request<'a> {
    pub(crate) now: Timestamp,
    pub(crate) settings: &'a Settings,
    pub(crate) choices: &'a mut Choices,
}

/// A time as the API server writes it: whole seconds.
pub(crate) fn whole_seconds(at: Timestamp) -> Time {
    Time(Timestamp::from_second(at.as_second()).expect("the second of a time is a time"))
}

impl ApiServer {
    /// The objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// An API server with these objects, as they are: versions and UIDs are kept.
    pub(crate) fn with_objects(objects: impl IntoIterator<Item = SimObject>) -> ApiServer {
        let mut server = ApiServer::default();
        for mut object in objects {
            let version = object.metadata().resource_version.as_deref().and_then(|version| version.parse().ok());
            server.revision = server.revision.max(version.unwrap_or_default());
            if object.uid().is_empty() {
                let uid = server.new_uid();
                object.metadata_mut().uid = Some(uid);
            }
            server.store.put(object);
        }
        server
    }

    /// Executes a request. Gives the changes that it made; none if it changes nothing.
    pub(crate) fn execute(&mut self, request: &mut Request<'_>, write: Write) -> Result<Vec<Change>, ApiError> {
        match write {
            Write::Create(object) => self.create(request, object).map(|change| vec![change]),
            Write::Replace(object) => self.replace(object, true).map(Vec::from_iter),
            Write::Status(object) => self.replace(object, false).map(Vec::from_iter),
            Write::Delete(key, options) => self.delete(request, &key, &options).map(Vec::from_iter),
            Write::Bind { pod, uid, node } => self.bind(request, &pod, &uid, &node).map(|change| vec![change]),
            Write::Evict(key, options) => self.evict(request, &key, options),
            Write::Event(_) => Ok(Vec::new()),
        }
    }

    fn new_uid(&mut self) -> String {
        self.uids += 1;
        format!("{:08x}-0000-4000-8000-{:012x}", 0x5ead_0000_u32, self.uids)
    }

    /// Stores an object under the next version.
    fn commit(&mut self, mut object: SimObject) -> Change {
        self.revision += 1;
        object.metadata_mut().resource_version = Some(self.revision.to_string());
        self.store.put(object)
    }

    fn create(&mut self, request: &mut Request<'_>, mut object: SimObject) -> Result<Change, ApiError> {
        let kind = object.kind();
        let metadata = object.metadata_mut();
        if metadata.name.as_deref().unwrap_or_default().is_empty() {
            let prefix = metadata.generate_name.clone().unwrap_or_default();
            let namespace = metadata.namespace.clone().unwrap_or_default();
            let suffix = request.choices.name_suffix(&format!("{namespace}/{prefix}"));
            metadata.name = Some(format!("{prefix}{suffix}"));
        }
        let key = SimKey::of(kind, metadata);
        if self.store.object(&key).is_some() {
            return Err(ApiError::AlreadyExists(key));
        }
        let namespace = self.store.object(&SimKey::new(ObjectKind::Namespace, "", &key.namespace));
        if namespace.is_some_and(SimObject::is_terminating) {
            let message =
                format!("unable to create new content in namespace {} because it is being terminated", key.namespace);
            return Err(ApiError::Forbidden { key, message });
        }
        let uid = self.new_uid();
        let metadata = object.metadata_mut();
        metadata.uid = Some(uid);
        metadata.creation_timestamp = Some(whole_seconds(request.now));
        metadata.deletion_timestamp = None;
        metadata.deletion_grace_period_seconds = None;
        metadata.generation = has_generation(kind, request.settings).then_some(1);
        defaults::apply(&mut object, &self.store, request.settings)?;
        Ok(self.commit(object))
    }

    /// Replaces an object. A new spec is a new generation; an object that is being deleted goes with its last finalizer.
    fn replace(&mut self, mut object: SimObject, with_spec: bool) -> Result<Option<Change>, ApiError> {
        let key = object.key();
        let Some(before) = self.store.object(&key) else { return Err(ApiError::NotFound(key)) };
        let (old, new) = (before.metadata(), object.metadata());
        let conflict = |message: &str| Err(ApiError::Conflict { key: key.clone(), message: message.to_owned() });
        if new.uid.is_some() && new.uid != old.uid {
            return conflict("Precondition failed: UID in precondition does not match UID in object meta");
        }
        if new.resource_version.is_some() && new.resource_version != old.resource_version {
            return conflict(MODIFIED);
        }
        let (generation, kept) = (old.generation, kept_fields(old));
        kept.restore(object.metadata_mut());
        let bumped = with_spec && generation.is_some() && defaults::spec_differs(before, &object);
        object.metadata_mut().generation =
            if bumped { generation.map(|generation| generation + 1) } else { generation };
        if object == *before {
            return Ok(None);
        }
        let metadata = object.metadata();
        let held = metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        // A pod with a grace period stays until its kubelet or somebody else removes it.
        if metadata.deletion_timestamp.is_some() && !held && metadata.deletion_grace_period_seconds.unwrap_or(0) == 0 {
            self.revision += 1;
            return Ok(self.store.remove(&key));
        }
        Ok(Some(self.commit(object)))
    }
}

/// The message of a conflict of versions.
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// Whether objects of a kind have a generation.
fn has_generation(kind: ObjectKind, settings: &Settings) -> bool {
    match kind {
        ObjectKind::Pod => settings.since(33),
        ObjectKind::ReplicaSet
        | ObjectKind::StatefulSet
        | ObjectKind::Deployment
        | ObjectKind::DaemonSet
        | ObjectKind::ReplicationController
        | ObjectKind::Job
        | ObjectKind::CronJob
        | ObjectKind::PodDisruptionBudget
        | ObjectKind::EndpointSlice
        | ObjectKind::Untyped(_) => true,
        _ => false,
    }
}

/// The metadata that only the API server sets.
struct KeptFields {
    uid: Option<String>,
    creation: Option<Time>,
    deletion: Option<Time>,
    grace: Option<i64>,
    version: Option<String>,
}

fn kept_fields(metadata: &ObjectMeta) -> KeptFields {
    KeptFields {
        uid: metadata.uid.clone(),
        creation: metadata.creation_timestamp.clone(),
        deletion: metadata.deletion_timestamp.clone(),
        grace: metadata.deletion_grace_period_seconds,
        version: metadata.resource_version.clone(),
    }
}

impl KeptFields {
    fn restore(self, metadata: &mut ObjectMeta) {
        metadata.uid = self.uid;
        metadata.creation_timestamp = self.creation;
        metadata.deletion_timestamp = self.deletion;
        metadata.deletion_grace_period_seconds = self.grace;
        metadata.resource_version = self.version;
    }
}
