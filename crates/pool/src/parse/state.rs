//! `glusterd.info` and the files in `peers/`.

use super::{ParseError, pairs};
use crate::{HostName, Identity, PeerFile, PeerId};

/// Parses identity and operating version from `glusterd.info`. Either may be missing: a glusterd that is killed early
/// leaves such a file behind.
pub fn glusterd_info(text: &str) -> (Option<PeerId>, Option<u32>) {
    let mut found = (None, None);
    for (key, value) in pairs(text) {
        match key {
            "UUID" => found.0 = value.parse().ok(),
            "operating-version" => found.1 = value.parse().ok(),
            _ => {}
        }
    }
    found
}

/// Formats `glusterd.info` for an identity.
pub fn write_glusterd_info(identity: &Identity) -> String {
    format!("UUID={}\noperating-version={}\n", identity.uuid, identity.operating_version)
}

/// Parses a file in `peers/`.
pub fn peer_file(text: &str) -> Result<PeerFile, ParseError> {
    let wrong = |reason: &str| ParseError::new("file in peers/", reason);
    let (mut uuid, mut state, mut hosts) = (None, None, Vec::<HostName>::new());
    for (key, value) in pairs(text) {
        match key {
            "uuid" => uuid = value.parse().ok(),
            "state" => state = value.parse().ok(),
            // An invalid name cannot be used: the peer is listed without it.
            _ if key.starts_with("hostname") => hosts.extend(value.parse::<HostName>().ok()),
            _ => {}
        }
    }
    let uuid = uuid.ok_or_else(|| wrong("it has no uuid"))?;
    let state = state.ok_or_else(|| wrong("it has no state"))?;
    if hosts.is_empty() {
        return Err(wrong("it has no hostname1"));
    }
    Ok(PeerFile { uuid, state, hosts })
}

/// Formats a file in `peers/`; it has to be named for the peer's UUID.
pub fn write_peer_file(peer: &PeerFile) -> String {
    let mut text = format!("uuid={}\nstate={}\n", peer.uuid, peer.state);
    for (i, host) in peer.hosts.iter().enumerate() {
        text.push_str(&format!("hostname{}={host}\n", i + 1));
    }
    text
}
