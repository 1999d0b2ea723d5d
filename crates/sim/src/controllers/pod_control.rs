//! Creation and deletion of pods with their events (`RealPodControl` of `pkg/controller`).

use k8s_openapi::api::core::v1::{Namespace, Pod};

use crate::error::ApiError;
use crate::event_log::EventNote;
use crate::object::{ObjectKind, SimKey};
use crate::step::{Context, DeleteOptions, Write};
use crate::store::Store;

/// The longest prefix of a generated name (`MaxGeneratedNameLength` of `k8s.io/apiserver`).
pub(super) const MAX_PREFIX: usize = 58;

/// Names a pod after its prefix. The controller has to know the name because it is in its event. Where it matters which
/// pod gets which name, `place` tells them apart.
fn name(cx: &mut Context<'_>, pod: &mut Pod, place: &str) {
    let prefix = pod.metadata.generate_name.as_deref().unwrap_or_default();
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let suffix = cx.choices.name_suffix(&format!("{namespace}/{prefix}{place}"));
    let kept = prefix.char_indices().nth(MAX_PREFIX).map_or(prefix, |(end, _)| &prefix[..end]);
    pod.metadata.name = Some(format!("{kept}{suffix}"));
}

/// Creates a pod with a generated name and reports it.
pub(super) fn create(cx: &mut Context<'_>, mut pod: Pod, place: &str, owner: &SimKey) -> [Write; 2] {
    name(cx, &mut pod, place);
    let message = format!("Created pod: {}", pod.metadata.name.as_deref().unwrap_or_default());
    [Write::Create(pod.into()), Write::Event(EventNote::normal(owner, "SuccessfulCreate", message))]
}

/// Deletes a pod and reports it.
pub(super) fn delete(pod: &Pod, owner: &SimKey) -> [Write; 2] {
    let key = SimKey::of(ObjectKind::Pod, &pod.metadata);
    let message = format!("Deleted pod: {}", key.name);
    [Write::Delete(key, DeleteOptions::default()), Write::Event(EventNote::normal(owner, "SuccessfulDelete", message))]
}

/// Reports that the API server refused to create or to delete a pod.
pub(super) fn refused(owner: &SimKey, write: &Write, error: &ApiError) -> Vec<Write> {
    let note = match (write, error) {
        (Write::Create(object), _) if object.kind() == ObjectKind::Pod => {
            EventNote::warning(owner, "FailedCreate", format!("Error creating: {error}"))
        }
        (Write::Delete(key, _), error) if key.kind == ObjectKind::Pod && !matches!(error, ApiError::NotFound(_)) => {
            EventNote::warning(owner, "FailedDelete", format!("Error deleting: {error}"))
        }
        _ => return Vec::new(),
    };
    vec![Write::Event(note)]
}

/// Whether the API server refuses new objects because the namespace is being deleted. Controllers ignore that error, and
/// wait for the pods as if they had been created.
pub(super) fn is_namespace_terminating(store: &Store, namespace: &str) -> bool {
    store.get::<Namespace>("", namespace).is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_some())
}
