//! What follows from a change of a pod (`addPod`, `updatePod` and `deletePod` of `eventhandlers.go`).

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod as RawPod;
use stead_placement::{Pod, PodSpec};

use super::cache::pod_key;
use super::hints::{self, ClusterEvent};
use super::{Scheduler, is_own, seen};
use crate::object::SimKey;
use crate::pods::{is_terminating, node_of};
use crate::step::Context;
use crate::store::Change;

impl Scheduler {
    pub(super) fn pod_changed(&mut self, cx: &Context<'_>, change: &Change) {
        let key = &change.key;
        let (before, after) = change.of::<RawPod>();
        match (seen(before), seen(after)) {
            (None, None) => {}
            (None, Some(new)) if node_of(new).is_some() => self.add_assigned(cx, key, new),
            (None, Some(new)) => self.enqueue(cx, key, new),
            (Some(old), Some(new)) if node_of(old).is_some() => self.update_assigned(cx, key, old, new),
            (Some(_), Some(new)) if node_of(new).is_some() => {
                self.queue.remove(key);
                self.add_assigned(cx, key, new);
            }
            (Some(old), Some(new)) => self.update_pending(cx, key, old, new),
            (Some(old), None) if node_of(old).is_some() => self.remove_assigned(cx, key),
            (Some(old), None) => self.remove_pending(cx, key, old),
        }
    }

    /// A pod that has a node: it was bound, perhaps by this scheduler, or was created so.
    fn add_assigned(&mut self, cx: &Context<'_>, key: &SimKey, raw: &RawPod) {
        let assumed = self.bindings.take(key).filter(|binding| !binding.forgotten);
        let known = assumed
            .filter(|binding| Some(&*binding.queued.pod.uid) == raw.metadata.uid.as_deref())
            .filter(|binding| Some(&*binding.node) == node_of(raw))
            .and_then(|_| self.cache.cluster().pod(&pod_key(key)).cloned());
        let labels = raw.metadata.labels.as_ref();
        let pod = match known {
            Some(known) if labels.map_or(known.labels().is_empty(), |labels| labels == known.labels()) => {
                self.cache.placer().touch_pod(&known.key);
                known
            }
            // A Binding can add labels, and nothing else.
            Some(known) => {
                let spec = PodSpec { labels: labels.cloned().unwrap_or_default(), ..PodSpec::clone(&known.spec) };
                let pod = Pod { spec: Arc::new(spec), ..Pod::clone(&known) };
                self.set_assigned(key, pod)
            }
            None => match Pod::compile(raw, cx.settings.version) {
                Ok(pod) => self.set_assigned(key, pod),
                Err(_) => return,
            },
        };
        self.wake(cx, &ClusterEvent::PodAdded(&pod), None);
    }

    fn set_assigned(&mut self, key: &SimKey, pod: Pod) -> Arc<Pod> {
        let shared = Arc::new(pod.clone());
        self.cache.change().set_pod(pod);
        self.cache.cluster().pod(&pod_key(key)).cloned().unwrap_or(shared)
    }

    fn update_assigned(&mut self, cx: &Context<'_>, key: &SimKey, old: &RawPod, new: &RawPod) {
        let Some(known) = self.cache.cluster().pod(&pod_key(key)).cloned() else {
            // It was malformed, or its deletion was seen too early.
            return self.add_assigned(cx, key, new);
        };
        if is_same(old, new) {
            return match with_status(&known, new) {
                Some(pod) => self.cache.change().set_pod(pod),
                None => self.cache.placer().touch_pod(&known.key),
            };
        }
        let Ok(pod) = Pod::compile(new, cx.settings.version) else { return };
        let pod = self.set_assigned(key, pod);
        if pod.labels() != known.labels() {
            self.wake(cx, &ClusterEvent::PodLabels(&known, &pod), None);
        }
        if cx.settings.since(33) && hints::shrank(&known, &pod) {
            self.wake(cx, &ClusterEvent::PodShrunk(&known, &pod), None);
        }
    }

    fn remove_assigned(&mut self, cx: &Context<'_>, key: &SimKey) {
        if let Some(pod) = self.cache.change().remove_pod(&pod_key(key)) {
            self.wake(cx, &ClusterEvent::PodRemoved(&pod), None);
        }
    }

    /// Adds a pod without a node to the queue.
    fn enqueue(&mut self, cx: &Context<'_>, key: &SimKey, raw: &RawPod) {
        if !is_own(raw) {
            return;
        }
        let Ok(pod) = Pod::compile(raw, cx.settings.version) else { return };
        let pod = Arc::new(pod);
        self.cache.set_pending(&pod);
        self.queue.add(key, pod, cx.now);
        self.disturbed = true;
    }

    fn update_pending(&mut self, cx: &Context<'_>, key: &SimKey, old: &RawPod, new: &RawPod) {
        if !is_own(old) {
            return;
        }
        if self.bindings.is_assumed(key, new.metadata.uid.as_deref()) {
            if is_terminating(new) && !is_terminating(old) {
                self.forget_assumed(cx, key);
            }
            return;
        }
        let Some(queued) = self.queue.get(key) else { return self.enqueue(cx, key, new) };
        let known = Arc::clone(&queued.pod);
        let pod = if is_same(old, new) {
            with_status(&known, new).map_or_else(|| Arc::clone(&known), Arc::new)
        } else {
            match Pod::compile(new, cx.settings.version) {
                Ok(pod) => Arc::new(pod),
                Err(_) => return,
            }
        };
        if !Arc::ptr_eq(&pod, &known) {
            self.queue.update(key, Arc::clone(&pod));
        }
        if pod.nominated != known.nominated {
            self.cache.set_pending(&pod);
        }
        self.wake_updated(cx, key, &known, &pod, (old, new));
        if known.nominated.is_some() && known.nominated != pod.nominated {
            self.wake(cx, &ClusterEvent::PodRemoved(&known), Some(pod.spec.priority));
        }
    }

    /// Moves a rejected or gated pod that was changed in a way that may help it.
    fn wake_updated(&mut self, cx: &Context<'_>, key: &SimKey, old: &Pod, new: &Pod, raw: (&RawPod, &RawPod)) {
        let Some(rejected_by) = self.queue.get(key).map(|queued| queued.rejected_by) else { return };
        let helps = |event: ClusterEvent<'_>| {
            rejected_by.both(event.interested(true)).iter().any(|plugin| event.may_help(plugin, new))
        };
        let opened = !old.gates.is_empty() && new.gates.is_empty();
        let worth = if cx.settings.since(32) {
            opened
                || old.labels() != new.labels() && helps(ClusterEvent::PodLabels(old, new))
                || hints::shrank(old, new) && helps(ClusterEvent::PodShrunk(old, new))
                || old.spec.tolerations.0.len() != new.spec.tolerations.0.len()
                    && helps(ClusterEvent::PodTolerations(new))
        } else {
            let (old, new) = (&raw.0.metadata, &raw.1.metadata);
            old.annotations != new.annotations
                || old.deletion_timestamp != new.deletion_timestamp
                || !is_same(raw.0, raw.1)
        };
        if worth {
            let rules = self.rules(cx);
            self.queue.requeue(key, cx.now, &rules);
            self.disturbed = true;
        }
    }

    fn remove_pending(&mut self, cx: &Context<'_>, key: &SimKey, raw: &RawPod) {
        if !is_own(raw) {
            return;
        }
        let queued = self.queue.remove(key);
        if self.bindings.is_assumed(key, raw.metadata.uid.as_deref()) {
            return self.forget_assumed(cx, key);
        }
        let nominated = raw.status.as_ref().and_then(|status| status.nominated_node_name.as_deref()).unwrap_or_default();
        let known = queued.map(|queued| queued.pod).or_else(|| self.bindings.get(key).map(|b| Arc::clone(&b.queued.pod)));
        let Some(pod) = known.filter(|_| !nominated.is_empty()) else { return };
        self.cache.change().remove_pod(&pod.key);
        self.wake(cx, &ClusterEvent::PodRemoved(&pod), Some(pod.spec.priority));
    }
}

/// Whether two versions of a pod differ in nothing but their status and in metadata that placement does not look at.
fn is_same(old: &RawPod, new: &RawPod) -> bool {
    let resized = |pod: &RawPod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
        statuses.iter().any(|status| status.resources.is_some() || status.allocated_resources.is_some())
    };
    old.metadata.labels == new.metadata.labels
        && old.metadata.owner_references == new.metadata.owner_references
        && (old.metadata.generation.is_some() && old.metadata.generation == new.metadata.generation
            || old.spec == new.spec)
        && !resized(old)
        && !resized(new)
}

/// A known pod with its present status; none if placement sees no difference.
fn with_status(known: &Arc<Pod>, raw: &RawPod) -> Option<Pod> {
    let status = raw.status.as_ref();
    let nominated = status.and_then(|status| status.nominated_node_name.as_deref()).filter(|name| !name.is_empty());
    let terminating = is_terminating(raw);
    let target = || status?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "DisruptionTarget");
    let preempted = terminating
        && target().is_some_and(|target| {
            target.status == "True" && target.reason.as_deref() == Some("PreemptionByScheduler")
        });
    let started = status.and_then(|status| status.start_time.as_ref()).map(|time| time.0.as_nanosecond());
    let nominated = nominated.filter(|_| known.node.is_none());
    let same = known.nominated.as_deref() == nominated
        && known.terminating == terminating
        && known.preempted == preempted
        && known.started == started;
    (!same).then(|| {
        Pod { nominated: nominated.map(Into::into), terminating, preempted, started, ..Pod::clone(known) }
    })
}
