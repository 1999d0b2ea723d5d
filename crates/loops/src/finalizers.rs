//! Finalizers: an object that has one is not deleted until it is removed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use crate::metadata::{is_deleting, name};
use crate::owner::Owner;
use crate::step::Write;

/// Adds a finalizer to an object that does not have it.
pub(crate) fn add(object: Owner<'_>, finalizer: &str) -> Option<Write> {
    let mut finalizers = finalizers(object.metadata).to_vec();
    if finalizers.iter().any(|f| f == finalizer) {
        return None;
    }
    finalizers.push(finalizer.to_owned());
    Some(patch(object, finalizers))
}

/// Removes a finalizer from an object that has it.
pub(crate) fn remove(object: Owner<'_>, finalizer: &str) -> Option<Write> {
    let finalizers = finalizers(object.metadata);
    let kept: Vec<String> = finalizers.iter().filter(|f| *f != finalizer).cloned().collect();
    (kept.len() < finalizers.len()).then(|| patch(object, kept))
}

fn finalizers(metadata: &ObjectMeta) -> &[String] {
    metadata.finalizers.as_deref().unwrap_or_default()
}

/// The patch succeeds only if nobody has changed the object since: others have finalizers there too.
fn patch(object: Owner<'_>, finalizers: Vec<String>) -> Write {
    let ObjectMeta { uid, resource_version, .. } = object.metadata;
    let finalizers = Some(finalizers).filter(|finalizers| !finalizers.is_empty());
    let body = json!({"metadata": {"uid": uid, "resourceVersion": resource_version, "finalizers": finalizers}});
    Write::Patch { key: object.key(), body }
}

/// Why a finalizer cannot be added to an object that is being deleted, in the API server's words.
pub(crate) fn refused(object: &ObjectMeta, resource: &str, finalizer: &str) -> Option<String> {
    let has = finalizers(object).iter().any(|f| f == finalizer);
    (is_deleting(object) && !has).then(|| {
        format!(
            "{resource} \"{}\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{finalizer:?}}}",
            name(object),
        )
    })
}
