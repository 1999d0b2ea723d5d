//! The ReplicaSet with the template of the Deployment: it is found, or it is created (`getNewReplicaSet`).

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ReplicaSet, ReplicaSetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use stead_model::controller_of;

use super::limits::{desired, is_rolling_update, max_surge};
use super::replica_sets::{
    REVISION, Set, TEMPLATE_HASH, name, note_replicas, revision, same_template, set_revision, size, total,
    with_template_of,
};
use super::status::{self, PROGRESSING, find};
use super::{Ended, Sets, Sync};
use crate::error::ApiError;
use crate::object::SimObject;
use crate::ownership::namespace_is_terminating;
use crate::pods::{controller_reference, template_hash};
use crate::step::Write;

/// The longest name of an object.
const MAX_NAME: usize = 253;

impl Sync<'_> {
    /// The ReplicaSets; the new one has its revision, and is created if that is wanted
    /// (`getAllReplicaSetsAndSyncRevision`).
    pub(super) fn find_sets(&mut self, create: bool) -> Result<Sets, Ended> {
        let found = with_template_of(&self.deployment, &self.sets).cloned();
        let is_old = |set: &&Set| found.as_ref().is_none_or(|found| found.metadata.uid != set.metadata.uid);
        let old: Vec<Set> = self.sets.iter().filter(is_old).cloned().collect();
        let next = old.iter().filter_map(|set| revision(set)).max().unwrap_or_default().max(0).saturating_add(1);
        let new = match found {
            Some(found) => Some(self.sync_revision(&found, next)),
            None if create => Some(self.create_set(&old, next)?),
            None => None,
        };
        Ok(Sets { new, old })
    }

    /// Updates annotations and revision of the new ReplicaSet, and the revision of the Deployment.
    fn sync_revision(&mut self, found: &Set, next: i64) -> Set {
        let min_ready_seconds = |value: Option<i32>| value.unwrap_or_default();
        let wanted = self.deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        let has = found.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
        let mut annotations = found.metadata.annotations.clone().unwrap_or_default();
        let annotated = set_revision(&mut annotations, &self.deployment, next);
        if annotated || min_ready_seconds(wanted) != min_ready_seconds(has) {
            let mut set = Arc::clone(found);
            let changed = Arc::make_mut(&mut set);
            changed.metadata.annotations = Some(annotations);
            changed.spec.get_or_insert_default().min_ready_seconds = wanted.filter(|seconds| *seconds != 0);
            self.writes.push(Write::Replace(SimObject::ReplicaSet(Arc::clone(&set))));
            return written(set);
        }
        let text = found.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REVISION));
        let mut changed = self.set_revision(text.cloned().unwrap_or_default());
        if self.has_progress_deadline() && find(&self.status(), PROGRESSING).is_none() {
            let message = format!("Found new replica set \"{}\"", name(found));
            let condition = status::condition(PROGRESSING, "True", "FoundNewReplicaSet", message, self.now);
            status::set(self.status_mut(), condition);
            changed = true;
        }
        if changed {
            self.write_status();
        }
        Arc::clone(found)
    }

    /// Sets the revision of the Deployment. Gives whether it is new (`SetDeploymentRevision`).
    fn set_revision(&mut self, revision: String) -> bool {
        let annotations = self.deployment.metadata.annotations.as_ref();
        if annotations.and_then(|annotations| annotations.get(REVISION)).map_or("", String::as_str) == revision {
            return false;
        }
        let metadata = &mut Arc::make_mut(&mut self.deployment).metadata;
        metadata.annotations.get_or_insert_default().insert(REVISION.to_owned(), revision);
        true
    }

    fn create_set(&mut self, old: &[Set], revision: i64) -> Result<Set, Ended> {
        if namespace_is_terminating(self.store, &self.key.namespace) {
            return Err(Ended);
        }
        let mut set = self.new_set();
        let count = self.new_size(old, &set);
        set.spec.get_or_insert_default().replicas = Some(count);
        set_revision(set.metadata.annotations.get_or_insert_default(), &self.deployment, revision);
        note_replicas(&mut set, &self.deployment);
        let exists = self.store.get::<ReplicaSet>(&self.key.namespace, name(&set)).cloned();
        if let Some(exists) = exists {
            let owned = controller_of(&exists.metadata).map(|owner| &owner.uid) == self.deployment.metadata.uid.as_ref();
            let template = |set: &ReplicaSet| set.spec.as_ref().and_then(|spec| spec.template.clone());
            let same = template(&exists).zip(template(&set)).is_some_and(|(a, b)| same_template(&a, &b));
            if !owned || !same {
                return Err(self.report_collision(set));
            }
            if self.set_revision(revision.to_string()) {
                self.write_status();
            }
            return Ok(exists);
        }
        self.writes.push(Write::Create(set.clone().into()));
        if count > 0 {
            let message = match self.settings.since(32) {
                true => format!("Scaled up replica set {} from 0 to {count}", name(&set)),
                false => format!("Scaled up replica set {} to {count}", name(&set)),
            };
            self.report("ScalingReplicaSet", message);
        }
        let mut changed = self.set_revision(revision.to_string());
        if self.has_progress_deadline() {
            let message = format!("Created new replica set \"{}\"", name(&set));
            let condition = status::condition(PROGRESSING, "True", "NewReplicaSetCreated", message, self.now);
            status::set(self.status_mut(), condition);
            changed = true;
        }
        if changed {
            self.write_status();
        }
        Ok(written(Arc::new(set)))
    }

    /// A ReplicaSet of no size with the template of the Deployment.
    fn new_set(&mut self) -> ReplicaSet {
        let spec = self.deployment.spec.clone().unwrap_or_default();
        let collisions = self.status().collision_count.unwrap_or_default();
        let computed = template_hash(&spec.template, collisions);
        let hash = self.choices.template_hash(self.key.to_string(), &computed);
        let mut template = spec.template;
        let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
        labels.insert(TEMPLATE_HASH.to_owned(), hash.clone());
        let labels = labels.clone();
        let mut selector = spec.selector;
        selector.match_labels.get_or_insert_default().insert(TEMPLATE_HASH.to_owned(), hash.clone());
        let prefix: String = self.key.name.chars().take(MAX_NAME - 1 - hash.len().min(MAX_NAME - 1)).collect();
        ReplicaSet {
            metadata: ObjectMeta {
                name: Some(format!("{prefix}-{hash}")),
                namespace: Some(self.key.namespace.to_string()),
                owner_references: Some(vec![controller_reference(&SimObject::Deployment(Arc::clone(&self.deployment)))]),
                labels: Some(labels),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(0),
                min_ready_seconds: spec.min_ready_seconds.filter(|seconds| *seconds != 0),
                selector,
                template: Some(template),
            }),
            status: None,
        }
    }

    /// How many pods the new ReplicaSet shall have, among these others (`NewRSNewReplicas`).
    pub(super) fn new_size(&self, others: &[Set], new: &ReplicaSet) -> i32 {
        let desired = desired(&self.deployment);
        if !is_rolling_update(&self.deployment) {
            return desired;
        }
        let now = total(others, size).saturating_add(size(new));
        let most = desired.saturating_add(max_surge(&self.deployment));
        if now >= most {
            return size(new);
        }
        size(new) + (most - now).min(desired - size(new))
    }

    /// Another ReplicaSet has the name: the next one gets another hash. The creation is tried, and refused.
    fn report_collision(&mut self, set: ReplicaSet) -> Ended {
        let collisions = self.status().collision_count.unwrap_or_default();
        self.status_mut().collision_count = Some(collisions.saturating_add(1));
        self.write_status();
        self.writes.push(Write::Create(set.into()));
        Ended
    }

    /// The new ReplicaSet could not be created.
    pub(super) fn report_failed_creation(&mut self, name: &str, error: &ApiError) {
        let message = format!("Failed to create new replica set \"{name}\": {error}");
        if self.has_progress_deadline() {
            let condition =
                status::condition(PROGRESSING, "False", "ReplicaSetCreateError", message.clone(), self.now);
            status::set(self.status_mut(), condition);
            self.write_status();
        }
        self.warn("ReplicaSetCreateError", message);
    }
}

/// What the API server answers to a write: the next write of the same sync builds on it.
pub(super) fn written(mut set: Set) -> Set {
    Arc::make_mut(&mut set).metadata.resource_version = None;
    set
}
