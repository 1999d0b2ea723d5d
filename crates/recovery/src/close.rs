//! The end of a recovery: what Stead has added to the node and its pods is removed, and the record is closed.

use jiff::SignedDuration;
use stead_model::OUT_OF_SERVICE;

use crate::annotation::{self, EndedRecovery, RecoveryAnnotation, TaintOwner};
use crate::guard::Guard;
use crate::next_step::NextStep;
use crate::record::{NodeRecovery, RecordedStep, RecoveryPhase};
use crate::recovery::{Recovery, write_record};
use crate::refusal::Refusal;
use crate::tolerations;
use crate::view::ClusterView;

/// After this time every controller has seen that a taint was removed: their caches are seconds behind at most.
const SETTLED: SignedDuration = SignedDuration::from_secs(30);

/// Removes everything that is ours from the node and its pods, then closes the record.
pub(crate) fn close(recovery: &Recovery<'_>, why: &str, released: bool) -> Result<NextStep, Refusal> {
    let Recovery { view, record, node, request, .. } = recovery;
    let (guards, now) = (view.guards, view.now);
    let annotation = RecoveryAnnotation::of_record(node, record.name());
    let ended = annotation.as_ref().and_then(|annotation| annotation.ended);
    // Somebody else may be about to apply the taint, from what they have read before: the changed Node refuses that.
    let annotate =
        if guards.hold(Guard::EndAnnotation) { ended.is_none() } else { annotation::is_fenced_by(node, record.name()) };
    if annotate {
        return Ok(NextStep::write(annotation::end(node, record, &request.who, why, now, guards)));
    }
    if let Some(write) = tolerations::next_to_take_back(view, &record.spec.plan) {
        let since = annotation.filter(|_| ended == Some(EndedRecovery::Fenced)).map(|annotation| annotation.time);
        let settled = since.is_none_or(|since| now.duration_since(since) >= SETTLED);
        if !settled && guards.hold(Guard::Tolerations) {
            let how = "its taint is removed; the added tolerations stay until every controller has seen that";
            return recovery.wait(vec![recovery.node_wait(how)]);
        }
        return Ok(NextStep::write(write));
    }
    let phase = if released { RecoveryPhase::Returned } else { RecoveryPhase::Undone };
    let foreign = annotation::taint_owner(node, record.name()) == Some(TaintOwner::Foreign);
    let note = if foreign {
        format!("; somebody else applied the taint {OUT_OF_SERVICE}, which stays")
    } else {
        String::new()
    };
    recovery.enter(phase, &format!("{why}{note}"))
}

/// The node is gone, or another node has its name. Pods may still exist.
pub(crate) fn void(view: &ClusterView<'_>, record: &NodeRecovery) -> Result<NextStep, Refusal> {
    if let Some(write) = tolerations::next_to_take_back(view, &record.spec.plan) {
        return Ok(NextStep::write(write));
    }
    let mut record = record.clone();
    let gone = Refusal::NodeGone { node: view.node.into(), uid: record.spec.node.uid.clone() };
    record.status.phase = RecoveryPhase::Void;
    record.status.message = gone.to_string();
    record.status.steps.push(RecordedStep { at: view.now, what: gone.to_string() });
    write_record(record)
}
