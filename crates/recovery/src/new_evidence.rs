//! A recovery that continues with new evidence.

use crate::evidence;
use crate::guard::Guard;
use crate::next_step::NextStep;
use crate::record::{Evidence, LastContact, RecoveryPhase};
use crate::recovery::Recovery;
use crate::refusal::Refusal;

/// Continues in a phase, if the evidence covers everything that is left of the plan.
pub(crate) fn resume_in(recovery: &Recovery<'_>, phase: RecoveryPhase) -> Result<NextStep, Refusal> {
    let Recovery { view, node, request, policy, .. } = recovery;
    let evidence = evidence::find(view, node, request, policy)?;
    if let Some(what) = not_covered(recovery, &evidence).filter(|_| view.guards.hold(Guard::Coverage)) {
        return Err(Refusal::EvidenceDoesNotCover { node: node.name().into(), what, kind: evidence.kind });
    }
    recovery.enter_with(phase, "continued with new evidence", |record| {
        record.spec.evidence.push(evidence);
        record.spec.last_contact = LastContact::of(node);
    })
}

/// The first pod or volume of the plan that evidence does not cover.
fn not_covered(recovery: &Recovery<'_>, evidence: &Evidence) -> Option<String> {
    let plan = &recovery.record.spec.plan;
    let left = plan.pods.iter().filter(|pod| recovery.object(pod).is_some());
    let pod = left.into_iter().find(|pod| !evidence.covers(&pod.uid));
    let volume = plan.volumes.first().filter(|_| evidence.pods.is_some());
    pod.map(|pod| format!("pod {}", pod.full_name())).or_else(|| volume.map(|volume| format!("volume {volume}")))
}
