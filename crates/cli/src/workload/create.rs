//! What the controllers do: the first pod of a workload, with its owners and claims.

use std::collections::BTreeMap;

use anyhow::bail;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimSpec, PersistentVolumeClaimStatus, PersistentVolumeClaimVolumeSource,
    Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::{Metadata, Resource};
use serde_json::Value;
use stead_model::stateful_set;

use super::{describe, kind_of, parse, to_value};

/// The kinds that a pod can be created from.
pub(super) const WORKLOAD_KINDS: [&str; 5] = ["Pod", "StatefulSet", "Deployment", "ReplicaSet", "Job"];

/// Stands in for the hash that a Deployment puts into names.
const TEMPLATE_HASH: &str = "new";

/// A pod, and what its controllers create before it.
pub(super) struct Created {
    pub(super) pod: Pod,
    pub(super) owners: Vec<Value>,
    pub(super) claims: Vec<PersistentVolumeClaim>,
}

/// The first pod of a workload, as its controllers would create it.
pub(super) fn first_pod(workload: &Value) -> anyhow::Result<Created> {
    let name = match workload.pointer("/metadata/name").and_then(Value::as_str) {
        Some(name) if !name.is_empty() => name,
        _ => bail!("{}: metadata.name: missing", describe(workload)),
    };
    let (mut owners, mut claims) = (vec![workload.clone()], Vec::new());
    let created = match kind_of(workload) {
        "StatefulSet" => stateful_set_pod(&parse(workload)?, name, &mut claims),
        "Deployment" => {
            let set = replica_set(&parse(workload)?, name);
            owners.push(to_value(&set)?);
            let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
            pod_from(template, &set, format!("{name}-{TEMPLATE_HASH}-0"))
        }
        "ReplicaSet" => {
            let set: ReplicaSet = parse(workload)?;
            let template = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
            pod_from(template, &set, format!("{name}-0"))
        }
        "Job" => {
            let job: Job = parse(workload)?;
            let mut pod = pod_from(job.spec.as_ref().map(|spec| &spec.template), &job, format!("{name}-0"));
            if let Some(pod) = &mut pod {
                label(pod, "job-name", name);
                label(pod, "batch.kubernetes.io/job-name", name);
            }
            pod
        }
        _ => {
            owners.clear();
            Some(parse(workload)?)
        }
    };
    let Some(pod) = created else { bail!("{}: spec.template.spec: missing", describe(workload)) };
    Ok(Created { pod, owners, claims })
}

/// The first pod of a StatefulSet. The claims of its templates are added to `claims`.
fn stateful_set_pod(set: &StatefulSet, name: &str, claims: &mut Vec<PersistentVolumeClaim>) -> Option<Pod> {
    let ordinal = stateful_set::start_ordinal(set);
    let pod_name = stateful_set::pod_name(name, ordinal);
    let mut pod = pod_from(set.spec.as_ref().map(|spec| &spec.template), set, pod_name.clone())?;
    label(&mut pod, "statefulset.kubernetes.io/pod-name", &pod_name);
    label(&mut pod, "apps.kubernetes.io/pod-index", &ordinal.to_string());
    let volumes = pod.spec.get_or_insert_default().volumes.get_or_insert_default();
    for template in stateful_set::claim_templates(set) {
        let volume_name = template.metadata.name.clone().unwrap_or_default();
        let claim_name = stateful_set::claim_name(&volume_name, &pod_name);
        // The StatefulSet controller replaces a volume of the same name.
        volumes.retain(|v| v.name != volume_name);
        let source = PersistentVolumeClaimVolumeSource { claim_name: claim_name.clone(), read_only: None };
        volumes.push(Volume { name: volume_name, persistent_volume_claim: Some(source), ..Volume::default() });
        let metadata = ObjectMeta {
            name: Some(claim_name),
            namespace: set.metadata.namespace.clone(),
            ..template.metadata.clone()
        };
        claims.push(pending_claim(metadata, template.spec.clone()));
    }
    Some(pod)
}

/// The ReplicaSet of a Deployment.
fn replica_set(deployment: &Deployment, name: &str) -> ReplicaSet {
    let mut spec = deployment.spec.clone().map(|spec| ReplicaSetSpec {
        selector: spec.selector,
        template: Some(spec.template),
        ..ReplicaSetSpec::default()
    });
    if let Some(spec) = &mut spec {
        let hash = ("pod-template-hash".to_owned(), TEMPLATE_HASH.to_owned());
        spec.selector.match_labels.get_or_insert_default().extend([hash.clone()]);
        let metadata = spec.template.get_or_insert_default().metadata.get_or_insert_default();
        metadata.labels.get_or_insert_default().extend([hash]);
    }
    let metadata = ObjectMeta {
        name: Some(format!("{name}-{TEMPLATE_HASH}")),
        namespace: deployment.metadata.namespace.clone(),
        ..ObjectMeta::default()
    };
    ReplicaSet { metadata, spec, status: None }
}

/// The pod of a template, controlled by `owner`; none if the template has no pod spec.
fn pod_from<T>(template: Option<&PodTemplateSpec>, owner: &T, name: String) -> Option<Pod>
where
    T: Resource + Metadata<Ty = ObjectMeta>,
{
    let template = template?;
    let metadata = ObjectMeta {
        name: Some(name),
        namespace: owner.metadata().namespace.clone(),
        owner_references: Some(vec![controller_reference(owner)]),
        ..template.metadata.clone().unwrap_or_default()
    };
    Some(Pod { metadata, spec: Some(template.spec.clone()?), status: None })
}

fn controller_reference<T: Resource + Metadata<Ty = ObjectMeta>>(owner: &T) -> OwnerReference {
    let metadata = owner.metadata();
    OwnerReference {
        api_version: T::API_VERSION.to_owned(),
        kind: T::KIND.to_owned(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn label(pod: &mut Pod, key: &str, value: &str) {
    let labels: &mut BTreeMap<String, String> = pod.metadata.labels.get_or_insert_default();
    labels.insert(key.to_owned(), value.to_owned());
}

fn pending_claim(metadata: ObjectMeta, spec: Option<PersistentVolumeClaimSpec>) -> PersistentVolumeClaim {
    let status = PersistentVolumeClaimStatus { phase: Some("Pending".to_owned()), ..Default::default() };
    PersistentVolumeClaim { metadata, spec, status: Some(status) }
}

/// The claims that the ephemeral volume controller creates for a pod.
pub(super) fn ephemeral_claims(pod: &Pod) -> Vec<PersistentVolumeClaim> {
    let ObjectMeta { name, namespace, uid, .. } = &pod.metadata;
    let (name, namespace) = (name.clone().unwrap_or_default(), namespace.clone().unwrap_or_default());
    // Placement uses this UID for a pod that has none.
    let uid = uid.clone().unwrap_or_else(|| format!("uid-{namespace}-{name}"));
    let mut owner = controller_reference(pod);
    owner.uid = uid;
    let mut claims = Vec::new();
    for volume in pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten()) {
        let template = volume.ephemeral.as_ref().and_then(|source| source.volume_claim_template.as_ref());
        let Some(template) = template else { continue };
        let metadata = ObjectMeta {
            name: Some(format!("{name}-{}", volume.name)),
            namespace: Some(namespace.clone()),
            owner_references: Some(vec![owner.clone()]),
            ..ObjectMeta::default()
        };
        claims.push(pending_claim(metadata, Some(template.spec.clone())));
    }
    claims
}
