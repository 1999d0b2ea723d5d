//! Pods that are stuck.

use serde_json::Value;
use stead_model::{ObjectKey, PodView};

use super::evidence::{Evidence, NodeFault};
use super::roots::{Root, Roots};
use super::{StuckCause, nodes, scheduling, starting};

/// Assigns each stuck pod to its root.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    // Healthy pods are most of a cluster, and are recognized without being parsed.
    let suspects = evidence.objects.pods_where(|raw| {
        let node = raw["spec"]["nodeName"].as_str().filter(|node| !node.is_empty());
        !looks_healthy(raw) || node.is_some_and(|node| evidence.fault_of(node).is_some())
    });
    for pod in suspects {
        assign_pod(evidence, roots, pod);
    }
}

/// Whether a pod has ended, or runs and is ready, and nobody deletes it.
fn looks_healthy(raw: &Value) -> bool {
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    raw["metadata"]["deletionTimestamp"].is_null()
        && match raw["status"]["phase"].as_str() {
            Some("Succeeded" | "Failed") => true,
            Some("Running") => raw["status"]["conditions"].as_array().is_some_and(|list| list.iter().any(ready)),
            _ => false,
        }
}

fn assign_pod(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>) {
    if pod.has_ended() && !pod.is_terminating() {
        return;
    }
    let fault = pod.node().and_then(|node| Some((node, evidence.fault_of(node)?)));
    match fault {
        Some((node, fault @ NodeFault::Unreachable(_))) => {
            return nodes::blame(evidence, roots, pod.key(), node, fault);
        }
        // The pod garbage collector removes pods without a node within a minute.
        Some((node, NodeFault::Deleted)) if is_overdue(evidence, pod) => {
            return nodes::blame(evidence, roots, pod.key(), node, NodeFault::Deleted);
        }
        Some((node, fault @ NodeFault::NotReady(since))) => {
            let lasts = evidence.lasted(since, evidence.thresholds.not_ready);
            let terminates = pod.is_terminating() && evidence.deletion_is_stuck(pod.metadata());
            if terminates || (!pod.is_terminating() && !pod.is_ready() && (lasts || is_overdue(evidence, pod))) {
                return nodes::blame(evidence, roots, pod.key(), node, fault);
            }
        }
        _ => {}
    }
    if pod.is_terminating() {
        terminating(evidence, roots, pod);
    } else if pod.node().is_none() {
        scheduling::assign(evidence, roots, pod);
    } else {
        starting::assign(evidence, roots, pod);
    }
}

/// Whether the state of a pod lasts for longer than a threshold.
fn is_overdue(evidence: &Evidence<'_>, pod: PodView<'_>) -> bool {
    if pod.is_terminating() {
        return evidence.deletion_is_stuck(pod.metadata());
    }
    let since = pod.condition_since("Ready", "False").or(pod.created());
    evidence.lasted(since, evidence.thresholds.not_ready)
}

fn terminating(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>) {
    if !evidence.deletion_is_stuck(pod.metadata()) {
        return;
    }
    let finalizers: Vec<&str> = pod.blocking_finalizers().collect();
    // The kubelet ends the containers first: as long as one runs, the finalizer is not what is waited for.
    if !finalizers.is_empty() && (!pod.has_running_container() || pod.has_ended()) {
        let root = Root::new(StuckCause::FinalizerBlocks, pod.key().clone());
        return roots.assign(pod.key(), root, &finalizers.join(", "));
    }
    let mut reported =
        evidence.pod_warnings(pod).filter(|event| matches!(event.reason, "FailedKillPod" | "FailedUnmount"));
    let detail = reported.next().map(|event| event.message).unwrap_or_default();
    roots.assign(pod.key(), Root::new(StuckCause::TerminationStuck, group_of(evidence, pod.key())), detail);
}

/// The workload of a pod, or the pod itself.
pub(super) fn group_of(evidence: &Evidence<'_>, pod: &ObjectKey) -> ObjectKey {
    evidence.workload(pod).unwrap_or_else(|| pod.clone())
}
