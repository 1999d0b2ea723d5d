//! The situation of a node whose recovery is in progress.

use jiff::Timestamp;

use crate::annotation::{EndedRecovery, RecoveryAnnotation, is_fenced_by};
use crate::guard::Guard;
use crate::progress;
use crate::record::{LastContact, Statement};
use crate::recovery::Recovery;
use crate::sign_of_life::{SignOfLife, is_back};

/// The situation of a node whose recovery is in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Situation {
    /// The recovery ends: it was ended already, the machine was restarted, there is a sign of life before anything was
    /// released, or somebody has aborted it.
    Ended {
        reason: String,
        /// Whether anything was released.
        released: bool,
    },
    /// Somebody asks to abort, and nothing was released.
    AbortRequested(Statement),
    /// Somebody asks to abort after the point of no return.
    TooLateToAbort { since: Timestamp },
    /// The first pod was removed or the first volume detached, and the record does not say so yet.
    FirstRelease,
    /// There was a sign of life, and somebody has confirmed since that the machine is off.
    ConfirmedAgain,
    /// The node is Ready again without a restart, and what was released may still run there.
    Back { released: bool },
    /// There was a sign of life, but the node is not Ready; what was released may still run there.
    SignOfLife(SignOfLife),
    /// No sign of life.
    Unreachable,
}

/// Whether anything was released from the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Release {
    /// Nothing was.
    Nothing,
    /// Something was, and the record does not say so yet.
    NotRecorded,
    /// The record says so.
    Recorded(Timestamp),
}

/// The situation of the node.
pub(crate) fn classify(recovery: &Recovery<'_>) -> Situation {
    let Recovery { view, record, node, request, .. } = recovery;
    let (guards, release) = (view.guards, release(recovery));
    let released = release != Release::Nothing;
    let annotation = RecoveryAnnotation::of_record(node, record.name());
    if let Some(annotation) = annotation.filter(|annotation| annotation.ended.is_some()) {
        let reason = annotation.why.unwrap_or_else(|| "its recovery has ended".into());
        return Situation::Ended { reason, released };
    }
    if recovery.was_restarted() {
        let reason = format!("the machine was restarted: its boot ID is {}", node.boot_id().unwrap_or_default());
        return Situation::Ended { reason, released };
    }
    let alive = SignOfLife::of(node, view.now, guards);
    let heartbeat = LastContact::of(node) != record.spec.last_contact && guards.hold(Guard::SignOfLife);
    let sign = alive.clone().or_else(|| heartbeat.then(|| SignOfLife::since_evidence(node)));
    // A sign of life alone is not enough to end a recovery while something that was released may still run on the node.
    let released_earlier = record.spec.plan.pods.iter().any(|pod| pod.released_earlier);
    let may_still_run = (released || released_earlier) && guards.hold(Guard::PointOfNoReturn);
    if may_still_run && alive.is_none() && sign.is_some() && recovery.was_confirmed_again() {
        return Situation::ConfirmedAgain;
    }
    if let Some(sign) = sign.as_ref().filter(|_| !may_still_run) {
        return Situation::Ended { reason: sign.to_string(), released };
    }
    if !released || !guards.hold(Guard::PointOfNoReturn) {
        if let Some(Statement { by, words, .. }) = &record.spec.abort {
            return Situation::Ended { reason: format!("{by} aborted it: {words}"), released: false };
        }
        if let Some(abort) = &request.abort {
            return Situation::AbortRequested(abort.clone());
        }
    }
    match (release, sign) {
        (Release::NotRecorded, _) => Situation::FirstRelease,
        (Release::Recorded(since), _) if request.abort.is_some() => Situation::TooLateToAbort { since },
        (_, Some(_)) if is_back(node, view.now) => Situation::Back { released },
        (_, Some(sign)) => Situation::SignOfLife(sign),
        (_, None) => Situation::Unreachable,
    }
}

/// Whether anything was released. Before the taint was applied, pods and volumes come and go for other reasons.
fn release(recovery: &Recovery<'_>) -> Release {
    let Recovery { view, record, node, .. } = recovery;
    if let Some(since) = record.status.no_return_since {
        return Release::Recorded(since);
    }
    let annotation = RecoveryAnnotation::of_record(node, record.name());
    let ended_fenced = annotation.is_some_and(|annotation| annotation.ended == Some(EndedRecovery::Fenced));
    let fenced = record.status.phase.is_after_taint() || ended_fenced || is_fenced_by(node, record.name());
    if fenced && progress::any_released(view.objects, node.name(), &record.spec.plan) {
        Release::NotRecorded
    } else {
        Release::Nothing
    }
}
