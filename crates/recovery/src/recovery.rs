//! A recovery that is in progress, and how its record changes.

use stead_model::{NodeHealth, OUT_OF_SERVICE, PodView};

use crate::evidence::MAX_EVIDENCE_AGE;
use crate::guard::Guard;
use crate::next_step::{NextStep, RecoveryWrite, Wait};
use crate::plan::{PlanError, plan, uid};
use crate::plan_changes::restrict_to_evidence;
use crate::policy::RecoveryPolicy;
use crate::progress;
use crate::record::{Evidence, NodeRecovery, PlannedPod, RecordedStep, RecoveryPhase, RecoveryPlan};
use crate::record_size;
use crate::refusal::Refusal;
use crate::view::{ClusterView, RecoveryRequest};

/// A recovery that is in progress.
pub(crate) struct Recovery<'a> {
    pub(crate) view: &'a ClusterView<'a>,
    pub(crate) record: &'a NodeRecovery,
    pub(crate) node: NodeHealth<'a>,
    pub(crate) request: &'a RecoveryRequest,
    pub(crate) policy: &'a RecoveryPolicy,
}

impl Recovery<'_> {
    /// Whether the machine was restarted since the recovery was recorded.
    pub(crate) fn was_restarted(&self) -> bool {
        self.view.guards.hold(Guard::Boot) && self.record.spec.node.is_other_boot(self.node.boot_id())
    }

    /// Whether somebody has confirmed that the machine is off since the last step.
    pub(crate) fn was_confirmed_again(&self) -> bool {
        self.request.confirm_off.as_ref().is_some_and(|statement| Some(statement.at) > self.record.last_step())
    }

    /// Whether the node has no out-of-service taint, whoever applied it.
    pub(crate) fn taint_is_gone(&self) -> bool {
        self.node.taint(OUT_OF_SERVICE).is_none()
    }

    /// Whether evidence is too old to apply the taint.
    pub(crate) fn has_expired(&self, evidence: &Evidence) -> bool {
        let age = self.view.now.duration_since(evidence.statement.at);
        self.view.guards.hold(Guard::ConfirmationAge) && age > MAX_EVIDENCE_AGE
    }

    /// The object of a planned pod, as long as it exists.
    pub(crate) fn object(&self, planned: &PlannedPod) -> Option<PodView<'_>> {
        progress::object(self.view.objects, planned)
    }

    /// Waits for the node.
    pub(crate) fn node_wait(&self, how: impl Into<String>) -> Wait {
        Wait { what: format!("node {}", self.node.name()), how: how.into() }
    }

    /// Deletes a pod, by its UID and version.
    pub(crate) fn delete(&self, pod: PodView<'_>) -> NextStep {
        let checked = |text: &str| if self.view.guards.hold(Guard::Uid) { text.to_owned() } else { String::new() };
        NextStep::write(RecoveryWrite::DeletePod {
            namespace: pod.namespace().into(),
            name: pod.name().into(),
            uid: checked(uid(pod)),
            resource_version: checked(pod.resource_version()),
        })
    }

    /// Waits, and records for what. The record is written only if that has changed.
    pub(crate) fn wait(&self, waits: Vec<Wait>) -> Result<NextStep, Refusal> {
        let texts: Vec<String> = waits.iter().map(Wait::to_string).collect();
        let message = texts.join("; ");
        if self.record.status.message == message {
            return Ok(NextStep::wait(waits));
        }
        let update = self.update(|record| record.status.message.clone_from(&message))?;
        Ok(NextStep { waits, ..update })
    }

    /// Enters a phase.
    pub(crate) fn enter(&self, phase: RecoveryPhase, why: &str) -> Result<NextStep, Refusal> {
        self.enter_with(phase, why, |_| {})
    }

    /// Enters a phase, with a change of the record.
    pub(crate) fn enter_with(
        &self,
        phase: RecoveryPhase,
        why: &str,
        change: impl FnOnce(&mut NodeRecovery),
    ) -> Result<NextStep, Refusal> {
        self.record_step(&format!("{phase:?}: {why}"), |record| {
            record.status.phase = phase;
            record.status.message = why.into();
            change(record);
        })
    }

    /// Records the first release.
    pub(crate) fn record_point_of_no_return(&self) -> Result<NextStep, Refusal> {
        let removed = |pod: &PlannedPod| self.object(pod).is_none() && !pod.released_earlier;
        let pod = self.record.spec.plan.pods.iter().any(removed);
        let what = if pod { "the first pod was removed" } else { "pods or volumes are being released" };
        let now = self.view.now;
        self.record_step(&format!("{what}: point of no return"), |record| record.status.no_return_since = Some(now))
    }

    /// Records a step, with a change of the record.
    pub(crate) fn record_step(&self, what: &str, change: impl FnOnce(&mut NodeRecovery)) -> Result<NextStep, Refusal> {
        self.update(|record| {
            record.status.steps.push(RecordedStep { at: self.view.now, what: what.into() });
            change(record);
        })
    }

    /// Writes the changed record. Each update also records which pods were Terminating in this boot of the machine.
    pub(crate) fn update(&self, change: impl FnOnce(&mut NodeRecovery)) -> Result<NextStep, Refusal> {
        let mut record = self.record.clone();
        if !self.was_restarted() {
            for pod in &mut record.spec.plan.pods {
                pod.terminating |= self.object(pod).is_some_and(PodView::is_terminating);
            }
        }
        change(&mut record);
        write_record(record)
    }
}

/// Writes a record, cut to the limits of what can be stored.
pub(crate) fn write_record(mut record: NodeRecovery) -> Result<NextStep, Refusal> {
    record_size::bound(&mut record);
    record_size::check(&record)?;
    Ok(NextStep::write(RecoveryWrite::Record(Box::new(record))))
}

/// The plan for the node, as far as the evidence allows it.
pub(crate) fn plan_with_evidence(
    view: &ClusterView<'_>,
    node: &NodeHealth<'_>,
    evidence: &Evidence,
    policy: &RecoveryPolicy,
) -> Result<RecoveryPlan, PlanError> {
    let whole = plan(view.objects, view.node, policy)?;
    if !view.guards.hold(Guard::Coverage) {
        return Ok(whole);
    }
    restrict_to_evidence(view.objects, node, whole, evidence)
}
