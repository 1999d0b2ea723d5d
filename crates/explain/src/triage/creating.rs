//! Pods whose containers the kubelet has not started: volumes first, then the sandbox.

use k8s_openapi::api::storage::v1::CSINode;
use stead_model::{EventView, ObjectKey, PodView, csi_driver, pod_volumes};

use super::StuckCause;
use super::claims::{claim_root, is_bound};
use super::evidence::{Evidence, volume_of};
use super::held::held;
use super::missing::{missing_config_map, missing_object};
use super::roots::{Root, Roots};

/// Events of the kubelet and of the attach-detach controller about volumes.
const ABOUT_VOLUMES: [&str; 4] =
    ["FailedMount", "FailedAttachVolume", "FailedMapVolume", "FailedMountOnFilesystemMismatch"];

/// Events of the kubelet about the sandbox and its network.
const ABOUT_SANDBOX: [&str; 3] = ["FailedCreatePodSandBox", "NetworkNotReady", "FailedPodSandBoxStatus"];

pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>) {
    let reported: Vec<EventView<'_>> = evidence.pod_warnings(pod).collect();
    if let Some((root, detail)) = claim(evidence, pod).or_else(|| missing_of_volume(pod, &reported)) {
        return roots.assign(pod.key(), root, &detail);
    }
    if held(evidence, roots, pod, &reported) {
        return;
    }
    let found = attach_error(evidence, pod)
        .or_else(|| volume_error(evidence, pod, &reported))
        .or_else(|| not_registered(evidence, pod));
    if let Some((root, detail)) = found {
        return roots.assign(pod.key(), root, &detail);
    }
    let sandbox = reported.iter().find(|event| ABOUT_SANDBOX.contains(&event.reason));
    if let Some(object) = missing_config_map(evidence, pod).filter(|_| sandbox.is_none()) {
        return roots.assign(pod.key(), Root::new(StuckCause::MissingReference, object), "");
    }
    let cause = if sandbox.is_some() { StuckCause::SandboxFailing } else { StuckCause::NotStarting };
    let told = sandbox.or(reported.first()).map(|event| event.message.to_owned());
    let detail = told.or_else(|| not_attached(evidence, pod)).unwrap_or_default();
    roots.assign(pod.key(), Root::new(cause, evidence.group_of(pod.key())), &detail);
}

/// A claim that does not exist or has no volume: somebody has set the pod's node.
fn claim(evidence: &Evidence<'_>, pod: PodView<'_>) -> Option<(Root, String)> {
    evidence.claims(pod).into_iter().find_map(|(key, claim)| match claim {
        None if evidence.was_read("PersistentVolumeClaim") && !evidence.objects.contains(&key) => {
            Some((Root::new(StuckCause::MissingReference, key), String::new()))
        }
        Some(claim) if !is_bound(claim) => claim_root(evidence, &key, claim, true),
        _ => None,
    })
}

/// A Secret or ConfigMap of a volume that the kubelet did not find.
fn missing_of_volume(pod: PodView<'_>, reported: &[EventView<'_>]) -> Option<(Root, String)> {
    let mut about_volumes = reported.iter().filter(|event| ABOUT_VOLUMES.contains(&event.reason));
    let told = about_volumes.find_map(|event| Some((missing_object(pod, event.message)?, event.message.to_owned())));
    told.map(|(object, detail)| (Root::new(StuckCause::MissingReference, object), detail))
}

/// What the driver reports about the attachment to the pod's node.
fn attach_error(evidence: &Evidence<'_>, pod: PodView<'_>) -> Option<(Root, String)> {
    evidence.claims(pod).into_iter().find_map(|(_, claim)| {
        let name = claim.and_then(volume_of)?;
        let here = evidence.attachments(name).iter().find(|a| Some(a.spec.node_name.as_str()) == pod.node())?;
        let error = here.status.as_ref()?.attach_error.as_ref()?.message.clone()?;
        let driver = ObjectKey::cluster("CSIDriver", &here.spec.attacher);
        Some((Root::new(StuckCause::DriverFailing, driver), error))
    })
}

/// What was reported about the pod's volumes, with the driver behind it.
fn volume_error(evidence: &Evidence<'_>, pod: PodView<'_>, reported: &[EventView<'_>]) -> Option<(Root, String)> {
    let about_volumes = || reported.iter().filter(|event| ABOUT_VOLUMES.contains(&event.reason));
    // A timeout says only that the kubelet still waits: the error behind it says why.
    let waits = |event: &&EventView<'_>| {
        event.message.contains("timed out waiting for the condition")
            || event.message.starts_with("Unable to attach or mount volumes")
    };
    let event = about_volumes().find(|event| !waits(event)).or_else(|| about_volumes().next())?;
    let root = match driver(evidence, pod, event.message) {
        Some(driver) => Root::new(StuckCause::DriverFailing, driver),
        None => Root::new(StuckCause::NotStarting, evidence.group_of(pod.key())),
    };
    Some((root, event.message.to_owned()))
}

/// The storage driver that an error is about: of the volume that the message names, or of the pod's only driver.
fn driver(evidence: &Evidence<'_>, pod: PodView<'_>, message: &str) -> Option<ObjectKey> {
    let key = |name: &str| ObjectKey::cluster("CSIDriver", name);
    if let Some((_, rest)) = message.split_once("driver name ")
        && let Some(name) = rest.split_whitespace().next()
    {
        return Some(key(name));
    }
    let mut found = Vec::new();
    for (claim_key, claim) in evidence.claims(pod) {
        let Some(name) = claim.and_then(volume_of) else { continue };
        let Some(driver) = evidence.objects.volume(name).and_then(csi_driver) else { continue };
        if message.contains(name) || message.contains(&claim_key.name) {
            return Some(key(driver));
        }
        found.push(driver);
    }
    let inline = pod.volumes().iter().filter_map(|volume| Some(volume.csi.as_ref()?.driver.as_str()));
    found.extend(inline);
    found.sort_unstable();
    found.dedup();
    // A volume of another type, such as a Secret, may be behind the error, unless it names a driver's call.
    let of_storage = ["rpc error", "csi", "AttachVolume", "MountDevice", "Unable to attach or mount volumes"];
    let speaks = of_storage.iter().any(|word| message.contains(word));
    match found.as_slice() {
        [only] if speaks => Some(key(only)),
        _ => None,
    }
}

/// A driver of the pod's volumes that is not registered on its node, where CSINodes were read.
fn not_registered(evidence: &Evidence<'_>, pod: PodView<'_>) -> Option<(Root, String)> {
    let node = pod.node()?;
    let registered = evidence.objects.find::<CSINode>("", node)?;
    let used = pod_volumes(evidence.objects, pod).into_iter().filter_map(|volume| volume.driver);
    let missing = |driver: &String| !registered.spec.drivers.iter().any(|known| known.name == *driver);
    let driver = used.into_iter().find(missing)?;
    let root = Root::new(StuckCause::DriverFailing, ObjectKey::cluster("CSIDriver", &driver));
    Some((root, format!("it is not registered on node {node}")))
}

/// A volume that is not attached to the pod's node yet.
fn not_attached(evidence: &Evidence<'_>, pod: PodView<'_>) -> Option<String> {
    if !evidence.was_read("VolumeAttachment") {
        return None;
    }
    let here = |a: &stead_model::VolumeAttachmentView| Some(a.node.as_str()) == pod.node() && a.attached;
    let mut volumes = pod_volumes(evidence.objects, pod).into_iter();
    let volume = volumes.find(|volume| volume.needs_attach && !volume.attachments.iter().any(here))?;
    Some(format!("volume {} is not attached to node {}", volume.name(), pod.node()?))
}
