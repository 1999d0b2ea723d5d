//! Namespace, Service and PodDisruptionBudget of a pool.

use serde_json::{Value, json};

use super::pod::{AGENT_PORT_NAME, GLUSTERD_PORT, GLUSTERD_PORT_NAME};
use super::values::Pool;
use super::{labels, manifest};
use crate::manifest::{Manifest, Part};

/// The namespace. glusterd's pods need the Pod Security level `privileged`.
pub(super) fn namespace(pool: &Pool) -> Manifest {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": pool.namespace,
            "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
        },
    });
    Manifest::new(Part::Pool, "namespaces", object)
}

/// The headless Service: a DNS name for each peer even before it is ready, because it needs the name to become ready.
pub(super) fn service(pool: &Pool) -> Manifest {
    let port = |name: &str, port: u16| json!({"name": name, "port": port, "targetPort": name, "protocol": "TCP"});
    let mut service = manifest(
        pool,
        "services",
        "v1",
        "Service",
        json!({"spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": labels(pool),
            "ports": [port(GLUSTERD_PORT_NAME, GLUSTERD_PORT), port(AGENT_PORT_NAME, pool.agent_port)],
        }}),
    );
    service.object["metadata"]["name"] = Value::from(pool.service.as_str());
    service
}

/// The disruption budget: one peer at a time is drained, and only while all others are ready. A peer with pending heals
/// is not ready.
pub(super) fn budget(pool: &Pool) -> Manifest {
    let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": labels(pool)}});
    manifest(pool, "poddisruptionbudgets", "policy/v1", "PodDisruptionBudget", json!({"spec": spec}))
}
