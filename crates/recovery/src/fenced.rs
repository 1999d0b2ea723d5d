//! The taint is applied: Kubernetes removes the pods and detaches the volumes.

use stead_model::OUT_OF_SERVICE;

use crate::annotation;
use crate::new_evidence;
use crate::next_step::NextStep;
use crate::progress;
use crate::record::RecoveryPhase;
use crate::recovery::Recovery;
use crate::refusal::Refusal;
use crate::tolerations;

/// Deletes planned pods that the taint does not evict, then waits.
pub(crate) fn release(recovery: &Recovery<'_>) -> Result<NextStep, Refusal> {
    let Recovery { record, node, .. } = recovery;
    if recovery.taint_is_gone() {
        return taint_removed(recovery);
    }
    let no_execute = node.taints().iter().any(|taint| taint.key == OUT_OF_SERVICE && taint.effect == "NoExecute");
    for pod in record.spec.plan.pods.iter().filter_map(|planned| recovery.object(planned)) {
        // A pod that tolerates the taint for zero seconds may be evicted later, because of the taints before it.
        let evicted = no_execute && !tolerations::any_matches(pod.tolerations(), &annotation::taint());
        if !pod.is_terminating() && !evicted {
            return Ok(recovery.delete(pod));
        }
    }
    wait_for_release(recovery)
}

/// Waits until all pods are removed and all volumes are detached.
pub(crate) fn wait_for_release(recovery: &Recovery<'_>) -> Result<NextStep, Refusal> {
    let Recovery { view, record, node, .. } = recovery;
    if recovery.taint_is_gone() {
        return taint_removed(recovery);
    }
    let plan = &record.spec.plan;
    let mut waits = progress::pods_to_remove(view.objects, plan);
    waits.extend(progress::volumes_to_detach(view.objects, node.name(), plan));
    if waits.is_empty() {
        return recovery.enter(RecoveryPhase::Released, "its pods and volumes are released");
    }
    recovery.wait(waits)
}

/// Somebody has removed the taint before everything was released.
fn taint_removed(recovery: &Recovery<'_>) -> Result<NextStep, Refusal> {
    if recovery.was_confirmed_again() {
        return new_evidence::resume_in(recovery, RecoveryPhase::Planned);
    }
    let refusal = Refusal::TaintRemoved(recovery.node.name().into());
    let message = refusal.to_string();
    if recovery.record.status.message != message {
        return recovery.update(|record| record.status.message.clone_from(&message));
    }
    Err(refusal)
}
