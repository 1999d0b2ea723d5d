//! The pods of a StatefulSet: names, labels and volumes (`stateful_set_utils.go`).

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};
use stead_model::stateful_set::{claim_name, claim_templates, parent_name_and_ordinal};

use super::revisions::Revision;
use crate::object::SimObject;
use crate::pods::from_template;

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";
const REVISION: &str = "controller-revision-hash";

/// Its name.
pub(super) fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The ordinal in its name.
pub(super) fn ordinal(pod: &Pod) -> Option<u32> {
    parent_name_and_ordinal(name(pod)).map(|(_, ordinal)| ordinal)
}

/// Whether its name is that of a pod of the set (`isMemberOf`).
pub(super) fn is_member(set: &StatefulSet, pod: &Pod) -> bool {
    parent_name_and_ordinal(name(pod)).map(|(parent, _)| parent) == set.metadata.name.as_deref()
}

/// The name of its revision; empty if it has none.
pub(super) fn revision_of(pod: &Pod) -> &str {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(REVISION)).map_or("", String::as_str)
}

fn spec(set: &StatefulSet) -> Option<&StatefulSetSpec> {
    set.spec.as_ref()
}

/// A new pod of a revision (`newStatefulSetPod`).
pub(super) fn new_pod(set: &Arc<StatefulSet>, revision: &Revision, pod_name: &str, ordinal: u32) -> Pod {
    let mut pod = from_template(&revision.template, &SimObject::StatefulSet(Arc::clone(set)));
    pod.metadata.name = Some(pod_name.to_owned());
    set_identity(&mut pod, pod_name, ordinal);
    pod.metadata.labels.get_or_insert_default().insert(REVISION.to_owned(), revision.name.clone());
    let pod_spec = pod.spec.get_or_insert_default();
    pod_spec.hostname = Some(pod_name.to_owned());
    pod_spec.subdomain = spec(set).and_then(|spec| spec.service_name.clone()).filter(|service| !service.is_empty());
    let claims = claim_templates(set).iter().map(|template| Volume {
        name: template.metadata.name.clone().unwrap_or_default(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: claim_of(template, pod_name),
            read_only: None,
        }),
        ..Volume::default()
    });
    let mut volumes: Vec<Volume> = claims.collect();
    let others = pod_spec.volumes.take().unwrap_or_default().into_iter();
    let others: Vec<Volume> = others.filter(|other| volumes.iter().all(|claim| claim.name != other.name)).collect();
    volumes.extend(others);
    pod_spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
    pod
}

/// Sets the labels that identify a pod (`updateIdentity`).
pub(super) fn set_identity(pod: &mut Pod, name: &str, ordinal: u32) {
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(POD_NAME.to_owned(), name.to_owned());
    labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
}

/// Whether a pod has the label with its name (`identityMatches`).
pub(super) fn identity_matches(pod: &Pod) -> bool {
    pod.metadata.labels.as_ref().and_then(|labels| labels.get(POD_NAME)) == pod.metadata.name.as_ref()
}

/// Whether a pod uses the claims of the set (`storageMatches`).
pub(super) fn storage_matches(set: &StatefulSet, pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    claim_templates(set).iter().all(|template| {
        // If two volumes have the same name the last one counts.
        let volume = volumes.iter().rfind(|volume| Some(&volume.name) == template.metadata.name.as_ref());
        let claim = volume.and_then(|volume| volume.persistent_volume_claim.as_ref());
        claim.is_some_and(|claim| claim.claim_name == claim_of(template, name(pod)))
    })
}

/// The name of the claim that a pod gets from a template.
pub(super) fn claim_of(template: &PersistentVolumeClaim, pod: &str) -> String {
    claim_name(template.metadata.name.as_deref().unwrap_or_default(), pod)
}

/// The claim that a pod gets from a template (`getPersistentVolumeClaims`).
pub(super) fn new_claim(set: &StatefulSet, template: &PersistentVolumeClaim, pod: &str) -> PersistentVolumeClaim {
    let mut claim = template.clone();
    claim.metadata.name = Some(claim_of(template, pod));
    claim.metadata.namespace = set.metadata.namespace.clone();
    let selector = spec(set).and_then(|spec| spec.selector.match_labels.clone());
    if let Some(selector) = selector {
        claim.metadata.labels.get_or_insert_default().extend(selector);
    }
    claim
}
