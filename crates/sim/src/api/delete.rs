//! Deletion (`rest.BeforeDelete` and `Store.Delete` of the generic registry, `CheckGracefulDelete` of pods).

use jiff::{SignedDuration, Timestamp};

use super::{ApiServer, MODIFIED, Request, whole_seconds};
use crate::error::ApiError;
use crate::object::{ObjectKind, SimKey, SimObject};
use crate::step::{DeleteOptions, DeletePropagation};
use crate::store::Change;

/// The finalizer of an object whose dependents are deleted first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// The finalizer of an object whose dependents lose it as an owner first.
pub(crate) const ORPHAN: &str = "orphan";

impl ApiServer {
    pub(super) fn delete(
        &mut self,
        request: &Request<'_>,
        key: &SimKey,
        options: &DeleteOptions,
    ) -> Result<Option<Change>, ApiError> {
        let Some(before) = self.store.object(key) else { return Err(ApiError::NotFound(key.clone())) };
        let metadata = before.metadata();
        let conflict = |message: String| Err(ApiError::Conflict { key: key.clone(), message });
        if let Some(uid) = options.uid.as_ref().filter(|uid| metadata.uid.as_ref() != Some(uid)) {
            let found = metadata.uid.as_deref().unwrap_or_default();
            return conflict(format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"));
        }
        if options.resource_version.is_some() && options.resource_version != metadata.resource_version {
            return conflict(MODIFIED.to_owned());
        }
        let grace = grace_period(before, options, request.now);
        let Some(grace) = grace else { return Ok(None) };
        let mut object = before.clone();
        let metadata = object.metadata_mut();
        for (finalizer, wanted) in [
            (FOREGROUND, options.propagation == DeletePropagation::Foreground),
            (ORPHAN, options.propagation == DeletePropagation::Orphan),
        ] {
            let finalizers = metadata.finalizers.get_or_insert_default();
            let listed = finalizers.iter().any(|other| other == finalizer);
            if wanted && !listed && metadata.deletion_timestamp.is_none() {
                finalizers.push(finalizer.to_owned());
            } else if !wanted && listed && key.kind != ObjectKind::Pod {
                finalizers.retain(|other| other != finalizer);
            }
        }
        if metadata.finalizers.as_ref().is_some_and(Vec::is_empty) {
            metadata.finalizers = None;
        }
        if grace == 0 && metadata.finalizers.is_none() && !is_namespace_with_content(before) {
            self.revision += 1;
            return Ok(self.store.remove(key));
        }
        let due = whole_seconds(request.now + SignedDuration::from_secs(grace));
        if metadata.deletion_timestamp.is_none() {
            metadata.generation = metadata.generation.map(|generation| generation + 1);
        }
        metadata.deletion_timestamp = Some(due);
        metadata.deletion_grace_period_seconds = Some(grace);
        if object == *before {
            return Ok(None);
        }
        Ok(Some(self.commit(object)))
    }
}

/// A namespace stays until its controller has deleted everything in it.
fn is_namespace_with_content(object: &SimObject) -> bool {
    match object {
        SimObject::Namespace(namespace) => {
            namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref()).is_some_and(|list| !list.is_empty())
        }
        _ => false,
    }
}

/// The grace period of a deletion in seconds; none if the request changes nothing.
fn grace_period(object: &SimObject, options: &DeleteOptions, now: Timestamp) -> Option<i64> {
    let SimObject::Pod(pod) = object else {
        // The second deletion of an object that waits for its finalizers changes nothing but the finalizers themselves.
        return Some(0);
    };
    let own = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(30);
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let unassigned = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default().is_empty();
    let wanted = match options.grace.unwrap_or(own).max(0) {
        _ if unassigned || matches!(phase, Some("Succeeded" | "Failed")) => 0,
        grace => grace,
    };
    let Some(due) = pod.metadata.deletion_timestamp.as_ref() else { return Some(wanted) };
    // A second deletion can only shorten the grace period, counted from the first request.
    let before = pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
    if wanted >= before && wanted > 0 {
        return None;
    }
    let requested = due.0 - SignedDuration::from_secs(before);
    let passed = now.duration_since(requested).as_secs().max(0);
    Some(if wanted == 0 { 0 } else { (wanted - passed).max(1) })
}
