//! Rules about pods that several components share, named after the Kubernetes functions that they mirror.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodSpec, PodStatus, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use stead_model::times::seconds;

use crate::api::whole_seconds;
use crate::choices::Choices;
use crate::object::SimObject;
use crate::store::Store;

/// The phase; Pending if none is reported.
pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Whether the pod has succeeded or failed (`IsPodTerminal`).
pub(crate) fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether its deletion was requested.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether a workload counts the pod (`IsPodActive`).
pub(crate) fn is_active(pod: &Pod) -> bool {
    !has_ended(pod) && !is_terminating(pod)
}

/// The node that it was scheduled to.
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// A condition of the pod.
pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
}

/// Whether the pod is Ready (`IsPodReady`).
pub(crate) fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready").is_some_and(|condition| condition.status == "True")
}

/// How long it takes until the pod is available if nothing changes: Ready for `minReadySeconds` (`IsPodAvailable`). Zero
/// if it is available, none if it is not Ready.
pub(crate) fn available_in(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Option<SignedDuration> {
    let ready = condition(pod, "Ready").filter(|condition| condition.status == "True")?;
    if min_ready_seconds <= 0 {
        return Some(SignedDuration::ZERO);
    }
    let since = ready.last_transition_time.as_ref()?.0;
    Some((since + seconds(i64::from(min_ready_seconds))).duration_since(now).max(SignedDuration::ZERO))
}

/// Whether the pod is available.
pub(crate) fn is_available(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> bool {
    available_in(pod, min_ready_seconds, now).is_some_and(|left| left.is_zero())
}

/// Sets a condition (`UpdatePodCondition`). The time of its last change is kept if its status stays the same. Gives
/// whether anything changed but the generation that it was observed for.
pub(crate) fn set_condition(pod: &mut Pod, mut new: PodCondition, now: Timestamp) -> bool {
    let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
    let before = conditions.iter_mut().find(|condition| condition.type_ == new.type_);
    new.last_transition_time = match &before {
        Some(before) if before.status == new.status => before.last_transition_time.clone(),
        _ => Some(whole_seconds(now)),
    };
    match before {
        Some(before) => {
            before.observed_generation = new.observed_generation;
            let changed = *before != new;
            *before = new;
            changed
        }
        None => {
            conditions.push(new);
            true
        }
    }
}

/// The owner reference of a controller to what it creates (`metav1.NewControllerRef`).
pub(crate) fn controller_reference(owner: &SimObject) -> OwnerReference {
    OwnerReference {
        api_version: owner.kind().entry().api_version.to_owned(),
        kind: owner.kind().name().to_owned(),
        name: owner.metadata().name.clone().unwrap_or_default(),
        uid: owner.uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A pod as its controller creates it from a template (`GetPodFromTemplate`): without a name, with the prefix of one.
pub(crate) fn from_template(template: &PodTemplateSpec, owner: &SimObject) -> Pod {
    let metadata = template.metadata.as_ref();
    let name = owner.metadata().name.as_deref().unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: owner.metadata().namespace.clone(),
            labels: metadata.and_then(|metadata| metadata.labels.clone()),
            annotations: metadata.and_then(|metadata| metadata.annotations.clone()),
            finalizers: metadata.and_then(|metadata| metadata.finalizers.clone()),
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone().unwrap_or_default()),
        status: None,
    }
}

/// The longest part of a generated name before its random end.
const MAX_PREFIX: usize = 58;

/// How often the API server looks for a name that is free.
const NAME_ATTEMPTS: usize = 8;

/// Gives a pod the name that the API server would generate: its creator reports the name in an event.
pub(crate) fn generate_name(pod: &mut Pod, store: &Store, choices: &mut Choices) {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let prefix = pod.metadata.generate_name.as_deref().unwrap_or_default();
    let question = format!("{namespace}/{prefix}");
    let base: String = prefix.chars().take(MAX_PREFIX).collect();
    let mut name = String::new();
    for _ in 0..NAME_ATTEMPTS {
        name = format!("{base}{}", choices.name_suffix(&question));
        if store.get::<Pod>(namespace, &name).is_none() {
            break;
        }
    }
    pod.metadata.name = Some(name);
}

/// A hash of a template for the names of ReplicaSets and revisions: as long as Kubernetes' own and with its letters, not
/// the same value, which depends on Go's printing of a struct.
pub(crate) fn template_hash(template: &impl serde::Serialize, collisions: i32) -> String {
    let text = serde_json::to_string(template).expect("a Kubernetes type is JSON");
    let bytes = text.bytes().chain(collisions.to_le_bytes().into_iter().filter(|_| collisions > 0));
    // FNV-1a, 32 bits.
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let digits = hash.to_string();
    // `SafeEncodeString` of `k8s.io/apimachinery/pkg/util/rand`.
    digits.bytes().map(|digit| char::from(b"bcdfghjklmnpqrstvwxz2456789"[usize::from(digit % 27)])).collect()
}

/// A time that is reported as whole seconds.
pub(crate) fn reported(at: Timestamp) -> Option<Time> {
    Some(whole_seconds(at))
}

/// The spec of a pod, to change it.
pub(crate) fn spec_mut(pod: &mut Pod) -> &mut PodSpec {
    pod.spec.get_or_insert_default()
}

/// The status of a pod, to change it.
pub(crate) fn status_mut(pod: &mut Pod) -> &mut PodStatus {
    pod.status.get_or_insert_default()
}

/// The generation that a status or a condition is written for (`CalculatePodStatusObservedGeneration`).
pub(crate) fn observed_generation(pod: &Pod, settings: &crate::settings::Settings) -> Option<i64> {
    pod.metadata.generation.filter(|_| settings.since(34))
}
