//! What a kubelet tells the API server about a pod.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};

use super::pod::PodRun;
use super::status::{PodFacts, merge_foreign, refresh, same_for_kubelet};
use super::{Out, PodId};
use crate::machines::next_tick;
use crate::pods::{is_terminating, observed_generation, set_condition};
use crate::step::{Context, DeleteOptions, Write};
use crate::world::Machine;

/// Whether a step may tell the API server, and what it tells.
pub(super) struct Report<'a> {
    pub(super) connected: bool,
    pub(super) out: &'a mut Out,
}

impl Report<'_> {
    /// Computes phase and conditions, and reports the status if it is new.
    pub(super) fn set_status(&mut self, cx: &Context<'_>, run: &mut PodRun, mut status: PodStatus, terminal: bool) {
        let before = run.status();
        let facts = PodFacts { pod: &run.pod, sandbox: run.sandbox, terminal };
        refresh(facts, &mut status, &before, cx.settings, cx.now);
        if terminal && run.shutdown.is_some() {
            mark_shutdown(&run.pod, &mut status, cx);
        }
        if same_for_kubelet(&before, &status) {
            return;
        }
        if self.connected && !run.gone {
            self.out.writes.push(write_status(run, status.clone()));
        }
        run.own = Some(Arc::new(status));
    }

    /// The API server has another status than the kubelet: it is told again when the kubelet compares them next.
    pub(super) fn reconcile(&mut self, cx: &Context<'_>, machine: &Machine, run: &PodRun) {
        let uid = run.pod.metadata.uid.as_deref().unwrap_or_default();
        let written = |write: &Write| matches!(write, Write::Status(object) if object.uid() == uid);
        if self.out.writes.iter().any(written) {
            return;
        }
        let at = reconciled_at(cx, machine);
        if at > cx.now {
            return self.out.look_at(at);
        }
        self.out.writes.push(write_status(run, run.status()));
    }

    /// Tells the API server that a pod has ended. Gives whether that is done.
    pub(super) fn finish(&mut self, id: &PodId, run: &PodRun) -> bool {
        if !self.connected {
            return false;
        }
        if run.gone {
            return true;
        }
        if run.own.is_some() {
            self.out.writes.push(write_status(run, run.status()));
        }
        if is_terminating(&run.pod) {
            let options = DeleteOptions { uid: Some(id.1.to_string()), grace: Some(0), ..DeleteOptions::default() };
            self.out.writes.push(Write::Delete(id.0.clone(), options));
        }
        true
    }
}

/// The moment at which a kubelet compares the statuses of pods next. It lies between two reports of the node's status.
pub(super) fn reconciled_at(cx: &Context<'_>, machine: &Machine) -> Timestamp {
    let period = cx.settings.kubelet.pod_status_period;
    next_tick(machine, period, period / 2, cx.now)
}

/// The patch of a pod's status: conditions that belong to others stay as the API server has them.
fn write_status(run: &PodRun, mut status: PodStatus) -> Write {
    merge_foreign(&run.pod, &mut status);
    status.qos_class = run.pod.status.as_ref().and_then(|status| status.qos_class.clone());
    let mut metadata = run.pod.metadata.clone();
    metadata.resource_version = None;
    Write::Status(Pod { metadata, spec: run.pod.spec.clone(), status: Some(status) }.into())
}

/// The status of a pod that ended because its machine shuts down.
fn mark_shutdown(pod: &Pod, status: &mut PodStatus, cx: &Context<'_>) {
    const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
    if status.phase.as_deref() != Some("Succeeded") {
        status.phase = Some("Failed".into());
    }
    status.reason = Some("Terminated".into());
    status.message = Some(MESSAGE.into());
    let target = PodCondition {
        type_: "DisruptionTarget".into(),
        status: "True".into(),
        reason: Some("TerminationByKubelet".into()),
        message: Some(MESSAGE.into()),
        observed_generation: observed_generation(pod, cx.settings),
        ..PodCondition::default()
    };
    let mut marked = Pod { status: Some(std::mem::take(status)), ..Pod::default() };
    set_condition(&mut marked, target, cx.now);
    *status = marked.status.unwrap_or_default();
}
