//! From the objects of a cluster to a simulation that goes on with it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use stead_model::times::{CENTURY, near};
use stead_model::{
    Kind, ModelError, ObjectKey, Objects, PodView, PodVolume, Typed, controller_of, pod_volumes, unique_volume_name,
};
use stead_placement::Cluster;
use stead_sim::{Choices, Disk, Machine, MachineState, SimObject, SimType, Simulation, World};

use crate::bounds;
use crate::delays;
use crate::identity;
use crate::part::Part;
use crate::settings::{MAX_NEW_OBJECTS, settings};
use crate::stand_in;
use crate::start_failure::{forget_setback, waits_for_volume};
use crate::timers::{Clock, LOST};

/// The annotation by which a kubelet leaves attaching to the attach-detach controller.
const MANAGED_ATTACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// So long a driver may fail to attach a volume before something is wrong with it.
pub(crate) const PATIENCE: jiff::SignedDuration = jiff::SignedDuration::from_secs(120);

/// A simulation of the cluster from now on, as far as it takes part in what becomes of these pods. `whole` is what all
/// objects make. Nodes that nothing is heard of are chosen only if no other is as good: what may happen instead is told
/// beside.
pub(crate) fn resume(
    objects: &Objects,
    clock: &Clock,
    whole: &Cluster,
    about: &[PodView<'_>],
) -> Result<Simulation, ModelError> {
    let mut settings = settings(objects, clock);
    let silent = silent_nodes(objects, clock)?;
    let part = Part::of(objects, &silent, about);
    let mut world = World::default();
    add_machines(objects, clock, &silent, &mut world);
    add_broken_disks(objects, clock, &mut world);
    delays::add_workloads(objects, clock, &part, &silent, &settings, &mut world);
    let mut reader = Reader { objects, clock, part: &part, silent: &silent, found: Vec::new() };
    reader.read_all()?;
    let mut found = reader.found;
    found.extend(stand_in::missing(objects, &part)?);
    identity::complete(&mut found);
    found.extend(events(objects));
    found.extend(leader(objects, clock));
    settings.limits.objects = found.len() + MAX_NEW_OBJECTS;
    let choices = Choices::first_except(silent.iter().cloned());
    Ok(Simulation::resume_part(clock.now, settings, choices, found, world, whole.clone()))
}

/// The nodes that nothing is heard of.
fn silent_nodes(objects: &Objects, clock: &Clock) -> Result<BTreeSet<String>, ModelError> {
    let mut silent = BTreeSet::new();
    for node in objects.nodes() {
        let health = objects.node_health(node.name())?;
        if health.is_some_and(|health| health.is_unreachable(clock.leases)) {
            silent.insert(node.name().to_owned());
        }
    }
    Ok(silent)
}

/// Reads the objects that take part.
struct Reader<'a> {
    objects: &'a Objects,
    clock: &'a Clock,
    part: &'a Part,
    silent: &'a BTreeSet<String>,
    found: Vec<SimObject>,
}

impl Reader<'_> {
    /// Reads the objects of a kind whose keys are wanted, with a change; those for which the change gives false are left
    /// out.
    fn read<T: Typed>(
        &mut self,
        wanted: impl Fn(&ObjectKey) -> bool,
        change: impl Fn(&mut T, &ObjectKey) -> bool,
    ) -> Result<(), ModelError>
    where
        SimObject: From<T>,
    {
        let namespaced = Kind::named(T::KIND).is_some_and(|kind| kind.namespaced);
        for object in self.objects.of_kind(T::KIND).filter(|object| wanted(object.key())) {
            // The times of managed fields are read of few kinds.
            let kept = matches!(T::KIND, "ReplicaSet" | "PersistentVolumeClaim");
            let mut read = match bounds::read::<T>(object, kept) {
                Ok(read) => read,
                // The objects that an answer is about were read before; others that cannot be read are left out.
                Err(error) if T::KIND == "Node" => return Err(error),
                Err(_) => continue,
            };
            if !change(&mut read, object.key()) {
                continue;
            }
            let mut read = SimObject::from(read);
            bounds::bound_metadata(read.metadata_mut());
            let namespace = namespaced.then(|| object.key().namespace.clone());
            if read.metadata().namespace != namespace {
                read.metadata_mut().namespace = namespace;
            }
            self.found.push(read);
        }
        Ok(())
    }

    /// Reads the objects of a kind whose keys are wanted.
    fn read_those<T: Typed>(&mut self, wanted: impl Fn(&ObjectKey) -> bool) -> Result<(), ModelError>
    where
        SimObject: From<T>,
    {
        self.read::<T>(wanted, |_, _| true)
    }

    fn read_all(&mut self) -> Result<(), ModelError> {
        let (objects, part, clock) = (self.objects, self.part, self.clock);
        let all = |_: &ObjectKey| true;
        let volumes = self.read_storage()?;
        // Without annotations, nothing tells whose volumes the attach-detach controller attaches: as a rule, all.
        let told = objects.nodes().any(|node| node.annotation(MANAGED_ATTACH).is_some());
        self.read::<Node>(all, |node, _| {
            if !told {
                node.metadata.annotations.get_or_insert_default().insert(MANAGED_ATTACH.into(), "true".into());
            }
            restore_taint_times(node, clock.now);
            keep_volumes(node, &volumes);
            true
        })?;
        self.read::<Pod>(
            |key| part.has_pod(key),
            |pod, key| {
                if let Ok(Some(view)) = objects.pod(key) {
                    forget_setback(pod, view, clock);
                }
                pod.spec.as_mut().map(bounds::bound_spec);
                stand_in::label(&mut pod.metadata);
                true
            },
        )?;
        self.read_workloads()?;
        self.read_those::<Namespace>(all)?;
        self.read_those::<StorageClass>(all)?;
        self.read_those::<CSINode>(all)?;
        self.read_those::<CSIDriver>(all)?;
        self.read_those::<PriorityClass>(all)?;
        self.read_those::<Lease>(all)
    }

    /// Reads claims, volumes and attachments. Gives the unique names of the volumes.
    fn read_storage(&mut self) -> Result<BTreeSet<String>, ModelError> {
        let (part, silent) = (self.part, self.silent);
        self.read_those::<PersistentVolumeClaim>(|key| part.has_claim(&key.namespace, &key.name))?;
        let start = self.found.len();
        self.read::<PersistentVolume>(
            |_| true,
            |volume, _| {
                let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                claim.is_none_or(|claim| {
                    let (namespace, name) = (claim.namespace.as_deref(), claim.name.as_deref());
                    part.has_claim(namespace.unwrap_or_default(), name.unwrap_or_default())
                })
            },
        )?;
        let volumes = self.found[start..].iter().filter_map(PersistentVolume::of);
        let named =
            volumes.map(|volume| (volume.metadata.name.clone().unwrap_or_default(), unique_volume_name(volume)));
        let volumes: BTreeMap<String, Option<String>> = named.collect();
        let exists: BTreeSet<&str> = self.objects.keys("Node").map(|key| key.name.as_str()).collect();
        self.read::<VolumeAttachment>(
            |_| true,
            |attachment, _| {
                let (node, source) = (attachment.spec.node_name.as_str(), &attachment.spec.source);
                let takes_part = source.persistent_volume_name.as_ref().is_some_and(|name| volumes.contains_key(name));
                takes_part || silent.contains(node) || !exists.contains(node)
            },
        )?;
        Ok(volumes.into_values().flatten().collect())
    }

    fn read_workloads(&mut self) -> Result<(), ModelError> {
        let (objects, part) = (self.objects, self.part);
        let ours = |key: &ObjectKey| part.has_workload(key);
        let bounded = |spec: Option<&mut PodSpec>| {
            spec.map(bounds::bound_spec);
            true
        };
        self.read::<ReplicaSet>(ours, |set, _| {
            bounded(set.spec.as_mut().and_then(|spec| spec.template.as_mut()?.spec.as_mut()))
        })?;
        self.read::<Job>(ours, |job, _| {
            if let Some(deadline) = job.spec.as_mut().and_then(|spec| spec.active_deadline_seconds.as_mut()) {
                *deadline = (*deadline).min(CENTURY.as_secs());
            }
            bounded(job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()))
        })?;
        // Without its ReplicaSets, a Deployment would create another one.
        if !objects.has_none("ReplicaSet") {
            self.read::<Deployment>(ours, |deployment, _| {
                bounded(deployment.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()))
            })?;
        }
        // Without its revisions, which pods are of an older one is unknown: none is replaced for that.
        let revisions = !objects.has_none("ControllerRevision");
        self.read::<StatefulSet>(ours, |set, _| {
            if !revisions {
                let strategy = set.spec.get_or_insert_default().update_strategy.get_or_insert_default();
                (strategy.type_, strategy.rolling_update) = (Some("OnDelete".into()), None);
            }
            bounded(set.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()))
        })?;
        self.read::<DaemonSet>(ours, |set, _| {
            if !revisions {
                let strategy = set.spec.get_or_insert_default().update_strategy.get_or_insert_default();
                (strategy.type_, strategy.rolling_update) = (Some("OnDelete".into()), None);
            }
            true
        })?;
        self.read::<ControllerRevision>(
            |_| true,
            |revision, key| {
                let owner = controller_of(&revision.metadata);
                owner.is_some_and(|owner| part.has_workload(&ObjectKey::new(&owner.kind, &key.namespace, &owner.name)))
            },
        )
    }
}

/// A node lists volumes of pods that do not take part: nobody is to miss these.
fn keep_volumes(node: &mut Node, volumes: &BTreeSet<String>) {
    let Some(status) = &mut node.status else { return };
    if let Some(attached) = &mut status.volumes_attached {
        attached.retain(|volume| volumes.contains(&volume.name));
    }
    if let Some(in_use) = &mut status.volumes_in_use {
        in_use.retain(|volume| volumes.contains(volume));
    }
}

/// Kubernetes writes the times of taints down to the second, and so loses half of one on average.
fn restore_taint_times(node: &mut Node, now: Timestamp) {
    let taints = node.spec.iter_mut().flat_map(|spec| spec.taints.iter_mut().flatten());
    for added in taints.filter_map(|taint| taint.time_added.as_mut()) {
        *added = Time(near(added.0).map_or(added.0, |at| (at + LOST).min(now.max(at))));
    }
}

/// The Lease of kube-controller-manager, where it is known since when that runs and the Lease was not read.
fn leader(objects: &Objects, clock: &Clock) -> Option<SimObject> {
    let (namespace, name) = ("kube-system", "kube-controller-manager");
    let since = clock.timers.controllers_since?;
    if objects.contains(&ObjectKey::new(Lease::KIND, namespace, name)) {
        return None;
    }
    let spec = LeaseSpec { acquire_time: Some(MicroTime(since)), ..LeaseSpec::default() };
    let metadata =
        ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
    Some(Lease { metadata, spec: Some(spec) }.into())
}

/// The events that controllers remember things by.
fn events(objects: &Objects) -> impl Iterator<Item = SimObject> {
    let reasons = ["FailedAttachVolume", "FailedScheduling", "RemovingNode", "DeletingNode"];
    let relevant = move |raw: &&serde_json::Value| raw["reason"].as_str().is_some_and(|r| reasons.contains(&r));
    let raw = objects.of_kind("Event").map(|object| object.raw()).filter(relevant);
    raw.filter_map(|raw| SimObject::from_json(raw).ok())
}

fn add_machines(objects: &Objects, clock: &Clock, silent: &BTreeSet<String>, world: &mut World) {
    for node in objects.nodes() {
        let renewed = objects.node_lease(node.name()).map(|lease| lease.renewed);
        let state = if silent.contains(node.name()) { MachineState::Unknown } else { MachineState::Running };
        // Where nothing tells when the kubelet looks at its node, it is half of a period from its last look.
        let unknown = clock.now - clock.timers.node_status_period / 2;
        let lease_phase = renewed.filter(|renewed| *renewed <= clock.now).unwrap_or(unknown);
        world.set_machine(node.name(), Machine { state, since: clock.now, boots: 0, lease_phase });
    }
}

/// Disks that their drivers fail to attach or detach, and will not for any reason that Kubernetes knows of.
fn add_broken_disks(objects: &Objects, clock: &Clock, world: &mut World) {
    let attachments =
        objects.of_kind(VolumeAttachment::KIND).filter_map(|object| object.read::<VolumeAttachment>().ok());
    let attachments: Vec<_> = attachments.collect();
    for attachment in &attachments {
        let Some(volume) = attachment.spec.source.persistent_volume_name.as_deref() else { continue };
        let Some(status) = &attachment.status else { continue };
        let message = |error: &Option<k8s_openapi::api::storage::v1::VolumeError>| error.as_ref()?.message.clone();
        let same = |other: &VolumeAttachment| other.spec.source.persistent_volume_name.as_deref() == Some(volume);
        let alone = attachments.iter().filter(|other| same(other)).count() == 1;
        let created = stead_model::times::created(&attachment.metadata);
        let is_old = created.is_none_or(|at| clock.now.duration_since(at) > PATIENCE);
        let attach_error = message(&status.attach_error).filter(|_| alone && is_old && !status.attached);
        let detach_error = message(&status.detach_error);
        if attach_error.is_none() && detach_error.is_none() {
            continue;
        }
        let attached = attachments.iter().filter(|other| same(other));
        let attached = attached.filter(|other| other.status.as_ref().is_some_and(|status| status.attached));
        let disk = Disk {
            attached_to: attached.map(|other| other.spec.node_name.as_str().into()).collect(),
            needs_attach: true,
            detach_revokes: true,
            exclusive: true,
            detach_error,
            attach_error,
        };
        world.set_disk(volume, disk, clock.now);
    }
}

/// Whether all claims and volumes of a pod, and their attachments, were read: where none of a kind is there, they were not.
/// `node` is the one that the pod has.
pub(crate) fn unread(
    objects: &Objects,
    pod: PodView<'_>,
    node: Option<&str>,
    volumes: &[PodVolume],
) -> Option<&'static str> {
    let none = |kind: &str| objects.has_none(kind);
    let hangs = |volume: &PodVolume| volume.is_exclusive() && may_hang(objects, node, volume);
    match () {
        () if volumes.is_empty() => None,
        () if none("PersistentVolumeClaim") => Some("persistentvolumeclaims"),
        () if none("PersistentVolume") && volumes.iter().any(|volume| volume.volume.is_some()) => {
            Some("persistentvolumes")
        }
        () if none("VolumeAttachment") && (volumes.iter().any(hangs) || waits_for_volume(objects, pod)) => {
            Some("volumeattachments")
        }
        () => None,
    }
}

/// Whether a volume may be attached to another node than the pod's, as far as Nodes tell; of one that is not there, that it
/// has a pod with the volume tells as much.
fn may_hang(objects: &Objects, own: Option<&str>, volume: &PodVolume) -> bool {
    let said = objects.nodes().any(|node| Some(node.name()) != own && volume.is_on(node));
    let has = |other: PodView<'_>| pod_volumes(objects, other).iter().any(|found| found.volume == volume.volume);
    let gone = |node: &str| Some(node) != own && objects.node(node).ok().flatten().is_none();
    let mut pods = objects.pods_with(|pod| pod.node().is_some_and(gone));
    said || pods.any(|other| !other.has_ended() && has(other))
}
