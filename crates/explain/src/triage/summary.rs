//! What is wrong: a headline that fits on a line, and the same with what was reported.

use stead_model::ObjectKey;

use super::StuckCause;
use super::evidence::Evidence;
use super::node_faults::NodeFault;
use super::roots::{Group, Root};
use crate::outage::span;

/// The headline and what was reported.
pub(super) fn summary(root: &Root, headline: &str, group: &Group) -> String {
    let is_told = root.cause == StuckCause::NodeUnreachable || is_missing_object(root, group);
    if group.detail.is_empty() || is_told { headline.to_owned() } else { format!("{headline}: {}", group.detail) }
}

/// What is wrong, in one short sentence.
pub(super) fn headline(evidence: &Evidence<'_>, root: &Root, group: &Group) -> String {
    let about = subject(root, group);
    match root.cause {
        StuckCause::NodeUnreachable | StuckCause::NodeNotReady => node(evidence, root),
        StuckCause::VolumeHeld => format!("{about} is held elsewhere"),
        StuckCause::DriverFailing => format!("storage driver {} fails", root.about.name),
        StuckCause::ClaimUnbound => format!("{about} has no volume"),
        StuckCause::TopologyUnsatisfiable => format!("{about} cannot be satisfied"),
        StuckCause::Unschedulable if group.untried => format!("{about} is not scheduled"),
        StuckCause::Unschedulable => format!("no node can run {about}"),
        StuckCause::MissingReference => missing(root, group),
        StuckCause::QuotaExceeded => format!("{about} allows no more {}", rejected_objects(group)),
        StuckCause::ConfigInvalid => format!("the kubelet cannot configure {about}"),
        StuckCause::CreateRejected => {
            format!("the API server rejects the {} of {about}", rejected_objects(group))
        }
        StuckCause::CrashLoop => format!("{about} does not stay up"),
        StuckCause::ImagePull => format!("an image of {about} cannot be pulled"),
        StuckCause::SandboxFailing => format!("the sandbox of {about} cannot be created"),
        StuckCause::NotStarting => format!("the kubelet does not start {about}"),
        StuckCause::ProbeFailing => format!("a probe of {about} fails"),
        StuckCause::InitNotFinished => format!("{about} is not initialized"),
        StuckCause::NotReady => format!("{about} is not ready"),
        StuckCause::FinalizerBlocks => format!("{about} is deleted but kept by finalizers"),
        StuckCause::TerminationStuck => format!("{about} does not finish terminating"),
        StuckCause::BudgetBlocks => format!("{about} allows no eviction"),
        StuckCause::ReplicasMissing => format!("{about} lacks pods, and no reason was reported"),
        StuckCause::SchedulingGated => format!("{about} has scheduling gates"),
    }
}

/// What the API server does not create.
pub(super) fn rejected_objects(group: &Group) -> &'static str {
    if group.objects.iter().all(|key| key.kind == "CronJob") { "Jobs" } else { "pods" }
}

/// The object of a cause; for several pods of a workload their number too.
fn subject(root: &Root, group: &Group) -> String {
    let pods = group.objects.iter().filter(|key| key.kind == "Pod").count();
    match root.cause.is_of_pods() && root.about.kind != "Pod" && pods > 1 {
        true => format!("{} ({pods} pods)", named(&root.about)),
        false => named(&root.about),
    }
}

/// An object by the word that people use for its kind.
pub(super) fn named(key: &ObjectKey) -> String {
    let word = match key.kind.as_str() {
        "PersistentVolumeClaim" => "claim",
        "PersistentVolume" => "volume",
        "PodDisruptionBudget" => "budget",
        "ResourceQuota" => "quota",
        "StorageClass" => "storage class",
        "ServiceAccount" => "service account",
        "PriorityClass" => "priority class",
        "RuntimeClass" => "runtime class",
        _ => return key.to_string(),
    };
    let namespace = if key.namespace.is_empty() { String::new() } else { format!("{}/", key.namespace) };
    format!("{word} {namespace}{}", key.name)
}

fn node(evidence: &Evidence<'_>, root: &Root) -> String {
    let name = &root.about.name;
    let lasts = |at: Option<jiff::Timestamp>| {
        at.map(|at| format!(" for {}", span(evidence.now.duration_since(at)))).unwrap_or_default()
    };
    match evidence.fault_of(name) {
        Some(NodeFault::Unreachable(at)) => format!("node {name} is unreachable: no heartbeat{}", lasts(at)),
        Some(NodeFault::NotReady(at)) => format!("node {name} is not ready{}", lasts(at)),
        _ => format!("node {name} was deleted, and objects still refer to it"),
    }
}

fn missing(root: &Root, group: &Group) -> String {
    let about = &root.about;
    match about.kind.as_str() {
        // The message did not name what is missing.
        "Pod" | "Deployment" | "StatefulSet" | "DaemonSet" | "Job" | "CronJob" | "ReplicaSet" => {
            format!("{about} refers to something that does not exist")
        }
        _ if lacks_key(&group.detail) => format!("{} lacks a key", named(about)),
        _ => format!("{} does not exist", named(about)),
    }
}

/// Whether a message is about a missing key of an object that exists.
fn lacks_key(message: &str) -> bool {
    message.contains("couldn't find key") || message.contains("references non-existent")
}

/// Whether what was reported only repeats that an object does not exist.
fn is_missing_object(root: &Root, group: &Group) -> bool {
    let unnamed =
        |key: &ObjectKey| matches!(key.kind.as_str(), "Pod" | "Deployment" | "StatefulSet" | "DaemonSet" | "Job");
    root.cause == StuckCause::MissingReference && !unnamed(&root.about) && !lacks_key(&group.detail)
}
