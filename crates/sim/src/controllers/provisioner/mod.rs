//! Storage drivers that create and delete volumes (external-provisioner and `sig-storage-lib-external-provisioner`).
//!
//! A driver is whatever a claim names as its provisioner. What it creates is a PersistentVolume and the disk behind it in
//! the [`World`](crate::World).

#[cfg(test)]
mod tests;
mod topology;
mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment};

use self::topology::TopologyCache;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::settings::DriverState;
use crate::step::{Context, Controller, DeleteOptions, Item, Step, Wakes, Write};
use crate::store::Change;
use crate::volumes::{
    BETA_PROVISIONER, PROVISIONED_BY, PROVISIONER, SELECTED_NODE, annotation, class_of_claim, volume_name,
};

/// The finalizer of a volume whose driver deletes its content first.
const DELETION_PROTECTION: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Provisioner {
    /// Calls that have not returned: the volume to create for a claim.
    creating: BTreeMap<SimKey, (Timestamp, Arc<PersistentVolume>)>,
    /// Calls that have not returned: the volume that is deleted.
    deleting: BTreeMap<SimKey, Timestamp>,
    /// How often a call for a claim or a volume failed in a row.
    failed: BTreeMap<SimKey, u32>,
    topology: TopologyCache,
}

/// Why a call failed.
struct Failure {
    message: String,
    /// Whether the scheduler has to select another node.
    reschedule: bool,
}

fn provisioner_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    annotation(&claim.metadata, PROVISIONER).or_else(|| annotation(&claim.metadata, BETA_PROVISIONER))
}

/// The driver that is responsible for a volume (`isProvisionerForVolume`).
fn driver_of(volume: &PersistentVolume) -> Option<&str> {
    let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
    annotation(&volume.metadata, PROVISIONED_BY).or_else(|| csi.map(|csi| csi.driver.as_str()))
}

fn phase(volume: &PersistentVolume) -> Option<&str> {
    volume.status.as_ref().and_then(|status| status.phase.as_deref())
}

fn is_deleted_with_claim(volume: &PersistentVolume) -> bool {
    let spec = volume.spec.as_ref();
    spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()) == Some("Delete")
}

fn has_finalizer(volume: &PersistentVolume) -> bool {
    volume.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == DELETION_PROTECTION)
}

impl Controller for Provisioner {
    const COMPONENT: &'static str = "external-provisioner";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::PersistentVolumeClaim => {
                let (_, after) = change.of::<PersistentVolumeClaim>();
                if after.is_some_and(|claim| volume_name(claim).is_none() && provisioner_of(claim).is_some()) {
                    wakes.now(change.key.clone());
                }
            }
            ObjectKind::PersistentVolume => {
                let (_, after) = change.of::<PersistentVolume>();
                if after.is_none() {
                    self.failed.remove(&change.key);
                }
                if after.is_some_and(|volume| has_work(cx, volume)) {
                    wakes.now(change.key.clone());
                }
            }
            ObjectKind::VolumeAttachment if change.after.is_none() && cx.settings.storage.retry_on_change => {
                let SimObject::VolumeAttachment(attachment) = change.latest() else { return };
                if let Some(volume) = &attachment.spec.source.persistent_volume_name {
                    let key = SimKey::new(ObjectKind::PersistentVolume, "", volume);
                    if self.failed.contains_key(&key) {
                        wakes.now(key);
                    }
                }
            }
            ObjectKind::Node | ObjectKind::CSINode => {
                fn labels(object: &Option<SimObject>) -> Option<&BTreeMap<String, String>> {
                    object.as_ref().and_then(|object| object.metadata().labels.as_ref())
                }
                let is_node = change.key.kind == ObjectKind::Node;
                if !is_node || labels(&change.before) != labels(&change.after) {
                    self.topology.forget();
                    if cx.settings.storage.retry_on_change {
                        self.failed.keys().for_each(|key| wakes.now(key.clone()));
                    }
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        let Item::Object(key) = item else { return Step::none() };
        match key.kind {
            ObjectKind::PersistentVolumeClaim => self.sync_claim(cx, key),
            ObjectKind::PersistentVolume => self.sync_volume(cx, key),
            _ => Step::none(),
        }
    }
}

/// Whether the finalizer of a volume has to be added or removed (`handleProtectionFinalizer`, from 1.31 on).
fn finalizer_differs(cx: &Context<'_>, volume: &PersistentVolume) -> bool {
    if !cx.settings.storage.sidecars || !cx.settings.since(31) {
        return false;
    }
    match is_deleted_with_claim(volume) {
        true => {
            let in_use = volume.metadata.deletion_timestamp.is_none() && phase(volume) == Some("Bound");
            in_use && !has_finalizer(volume)
        }
        false => has_finalizer(volume),
    }
}

/// Whether the content of a volume has to be deleted (`shouldDelete`).
fn is_to_be_deleted(cx: &Context<'_>, volume: &PersistentVolume) -> bool {
    let honors_policy = cx.settings.storage.sidecars && cx.settings.since(31);
    let is_ours = cx.settings.storage.sidecars || annotation(&volume.metadata, PROVISIONED_BY).is_some();
    let waits = volume.metadata.deletion_timestamp.is_none() || (honors_policy && has_finalizer(volume));
    is_ours && waits && phase(volume) == Some("Released") && is_deleted_with_claim(volume)
}

fn has_work(cx: &Context<'_>, volume: &PersistentVolume) -> bool {
    driver_of(volume).is_some() && (finalizer_differs(cx, volume) || is_to_be_deleted(cx, volume))
}

impl Provisioner {
    /// Reports a failure, and makes the call again after a while.
    fn retry(&mut self, cx: &Context<'_>, key: &SimKey, mut writes: Vec<Write>, note: Option<EventNote>) -> Step {
        writes.extend(note.filter(|_| cx.settings.storage.events).map(Write::Event));
        let failures = self.failed.entry(key.clone()).or_default();
        *failures += 1;
        let storage = &cx.settings.storage;
        let again = (!storage.retry_on_change).then(|| storage.retry_after(*failures));
        Step::writes(writes).and_again(again)
    }

    fn sync_claim(&mut self, cx: &mut Context<'_>, key: &SimKey) -> Step {
        if let Some((due, _)) = self.creating.get(key) {
            return match due.duration_since(cx.now) {
                left if left.is_positive() => Step::again(left),
                _ => self.created(cx, key),
            };
        }
        let Some(claim) = cx.store.at::<PersistentVolumeClaim>(key).filter(|claim| volume_name(claim).is_none()) else {
            self.failed.remove(key);
            return Step::none();
        };
        let Some(driver) = provisioner_of(claim) else { return Step::none() };
        let Some(class) = cx.store.get::<StorageClass>("", class_of_claim(claim)) else {
            return self.retry(cx, key, Vec::new(), None);
        };
        let selected = annotation(&claim.metadata, SELECTED_NODE).filter(|node| !node.is_empty());
        let delayed = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
        let state = cx.settings.storage.driver(driver).state;
        let name = format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default());
        let nothing_to_do = state == DriverState::Stopped
            || (delayed && selected.is_none())
            || cx.store.get::<PersistentVolume>("", &name).is_some()
            || (!cx.settings.storage.sidecars && claim.metadata.deletion_timestamp.is_some());
        if nothing_to_do {
            return Step::none();
        }
        let mut writes = Vec::new();
        if cx.settings.storage.events {
            let message = format!(
                "External provisioner is provisioning volume for claim \"{}/{}\"",
                key.namespace, key.name
            );
            writes.push(Write::Event(EventNote::normal(key, "Provisioning", message)));
        }
        let segments = match state {
            DriverState::Failing { message, reschedule } => Err(Failure { message, reschedule }),
            _ => self.topology.segments(cx, driver, claim, class, selected),
        };
        match segments {
            Ok(segments) => {
                let volume = volume::build(cx, driver, claim, class, &name, segments);
                self.creating.insert(key.clone(), (cx.now + cx.settings.storage.provision, Arc::new(volume)));
                let Step { writes: more, again } = self.sync_claim(cx, key);
                writes.extend(more);
                Step { writes, again }
            }
            Err(failure) => {
                let note = EventNote::warning(key, "ProvisioningFailed", failure.message);
                if failure.reschedule && selected.is_some() && cx.settings.storage.sidecars {
                    let mut claim = PersistentVolumeClaim::clone(claim);
                    claim.metadata.annotations.get_or_insert_default().remove(SELECTED_NODE);
                    writes.extend(Some(Write::Event(note)).filter(|_| cx.settings.storage.events));
                    writes.push(Write::Replace(claim.into()));
                    self.failed.remove(key);
                    return Step::writes(writes);
                }
                self.retry(cx, key, writes, Some(note))
            }
        }
    }

    /// The driver has created a volume. The claim may be gone meanwhile; the volume is then released.
    fn created(&mut self, cx: &mut Context<'_>, key: &SimKey) -> Step {
        self.failed.remove(key);
        let Some((_, volume)) = self.creating.remove(key) else { return Step::none() };
        let name = volume.metadata.name.clone().unwrap_or_default();
        let disk = crate::volumes::new_disk(cx.store, cx.settings, &volume);
        cx.world.set_disk(&name, disk, cx.now);
        let mut writes = vec![Write::Create(SimObject::PersistentVolume(volume))];
        if cx.settings.storage.events && cx.store.object(key).is_some() {
            let message = format!("Successfully provisioned volume {name}");
            writes.push(Write::Event(EventNote::normal(key, "ProvisioningSucceeded", message)));
        }
        Step::writes(writes)
    }

    fn sync_volume(&mut self, cx: &mut Context<'_>, key: &SimKey) -> Step {
        let volume = cx.store.at::<PersistentVolume>(key);
        let Some((volume, driver)) = volume.and_then(|volume| Some((volume, driver_of(volume)?))) else {
            self.deleting.remove(key);
            return Step::none();
        };
        let state = cx.settings.storage.driver(driver).state;
        if state == DriverState::Stopped {
            return Step::none();
        }
        if finalizer_differs(cx, volume) {
            let mut volume = PersistentVolume::clone(volume);
            let add = is_deleted_with_claim(&volume);
            let finalizers = volume.metadata.finalizers.get_or_insert_default();
            if add {
                finalizers.push(DELETION_PROTECTION.into());
            } else {
                finalizers.retain(|finalizer| finalizer != DELETION_PROTECTION);
            }
            return Step::writes(vec![Write::Replace(volume.into())]);
        }
        if !is_to_be_deleted(cx, volume) {
            self.deleting.remove(key);
            return Step::none();
        }
        let attachment = cx.store.attachments_of(&key.name).find_map(|key| cx.store.at::<VolumeAttachment>(key));
        let problem = match (state, attachment) {
            (DriverState::Failing { message, .. }, _) => Some(message),
            (_, Some(attachment)) => {
                let node = &attachment.spec.node_name;
                Some(format!("persistentvolume {} is still attached to node {node}", key.name))
            }
            (_, None) => None,
        };
        if let Some(message) = problem {
            let note = EventNote::warning(key, "VolumeFailedDelete", message);
            return self.retry(cx, key, Vec::new(), Some(note));
        }
        let due = *self.deleting.entry(key.clone()).or_insert(cx.now + cx.settings.storage.provision);
        let left = due.duration_since(cx.now);
        if left.is_positive() {
            return Step::again(left);
        }
        self.deleting.remove(key);
        self.failed.remove(key);
        cx.world.remove_disk(&key.name);
        let mut writes = vec![Write::Delete(key.clone(), DeleteOptions::default())];
        if has_finalizer(volume) {
            let mut volume = PersistentVolume::clone(volume);
            volume.metadata.resource_version = None;
            volume.metadata.finalizers.get_or_insert_default().retain(|finalizer| finalizer != DELETION_PROTECTION);
            writes.push(Write::Replace(volume.into()));
        }
        Step::writes(writes)
    }
}
