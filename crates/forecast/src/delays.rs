//! How long pods take to start, to become Ready and to stop: learned from the history of their workload.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ContainerStatus;
use stead_model::times::{CENTURY, near};
use stead_model::{Kind, Objects, PodView, Typed, VolumeAttachmentView, deployment_of, pod_volumes};
use stead_sim::{Behaviour, ObjectKind, Settings, SimKey, Workload, WorkloadDelays, World};

use crate::part::Part;
use crate::snapshot::PATIENCE;
use crate::start_failure::cannot_start;
use crate::timers::Clock;

/// A volume that is attached so long after it was asked for was refused meanwhile.
const LATE: SignedDuration = SignedDuration::from_secs(5);

/// A pod that needed longer to start waited for something: it tells nothing of how long pods take.
const LONG: SignedDuration = SignedDuration::from_secs(60);

/// Sets how the pods behave that are in trouble, or may have to be recreated, and those of the same workloads.
pub(crate) fn add_workloads(
    objects: &Objects,
    clock: &Clock,
    part: &Part,
    silent: &BTreeSet<String>,
    settings: &Settings,
    world: &mut World,
) {
    // How long the pods of a Job go on running is not in the objects.
    for key in objects.keys(Job::KIND).filter(|key| part.has_workload(key)) {
        let job = SimKey::new(ObjectKind::Job, &key.namespace, &key.name);
        world.set_workload(job, Workload { delays: None, behaviour: Behaviour::KeepsRunning });
    }
    let exists = |node: &str| objects.node(node).ok().flatten().is_some();
    let concerned = part.pods().filter_map(|key| objects.pod(key).ok().flatten()).filter(|pod| {
        let in_trouble = pod.node().is_none_or(|node| silent.contains(node) || !exists(node));
        in_trouble || pod.is_terminating() || !pod.is_ready()
    });
    for pod in concerned {
        let delays = learned(objects, pod, settings);
        for key in workload_keys(objects, pod) {
            let behaviour = if key.kind == ObjectKind::Job { Behaviour::KeepsRunning } else { Behaviour::Healthy };
            world.set_workload(key, Workload { delays: delays.clone(), behaviour });
        }
        let is_reachable = pod.node().is_some_and(|node| exists(node) && !silent.contains(node));
        let own = SimKey::pod(pod.namespace(), pod.name());
        if is_reachable && cannot_start(objects, clock, pod) {
            world.set_workload(own, Workload { delays, behaviour: Behaviour::MissingImage });
        } else if crashes(pod) {
            // It is not ready before it ends.
            let delays = delays.unwrap_or_else(|| settings.workload.clone());
            world.set_workload(own, Workload { delays: Some(delays), behaviour: Behaviour::CrashLoop });
        } else if let Some(stuck) = slow_end(pod, clock, delays, settings).filter(|_| is_reachable) {
            world.set_workload(own, stuck);
        }
    }
}

/// The keys that the behaviour of a pod is set for: its controllers, or the pod itself if it has none.
fn workload_keys(objects: &Objects, pod: PodView<'_>) -> Vec<SimKey> {
    let Some(owner) = pod.controller() else { return vec![SimKey::pod(pod.namespace(), pod.name())] };
    let kind = Kind::find(&owner.api_version, &owner.kind).map(ObjectKind::of);
    let direct = kind.map(|kind| SimKey::new(kind, pod.namespace(), &owner.name));
    let above = deployment_of(objects, pod).map(|(name, _)| SimKey::new(ObjectKind::Deployment, pod.namespace(), name));
    direct.into_iter().chain(above).collect()
}

/// Whether a container of a pod crashes again and again.
fn crashes(pod: PodView<'_>) -> bool {
    pod.container_statuses().any(|container| {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        waiting.is_some_and(|waiting| waiting.reason.as_deref() == Some("CrashLoopBackOff"))
    })
}

/// A pod that did not end when it was told to is killed when its grace period is over. If it is still there long after
/// that, its kubelet cannot end it.
fn slow_end(pod: PodView<'_>, clock: &Clock, delays: Option<WorkloadDelays>, settings: &Settings) -> Option<Workload> {
    let (requested, due) = (pod.deletion_requested()?, pod.deletion_due()?);
    let delays = delays.unwrap_or_else(|| settings.workload.clone());
    if clock.now <= requested + delays.stop {
        return None;
    }
    let behaviour = if clock.now > due + PATIENCE { Behaviour::NeverStops } else { Behaviour::Healthy };
    let stop = due.duration_since(requested) + SignedDuration::from_secs(1);
    Some(Workload { delays: Some(WorkloadDelays { stop, ..delays }), behaviour })
}

/// The delays of a pod's workload, as far as its pods or its probes tell.
fn learned(objects: &Objects, pod: PodView<'_>, settings: &Settings) -> Option<WorkloadDelays> {
    let alike = || {
        let others = objects.pods_of_same_workload(pod).filter(move |other| other.name() != pod.name());
        std::iter::once(pod).chain(others)
    };
    let start = alike().filter_map(|pod| start_time(objects, pod)).min();
    let ready = alike().filter_map(ready_time).min().or_else(|| probed(pod));
    if start.is_none() && ready.is_none() {
        return None;
    }
    let default = &settings.workload;
    let (start, ready) = (start.unwrap_or(default.start), ready.unwrap_or(default.ready));
    Some(WorkloadDelays { start, ready, ..default.clone() })
}

/// The time from attached volumes to running containers.
fn start_time(objects: &Objects, pod: PodView<'_>) -> Option<SignedDuration> {
    let volumes = pod_volumes(objects, pod);
    let here = volumes.iter().flat_map(|volume| &volume.attachments);
    let here = here.filter(|attachment| Some(attachment.node.as_str()) == pod.node());
    let asked =
        here.filter_map(|attachment: &VolumeAttachmentView| attachment.status_written.or(attachment.created)).max();
    let asked = attached_late(objects, pod, asked).or(asked);
    let start = near(pod.status()?.start_time.as_ref()?.0)?;
    let began = start.max(asked.unwrap_or(Timestamp::MIN));
    let ran = pod.container_statuses().filter_map(started).max().filter(|ran| *ran >= began)?;
    Some(ran.duration_since(began)).filter(|took| *took <= LONG)
}

/// When a pod's last volume was attached, where that came long after it was asked for: its storage refused at first, which
/// tells nothing of how long a pod takes to start.
fn attached_late(objects: &Objects, pod: PodView<'_>, asked: Option<Timestamp>) -> Option<Timestamp> {
    let events = objects.events_about(pod.key(), pod.uid());
    let attached =
        events.iter().filter(|event| event.reason == "SuccessfulAttachVolume").filter_map(|event| event.at).max()?;
    (attached.duration_since(asked?) > LATE).then_some(attached)
}

/// The time from running containers to ready ones. The node controller takes Ready away from the pods of an unreachable
/// node, but not ContainersReady.
fn ready_time(pod: PodView<'_>) -> Option<SignedDuration> {
    let ran = pod.container_statuses().filter_map(started).max()?;
    let ready = pod.condition_since("ContainersReady", "True")?;
    Some(ready.duration_since(ran).max(SignedDuration::ZERO))
}

/// The time from running containers to ready ones by the readiness probes of a pod.
fn probed(pod: PodView<'_>) -> Option<SignedDuration> {
    let containers = pod.spec().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let delays = containers.iter().filter_map(|container| {
        let first = i64::from(container.readiness_probe.as_ref()?.initial_delay_seconds.unwrap_or_default());
        Some(SignedDuration::from_secs(first.clamp(0, CENTURY.as_secs()) + 1))
    });
    delays.max()
}

/// When a container was started that runs, or did.
fn started(container: &ContainerStatus) -> Option<Timestamp> {
    let state = container.state.as_ref()?;
    let running = state.running.as_ref().and_then(|running| near(running.started_at.as_ref()?.0));
    running.or_else(|| near(state.terminated.as_ref()?.started_at.as_ref()?.0))
}
