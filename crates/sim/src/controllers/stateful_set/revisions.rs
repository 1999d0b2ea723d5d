//! The templates that a StatefulSet has and had, as ControllerRevisions (`getStatefulSetRevisions`,
//! `pkg/controller/history`).

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;
use stead_model::fork::Sorted;
use stead_model::{controller_of, times};
use stead_semantics::{Labels, Selector};

use super::identity::revision_of;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::ownership;
use crate::pods::{controller_reference, template_hash};
use crate::step::{Context, DeleteOptions, Write};
use crate::store::Store;

/// The label with the hash of the template.
const HASH: &str = "controller.kubernetes.io/hash";

/// The longest part of a revision's name before its hash.
const MAX_PREFIX: usize = 223;

/// A revision that pods are created from.
#[derive(Debug, Clone)]
pub(super) struct Revision {
    pub(super) name: String,
    pub(super) template: Arc<PodTemplateSpec>,
}

/// The revisions of a set.
#[derive(Debug, Clone)]
pub(super) struct Revisions {
    /// What the pods were before the update.
    pub(super) current: Revision,
    /// The template of the set.
    pub(super) update: Revision,
    /// How often the name of a revision was taken.
    pub(super) collisions: i32,
    /// All of them as they were read, lower numbers first.
    listed: Vec<Arc<ControllerRevision>>,
}

/// The templates of revisions by their UID: the data of a revision never changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Templates {
    read: Sorted<Arc<str>, Arc<PodTemplateSpec>>,
}

impl Templates {
    fn of(&mut self, revision: &ControllerRevision) -> Option<Arc<PodTemplateSpec>> {
        let uid = revision.metadata.uid.as_deref().unwrap_or_default();
        if let Some(template) = self.read.find(|other| (**other).cmp(uid)) {
            return Some(Arc::clone(template));
        }
        let data = revision.data.as_ref()?.0.pointer("/spec/template")?;
        let template = Arc::new(stead_model::pod_template("controllerrevision", data).ok()?);
        self.read.insert(uid.into(), Arc::clone(&template));
        Some(template)
    }

    /// Forgets the template of a revision that is gone.
    pub(super) fn forget(&mut self, uid: &str) {
        self.read.remove(|other| (**other).cmp(uid));
    }
}

/// The revisions that belong to a set or could be adopted by it, lower numbers first.
pub(super) fn list(store: &Store, set: &StatefulSet, selector: &Selector) -> Vec<Arc<ControllerRevision>> {
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let controls = |revision: &&Arc<ControllerRevision>| {
        controller_of(&revision.metadata).is_some_and(|controller| controller.uid == uid)
    };
    let own = store.all_owned_by::<ControllerRevision>(uid).filter(controls);
    let orphans = store.orphans_in(ObjectKind::ControllerRevision, namespace).filter_map(|object| match object {
        SimObject::ControllerRevision(revision) => Some(revision),
        _ => None,
    });
    let matches = |revision: &&Arc<ControllerRevision>| {
        selector.matches(revision.metadata.labels.as_ref().unwrap_or(&Labels::new()))
    };
    let mut listed: Vec<_> = own.chain(orphans).filter(matches).cloned().collect();
    listed.sort_by(|a, b| by_revision(a, b));
    listed
}

fn by_revision(a: &ControllerRevision, b: &ControllerRevision) -> Ordering {
    let created = |revision: &ControllerRevision| times::created(&revision.metadata);
    a.revision.cmp(&b.revision).then_with(|| created(a).cmp(&created(b))).then_with(|| name(a).cmp(name(b)))
}

fn name(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

/// Adopts revisions without a controller.
pub(super) fn adopt_orphans(listed: &[Arc<ControllerRevision>], set: &Arc<StatefulSet>, writes: &mut Vec<Write>) {
    let owner = SimObject::StatefulSet(Arc::clone(set));
    for orphan in listed.iter().filter(|revision| controller_of(&revision.metadata).is_none()) {
        writes.push(ownership::adopt(&SimObject::ControllerRevision(Arc::clone(orphan)), &owner));
    }
}

/// The current and the update revision. The latter is created if no revision has the template of the set, and gets the
/// highest number if an older one has it.
pub(super) fn determine(
    cx: &mut Context<'_>,
    set: &Arc<StatefulSet>,
    listed: Vec<Arc<ControllerRevision>>,
    templates: &mut Templates,
    writes: &mut Vec<Write>,
) -> Option<Revisions> {
    let template = &set.spec.as_ref()?.template;
    let status = set.status.clone().unwrap_or_default();
    let mut collisions = status.collision_count.unwrap_or_default();
    let next = listed.last().map_or(1, |last| last.revision.saturating_add(1));
    let equal =
        listed.iter().filter_map(|revision| Some((revision, templates.of(revision)?))).rfind(|(_, t)| **t == *template);
    let update = match equal {
        Some((revision, template)) => {
            if listed.last().is_some_and(|last| last.metadata.uid != revision.metadata.uid) {
                let mut renumbered = ControllerRevision { revision: next, ..ControllerRevision::clone(revision) };
                renumbered.metadata.resource_version = None;
                writes.push(Write::Replace(renumbered.into()));
            }
            Revision { name: name(revision).to_owned(), template }
        }
        None => {
            let name = create(cx, set, next, &mut collisions, writes);
            Revision { name, template: Arc::new(template.clone()) }
        }
    };
    let current = listed.iter().find(|revision| Some(name(revision)) == status.current_revision.as_deref());
    let current = current
        .and_then(|current| Some(Revision { name: name(current).to_owned(), template: templates.of(current)? }))
        .unwrap_or_else(|| update.clone());
    Some(Revisions { current, update, collisions, listed })
}

/// Creates a revision with the template of the set. Gives its name.
fn create(
    cx: &mut Context<'_>,
    set: &Arc<StatefulSet>,
    number: i64,
    collisions: &mut i32,
    writes: &mut Vec<Write>,
) -> String {
    let owner = SimObject::StatefulSet(Arc::clone(set));
    let key = owner.key();
    let template = set.spec.as_ref().map(|spec| &spec.template);
    let mut patch = json!(template);
    patch["$patch"] = json!("replace");
    let data = json!({ "spec": { "template": patch } });
    let prefix: String = key.name.chars().take(MAX_PREFIX).collect();
    let mut label = None;
    loop {
        let computed = template_hash(&data, *collisions);
        let hash = cx.choices.template_hash(key.to_string(), &computed);
        let name = format!("{prefix}-{hash}");
        // A collision changes the name only.
        let hash = label.get_or_insert(hash).clone();
        match cx.store.get::<ControllerRevision>(&key.namespace, &name) {
            Some(taken) if taken.data.as_ref().is_some_and(|taken| taken.0 == data) => return name,
            Some(_) => *collisions = collisions.saturating_add(1),
            None => {
                let metadata = template.and_then(|template| template.metadata.as_ref());
                let mut labels = metadata.and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
                labels.insert(HASH.to_owned(), hash);
                let revision = ControllerRevision {
                    metadata: ObjectMeta {
                        name: Some(name.clone()),
                        namespace: Some(key.namespace.to_string()),
                        labels: Some(labels),
                        annotations: set.metadata.annotations.clone(),
                        owner_references: Some(vec![controller_reference(&owner)]),
                        ..ObjectMeta::default()
                    },
                    data: Some(RawExtension(data)),
                    revision: number,
                };
                writes.push(Write::Create(revision.into()));
                return name;
            }
        }
    }
}

impl Revisions {
    /// Deletes the oldest revisions that nothing needs, beyond the history limit (`truncateHistory`).
    pub(super) fn truncate(&self, set: &StatefulSet, pods: &[Arc<Pod>], writes: &mut Vec<Write>) {
        let limit = set.spec.as_ref().and_then(|spec| spec.revision_history_limit).unwrap_or(10);
        let Ok(limit) = usize::try_from(limit) else { return };
        let mut live: BTreeSet<&str> = pods.iter().map(|pod| revision_of(pod)).collect();
        live.extend([&*self.current.name, &*self.update.name]);
        let history: Vec<_> = self.listed.iter().filter(|revision| !live.contains(name(revision))).collect();
        for revision in history.iter().take(history.len().saturating_sub(limit)) {
            let namespace = revision.metadata.namespace.as_deref().unwrap_or_default();
            let key = SimKey::new(ObjectKind::ControllerRevision, namespace, name(revision));
            writes.push(Write::Delete(key, DeleteOptions::default()));
        }
    }
}
