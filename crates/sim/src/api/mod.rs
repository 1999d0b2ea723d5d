//! The API server: versions, generations, finalizers, graceful deletion, preconditions.
//!
//! A request goes the way that it goes in kube-apiserver: defaults, admission (`admission.rs`), the strategy of the kind
//! (`strategy.rs`), validation as far as controllers depend on it (`validation.rs`), the store.

mod admission;
mod bind;
pub(crate) mod daemon_set_strategy;
mod defaults;
mod delete;
mod eviction;
mod job_strategy;
mod patch;
mod storage;
mod strategy;
#[cfg(test)]
mod tests;
mod validation;

pub(crate) use self::delete::{FOREGROUND, ORPHAN};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

pub(crate) use storage::{CLAIM_PROTECTION, VOLUME_PROTECTION, default_class};

use crate::choices::Choices;
use crate::error::ApiError;
use crate::object::{SimKey, SimObject};
use crate::settings::Settings;
use crate::step::{ObjectPart, Write};
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

/// The beginning of each UID that the simulation gives.
const UID_PREFIX: &str = "5ead0000-0000-4000-8000-";
/// How long the part of a generated name before its suffix can be (`MaxGeneratedNameLength`).
const GENERATED_NAME: usize = 58;
/// How often another name is generated if there is an object of that name.
const GENERATED_NAME_TRIES: usize = 8;

impl ApiServer {
    /// The objects.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// An API server with these objects: versions and UIDs are kept. Objects are read with their defaults, as
    /// kube-apiserver reads what it has stored.
    pub(crate) fn with_objects(settings: &Settings, objects: impl IntoIterator<Item = SimObject>) -> ApiServer {
        let objects: Vec<SimObject> = objects.into_iter().collect();
        let number = |uid: &str| u64::from_str_radix(uid.strip_prefix(UID_PREFIX)?, 16).ok();
        let mut server = ApiServer {
            // Objects of an earlier simulation have its UIDs.
            uids: objects.iter().filter_map(|object| number(object.uid())).max().unwrap_or_default(),
            ..ApiServer::default()
        };
        for mut object in objects {
            let version = object.metadata().resource_version.as_deref().and_then(|version| version.parse().ok());
            server.revision = server.revision.max(version.unwrap_or_default());
            if object.uid().is_empty() {
                let uid = server.new_uid();
                object.metadata_mut().uid = Some(uid);
            }
            if !defaults::are_set(&object) {
                defaults::apply(&mut object, settings);
            }
            server.store.put(object);
        }
        server
    }

    /// Executes a request. Gives the changes that it made; none if it changes nothing. The object of the request may get
    /// what the server adds to it.
    pub(crate) fn execute(&mut self, request: &mut Request<'_>, write: &mut Write) -> Result<Vec<Change>, ApiError> {
        match write {
            Write::Create(object) => self.create(request, object).map(|change| vec![change]),
            Write::Replace(object) => self.replace(request, object, ObjectPart::Spec, None).map(Vec::from_iter),
            Write::Status(object) => self.replace(request, object, ObjectPart::Status, None).map(Vec::from_iter),
            Write::Patch { key, patch, part } => self.patch(request, key, patch, *part).map(Vec::from_iter),
            Write::Apply { object, manager, part } => self.apply(request, object, manager, *part).map(Vec::from_iter),
            Write::Delete(key, options) => self.delete(request, key, options),
            Write::Bind { pod, uid, node } => self.bind(request, pod, uid, node).map(|change| vec![change]),
            Write::Evict(key, options) => self.evict(request, key, options),
            Write::Event(_) => Ok(Vec::new()),
        }
    }

    fn new_uid(&mut self) -> String {
        self.uids += 1;
        format!("{UID_PREFIX}{:012x}", self.uids)
    }

    /// Stores an object under the next version.
    fn commit(&mut self, object: &mut SimObject) -> Change {
        self.revision += 1;
        object.metadata_mut().resource_version = Some(self.revision.to_string());
        self.store.put(object.clone())
    }

    /// Removes an object, which also makes a version.
    fn remove(&mut self, key: &SimKey) -> Option<Change> {
        self.revision += 1;
        self.store.remove(key)
    }

    fn create(&mut self, request: &mut Request<'_>, object: &mut SimObject) -> Result<Change, ApiError> {
        let kind = object.kind();
        defaults::apply(object, request.settings);
        let key = provisional_key(object);
        if self
            .store
            .get::<Namespace>("", &key.namespace)
            .is_some_and(|found| found.metadata.deletion_timestamp.is_some())
        {
            return Err(ApiError::NamespaceTerminating(key));
        }
        admission::create(object, &key, &self.store, request.settings)?;
        self.named(request, object)?;
        let uid = self.new_uid();
        let metadata = object.metadata_mut();
        metadata.uid = Some(uid);
        metadata.creation_timestamp = Some(whole_seconds(request.now));
        metadata.deletion_timestamp = None;
        metadata.deletion_grace_period_seconds = None;
        metadata.generation = strategy::has_generation(kind, request.settings).then_some(1);
        drop_empty(metadata);
        strategy::prepare_for_create(object, &self.store, request);
        Ok(self.commit(object))
    }

    /// Gives an object its name, if it has only the prefix of one. An object of the same name is an error.
    fn named(&self, request: &mut Request<'_>, object: &mut SimObject) -> Result<(), ApiError> {
        let kind = object.kind();
        let has_name = object.metadata().name.as_ref().is_some_and(|name| !name.is_empty());
        let tries = if has_name { 1 } else { GENERATED_NAME_TRIES };
        let mut key = provisional_key(object);
        for _ in 0..tries {
            if !has_name {
                let metadata = object.metadata_mut();
                let prefix = metadata.generate_name.clone().unwrap_or_default();
                let namespace = metadata.namespace.clone().unwrap_or_default();
                let suffix = request.choices.name_suffix(&format!("{namespace}/{prefix}"));
                let kept: String = prefix.chars().take(GENERATED_NAME).collect();
                metadata.name = Some(format!("{kept}{suffix}"));
            }
            key = SimKey::of(kind, object.metadata());
            if self.store.object(&key).is_none() {
                return Ok(());
            }
        }
        Err(ApiError::AlreadyExists(key))
    }

    /// Replaces an object, or its status. A new spec is a new generation; an object that is being deleted goes with its
    /// last finalizer. `manager` is who applies it, if it is an apply.
    fn replace(
        &mut self,
        request: &mut Request<'_>,
        object: &mut SimObject,
        part: ObjectPart,
        manager: Option<&str>,
    ) -> Result<Option<Change>, ApiError> {
        let key = object.key();
        let Some(before) = self.store.object(&key).cloned() else { return Err(ApiError::NotFound(key)) };
        let (old, new) = (before.metadata(), object.metadata());
        if new.uid.as_ref().is_some_and(|uid| !uid.is_empty()) && new.uid != old.uid {
            return Err(uid_precondition(&key, new.uid.as_deref(), old.uid.as_deref()));
        }
        if new.resource_version.is_some() && new.resource_version != old.resource_version {
            return Err(ApiError::Conflict { key, message: MODIFIED.to_owned() });
        }
        restore(object.metadata_mut(), old);
        match part {
            ObjectPart::Spec => {
                defaults::apply(object, request.settings);
                admission::update(object, &before, request.settings);
                strategy::prepare_for_update(object, &before, &self.store);
            }
            ObjectPart::Status => strategy::prepare_for_status(object, &before, request),
        }
        if *object == before {
            return Ok(None);
        }
        validation::update(object, &before, &key)?;
        patch::disown_changes(object, &before, manager);
        if goes_with_update(object, &before) {
            return Ok(self.remove(&key));
        }
        Ok(Some(self.commit(object)))
    }
}

/// The key of an object to create. Messages about one that has no name yet have the prefix of its name.
fn provisional_key(object: &SimObject) -> SimKey {
    let metadata = object.metadata();
    let name = metadata.name.as_deref().filter(|name| !name.is_empty()).or(metadata.generate_name.as_deref());
    SimKey::new(object.kind(), metadata.namespace.as_deref().unwrap_or_default(), name.unwrap_or_default())
}

/// The message of a conflict of versions.
const MODIFIED: &str = "the object has been modified; please apply your changes to the latest version and try again";

/// The error of a request for an object that was deleted and created again.
fn uid_precondition(key: &SimKey, wanted: Option<&str>, found: Option<&str>) -> ApiError {
    let (wanted, found) = (wanted.unwrap_or_default(), found.unwrap_or_default());
    let kind = key.kind.entry();
    let resource = match kind.kind {
        "Node" => "minions".to_owned(),
        "Service" => "services/specs".to_owned(),
        _ if strategy::is_custom(kind) => format!("{}/{}", kind.group(), kind.plural),
        _ => kind.plural.to_owned(),
    };
    let namespace = if kind.namespaced { format!("{}/", key.namespace) } else { String::new() };
    let message = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{resource}/{namespace}{}, ResourceVersion: 0, \
         AdditionalErrorMsg: Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}",
        key.name
    );
    ApiError::Conflict { key: key.clone(), message }
}

/// Whether an update removes an object that is being deleted: it has no finalizer left and no grace period
/// (`ShouldDeleteDuringUpdate`). A pod with a grace period stays until its kubelet or somebody else removes it.
fn goes_with_update(object: &SimObject, before: &SimObject) -> bool {
    let (old, new) = (before.metadata(), object.metadata());
    let held = new.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
    let ends = old.deletion_timestamp.is_some() && old.deletion_grace_period_seconds.unwrap_or(0) == 0;
    ends && !held && !strategy::has_content(object)
}

/// Restores the metadata that only the API server sets.
fn restore(metadata: &mut ObjectMeta, old: &ObjectMeta) {
    metadata.uid.clone_from(&old.uid);
    metadata.creation_timestamp.clone_from(&old.creation_timestamp);
    metadata.deletion_timestamp.clone_from(&old.deletion_timestamp);
    metadata.deletion_grace_period_seconds = old.deletion_grace_period_seconds;
    metadata.resource_version.clone_from(&old.resource_version);
    metadata.generation = old.generation;
    if metadata.managed_fields.is_none() {
        metadata.managed_fields.clone_from(&old.managed_fields);
    }
    drop_empty(metadata);
}

/// Removes empty lists, which are not stored.
fn drop_empty(metadata: &mut ObjectMeta) {
    fn drop<T>(list: &mut Option<T>, is_empty: impl Fn(&T) -> bool) {
        if list.as_ref().is_some_and(is_empty) {
            *list = None;
        }
    }
    drop(&mut metadata.finalizers, Vec::is_empty);
    drop(&mut metadata.owner_references, Vec::is_empty);
    drop(&mut metadata.managed_fields, Vec::is_empty);
    drop(&mut metadata.labels, std::collections::BTreeMap::is_empty);
    drop(&mut metadata.annotations, std::collections::BTreeMap::is_empty);
}
