//! The rollback that old clients ask for by an annotation (`rollback.go`).

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};

use super::replica_sets::{ROLLBACK_TO, Set, TEMPLATE_HASH, restore_annotations, revision, same_template};
use super::{Ended, Sync};
use crate::step::Write;

impl Sync<'_> {
    /// The revision to roll back to; zero is the last one.
    pub(super) fn rollback_to(&self) -> Option<i64> {
        self.deployment.metadata.annotations.as_ref()?.get(ROLLBACK_TO)?.parse().ok()
    }

    pub(super) fn rollback(&mut self) -> Result<(), Ended> {
        let sets = self.find_sets(true)?;
        let wanted = self.rollback_to().filter(|revision| *revision != 0);
        let Some(wanted) = wanted.or_else(|| last_revision(sets.all())) else {
            self.warn("DeploymentRollbackRevisionNotFound", "Unable to find last revision.".into());
            self.end_rollback();
            return Ok(());
        };
        let Some(set) = sets.all().find(|set| revision(set) == Some(wanted)).cloned() else {
            let message = "Unable to find the revision to rollback to.";
            self.warn("DeploymentRollbackRevisionNotFound", message.into());
            self.end_rollback();
            return Ok(());
        };
        let name = self.key.name.to_string();
        if restore_template(Arc::make_mut(&mut self.deployment), &set) {
            self.end_rollback();
            self.report("DeploymentRollback", format!("Rolled back deployment \"{name}\" to revision {wanted}"));
        } else {
            let message = format!("The rollback revision contains the same template as current deployment \"{name}\"");
            self.warn("DeploymentRollbackTemplateUnchanged", message);
            self.end_rollback();
        }
        Ok(())
    }

    /// Removes the annotation and writes the Deployment without its status.
    fn end_rollback(&mut self) {
        let status = self.store.at::<Deployment>(self.key).and_then(|stored| stored.status.clone());
        let mut deployment = Deployment::clone(&self.deployment);
        if let Some(annotations) = &mut deployment.metadata.annotations {
            annotations.remove(ROLLBACK_TO);
        }
        deployment.status = status;
        self.writes.push(Write::Replace(deployment.into()));
    }
}

/// Gives the Deployment the template and the annotations of a ReplicaSet. Gives whether the template is another one.
fn restore_template(deployment: &mut Deployment, set: &ReplicaSet) -> bool {
    let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    let Some((spec, template)) = deployment.spec.as_mut().zip(template) else { return false };
    if same_template(&spec.template, template) {
        return false;
    }
    spec.template = template.clone();
    if let Some(labels) = spec.template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
        labels.remove(TEMPLATE_HASH);
    }
    restore_annotations(deployment, set);
    true
}

/// The second highest revision (`LastRevision`).
fn last_revision<'a>(sets: impl Iterator<Item = &'a Set>) -> Option<i64> {
    let mut revisions: Vec<i64> = sets.filter_map(|set| revision(set)).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().filter(|revision| *revision != 0)
}
