//! The jobs that maintain a Glance's database: one that migrates its schema, and one that purges deleted rows.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use stead_model::{Glance, GlanceSpec};

use crate::glance::inherit::service_account;
use crate::glance_api::config::{Dependencies, password_environment, with_database};
use crate::inputs::Inputs;
use crate::kinds::hex;
use crate::layout::{GLANCE_ID, SERVICE};
use crate::metadata::{Texts, annotation, name, texts};
use crate::optional::{non_empty, text};
use crate::owner::{Owner, WantedObject, named};

/// The Job's name: there is one database for each namespace.
pub(crate) const SYNC: &str = "glance-db-sync";
/// The annotation with the digest of what a Job does.
const MADE_FOR: &str = "stead.dev/made-for";

/// The Job that migrates the database's schema, and the digest of what it does, which is also in its annotation.
pub(crate) fn sync_job(glance: &Glance, spec: &GlanceSpec, dependencies: &Dependencies) -> (WantedObject, String) {
    let manage = "/usr/bin/glance-manage --config-dir /etc/glance/glance.conf.d";
    let command = format!("{manage} db sync && {manage} db load_metadefs");
    let pod = pod(glance, spec, dependencies, "OnFailure", SYNC, &command);
    let input = format!("{pod}|{}|{}", dependencies.database, text(&spec.custom_service_config));
    let digest = hex(&input)[..32].to_owned();
    let metadata =
        ObjectMeta { annotations: Some(texts([(MADE_FOR, &digest)])), ..named(SYNC, texts([("service", SERVICE)])) };
    let job = match spec.preserve_jobs {
        Some(true) => json!({"template": {"spec": pod}}),
        _ => json!({"template": {"spec": pod}, "ttlSecondsAfterFinished": 600}),
    };
    (Owner::of(glance).create("Job", metadata, json!({"spec": job})), digest)
}

/// The digest of what a Job does.
pub(crate) fn made_for(job: &Job) -> &str {
    annotation(&job.metadata, MADE_FOR).unwrap_or_default()
}

/// The result of a Job.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum JobResult {
    Complete,
    Failed { message: String },
}

/// The result of a Job that has finished.
pub(crate) fn result(job: &Job) -> Option<JobResult> {
    let conditions = job.status.as_ref()?.conditions.as_deref()?;
    let condition = conditions.iter().find(|c| c.status == "True")?;
    match condition.type_.as_str() {
        "Complete" | "SuccessCriteriaMet" => Some(JobResult::Complete),
        "Failed" => Some(JobResult::Failed { message: condition.message.clone().unwrap_or_default() }),
        _ => None,
    }
}

/// The CronJob that purges rows of images that were deleted long ago.
pub(crate) fn purge_job(glance: &Glance, spec: &GlanceSpec, dependencies: &Dependencies) -> WantedObject {
    let purge = spec.db_purge.clone().unwrap_or_default();
    let age = purge.age.filter(|age| *age > 0).unwrap_or(30);
    let command = format!("/usr/bin/glance-manage --config-dir /etc/glance/glance.conf.d db purge {age}");
    let pod = pod(glance, spec, dependencies, "Never", "glance-dbpurge", &command);
    let metadata = named(&format!("{}-db-purge", name(&glance.metadata)), Texts::new());
    let job = json!({
        "schedule": non_empty(&purge.schedule).unwrap_or("1 0 * * *"),
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {
            "metadata": {"labels": {"service": SERVICE}},
            "spec": {"parallelism": 1, "completions": 1, "template": {"spec": pod}},
        },
    });
    Owner::of(glance).create("CronJob", metadata, json!({"spec": job}))
}

fn pod(
    glance: &Glance,
    spec: &GlanceSpec,
    dependencies: &Dependencies,
    restart: &str,
    container: &str,
    command: &str,
) -> Value {
    let config = format!("{}-config-data", name(&glance.metadata));
    let file = |key: &str| json!({"key": key, "path": key});
    let mut volumes = vec![
        json!({"name": "glance-conf", "secret": {
            "secretName": config, "defaultMode": 0o644, "items": [file("00-config.conf"), file("01-config.conf")],
        }}),
        json!({"name": "config-data", "secret": {"secretName": config, "defaultMode": 0o644}}),
    ];
    let mut mounts = vec![
        json!({"name": "glance-conf", "mountPath": "/etc/glance/glance.conf.d", "readOnly": true}),
        json!({"name": "config-data", "mountPath": "/etc/my.cnf", "subPath": "my.cnf", "readOnly": true}),
    ];
    let authority = spec.glance_apis.values().find_map(|api| non_empty(&api.tls.as_ref()?.ca_bundle_secret_name));
    if let Some(authority) = authority {
        let path = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
        volumes.push(json!({"name": "combined-ca-bundle", "secret": {"secretName": authority, "defaultMode": 0o444}}));
        mounts.push(
            json!({"name": "combined-ca-bundle", "mountPath": path, "subPath": "tls-ca-bundle.pem", "readOnly": true}),
        );
    }
    let inputs = Inputs::of_glance(spec);
    let passwords = password_environment(&inputs, dependencies, text(&spec.custom_service_config));
    let passwords: Vec<Value> =
        passwords.into_iter().filter(|(name, _)| name.contains("DATABASE")).map(|(_, variable)| variable).collect();
    let mut pod = json!({
        "restartPolicy": restart,
        "serviceAccountName": service_account(glance),
        "containers": [{
            "name": container,
            "image": inputs.image,
            "command": ["/bin/bash"],
            "args": ["-c", with_database(command)],
            "env": passwords,
            "securityContext": {
                "runAsUser": GLANCE_ID, "runAsGroup": GLANCE_ID, "runAsNonRoot": true,
                "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
    });
    if let (Value::Object(pod), Some(selector)) = (&mut pod, spec.node_selector.as_ref().filter(|s| !s.is_empty())) {
        pod.insert("nodeSelector".into(), json!(selector));
    }
    pod
}
