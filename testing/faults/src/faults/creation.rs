//! Workloads whose pods are not created.

use serde_json::{Value, json};

use crate::cluster::FaultyCluster;
use crate::objects::{Owner, reference};

fn replica_failure(cluster: &FaultyCluster, message: &str) -> Value {
    json!({ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message,
        "lastUpdateTime": cluster.ago(3000), "lastTransitionTime": cluster.ago(3000) })
}

/// A Deployment of two pods of which the API server rejects one, or all of them.
fn rejected(cluster: &mut FaultyCluster, namespace: &str, existing: i64, message: &str) -> String {
    let spec = cluster.pod_spec();
    let (mut deployment, owner) = cluster.deployment(namespace, "app", 2, existing, &spec);
    deployment["status"]["replicas"] = existing.into();
    deployment["status"]["updatedReplicas"] = existing.into();
    let failure = replica_failure(cluster, message);
    if let Some(conditions) = deployment["status"]["conditions"].as_array_mut() {
        conditions.push(failure);
    }
    let out = reference(&deployment);
    cluster.add(deployment);
    running(cluster, namespace, &owner, existing);
    out
}

fn running(cluster: &mut FaultyCluster, namespace: &str, owner: &Owner, pods: i64) {
    let spec = cluster.pod_spec();
    for _ in 0..pods {
        let mut pod = cluster.replica(namespace, owner, &spec, 4000);
        let node = cluster.node();
        cluster.running(&mut pod, &node, 3900);
        cluster.add(pod);
    }
}

fn add_quota(cluster: &mut FaultyCluster, namespace: &str, pods: i64) {
    let mut quota = cluster.object("v1", "ResourceQuota", namespace, "small", 86_400);
    let count = pods.to_string();
    quota["spec"] = json!({ "hard": { "pods": count } });
    quota["status"] = json!({ "hard": { "pods": count }, "used": { "pods": count } });
    cluster.add(quota);
}

/// A quota allows no more pods of a Deployment.
pub(super) fn quota_of_deployment(cluster: &mut FaultyCluster, namespace: &str) {
    add_quota(cluster, namespace, 1);
    let message =
        "pods \"app-x\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1";
    let deployment = rejected(cluster, namespace, 1, message);
    cluster.expect("QuotaExceeded", &format!("resourcequota/{namespace}/small"), [deployment]);
}

/// A rollout cannot create its first pod: the old ones are all available.
pub(super) fn rollout_by_quota(cluster: &mut FaultyCluster, namespace: &str) {
    add_quota(cluster, namespace, 2);
    let spec = cluster.pod_spec();
    let (mut deployment, owner) = cluster.deployment(namespace, "app", 2, 2, &spec);
    deployment["status"]["updatedReplicas"] = 0.into();
    deployment["status"]["conditions"][1] = json!({ "type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
        "message": "ReplicaSet \"app-new\" has timed out progressing.", "lastUpdateTime": cluster.ago(1000), "lastTransitionTime": cluster.ago(1000) });
    let failure = replica_failure(
        cluster,
        "pods \"app-new-1\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2",
    );
    if let Some(conditions) = deployment["status"]["conditions"].as_array_mut() {
        conditions.push(failure);
    }
    cluster.expect("QuotaExceeded", &format!("resourcequota/{namespace}/small"), [reference(&deployment)]);
    cluster.add(deployment);
    running(cluster, namespace, &owner, 2);
}

/// A quota allows no pods of a StatefulSet, which has no condition that says so.
pub(super) fn quota_of_stateful_set(cluster: &mut FaultyCluster, namespace: &str) {
    add_quota(cluster, namespace, 3);
    let spec = cluster.pod_spec();
    let (mut set, _) = cluster.stateful_set(namespace, "db", 2, 0, &spec);
    set["status"]["replicas"] = 0.into();
    let message = "Create Pod db-0 in StatefulSet db failed error: pods \"db-0\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=3, limited: pods=3";
    cluster.warning(&set, "FailedCreate", message, "statefulset-controller");
    cluster.expect("QuotaExceeded", &format!("resourcequota/{namespace}/small"), [reference(&set)]);
    cluster.add(set);
}

/// A quota allows no more Jobs of a CronJob.
pub(super) fn quota_of_cron_job(cluster: &mut FaultyCluster, namespace: &str) {
    let mut quota = cluster.object("v1", "ResourceQuota", namespace, "jobs", 86_400);
    quota["spec"] = json!({ "hard": { "count/jobs.batch": "1" } });
    quota["status"] = json!({ "hard": { "count/jobs.batch": "1" }, "used": { "count/jobs.batch": "1" } });
    let mut cron = cluster.object("batch/v1", "CronJob", namespace, "backup", 86_400);
    let mut spec = cluster.pod_spec();
    spec["restartPolicy"] = "OnFailure".into();
    cron["spec"] = json!({ "schedule": "0 * * * *", "concurrencyPolicy": "Allow", "suspend": false,
        "jobTemplate": { "spec": { "template": { "spec": spec } } } });
    cron["status"] = json!({ "lastScheduleTime": cluster.ago(7200), "lastSuccessfulTime": cluster.ago(7100) });
    let mut job = cluster.object("batch/v1", "Job", namespace, "backup-29000000", 7200);
    job["metadata"]["ownerReferences"] = json!([{ "apiVersion": "batch/v1", "kind": "CronJob", "name": "backup",
        "uid": cron["metadata"]["uid"], "controller": true }]);
    job["spec"] = json!({ "backoffLimit": 6, "completions": 1, "parallelism": 1, "template": { "spec": spec } });
    job["status"] = json!({ "succeeded": 1, "startTime": cluster.ago(7200), "completionTime": cluster.ago(7100),
        "conditions": [{ "type": "Complete", "status": "True", "lastTransitionTime": cluster.ago(7100) }] });
    let message = "Error creating job: jobs.batch \"backup-29000060\" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1, used: count/jobs.batch=1, limited: count/jobs.batch=1";
    cluster.warning(&cron, "FailedCreate", message, "cronjob-controller");
    // A CronJob has no condition: nothing but the event tells that it failed.
    if cluster.has_events {
        cluster.expect("QuotaExceeded", &format!("resourcequota/{namespace}/jobs"), [reference(&cron)]);
    }
    for object in [quota, cron, job] {
        cluster.add(object);
    }
}

/// The ServiceAccount of a Deployment does not exist.
pub(super) fn service_account_missing(cluster: &mut FaultyCluster, namespace: &str) {
    let message = format!(
        "pods \"app-x-\" is forbidden: error looking up service account {namespace}/robot: serviceaccount \"robot\" not found"
    );
    let deployment = rejected(cluster, namespace, 0, &message);
    cluster.expect("MissingReference", &format!("serviceaccount/{namespace}/robot"), [deployment]);
}

/// A LimitRange rejects the pods of a Deployment.
pub(super) fn limit_range(cluster: &mut FaultyCluster, namespace: &str) {
    let message = "pods \"app-x\" is forbidden: [maximum cpu usage per Container is 50m, but limit is 100m]";
    let deployment = rejected(cluster, namespace, 0, message);
    cluster.expect("CreateRejected", &deployment, [deployment.clone()]);
}

/// A workload lacks pods, and nothing says why.
pub(super) fn replicas_missing(cluster: &mut FaultyCluster, namespace: &str) {
    let spec = cluster.pod_spec();
    let (mut set, _) = cluster.stateful_set(namespace, "db", 2, 0, &spec);
    set["status"]["replicas"] = 0.into();
    cluster.expect("ReplicasMissing", &reference(&set), [reference(&set)]);
    cluster.add(set);
}
