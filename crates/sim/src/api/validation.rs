//! Validation of changes, as far as controllers and people depend on its answer (`Validate*Update` in
//! `pkg/apis/*/validation`). New objects are taken to be valid.

use k8s_openapi::api::apps::v1::StatefulSetSpec;
use k8s_openapi::api::batch::v1::JobSpec;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;
use stead_semantics::Selector;

use crate::error::ApiError;
use crate::object::{SimKey, SimObject};

/// Refuses a change of what cannot be changed.
pub(super) fn update(object: &SimObject, before: &SimObject, key: &SimKey) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    new_finalizers(object, before, &mut errors);
    match (object, before) {
        (SimObject::StatefulSet(new), SimObject::StatefulSet(old)) => {
            if let (Some(new), Some(old)) = (&new.spec, &old.spec) {
                stateful_set(new, old, &mut errors);
            }
        }
        (SimObject::Deployment(new), SimObject::Deployment(old)) => {
            if let (Some(new), Some(old)) = (&new.spec, &old.spec) {
                selector(&new.selector, &old.selector, &new.template, &mut errors);
            }
        }
        (SimObject::ReplicaSet(new), SimObject::ReplicaSet(old)) => {
            if let (Some(new), Some(old)) = (&new.spec, &old.spec) {
                let template = new.template.clone().unwrap_or_default();
                selector(&new.selector, &old.selector, &template, &mut errors);
            }
        }
        (SimObject::DaemonSet(new), SimObject::DaemonSet(old)) => {
            if let (Some(new), Some(old)) = (&new.spec, &old.spec) {
                immutable("spec.selector", &new.selector, &old.selector, &mut errors);
                selector_matches(&new.selector, &old.selector, &new.template, &mut errors);
            }
        }
        (SimObject::Job(new), SimObject::Job(old)) => {
            if let (Some(new), Some(old)) = (&new.spec, &old.spec) {
                job(new, old, &mut errors);
            }
        }
        (SimObject::PersistentVolumeClaim(new), SimObject::PersistentVolumeClaim(old)) => claim(new, old, &mut errors),
        (SimObject::VolumeAttachment(new), SimObject::VolumeAttachment(old)) => {
            immutable("spec", &new.spec, &old.spec, &mut errors);
        }
        (SimObject::StorageClass(new), SimObject::StorageClass(old)) => {
            immutable("parameters", &new.parameters, &old.parameters, &mut errors);
            immutable("provisioner", &new.provisioner, &old.provisioner, &mut errors);
            immutable("reclaimPolicy", &new.reclaim_policy, &old.reclaim_policy, &mut errors);
            immutable("volumeBindingMode", &new.volume_binding_mode, &old.volume_binding_mode, &mut errors);
        }
        _ => {}
    }
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(ApiError::Invalid { key: key.clone(), message: one.clone() }),
        several => Err(ApiError::Invalid { key: key.clone(), message: format!("[{}]", several.join(", ")) }),
    }
}

fn selector(new: &LabelSelector, old: &LabelSelector, template: &PodTemplateSpec, errors: &mut Vec<String>) {
    selector_matches(new, old, template, errors);
    immutable("spec.selector", new, old, errors);
}

fn immutable<T: PartialEq + Serialize>(field: &str, new: &T, old: &T, errors: &mut Vec<String>) {
    if new != old {
        let value = serde_json::to_string(new).unwrap_or_default();
        errors.push(format!("{field}: Invalid value: {value}: field is immutable"));
    }
}

/// A new selector has to select the pods of the template.
fn selector_matches(new: &LabelSelector, old: &LabelSelector, template: &PodTemplateSpec, errors: &mut Vec<String>) {
    if new == old {
        return;
    }
    let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default();
    if !Selector::from_label_selector(Some(new)).is_ok_and(|selector| selector.matches(&labels)) {
        let value = serde_json::to_string(&labels).unwrap_or_default();
        errors.push(format!(
            "spec.template.metadata.labels: Invalid value: {value}: `selector` does not match template `labels`"
        ));
    }
}

/// An object that is being deleted gets no more finalizers.
fn new_finalizers(object: &SimObject, before: &SimObject, errors: &mut Vec<String>) {
    let (new, old) = (object.metadata(), before.metadata());
    if old.deletion_timestamp.is_none() || new.finalizers == old.finalizers {
        return;
    }
    let kept = old.finalizers.as_deref().unwrap_or_default();
    let mut added: Vec<String> =
        new.finalizers.iter().flatten().filter(|one| !kept.contains(one)).map(|one| format!("{one:?}")).collect();
    added.sort();
    if !added.is_empty() {
        errors.push(format!(
            "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
             finalizers []string{{{}}}",
            added.join(", ")
        ));
    }
}

fn stateful_set(new: &StatefulSetSpec, old: &StatefulSetSpec, errors: &mut Vec<String>) {
    selector_matches(&new.selector, &old.selector, &new.template, errors);
    let fixed = |spec: &StatefulSetSpec| {
        (
            spec.selector.clone(),
            spec.service_name.clone().unwrap_or_default(),
            spec.pod_management_policy.clone(),
            spec.volume_claim_templates.clone().unwrap_or_default(),
        )
    };
    if fixed(new) != fixed(old) {
        errors.push(
            "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
             'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
             forbidden"
                .into(),
        );
    }
}

fn job(new: &JobSpec, old: &JobSpec, errors: &mut Vec<String>) {
    let is_elastic =
        |spec: &JobSpec| spec.completion_mode.as_deref() == Some("Indexed") && spec.completions == spec.parallelism;
    if !(is_elastic(new) && is_elastic(old)) {
        immutable("spec.completions", &new.completions, &old.completions, errors);
    }
    immutable("spec.selector", &new.selector, &old.selector, errors);
    // The template of a suspended Job can get other scheduling rules and resources.
    if old.suspend != Some(true) {
        immutable("spec.template", &new.template, &old.template, errors);
    }
    immutable("spec.completionMode", &new.completion_mode, &old.completion_mode, errors);
    immutable("spec.podFailurePolicy", &new.pod_failure_policy, &old.pod_failure_policy, errors);
    immutable("spec.backoffLimitPerIndex", &new.backoff_limit_per_index, &old.backoff_limit_per_index, errors);
    immutable("spec.managedBy", &new.managed_by, &old.managed_by, errors);
    immutable("spec.successPolicy", &new.success_policy, &old.success_policy, errors);
}

/// A claim gets its volume once, and its class if it had none. A bound claim can grow.
fn claim(new: &PersistentVolumeClaim, old: &PersistentVolumeClaim, errors: &mut Vec<String>) {
    let bound = new.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    let (Some(new), Some(old)) = (&new.spec, &old.spec) else { return };
    if new == old {
        return;
    }
    let mut allowed = PersistentVolumeClaimSpec { ..old.clone() };
    if old.volume_name.as_ref().is_none_or(String::is_empty) {
        allowed.volume_name.clone_from(&new.volume_name);
    }
    if old.storage_class_name.is_none() {
        allowed.storage_class_name.clone_from(&new.storage_class_name);
    }
    if bound {
        allowed.volume_attributes_class_name.clone_from(&new.volume_attributes_class_name);
        let wanted = new.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage"));
        if let (Some(resources), Some(wanted)) = (&mut allowed.resources, wanted) {
            resources.requests.get_or_insert_default().insert("storage".into(), wanted.clone());
        }
    }
    if allowed != *new {
        errors.push(
            "spec: Forbidden: spec is immutable after creation except resources.requests and \
             volumeAttributesClassName for bound claims"
                .into(),
        );
    }
    immutable("volumeMode", &new.volume_mode, &old.volume_mode, errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn object(value: &Value) -> SimObject {
        SimObject::from_json(value).expect("an object")
    }

    /// The message of changing a field, by its JSON pointer.
    fn changed(before: &Value, pointer: &str, value: Value) -> String {
        let mut after = before.clone();
        *after.pointer_mut(pointer).expect("the field is there") = value;
        let (before, after) = (object(before), object(&after));
        update(&after, &before, &before.key()).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn immutable_fields() {
        let template = json!({ "metadata": { "labels": { "a": "b" } },
            "spec": { "containers": [{ "name": "c", "image": "i" }] } });
        let workload = |api: &str, kind: &str| {
            json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "w", "namespace": "n" },
                "spec": { "replicas": 1, "serviceName": "s", "selector": { "matchLabels": { "a": "b" } },
                    "suspend": false, "completions": 1, "template": template } })
        };
        let labels = json!({ "a": "x" });
        let mismatch = "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not match template \
                        `labels`";
        let fixed = "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"x\"}}: field is immutable";
        let selector = format!("[{mismatch}, {fixed}]");
        let forbidden = "spec: Forbidden: updates to statefulset spec for fields other \
                         than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', \
                         'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        let image = "/spec/template/spec/containers/0/image";
        for (kind, pointer, value, expected) in [
            (
                "Deployment",
                "/spec/selector/matchLabels",
                labels.clone(),
                format!("Deployment.apps \"w\" is invalid: {selector}"),
            ),
            ("Deployment", image, json!("j"), String::new()),
            (
                "ReplicaSet",
                "/spec/selector/matchLabels",
                labels.clone(),
                format!("ReplicaSet.apps \"w\" is invalid: {selector}"),
            ),
            (
                "DaemonSet",
                "/spec/selector/matchLabels",
                labels.clone(),
                format!("DaemonSet.apps \"w\" is invalid: [{fixed}, {mismatch}]"),
            ),
            ("StatefulSet", "/spec/serviceName", json!("t"), format!("StatefulSet.apps \"w\" is invalid: {forbidden}")),
            (
                "StatefulSet",
                "/spec/selector/matchLabels",
                labels,
                format!("StatefulSet.apps \"w\" is invalid: [{mismatch}, {forbidden}]"),
            ),
            ("StatefulSet", "/spec/replicas", json!(2), String::new()),
            ("StatefulSet", image, json!("j"), String::new()),
        ] {
            assert_eq!(changed(&workload("apps/v1", kind), pointer, value), expected, "{kind} {pointer}");
        }
        let job = workload("batch/v1", "Job");
        assert!(
            changed(&job, image, json!("j")).starts_with("Job.batch \"w\" is invalid: spec.template: Invalid value: ")
        );
        assert_eq!(
            changed(&job, "/spec/completions", json!(2)),
            "Job.batch \"w\" is invalid: spec.completions: Invalid value: 2: field is immutable"
        );
        assert_eq!(changed(&job, "/spec/suspend", json!(true)), "");
    }

    #[test]
    fn claims() {
        let claim = |phase: &str| {
            json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "c", "namespace": "n" },
                "spec": { "volumeName": "", "storageClassName": "fast", "volumeMode": "Filesystem",
                    "resources": { "requests": { "storage": "1Gi" } } },
                "status": { "phase": phase } })
        };
        let fixed = "PersistentVolumeClaim \"c\" is invalid: spec: Forbidden: spec is immutable after creation except \
                     resources.requests and volumeAttributesClassName for bound claims";
        let size = "/spec/resources/requests/storage";
        for (phase, pointer, value, expected) in [
            ("Pending", "/spec/volumeName", "v", ""),
            ("Pending", size, "2Gi", fixed),
            ("Bound", size, "2Gi", ""),
            ("Bound", "/spec/storageClassName", "slow", fixed),
        ] {
            assert_eq!(changed(&claim(phase), pointer, json!(value)), expected, "{phase} {pointer}");
        }
    }

    #[test]
    fn no_new_finalizers_on_what_is_being_deleted() {
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "namespace": "n",
            "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/a", "b/b"] } });
        assert_eq!(changed(&pod, "/metadata/finalizers", json!(["b/b"])), "");
        assert_eq!(
            changed(&pod, "/metadata/finalizers", json!(["b/b", "c/c"])),
            "Pod \"p\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is being \
             deleted, found new finalizers []string{\"c/c\"}"
        );
    }
}
