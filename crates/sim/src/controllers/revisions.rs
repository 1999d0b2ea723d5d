//! The history of a pod template in ControllerRevisions (`constructHistory` and `cleanupHistory` of
//! `pkg/controller/daemon`).

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;
use stead_model::controller_of;
use stead_model::fork::Sorted;
use stead_semantics::Selector;

use super::ownership::labels;
use crate::object::SimObject;
use crate::pods::{controller_reference, template_hash};
use crate::step::{Context, Write};
use crate::store::Store;

/// The label of revisions and pods with the hash of their template.
pub(super) const HASH_LABEL: &str = "controller-revision-hash";

/// The hash label of an object; empty if it has none.
pub(super) fn hash_of(metadata: &ObjectMeta) -> &str {
    labels(metadata).get(HASH_LABEL).map_or("", String::as_str)
}

/// A workload and the template that it has now.
pub(super) struct Versioned<'a> {
    /// The workload.
    pub(super) owner: &'a SimObject,
    /// Its selector.
    pub(super) selector: &'a Selector,
    /// Its template.
    pub(super) template: &'a PodTemplateSpec,
    /// How often the hash of a template was taken by another one.
    pub(super) collisions: i32,
}

/// The revisions of a workload.
pub(super) struct History {
    /// The hash of the present template.
    pub(super) hash: String,
    /// The revisions of other templates, the oldest first.
    pub(super) old: Vec<Arc<ControllerRevision>>,
    /// Whether several revisions have the present template: pods of the others get its hash.
    pub(super) relabel: bool,
    /// What has to be written so that the history is this one.
    pub(super) writes: Vec<Write>,
}

/// The name of a new revision belongs to a revision of another template.
pub(super) struct HashCollision;

/// Which revisions have which template, as far as they were compared.
#[derive(Debug, Clone, Default)]
pub(super) struct Revisions {
    /// By the UID of the revision: the generation of the workload, and whether its template is the one of the revision.
    compared: Sorted<Arc<str>, (i64, bool)>,
}

impl Revisions {
    /// The history of a workload, with a revision for its present template.
    pub(super) fn history(
        &mut self,
        cx: &mut Context<'_>,
        versioned: &Versioned<'_>,
    ) -> Result<History, HashCollision> {
        let mut writes = Vec::new();
        let (mut current, mut old) = (Vec::new(), Vec::new());
        for mut revision in owned(cx.store, versioned, &mut writes) {
            if hash_of(&revision.metadata).is_empty() {
                let metadata = &mut Arc::make_mut(&mut revision).metadata;
                let name = metadata.name.clone().unwrap_or_default();
                metadata.labels.get_or_insert_default().insert(HASH_LABEL.into(), name);
                writes.push(Write::Replace(SimObject::ControllerRevision(Arc::clone(&revision))));
            }
            let list = if self.has_template(&revision, versioned) { &mut current } else { &mut old };
            list.push(revision);
        }
        let next = old.last().map_or(0, |newest: &Arc<ControllerRevision>| newest.revision) + 1;
        let relabel = current.len() > 1;
        let Some(mut kept) = current.pop() else {
            let revision = snapshot(cx, versioned, next)?;
            let hash = hash_of(&revision.metadata).to_owned();
            writes.push(Write::Create(revision.into()));
            return Ok(History { hash, old, relabel, writes });
        };
        writes.extend(current.into_iter().map(|revision| Write::delete(&SimObject::ControllerRevision(revision))));
        let hash = hash_of(&kept.metadata).to_owned();
        if kept.revision < next {
            Arc::make_mut(&mut kept).revision = next;
            writes.push(Write::Replace(SimObject::ControllerRevision(kept)));
        }
        Ok(History { hash, old, relabel, writes })
    }

    /// Whether a revision has the workload's template (`Match`). Fields that the types do not know are not compared: an
    /// object loses them when it is read.
    fn has_template(&mut self, revision: &ControllerRevision, versioned: &Versioned<'_>) -> bool {
        let uid = revision.metadata.uid.as_deref().unwrap_or_default();
        let generation = versioned.owner.metadata().generation.unwrap_or_default();
        if let Some((compared, matches)) = self.compared.find(|other| (**other).cmp(uid))
            && *compared == generation
        {
            return *matches;
        }
        let matches = template_of(revision).as_ref() == Some(versioned.template);
        self.compared.insert(uid.into(), (generation, matches));
        matches
    }

    /// A revision was removed.
    pub(super) fn forget(&mut self, uid: &str) {
        self.compared.remove(|other| (**other).cmp(uid));
    }
}

impl History {
    /// Deletes the oldest revisions over a limit, but none that a pod has.
    pub(super) fn truncate(&self, limit: i32, is_live: impl Fn(&str) -> bool) -> Vec<Write> {
        let surplus = self.old.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        let unused = self.old.iter().filter(|revision| !is_live(hash_of(&revision.metadata)));
        unused
            .take(surplus)
            .map(|revision| Write::delete(&SimObject::ControllerRevision(Arc::clone(revision))))
            .collect()
    }
}

/// The revisions that a workload controls, the oldest first. Matching ones without a controller are adopted.
fn owned(store: &Store, versioned: &Versioned<'_>, writes: &mut Vec<Write>) -> Vec<Arc<ControllerRevision>> {
    let owner = versioned.owner;
    let mut owned = Vec::new();
    let namespace = owner.metadata().namespace.as_deref().unwrap_or_default();
    for revision in store.all_in::<ControllerRevision>(namespace) {
        let mut revision = Arc::clone(revision);
        match controller_of(&revision.metadata) {
            Some(controller) if controller.uid != owner.uid() => continue,
            None if revision.metadata.deletion_timestamp.is_some() => continue,
            _ if !versioned.selector.matches(labels(&revision.metadata)) => continue,
            Some(_) => {}
            None => {
                let metadata = &mut Arc::make_mut(&mut revision).metadata;
                metadata.owner_references.get_or_insert_default().push(controller_reference(owner));
                metadata.resource_version = None;
                writes.push(Write::Replace(SimObject::ControllerRevision(Arc::clone(&revision))));
            }
        }
        owned.push(revision);
    }
    owned.sort_by_key(|revision| revision.revision);
    owned
}

/// The template of a revision.
fn template_of(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let template = revision.data.as_ref()?.0.get("spec")?.get("template")?;
    stead_model::pod_template("controllerrevision", template).ok()
}

/// A revision of the present template.
fn snapshot(
    cx: &mut Context<'_>,
    versioned: &Versioned<'_>,
    revision: i64,
) -> Result<ControllerRevision, HashCollision> {
    let owner = versioned.owner;
    let computed = template_hash(versioned.template, versioned.collisions);
    let hash = cx.choices.template_hash(owner.key().to_string(), &computed);
    let metadata = owner.metadata();
    let name = format!("{}-{hash}", metadata.name.as_deref().unwrap_or_default());
    let namespace = metadata.namespace.clone().unwrap_or_default();
    if cx.store.get::<ControllerRevision>(&namespace, &name).is_some() {
        return Err(HashCollision);
    }
    let mut template = json!(versioned.template);
    template["$patch"] = "replace".into();
    let mut labels =
        versioned.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    labels.insert(HASH_LABEL.into(), hash);
    Ok(ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(namespace),
            labels: Some(labels),
            annotations: metadata.annotations.clone(),
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!({ "spec": { "template": template } }))),
        revision,
    })
}
