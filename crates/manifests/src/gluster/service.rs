//! What stands around the pods.

use serde_json::{Value, json};

use super::pod::{AGENT_PORT_NAME, GLUSTERD_PORT, GLUSTERD_PORT_NAME};
use super::values::Pool;
use super::{labels, manifest};
use crate::manifest::{Manifest, Part};

/// The namespace. glusterd's pods are more than the cluster's own standards let in.
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

/// The headless Service: a name for each peer, from before it is ready, because only then it can become so.
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

/// One peer at a time is drained, and only while all others are ready: one with a heal pending is not.
pub(super) fn budget(pool: &Pool) -> Manifest {
    let spec = json!({"maxUnavailable": 1, "selector": {"matchLabels": labels(pool)}});
    manifest(pool, "poddisruptionbudgets", "policy/v1", "PodDisruptionBudget", json!({"spec": spec}))
}
