//! Pods that are stuck.

use stead_model::{PodOutline, PodView};

use super::evidence::Evidence;
use super::node_faults::NodeFault;
use super::roots::{Root, Roots};
use super::trial::SchedulingTrial;
use super::{StuckCause, nodes, scheduling, starting};

/// Assigns each stuck pod to its root. Those on faulty nodes come first, then those that are being deleted: others may wait
/// for them.
pub(super) fn assign(evidence: &Evidence<'_>, roots: &mut Roots) {
    // Healthy pods are most of a cluster, and are recognized without being parsed.
    let suspects = evidence
        .objects
        .pods_where(|pod| !looks_healthy(pod) || pod.node().is_some_and(|node| evidence.fault_of(node).is_some()));
    let unfinished = suspects.filter(|pod| !pod.has_ended() || pod.is_terminating());
    let reachable: Vec<PodView<'_>> = unfinished.filter(|pod| !on_faulty_node(evidence, roots, *pod)).collect();
    let (deleted, others): (Vec<PodView<'_>>, Vec<PodView<'_>>) =
        reachable.into_iter().partition(|pod| pod.is_terminating());
    for pod in deleted {
        terminating(evidence, roots, pod);
    }
    let mut trial = SchedulingTrial::new(evidence);
    for pod in others {
        match pod.node() {
            None => scheduling::assign(evidence, &mut trial, roots, pod),
            Some(_) => starting::assign(evidence, roots, pod),
        }
    }
}

/// Whether a pod has ended, or runs and is ready, and nobody deletes it.
fn looks_healthy(pod: &PodOutline) -> bool {
    !pod.is_terminating()
        && match pod.phase() {
            Some("Succeeded" | "Failed") => true,
            Some("Running") => pod.is_ready() && !pod.has_waiting_container(),
            _ => false,
        }
}

/// Assigns a pod to the fault of its node, if that is why it is stuck.
fn on_faulty_node(evidence: &Evidence<'_>, roots: &mut Roots, pod: PodView<'_>) -> bool {
    let Some((node, fault)) = pod.node().and_then(|node| Some((node, evidence.fault_of(node)?))) else { return false };
    let counts = match fault {
        NodeFault::Unreachable(_) => true,
        // The pod garbage collector removes pods without a node within a minute.
        NodeFault::Deleted => is_overdue(evidence, pod),
        NodeFault::NotReady(since) => {
            let lasts = evidence.lasted(since, evidence.thresholds.not_ready);
            match pod.is_terminating() {
                true => evidence.deletion_is_stuck(pod.metadata()),
                false => !pod.is_ready() && (lasts || is_overdue(evidence, pod)),
            }
        }
    };
    if counts {
        nodes::blame(evidence, roots, pod.key(), node, fault);
    }
    counts
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
    // Those of controllers go by themselves, unless the pod has ended and they are all that is left.
    let stopped = pod.has_ended() || pod.node().is_none();
    let finalizers: Vec<&str> = if stopped { pod.finalizers().collect() } else { pod.blocking_finalizers().collect() };
    if !finalizers.is_empty() {
        let root = Root::new(StuckCause::FinalizerBlocks, pod.key().clone());
        return roots.assign(pod.key(), root, &finalizers.join(", "));
    }
    let reasons = ["FailedKillPod", "FailedPreStopHook", "ExceededGracePeriod"];
    let mut reported = evidence.pod_warnings(pod).filter(|event| reasons.contains(&event.reason));
    let detail = reported.next().map(|event| event.message).unwrap_or_default();
    roots.assign(pod.key(), Root::new(StuckCause::TerminationStuck, evidence.group_of(pod.key())), detail);
}
