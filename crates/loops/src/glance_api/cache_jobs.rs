//! The jobs that clean and prune image caches: two for each claim that has one and a pod.

use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};
use stead_model::{GlanceApi, ImageCache};

use crate::kinds::hex;
use crate::layout::{API_NAME, GLANCE_ID, api_name, labels};
use crate::metadata::{Texts, annotation, controls, label, name, namespace, uid};
use crate::optional::{non_empty, text};
use crate::owner::{Owner, WantedObject, named};
use crate::step::{Propagation, Write};
use crate::store::Store;

/// The wanted jobs: a cleaner and a pruner for the cache of each wanted replica. They are kept while a pod is being
/// recreated.
pub(crate) fn wanted(store: &Store, api: &GlanceApi) -> Vec<WantedObject> {
    let Some(cache) = api.spec.image_cache.as_ref().filter(|cache| non_empty(&cache.size).is_some()) else {
        return Vec::new();
    };
    let ImageCache { cleaner_scheduler, pruner_scheduler, .. } = cache;
    let cleaner = non_empty(cleaner_scheduler).unwrap_or("*/30 * * * *");
    let pruner = non_empty(pruner_scheduler).unwrap_or("1 0 * * *");
    let replicas = api.spec.replicas.unwrap_or(1);
    caches(store, api)
        .filter(|claim| ordinal(claim).is_some_and(|ordinal| ordinal < replicas))
        .flat_map(|claim| {
            [("cleaner", "/usr/bin/glance-cache-cleaner", cleaner), ("pruner", "/usr/bin/glance-cache-pruner", pruner)]
                .map(|(kind, command, schedule)| job(api, name(&claim.metadata), kind, command, schedule))
        })
        .collect()
}

/// Deletes the jobs that exist and are not wanted.
pub(crate) fn unwanted(store: &Store, api: &GlanceApi, wanted: &[WantedObject]) -> Vec<Write> {
    let is_wanted = |job: &CronJob| wanted.iter().any(|w| w.key.name == name(&job.metadata));
    store
        .all_in::<CronJob>(namespace(&api.metadata))
        .filter(|job| controls(&api.metadata, &job.metadata) && !is_wanted(job))
        .map(|job| Write::Delete {
            key: Owner::of(job).key(),
            uid: uid(&job.metadata).to_owned(),
            propagation: Propagation::Background,
        })
        .collect()
}

/// The ordinal of the pod that a claim was created for: it is at the end of both names.
fn ordinal(claim: &PersistentVolumeClaim) -> Option<i32> {
    name(&claim.metadata).rsplit_once('-')?.1.parse().ok()
}

/// A CronJob's name has at most 52 characters; the end of a longer one is replaced by a digest.
fn short(name: String) -> String {
    if name.len() <= 52 { name } else { format!("{}-{}", &name[..43], &hex(&name)[..8]) }
}

fn caches<'a>(store: &'a Store, api: &'a GlanceApi) -> impl Iterator<Item = &'a PersistentVolumeClaim> {
    store.all_in::<PersistentVolumeClaim>(namespace(&api.metadata)).filter(|claim| {
        label(&claim.metadata, "owner") == Some(name(&api.metadata))
            && annotation(&claim.metadata, "image-cache") == Some("true")
    })
}

fn job(api: &GlanceApi, claim: &str, kind: &str, command: &str, schedule: &str) -> WantedObject {
    let spec = &api.spec;
    let job_name = short(format!("{claim}-{kind}"));
    let holder = claim.trim_start_matches("glance-cache-");
    let mut pod = json!({
        "restartPolicy": "Never",
        "serviceAccountName": text(&spec.service_account),
        "securityContext": {"fsGroup": GLANCE_ID},
        // The claim can be mounted on one node only: that of the pod that it belongs to.
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"statefulset.kubernetes.io/pod-name": holder}},
            "topologyKey": "kubernetes.io/hostname",
        }]}},
        "containers": [{
            "name": kind,
            "image": text(&spec.container_image),
            "command": ["/bin/bash"],
            "args": ["-c", format!("{command} --config-dir /etc/glance/glance.conf.d")],
            "securityContext": {
                "runAsUser": GLANCE_ID, "runAsGroup": GLANCE_ID, "runAsNonRoot": true,
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [
                {"name": "config-data", "mountPath": "/etc/glance/glance.conf.d", "readOnly": true},
                {"name": "glance-cache", "mountPath": "/var/lib/glance/image-cache"},
            ],
        }],
        "volumes": [
            {"name": "config-data", "secret": {
                "secretName": format!("{}-config-data", name(&api.metadata)),
                "defaultMode": 0o644,
                "items": [{"key": "00-config.conf", "path": "00-config.conf"}],
            }},
            {"name": "glance-cache", "persistentVolumeClaim": {"claimName": claim}},
        ],
    });
    if let (Value::Object(pod), Some(selector)) = (&mut pod, spec.node_selector.as_ref().filter(|s| !s.is_empty())) {
        pod.insert("nodeSelector".into(), json!(selector));
    }
    let mut job_labels = labels(api);
    job_labels.insert(API_NAME.into(), api_name(api).into());
    let job = json!({
        "schedule": schedule,
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {
            "metadata": {"labels": job_labels},
            "spec": {"parallelism": 1, "completions": 1, "template": {"spec": pod}},
        },
    });
    Owner::of(api).create("CronJob", named(&job_name, Texts::new()), json!({"spec": job}))
}
