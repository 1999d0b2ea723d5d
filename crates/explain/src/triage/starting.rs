//! Pods that have a node and are not ready.

use k8s_openapi::api::core::v1::ContainerStatus;
use stead_model::{EventView, ObjectKey, PodView, csi_driver};

use super::evidence::{Evidence, volume_of};
use super::pods::group_of;
use super::roots::{Root, Roots};
use super::{StuckCause, nodes};

const IMAGE_ERRORS: [&str; 7] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
];

const START_ERRORS: [&str; 6] = [
    "CrashLoopBackOff",
    "RunContainerError",
    "CreateContainerError",
    "PostStartHookError",
    "PreCreateHookError",
    "StartError",
];

pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>) {
    if pod.is_ready() {
        return;
    }
    let group = |cause| Root::new(cause, group_of(evidence, pod.key()));
    if let Some((reason, detail)) = waiting(pod, |reason| IMAGE_ERRORS.contains(&reason)) {
        return roots.assign(pod.key(), group(StuckCause::ImagePull), &said(reason, detail));
    }
    if let Some((reason, detail)) = waiting(pod, |reason| reason == "CreateContainerConfigError") {
        let root = missing_reference(pod, detail).unwrap_or_else(|| group(StuckCause::MissingReference));
        return roots.assign(pod.key(), root, &said(reason, detail));
    }
    if let Some((reason, detail)) = waiting(pod, |reason| START_ERRORS.contains(&reason)) {
        return roots.assign(pod.key(), group(StuckCause::CrashLoop), &said(reason, detail));
    }
    if let Some(detail) = restarts(evidence, pod) {
        return roots.assign(pod.key(), group(StuckCause::CrashLoop), &detail);
    }
    if is_creating(pod) {
        let since = pod.condition_since("PodScheduled", "True").or(pod.created());
        if evidence.lasted(since, evidence.thresholds.creating) {
            creating(evidence, roots, pod);
        }
        return;
    }
    not_ready(evidence, roots, pod);
}

/// The first container that waits for one of these reasons, with the kubelet's message.
fn waiting<'a>(pod: PodView<'a>, is: impl Fn(&str) -> bool) -> Option<(&'a str, &'a str)> {
    pod.container_statuses().find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|reason| is(reason))?;
        Some((reason, waiting.message.as_deref().unwrap_or_default()))
    })
}

fn said(reason: &str, detail: &str) -> String {
    if detail.is_empty() { reason.to_owned() } else { format!("{reason}: {detail}") }
}

/// A container between two attempts of a crash loop: it has failed more than once, the last time a short while ago.
fn restarts(evidence: &Evidence<'_>, pod: PodView<'_>) -> Option<String> {
    let failing = |container: &&ContainerStatus| {
        let state = |state: &Option<k8s_openapi::api::core::v1::ContainerState>| state.as_ref()?.terminated.clone();
        let ended = state(&container.state).or_else(|| state(&container.last_state));
        let recent = |at: jiff::Timestamp| evidence.now.duration_since(at) <= evidence.thresholds.not_ready * 2;
        container.restart_count >= 2
            && !container.ready
            && ended.is_some_and(|e| e.exit_code != 0 && e.finished_at.as_ref().is_some_and(|at| recent(at.0)))
    };
    let container = pod.container_statuses().find(failing)?;
    // A failed liveness or startup probe also restarts the container; the kubelet then reports the probe.
    let probed = evidence.pod_warnings(pod).any(|event| event.reason == "Unhealthy");
    (!probed).then(|| format!("container {} has restarted {} times", container.name, container.restart_count))
}

/// Whether the kubelet has not started any container yet.
fn is_creating(pod: PodView<'_>) -> bool {
    let begun = |container: &ContainerStatus| {
        let state = container.state.as_ref();
        state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
            || container.last_state.as_ref().is_some_and(|state| state.terminated.is_some())
    };
    pod.phase() == "Pending" && !pod.container_statuses().any(begun)
}

/// The object that a kubelet's message says is missing, such as `secret "db" not found`.
fn missing_reference(pod: PodView<'_>, message: &str) -> Option<Root> {
    let kinds = [
        ("secret", "Secret"),
        ("configmap", "ConfigMap"),
        ("persistentvolumeclaim", "PersistentVolumeClaim"),
        ("serviceaccount", "ServiceAccount"),
    ];
    let lower = message.to_lowercase();
    // couldn't find key K in Secret N/S; references non-existent secret key; secret "S" not found; secrets "S" is forbidden.
    for (word, kind) in kinds {
        for begin in [format!("{word} \""), format!("{word}s \"")] {
            let named = lower.find(&begin).map(|at| &message[at + begin.len()..]);
            if let Some((name, rest)) = named.and_then(|rest| rest.split_once('"'))
                && rest.trim_start().starts_with("not found")
            {
                return Some(Root::new(StuckCause::MissingReference, ObjectKey::new(kind, pod.namespace(), name)));
            }
        }
        let key_of = format!("in {word} ");
        if lower.contains("couldn't find key")
            && let Some(at) = lower.find(&key_of)
        {
            let path = message[at + key_of.len()..].split_whitespace().next().unwrap_or_default();
            let name = path.rsplit('/').next().unwrap_or(path);
            return Some(Root::new(StuckCause::MissingReference, ObjectKey::new(kind, pod.namespace(), name)));
        }
    }
    None
}

fn creating(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>) {
    if let Some((claim, _)) = evidence.claims(pod).into_iter().find(|(key, claim)| {
        claim.is_none() && evidence.was_read("PersistentVolumeClaim") && !evidence.objects.contains(key)
    }) {
        return roots.assign(pod.key(), Root::new(StuckCause::MissingReference, claim), "");
    }
    let reported: Vec<EventView<'_>> = evidence.pod_warnings(pod).collect();
    for event in &reported {
        let about_volumes = matches!(event.reason, "FailedMount" | "FailedAttachVolume" | "FailedMapVolume");
        if about_volumes && let Some(root) = missing_reference(pod, event.message) {
            return roots.assign(pod.key(), root, event.message);
        }
    }
    if held(evidence, roots, pod, &reported) || attaching(evidence, roots, pod) {
        return;
    }
    // A timeout says only that the kubelet still waits: the error behind it says why.
    let volumes =
        |event: &&EventView<'_>| matches!(event.reason, "FailedMount" | "FailedAttachVolume" | "FailedMapVolume");
    let waits = |event: &&EventView<'_>| {
        event.message.contains("timed out waiting for the condition")
            || event.message.starts_with("Unable to attach or mount volumes")
    };
    let error = reported.iter().filter(volumes).find(|event| !waits(event)).or_else(|| reported.iter().find(volumes));
    if let Some(event) = error {
        return match driver(evidence, pod, event.message) {
            Some(driver) => roots.assign(pod.key(), Root::new(StuckCause::DriverFailing, driver), event.message),
            None => roots.assign(
                pod.key(),
                Root::new(StuckCause::NotStarting, group_of(evidence, pod.key())),
                event.message,
            ),
        };
    }
    let sandbox = reported.iter().find(|event| event.reason == "FailedCreatePodSandBox");
    let cause = if sandbox.is_some() { StuckCause::SandboxFailing } else { StuckCause::NotStarting };
    let other = sandbox.or(reported.first()).map(|event| event.message).unwrap_or_default();
    roots.assign(pod.key(), Root::new(cause, group_of(evidence, pod.key())), other);
}

/// Assigns a pod whose volume another node holds: to that node if it has a fault.
fn held(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>, reported: &[EventView<'_>]) -> bool {
    let multi_attach = reported.iter().find(|event| event.message.contains("Multi-Attach error"));
    for (claim_key, claim) in evidence.claims(pod) {
        let Some(name) = claim.and_then(volume_of) else { continue };
        let named = multi_attach.is_some_and(|event| event.message.contains(&format!("\"{name}\"")));
        let shared = evidence
            .objects
            .volume(name)
            .and_then(|v| v.spec.as_ref()?.access_modes.as_ref())
            .is_some_and(|modes| modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany"));
        let attachments = evidence.attachments(name).iter();
        let here = |node: &str| Some(node) == pod.node();
        let is_attached =
            attachments.clone().any(|a| here(&a.spec.node_name) && a.status.as_ref().is_some_and(|s| s.attached));
        let holder = attachments.map(|a| a.spec.node_name.as_str()).find(|node| !here(node));
        let holder = holder.or_else(|| named.then(|| user(evidence, pod, &claim_key)).flatten());
        if !named && (shared || is_attached || holder.is_none()) {
            continue;
        }
        let volume = ObjectKey::cluster("PersistentVolume", name);
        match holder.and_then(|node| Some((node, evidence.fault_of(node)?))) {
            Some((node, fault)) => {
                nodes::blame(evidence, roots, pod.key(), node, fault);
                roots.assign(&volume, nodes::root(node, fault), "");
            }
            None => {
                let place = holder.map(|node| format!("attached to node {node}")).unwrap_or_default();
                let detail =
                    multi_attach.map(|event| event.message.to_owned()).filter(|_| holder.is_none()).unwrap_or(place);
                let root = Root::new(StuckCause::VolumeHeld, volume.clone());
                roots.assign(pod.key(), root.clone(), &detail);
                if evidence.objects.contains(&volume) {
                    roots.assign(&volume, root, "");
                }
            }
        }
        return true;
    }
    false
}

/// The node of another pod that uses a claim.
fn user<'a>(evidence: &Evidence<'a>, pod: PodView<'_>, claim: &ObjectKey) -> Option<&'a str> {
    let names = |raw: &serde_json::Value| {
        let mut volumes = raw["spec"]["volumes"].as_array().into_iter().flatten();
        volumes.any(|volume| volume["persistentVolumeClaim"]["claimName"] == *claim.name)
    };
    let others = evidence.objects.of_kind("Pod").filter(|other| other.key().namespace == claim.namespace);
    let mut nodes =
        others.filter(|other| names(other.raw())).filter_map(|other| other.raw()["spec"]["nodeName"].as_str());
    nodes.find(|node| !node.is_empty() && Some(*node) != pod.node())
}

/// Assigns a pod whose volume its driver does not attach.
fn attaching(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>) -> bool {
    for (_, claim) in evidence.claims(pod) {
        let Some(name) = claim.and_then(volume_of) else { continue };
        let here = evidence.attachments(name).iter().find(|a| Some(a.spec.node_name.as_str()) == pod.node());
        let error = here.and_then(|a| a.status.as_ref()?.attach_error.as_ref()?.message.clone());
        if let (Some(attachment), Some(error)) = (here, error) {
            let driver = ObjectKey::cluster("CSIDriver", &attachment.spec.attacher);
            roots.assign(pod.key(), Root::new(StuckCause::DriverFailing, driver), &error);
            return true;
        }
    }
    false
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

fn not_ready(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>) {
    let since = pod.condition_since("Ready", "False").or(pod.created());
    if !evidence.lasted(since, evidence.thresholds.not_ready) || is_finishing(pod) {
        return;
    }
    let root = |cause| Root::new(cause, group_of(evidence, pod.key()));
    let initialized = pod.condition("Initialized").is_none_or(|condition| condition.status == "True");
    if !initialized && pod.phase() == "Pending" {
        let statuses = pod.status().and_then(|status| status.init_container_statuses.as_deref()).unwrap_or_default();
        let running = statuses.iter().find(|c| c.state.as_ref().is_some_and(|state| state.running.is_some()));
        let name = running.map(|container| format!("init container {} still runs", container.name));
        return roots.assign(pod.key(), root(StuckCause::InitNotFinished), &name.unwrap_or_default());
    }
    if let Some(event) = evidence.pod_warnings(pod).find(|event| event.reason == "Unhealthy") {
        return roots.assign(pod.key(), root(StuckCause::ProbeFailing), event.message);
    }
    let gate = pod.spec().and_then(|spec| spec.readiness_gates.as_deref()).unwrap_or_default().iter();
    let mut gates = gate.filter(|gate| pod.condition(&gate.condition_type).is_none_or(|c| c.status != "True"));
    if let Some(gate) = gates.next() {
        return roots.assign(
            pod.key(),
            root(StuckCause::NotReady),
            &format!("readiness gate {} is not True", gate.condition_type),
        );
    }
    let probed = |name: &str| {
        let containers = pod.spec().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        containers.iter().any(|c| c.name == name && (c.readiness_probe.is_some() || c.startup_probe.is_some()))
    };
    let runs = |c: &&ContainerStatus| !c.ready && c.state.as_ref().is_some_and(|state| state.running.is_some());
    let failing = pod.container_statuses().filter(runs).find(|container| probed(&container.name));
    match failing {
        Some(container) => {
            let detail = format!("container {} runs and is not ready", container.name);
            roots.assign(pod.key(), root(StuckCause::ProbeFailing), &detail);
        }
        None => {
            let detail = pod.condition("Ready").and_then(|condition| condition.message.as_deref()).unwrap_or_default();
            roots.assign(pod.key(), root(StuckCause::NotReady), detail);
        }
    }
}

/// Whether some containers of a pod that runs to its end have succeeded and the others run: it is not meant to be ready.
fn is_finishing(pod: PodView<'_>) -> bool {
    let runs_to_end =
        pod.spec().and_then(|spec| spec.restart_policy.as_deref()).is_some_and(|policy| policy != "Always");
    let statuses = pod.status().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let succeeded =
        |c: &&ContainerStatus| c.state.as_ref().and_then(|s| s.terminated.as_ref()).is_some_and(|t| t.exit_code == 0);
    runs_to_end && statuses.iter().any(|c| succeeded(&c)) && statuses.iter().all(|c| c.ready || succeeded(&c))
}
