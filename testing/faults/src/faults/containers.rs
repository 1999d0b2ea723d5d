//! Containers that do not start, do not stay up or are not ready.

use serde_json::{Value, json};

use super::{NO_OWNER, broken_deployment, expect_pods};
use crate::cluster::FaultyCluster;
use crate::objects::{DAY, Owner, reference};

/// An image cannot be pulled.
pub(super) fn image_pull(cluster: &mut FaultyCluster, namespace: &str) {
    let spec = cluster.pod_spec();
    let reasons = [
        (
            "ImagePullBackOff",
            "Back-off pulling image \"registry.example/app:1\": ErrImagePull: failed to resolve reference: not found",
        ),
        ("ErrImagePull", "failed to pull and unpack image \"registry.example/app:1\": 401 Unauthorized"),
        (
            "InvalidImageName",
            "Failed to apply default image tag \"App:1\": couldn't parse image name \"App:1\": invalid reference format",
        ),
        ("ErrImageNeverPull", "Container image \"registry.example/app:1\" is not present with pull policy of Never"),
    ];
    let (reason, message) = cluster.chance.one_of(&reasons).unwrap_or(("ErrImagePull", ""));
    let pods = 1 + cluster.chance.below(3) as i64;
    let (pods, deployment) = broken_deployment(cluster, namespace, pods, &spec, |cluster, pod| {
        let node = cluster.node();
        cluster.creating(pod, &node, 3000);
        pod["status"]["conditions"][0]["status"] = "True".into();
        cluster.waiting(pod, reason, message);
        cluster.warning(pod, "Failed", "Error: ErrImagePull", "kubelet");
    });
    expect_pods(cluster, "ImagePull", pods, deployment);
}

fn crashed(cluster: &FaultyCluster, code: i64, reason: &str) -> Value {
    json!({ "terminated": { "exitCode": code, "reason": reason, "startedAt": cluster.ago(200), "finishedAt": cluster.ago(190),
        "containerID": "containerd://0" } })
}

/// A container ends again and again: in back-off, or between two attempts.
pub(super) fn crash_loop(cluster: &mut FaultyCluster, namespace: &str) {
    let spec = cluster.pod_spec();
    let pods = 1 + cluster.chance.below(3) as i64;
    let waits = cluster.chance.percent(70);
    let (pods, deployment) = broken_deployment(cluster, namespace, pods, &spec, |cluster, pod| {
        let node = cluster.node();
        cluster.running(pod, &node, 3000);
        cluster.unready(pod, 190);
        let ended = crashed(cluster, 1, "Error");
        let container = &mut pod["status"]["containerStatuses"][0];
        container["restartCount"] = 14.into();
        container["lastState"] = ended.clone();
        if waits {
            cluster.waiting(pod, "CrashLoopBackOff", "back-off 5m0s restarting failed container=app pod=app_x(0)");
        } else {
            pod["status"]["containerStatuses"][0]["state"] = ended;
        }
        cluster.warning(pod, "BackOff", "Back-off restarting failed container app in pod app_x(0)", "kubelet");
    });
    expect_pods(cluster, "CrashLoop", pods, deployment);
}

/// A container is killed for its memory again and again.
pub(super) fn out_of_memory(cluster: &mut FaultyCluster, namespace: &str) {
    let spec = cluster.pod_spec();
    let (set, owner) = cluster.stateful_set(namespace, "cache", 1, 0, &spec);
    let mut pod = cluster.ordinal(namespace, &owner, 0, &spec, DAY);
    let node = cluster.node();
    cluster.running(&mut pod, &node, DAY);
    cluster.unready(&mut pod, 190);
    pod["status"]["containerStatuses"][0]["restartCount"] = 7.into();
    pod["status"]["containerStatuses"][0]["lastState"] = crashed(cluster, 137, "OOMKilled");
    cluster.waiting(&mut pod, "CrashLoopBackOff", "back-off 5m0s restarting failed container=app pod=cache-0");
    cluster.expect("CrashLoop", &reference(&pod), [reference(&pod), reference(&set)]);
    cluster.add(set);
    cluster.add(pod);
}

fn with_init_container(cluster: &mut FaultyCluster, state: Value, restarts: i64) -> (Value, Value) {
    let mut spec = cluster.pod_spec();
    spec["initContainers"] = json!([{ "name": "setup", "image": "registry.example/setup:1" }]);
    let status = json!([{ "name": "setup", "image": "registry.example/setup:1", "imageID": "x", "ready": false, "restartCount": restarts,
        "started": false, "lastState": {}, "state": state }]);
    (spec, status)
}

fn initializing(cluster: &mut FaultyCluster, pod: &mut Value, statuses: Value) {
    let node = cluster.node();
    cluster.creating(pod, &node, 3000);
    cluster.waiting(pod, "PodInitializing", "");
    pod["status"]["initContainerStatuses"] = statuses;
    pod["status"]["conditions"][0]["status"] = "True".into();
    let mut initialized = cluster.condition("Initialized", "False", 3000);
    initialized["reason"] = "ContainersNotInitialized".into();
    initialized["message"] = "containers with incomplete status: [setup]".into();
    pod["status"]["conditions"][1] = initialized;
}

/// An init container fails again and again.
pub(super) fn init_container_fails(cluster: &mut FaultyCluster, namespace: &str) {
    let waiting = json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 2m40s restarting failed container=setup pod=app" } });
    let (spec, statuses) = with_init_container(cluster, waiting, 5);
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 3600);
    initializing(cluster, &mut pod, statuses);
    cluster.expect("CrashLoop", &reference(&pod), [reference(&pod)]);
    cluster.add(pod);
}

/// An init container waits for something.
pub(super) fn init_not_finished(cluster: &mut FaultyCluster, namespace: &str) {
    let running = json!({ "running": { "startedAt": cluster.ago(2900) } });
    let (spec, statuses) = with_init_container(cluster, running, 0);
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 3600);
    initializing(cluster, &mut pod, statuses);
    cluster.expect("InitNotFinished", &reference(&pod), [reference(&pod)]);
    cluster.add(pod);
}

/// A readiness probe fails.
pub(super) fn probe_fails(cluster: &mut FaultyCluster, namespace: &str) {
    let mut spec = cluster.pod_spec();
    spec["containers"][0]["readinessProbe"] =
        json!({ "httpGet": { "path": "/ready", "port": 8080 }, "periodSeconds": 10 });
    let pods = 1 + cluster.chance.below(2) as i64;
    let (pods, deployment) = broken_deployment(cluster, namespace, pods, &spec, |cluster, pod| {
        let node = cluster.node();
        cluster.running(pod, &node, 3000);
        cluster.unready(pod, 2900);
        cluster.warning(pod, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503", "kubelet");
    });
    expect_pods(cluster, "ProbeFailing", pods, deployment);
}

/// A container's environment refers to a ConfigMap or Secret that does not exist, or to a key of it.
pub(super) fn config_map_missing(cluster: &mut FaultyCluster, namespace: &str) {
    let spec = cluster.pod_spec();
    let (message, about) = match cluster.chance.below(3) {
        0 => ("configmap \"settings\" not found".to_owned(), format!("configmap/{namespace}/settings")),
        1 => ("secret \"login\" not found".to_owned(), format!("secret/{namespace}/login")),
        _ => (format!("couldn't find key user in Secret {namespace}/login"), format!("secret/{namespace}/login")),
    };
    let (pods, deployment) = broken_deployment(cluster, namespace, 2, &spec, |cluster, pod| {
        let node = cluster.node();
        cluster.creating(pod, &node, 3000);
        cluster.waiting(pod, "CreateContainerConfigError", &message);
    });
    cluster.expect("MissingReference", &about, pods.into_iter().chain([deployment]));
}

/// An image runs as root, which the pod forbids.
pub(super) fn run_as_root(cluster: &mut FaultyCluster, namespace: &str) {
    let spec = cluster.pod_spec();
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 3600);
    let node = cluster.node();
    cluster.creating(&mut pod, &node, 3000);
    cluster.waiting(
        &mut pod,
        "CreateContainerConfigError",
        "container has runAsNonRoot and image will run as root (pod: \"app\", container: app)",
    );
    cluster.expect("ConfigInvalid", &reference(&pod), [reference(&pod)]);
    cluster.add(pod);
}

/// A Secret of a volume does not exist. Without the kubelet's event nothing tells why the pod does not start.
pub(super) fn secret_volume_missing(cluster: &mut FaultyCluster, namespace: &str) {
    let mut spec = cluster.pod_spec();
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(json!({ "name": "tls", "secret": { "secretName": "cert", "defaultMode": 420 } }));
    }
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 3600);
    let node = cluster.node();
    cluster.creating(&mut pod, &node, 3000);
    cluster.warning(
        &pod,
        "FailedMount",
        "MountVolume.SetUp failed for volume \"tls\" : secret \"cert\" not found",
        "kubelet",
    );
    let (cause, about) = match cluster.has_events {
        true => ("MissingReference", format!("secret/{namespace}/cert")),
        false => ("NotStarting", reference(&pod)),
    };
    cluster.expect(cause, &about, [reference(&pod)]);
    cluster.add(pod);
}

/// The network plugin fails.
pub(super) fn sandbox_fails(cluster: &mut FaultyCluster, namespace: &str) {
    let spec = cluster.pod_spec();
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 3600);
    let node = cluster.node();
    cluster.creating(&mut pod, &node, 3000);
    let message = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox \"0\": plugin type=\"calico\" failed (add): no more addresses";
    cluster.warning(&pod, "FailedCreatePodSandBox", message, "kubelet");
    let cause = if cluster.has_events { "SandboxFailing" } else { "NotStarting" };
    cluster.expect(cause, &reference(&pod), [reference(&pod)]);
    cluster.add(pod);
}

/// A readiness gate is not set by its controller.
pub(super) fn readiness_gate(cluster: &mut FaultyCluster, namespace: &str) {
    let mut spec = cluster.pod_spec();
    spec["readinessGates"] = json!([{ "conditionType": "example.org/registered" }]);
    let mut pod = cluster.pod(namespace, "app", NO_OWNER, spec, 3600);
    let node = cluster.node();
    cluster.running(&mut pod, &node, 3000);
    let mut ready = cluster.condition("Ready", "False", 3000);
    ready["reason"] = "ReadinessGatesNotReady".into();
    ready["message"] =
        "corresponding condition of pod readiness gate \"example.org/registered\" does not exist.".into();
    pod["status"]["conditions"][2] = ready;
    cluster.expect("NotReady", &reference(&pod), [reference(&pod)]);
    cluster.add(pod);
}

/// The Job of a CronJob that allows one at a time does not end.
pub(super) fn cron_job_stuck(cluster: &mut FaultyCluster, namespace: &str) {
    let mut cron = cluster.object("batch/v1", "CronJob", namespace, "backup", 60 * DAY);
    let mut job = cluster.object("batch/v1", "Job", namespace, "backup-29000000", 4000);
    let mut spec = cluster.pod_spec();
    spec["restartPolicy"] = "OnFailure".into();
    cron["spec"] = json!({ "schedule": "0 * * * *", "concurrencyPolicy": "Forbid", "suspend": false, "jobTemplate": { "spec": { "template": { "spec": spec } } } });
    cron["status"] = json!({ "active": [{ "apiVersion": "batch/v1", "kind": "Job", "namespace": namespace, "name": "backup-29000000", "uid": job["metadata"]["uid"] }], "lastScheduleTime": cluster.ago(4000) });
    job["metadata"]["ownerReferences"] = json!([{ "apiVersion": "batch/v1", "kind": "CronJob", "name": "backup", "uid": cron["metadata"]["uid"], "controller": true }]);
    job["spec"] = json!({ "backoffLimit": 6, "completions": 1, "parallelism": 1, "template": { "spec": spec } });
    job["status"] = json!({ "active": 1, "ready": 0, "startTime": cluster.ago(4000), "terminating": 0, "uncountedTerminatedPods": {} });
    let owner = Owner::of("Job", &job);
    let mut pod = cluster.pod(
        namespace,
        &format!("backup-29000000-{}", cluster.now.as_second() % 100_000),
        Some(&owner),
        spec,
        3990,
    );
    let node = cluster.node();
    cluster.creating(&mut pod, &node, 3900);
    cluster.waiting(&mut pod, "ImagePullBackOff", "Back-off pulling image \"registry.example/app:1\"");
    cluster.expect("ImagePull", &reference(&pod), [reference(&pod), reference(&job), reference(&cron)]);
    for object in [cron, job, pod] {
        cluster.add(object);
    }
}
