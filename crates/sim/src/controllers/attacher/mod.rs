//! Storage drivers that attach and detach volumes (external-attacher).
//!
//! A VolumeAttachment is a request; the disks of the [`World`](crate::World) decide the result.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::{CSINode, VolumeAttachment, VolumeError};

use crate::api::whole_seconds;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::settings::DriverState;
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;
use crate::volumes::{annotation, new_disk};

/// The annotation of a VolumeAttachment with the driver's name of the node.
const NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attacher {
    /// The calls for VolumeAttachments that have not succeeded.
    calls: BTreeMap<SimKey, Call>,
}

/// What the driver does about a VolumeAttachment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Call {
    /// What the storage is doing, and until when; nothing if the last call failed.
    running: Option<(Action, Timestamp)>,
    /// How many calls in a row failed.
    failures: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Attach,
    Detach,
}

/// The finalizer of a driver's VolumeAttachments and volumes (`GetFinalizerName`).
fn finalizer(driver: &str) -> String {
    let name = driver.replace(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-', "-");
    let end = if name.ends_with('-') { "X" } else { "" };
    format!("external-attacher/{name}{end}")
}

fn has_finalizer(finalizers: Option<&Vec<String>>, finalizer: &str) -> bool {
    finalizers.is_some_and(|all| all.iter().any(|other| other == finalizer))
}

fn is_attached(attachment: &VolumeAttachment) -> bool {
    attachment.status.as_ref().is_some_and(|status| status.attached)
}

fn volume_of(attachment: &VolumeAttachment) -> Option<&str> {
    attachment.spec.source.persistent_volume_name.as_deref()
}

/// The driver's name of a node (`getNodeID`). The name that was saved is enough to detach.
fn node_id(cx: &Context<'_>, attachment: &VolumeAttachment, with_saved: bool) -> Result<String, String> {
    let (node, driver) = (&attachment.spec.node_name, &attachment.spec.attacher);
    let problem = match cx.store.get::<CSINode>("", node) {
        Some(found) => match found.spec.drivers.iter().find(|other| other.name == *driver) {
            Some(found) => return Ok(found.node_id.clone()),
            None => format!("CSINode {node} does not contain driver {driver}"),
        },
        None => format!("csinode.storage.k8s.io \"{node}\" not found"),
    };
    let saved = annotation(&attachment.metadata, NODE_ID).filter(|_| with_saved);
    saved.map(str::to_owned).ok_or(problem)
}

impl Controller for Attacher {
    const COMPONENT: &'static str = "external-attacher";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        match change.key.kind {
            ObjectKind::VolumeAttachment => {
                let (before, after) = change.of::<VolumeAttachment>();
                match (before, after) {
                    (Some(before), Some(after)) if !differs(before, after) => {}
                    (_, Some(_)) => wakes.now(change.key.clone()),
                    (_, None) => drop(self.calls.remove(&change.key)),
                }
                let SimObject::VolumeAttachment(attachment) = change.latest() else { return };
                let Some(volume) = volume_of(attachment) else { return };
                if after.is_none() {
                    wakes.now(SimKey::new(ObjectKind::PersistentVolume, "", volume));
                }
                if cx.settings.storage.retry_on_change {
                    let failed = |key: &&SimKey| self.calls.get(key).is_some_and(|call| call.running.is_none());
                    let others = cx.store.attachments_of(volume).filter(|key| **key != change.key).filter(failed);
                    others.for_each(|key| wakes.now(key.clone()));
                }
            }
            ObjectKind::PersistentVolume => {
                let (_, after) = change.of::<PersistentVolume>();
                let deleting = |volume: &&Arc<PersistentVolume>| volume.metadata.deletion_timestamp.is_some();
                if after.filter(deleting).is_some_and(|volume| driver_finalizer(volume).is_some()) {
                    wakes.now(change.key.clone());
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, item: &Item) -> Step {
        match item {
            Item::Object(key) if key.kind == ObjectKind::VolumeAttachment => self.sync_attachment(cx, key),
            Item::Object(key) => release_volume(cx, key),
            Item::Pass if cx.settings.storage.retry_on_change => self.sync_failed(cx),
            Item::Pass => Step::none(),
        }
    }

    /// Disks that nobody has described are attached where the objects say so.
    fn resume(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        let store = cx.store;
        for (key, object) in store.of_kind(ObjectKind::VolumeAttachment) {
            let SimObject::VolumeAttachment(attachment) = object else { continue };
            wakes.now(key.clone());
            let Some(volume) = volume_of(attachment).and_then(|name| store.get::<PersistentVolume>("", name)) else {
                continue;
            };
            let name = volume.metadata.name.as_deref().unwrap_or_default();
            if cx.world.disk(name).is_none() {
                let mut disk = new_disk(store, cx.settings, volume);
                let attachments = store.attachments_of(name).filter_map(|key| store.at::<VolumeAttachment>(key));
                let nodes = attachments.filter(|attachment| is_attached(attachment));
                disk.attached_to = nodes.map(|attachment| attachment.spec.node_name.as_str().into()).collect();
                cx.world.set_disk(name, disk, cx.now);
            }
        }
        for (key, object) in store.of_kind(ObjectKind::PersistentVolume) {
            if object.is_terminating() {
                wakes.now(key.clone());
            }
        }
    }
}

/// Whether a change is more than an error that the driver reported itself (`shouldEnqueueVAChange`).
fn differs(before: &VolumeAttachment, after: &VolumeAttachment) -> bool {
    let (mut before, mut after) = (before.clone(), after.clone());
    for attachment in [&mut before, &mut after] {
        attachment.metadata.resource_version = None;
        let status = attachment.status.get_or_insert_default();
        (status.attach_error, status.detach_error) = (None, None);
    }
    before != after
}

/// The attacher's finalizer of a volume.
fn driver_finalizer(volume: &PersistentVolume) -> Option<&String> {
    volume.metadata.finalizers.iter().flatten().find(|finalizer| finalizer.starts_with("external-attacher/"))
}

/// Takes the finalizer from a volume that is being deleted, when nothing is attached any more.
fn release_volume(cx: &Context<'_>, key: &SimKey) -> Step {
    let Some(volume) = cx.store.at::<PersistentVolume>(key) else { return Step::none() };
    let Some(finalizer) = driver_finalizer(volume) else { return Step::none() };
    if volume.metadata.deletion_timestamp.is_none() || cx.store.attachments_of(&key.name).next().is_some() {
        return Step::none();
    }
    let mut released = PersistentVolume::clone(volume);
    released.metadata.finalizers.get_or_insert_default().retain(|other| other != finalizer);
    Step::writes(vec![Write::Replace(released.into())])
}

impl Attacher {
    /// The disks have changed: repeats the calls that failed, and waits for those that it started.
    fn sync_failed(&mut self, cx: &mut Context<'_>) -> Step {
        let keys: Vec<SimKey> = self.calls.keys().cloned().collect();
        let (mut writes, mut again) = (Vec::new(), None::<SignedDuration>);
        for key in keys {
            let step = self.sync_attachment(cx, &key);
            writes.extend(step.writes);
            again = [again, step.again].into_iter().flatten().min();
        }
        Step { writes, again }
    }

    fn sync_attachment(&mut self, cx: &mut Context<'_>, key: &SimKey) -> Step {
        let Some(attachment) = cx.store.at::<VolumeAttachment>(key) else {
            self.calls.remove(key);
            return Step::none();
        };
        if cx.settings.storage.driver(&attachment.spec.attacher).state == DriverState::Stopped {
            return Step::none();
        }
        let Some(volume) = volume_of(attachment) else { return Step::none() };
        if let Some((action, until)) = self.calls.get(key).and_then(|call| call.running) {
            if until > cx.now {
                return Step::again(until.duration_since(cx.now));
            }
            // What was started is finished, whatever is asked for by now.
            return match action {
                Action::Attach => self.attached(key, attachment),
                Action::Detach => self.detached(cx, key, attachment, volume),
            };
        }
        if attachment.metadata.deletion_timestamp.is_some() {
            self.detach(cx, key, attachment, volume)
        } else if !is_attached(attachment) {
            self.attach(cx, key, attachment, volume)
        } else {
            Step::none()
        }
    }

    fn start(&mut self, key: &SimKey, action: Action, until: Timestamp) {
        self.calls.entry(key.clone()).or_default().running = Some((action, until));
    }

    /// Starts to attach a volume.
    fn attach(&mut self, cx: &mut Context<'_>, key: &SimKey, attachment: &VolumeAttachment, name: &str) -> Step {
        let (mut writes, mut prepared) = (Vec::new(), attachment.clone());
        let sidecars = cx.settings.storage.sidecars;
        let finalizer = finalizer(&attachment.spec.attacher);
        let volume = match cx.store.get::<PersistentVolume>("", name) {
            Some(volume) if volume.metadata.deletion_timestamp.is_some() && sidecars => {
                Err(format!("PersistentVolume \"{name}\" is marked for deletion"))
            }
            Some(volume) => Ok(volume),
            None => Err(format!("persistentvolume \"{name}\" not found")),
        };
        let volume = match volume {
            Ok(volume) => volume,
            Err(message) => return self.fail(cx, key, attachment, writes, message),
        };
        if sidecars {
            if !has_finalizer(volume.metadata.finalizers.as_ref(), &finalizer) {
                let mut volume = PersistentVolume::clone(volume);
                volume.metadata.finalizers.get_or_insert_default().push(finalizer.clone());
                writes.push(Write::Replace(volume.into()));
            }
            match node_id(cx, attachment, false) {
                Ok(id) => drop(prepared.metadata.annotations.get_or_insert_default().insert(NODE_ID.into(), id)),
                Err(message) => return self.fail(cx, key, attachment, writes, message),
            }
        }
        let accepted = reserve(cx, volume, name, attachment);
        if accepted.is_ok() || !cx.settings.storage.finalizer_after_attach {
            if !has_finalizer(prepared.metadata.finalizers.as_ref(), &finalizer) {
                prepared.metadata.finalizers.get_or_insert_default().push(finalizer);
            }
            if prepared != *attachment {
                writes.push(Write::Replace(prepared.clone().into()));
                prepared.metadata.resource_version = None;
            }
        }
        if let Err(message) = accepted {
            return self.fail(cx, key, &prepared, writes, message);
        }
        let storage = &cx.settings.storage;
        let takes = storage.driver(&attachment.spec.attacher).attach.unwrap_or(storage.attach);
        if takes.is_positive() {
            self.start(key, Action::Attach, cx.now + takes);
            return Step::writes(writes).and_again(Some(takes));
        }
        writes.extend(self.attached(key, &prepared).writes);
        Step::writes(writes)
    }

    /// The storage has attached the volume.
    fn attached(&mut self, key: &SimKey, attachment: &VolumeAttachment) -> Step {
        self.calls.remove(key);
        let mut attachment = attachment.clone();
        let status = attachment.status.get_or_insert_default();
        status.attached = true;
        status.attach_error = None;
        Step::writes(vec![Write::Status(attachment.into())])
    }

    /// Starts to detach a volume.
    fn detach(&mut self, cx: &mut Context<'_>, key: &SimKey, attachment: &VolumeAttachment, name: &str) -> Step {
        if !has_finalizer(attachment.metadata.finalizers.as_ref(), &finalizer(&attachment.spec.attacher)) {
            return Step::none();
        }
        if cx.settings.storage.sidecars {
            let found = match cx.store.get::<PersistentVolume>("", name) {
                Some(_) => node_id(cx, attachment, true).map(drop),
                None => Err(format!("persistentvolume \"{name}\" not found")),
            };
            if let Err(message) = found {
                return self.fail(cx, key, attachment, Vec::new(), message);
            }
        }
        let node = attachment.spec.node_name.as_str();
        let attached = cx.world.disk(name).is_some_and(|disk| disk.attached_to.contains(node));
        if attached && cx.settings.storage.detach.is_positive() {
            self.start(key, Action::Detach, cx.now + cx.settings.storage.detach);
            return Step::again(cx.settings.storage.detach);
        }
        self.detached(cx, key, attachment, name)
    }

    /// The storage has detached the volume, or has failed to. external-attacher removes the finalizer first and then
    /// writes the status, if anything is left.
    fn detached(&mut self, cx: &mut Context<'_>, key: &SimKey, attachment: &VolumeAttachment, name: &str) -> Step {
        let driver = &attachment.spec.attacher;
        let failing = match cx.settings.storage.driver(driver).state {
            DriverState::Failing { message, .. } => Some(message),
            _ => cx.world.disk(name).and_then(|disk| disk.detach_error.clone()),
        };
        if let Some(message) = failing {
            return self.fail(cx, key, attachment, Vec::new(), message);
        }
        self.calls.remove(key);
        if let Some(mut disk) = cx.world.disk(name).cloned()
            && disk.attached_to.remove(attachment.spec.node_name.as_str())
        {
            cx.world.set_disk(name, disk, cx.now);
        }
        let finalizer = finalizer(driver);
        let mut released = attachment.clone();
        released.metadata.resource_version = None;
        let status = released.status.get_or_insert_default();
        (status.attached, status.detach_error, status.attachment_metadata) = (false, None, None);
        let with_finalizer = released.clone();
        if cx.settings.storage.sidecars {
            released.metadata.finalizers.get_or_insert_default().retain(|other| *other != finalizer);
            let is_last = released.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
            let mut unmarked = released.clone();
            unmarked.status = attachment.status.clone();
            let status = (!is_last).then(|| Write::Status(released.into()));
            return Step::writes([Write::Replace(unmarked.into())].into_iter().chain(status).collect());
        }
        released.metadata.finalizers = None;
        Step::writes(vec![Write::Status(with_finalizer.into()), Write::Replace(released.into())])
    }

    /// Reports an error, and makes the call again after a while.
    fn fail(
        &mut self,
        cx: &Context<'_>,
        key: &SimKey,
        attachment: &VolumeAttachment,
        mut writes: Vec<Write>,
        message: String,
    ) -> Step {
        let storage = &cx.settings.storage;
        let deleting = attachment.metadata.deletion_timestamp.is_some();
        let mut attachment = attachment.clone();
        let status = attachment.status.get_or_insert_default();
        let reported = if deleting { &mut status.detach_error } else { &mut status.attach_error };
        let is_known = reported.as_ref().is_some_and(|error| error.message.as_ref() == Some(&message));
        if storage.sidecars || !is_known {
            let (message, time) = (Some(message), Some(whole_seconds(cx.now)));
            *reported = Some(VolumeError { message, time, error_code: None });
            writes.push(Write::Status(attachment.into()));
        }
        let call = self.calls.entry(key.clone()).or_default();
        *call = Call { running: None, failures: call.failures + 1 };
        Step::writes(writes).and_again((!storage.retry_on_change).then(|| storage.retry_after(call.failures)))
    }
}

/// Asks the storage to attach a disk. From then on no other machine gets an exclusive one.
fn reserve(
    cx: &mut Context<'_>,
    volume: &PersistentVolume,
    name: &str,
    attachment: &VolumeAttachment,
) -> Result<(), String> {
    if let DriverState::Failing { message, .. } = cx.settings.storage.driver(&attachment.spec.attacher).state {
        return Err(message);
    }
    let node: Arc<str> = attachment.spec.node_name.as_str().into();
    let mut disk = cx.world.disk(name).cloned().unwrap_or_else(|| new_disk(cx.store, cx.settings, volume));
    if let Some(message) = &disk.attach_error {
        return Err(message.clone());
    }
    if let Some(holder) = disk.attached_to.iter().find(|holder| disk.exclusive && **holder != node) {
        return Err(format!("disk {name} is attached to a different instance ({holder})"));
    }
    if disk.attached_to.insert(node) || cx.world.disk(name).is_none() {
        cx.world.set_disk(name, disk, cx.now);
    }
    Ok(())
}
