//! The first step of a recovery: the record, or why there is no recovery.

use serde_json::{Map, Value};
use stead_model::NodeHealth;

use crate::annotation::{self, RecoveryAnnotation};
use crate::concurrency::{self, Turn};
use crate::drivers;
use crate::evidence;
use crate::guard::Guard;
use crate::next_step::{NextStep, RecoveryEnd, RecoveryWrite};
use crate::orphan;
use crate::plan_changes::carry_over;
use crate::policy::RecoveryPolicy;
use crate::progress;
use crate::record::{
    API_VERSION, Evidence, KIND, LastContact, NodeIdentity, NodeRecovery, NodeRecoverySpec, NodeRecoveryStatus,
    PlannedPod, RecordedStep, RecoveryPhase, RecoveryPlan, ReplacementTarget,
};
use crate::records::record_named;
use crate::recovery::{plan_with_evidence, write_record};
use crate::refusal::Refusal;
use crate::sign_of_life::SignOfLife;
use crate::tolerations;
use crate::view::{ClusterView, RecoveryRequest};

/// The first step. `last` is the latest record of the node, which is over.
pub(crate) fn begin(
    view: &ClusterView<'_>,
    last: Option<&NodeRecovery>,
    node: &NodeHealth<'_>,
    request: &RecoveryRequest,
    policy: &RecoveryPolicy,
) -> Result<NextStep, Refusal> {
    let annotation = RecoveryAnnotation::of(node);
    let annotated = annotation.as_ref().and_then(|annotation| record_named(view.objects, &annotation.record));
    if let Some(write) = annotated.as_ref().or(last).and_then(|record| clean_up(view, node, record)) {
        return Ok(NextStep::write(write));
    }
    let alive = SignOfLife::of(node, view.now, view.guards);
    if let Some(annotation) = annotation.filter(|_| annotated.is_none() && alive.is_some()) {
        return Ok(orphan::remove_taint(view, node, &annotation));
    }
    let request = without_used_confirmation(view, last, request);
    if let Some(end) = end_of_last(last, node, &request, alive.is_some()) {
        return Ok(NextStep::end(end));
    }
    if request.abort.is_some() {
        return Err(Refusal::NothingToAbort(node.name().into()));
    }
    if let Some(sign) = alive {
        return Err(Refusal::Alive(sign));
    }
    let start = consider(view, node, &request, policy)?;
    let record = new_record(view, node, start);
    if !view.guards.hold(Guard::Record) {
        return Ok(NextStep::write(annotation::apply_taint(node, &record, &request.who, view.now, view.guards)));
    }
    write_record(record)
}

/// Removes what is left of a recovery that is over. Somebody who decided before the end may have written after it, possibly
/// for an earlier boot of the machine.
fn clean_up(view: &ClusterView<'_>, node: &NodeHealth<'_>, record: &NodeRecovery) -> Option<RecoveryWrite> {
    let annotation = annotation::clean_up(node, record.name(), view.guards).filter(|_| record.is_for(node));
    annotation.or_else(|| tolerations::next_to_take_back(view, &record.spec.plan))
}

/// The request without a confirmation that the last recovery has used, or that is older than its end.
fn without_used_confirmation(
    view: &ClusterView<'_>,
    last: Option<&NodeRecovery>,
    request: &RecoveryRequest,
) -> RecoveryRequest {
    let mut request = request.clone();
    if view.guards.hold(Guard::ConfirmationAge) {
        let ended = last.and_then(NodeRecovery::last_step);
        request.confirm_off = request.confirm_off.filter(|statement| ended.is_none_or(|ended| statement.at > ended));
    }
    request
}

/// How the last recovery of this node has ended, if nobody asks for another one.
fn end_of_last(
    last: Option<&NodeRecovery>,
    node: &NodeHealth<'_>,
    request: &RecoveryRequest,
    alive: bool,
) -> Option<RecoveryEnd> {
    let last = last.filter(|last| last.is_for(node) && request.confirm_off.is_none())?;
    let aborted = last.spec.abort.is_some() && last.spec.node == NodeIdentity::of(node);
    match last.status.phase {
        RecoveryPhase::Returned if alive => Some(RecoveryEnd::Returned),
        RecoveryPhase::Undone if alive || aborted => Some(RecoveryEnd::Undone),
        _ => None,
    }
}

/// What a recovery starts with.
struct Start {
    evidence: Evidence,
    plan: RecoveryPlan,
    /// Why it has to wait. The evidence is recorded all the same: the recoveries of other nodes may need it.
    held: Option<Refusal>,
}

/// Whether a recovery can start, or why not.
fn consider(
    view: &ClusterView<'_>,
    node: &NodeHealth<'_>,
    request: &RecoveryRequest,
    policy: &RecoveryPolicy,
) -> Result<Start, Refusal> {
    let held = concurrency::check_most_unreachable(view, policy).err().map(Refusal::from);
    let found = evidence::find(view, node, request, policy);
    let mut evidence = found.map_err(|none| held.clone().unwrap_or_else(|| none.into()))?;
    let mut plan = plan_with_evidence(view, node, &evidence, policy)?;
    if plan.is_empty() {
        if concurrency::most_unreachable(view).is_none() {
            return Err(Refusal::NothingToRelease(node.name().into()));
        }
        // The recoveries of other nodes need its evidence.
        return Ok(Start { evidence, plan, held: Some(Refusal::RecordedAsEvidence(node.name().into())) });
    }
    let volumes = drivers::unrevoked(view.objects, &plan, policy);
    if !volumes.is_empty() && !evidence.powered_off && view.guards.hold(Guard::PoweredOff) {
        let not_stated = Refusal::PowerOffNotStated { node: node.name().into(), volumes };
        evidence = evidence::find_powered_off(view, node, request, policy).ok_or(not_stated)?;
        plan = plan_with_evidence(view, node, &evidence, policy)?;
    }
    if held.is_none()
        && let Turn::Blocked(reached) | Turn::Soon(reached) = concurrency::turn(view, node.zone(), None, policy)
    {
        return Err(reached.into());
    }
    Ok(Start { evidence, plan, held })
}

/// The record of a recovery that starts. If there is already one of the same boot, it is continued.
fn new_record(view: &ClusterView<'_>, node: &NodeHealth<'_>, start: Start) -> NodeRecovery {
    let Start { evidence, plan, held } = start;
    let identity = NodeIdentity::of(node);
    let name = identity.record_name();
    let before = record_named(view.objects, &name);
    let plan = before.as_ref().map_or_else(|| plan.clone(), |before| continue_plan(view, &plan, before));
    let named = Map::from_iter([("name".to_owned(), Value::from(name))]);
    let (metadata, mut steps, mut all_evidence) = before.map_or_else(
        || (named, Vec::new(), Vec::new()),
        |before| (before.metadata, before.status.steps, before.spec.evidence),
    );
    steps.push(RecordedStep {
        at: view.now,
        what: format!("planned; evidence that the machine is off: {:?}", evidence.kind),
    });
    all_evidence.push(evidence);
    let mut status = NodeRecoveryStatus { phase: RecoveryPhase::Planned, steps, ..NodeRecoveryStatus::default() };
    if let Some(why) = held {
        status.phase = RecoveryPhase::Held;
        status.message = why.to_string();
        status.steps.push(RecordedStep { at: view.now, what: format!("Held: {why}") });
    }
    NodeRecovery {
        api_version: API_VERSION.into(),
        kind: KIND.into(),
        metadata,
        spec: NodeRecoverySpec {
            node: identity,
            evidence: all_evidence,
            last_contact: LastContact::of(node),
            plan,
            abort: None,
        },
        status,
    }
}

/// The plan, with the pods that may have been removed after an earlier recovery of this boot had ended as Undone: they may
/// still run when the node is back. If it ended as Returned, the kubelet has reported that it runs none of them.
fn continue_plan(view: &ClusterView<'_>, plan: &RecoveryPlan, before: &NodeRecovery) -> RecoveryPlan {
    let undone = before.status.phase == RecoveryPhase::Undone;
    let pods = before.spec.plan.pods.iter().filter(|_| undone);
    let removed = pods.filter(|pod| progress::object(view.objects, pod).is_none());
    let removed = removed.map(|pod| PlannedPod { target: ReplacementTarget::NotRecreated, ..pod.clone() });
    carry_over(plan.clone(), &before.spec.plan, removed, false)
}
