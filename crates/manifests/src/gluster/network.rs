//! The NetworkPolicy: who may connect to the pods.

use serde_json::{Value, json};

use super::pod::{AGENT_PORT_NAME, GLUSTERD_PORT};
use super::values::{Network, Pool, Source};
use super::{labels, manifest};
use crate::manifest::Manifest;

/// The ports that glusterd assigns to bricks.
const BRICK_PORTS: (u16, u16) = (49152, 60999);

/// Builds the NetworkPolicy: the pool's pods can reach each other on all ports, only they can reach the agents' port,
/// and clients can reach Gluster's ports. The kubelet can always reach the pods on its own node, so probes work. There
/// is none for pods on the node's network: NetworkPolicies do not apply to them.
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

/// Returns a rule for these ports; none if nobody may use them. A rule without `from` allows everybody.
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
