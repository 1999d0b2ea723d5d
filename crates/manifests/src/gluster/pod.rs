//! The StatefulSet of a pool and its pod template.

use serde_json::{Value, json};
use stead_pool::key_secret;

use super::values::{Network, Pool, Privilege, Probe};
use super::{labels, manifest, placement, storage};
use crate::manifest::Manifest;

/// The port of glusterd.
pub(super) const GLUSTERD_PORT: u16 = 24007;
/// The name of glusterd's port.
pub(super) const GLUSTERD_PORT_NAME: &str = "glusterd";
/// The name of the agent's port.
pub const AGENT_PORT_NAME: &str = "agent";

/// The agent's program, in a volume that both containers share.
pub(super) const PROGRAM_VOLUME: &str = "stead";
pub(super) const PROGRAM_FOLDER: &str = "/opt/stead";
const PROGRAM: &str = "/opt/stead/stead";

/// Builds the StatefulSet. All pods start at the same time: after an outage, the pool works only when all are back.
pub(super) fn stateful_set(pool: &Pool) -> Manifest {
    let spec = json!({
        "serviceName": pool.service,
        "replicas": pool.replicas,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"},
        "selector": {"matchLabels": labels(pool)},
        "template": {
            "metadata": {"labels": labels(pool), "annotations": {key_secret::SIGNS: "true"}},
            "spec": pod(pool),
        },
        "volumeClaimTemplates": storage::claims(pool),
    });
    manifest(pool, "statefulsets", "apps/v1", "StatefulSet", json!({"spec": spec}))
}

fn pod(pool: &Pool) -> Value {
    let mut pod = json!({
        "serviceAccountName": pool.name,
        "automountServiceAccountToken": true,
        "terminationGracePeriodSeconds": pool.grace_seconds,
        "initContainers": [program(pool)],
        "containers": [gluster(pool)],
        "volumes": [{"name": PROGRAM_VOLUME, "emptyDir": {}}],
    });
    if pool.network == Network::Host {
        pod["hostNetwork"] = true.into();
        // Without this, a pod on its node's network cannot resolve the other peers' names.
        pod["dnsPolicy"] = "ClusterFirstWithHostNet".into();
    }
    placement::place(&mut pod, pool);
    pod
}

/// The init container that copies the static program to where any image can run it: the gluster image need not contain
/// Stead.
fn program(pool: &Pool) -> Value {
    json!({
        "name": "stead",
        "image": pool.stead_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/stead", "gluster", "copy-agent", PROGRAM],
        "volumeMounts": [{"name": PROGRAM_VOLUME, "mountPath": PROGRAM_FOLDER}],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
    })
}

fn gluster(pool: &Pool) -> Value {
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    let mut container = json!({
        "name": "gluster",
        "image": pool.image,
        "imagePullPolicy": "IfNotPresent",
        "command": [PROGRAM, "gluster", "agent"],
        "args": arguments(pool),
        // Explicit, because on the node's network the host name is not the pod's name.
        "env": [
            field("POD_NAME", "metadata.name"),
            field("POD_NAMESPACE", "metadata.namespace"),
            field("POD_UID", "metadata.uid"),
            field("POD_IP", "status.podIP"),
            field("NODE_NAME", "spec.nodeName"),
        ],
        "ports": [
            {"name": GLUSTERD_PORT_NAME, "containerPort": GLUSTERD_PORT, "protocol": "TCP"},
            {"name": AGENT_PORT_NAME, "containerPort": pool.agent_port, "protocol": "TCP"},
        ],
        "startupProbe": probe("/livez", pool.startup),
        "livenessProbe": probe("/livez", pool.liveness),
        "readinessProbe": probe("/readyz", pool.readiness),
        "securityContext": security(pool.privilege),
        "volumeMounts": [
            {"name": PROGRAM_VOLUME, "mountPath": PROGRAM_FOLDER, "readOnly": true},
            mount(&pool.state_claim, super::STATE_PATH),
            mount(&pool.brick_claim, &pool.brick_path),
        ],
    });
    let kinds = [("requests", &pool.requests), ("limits", &pool.limits)];
    for (kind, amounts) in kinds.into_iter().filter(|(_, amounts)| !amounts.is_empty()) {
        container["resources"][kind] = json!(amounts);
    }
    container
}

fn arguments(pool: &Pool) -> Vec<String> {
    vec![
        format!("--pool={}", pool.name),
        format!("--service={}", pool.service),
        format!("--cluster-domain={}", pool.cluster_domain),
        format!("--listen=0.0.0.0:{}", pool.agent_port),
        // The other half of the grace period is for stopping glusterd and its bricks; the agent waits for at most an
        // hour.
        format!("--leave-seconds={}", (pool.grace_seconds / 2).min(3600)),
        format!("--key-secret={}", key_secret::name(&pool.name)),
        "--log-format=json".to_owned(),
    ]
}

fn probe(path: &str, times: Probe) -> Value {
    let mut probe = json!({
        "httpGet": {"path": path, "port": AGENT_PORT_NAME},
        "periodSeconds": times.period,
        "timeoutSeconds": times.timeout,
        "failureThreshold": times.failures,
    });
    // The API server omits a zero.
    if times.delay > 0 {
        probe["initialDelaySeconds"] = times.delay.into();
    }
    probe
}

/// Bricks need `trusted.*` attributes, which require CAP_SYS_ADMIN; without it glusterd creates no volume. Mounting
/// volumes in the pod itself needs more: the device `/dev/fuse`.
fn security(privilege: Privilege) -> Value {
    match privilege {
        Privilege::Privileged => json!({"privileged": true}),
        Privilege::Capabilities => json!({"capabilities": {"add": ["SYS_ADMIN"]}}),
    }
}
