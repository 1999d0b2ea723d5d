//! What the API server adds to an object when it is created: defaults and admission.

use k8s_openapi::api::core::v1::{Pod, PodCondition};

use super::storage;
use crate::error::ApiError;
use crate::object::SimObject;
use crate::settings::Settings;
use crate::store::Store;

/// Adds the defaults of an object that is created.
pub(super) fn apply(object: &mut SimObject, store: &Store, _settings: &Settings) -> Result<(), ApiError> {
    if let SimObject::Pod(pod) = object {
        pod_defaults(std::sync::Arc::make_mut(pod));
    }
    storage::apply(object, store);
    Ok(())
}

fn pod_defaults(pod: &mut Pod) {
    let gated =
        pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref()).is_some_and(|gates| !gates.is_empty());
    let status = pod.status.insert(Default::default());
    status.phase = Some("Pending".into());
    if gated {
        status.conditions.get_or_insert_default().push(PodCondition {
            type_: "PodScheduled".into(),
            status: "False".into(),
            reason: Some("SchedulingGated".into()),
            message: Some("Scheduling is blocked due to non-empty scheduling gates".into()),
            ..PodCondition::default()
        });
    }
}

/// Whether the spec of an object differs, which makes a new generation.
pub(super) fn spec_differs(before: &SimObject, after: &SimObject) -> bool {
    match (before, after) {
        (SimObject::Pod(a), SimObject::Pod(b)) => a.spec != b.spec,
        (SimObject::ReplicaSet(a), SimObject::ReplicaSet(b)) => a.spec != b.spec,
        (SimObject::StatefulSet(a), SimObject::StatefulSet(b)) => a.spec != b.spec,
        (SimObject::Deployment(a), SimObject::Deployment(b)) => a.spec != b.spec,
        (SimObject::DaemonSet(a), SimObject::DaemonSet(b)) => a.spec != b.spec,
        (SimObject::ReplicationController(a), SimObject::ReplicationController(b)) => a.spec != b.spec,
        (SimObject::Job(a), SimObject::Job(b)) => a.spec != b.spec,
        (SimObject::CronJob(a), SimObject::CronJob(b)) => a.spec != b.spec,
        (SimObject::PodDisruptionBudget(a), SimObject::PodDisruptionBudget(b)) => a.spec != b.spec,
        (SimObject::EndpointSlice(a), SimObject::EndpointSlice(b)) => a.endpoints != b.endpoints || a.ports != b.ports,
        (SimObject::Untyped(a), SimObject::Untyped(b)) => a.fields.get("spec") != b.fields.get("spec"),
        _ => false,
    }
}
