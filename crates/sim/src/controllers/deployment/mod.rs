//! The Deployment controller (`pkg/controller/deployment`).
//!
//! A [`Sync`] is one look at a Deployment. As in Kubernetes it works on copies that it read at the beginning: a second
//! write to the same object is refused as a conflict, and the Deployment is looked at again.

mod limits;
mod new_replica_set;
mod replica_sets;
mod rollback;
mod rollout;
mod scaling;
mod status;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use stead_model::controller_of;
use stead_semantics::{Labels, Selector};

use crate::choices::Choices;
use crate::error::ApiError;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::ownership::{self, Claim, claim, resolve, wake_owners};
use crate::settings::Settings;
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::{Change, Store};
use replica_sets::{Set, by_age};

/// What the component has in memory: nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deployments {}

impl Controller for Deployments {
    const COMPONENT: &'static str = "deployment-controller";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::Deployment if change.after.is_some() => wakes.now(change.key.clone()),
            ObjectKind::ReplicaSet => wake_owners(cx.store, change, ObjectKind::Deployment, wakes),
            ObjectKind::Pod if change.after.is_none() => {
                if let Some(deployment) = recreated_by(cx.store, change.latest()) {
                    wakes.now(deployment);
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        let Some(mut sync) = Sync::begin(cx, key) else { return Step::none() };
        // A sync that ends early has said all that it has to say.
        let _ = sync.run();
        Step::writes(sync.writes).and_again(sync.again)
    }

    fn refused(&mut self, cx: &mut Context<'_>, item: &Item, write: &Write, error: &ApiError) -> Vec<Write> {
        let (Item::Object(key), Write::Create(set)) = (item, write) else { return Vec::new() };
        if matches!(error, ApiError::AlreadyExists(_)) {
            return Vec::new();
        }
        let Some(mut sync) = Sync::begin(cx, key) else { return Vec::new() };
        sync.writes.clear();
        sync.report_failed_creation(set.metadata().name.as_deref().unwrap_or_default(), error);
        sync.writes
    }
}

/// The Deployment whose last pod this was, if it recreates its pods (`deletePod`).
fn recreated_by(store: &Store, pod: &SimObject) -> Option<SimKey> {
    let namespace = pod.metadata().namespace.as_deref().unwrap_or_default();
    let set = resolve(store, ObjectKind::ReplicaSet, namespace, controller_of(pod.metadata())?)?;
    let owner = controller_of(store.object(&set)?.metadata())?;
    let key = resolve(store, ObjectKind::Deployment, namespace, owner)?;
    let deployment = store.at::<Deployment>(&key)?;
    let mut sets = store.all_owned_by::<ReplicaSet>(&owner.uid);
    let has_pods = |set: &Set| pods_of(store, set).next().is_some();
    (!limits::is_rolling_update(deployment) && !sets.any(has_pods)).then_some(key)
}

/// The pods that a ReplicaSet controls.
fn pods_of<'a>(store: &'a Store, set: &'a ReplicaSet) -> impl Iterator<Item = &'a Arc<Pod>> {
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let controls = move |pod: &&Arc<Pod>| controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid);
    store.all_owned_by::<Pod>(uid).filter(controls)
}

/// The sync ends here: what is missing is done by a later one.
struct Ended;

/// One look at a Deployment (`syncDeployment`).
struct Sync<'a> {
    store: &'a Store,
    settings: &'a Settings,
    choices: &'a mut Choices,
    now: Timestamp,
    key: &'a SimKey,
    /// The Deployment as it was read, with the changes of this sync.
    deployment: Arc<Deployment>,
    /// Its ReplicaSets as they were read, older ones first.
    sets: Vec<Set>,
    writes: Vec<Write>,
    again: Option<SignedDuration>,
}

/// The ReplicaSets of a Deployment: the one with its template, and all others, older ones first.
#[derive(Clone)]
struct Sets {
    new: Option<Set>,
    old: Vec<Set>,
}

impl Sets {
    fn all(&self) -> impl Iterator<Item = &Set> {
        self.old.iter().chain(&self.new)
    }
}

impl<'a> Sync<'a> {
    /// Reads the Deployment and claims its ReplicaSets.
    fn begin(cx: &'a mut Context<'_>, key: &'a SimKey) -> Option<Sync<'a>> {
        let store = cx.store;
        let deployment = Arc::clone(store.at::<Deployment>(key)?);
        let selector = Selector::from_label_selector(Some(&deployment.spec.as_ref()?.selector)).ok()?;
        let owner = SimObject::Deployment(Arc::clone(&deployment));
        let (mut sets, mut writes) = (Vec::new(), Vec::new());
        let own = store.all_owned_by::<ReplicaSet>(owner.uid());
        let orphans = store.orphans_in(ObjectKind::ReplicaSet, &key.namespace).filter_map(|object| match object {
            SimObject::ReplicaSet(set) => Some(set),
            _ => None,
        });
        for set in own.chain(orphans) {
            let matches = || selector.matches(set.metadata.labels.as_ref().unwrap_or(&Labels::new()));
            let claimed = claim(&set.metadata, &deployment.metadata, matches);
            match claimed {
                Claim::Own => {}
                Claim::Adopt => writes.push(ownership::adopt(&SimObject::ReplicaSet(Arc::clone(set)), &owner)),
                Claim::Release => writes.push(ownership::release(&SimObject::ReplicaSet(Arc::clone(set)), &owner)),
                Claim::Ignore => {}
            }
            if matches!(claimed, Claim::Own | Claim::Adopt) {
                sets.push(Arc::clone(set));
            }
        }
        sets.sort_by(|a, b| by_age(a, b));
        let (settings, now, choices) = (cx.settings, cx.now, &mut *cx.choices);
        Some(Sync { store, settings, choices, now, key, deployment, sets, writes, again: None })
    }

    fn run(&mut self) -> Result<(), Ended> {
        if self.deployment.metadata.deletion_timestamp.is_some() {
            let sets = self.find_sets(false)?;
            self.sync_status(&sets);
            return Ok(());
        }
        self.check_paused_conditions();
        if self.is_paused() {
            return self.sync();
        }
        if self.rollback_to().is_some() {
            return self.rollback();
        }
        let sets = self.find_sets(false)?;
        let desired = limits::desired(&self.deployment);
        let scaled = |set: &Set| replica_sets::desired_replicas(set).is_some_and(|noted| noted != desired);
        if replica_sets::active(sets.all()).iter().any(scaled) {
            return self.sync();
        }
        if limits::is_rolling_update(&self.deployment) { self.roll_out() } else { self.recreate() }
    }

    /// What happens to a Deployment that is paused or was scaled.
    fn sync(&mut self) -> Result<(), Ended> {
        let sets = self.find_sets(false)?;
        self.scale(&sets);
        if self.is_paused() && self.rollback_to().is_none() {
            self.clean_up(&sets.old);
        }
        self.sync_status(&sets);
        Ok(())
    }

    fn is_paused(&self) -> bool {
        self.deployment.spec.as_ref().and_then(|spec| spec.paused).unwrap_or_default()
    }

    /// The current status, with the changes of this sync.
    fn status(&self) -> DeploymentStatus {
        self.deployment.status.clone().unwrap_or_default()
    }

    fn status_mut(&mut self) -> &mut DeploymentStatus {
        Arc::make_mut(&mut self.deployment).status.get_or_insert_default()
    }

    /// Writes the status and the annotations.
    fn write_status(&mut self) {
        self.writes.push(Write::Status(SimObject::Deployment(Arc::clone(&self.deployment))));
    }

    fn report(&mut self, reason: &'static str, message: String) {
        self.writes.push(Write::Event(EventNote::normal(self.key, reason, message)));
    }

    fn warn(&mut self, reason: &'static str, message: String) {
        self.writes.push(Write::Event(EventNote::warning(self.key, reason, message)));
    }
}

#[cfg(test)]
mod tests;
