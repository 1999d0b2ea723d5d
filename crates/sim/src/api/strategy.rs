//! What the strategies of the kinds do (`pkg/registry`): who may change spec and status, when there is a new generation,
//! and what happens to dependents by default.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod, PodCondition};
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;
use stead_model::Kind;

use super::daemon_set_strategy::{self, TEMPLATE_GENERATION};
use super::defaults::{pod, service};
use super::{Request, job_strategy, whole_seconds};
use crate::object::{ObjectKind, SimObject, UntypedObject};
use crate::settings::Settings;
use crate::store::Store;

/// Whether objects of a kind have a generation.
pub(super) fn has_generation(kind: ObjectKind, settings: &Settings) -> bool {
    match kind {
        ObjectKind::Pod => settings.since(33),
        ObjectKind::ReplicaSet
        | ObjectKind::StatefulSet
        | ObjectKind::Deployment
        | ObjectKind::DaemonSet
        | ObjectKind::ReplicationController
        | ObjectKind::Job
        | ObjectKind::CronJob
        | ObjectKind::PodDisruptionBudget
        | ObjectKind::PriorityClass
        | ObjectKind::EndpointSlice => true,
        ObjectKind::Untyped(_) => {
            let kind = kind.entry();
            let built_in = ["CustomResourceDefinition", "NetworkPolicy", "DeviceClass", "ValidatingAdmissionPolicy"];
            is_custom(kind) || built_in.contains(&kind.kind) || kind.kind == "ValidatingAdmissionPolicyBinding"
        }
        _ => false,
    }
}

/// Whether a kind is defined by a CustomResourceDefinition.
pub(super) fn is_custom(kind: &Kind) -> bool {
    kind.group().contains('.') && !kind.group().ends_with(".k8s.io")
}

/// Whether a kind without a type has the subresource `status`.
fn has_status(kind: &Kind) -> bool {
    match kind.kind {
        "NetworkAttachmentDefinition" | "NodeRecovery" => false,
        "ResourceQuota" | "CustomResourceDefinition" | "ValidatingAdmissionPolicy" => true,
        _ => is_custom(kind),
    }
}

/// Whether the dependents of a deleted object are orphaned if nobody says otherwise (`DefaultGarbageCollectionPolicy`).
pub(super) fn orphans_by_default(kind: ObjectKind) -> bool {
    matches!(kind, ObjectKind::Job | ObjectKind::ReplicationController)
}

/// Whether an object is a namespace that its controller has not emptied yet.
pub(super) fn has_content(object: &SimObject) -> bool {
    let SimObject::Namespace(namespace) = object else { return false };
    namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref()).is_some_and(|list| !list.is_empty())
}

/// Sets the initial status of a new object, and what its kind allocates (`PrepareForCreate`).
pub(super) fn prepare_for_create(object: &mut SimObject, store: &Store, request: &Request<'_>) {
    let now = whole_seconds(request.now);
    match object {
        SimObject::Pod(object) => pod::prepare(Arc::make_mut(object), request),
        SimObject::Service(object) => {
            let object = Arc::make_mut(object);
            object.status = Some(Default::default());
            service::allocate(object, None, store);
        }
        SimObject::Namespace(object) => {
            let object = Arc::make_mut(object);
            object.status.insert(Default::default()).phase = Some("Active".into());
            let finalizers = object.spec.get_or_insert_default().finalizers.get_or_insert_default();
            if !finalizers.iter().any(|finalizer| finalizer == "kubernetes") {
                finalizers.push("kubernetes".into());
            }
        }
        SimObject::PersistentVolume(object) => {
            let status = Arc::make_mut(object).status.insert(Default::default());
            status.phase = Some("Pending".into());
            status.last_phase_transition_time = Some(now);
        }
        SimObject::PersistentVolumeClaim(object) => {
            Arc::make_mut(object).status.insert(Default::default()).phase = Some("Pending".into());
        }
        SimObject::DaemonSet(object) => {
            let object = Arc::make_mut(object);
            object.status = Some(Default::default());
            if template_generation(object) < 1 {
                set_template_generation(object, 1);
            }
        }
        SimObject::Deployment(object) => Arc::make_mut(object).status = Some(Default::default()),
        SimObject::ReplicaSet(object) => Arc::make_mut(object).status = Some(Default::default()),
        SimObject::StatefulSet(object) => {
            Arc::make_mut(object).status.insert(Default::default()).available_replicas = Some(0);
        }
        SimObject::ReplicationController(object) => Arc::make_mut(object).status = Some(Default::default()),
        SimObject::Job(_) | SimObject::CronJob(_) => job_strategy::prepare_create(object),
        SimObject::PodDisruptionBudget(object) => {
            let status = Arc::make_mut(object).status.insert(Default::default());
            status.current_healthy = Some(0);
            status.desired_healthy = Some(0);
            status.disruptions_allowed = Some(0);
            status.expected_pods = Some(0);
        }
        SimObject::VolumeAttachment(object) => {
            Arc::make_mut(object).status = Some(VolumeAttachmentStatus { attached: false, ..Default::default() });
        }
        SimObject::Untyped(object) if is_custom(object.kind) && has_status(object.kind) => {
            if let Some(fields) = Arc::make_mut(object).fields.as_object_mut() {
                fields.remove("status");
            }
        }
        _ => {}
    }
}

/// Takes the values of some fields from the object as it was.
macro_rules! keep {
    ($new:expr, $old:expr, $($field:ident).+) => {
        if $new.$($field).+ != $old.$($field).+ {
            Arc::make_mut($new).$($field).+ = $old.$($field).+.clone();
        }
    };
}

/// For each kind with spec and status, the same for a pair of objects.
macro_rules! each_with_status {
    ($pair:expr, |$new:ident, $old:ident| $body:expr, $untyped:expr) => {
        match $pair {
            (SimObject::Pod($new), SimObject::Pod($old)) => $body,
            (SimObject::Node($new), SimObject::Node($old)) => $body,
            (SimObject::Namespace($new), SimObject::Namespace($old)) => $body,
            (SimObject::Service($new), SimObject::Service($old)) => $body,
            (SimObject::PersistentVolume($new), SimObject::PersistentVolume($old)) => $body,
            (SimObject::PersistentVolumeClaim($new), SimObject::PersistentVolumeClaim($old)) => $body,
            (SimObject::ReplicationController($new), SimObject::ReplicationController($old)) => $body,
            (SimObject::ReplicaSet($new), SimObject::ReplicaSet($old)) => $body,
            (SimObject::StatefulSet($new), SimObject::StatefulSet($old)) => $body,
            (SimObject::Deployment($new), SimObject::Deployment($old)) => $body,
            (SimObject::DaemonSet($new), SimObject::DaemonSet($old)) => $body,
            (SimObject::PodDisruptionBudget($new), SimObject::PodDisruptionBudget($old)) => $body,
            (SimObject::Job($new), SimObject::Job($old)) => $body,
            (SimObject::CronJob($new), SimObject::CronJob($old)) => $body,
            (SimObject::VolumeAttachment($new), SimObject::VolumeAttachment($old)) => $body,
            (SimObject::Untyped($new), SimObject::Untyped($old)) => $untyped(Arc::make_mut($new), $old),
            _ => {}
        }
    };
}

/// Keeps the status, and counts the generation (`PrepareForUpdate`).
pub(super) fn prepare_for_update(object: &mut SimObject, before: &SimObject, store: &Store) {
    each_with_status!((&mut *object, before), |new, old| keep!(new, old, status), keep_status);
    match (&mut *object, before) {
        (SimObject::Service(new), SimObject::Service(old)) => service::allocate(Arc::make_mut(new), Some(old), store),
        (SimObject::DaemonSet(new), SimObject::DaemonSet(old)) => count_templates(new, old),
        _ => {}
    }
    if let Some(generation) = before.metadata().generation
        && is_new_generation(object, before)
    {
        object.metadata_mut().generation = Some(generation + 1);
    }
}

/// Keeps everything but the status, as far as the kind says so (`PrepareForUpdate` of the status strategy).
pub(super) fn prepare_for_status(object: &mut SimObject, before: &SimObject, request: &Request<'_>) {
    each_with_status!((&mut *object, before), |new, old| keep!(new, old, spec), keep_all_but_status);
    match (object, before) {
        (SimObject::Pod(new), SimObject::Pod(old)) => {
            keep!(new, old, metadata.owner_references);
            keep_observations(new, old);
        }
        (SimObject::Deployment(new), SimObject::Deployment(old)) => keep!(new, old, metadata.labels),
        (SimObject::PersistentVolume(new), SimObject::PersistentVolume(old)) => note_phase(new, old, request),
        (SimObject::VolumeAttachment(new), SimObject::VolumeAttachment(old)) => keep_metadata(new, old),
        _ => {}
    }
}

fn keep_metadata(new: &mut Arc<VolumeAttachment>, old: &VolumeAttachment) {
    let kept = ObjectMeta { managed_fields: new.metadata.managed_fields.clone(), ..old.metadata.clone() };
    if new.metadata != kept {
        Arc::make_mut(new).metadata = kept;
    }
}

fn keep_status(new: &mut UntypedObject, old: &UntypedObject) {
    if has_status(new.kind) {
        set_field(&mut new.fields, "status", old.fields.get("status"));
    }
}

fn keep_all_but_status(new: &mut UntypedObject, old: &UntypedObject) {
    if has_status(new.kind) {
        let status = new.fields.get("status").cloned();
        new.fields = old.fields.clone();
        set_field(&mut new.fields, "status", status.as_ref());
        new.metadata = ObjectMeta { managed_fields: new.metadata.managed_fields.take(), ..old.metadata.clone() };
    }
}

fn set_field(fields: &mut Value, name: &str, value: Option<&Value>) {
    let Some(fields) = fields.as_object_mut() else { return };
    match value {
        Some(value) => fields.insert(name.to_owned(), value.clone()),
        None => fields.remove(name),
    };
}

/// A status without a QoS class or observed generations keeps those that are there.
fn keep_observations(new: &mut Arc<Pod>, old: &Pod) {
    let Some(old) = &old.status else { return };
    let observed = |status: &Vec<PodCondition>, kind: &str| {
        status.iter().find(|condition| condition.type_ == kind).and_then(|condition| condition.observed_generation)
    };
    let kept: Vec<Option<i64>> =
        match (new.status.as_ref().and_then(|status| status.conditions.as_ref()), &old.conditions) {
            (Some(new), Some(old)) => new.iter().map(|condition| observed(old, &condition.type_)).collect(),
            _ => Vec::new(),
        };
    let Some(status) = &new.status else { return };
    let lost = |new: Option<i64>, old: Option<i64>| new.unwrap_or(0) == 0 && old.unwrap_or(0) != 0;
    let conditions = status.conditions.iter().flatten().zip(&kept);
    let any_lost = conditions.clone().any(|(condition, kept)| lost(condition.observed_generation, *kept));
    if status.qos_class == old.qos_class && !lost(status.observed_generation, old.observed_generation) && !any_lost {
        return;
    }
    let status = Arc::make_mut(new).status.get_or_insert_default();
    if status.qos_class.as_ref().is_none_or(String::is_empty) {
        status.qos_class.clone_from(&old.qos_class);
    }
    if lost(status.observed_generation, old.observed_generation) {
        status.observed_generation = old.observed_generation;
    }
    for (condition, kept) in status.conditions.iter_mut().flatten().zip(kept) {
        if lost(condition.observed_generation, kept) {
            condition.observed_generation = kept;
        }
    }
}

/// Notes when a volume changed its phase.
fn note_phase(new: &mut Arc<PersistentVolume>, old: &PersistentVolume, request: &Request<'_>) {
    let phase = |volume: &PersistentVolume| volume.status.as_ref().and_then(|status| status.phase.clone());
    let since = |volume: &PersistentVolume| volume.status.as_ref()?.last_phase_transition_time.clone();
    let (given, kept) = (since(new), since(old));
    let same = phase(new) == phase(old);
    let noted = match given {
        None if same => kept,
        given if !same && (given.is_none() || given == kept) => Some(whole_seconds(request.now)),
        given => given,
    };
    if since(new) != noted {
        Arc::make_mut(new).status.get_or_insert_default().last_phase_transition_time = noted;
    }
}

/// The number of templates that a DaemonSet has had.
fn template_generation(set: &DaemonSet) -> i64 {
    daemon_set_strategy::template_generation(set).unwrap_or(0)
}

fn set_template_generation(set: &mut DaemonSet, generation: i64) {
    set.metadata.annotations.get_or_insert_default().insert(TEMPLATE_GENERATION.into(), generation.to_string());
}

fn count_templates(new: &mut Arc<DaemonSet>, old: &DaemonSet) {
    let is_new = new.spec.as_ref().map(|spec| &spec.template) != old.spec.as_ref().map(|spec| &spec.template);
    let generation = template_generation(old) + i64::from(is_new);
    if template_generation(new) != generation {
        set_template_generation(Arc::make_mut(new), generation);
    }
}

/// Whether what is wanted of an object differs.
fn is_new_generation(object: &SimObject, before: &SimObject) -> bool {
    match (before, object) {
        (SimObject::Pod(a), SimObject::Pod(b)) => a.spec != b.spec,
        (SimObject::ReplicaSet(a), SimObject::ReplicaSet(b)) => a.spec != b.spec,
        (SimObject::StatefulSet(a), SimObject::StatefulSet(b)) => a.spec != b.spec,
        (SimObject::Deployment(a), SimObject::Deployment(b)) => {
            a.spec != b.spec || a.metadata.annotations != b.metadata.annotations
        }
        (SimObject::DaemonSet(a), SimObject::DaemonSet(b)) => a.spec != b.spec,
        (SimObject::ReplicationController(a), SimObject::ReplicationController(b)) => a.spec != b.spec,
        (SimObject::Job(a), SimObject::Job(b)) => a.spec != b.spec,
        (SimObject::CronJob(a), SimObject::CronJob(b)) => a.spec != b.spec,
        (SimObject::PodDisruptionBudget(a), SimObject::PodDisruptionBudget(b)) => a.spec != b.spec,
        (SimObject::EndpointSlice(a), SimObject::EndpointSlice(b)) => {
            a.endpoints != b.endpoints || a.ports != b.ports || a.metadata.labels != b.metadata.labels
        }
        (SimObject::Untyped(a), SimObject::Untyped(b)) => is_new_content(&a.fields, &b.fields, has_status(a.kind)),
        _ => false,
    }
}

fn is_new_content(before: &Value, after: &Value, has_status: bool) -> bool {
    let wanted = |fields: &Value| {
        let mut fields = fields.clone();
        set_field(&mut fields, if has_status { "status" } else { "" }, None);
        fields
    };
    wanted(before) != wanted(after)
}
