//! `rollout restart`, `undo`, `pause` and `resume`.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, ReplicaSet};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use stead_kubectl::RolloutAction;
use stead_model::controller_of;
use stead_sim::{SimKey, SimObject};

use super::{Command, CommandError};

/// The annotation of a template that `rollout restart` changes.
const RESTARTED: &str = "kubectl.kubernetes.io/restartedAt";
/// The annotation of a ReplicaSet with the revision of its Deployment.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// The label of a ReplicaSet's pods that is not part of the template.
const TEMPLATE_HASH: &str = "pod-template-hash";

impl Command<'_> {
    pub(super) fn rollout(&mut self, key: &SimKey, action: RolloutAction) -> Result<(), CommandError> {
        let mut object = self.object(key)?;
        let done = match action {
            RolloutAction::Restart => {
                let at = self.simulation.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let metadata = template(&mut object, "restarting")?.metadata.get_or_insert_default();
                metadata.annotations.get_or_insert_default().insert(RESTARTED.to_owned(), at);
                "restarted"
            }
            RolloutAction::Pause => set_paused(&mut object, true)?,
            RolloutAction::Resume => set_paused(&mut object, false)?,
            RolloutAction::Undo(revision) => {
                let before = self.earlier_template(key, &object, revision)?;
                let current = template(&mut object, "undo")?;
                if *current == before {
                    self.print(key, "skipped rollback (current template already matches)");
                    return Ok(());
                }
                *current = before;
                "rolled back"
            }
        };
        self.write(object)?;
        self.print(key, done);
        Ok(())
    }

    /// The template of a revision, or of the one before the newest if it is 0.
    fn earlier_template(
        &self,
        key: &SimKey,
        object: &SimObject,
        revision: i64,
    ) -> Result<PodTemplateSpec, CommandError> {
        let mut found: Vec<(i64, PodTemplateSpec)> = Vec::new();
        let store = self.simulation.store();
        if key.kind.name() == "Deployment" {
            let sets = store.all_owned_by::<ReplicaSet>(object.uid());
            for set in sets.filter(|set| is_controller(&set.metadata, object.uid())) {
                let number = set.metadata.annotations.as_ref().and_then(|annotations| annotations.get(REVISION));
                let number = number.and_then(|text| text.parse().ok()).unwrap_or_default();
                let mut template = set.spec.as_ref().and_then(|spec| spec.template.clone()).unwrap_or_default();
                if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
                    labels.remove(TEMPLATE_HASH);
                }
                found.push((number, template));
            }
        } else {
            let revisions = store.all_owned_by::<ControllerRevision>(object.uid());
            for item in revisions.filter(|item| is_controller(&item.metadata, object.uid())) {
                let data = item.data.as_ref().map(|data| &data.0);
                let template = data.map(|data| data["spec"]["template"].clone()).unwrap_or_default();
                found.push((item.revision, template_of(template)?));
            }
        }
        found.sort_by_key(|(number, _)| *number);
        if revision == 0 && found.len() < 2 && key.kind.name() != "Deployment" {
            return Err(CommandError::Client("no last revision to roll back to".to_owned()));
        }
        let chosen = match revision {
            0 => found.len().checked_sub(2).map(|at| found.swap_remove(at)),
            _ => found.into_iter().find(|(number, _)| *number == revision),
        };
        chosen.map(|(_, template)| template).ok_or_else(|| match revision {
            0 => CommandError::Client(format!(
                "no rollout history found for {} \"{}\"",
                key.kind.name().to_lowercase(),
                key.name
            )),
            _ => CommandError::Client(format!("unable to find specified revision {revision} in history")),
        })
    }
}

/// Whether the object with this UID controls another.
fn is_controller(metadata: &ObjectMeta, uid: &str) -> bool {
    controller_of(metadata).is_some_and(|owner| owner.uid == uid)
}

fn template_of(mut value: Value) -> Result<PodTemplateSpec, CommandError> {
    if let Some(fields) = value.as_object_mut() {
        // A revision is a patch, which says that the template is replaced.
        fields.remove("$patch");
    }
    stead_model::pod_template("controllerrevision", &value)
        .map_err(|error| CommandError::Client(format!("unreadable revision: {error}")))
}

/// The template of a workload, to change it.
pub(super) fn template<'a>(object: &'a mut SimObject, what: &str) -> Result<&'a mut PodTemplateSpec, CommandError> {
    let kind = object.kind();
    match object {
        SimObject::Deployment(object) => Ok(&mut Arc::make_mut(object).spec.get_or_insert_default().template),
        SimObject::StatefulSet(object) => Ok(&mut Arc::make_mut(object).spec.get_or_insert_default().template),
        SimObject::DaemonSet(object) => Ok(&mut Arc::make_mut(object).spec.get_or_insert_default().template),
        _ => Err(CommandError::Client(format!("{} {what} is not supported", kind.entry().plural))),
    }
}

fn set_paused(object: &mut SimObject, paused: bool) -> Result<&'static str, CommandError> {
    let kind = object.kind();
    let SimObject::Deployment(deployment) = object else {
        let what = if paused { "pausing" } else { "resuming" };
        return Err(CommandError::Client(format!("{} {what} is not supported", kind.entry().plural)));
    };
    let spec = Arc::make_mut(deployment).spec.get_or_insert_default();
    if (spec.paused == Some(true)) == paused {
        let what = if paused { "is already paused" } else { "is not paused" };
        return Err(CommandError::Client(format!("deployments.apps {what}")));
    }
    spec.paused = paused.then_some(true);
    Ok(if paused { "paused" } else { "resumed" })
}
