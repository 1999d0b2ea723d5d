//! What the controller of a running cluster has in memory, estimated from its objects.
//!
//! Attached is what the nodes' status lists. A VolumeAttachment that is not listed is an operation in progress, one that
//! has failed, or an attachment that nobody knows of. The clocks of volumes that no pod needs are not in any object: the
//! events of the pods that wait for them say when they ran at the latest.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use stead_model::times::{created, near};
use stead_model::{Kind, controller_of, unique_volume_name};

use super::operations::{OperationKind, Running};
use super::state::{VolumeSpec, VolumeState, volumes_in_use};
use super::{AttachDetach, is_managed};
use crate::object::{ObjectKind, SimKey};
use crate::pods;
use crate::step::{Context, Wakes};
use crate::store::Store;

/// Where a pod that was bound longer ago waits for a volume, it was told.
const TOLD_AFTER: SignedDuration = SignedDuration::from_secs(1);
/// Times are written down to the second, which loses half of one on average.
const LOST: SignedDuration = SignedDuration::from_millis(500);
/// How long an operation waits for the driver.
const TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// The events about pods that wait for volumes of other nodes.
struct Waiting {
    /// Whether the snapshot has any events at all.
    any: bool,
    /// By pod and the name of the volume in quotes: the message, and when it was first reported.
    notes: BTreeMap<SimKey, Vec<(String, Timestamp)>>,
}

impl Waiting {
    fn read(store: &Store, leader: Timestamp) -> Waiting {
        let mut waiting = Waiting { any: false, notes: BTreeMap::new() };
        let Some(kind) = Kind::named("Event").map(ObjectKind::of) else { return waiting };
        for (_, object) in store.of_kind(kind) {
            waiting.any = true;
            let Ok(event) = serde_json::from_value::<Event>(object.to_json()) else { continue };
            let message = event.message.unwrap_or_default();
            let waits = ["Waiting for detach for volume", "Multi-Attach error for volume"];
            let last = event.last_timestamp.as_ref().or(event.first_timestamp.as_ref()).map(|time| time.0);
            let first = event.first_timestamp.as_ref().or(event.last_timestamp.as_ref()).map(|time| time.0);
            let about = &event.involved_object;
            let (Some(namespace), Some(name), Some(first)) = (&about.namespace, &about.name, first) else { continue };
            if waits.iter().any(|text| message.starts_with(text)) && last.is_some_and(|last| last >= leader) {
                waiting.notes.entry(SimKey::pod(namespace, name)).or_default().push((message, first));
            }
        }
        waiting
    }

    /// What a pod was told about a volume, and when.
    fn about<'a>(&'a self, pod: &SimKey, volume: &str) -> Option<&'a (String, Timestamp)> {
        let quoted = format!("\"{volume}\"");
        self.notes.get(pod)?.iter().find(|(message, _)| message.contains(&quoted))
    }
}

/// Since when kube-controller-manager runs: it has nothing in memory that is older.
fn leader_since(store: &Store) -> Timestamp {
    let lease = store.get::<Lease>("kube-system", "kube-controller-manager");
    let acquired = lease.and_then(|lease| lease.spec.as_ref()?.acquire_time.as_ref());
    acquired.map_or(Timestamp::MIN, |time| time.0)
}

impl AttachDetach {
    pub(super) fn recover(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        let store = cx.store;
        let leader = leader_since(store);
        let waiting = Waiting::read(store, leader);
        let specs: BTreeMap<String, VolumeSpec> = store
            .all::<PersistentVolume>()
            .filter_map(|volume| Some((unique_volume_name(volume)?, VolumeSpec::of(volume))))
            .collect();
        for node in store.all::<Node>() {
            self.recover_node(node, &specs);
        }
        for attachment in store.all::<VolumeAttachment>() {
            self.recover_missing_node(store, attachment);
        }
        let at = self.first_loop(cx);
        for pod in store.all::<Pod>() {
            // The volumes are woken below.
            self.pod_needs_volumes(cx, pod, at, &mut Wakes::default());
        }
        for attachment in store.all::<VolumeAttachment>() {
            self.recover_attachment(cx, attachment);
        }
        let volumes: Vec<Arc<str>> = self.state.volumes().cloned().collect();
        for unique in volumes {
            self.state.with_volume(&unique, |volume| recover_clocks(cx, volume, &waiting, leader, at));
            self.wake(cx, &unique, wakes);
        }
    }

    fn recover_node(&mut self, node: &Node, specs: &BTreeMap<String, VolumeSpec>) {
        let name: Arc<str> = node.metadata.name.as_deref().unwrap_or_default().into();
        let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_deref()).unwrap_or_default();
        let attached: Vec<Arc<str>> = attached.iter().map(|volume| Arc::from(volume.name.as_str())).collect();
        for unique in &attached {
            self.state.with_volume(unique, |volume| {
                volume.attached.entry(Arc::clone(&name)).or_default().confirmed = true;
                volume.spec = specs.get(&**unique).cloned();
            });
        }
        self.state.with_node(&name, |state| {
            state.managed = is_managed(node);
            state.in_use = volumes_in_use(node).iter().map(|volume| Arc::from(volume.as_str())).collect();
            state.attached.extend(attached.iter().cloned());
            state.report = (!attached.is_empty()).then(|| attached.into_iter().collect());
        });
    }

    /// A Node that is deleted while its pods use volumes is kept, with these as in use (`DeleteNode` refuses, and the last
    /// report of the Node stays).
    fn recover_missing_node(&mut self, store: &Store, attachment: &VolumeAttachment) {
        let node: Arc<str> = attachment.spec.node_name.as_str().into();
        let is_attached = attachment.status.as_ref().is_some_and(|status| status.attached);
        let has_pods = store.get::<Node>("", &node).is_none() && store.pods_on(&node).next().is_some();
        if !is_attached || !has_pods || attachment.metadata.deletion_timestamp.is_some() {
            return;
        }
        let name = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
        let Some(persistent) = store.get::<PersistentVolume>("", name) else { return };
        let Some(unique) = unique_volume_name(persistent).map(Arc::<str>::from) else { return };
        self.state.with_volume(&unique, |volume| {
            volume.attached.entry(Arc::clone(&node)).or_default().confirmed = true;
            volume.spec = Some(VolumeSpec::of(persistent));
        });
        self.state.with_node(&node, |state| {
            state.managed = true;
            state.in_use.insert(Arc::clone(&unique));
            state.attached.insert(Arc::clone(&unique));
        });
    }

    fn recover_attachment(&mut self, cx: &mut Context<'_>, attachment: &VolumeAttachment) {
        let name = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
        let Some(persistent) = cx.store.get::<PersistentVolume>("", name) else { return };
        let Some(unique) = unique_volume_name(persistent).map(Arc::<str>::from) else { return };
        let node: Arc<str> = attachment.spec.node_name.as_str().into();
        let status = attachment.status.clone().unwrap_or_default();
        let spec = VolumeSpec::of(persistent);
        let check_at = self.next_check(cx);
        let (now, key) = (cx.now, VolumeState::operation_key(Some(&spec), &node));
        self.state.with_volume(&unique, |volume| {
            if volume.attached.contains_key(&node) {
                if !status.attached {
                    volume.check_at = Some(check_at);
                }
                return;
            }
            let deletion = attachment.metadata.deletion_timestamp.as_ref().map(|time| time.0);
            let (kind, since, error) = match deletion {
                Some(at) => (OperationKind::Detach, at, status.detach_error),
                None => (OperationKind::Attach, created(&attachment.metadata).unwrap_or(now), status.attach_error),
            };
            let age = now.duration_since(since);
            let in_progress = deletion.is_some() || volume.desired.contains_key(&node);
            let is_running = in_progress && error.is_none();
            if is_running {
                let started = if age < TIMEOUT { since } else { now };
                let mut running = Running::new(key, kind, &node, started, cx.choices);
                running.spec = Some(spec.clone());
                let pods = volume.desired.get(&node).map(|desired| desired.pods.values().cloned().collect());
                running.pods = pods.unwrap_or_default();
                volume.operations.start(running, now);
            } else if in_progress {
                // The delay doubles, so it is about half of the time since the first failure.
                let at = error.and_then(|error| error.time).map_or(now, |time| time.0.min(now));
                volume.operations.add_failed(key, kind, at, age / 2);
            }
            if kind == OperationKind::Detach || !is_running || age >= TIMEOUT {
                volume.attached.entry(Arc::clone(&node)).or_default().confirmed =
                    kind == OperationKind::Detach && is_running;
                volume.spec = Some(spec);
            }
        });
        if self.state.volume(&unique).is_some_and(|volume| volume.attached.contains_key(&node)) {
            self.state.with_node(&node, |node| node.attached.insert(unique));
        }
    }
}

/// Since when a volume is to be detached, and which pods were told to wait for it.
fn recover_clocks(cx: &Context<'_>, volume: &mut VolumeState, waiting: &Waiting, leader: Timestamp, at: Timestamp) {
    let undesired = volume.attached.keys().filter(|node| !volume.desired.contains_key(*node)).cloned();
    let undesired: Vec<Arc<str>> = undesired.collect();
    if !undesired.is_empty() {
        let since = undesired_since(cx, volume, waiting).clamp(leader.min(cx.now), cx.now);
        for node in &undesired {
            volume.attached.entry(Arc::clone(node)).and_modify(|found| found.detach_requested = Some(since));
        }
    }
    let missing = |node: &Arc<str>| !volume.attached.get(node).is_some_and(|found| found.confirmed);
    let missing: Vec<Arc<str>> = volume.desired.keys().filter(|node| missing(node)).cloned().collect();
    let is_taken = volume.attached.values().any(|found| found.confirmed);
    for node in &missing {
        let Some(desired) = volume.desired.get_mut(node) else { continue };
        let was_told = |pod: &SimKey| match waiting.any {
            true => waiting.about(pod, &desired.spec.name).is_some(),
            false => cx.store.at::<Pod>(pod).is_some_and(|pod| bound_at(pod) < cx.now - TOLD_AFTER),
        };
        desired.reported = is_taken && desired.spec.exclusive && desired.pods.values().any(was_told);
    }
    volume.reconcile_at = (!undesired.is_empty() || !missing.is_empty()).then_some(at);
}

fn bound_at(pod: &Pod) -> Timestamp {
    let scheduled = pods::condition(pod, "PodScheduled").and_then(|condition| condition.last_transition_time.as_ref());
    scheduled.map(|time| time.0).or_else(|| created(&pod.metadata)).unwrap_or(Timestamp::MIN)
}

/// When a volume was last needed where it is: when its users there ended, or else before the pods that wait for it were
/// told so, or were created.
fn undesired_since(cx: &Context<'_>, volume: &VolumeState, waiting: &Waiting) -> Timestamp {
    let pods = volume.desired.values().flat_map(|desired| desired.pods.values().map(move |pod| (pod, &desired.spec)));
    let times = pods.map(|(pod, spec)| match waiting.about(pod, &spec.name) {
        Some((message, first)) if message.contains("exclusively attached") => *first,
        Some((_, first)) => released_after(cx, pod, *first),
        None => cx.store.at::<Pod>(pod).and_then(|pod| created(&pod.metadata)).map_or(cx.now, |at| at + LOST),
    });
    let ended = || volume.any_spec().and_then(|spec| users_ended(cx, volume, &spec.name));
    ended().or(times.min()).unwrap_or(cx.now)
}

/// When the pods have ended that used a volume where it is; none while their objects are gone.
fn users_ended(cx: &Context<'_>, volume: &VolumeState, name: &str) -> Option<Timestamp> {
    let claim = cx.store.get::<PersistentVolume>("", name)?.spec.as_ref()?.claim_ref.clone()?;
    let (namespace, claim) = (claim.namespace.unwrap_or_default(), claim.name.unwrap_or_default());
    let users = cx.store.pods_using(&namespace, &claim).filter_map(|key| cx.store.at::<Pod>(key));
    let there = users.filter(|pod| pods::node_of(pod).is_some_and(|node| volume.attached.contains_key(node)));
    let finished = |pod: &Pod| {
        let containers = pod.status.as_ref()?.container_statuses.as_ref()?;
        let ends = containers.iter().filter_map(|found| found.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
        ends.map(|time| time.0).max()
    };
    there.filter(|pod| pods::has_ended(pod)).filter_map(|pod| finished(pod)).max().map(|at| at + LOST)
}

/// When the pod was gone that a volume was needed for at a time, because of which another pod waits. A ReplicaSet counts
/// the pods that are being deleted: the last of them went when its status changed last. Otherwise it was at some time since
/// then, and not so long ago that the volume would be gone: half of that is expected.
fn released_after(cx: &Context<'_>, pod: &SimKey, seen: Timestamp) -> Timestamp {
    let set = cx.store.at::<Pod>(pod).and_then(|pod| {
        let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet")?;
        cx.store.get::<ReplicaSet>(pod.metadata.namespace.as_deref().unwrap_or_default(), &owner.name)
    });
    let fields = set.and_then(|set| set.metadata.managed_fields.as_ref()).into_iter().flatten();
    let by_status = fields.filter(|entry| entry.subresource.as_deref() == Some("status"));
    let changed = by_status.filter_map(|entry| near(entry.time.as_ref()?.0)).max();
    if let Some(changed) = changed.filter(|at| *at > seen && *at <= cx.now) {
        return changed + LOST;
    }
    let first = cx.settings.timers.force_detach.map_or(seen, |wait| seen.max(cx.now - wait));
    first + cx.now.duration_since(first) / 2
}
