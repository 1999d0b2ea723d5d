//! Reads the output of `gluster peer status`.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};

use super::{host, pod};

/// Another peer, in glusterd's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Friend {
    /// `Hostname:`.
    pub host: String,
    /// `Uuid:`.
    pub uuid: String,
    /// `State:`, such as `Peer in Cluster (Connected)`.
    pub state: String,
}

/// All is well with one.
pub(super) const WELL: &str = "Peer in Cluster (Connected)";

/// Reads what was printed.
pub(super) fn read(text: &str) -> Result<Vec<Friend>> {
    let mut friends: Vec<Friend> = Vec::new();
    for line in text.lines() {
        if let Some(host) = line.strip_prefix("Hostname: ") {
            friends.push(Friend { host: host.to_owned(), uuid: String::new(), state: String::new() });
        } else if let Some(last) = friends.last_mut() {
            if let Some(uuid) = line.strip_prefix("Uuid: ") {
                uuid.clone_into(&mut last.uuid);
            } else if let Some(state) = line.strip_prefix("State: ") {
                state.clone_into(&mut last.state);
            }
        }
    }
    let count = text.lines().find_map(|line| line.strip_prefix("Number of Peers: ")).and_then(|n| n.parse().ok());
    ensure!(count == Some(friends.len()), "no peer status: {text}");
    Ok(friends)
}

/// What one peer sees that is not as it should be.
pub(super) fn faults(
    ordinal: u32,
    friends: &[Friend],
    identities: &BTreeMap<u32, String>,
    replicas: u32,
) -> Vec<String> {
    let mut faults = Vec::new();
    for other in (0..replicas).filter(|other| *other != ordinal) {
        let (sees, name) = (pod(ordinal), pod(other));
        match friends.iter().find(|friend| friend.host == host(other)) {
            None => faults.push(format!("{sees} does not see {name}")),
            Some(friend) if friend.state != WELL => faults.push(format!("{sees} sees {name}: {}", friend.state)),
            Some(friend) if identities.get(&other).is_some_and(|identity| *identity != friend.uuid) => {
                faults.push(format!("{sees} knows {name} as {}, which is {}", friend.uuid, identities[&other]));
            }
            Some(_) => {}
        }
    }
    let wanted = |friend: &&Friend| (0..replicas).any(|other| host(other) == friend.host);
    faults.extend(friends.iter().filter(|f| !wanted(f)).map(|f| format!("{} still sees {}", pod(ordinal), f.host)));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_status_is_read() {
        let text = "Number of Peers: 1\n\nHostname: glusterfs-1.glusterfs.default.svc.cluster.local\nUuid: d77f\nState: Peer Rejected (Connected)\nOther names:\n10.0.0.1\n";
        let friends = read(text).expect("this is what gluster prints");
        assert_eq!((friends[0].uuid.as_str(), friends[0].state.as_str()), ("d77f", "Peer Rejected (Connected)"));
        assert!(read("peer status: failed").is_err());
        let identities = BTreeMap::from([(0, "a".to_owned()), (1, "d77f".to_owned())]);
        assert_eq!(faults(0, &friends, &identities, 2), ["glusterfs-0 sees glusterfs-1: Peer Rejected (Connected)"]);
    }
}
