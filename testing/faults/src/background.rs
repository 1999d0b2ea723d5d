//! A healthy cluster: every kind of workload, and states that look like trouble and are none.

use serde_json::{Value, json};

use crate::cluster::FaultyCluster;
use crate::objects::{DAY, Owner, with_claim};

/// The driver of the background's volumes.
pub(crate) const DRIVER: &str = "disk.example.org";

/// A class that provisions when a pod is scheduled.
pub(crate) const CLASS: &str = "disk";

/// A class that provisions at once.
pub(crate) const IMMEDIATE: &str = "disk-now";

const NAMESPACES: [&str; 4] = ["shop", "billing", "team-a", "openstack"];

pub(crate) fn add(cluster: &mut FaultyCluster) {
    for (name, zone) in cluster.nodes.clone() {
        let mut node = cluster.add_node(&name, &zone);
        node["metadata"]["labels"]["pool"] = "general".into();
        cluster.add(node);
        cluster.add_lease(&name, 5);
        cluster.add_csi_node(&name, &[DRIVER]);
    }
    storage(cluster);
    daemon_set(cluster);
    for namespace in NAMESPACES {
        let mut object = cluster.object("v1", "Namespace", "", namespace, 90 * DAY);
        object["spec"] = json!({ "finalizers": ["kubernetes"] });
        object["status"] = json!({ "phase": "Active" });
        cluster.add(object);
        for app in 0..cluster.apps {
            deployment(cluster, namespace, &format!("web-{app}"));
            stateful_set(cluster, namespace, &format!("db-{app}"));
        }
        jobs(cluster, namespace);
        harmless(cluster, namespace);
    }
}

fn storage(cluster: &mut FaultyCluster) {
    for (name, mode) in [(CLASS, "WaitForFirstConsumer"), (IMMEDIATE, "Immediate")] {
        let mut class = cluster.object("storage.k8s.io/v1", "StorageClass", "", name, 90 * DAY);
        class["provisioner"] = DRIVER.into();
        class["reclaimPolicy"] = "Delete".into();
        class["volumeBindingMode"] = mode.into();
        cluster.add(class);
    }
    let mut driver = cluster.object("storage.k8s.io/v1", "CSIDriver", "", DRIVER, 90 * DAY);
    driver["spec"] = json!({ "attachRequired": true });
    cluster.add(driver);
}

/// A DaemonSet with a pod on every node of the background.
fn daemon_set(cluster: &mut FaultyCluster) {
    let nodes = cluster.nodes.clone();
    let mut set = cluster.object("apps/v1", "DaemonSet", "shop", "agent", 60 * DAY);
    let mut spec = cluster.pod_spec();
    spec["nodeSelector"] = json!({ "pool": "general" });
    let count = nodes.len();
    set["spec"] = json!({ "selector": { "matchLabels": { "app": "agent" } }, "template": { "metadata": { "labels": { "app": "agent" } }, "spec": spec } });
    set["status"] = json!({ "currentNumberScheduled": count, "desiredNumberScheduled": count, "numberAvailable": count,
        "numberMisscheduled": 0, "numberReady": count, "observedGeneration": 1, "updatedNumberScheduled": count });
    let owner = Owner::of("DaemonSet", &set);
    cluster.add(set);
    for (node, _) in nodes {
        let name = format!("agent-{}", cluster.suffix(5));
        let mut pod = cluster.pod("shop", &name, Some(&owner), spec.clone(), 20 * DAY);
        cluster.running(&mut pod, &node, 20 * DAY);
        cluster.add(pod);
    }
}

fn deployment(cluster: &mut FaultyCluster, namespace: &str, name: &str) {
    let spec = cluster.pod_spec();
    let replicas = 1 + cluster.chance.below(4) as i64;
    let (deployment, owner) = cluster.deployment(namespace, name, replicas, replicas, &spec);
    cluster.add(deployment);
    for _ in 0..replicas {
        let mut pod = cluster.replica(namespace, &owner, &spec, 9 * DAY);
        let node = cluster.node();
        cluster.running(&mut pod, &node, 9 * DAY);
        if cluster.chance.percent(20) {
            // It has crashed once, long ago or a moment ago.
            pod["status"]["containerStatuses"][0]["restartCount"] = 1.into();
            pod["status"]["containerStatuses"][0]["lastState"] = json!({ "terminated": { "exitCode": 137, "reason": "OOMKilled",
                "startedAt": cluster.ago(9 * DAY), "finishedAt": cluster.ago(4000) } });
        }
        cluster.add(pod);
    }
    budget(cluster, namespace, name, replicas, replicas - 1);
}

/// A budget that allows one eviction, or none: that is a problem only for a drain.
fn budget(cluster: &mut FaultyCluster, namespace: &str, app: &str, pods: i64, needed: i64) {
    let mut budget = cluster.object("policy/v1", "PodDisruptionBudget", namespace, app, 10 * DAY);
    let needed = if cluster.chance.percent(30) { pods } else { needed };
    budget["spec"] = json!({ "minAvailable": needed, "selector": { "matchLabels": { "app": app } } });
    let (reason, status) = if pods > needed { ("SufficientPods", "True") } else { ("InsufficientPods", "False") };
    budget["status"] = json!({ "currentHealthy": pods, "desiredHealthy": needed, "disruptionsAllowed": pods - needed, "expectedPods": pods,
        "observedGeneration": 1, "conditions": [{ "type": "DisruptionAllowed", "status": status, "reason": reason, "message": "",
            "observedGeneration": 1, "lastTransitionTime": cluster.ago(DAY) }] });
    cluster.add(budget);
}

fn stateful_set(cluster: &mut FaultyCluster, namespace: &str, name: &str) {
    let spec = cluster.pod_spec();
    let replicas = 1 + cluster.chance.below(3) as i64;
    let (set, owner) = cluster.stateful_set(namespace, name, replicas, replicas, &spec);
    cluster.add(set);
    for ordinal in 0..replicas {
        let claim = format!("data-{name}-{ordinal}");
        let volume = cluster.add_bound_claim(namespace, &claim, CLASS, DRIVER, &["ReadWriteOnce"]);
        let mut pod = cluster.ordinal(namespace, &owner, ordinal, &with_claim(spec.clone(), &claim), 9 * DAY);
        let node = cluster.node();
        cluster.running(&mut pod, &node, 9 * DAY);
        cluster.add(pod);
        let attachment = cluster.attachment(&volume, &node, DRIVER);
        cluster.add(attachment);
    }
}

/// A Job of a CronJob in a state.
fn job(cluster: &mut FaultyCluster, namespace: &str, name: &str, owner: Option<&Value>, status: Value) -> Owner {
    let mut job = cluster.object("batch/v1", "Job", namespace, name, DAY);
    if let Some(cron) = owner {
        let owner = Owner::of("CronJob", cron);
        job["metadata"]["ownerReferences"] = json!([{ "apiVersion": "batch/v1", "kind": "CronJob", "name": owner.name,
            "uid": cron["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true }]);
    }
    let mut spec = cluster.pod_spec();
    spec["restartPolicy"] = "Never".into();
    job["spec"] = json!({ "backoffLimit": 6, "completions": 1, "parallelism": 1, "template": { "spec": spec } });
    job["status"] = status;
    let owner = Owner::of("Job", &job);
    cluster.add(job);
    owner
}

fn jobs(cluster: &mut FaultyCluster, namespace: &str) {
    let mut cron = cluster.object("batch/v1", "CronJob", namespace, "report", 60 * DAY);
    cron["spec"] = json!({ "schedule": "0 * * * *", "concurrencyPolicy": "Forbid", "suspend": false,
        "jobTemplate": { "spec": { "template": { "spec": cluster.pod_spec() } } } });
    cron["status"] = json!({ "lastScheduleTime": cluster.ago(3600), "lastSuccessfulTime": cluster.ago(3500) });
    let ended = |cluster: &FaultyCluster, kind: &str, reason: &str| {
        json!({ "conditions": [{ "type": kind, "status": "True", "reason": reason, "lastTransitionTime": cluster.ago(3500) }],
            "startTime": cluster.ago(3600), "ready": 0, "terminating": 0, "uncountedTerminatedPods": {} })
    };
    let complete = ended(cluster, "Complete", "CompletionsReached");
    let failed = ended(cluster, "Failed", "BackoffLimitExceeded");
    for (name, status, phase) in [("report-29000001", complete, "Succeeded"), ("report-29000002", failed, "Failed")] {
        let owner = job(cluster, namespace, name, Some(&cron), status);
        let (spec, node) = (cluster.pod_spec(), cluster.node());
        let pod_name = format!("{name}-{}", cluster.suffix(5));
        let mut pod = cluster.pod(namespace, &pod_name, Some(&owner), spec, DAY);
        cluster.ended(&mut pod, &node, phase);
        cluster.add(pod);
    }
    cluster.add(cron);
    let mut suspended = cluster.object("batch/v1", "CronJob", namespace, "old-report", 60 * DAY);
    suspended["spec"] =
        json!({ "schedule": "0 * * * *", "suspend": true, "jobTemplate": { "spec": { "template": { "spec": {} } } } });
    suspended["status"] = json!({});
    cluster.add(suspended);
    let suspension = json!({ "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "Job suspended", "lastTransitionTime": cluster.ago(DAY) });
    let mut held = cluster.object("batch/v1", "Job", namespace, "held", DAY);
    held["spec"] = json!({ "suspend": true, "template": { "spec": cluster.pod_spec() } });
    held["status"] = json!({ "conditions": [suspension], "ready": 0, "terminating": 0, "uncountedTerminatedPods": {} });
    cluster.add(held);
    // It runs, and its pod is ready.
    let status = json!({ "active": 1, "ready": 1, "startTime": cluster.ago(600), "terminating": 0, "uncountedTerminatedPods": {} });
    let owner = job(cluster, namespace, "import", None, status);
    let (mut spec, node) = (cluster.pod_spec(), cluster.node());
    spec["restartPolicy"] = "Never".into();
    let name = format!("import-{}", cluster.suffix(5));
    let mut pod = cluster.pod(namespace, &name, Some(&owner), spec, 600);
    pod["metadata"]["finalizers"] = json!(["batch.kubernetes.io/job-tracking"]);
    cluster.running(&mut pod, &node, 590);
    cluster.add(pod);
}

/// States that look like trouble and are none.
fn harmless(cluster: &mut FaultyCluster, namespace: &str) {
    let (spec, node) = (cluster.pod_spec(), cluster.node());
    let (zero, _) = cluster.deployment(namespace, "zero", 0, 0, &spec);
    cluster.add(zero);
    // Evicted by the kubelet, and not collected yet.
    let mut evicted = cluster.pod(namespace, "evicted", None, spec.clone(), DAY);
    cluster.ended(&mut evicted, &node, "Failed");
    evicted["status"]["reason"] = "Evicted".into();
    cluster.add(evicted);
    // Just created: not scheduled yet, and not started yet.
    let fresh = cluster.pod(namespace, "fresh", None, spec.clone(), 3);
    cluster.add(fresh);
    let mut starting = cluster.pod(namespace, "starting", None, spec.clone(), 60);
    cluster.creating(&mut starting, &node, 59);
    cluster.add(starting);
    // A rollout: one of two pods is new and not ready yet.
    let (mut rollout, owner) = cluster.deployment(namespace, "rollout", 2, 1, &spec);
    rollout["status"]["conditions"][1]["reason"] = "ReplicaSetUpdated".into();
    cluster.add(rollout);
    for (age, ready) in [(DAY, true), (100, false)] {
        let mut pod = cluster.replica(namespace, &owner, &spec, age);
        cluster.running(&mut pod, &node, age - 5);
        if !ready {
            cluster.unready(&mut pod, age - 5);
        }
        cluster.add(pod);
    }
    // Terminating within its grace period.
    let mut leaving = cluster.pod(namespace, "leaving", None, spec.clone(), DAY);
    cluster.running(&mut leaving, &node, DAY);
    cluster.deleted(&mut leaving, 30, -10);
    cluster.add(leaving);
    // A claim that waits for its first pod; a bound one whose class does not exist.
    let waits = cluster.claim(namespace, "waits", Some(CLASS), DAY);
    cluster.add(waits);
    cluster.add_bound_claim(namespace, "static", "manual", DRIVER, &["ReadWriteOnce"]);
    let mut quota = cluster.object("v1", "ResourceQuota", namespace, "limits", 30 * DAY);
    quota["spec"] = json!({ "hard": { "pods": "5000" } });
    quota["status"] = json!({ "hard": { "pods": "5000" }, "used": { "pods": "40" } });
    cluster.add(quota);
}
