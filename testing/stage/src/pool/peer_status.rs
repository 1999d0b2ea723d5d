//! Parses the output of `gluster peer status`.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::{host, pod};

/// A peer in the output of `gluster peer status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatusEntry {
    /// `Hostname:`.
    pub host: String,
    /// `Uuid:`.
    pub uuid: String,
    /// `State:`, such as `Peer in Cluster (Connected)`.
    pub state: String,
}

/// The state of a healthy peer.
pub(super) const CONNECTED: &str = "Peer in Cluster (Connected)";

/// Parses the output.
pub(super) fn parse(text: &str) -> Result<Vec<PeerStatusEntry>> {
    let mut peers: Vec<PeerStatusEntry> = Vec::new();
    for line in text.lines() {
        if let Some(host) = line.strip_prefix("Hostname: ") {
            peers.push(PeerStatusEntry { host: host.to_owned(), uuid: String::new(), state: String::new() });
        } else if let Some(last) = peers.last_mut() {
            if let Some(uuid) = line.strip_prefix("Uuid: ") {
                uuid.clone_into(&mut last.uuid);
            } else if let Some(state) = line.strip_prefix("State: ") {
                state.clone_into(&mut last.state);
            }
        }
    }
    let count = text.lines().find_map(|line| line.strip_prefix("Number of Peers: ")).and_then(|n| n.parse().ok());
    ensure!(count == Some(peers.len()), "not the output of `gluster peer status`: {text}");
    Ok(peers)
}

/// Returns what is wrong in the list of one peer.
pub(super) fn problems(
    ordinal: u32,
    peers: &[PeerStatusEntry],
    identities: &BTreeMap<u32, String>,
    replicas: u32,
) -> Vec<String> {
    let mut problems = Vec::new();
    for other in (0..replicas).filter(|other| *other != ordinal) {
        let (peer, name) = (pod(ordinal), pod(other));
        match peers.iter().find(|entry| entry.host == host(other)) {
            None => problems.push(format!("{peer} does not list {name}")),
            Some(entry) if entry.state != CONNECTED => problems.push(format!("{peer} lists {name} as {}", entry.state)),
            Some(entry) if identities.get(&other).is_some_and(|identity| *identity != entry.uuid) => {
                problems.push(format!("{peer} lists {name} with UUID {}, not {}", entry.uuid, identities[&other]));
            }
            Some(_) => {}
        }
    }
    let wanted = |entry: &&PeerStatusEntry| (0..replicas).any(|other| host(other) == entry.host);
    problems.extend(peers.iter().filter(|f| !wanted(f)).map(|f| format!("{} still lists {}", pod(ordinal), f.host)));
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_status_is_parsed() {
        let text = "Number of Peers: 1\n\nHostname: glusterfs-1.glusterfs.default.svc.cluster.local\nUuid: d77f\nState: Peer Rejected (Connected)\nOther names:\n10.0.0.1\n";
        let peers = parse(text).expect("gluster prints this");
        assert_eq!((peers[0].uuid.as_str(), peers[0].state.as_str()), ("d77f", "Peer Rejected (Connected)"));
        assert!(parse("peer status: failed").is_err());
        let identities = BTreeMap::from([(0, "a".to_owned()), (1, "d77f".to_owned())]);
        assert_eq!(problems(0, &peers, &identities, 2), ["glusterfs-0 lists glusterfs-1 as Peer Rejected (Connected)"]);
    }
}
