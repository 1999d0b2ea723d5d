//! kube-scheduler: its queue, back-off, binding and preemption. The decision itself is `stead_placement`.
//!
//! All of it happens in one item, the scheduling loop. Each step does the thing that is due first: a binding, a deletion
//! of preempted pods, or one attempt to schedule the pod at the head of the queue. Every change of an object goes into the cache at once
//! (`cache.rs`, `pod_changes.rs`), and moves the rejected pods that it may help (`hints.rs`).

mod attempt;
mod binding;
mod cache;
mod hints;
mod plugin_set;
mod pod_changes;
mod preemption;
mod queue;
mod resume;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod as RawPod;
use stead_placement::{Cluster, Plugin};

use crate::choices::Question;
use crate::error::ApiError;
use crate::object::{SimKey, SimObject};
use crate::pods;
use crate::step::{Context, Controller, Item, Step, Wakes, Write};
use crate::store::Change;
use attempt::Refusals;
use binding::Bindings;
use cache::Cache;
use hints::ClusterEvent;
use preemption::Eviction;
use queue::{QueueRules, QueuedPod, SchedulingQueue};

/// What the component has in memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scheduler {
    /// When it was started; timers count from there.
    started: Option<Timestamp>,
    cache: Cache,
    queue: SchedulingQueue,
    bindings: Bindings,
    evictions: Vec<Eviction>,
    /// When the next attempt can begin.
    free_at: Option<Timestamp>,
    refusals: Refusals,
    /// Whether the queue or a binding changed since the last step.
    disturbed: bool,
}

impl Controller for Scheduler {
    const COMPONENT: &'static str = "default-scheduler";

    fn affected(&mut self, cx: &mut Context<'_>, change: &Change, wakes: &mut Wakes) {
        self.start(cx);
        match change.latest() {
            SimObject::Pod(_) => self.pod_changed(cx, change),
            SimObject::Node(_) => self.node_changed(cx, change),
            _ => self.other_changed(cx, change),
        }
        if std::mem::take(&mut self.disturbed) {
            wakes.now(Item::Pass);
        }
    }

    fn step(&mut self, cx: &mut Context<'_>, _item: &Item) -> Step {
        self.start(cx);
        self.disturbed = false;
        let rules = self.rules(cx);
        let mut writes = Vec::new();
        if let Some(key) = self.bindings.due(cx.now) {
            writes = self.go_on_binding(cx, &key);
        } else if let Some(deletions) = self.go_on_evicting(cx) {
            writes = deletions;
        } else if self.free_at.is_none_or(|at| at <= cx.now)
            && let Some(queued) = self.next_pod(cx, &rules)
        {
            writes = self.attempt(cx, queued);
            let timers = &cx.settings.timers;
            // The loop waits until the status of a rejected pod is written.
            let rejected = matches!(writes.as_slice(), [.., Write::Event(_), Write::Status(_)]);
            let call = if rejected { timers.scheduler_call } else { SignedDuration::ZERO };
            self.free_at = Some(cx.now + timers.scheduler_attempt + call);
        }
        Step::writes(writes).and_again(self.next_step(cx))
    }

    fn refused(&mut self, cx: &mut Context<'_>, _item: &Item, write: &Write, error: &ApiError) -> Vec<Write> {
        match write {
            Write::Bind { pod, uid, .. } => self.bind_refused(cx, pod, uid, error),
            _ => Vec::new(),
        }
    }

    fn resume(&mut self, cx: &mut Context<'_>, wakes: &mut Wakes) {
        self.start(cx);
        self.rebuild(cx);
        self.disturbed = false;
        wakes.now(Item::Pass);
    }
}

impl Scheduler {
    /// The cluster as it knows it.
    pub(crate) fn placement(&self) -> &Cluster {
        self.cache.cluster()
    }

    /// Starts with what it knows of a cluster.
    pub(crate) fn set_placement(&mut self, cluster: Cluster, now: Timestamp) {
        self.started = Some(now);
        self.cache = Cache::knowing(cluster);
    }

    fn start(&mut self, cx: &Context<'_>) {
        if self.started.is_none() {
            self.started = Some(cx.now);
            self.cache = Cache::of(cx.settings.version);
        }
    }

    fn rules(&self, cx: &Context<'_>) -> QueueRules {
        QueueRules::of(cx.settings, self.started.unwrap_or(cx.now))
    }

    /// The pod to try next. A recording says which of those that came at the same moment.
    fn next_pod(&mut self, cx: &mut Context<'_>, rules: &QueueRules) -> Option<QueuedPod> {
        if cx.choices.are_recorded() {
            let keys = self.queue.first_active(cx.now, rules);
            let names: Vec<String> = keys.iter().map(|key| format!("{}/{}", key.namespace, key.name)).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if let Some(first) = keys.get(cx.choices.pick_earliest(&Question::NextPod, &names)) {
                self.queue.prefer(first);
            }
        }
        self.queue.pop(cx.now, rules)
    }

    /// How long it takes until there is something to do, if nothing changes.
    fn next_step(&self, cx: &Context<'_>) -> Option<SignedDuration> {
        let attempt = self.queue.next_at(cx.now, &self.rules(cx)).map(|at| self.free_at.map_or(at, |free| free.max(at)));
        let at = attempt.into_iter().chain(self.bindings.next_at()).chain(self.next_eviction()).min()?;
        Some(at.duration_since(cx.now).max(SignedDuration::ZERO))
    }

    /// Moves the rejected pods that an event may help: all of them, or those with at most this priority
    /// (`MoveAllToActiveOrBackoffQueue`).
    fn wake(&mut self, cx: &Context<'_>, event: &ClusterEvent<'_>, most: Option<i32>) {
        let hints = cx.settings.since(32);
        let (mut helped, mut held): (Vec<SimKey>, Vec<SimKey>) = (Vec::new(), Vec::new());
        for (queued, plugins) in self.queue.rejected_by(event.interested(hints)) {
            let pod = &queued.pod;
            let removed = matches!(event, ClusterEvent::PodRemoved(_));
            if most.is_some_and(|most| pod.spec.priority > most) || queued.held && !removed {
                continue;
            }
            let helps = match event {
                _ if hints => plugins.iter().any(|plugin| event.may_help(plugin, pod)),
                ClusterEvent::NodeAdded(node)
                | ClusterEvent::NodeAllocatable(_, node)
                | ClusterEvent::NodeLabels(_, node)
                | ClusterEvent::NodeTaints(_, node) => self.cache.admits(&node.name, pod),
                ClusterEvent::PodAdded(other) | ClusterEvent::PodLabels(_, other) => {
                    hints::is_related(pod, other, plugins.contains(Plugin::PodTopologySpread))
                }
                ClusterEvent::ClassAdded { waits } => *waits,
                _ => true,
            };
            if helps && self.is_preempting(&queued.key) {
                held.push(queued.key.clone());
            } else if helps {
                helped.push(queued.key.clone());
            }
        }
        for key in held {
            self.queue.hold(&key);
        }
        let rules = self.rules(cx);
        for key in helped {
            self.queue.requeue(&key, cx.now, &rules);
            self.disturbed = true;
        }
    }
}

/// Whether the scheduler sees a pod: it watches those that have not ended.
fn seen(pod: Option<&Arc<RawPod>>) -> Option<&Arc<RawPod>> {
    pod.filter(|pod| !pods::has_ended(pod))
}

/// Whether this scheduler is asked to place the pod.
fn is_own(pod: &RawPod) -> bool {
    let name = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or_default();
    name.is_empty() || name == Scheduler::COMPONENT
}
