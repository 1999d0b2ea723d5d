//! The jobs that keep an image cache within its size: two for each claim that holds one and has a pod.

use serde_json::{Value, json};
use stead_model::ObjectKey;

use crate::kinds::hex;
use crate::layout::{API_NAME, GLANCE_ID, api_name, labels};
use crate::object::{controls, name, namespace, number, owned, present, set, text};
use crate::step::{Propagation, Write};
use crate::store::Store;

/// What should be there: a cleaner and a pruner for the cache of each pod that there should be. That a pod is not there
/// for a moment, because it is made anew, is no reason to end them.
pub(crate) fn wanted(store: &Store, api: &Value) -> Vec<Value> {
    if text(api, "/spec/imageCache/size").is_empty() {
        return Vec::new();
    }
    let replicas = number(api, "/spec/replicas").unwrap_or(1);
    caches(store, api)
        .filter(|claim| ordinal(claim).is_some_and(|ordinal| ordinal < replicas))
        .flat_map(|claim| {
            let cleaner = ("cleaner", "/usr/bin/glance-cache-cleaner", "cleanerScheduler", "*/30 * * * *");
            let pruner = ("pruner", "/usr/bin/glance-cache-pruner", "prunerScheduler", "1 0 * * *");
            [cleaner, pruner].map(|(kind, command, field, default)| {
                let schedule = match text(api, &format!("/spec/imageCache/{field}")) {
                    "" => default,
                    schedule => schedule,
                };
                job(api, name(claim), kind, command, schedule)
            })
        })
        .collect()
}

/// The end of those that are there and should not be.
pub(crate) fn unwanted(store: &Store, api: &Value, wanted: &[Value]) -> Vec<Write> {
    store
        .list("CronJob", namespace(api))
        .filter(|job| controls(api, job) && !wanted.iter().any(|w| name(w) == name(job)))
        .filter_map(|job| {
            let uid = text(job, "/metadata/uid").to_owned();
            Some(Write::Delete { key: ObjectKey::of(job)?, uid, propagation: Propagation::Background })
        })
        .collect()
}

/// The number of the pod that a claim was made for: it stands at the end of both names.
fn ordinal(claim: &Value) -> Option<i64> {
    name(claim).rsplit_once('-')?.1.parse().ok()
}

/// A CronJob's name has 52 letters at most; of a longer one a digest stands for the rest.
fn short(name: String) -> String {
    if name.len() <= 52 { name } else { format!("{}-{}", &name[..43], &hex(&name)[..8]) }
}

fn caches<'a>(store: &'a Store, api: &'a Value) -> impl Iterator<Item = &'a Value> {
    store.list("PersistentVolumeClaim", namespace(api)).filter(|claim| {
        claim["metadata"]["labels"]["owner"] == api["metadata"]["name"]
            && claim["metadata"]["annotations"]["image-cache"] == "true"
    })
}

fn job(api: &Value, claim: &str, kind: &str, command: &str, schedule: &str) -> Value {
    let spec = &api["spec"];
    let job_name = short(format!("{claim}-{kind}"));
    let holder = claim.trim_start_matches("glance-cache-");
    let mut pod = json!({
        "restartPolicy": "Never",
        "serviceAccountName": text(spec, "/serviceAccount"),
        "securityContext": {"fsGroup": GLANCE_ID},
        // The claim can be mounted on one node only: where the pod is that it belongs to.
        "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "labelSelector": {"matchLabels": {"statefulset.kubernetes.io/pod-name": holder}},
            "topologyKey": "kubernetes.io/hostname",
        }]}},
        "containers": [{
            "name": kind,
            "image": text(spec, "/containerImage"),
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
                "secretName": format!("{}-config-data", name(api)),
                "defaultMode": 0o644,
                "items": [{"key": "00-config.conf", "path": "00-config.conf"}],
            }},
            {"name": "glance-cache", "persistentVolumeClaim": {"claimName": claim}},
        ],
    });
    if let Some(selector) = present(spec, "/nodeSelector").filter(|s| s.as_object().is_some_and(|m| !m.is_empty())) {
        set(&mut pod, "nodeSelector", selector.clone());
    }
    let mut job_labels = labels(api);
    job_labels.insert(API_NAME.into(), api_name(api).into());
    let mut job = owned(api, "batch/v1", "CronJob", &job_name, &Default::default());
    job["spec"] = json!({
        "schedule": schedule,
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {
            "metadata": {"labels": job_labels},
            "spec": {"parallelism": 1, "completions": 1, "template": {"spec": pod}},
        },
    });
    job
}
