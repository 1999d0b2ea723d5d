//! The summary and the recommended action of a cause.

use stead_model::ObjectKey;

use super::StuckCause;
use super::evidence::{Evidence, NodeFault};
use super::roots::{Group, Root};
use crate::outage::when;

/// What is wrong, in one sentence.
pub(super) fn summary(evidence: &Evidence<'_>, root: &Root, group: &Group) -> String {
    let about = root.about.to_string();
    let with = |text: String| if group.detail.is_empty() { text } else { format!("{text}: {}", group.detail) };
    match root.cause {
        StuckCause::NodeUnreachable | StuckCause::NodeNotReady => node(evidence, root),
        StuckCause::VolumeHeld => with(format!("{about} is held by another node")),
        StuckCause::DriverFailing => with(format!("storage driver {} fails", root.about.name)),
        StuckCause::ClaimUnbound => with(format!("{about} is not bound")),
        StuckCause::TopologyUnsatisfiable => with(format!("{about} cannot be satisfied")),
        StuckCause::Unschedulable => with(format!("{about} cannot be scheduled")),
        StuckCause::MissingReference => missing(root, group),
        StuckCause::QuotaExceeded => with(format!("{about} does not allow more")),
        StuckCause::CreateRejected => with(format!("pods of {about} are rejected")),
        StuckCause::CrashLoop => with(format!("{about} fails again and again")),
        StuckCause::ImagePull => with(format!("an image of {about} cannot be pulled")),
        StuckCause::SandboxFailing => with(format!("the sandbox of {about} cannot be created")),
        StuckCause::NotStarting => with(format!("{about} does not start")),
        StuckCause::ProbeFailing => with(format!("a probe of {about} fails")),
        StuckCause::InitNotFinished => with(format!("{about} is not initialized")),
        StuckCause::NotReady => with(format!("{about} is not ready")),
        StuckCause::FinalizerBlocks => with(format!("{about} is deleted but kept by finalizers")),
        StuckCause::TerminationStuck => with(format!("{about} does not finish terminating")),
        StuckCause::BudgetBlocks => with(format!("{about} allows no eviction")),
        StuckCause::ReplicasMissing => with(format!("{about} has no pods, and no reason was reported")),
        StuckCause::SchedulingGated => with(format!("{about} has scheduling gates")),
    }
}

fn node(evidence: &Evidence<'_>, root: &Root) -> String {
    let name = &root.about.name;
    let since =
        |at: Option<jiff::Timestamp>| at.map(|at| format!(" since {}", when(at, evidence.now))).unwrap_or_default();
    match evidence.fault_of(name) {
        Some(NodeFault::Unreachable(at)) => format!("node {name} is unreachable: no heartbeat{}", since(at)),
        Some(NodeFault::NotReady(at)) => {
            let node = evidence.objects.node(name).ok().flatten();
            let told = node.and_then(|node| node.condition("Ready")?.message.as_deref()).unwrap_or_default();
            let told = if told.is_empty() { String::new() } else { format!(": {told}") };
            format!("node {name} is not ready{}{told}", since(at))
        }
        _ => format!("node {name} was deleted, and objects still refer to it"),
    }
}

fn missing(root: &Root, group: &Group) -> String {
    let about = &root.about;
    match about.kind.as_str() {
        // The message did not name what is missing.
        "Pod" | "Deployment" | "StatefulSet" | "DaemonSet" | "Job" | "ReplicaSet" => {
            format!("{about} refers to something that does not exist: {}", group.detail)
        }
        _ if group.detail.contains("key") && !group.detail.contains("not found") => {
            format!("{about} lacks a key: {}", group.detail)
        }
        _ => format!("{about} does not exist"),
    }
}

/// What to do.
pub(super) fn action(root: &Root, group: &Group) -> String {
    let about = &root.about;
    let pod = group.objects.iter().find(|key| key.kind == "Pod");
    let explain = |pod: &ObjectKey| format!("stead explain pod/{} -n {}", pod.name, pod.namespace);
    let describe = |key: &ObjectKey| {
        let namespace = if key.namespace.is_empty() { String::new() } else { format!(" -n {}", key.namespace) };
        format!("kubectl describe {} {}{namespace}", key.kind.to_lowercase(), key.name)
    };
    let logs = |pod: &ObjectKey| format!("kubectl logs {} -n {} --all-containers --previous", pod.name, pod.namespace);
    match root.cause {
        StuckCause::NodeUnreachable | StuckCause::NodeNotReady => format!("stead explain node/{}", about.name),
        StuckCause::CrashLoop => pod.map_or_else(|| describe(about), logs),
        StuckCause::MissingReference => format!("create {about}, or correct the reference to it"),
        StuckCause::QuotaExceeded => describe(about),
        StuckCause::FinalizerBlocks => {
            format!("{}: find the controller that removes the finalizer", describe(about))
        }
        StuckCause::SchedulingGated => "the controller that set the gate has to remove it".into(),
        StuckCause::TopologyUnsatisfiable => format!("stead explain topology/{} -n {}", about.name, about.namespace),
        StuckCause::BudgetBlocks => format!("{}: add replicas, or relax the budget", describe(about)),
        StuckCause::ClaimUnbound | StuckCause::CreateRejected | StuckCause::ReplicasMissing => describe(about),
        StuckCause::ImagePull | StuckCause::ProbeFailing | StuckCause::InitNotFinished => {
            describe(pod.unwrap_or(about))
        }
        _ => pod.map_or_else(|| describe(about), explain),
    }
}
