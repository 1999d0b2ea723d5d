//! Before the taint is applied: evidence, limits and plan are checked again, and pods are prepared.

use crate::annotation::{self, RecoveryAnnotation, TaintOwner, taint_owner};
use crate::close::close;
use crate::concurrency::{self, Turn};
use crate::drivers;
use crate::evidence;
use crate::guard::Guard;
use crate::next_step::NextStep;
use crate::plan_changes::carry_over;
use crate::record::{Evidence, PlannedPod, RecoveryPhase, RecoveryPlan};
use crate::recovery::{Recovery, plan_with_evidence};
use crate::refusal::Refusal;
use crate::tolerations;

/// A check before the taint is applied: the step that it needs, if any.
type Check = fn(&Recovery<'_>) -> Result<Option<NextStep>, Refusal>;

/// A node that shows signs of life is not tainted.
pub(crate) fn wait_for_return(recovery: &Recovery<'_>) -> Result<NextStep, Refusal> {
    if let Some(entered) = enter_fenced(recovery) {
        return entered;
    }
    recovery.wait(vec![recovery.node_wait("there are signs of life, but the node is not Ready yet")])
}

/// The next check that does not pass, or the next preparation; in the end, the taint.
pub(crate) fn prepare(recovery: &Recovery<'_>) -> Result<NextStep, Refusal> {
    if let Some(entered) = enter_fenced(recovery) {
        return entered;
    }
    check_accepted(recovery)?;
    let checks: [Check; 6] =
        [check_expiry, wait_for_turn, update_plan, add_tolerations, check_powered_off, delete_early];
    for check in checks {
        if let Some(next) = check(recovery)? {
            return Ok(next);
        }
    }
    let Recovery { view, record, node, request, .. } = recovery;
    match taint_owner(node, record.name()) {
        Some(TaintOwner::Foreign) => {
            recovery.enter(RecoveryPhase::Fenced, "the taint is there; somebody else applied it")
        }
        _ => Ok(NextStep::write(annotation::apply_taint(node, record, &request.who, view.now, view.guards))),
    }
}

/// The taint is applied. If somebody removed it again, the next phase finds that out, unless new evidence came after it.
fn enter_fenced(recovery: &Recovery<'_>) -> Option<Result<NextStep, Refusal>> {
    let Recovery { record, node, .. } = recovery;
    let annotation = RecoveryAnnotation::of_record(node, record.name()).filter(|annotation| annotation.ended.is_none());
    let applied_last = annotation.is_some_and(|annotation| Some(annotation.time) >= record.last_step());
    let fenced = applied_last || taint_owner(node, record.name()) == Some(TaintOwner::Ours);
    fenced.then(|| recovery.enter(RecoveryPhase::Fenced, "the taint is applied"))
}

/// The policy may have become stricter.
fn check_accepted(recovery: &Recovery<'_>) -> Result<(), Refusal> {
    let Recovery { view, record, node, policy, .. } = recovery;
    match record.spec.evidence.last() {
        Some(evidence) if !policy.accept.contains(&evidence.kind) && view.guards.hold(Guard::Evidence) => {
            Err(Refusal::EvidenceNotAccepted { node: node.name().into(), kind: evidence.kind })
        }
        _ => Ok(()),
    }
}

/// Evidence that has expired is replaced by current evidence, or the recovery does not continue.
fn check_expiry(recovery: &Recovery<'_>) -> Result<Option<NextStep>, Refusal> {
    let Recovery { view, record, node, request, policy } = recovery;
    let Some(expired) = record.spec.evidence.last().filter(|evidence| recovery.has_expired(evidence)) else {
        return Ok(None);
    };
    let found = evidence::find(view, node, request, policy).ok();
    match found.filter(|evidence| !recovery.has_expired(evidence)) {
        Some(evidence) => add_evidence(recovery, "the evidence had expired; there is new evidence", evidence),
        None => Err(Refusal::EvidenceExpired {
            node: node.name().into(),
            by: expired.statement.by.clone(),
            at: expired.statement.at,
        }),
    }
}

fn add_evidence(recovery: &Recovery<'_>, what: &str, evidence: Evidence) -> Result<Option<NextStep>, Refusal> {
    recovery.record_step(what, |record| record.spec.evidence.push(evidence)).map(Some)
}

/// The recoveries of other nodes may come first.
fn wait_for_turn(recovery: &Recovery<'_>) -> Result<Option<NextStep>, Refusal> {
    let Recovery { view, record, node, policy, .. } = recovery;
    let held = record.status.phase == RecoveryPhase::Held;
    let hold = |why: Refusal| {
        if held { Err(why) } else { recovery.enter(RecoveryPhase::Held, &why.to_string()).map(Some) }
    };
    if let Err(most) = concurrency::check_most_unreachable(view, policy) {
        return hold(most.into());
    }
    if held && record.spec.plan.is_empty() && concurrency::most_unreachable(view).is_some() {
        // It was recorded as evidence for the recoveries of other nodes.
        let plan = current_plan(recovery)?;
        if plan.is_empty() {
            return Err(Refusal::RecordedAsEvidence(node.name().into()));
        }
        return recovery.record_step("there are pods or volumes to release now", |r| r.spec.plan = plan).map(Some);
    }
    match concurrency::turn(view, node.zone(), Some(record.name()), policy) {
        Turn::Blocked(reached) => hold(reached.into()),
        Turn::Soon(reached) => Ok(Some(NextStep::wait(vec![recovery.node_wait(reached.reason())]))),
        Turn::Now if held => recovery.enter(RecoveryPhase::Planned, "no other recovery comes first").map(Some),
        Turn::Now => Ok(None),
    }
}

/// The plan must be the current one.
fn update_plan(recovery: &Recovery<'_>) -> Result<Option<NextStep>, Refusal> {
    let Recovery { view, record, .. } = recovery;
    if !view.guards.hold(Guard::Plan) {
        return Ok(None);
    }
    let plan = current_plan(recovery)?;
    if plan.is_empty() {
        let released = record.status.no_return_since.is_some();
        return close(recovery, "no pod or volume is left to release", released).map(Some);
    }
    if plan.has_same_effect(&record.spec.plan) {
        return Ok(None);
    }
    let what = "plan updated: the pods on the node, or the room for them elsewhere, have changed";
    recovery.record_step(what, |record| record.spec.plan = plan).map(Some)
}

/// The plan for what is left to do now.
fn current_plan(recovery: &Recovery<'_>) -> Result<RecoveryPlan, Refusal> {
    let Recovery { view, record, node, policy, .. } = recovery;
    let before = &record.spec.plan;
    let plan = match record.spec.evidence.last() {
        Some(evidence) => plan_with_evidence(view, node, evidence, policy)?,
        None => return Err(Refusal::NoRecordedEvidence(node.name().into())),
    };
    let past_return = record.status.no_return_since.is_some();
    // Before the point of no return, a pod is gone for some other reason.
    let was_released = |pod: &&PlannedPod| pod.released_earlier || (past_return && recovery.object(pod).is_none());
    let released = before.pods.iter().filter(was_released).cloned();
    Ok(carry_over(plan, before, released, true))
}

/// Pods that are left alone get their tolerations first.
fn add_tolerations(recovery: &Recovery<'_>) -> Result<Option<NextStep>, Refusal> {
    let Recovery { view, record, .. } = recovery;
    if !view.guards.hold(Guard::Tolerations) {
        return Ok(None);
    }
    Ok(tolerations::next_to_add(view, &record.spec.plan).map(NextStep::write))
}

/// On storage that does not revoke access, nothing is done before the evidence proves that the machine is powered off.
fn check_powered_off(recovery: &Recovery<'_>) -> Result<Option<NextStep>, Refusal> {
    let Recovery { view, record, node, request, policy } = recovery;
    let Some(evidence) = record.spec.evidence.last().filter(|evidence| !evidence.powered_off) else { return Ok(None) };
    let volumes = drivers::unrevoked(view.objects, &record.spec.plan, policy);
    if volumes.is_empty() || !view.guards.hold(Guard::PoweredOff) {
        return Ok(None);
    }
    let found = evidence::find_powered_off(view, node, request, policy);
    match found.filter(|found| !recovery.has_expired(found) && found != evidence) {
        Some(better) => add_evidence(recovery, "new evidence proves that the machine is powered off", better),
        None => Err(Refusal::PowerOffNotStated { node: node.name().into(), volumes }),
    }
}

/// On such storage, pods are deleted before the taint is applied. A kubelet never starts a pod that is being deleted, so a
/// machine that is switched on in the middle of a recovery does not start them again.
fn delete_early(recovery: &Recovery<'_>) -> Result<Option<NextStep>, Refusal> {
    let Recovery { view, record, policy, .. } = recovery;
    if !view.guards.hold(Guard::Terminating) {
        return Ok(None);
    }
    let planned = record.spec.plan.pods.iter().filter(|pod| !pod.released_earlier);
    let mut pods = planned.filter_map(|pod| recovery.object(pod)).filter(|pod| !pod.is_terminating());
    let next = pods.find(|pod| drivers::has_unrevoked(view.objects, *pod, policy));
    Ok(next.map(|pod| recovery.delete(pod)))
}
