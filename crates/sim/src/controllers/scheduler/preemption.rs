//! Preemption: pods of lower priority make room (`pkg/scheduler/framework/preemption`).
//!
//! From 1.33 on the victims are deleted beside the scheduling loop, and the preemptor is kept out of the queue until then.
//! Here all of it happens in one step, so nothing can come in between.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod as RawPod;
use stead_placement::{Nominee, Refusal};

use super::Scheduler;
use super::binding::BindingStage;
use super::plugin_set::PluginSet;
use super::queue::QueuedPod;
use super::status::{self, Nomination};
use crate::choices::Question;
use crate::event_log::EventNote;
use crate::object::SimKey;
use crate::pods::is_terminating;
use crate::step::{Context, DeleteOptions, Write};

impl Scheduler {
    /// Clears a node for a pod, and nominates it for the pod.
    pub(super) fn preempt(
        &mut self,
        cx: &mut Context<'_>,
        queued: QueuedPod,
        raw: &Arc<RawPod>,
        refusal: &Refusal,
        rejected_by: PluginSet,
    ) -> Vec<Write> {
        let options: Vec<&str> = refusal.nominees.iter().map(|nominee| &*nominee.node).collect();
        let question = Question::Nomination { pod: format!("{}/{}", queued.key.namespace, queued.key.name) };
        let Some(nominee) = refusal.nominees.get(cx.choices.pick(question, &options)) else { return Vec::new() };
        let message = refusal.message.as_deref().unwrap_or_default();
        let priority = queued.pod.spec.priority;
        let evictions = self.evictions(cx, raw, nominee);
        // Pods of lower priority that wait for the same node have to look for another one.
        let nominated = self.cache.cluster().nominated_to(&nominee.node).iter();
        let losers = nominated.filter(|pod| pod.spec.priority < priority);
        let losers: Vec<Write> = losers
            .filter_map(|pod| {
                let pod = cx.store.at::<RawPod>(&SimKey::pod(&pod.key.namespace, &pod.key.name))?;
                status::patch(pod, None, Nomination::Clear, cx.now)
            })
            .collect();
        let nomination = Nomination::Set(&nominee.node);
        let failed = self.attempt_failed(cx, queued, rejected_by, "Unschedulable", message, nomination);
        match cx.settings.since(33) {
            true => failed.into_iter().chain(losers).chain(evictions).collect(),
            false => evictions.into_iter().chain(losers).chain(failed).collect(),
        }
    }

    /// Deletes the victims.
    fn evictions(&mut self, cx: &Context<'_>, preemptor: &RawPod, nominee: &Nominee) -> Vec<Write> {
        let by = preemptor.metadata.uid.as_deref().unwrap_or_default();
        let message = format!("Preempted by pod {by} on node {}", nominee.node);
        let mut writes = Vec::new();
        for victim in &nominee.victims {
            let key = SimKey::pod(&victim.namespace, &victim.name);
            let Some(pod) = cx.store.at::<RawPod>(&key).filter(|pod| !is_terminating(pod)) else { continue };
            let version = pod.metadata.resource_version.as_deref();
            let event = |message: String| Write::Event(EventNote::normal(&key, "Preempted", message).of_version(version));
            if cx.settings.since(36) && self.cancel_binding(cx, &key) {
                writes.push(event(format!("{message} (in kube-scheduler memory).")));
                continue;
            }
            let why = format!("{}: preempting to accommodate a higher priority pod", <Scheduler as crate::step::Controller>::COMPONENT);
            let condition =
                status::condition(pod, cx.settings, "DisruptionTarget", "True", "PreemptionByScheduler", &why);
            writes.extend(status::patch(pod, Some(condition), Nomination::Keep, cx.now));
            writes.push(Write::Delete(key.clone(), DeleteOptions::default()));
            writes.push(event(message.clone()));
        }
        writes
    }

    /// Gives up the binding of a pod that waits for its claims.
    fn cancel_binding(&mut self, cx: &Context<'_>, key: &SimKey) -> bool {
        let waits = self.bindings.get(key).filter(|binding| matches!(binding.stage, BindingStage::Volumes(..)));
        let Some((queued, node)) = waits.map(|binding| (binding.queued.clone(), Arc::clone(&binding.node))) else {
            return false;
        };
        self.bindings.add(queued, &node, BindingStage::Preempted, cx.now);
        true
    }
}
