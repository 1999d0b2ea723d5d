//! The loop (`reconciler.go`): detach what no pod needs, then attach what is missing, then report to the nodes.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{AttachedVolume, Node, PersistentVolume};
use k8s_openapi::api::storage::v1::{
    VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec, VolumeAttachmentStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::operations::{OperationKind, Running};
use super::state::{Attachment, VolumeSpec, VolumeState};
use super::{AttachDetach, is_out_of_service, is_ready};
use crate::choices::Question;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey};
use crate::settings::Settings;
use crate::step::{Context, DeleteOptions, Step, Write};
use crate::store::Store;
use crate::volumes::{attachment_name, csi_parts};

/// Whether the loop runs before a volume is needed again, as a recording says.
pub(super) fn detachment(store: &Store, volume: &VolumeState, node: &str) -> Option<Question> {
    let volume = store.get::<PersistentVolume>("", &volume.any_spec()?.name)?;
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let (namespace, name) = (claim.namespace.as_deref()?, claim.name.as_deref()?);
    Some(Question::Detachment { claim: format!("{namespace}/{name}"), node: node.to_owned() })
}

/// Whether a recording says that it does not.
fn deferred(cx: &mut Context<'_>, volume: &VolumeState, node: &str) -> bool {
    let question = detachment(cx.store, volume, node);
    question.and_then(|question| cx.choices.take_recorded(&question)).as_deref() == Some("no")
}

/// What an operation found when it looked at its VolumeAttachment.
enum Found {
    Waiting,
    Done,
    Failed(String),
}

/// The name of the VolumeAttachment of a volume and a node.
fn attachment_of(unique: &str, node: &str) -> String {
    let (driver, handle) = csi_parts(unique).unwrap_or_default();
    attachment_name(handle, driver, node)
}

fn find_attachment<'a>(store: &'a Store, unique: &str, node: &str) -> Option<&'a Arc<VolumeAttachment>> {
    store.get::<VolumeAttachment>("", &attachment_of(unique, node))
}

fn status_of(attachment: &VolumeAttachment) -> VolumeAttachmentStatus {
    attachment.status.clone().unwrap_or_default()
}

impl AttachDetach {
    /// Does what is due for a volume.
    pub(super) fn work_on(&mut self, cx: &mut Context<'_>, unique: &Arc<str>) -> Step {
        let Some(mut taken) = self.state.take_volume(unique) else { return Step::none() };
        let volume = Arc::make_mut(&mut taken);
        let mut writes = Vec::new();
        self.forget_stale_pods(cx, unique, volume);
        if volume.reconcile_at.take_if(|at| *at <= cx.now).is_some() {
            self.detach_undesired(cx, unique, volume, &mut writes);
            self.attach_desired(cx, unique, volume, &mut writes);
            writes.extend(self.report_nodes(cx));
        }
        if volume.check_at.take_if(|at| *at <= cx.now).is_some() {
            self.check_attached(cx, unique, volume);
        }
        // An operation that was started by a loop is never looked at before a loop of the same moment: the time between
        // two looks is at least the one computed here.
        for running in volume.operations.take_due(cx.now) {
            self.look(cx, unique, volume, running, &mut writes);
        }
        let next = volume.next().map(|at| at.duration_since(cx.now));
        self.state.put_volume(unique, taken);
        Step::writes(writes).and_again(next)
    }

    /// What the populator does: removes pods that are gone.
    fn forget_stale_pods(&mut self, cx: &Context<'_>, unique: &Arc<str>, volume: &mut VolumeState) {
        for (node, uid, _) in volume.stale.extract_if(.., |(.., at)| *at <= cx.now) {
            let Some(desired) = volume.desired.get_mut(&node) else { continue };
            desired.pods.remove(&uid);
            if desired.pods.is_empty() {
                volume.desired.remove(&node);
                self.state.with_node(&node, |node| node.desired.remove(unique));
                let at = self.grid.after(cx.now, cx.settings.timers.attach_detach_period);
                volume.reconcile_at = Some(volume.reconcile_at.map_or(at, |before| before.min(at)));
            }
        }
    }

    /// Looks whether the driver has done what an operation waits for (`waitForVolumeAttachDetachStatusWithLister`).
    fn look(
        &mut self,
        cx: &mut Context<'_>,
        unique: &Arc<str>,
        volume: &mut VolumeState,
        mut running: Running,
        writes: &mut Vec<Write>,
    ) {
        let attachment = find_attachment(cx.store, unique, &running.node);
        let found = match running.kind {
            OperationKind::Attach => attach_result(attachment),
            OperationKind::Detach => detach_result(attachment),
        };
        let found = match found {
            Found::Waiting if running.wait(cx.now, cx.choices) => return volume.operations.put_back(running),
            Found::Waiting => {
                let (driver, handle) = csi_parts(unique).unwrap_or_default();
                Found::Failed(format!(
                    "timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}"
                ))
            }
            found => found,
        };
        volume.reconcile(self.next_loop(cx, cx.now));
        let (key, node) = (running.key.clone(), Arc::clone(&running.node));
        let error = match found {
            Found::Failed(error) => Some(error),
            Found::Done | Found::Waiting => None,
        };
        match (running.kind, error) {
            (OperationKind::Attach, None) => {
                volume.operations.succeeded(&key);
                let name = running.spec.as_ref().map_or("nil", |spec| &spec.name).to_owned();
                self.mark(cx.now, unique, volume, &node, running.spec, true);
                let message = format!("AttachVolume.Attach succeeded for volume \"{name}\" ");
                let note = |pod| Write::Event(EventNote::normal(pod, "SuccessfulAttachVolume", message.clone()));
                writes.extend(running.pods.iter().map(note));
            }
            (OperationKind::Attach, Some(error)) => {
                volume.operations.failed(&key, cx.now);
                let name = running.spec.as_ref().map_or("nil", |spec| &spec.name).to_owned();
                self.mark(cx.now, unique, volume, &node, running.spec, false);
                let message = format!("AttachVolume.Attach failed for volume \"{name}\" : {error}");
                let note = |pod| Write::Event(EventNote::warning(pod, "FailedAttachVolume", message.clone()));
                writes.extend(running.pods.iter().map(note));
            }
            (OperationKind::Detach, None) => {
                volume.operations.succeeded(&key);
                self.mark_detached(unique, volume, &node);
            }
            // A failed detach makes no event.
            (OperationKind::Detach, Some(_)) => {
                volume.operations.failed(&key, cx.now);
                self.mark(cx.now, unique, volume, &node, running.spec, false);
            }
        }
    }

    /// Believes that a volume is attached to a node, or that it may be.
    pub(super) fn mark(
        &mut self,
        now: Timestamp,
        unique: &Arc<str>,
        volume: &mut VolumeState,
        node: &Arc<str>,
        spec: Option<VolumeSpec>,
        confirmed: bool,
    ) {
        volume.spec = spec;
        let is_new = !volume.attached.contains_key(node);
        volume.attached.entry(Arc::clone(node)).or_default().confirmed = confirmed;
        self.state.with_node(node, |node| {
            if is_new {
                node.attached.insert(Arc::clone(unique));
                node.assumed.insert(Arc::clone(unique), now);
            }
            if confirmed {
                node.add_to_report(unique);
            }
        });
    }

    fn mark_detached(&mut self, unique: &Arc<str>, volume: &mut VolumeState, node: &Arc<str>) {
        volume.attached.remove(node);
        if volume.attached.is_empty() {
            volume.spec = None;
        }
        self.state.with_node(node, |node| {
            node.attached.remove(unique);
            node.remove_from_report(unique);
        });
    }

    /// Forgets attachments that are gone (`VolumesAreAttached`).
    fn check_attached(&mut self, cx: &Context<'_>, unique: &Arc<str>, volume: &mut VolumeState) {
        if volume.spec.is_none() {
            return;
        }
        let is_gone = |node: &str| {
            find_attachment(cx.store, unique, node).is_none_or(|attachment| !status_of(attachment).attached)
        };
        let confirmed = volume.attached.iter().filter(|(_, attachment)| attachment.confirmed);
        let gone: Vec<Arc<str>> = confirmed.map(|(node, _)| node).filter(|node| is_gone(node)).cloned().collect();
        for node in gone {
            self.mark_detached(unique, volume, &node);
            volume.reconcile(self.next_loop(cx, cx.now));
        }
    }

    /// Whether a node has a volume mounted, as far as the controller knows. If it is only assumed, until when.
    fn is_mounted(&self, cx: &Context<'_>, unique: &str, node: &str, healthy: bool) -> (bool, Option<Timestamp>) {
        let Some(state) = self.state.node(node) else { return (false, None) };
        if state.in_use.contains(unique) {
            return (true, None);
        }
        let Some(since) = state.assumed.get(unique) else { return (false, None) };
        // The status reports of a healthy node that change nothing are not written here.
        let proven = *since + cx.settings.kubelet.status_period;
        (!healthy || cx.now < proven, healthy.then_some(proven))
    }

    fn detach_undesired(
        &mut self,
        cx: &mut Context<'_>,
        unique: &Arc<str>,
        volume: &mut VolumeState,
        writes: &mut Vec<Write>,
    ) {
        let undesired: Vec<Arc<str>> =
            volume.attached.keys().filter(|node| !volume.desired.contains_key(*node)).cloned().collect();
        for node in undesired {
            let key = VolumeState::operation_key(volume.spec.as_ref(), &node);
            if let Err(held) = volume.operations.check(&key, OperationKind::Detach, cx.now) {
                held.into_iter().for_each(|until| volume.reconcile(self.next_loop(cx, until)));
                continue;
            }
            let requested = volume.attached.get_mut(&node).map(|found| *found.detach_requested.get_or_insert(cx.now));
            let expires = cx.settings.timers.force_detach.zip(requested).map(|(limit, since)| since + limit);
            let object = cx.store.get::<Node>("", &node);
            let healthy = object.is_some_and(|node| is_ready(node));
            let force = !healthy && expires.is_some_and(|at| cx.now > at);
            let (mounted, until) = self.is_mounted(cx, unique, &node, healthy);
            if mounted && !force && !object.is_some_and(|node| is_out_of_service(node)) {
                let forced = expires.filter(|_| !healthy).map(|at| self.next_loop(cx, at));
                let proven = until.map(|at| self.next_loop(cx, at));
                forced.into_iter().chain(proven).for_each(|at| volume.reconcile(at));
                continue;
            }
            if deferred(cx, volume, &node) {
                volume.reconcile(self.next_loop(cx, cx.now));
                continue;
            }
            // The node has to know before the volume goes.
            self.state.with_node(&node, |node| node.remove_from_report(unique));
            writes.extend(self.report_node(cx, &node));
            let mut running = Running::new(key.clone(), OperationKind::Detach, &node, cx.now, cx.choices);
            running.spec = volume.spec.clone();
            volume.operations.start(running, cx.now);
            match find_attachment(cx.store, unique, &node) {
                Some(attachment) => {
                    let key = SimKey::of(ObjectKind::VolumeAttachment, &attachment.metadata);
                    writes.push(Write::Delete(key, DeleteOptions::default()));
                }
                None => {
                    volume.operations.succeeded(&key);
                    self.mark_detached(unique, volume, &node);
                    volume.reconcile(self.next_loop(cx, cx.now));
                }
            }
        }
    }

    /// The nodes whose pods need a volume. Where only one can get it, which one comes first is chance.
    fn in_order(cx: &mut Context<'_>, volume: &VolumeState) -> Vec<Arc<str>> {
        let mut nodes: Vec<Arc<str>> = volume.desired.keys().cloned().collect();
        let exclusive = volume.desired.values().all(|desired| desired.spec.exclusive);
        let is_free = !volume.attached.values().any(|found| found.confirmed) && !volume.operations.is_running(&None);
        if nodes.len() > 1 && exclusive && is_free {
            let name = volume.any_spec().map(|spec| spec.name.to_string()).unwrap_or_default();
            let options: Vec<&str> = nodes.iter().map(|node| &**node).collect();
            let first = cx.choices.pick(Question::Attachment { volume: name }, &options);
            nodes.swap(0, first);
        }
        nodes
    }

    fn attach_desired(
        &mut self,
        cx: &mut Context<'_>,
        unique: &Arc<str>,
        volume: &mut VolumeState,
        writes: &mut Vec<Write>,
    ) {
        for node in AttachDetach::in_order(cx, volume) {
            let Some(desired) = volume.desired.get(&node) else { continue };
            let spec = desired.spec.clone();
            let key = VolumeState::operation_key(Some(&spec), &node);
            if volume.operations.is_running(&key) {
                continue;
            }
            if let Some(found) = volume.attached.get_mut(&node).filter(|found| found.confirmed) {
                found.detach_requested = None;
                continue;
            }
            let confirmed = |found: &Attachment| found.confirmed;
            if spec.exclusive && volume.attached.values().any(confirmed) {
                if !desired.reported {
                    writes.extend(waiting_notes(cx.settings, volume, &node));
                    volume.desired.entry(node).and_modify(|desired| desired.reported = true);
                }
                continue;
            }
            if let Err(held) = volume.operations.check(&key, OperationKind::Attach, cx.now) {
                held.into_iter().for_each(|until| volume.reconcile(self.next_loop(cx, until)));
                continue;
            }
            let mut running = Running::new(key, OperationKind::Attach, &node, cx.now, cx.choices);
            running.pods = desired.pods.values().cloned().collect();
            running.pods.sort();
            running.spec = Some(spec.clone());
            volume.operations.start(running, cx.now);
            if find_attachment(cx.store, unique, &node).is_none() {
                writes.push(Write::Create(new_attachment(unique, &spec, &node).into()));
            }
        }
    }

    /// Writes the lists of attached volumes that have changed.
    pub(super) fn report_nodes(&mut self, cx: &Context<'_>) -> Vec<Write> {
        let nodes = self.state.unreported();
        nodes.iter().filter_map(|node| self.report_node(cx, node)).collect()
    }

    /// Writes the list of attached volumes of a node, if it has changed. A node that does not exist gets it when it is
    /// created again.
    fn report_node(&mut self, cx: &Context<'_>, name: &Arc<str>) -> Option<Write> {
        let report = self.state.with_node(name, |node| {
            let changed = std::mem::take(&mut node.unreported);
            node.report.clone().filter(|_| changed)
        })?;
        let mut node = Node::clone(cx.store.get::<Node>("", name)?);
        let attached = |volume: &Arc<str>| AttachedVolume { name: volume.to_string(), device_path: String::new() };
        let attached: Vec<AttachedVolume> = report.iter().map(attached).collect();
        node.status.get_or_insert_default().volumes_attached = Some(attached).filter(|list| !list.is_empty());
        node.metadata.resource_version = None;
        Some(Write::Status(node.into()))
    }
}

/// `verifyAttachmentStatus`.
fn attach_result(attachment: Option<&Arc<VolumeAttachment>>) -> Found {
    let Some(attachment) = attachment else { return Found::Waiting };
    if attachment.metadata.deletion_timestamp.is_some() {
        return Found::Failed("volume attachment is being deleted".into());
    }
    let status = status_of(attachment);
    match (status.attached, status.attach_error) {
        (true, _) => Found::Done,
        (false, Some(error)) => Found::Failed(error.message.unwrap_or_default()),
        (false, None) => Found::Waiting,
    }
}

/// `verifyDetachmentStatus`.
fn detach_result(attachment: Option<&Arc<VolumeAttachment>>) -> Found {
    match attachment.map(|attachment| status_of(attachment).detach_error) {
        None => Found::Done,
        Some(Some(error)) => Found::Failed(error.message.unwrap_or_default()),
        Some(None) => Found::Waiting,
    }
}

fn new_attachment(unique: &str, spec: &VolumeSpec, node: &str) -> VolumeAttachment {
    let (driver, _) = csi_parts(unique).unwrap_or_default();
    VolumeAttachment {
        metadata: ObjectMeta { name: Some(attachment_of(unique, node)), ..ObjectMeta::default() },
        spec: VolumeAttachmentSpec {
            attacher: driver.to_owned(),
            node_name: node.to_owned(),
            source: VolumeAttachmentSource {
                persistent_volume_name: Some(spec.name.to_string()),
                inline_volume_spec: None,
            },
        },
        status: None,
    }
}

/// Tells the pods of a node why they wait: another node has the volume (`reportMultiAttachError`). Names of pods in other
/// namespaces are not disclosed.
fn waiting_notes(settings: &Settings, volume: &VolumeState, node: &Arc<str>) -> Vec<Write> {
    let Some(desired) = volume.desired.get(node) else { return Vec::new() };
    // 1.36.4 has other words.
    let is_new = settings.since(37) || (settings.since(36) && settings.patch >= 4);
    let prefix = if is_new { "Waiting for detach" } else { "Multi-Attach error" };
    let elsewhere = volume.attached.iter().filter(|(other, found)| found.confirmed && *other != node);
    let users = elsewhere.filter_map(|(other, _)| volume.desired.get(other));
    let mut users: Vec<&SimKey> = users.flat_map(|other| other.pods.values()).collect();
    users.sort();
    let mut notes = Vec::new();
    let mut pods: Vec<&SimKey> = desired.pods.values().collect();
    pods.sort();
    for pod in pods {
        let local: Vec<&str> =
            users.iter().filter(|user| user.namespace == pod.namespace).map(|user| &*user.name).collect();
        let others = users.len() - local.len();
        let text = match (local.is_empty(), others) {
            (true, 0) if is_new => {
                "Volume is already exclusively attached to one node, waiting on detach before it can be attached to \
                 another node"
                    .to_owned()
            }
            (true, 0) => "Volume is already exclusively attached to one node and can't be attached to another".to_owned(),
            (true, others) => format!("Volume is already used by {others} pod(s) in different namespaces"),
            (false, 0) => format!("Volume is already used by pod(s) {}", local.join(", ")),
            (false, others) => {
                let local = local.join(", ");
                format!("Volume is already used by pod(s) {local} and {others} pod(s) in different namespaces")
            }
        };
        let message = format!("{prefix} for volume \"{}\" {text}", desired.spec.name);
        notes.push(Write::Event(EventNote::warning(pod, "FailedAttachVolume", message)));
    }
    notes
}
