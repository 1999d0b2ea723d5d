//! Who may connect to the pods.

use serde_json::{Value, json};

use super::pod::{AGENT_PORT_NAME, GLUSTERD_PORT};
use super::values::{Network, Pool, Source};
use super::{labels, manifest};
use crate::manifest::Manifest;

/// The ports that glusterd gives to bricks.
const BRICK_PORTS: (u16, u16) = (49152, 60999);

/// The NetworkPolicy: the pool's pods reach each other on all ports, the agents' port is for them alone, and Gluster's
/// ports are for clients. The kubelet on a pod's own node reaches it in any case, so probes work. On the nodes' network
/// no NetworkPolicy applies: there is none.
pub(super) fn policy(pool: &Pool) -> Option<Manifest> {
    if pool.network == Network::Host {
        return None;
    }
    let peers = json!({"from": [{"podSelector": {"matchLabels": labels(pool)}}]});
    let tcp = |port: Value| json!({"protocol": "TCP", "port": port});
    let bricks = json!({"protocol": "TCP", "port": BRICK_PORTS.0, "endPort": BRICK_PORTS.1});
    let clients = rule(json!([tcp(GLUSTERD_PORT.into()), bricks]), &pool.allow_clients);
    let agents = rule(json!([tcp(AGENT_PORT_NAME.into())]), &pool.allow_agents);
    let ingress: Vec<Value> = [Some(peers), clients, agents].into_iter().flatten().collect();
    let spec = json!({
        "podSelector": {"matchLabels": labels(pool)},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    });
    Some(manifest(pool, "networkpolicies", "networking.k8s.io/v1", "NetworkPolicy", json!({"spec": spec})))
}

/// A rule for these ports; none if nobody may use them. A rule without `from` is for everybody.
fn rule(ports: Value, sources: &[Source]) -> Option<Value> {
    if sources.is_empty() {
        return None;
    }
    if sources.contains(&Source::Any) {
        return Some(json!({"ports": ports}));
    }
    let from = sources.iter().filter_map(|source| match source {
        Source::Any => None,
        Source::Addresses(cidr) => Some(json!({"ipBlock": {"cidr": cidr}})),
        Source::Namespace(name) => {
            Some(json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}))
        }
    });
    Some(json!({"ports": ports, "from": from.collect::<Vec<Value>>()}))
}
