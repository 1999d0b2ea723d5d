//! One attempt to schedule a pod (`schedule_one.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod as RawPod};
use stead_placement::{NamedNodes, Plugin, Pod, PodSpec, Refusal, Unmodelled, VolumePlan, refusal};

use super::binding::{BindingStage, SELECTED_NODE};
use super::plugin_set::PluginSet;
use super::queue::QueuedPod;
use super::status::{self, Nomination};
use super::{Scheduler, seen};
use crate::choices::Question;
use crate::object::{SimKey, SimObject};
use crate::step::{Context, Write};

/// The annotation of a volume that was not bound by its creator.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// The refusals of the present revision of the cache, by the spec of pods: replicas are refused for the same reasons
/// while nothing changes.
#[derive(Debug, Clone, Default)]
pub(super) struct Refusals {
    revision: u64,
    known: BTreeMap<Arc<PodSpec>, Arc<Refusal>>,
}

/// The maximum number of refusals that are kept.
const KEPT_REFUSALS: usize = 1024;

impl Scheduler {
    /// Tries to place a pod.
    pub(super) fn attempt(&mut self, cx: &mut Context<'_>, queued: QueuedPod) -> Vec<Write> {
        let key = queued.key.clone();
        let Some(raw) = seen(cx.store.at::<RawPod>(&key)).cloned() else { return Vec::new() };
        if queued.pod.terminating {
            let message = format!("skip schedule deleting pod: {}/{}", key.namespace, key.name);
            return vec![status::failed_scheduling(&key, raw.metadata.resource_version.as_deref(), &message)];
        }
        match self.choose_node(cx, &queued) {
            Ok(Some(node)) => self.reserve(cx, queued, &raw, &node),
            Ok(None) => match self.refuse(&queued.pod) {
                Ok(Some(refusal)) => self.no_node(cx, queued, &raw, &refusal),
                Ok(None) | Err(_) => Vec::new(),
            },
            // The pod needs something that is not modelled, such as devices: nobody places it.
            Err(_) => Vec::new(),
        }
    }

    /// One of the best nodes for a pod.
    fn choose_node(&mut self, cx: &mut Context<'_>, queued: &QueuedPod) -> Result<Option<Arc<str>>, Unmodelled> {
        let placement = self.cache.placer().place(&queued.pod)?;
        let best = placement.best();
        if best.len() == 0 {
            return Ok(None);
        }
        let pod = format!("{}/{}", queued.key.namespace, queued.key.name);
        cx.choices.done(&Question::NextPod, &pod);
        let question = Question::Node { pod };
        let names = || placement.best().map(|name| &**name).collect();
        let chosen = cx.choices.pick_of(question, best.len(), names);
        Ok(placement.nth_best(chosen).cloned())
    }

    /// Why a pod fits nowhere.
    fn refuse(&mut self, pod: &Arc<Pod>) -> Result<Option<Arc<Refusal>>, Unmodelled> {
        let revision = self.cache.revision();
        let refusals = &mut self.refusals;
        if refusals.revision != revision || refusals.known.len() >= KEPT_REFUSALS {
            *refusals = Refusals { revision, known: BTreeMap::new() };
        }
        if !is_like_others(pod) {
            return Ok(refusal(self.cache.cluster(), pod)?.map(Arc::new));
        }
        if let Some(known) = refusals.known.get(&pod.spec) {
            return Ok(Some(Arc::clone(known)));
        }
        let found = refusal(self.cache.cluster(), pod)?.map(Arc::new);
        // Preemption also depends on the order of a node's pods, which every event changes.
        if let Some(found) = found.as_ref().filter(|found| found.nominees.is_empty()) {
            refusals.known.insert(Arc::clone(&pod.spec), Arc::clone(found));
        }
        Ok(found)
    }

    /// What follows where no node fits.
    fn no_node(&mut self, cx: &mut Context<'_>, queued: QueuedPod, raw: &Arc<RawPod>, refusal: &Refusal) -> Vec<Write> {
        let nomination = if refusal.clears_nomination { Nomination::Clear } else { Nomination::Keep };
        if let Some(error) = &refusal.error {
            let none = PluginSet::default();
            return self.attempt_failed(cx, queued, none, "SchedulerError", &error.to_string(), nomination);
        }
        let plugins = plugins_of(&queued.pod, refusal);
        if !refusal.nominees.is_empty() {
            return self.preempt(cx, queued, raw, refusal, plugins);
        }
        let message = refusal.message.as_deref().unwrap_or_default();
        self.attempt_failed(cx, queued, plugins, "Unschedulable", message, nomination)
    }

    /// Puts a pod back into the queue, and says why (`handleSchedulingFailure`).
    pub(super) fn attempt_failed(
        &mut self,
        cx: &mut Context<'_>,
        queued: QueuedPod,
        rejected_by: PluginSet,
        reason: &str,
        message: &str,
        nomination: Nomination<'_>,
    ) -> Vec<Write> {
        let key = queued.key.clone();
        let Some(raw) = seen(cx.store.at::<RawPod>(&key)).cloned() else {
            return vec![status::failed_scheduling(&key, None, message)];
        };
        if raw.metadata.uid.as_deref() != Some(&*queued.pod.uid) {
            // Another pod of the same name, which has its own place in the queue.
            return Vec::new();
        }
        if crate::pods::node_of(&raw).is_none() {
            self.return_to_queue(cx, queued, rejected_by, &raw);
        }
        let condition = status::condition(&raw, cx.settings, "PodScheduled", "False", reason, message);
        let event = status::failed_scheduling(&key, raw.metadata.resource_version.as_deref(), message);
        let patch = status::patch(&raw, Some(condition), nomination, cx.now);
        std::iter::once(event).chain(patch).collect()
    }

    /// Puts a pod back into the queue, as it is now.
    fn return_to_queue(&mut self, cx: &Context<'_>, mut queued: QueuedPod, rejected_by: PluginSet, raw: &RawPod) {
        // It may have changed while it was assumed to be on a node.
        let nominated = raw.status.as_ref().and_then(|status| status.nominated_node_name.as_deref()).unwrap_or_default();
        let terminating = raw.metadata.deletion_timestamp.is_some();
        if queued.pod.nominated.as_deref().unwrap_or_default() != nominated || queued.pod.terminating != terminating {
            let nominated = (!nominated.is_empty()).then(|| nominated.into());
            queued.pod = Arc::new(Pod { nominated, terminating, ..Pod::clone(&queued.pod) });
        }
        let rules = self.rules(cx);
        self.queue.give_back(queued, rejected_by, cx.now, &rules);
    }

    /// Assumes a pod on a node, and starts the binding of its claims and then of the pod itself.
    fn reserve(&mut self, cx: &mut Context<'_>, queued: QueuedPod, raw: &Arc<RawPod>, node: &Arc<str>) -> Vec<Write> {
        let plan = self.cache.cluster().volume_plan(&queued.pod, node).unwrap_or_default();
        if self.cache.change().assume(&queued.pod, node).is_err() {
            return Vec::new();
        }
        let timers = &cx.settings.timers;
        if plan.is_empty() {
            self.bindings.add(queued, node, BindingStage::Bind, cx.now + timers.scheduler_call);
            return Vec::new();
        }
        let mut writes = Vec::new();
        if cx.settings.since(35) {
            writes.extend(status::patch(raw, None, Nomination::Set(node), cx.now));
        }
        writes.extend(volume_writes(cx, &queued.key, node, &plan));
        let until = cx.now + timers.volume_bind_timeout;
        let first = (cx.now + SignedDuration::from_secs(1)).min(until);
        self.bindings.add(queued, node, BindingStage::Volumes(plan, until), first);
        writes
    }
}

/// Whether the refusal of a pod is that of all pods with its spec.
fn is_like_others(pod: &Pod) -> bool {
    pod.nominated.is_none() && !pod.spec.volumes.iter().any(|volume| matches!(volume.claim(), Some((_, true))))
}

/// The plugins that rejected a pod. NodeAffinity is one of them whenever it lists nodes by name.
fn plugins_of(pod: &Pod, refusal: &Refusal) -> PluginSet {
    let named = matches!(&pod.spec.named_nodes, NamedNodes::Only(names) if !names.is_empty());
    let named = named.then_some(Plugin::NodeAffinity).filter(|_| !refusal.plugins.is_empty());
    refusal.plugins.iter().copied().chain(named).collect()
}

/// The writes that make the volume binder and the provisioner bind the claims of a pod (`bindAPIUpdate`).
fn volume_writes(cx: &Context<'_>, pod: &SimKey, node: &str, plan: &VolumePlan) -> Vec<Write> {
    let claim_of = |name: &str| cx.store.get::<PersistentVolumeClaim>(&pod.namespace, name);
    let volumes = plan.bindings.iter().filter_map(|(claim, volume)| {
        let (claim, volume) = (claim_of(claim)?, cx.store.get::<PersistentVolume>("", volume)?);
        Some(Write::Replace(SimObject::from(bound_to(volume, claim))))
    });
    let claims = plan.provisions.iter().filter_map(|claim| {
        let mut claim = PersistentVolumeClaim::clone(claim_of(claim)?);
        claim.metadata.annotations.get_or_insert_default().insert(SELECTED_NODE.into(), node.to_owned());
        Some(Write::Replace(SimObject::from(claim)))
    });
    volumes.chain(claims).collect()
}

/// A volume that is reserved for a claim (`GetBindVolumeToClaim`).
fn bound_to(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> PersistentVolume {
    let mut volume = volume.clone();
    let spec = volume.spec.get_or_insert_default();
    let (name, namespace, uid) = (&claim.metadata.name, &claim.metadata.namespace, &claim.metadata.uid);
    let old = spec.claim_ref.as_ref();
    let is_for = |uid_too: bool| {
        old.is_some_and(|old| {
            let unset = old.uid.as_deref().unwrap_or_default().is_empty();
            old.name == *name && old.namespace == *namespace && (old.uid == *uid || !uid_too && unset)
        })
    };
    let was_bound = is_for(false);
    if !is_for(true) {
        spec.claim_ref = Some(ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("PersistentVolumeClaim".into()),
            name: name.clone(),
            namespace: namespace.clone(),
            resource_version: claim.metadata.resource_version.clone(),
            uid: uid.clone(),
            ..ObjectReference::default()
        });
    }
    if !was_bound {
        let annotations: &mut BTreeMap<String, String> = volume.metadata.annotations.get_or_insert_default();
        annotations.entry(BOUND_BY_CONTROLLER.into()).or_insert_with(|| "yes".into());
    }
    volume
}
