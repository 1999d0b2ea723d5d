//! What a recovery does next: at most one write.

use crate::before_taint;
use crate::begin::begin;
use crate::close;
use crate::fenced;
use crate::guard::Guard;
use crate::new_evidence;
use crate::next_step::{NextStep, RecoveryEnd};
use crate::policy::RecoveryPolicy;
use crate::record::{NodeRecovery, RecoveryPhase};
use crate::records::check_readable;
use crate::recovery::Recovery;
use crate::refusal::Refusal;
use crate::released;
use crate::returned;
use crate::situation::{Situation, classify};
use crate::view::{ClusterView, RecoveryRequest};

/// What to do next, from what was read just now. The record is that of [`crate::record_of`].
pub fn next_step(
    view: &ClusterView<'_>,
    record: Option<&NodeRecovery>,
    request: &RecoveryRequest,
    policy: &RecoveryPolicy,
) -> NextStep {
    let next = decide(view, record, request, policy).unwrap_or_else(NextStep::refuse);
    match view.objects.check() {
        Ok(()) => next,
        // A decision that leaves out a malformed object would be wrong.
        Err(error) => NextStep::refuse(error),
    }
}

fn decide(
    view: &ClusterView<'_>,
    record: Option<&NodeRecovery>,
    request: &RecoveryRequest,
    policy: &RecoveryPolicy,
) -> Result<NextStep, Refusal> {
    check_readable(view.objects, view.node)?;
    let node = view.objects.node_health(view.node)?;
    let Some(in_progress) = record.filter(|record| !record.status.phase.is_over()) else {
        let node = node.ok_or_else(|| Refusal::NodeNotFound(view.node.into()))?;
        return begin(view, record, &node, request, policy);
    };
    match node.filter(|node| in_progress.is_for(node) || !view.guards.hold(Guard::Identity)) {
        Some(node) => resume(&Recovery { view, record: in_progress, node, request, policy }),
        None => close::void(view, in_progress),
    }
}

/// The next step of a recovery that is in progress.
fn resume(recovery: &Recovery<'_>) -> Result<NextStep, Refusal> {
    use RecoveryPhase::{Fenced, Held, Planned, Recovered, Released, Returned, Undone, Void};

    match (recovery.record.status.phase, classify(recovery)) {
        (_, Situation::Ended { reason, released }) => close::close(recovery, &reason, released),
        (_, Situation::AbortRequested(abort)) => recovery.update(|record| record.spec.abort = Some(abort)),
        (_, Situation::TooLateToAbort { since }) => {
            Err(Refusal::TooLateToAbort { node: recovery.node.name().into(), since })
        }
        (_, Situation::FirstRelease) => recovery.record_point_of_no_return(),
        (phase, Situation::ConfirmedAgain) => new_evidence::resume_in(recovery, phase),
        (_, Situation::Back { released }) => returned::check(recovery, released),
        (Planned | Held, Situation::SignOfLife(_)) => before_taint::wait_for_return(recovery),
        (Planned | Held, Situation::Unreachable) => before_taint::prepare(recovery),
        (Fenced, Situation::SignOfLife(_)) => fenced::wait_for_release(recovery),
        (Fenced, Situation::Unreachable) => fenced::release(recovery),
        (Released | Recovered, Situation::Unreachable)
            if recovery.taint_is_gone() && recovery.was_confirmed_again() =>
        {
            new_evidence::resume_in(recovery, Planned)
        }
        (Released, Situation::SignOfLife(_) | Situation::Unreachable) => released::wait_for_replacements(recovery),
        (Recovered | Returned | Undone | Void, Situation::SignOfLife(sign)) => {
            let waits = vec![recovery.node_wait(sign.to_string())];
            Ok(NextStep { waits, ..NextStep::end(RecoveryEnd::Recovered) })
        }
        (Recovered | Returned | Undone | Void, Situation::Unreachable) => Ok(NextStep::end(RecoveryEnd::Recovered)),
    }
}
