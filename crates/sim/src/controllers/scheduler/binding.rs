//! The binding cycle: what happens between the choice of a node and the Binding.
//!
//! Claims that wait for a consumer are bound first: the attempt writes what the volume binder and the provisioner wait for
//! (`attempt.rs`), and here their answer is polled (`BindPodVolumes` of framework/plugins/volumebinding). Meanwhile the pod
//! is assumed to be on its node.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod as RawPod};
use stead_model::fork::Sorted;
use stead_placement::VolumePlan;
use stead_semantics::node_selector::LazyNodeSelector;

use super::cache::pod_key;
use super::hints::ClusterEvent;
use super::plugin_set::PluginSet;
use super::queue::QueuedPod;
use super::status::Nomination;
use super::{Scheduler, seen};
use crate::error::ApiError;
use crate::event_log::EventNote;
use crate::object::SimKey;
use crate::step::{Context, Write};

/// How often the claims are looked at.
const POLL: SignedDuration = SignedDuration::from_secs(1);

pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// What a binding waits for.
#[derive(Debug, Clone)]
pub(super) enum BindingStage {
    /// For its claims, until the time is over.
    Volumes(VolumePlan, Timestamp),
    /// For the API server.
    Bind,
    /// For nothing: it was preempted while it waited for its claims.
    Preempted,
}

/// A pod that is assumed to be on a node.
#[derive(Debug, Clone)]
pub(super) struct PodBinding {
    pub(super) queued: QueuedPod,
    pub(super) node: Arc<str>,
    pub(super) stage: BindingStage,
    /// Whether the pod is being deleted and does not count on the node any more.
    pub(super) forgotten: bool,
    /// When it goes on; none while the API server has the Binding.
    turn: Option<(Timestamp, u64)>,
}

/// All bindings, by pod and by the time of their next step.
#[derive(Debug, Clone, Default)]
pub(super) struct Bindings {
    pods: Sorted<SimKey, Arc<PodBinding>>,
    turns: Sorted<(Timestamp, u64), SimKey>,
    added: u64,
}

impl Bindings {
    /// Starts a binding, or goes on with it at a later time.
    pub(super) fn add(&mut self, queued: QueuedPod, node: &Arc<str>, stage: BindingStage, at: Timestamp) {
        self.put(PodBinding { queued, node: Arc::clone(node), stage, forgotten: false, turn: None }, Some(at));
    }

    fn put(&mut self, binding: PodBinding, at: Option<Timestamp>) {
        let key = binding.queued.key.clone();
        self.take(&key);
        self.added += 1;
        let turn = at.map(|at| (at, self.added));
        if let Some(turn) = turn {
            self.turns.insert(turn, key.clone());
        }
        self.pods.insert(key, Arc::new(PodBinding { turn, ..binding }));
    }

    /// Ends a binding.
    pub(super) fn take(&mut self, key: &SimKey) -> Option<PodBinding> {
        let binding = self.pods.remove(|other| other.cmp(key))?;
        if let Some(turn) = binding.turn {
            self.turns.remove(|other| other.cmp(&turn));
        }
        Some(Arc::unwrap_or_clone(binding))
    }

    pub(super) fn get(&self, key: &SimKey) -> Option<&PodBinding> {
        self.pods.get(key).map(|binding| &**binding)
    }

    /// Whether the pod with this UID is assumed to be on a node.
    pub(super) fn is_assumed(&self, key: &SimKey, uid: Option<&str>) -> bool {
        self.get(key).is_some_and(|binding| !binding.forgotten && Some(&*binding.queued.pod.uid) == uid)
    }

    /// The pod whose binding goes on now.
    pub(super) fn due(&self, now: Timestamp) -> Option<SimKey> {
        self.turns.iter().next().filter(|((at, _), _)| *at <= now).map(|(_, key)| key.clone())
    }

    /// When a binding goes on.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        self.turns.iter().next().map(|((at, _), _)| *at)
    }
}

impl Scheduler {
    /// Goes on with the binding of a pod.
    pub(super) fn go_on_binding(&mut self, cx: &mut Context<'_>, key: &SimKey) -> Vec<Write> {
        let Some(binding) = self.bindings.get(key).cloned() else { return Vec::new() };
        match &binding.stage {
            BindingStage::Bind => {
                let (node, uid) = (binding.node.to_string(), binding.queued.pod.uid.to_string());
                self.bindings.put(binding, None);
                let message = format!("Successfully assigned {}/{} to {node}", key.namespace, key.name);
                let event = EventNote::normal(key, "Scheduled", message);
                vec![Write::Bind { pod: key.clone(), uid, node }, Write::Event(event)]
            }
            BindingStage::Preempted => {
                self.binding_failed(cx, key, r#"running PreBind plugin "VolumeBinding": preempted by DefaultPreemption"#)
            }
            BindingStage::Volumes(plan, until) => match check_volumes(cx, key, &binding.node, plan) {
                Ok(true) => {
                    let at = cx.now + cx.settings.timers.scheduler_bind;
                    self.bindings.put(PodBinding { stage: BindingStage::Bind, ..binding }, Some(at));
                    Vec::new()
                }
                Ok(false) if cx.now < *until => {
                    let at = (cx.now + POLL).min(*until);
                    self.bindings.put(binding, Some(at));
                    Vec::new()
                }
                Ok(false) => self.volumes_failed(cx, key, "context deadline exceeded"),
                Err(why) => self.volumes_failed(cx, key, &why),
            },
        }
    }

    fn volumes_failed(&mut self, cx: &mut Context<'_>, key: &SimKey, why: &str) -> Vec<Write> {
        self.binding_failed(cx, key, &format!(r#"running PreBind plugin "VolumeBinding": binding volumes: {why}"#))
    }

    /// The API server refused the Binding.
    pub(super) fn bind_refused(&mut self, cx: &mut Context<'_>, key: &SimKey, uid: &str, error: &ApiError) -> Vec<Write> {
        if self.bindings.get(key).is_none_or(|binding| *binding.queued.pod.uid != *uid) {
            return Vec::new();
        }
        let mut why = error.to_string();
        if matches!(error, ApiError::Conflict { .. }) {
            why = why.replacen("on pods \"", "on pods/binding \"", 1);
        }
        self.binding_failed(cx, key, &format!(r#"running Bind plugin "DefaultBinder": {why}"#))
    }

    /// Ends a binding with an error (`handleBindingCycleError`).
    fn binding_failed(&mut self, cx: &mut Context<'_>, key: &SimKey, message: &str) -> Vec<Write> {
        let Some(binding) = self.bindings.take(key) else { return Vec::new() };
        if !binding.forgotten
            && let Some(pod) = self.cache.change().remove_pod(&pod_key(key))
        {
            self.wake(cx, &ClusterEvent::PodRemoved(&pod), None);
        }
        self.attempt_failed(cx, binding.queued, PluginSet::default(), "SchedulerError", message, Nomination::Clear)
    }

    /// An assumed pod is being deleted, or is gone: it does not count any more. Its binding goes on and fails
    /// (`handleAssumedPodDeletion`).
    pub(super) fn forget_assumed(&mut self, cx: &Context<'_>, key: &SimKey) {
        let Some(binding) = self.bindings.take(key) else { return };
        let at = binding.turn.map(|(at, _)| at);
        self.bindings.put(PodBinding { forgotten: true, ..binding }, at);
        if let Some(pod) = self.cache.change().remove_pod(&pod_key(key)) {
            self.wake(cx, &ClusterEvent::PodRemoved(&pod), None);
        }
    }
}

/// Whether the claims of a pod are bound; why the binding has to be given up (`checkBindings`).
fn check_volumes(cx: &Context<'_>, pod: &SimKey, node: &str, plan: &VolumePlan) -> Result<bool, String> {
    let store = cx.store;
    let Some(found) = store.get::<Node>("", node) else {
        return Err(format!("failed to get node \"{node}\": node \"{node}\" not found"));
    };
    if seen(store.at::<RawPod>(pod)).is_none() {
        return Err(format!("pod does not exist any more: pod \"{}\" not found", pod.name));
    }
    let missing = |what: &str, resource: &str, name: &str| Err(format!("{what}: {resource} \"{name}\" not found"));
    let full_name = |claim: &str| format!("{}/{claim}", pod.namespace);
    for (claim, volume) in &plan.bindings {
        let Some(bound) = store.get::<PersistentVolume>("", volume) else {
            return missing("failed to check binding", "persistentvolumes", volume);
        };
        let Some(claim) = store.get::<PersistentVolumeClaim>(&pod.namespace, claim) else {
            return missing("failed to check binding", "persistentvolumeclaims", &full_name(claim));
        };
        check_affinity(bound, found, node)?;
        let reference = bound.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        if reference.and_then(|reference| reference.uid.as_deref()).unwrap_or_default().is_empty() {
            return Err(format!("ClaimRef got reset for pv \"{volume}\""));
        }
        if !is_bound(claim) {
            return Ok(false);
        }
    }
    for name in &plan.provisions {
        let Some(claim) = store.get::<PersistentVolumeClaim>(&pod.namespace, name) else {
            return missing("failed to check provisioning pvc", "persistentvolumeclaims", &full_name(name));
        };
        let annotations = claim.metadata.annotations.as_ref().filter(|annotations| !annotations.is_empty());
        let Some(annotations) = annotations else {
            return Err(format!("selectedNode annotation reset for PVC \"{name}\""));
        };
        if annotations.get(SELECTED_NODE).map(String::as_str) != Some(node) {
            return Err(format!("provisioning failed for PVC \"{name}\""));
        }
        if let Some(volume) = volume_of(claim) {
            // The volume may not have arrived yet.
            let Some(volume) = store.get::<PersistentVolume>("", volume) else { return Ok(false) };
            check_affinity(volume, found, node)?;
        }
        if !is_bound(claim) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn check_affinity(volume: &PersistentVolume, node: &Node, name: &str) -> Result<(), String> {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let Some(required) = affinity.and_then(|affinity| affinity.required.as_ref()) else { return Ok(()) };
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let why = match LazyNodeSelector::compile(required).matches("", &labels) {
        Ok(true) => return Ok(()),
        Ok(false) => "no matching NodeSelectorTerms".to_owned(),
        Err(error) => error.to_string(),
    };
    let volume = volume.metadata.name.as_deref().unwrap_or_default();
    Err(format!("pv \"{volume}\" node affinity doesn't match node \"{name}\": {why}"))
}

fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether a claim is bound, and the volume binder has said so (`isPVCFullyBound`).
pub(super) fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let completed = |annotations: &std::collections::BTreeMap<String, String>| annotations.contains_key(BIND_COMPLETED);
    volume_of(claim).is_some() && claim.metadata.annotations.as_ref().is_some_and(completed)
}
