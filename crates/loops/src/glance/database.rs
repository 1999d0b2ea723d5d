//! The jobs that look after a Glance's database: one that brings its tables up to date, and one that purges rows.

use serde_json::{Value, json};

use crate::glance::inherit::service_account;
use crate::glance_api::config::{Neighbours, password_environment, with_database};
use crate::kinds::hex;
use crate::layout::{GLANCE_ID, SERVICE};
use crate::object::{Texts, fields, flag, items, name, number, owned, pairs, present, set, text};

/// The Job's name: there is one database for each namespace.
pub(crate) const SYNC: &str = "glance-db-sync";
/// The annotation that tells what a Job was made for.
const MADE_FOR: &str = "stead.dev/made-for";

/// The Job that brings the database's tables up to date, with a digest of what it does in its annotation.
pub(crate) fn sync_job(glance: &Value, spec: &Value, neighbours: &Neighbours) -> Value {
    let manage = "/usr/bin/glance-manage --config-dir /etc/glance/glance.conf.d";
    let command = format!("{manage} db sync && {manage} db load_metadefs");
    let pod = pod(glance, spec, neighbours, "OnFailure", SYNC, &command);
    let digest = hex(&format!("{pod}|{}|{}", neighbours.database, text(spec, "/customServiceConfig")))[..32].to_owned();
    let mut job = owned(glance, "batch/v1", "Job", SYNC, &pairs([("service", SERVICE)]));
    set(&mut job["metadata"], "annotations", json!({MADE_FOR: digest}));
    job["spec"] = json!({"template": {"spec": pod}});
    if !flag(spec, "/preserveJobs") {
        set(&mut job["spec"], "ttlSecondsAfterFinished", 600.into());
    }
    job
}

/// The digest of what a Job does.
pub(crate) fn made_for(job: &Value) -> &str {
    job["metadata"]["annotations"][MADE_FOR].as_str().unwrap_or_default()
}

/// How a Job has ended: well, or why not.
pub(crate) fn ended(job: &Value) -> Option<Result<(), String>> {
    items(job, "/status/conditions").find(|c| c["status"] == "True").and_then(|c| match text(c, "/type") {
        "Complete" | "SuccessCriteriaMet" => Some(Ok(())),
        "Failed" => Some(Err(text(c, "/message").to_owned())),
        _ => None,
    })
}

/// The CronJob that purges rows of images that were deleted long ago.
pub(crate) fn purge_job(glance: &Value, spec: &Value, neighbours: &Neighbours) -> Value {
    let age = number(spec, "/dbPurge/age").filter(|age| *age > 0).unwrap_or(30);
    let command = format!("/usr/bin/glance-manage --config-dir /etc/glance/glance.conf.d db purge {age}");
    let schedule = match text(spec, "/dbPurge/schedule") {
        "" => "1 0 * * *",
        schedule => schedule,
    };
    let pod = pod(glance, spec, neighbours, "Never", "glance-dbpurge", &command);
    let mut job = owned(glance, "batch/v1", "CronJob", &format!("{}-db-purge", name(glance)), &Texts::new());
    job["spec"] = json!({
        "schedule": schedule,
        "concurrencyPolicy": "Forbid",
        "jobTemplate": {
            "metadata": {"labels": {"service": SERVICE}},
            "spec": {"parallelism": 1, "completions": 1, "template": {"spec": pod}},
        },
    });
    job
}

fn pod(glance: &Value, spec: &Value, neighbours: &Neighbours, restart: &str, container: &str, command: &str) -> Value {
    let config = format!("{}-config-data", name(glance));
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
    let authority =
        fields(spec, "/glanceAPIs").map(|(_, api)| text(api, "/tls/caBundleSecretName")).find(|n| !n.is_empty());
    if let Some(authority) = authority {
        let path = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
        volumes.push(json!({"name": "combined-ca-bundle", "secret": {"secretName": authority, "defaultMode": 0o444}}));
        mounts.push(
            json!({"name": "combined-ca-bundle", "mountPath": path, "subPath": "tls-ca-bundle.pem", "readOnly": true}),
        );
    }
    let passwords: Vec<Value> = password_environment(spec, neighbours, text(spec, "/customServiceConfig"))
        .into_iter()
        .filter(|e| text(e, "/name").contains("DATABASE"))
        .collect();
    let mut pod = json!({
        "restartPolicy": restart,
        "serviceAccountName": service_account(glance),
        "containers": [{
            "name": container,
            "image": text(spec, "/containerImage"),
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
    if let Some(selector) = present(spec, "/nodeSelector").filter(|s| s.as_object().is_some_and(|m| !m.is_empty())) {
        set(&mut pod, "nodeSelector", selector.clone());
    }
    pod
}
