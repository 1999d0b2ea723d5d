//! Preemption: pods of lower priority make room (`pkg/scheduler/framework/preemption`).
//!
//! From 1.33 on the victims are deleted beside the scheduling loop, the last one after all others, and the preemptor stays
//! out of the queue until then.

use std::sync::Arc;

use jiff::Timestamp;
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
use crate::step::{Context, Controller, DeleteOptions, Write};

/// A pod that has to go.
#[derive(Debug, Clone)]
struct Victim {
    key: SimKey,
    uid: Option<String>,
    version: Option<String>,
}

/// The deletion of victims, beside the scheduling loop.
#[derive(Debug, Clone)]
pub(super) struct Eviction {
    preemptor: SimKey,
    /// The text of the victims' events.
    message: String,
    /// When it goes on.
    at: Timestamp,
    /// Victims that have their condition and are deleted next.
    marked: Vec<Victim>,
    /// The last victim, while it waits for the others.
    last: Option<Victim>,
}

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
        let by = raw.metadata.uid.as_deref().unwrap_or_default();
        let message = format!("Preempted by pod {by} on node {}", nominee.node);
        let mut victims = victims(cx, nominee);
        let beside = cx.settings.since(33);
        let mut writes = Vec::new();
        let losers = self.losers(cx, nominee, queued.pod.spec.priority);
        if !beside {
            writes.extend(self.mark(cx, &mut victims, &message));
            writes.extend(victims.iter().flat_map(|victim| delete(cx, victim, &message)));
            writes.extend(losers);
        } else if !victims.is_empty() {
            writes.extend(losers);
            let last = if victims.len() > 1 { victims.pop() } else { None };
            writes.extend(self.mark(cx, &mut victims, &message));
            let at = cx.now + cx.settings.timers.scheduler_bind;
            self.evictions.push(Eviction { preemptor: queued.key.clone(), message, at, marked: victims, last });
        }
        let text = refusal.message.as_deref().unwrap_or_default();
        let nomination = Nomination::Set(&nominee.node);
        writes.extend(self.attempt_failed(cx, queued, rejected_by, "Unschedulable", text, nomination));
        writes
    }

    /// Takes the nomination from pods of lower priority that wait for the same node: they have to look for another one.
    fn losers(&self, cx: &Context<'_>, nominee: &Nominee, priority: i32) -> Vec<Write> {
        let nominated = self.cache.cluster().nominated_to(&nominee.node).iter();
        let losers = nominated.filter(|pod| pod.spec.priority < priority).filter_map(|pod| {
            let pod = cx.store.at::<RawPod>(&SimKey::pod(&pod.key.namespace, &pod.key.name))?;
            status::patch(pod, None, Nomination::Clear, cx.now)
        });
        losers.collect()
    }

    /// Marks victims as such. Those that wait for their claims are not deleted: their binding is given up.
    fn mark(&mut self, cx: &Context<'_>, victims: &mut Vec<Victim>, message: &str) -> Vec<Write> {
        let mut writes = Vec::new();
        victims.retain(|victim| {
            if cx.settings.since(36) && self.cancel_binding(cx, &victim.key) {
                writes.push(preempted(victim, format!("{message} (in kube-scheduler memory).")));
                return false;
            }
            let Some(pod) = present(cx, victim) else { return false };
            let why = format!("{}: preempting to accommodate a higher priority pod", Scheduler::COMPONENT);
            let condition =
                status::condition(pod, cx.settings, "DisruptionTarget", "True", "PreemptionByScheduler", &why);
            writes.extend(status::patch(pod, Some(condition), Nomination::Keep, cx.now));
            true
        });
        writes
    }

    /// When victims are deleted.
    pub(super) fn next_eviction(&self) -> Option<Timestamp> {
        self.evictions.iter().map(|eviction| eviction.at).min()
    }

    /// Deletes the victims whose time has come.
    pub(super) fn go_on_evicting(&mut self, cx: &Context<'_>) -> Option<Vec<Write>> {
        let due = self.evictions.iter().position(|eviction| eviction.at <= cx.now)?;
        let mut eviction = self.evictions.remove(due);
        let mut writes: Vec<Write> =
            eviction.marked.iter().flat_map(|victim| delete(cx, victim, &eviction.message)).collect();
        if let Some(last) = eviction.last.take() {
            let mut marked = vec![last];
            writes.extend(self.mark(cx, &mut marked, &eviction.message));
            let at = cx.now + cx.settings.timers.scheduler_bind;
            self.evictions.push(Eviction { at, marked, ..eviction });
        }
        Some(writes)
    }

    /// Whether victims of a pod are being deleted (`IsPodRunningPreemption`).
    pub(super) fn is_preempting(&self, key: &SimKey) -> bool {
        self.evictions.iter().any(|eviction| eviction.preemptor == *key)
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

/// The victims that are not being deleted yet.
fn victims(cx: &Context<'_>, nominee: &Nominee) -> Vec<Victim> {
    let found = nominee.victims.iter().filter_map(|victim| {
        let key = SimKey::pod(&victim.namespace, &victim.name);
        let metadata = &cx.store.at::<RawPod>(&key).filter(|pod| !is_terminating(pod))?.metadata;
        Some(Victim { key, uid: metadata.uid.clone(), version: metadata.resource_version.clone() })
    });
    found.collect()
}

fn present<'a>(cx: &Context<'a>, victim: &Victim) -> Option<&'a Arc<RawPod>> {
    cx.store.at::<RawPod>(&victim.key).filter(|pod| pod.metadata.uid == victim.uid)
}

fn preempted(victim: &Victim, message: String) -> Write {
    Write::Event(EventNote::normal(&victim.key, "Preempted", message).of_version(victim.version.as_deref()))
}

/// Deletes a victim, if it is still there.
fn delete(cx: &Context<'_>, victim: &Victim, message: &str) -> Vec<Write> {
    match present(cx, victim) {
        Some(_) => {
            let deletion = Write::Delete(victim.key.clone(), DeleteOptions::default());
            vec![deletion, preempted(victim, message.to_owned())]
        }
        None => Vec::new(),
    }
}
